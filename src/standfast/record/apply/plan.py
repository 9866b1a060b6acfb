"""The differences between a specification and the store. It only reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from standfast import serial
from standfast.config.scope import Keyspace
from standfast.db.contract import Row, Tx
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.ledger import gates
from standfast.record.apply.models import Applied, Change, Item
from standfast.record.apply.spec import Spec, local
from standfast.record.loops import edit, schedule
from standfast.record.state import schemas, values
from standfast.record.state.models import Place
from standfast.record.tasks import changes, graph

TASK_FIELDS = {
    "title": "title",
    "body": "body",
    "priority": "priority",
    "labels": "labels",
    "branch": "branch",
    "assignee": "assignee",
    "cool_down": "cool_down_us",
    "due": "due_us",
}
"""Fields that can be changed on an open task, and their columns. The other fields are its identity."""
VALUE_SHOWN = 500


class Found(NamedTuple):
    """The change of one entry, and the problem with it."""

    change: Change
    problem: str | None = None


def against_nothing(spec: Spec, mode: str, key: str | None) -> Applied:
    """The plan if there is no store yet: every entry is new."""
    problems = list(spec.problems)
    for item in spec.of("tasks"):
        problems += [_unresolved(item, word) for word in _references(item) if word not in local(spec.of("tasks"))]
    changes = tuple(_new(item) for item in spec.items)
    return Applied(mode, key, spec.hash, changes, tuple(problems))


def plan(tx: Tx, spec: Spec) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """The change of each entry, and every check that fails."""
    names = local(spec.of("tasks"))
    found = [_LOOKS[item.section](tx, item, names) for item in spec.items]
    problems = [
        f"{one.change.place} ({serial.clean(one.change.name, 60)}): {one.problem}" for one in found if one.problem
    ]
    return tuple(one.change for one in found), (*spec.problems, *problems)


# -- one entry -------------------------------------------------------------------------------------------


def task_row(tx: Tx, item: Item) -> Row | None:
    """The newest episode of the task, if there is one."""
    return tx.maybe(changes.SQL.by_fingerprint, fingerprint=item.wanted.fingerprint, **tx.caller.keyspace._asdict())


def _task(tx: Tx, item: Item, names: dict[str, Item]) -> Found:
    row = task_row(tx, item)
    referred, problem = _resolved(tx, item, names)
    if row is None:
        return Found(_new(item), problem)
    if row["state"] == "closed":
        return Found(_same(item, row["id"], "closed"))
    wanted = item.wanted._asdict()
    fields = {
        name: _differs(row[column], wanted[column])
        for name, column in TASK_FIELDS.items()
        if name in item.given and row[column] != wanted[column]
    }
    if "parent" in item.given and referred.get(item.given["parent"]) != row["parent_id"]:
        fields["parent"] = _differs(row["parent_id"], item.given["parent"])
    fields |= _new_needs(tx, row, item, referred)
    return Found(_changed(item, row["id"], fields), problem or _circle(tx, row, item, referred))


def _new_needs(tx: Tx, row: Row, item: Item, referred: dict[str, str | None]) -> dict[str, serial.Json]:
    has = {other.id for other in graph.needs(tx, row["id"])}
    more = [name for name in item.given.get("needs", ()) if referred.get(name) not in has]
    return {"needs": _differs(sorted(has), sorted({*has, *more}))} if more else {}


def _resolved(tx: Tx, item: Item, names: dict[str, Item]) -> tuple[dict[str, str | None], str | None]:
    """Ids of the tasks that an entry refers to (None for new ones of this file), and the problem with the first
    unknown one."""
    ids: dict[str, str | None] = {}
    for word in _references(item):
        if word in names:
            row = task_row(tx, names[word])
            ids[word] = row["id"] if row is not None else None
            continue
        try:
            ids[word] = changes.find(tx, word)["id"]
        except (NotFound, InvalidInput) as refusal:
            return ids, refusal.message
    return ids, None


def _circle(tx: Tx, row: Row, item: Item, referred: dict[str, str | None]) -> str | None:
    """The problem if existing tasks would wait for each other."""
    for word in item.given.get("needs", ()):
        other = None if referred.get(word) is None else tx.maybe(changes.CLAIMS.by_id, id=referred[word])
        try:
            if other is not None:
                graph.refuse_circle(tx, row["id"], other)
        except Conflict as refusal:
            return refusal.message
    return None


def _references(item: Item) -> list[str]:
    return [*item.given.get("needs", ()), *([item.given["parent"]] if "parent" in item.given else [])]


def _unresolved(item: Item, word: str) -> str:
    return f"{item.place} ({serial.clean(item.name, 60)}): there is no task {serial.clean(word, 60)!r}"


def _loop(tx: Tx, item: Item, names: dict[str, Item]) -> Found:
    row = tx.maybe(edit.SQL.by_name, scope=tx.caller.scope, name=item.wanted.name)
    columns = item.wanted.columns
    when = schedule.of(columns["kind"], columns["schedule"], columns["zone"], tx.now_us())
    past = "its moment is over" if when.after(tx.now_us()) is None and _moved(row, columns) else None
    if row is None:
        return Found(_new(item), past)
    differing = [name for name in edit.SETTINGS if row[name] != columns[name]]
    fields = {
        name: "changed" if name == "environment" else _differs(row[name], columns[name])  # it may hold secrets
        for name in differing
    }
    return Found(_changed(item, row["id"], fields), past)


def _moved(row: Row | None, columns: Row) -> bool:
    return row is None or any(row[name] != columns[name] for name in ("kind", "schedule", "zone"))


def _state(tx: Tx, item: Item, names: dict[str, Item]) -> Found:
    place = Place(tx.caller.keyspace, item.given.get("namespace", ""))
    key, value = item.given["key"], item.given["value"]
    row = tx.maybe(values.SQL.get, **place.named(key))
    problem = None
    if row is not None and row["json_schema"] is not None and "json_schema" not in item.given:
        try:
            schemas.check(value, schemas.compiled(serial.read(row["json_schema"])), key)
        except InvalidInput as error:
            problem = error.message
    found = values.look(tx, place, key)
    if found is None:
        return Found(_new(item), problem)
    was: dict[str, Any] = {"value": found.value, "json_schema": found.json_schema, "verify": found.verify}
    fields = {
        name: _differs(was[name], item.given[name])
        for name in was
        if name in item.given and serial.canonical(was[name]) != serial.canonical(item.given[name])
    }
    return Found(_changed(item, place.subject(key), fields), problem)


def _gate(tx: Tx, item: Item, names: dict[str, Item]) -> Found:
    keyspace = Keyspace() if item.given.get("global") else tx.caller.keyspace
    row = tx.maybe(gates.SQL.by_pattern, pattern=item.wanted["pattern"], **keyspace._asdict())
    if row is None:
        return Found(_new(item))
    if row["need"] == item.wanted["need"]:
        return Found(_same(item, row["id"], "same"))
    fact = f"it exists and needs {row['need']}, not {item.wanted['need']}: a person has to remove it first"
    return Found(_same(item, row["id"], "same"), fact)


_LOOKS: dict[str, Callable[[Tx, Item, dict[str, Item]], Found]] = {
    "tasks": _task,
    "loops": _loop,
    "state": _state,
    "gates": _gate,
}


# -- private functions -------------------------------------------------------------------------------


def _new(item: Item) -> Change:
    return Change(item.section, item.place, item.name, "new", None, {})


def _same(item: Item, ref: str, action: str) -> Change:
    return Change(item.section, item.place, item.name, action, ref, {})


def _changed(item: Item, ref: str, fields: dict[str, serial.Json]) -> Change:
    return Change(item.section, item.place, item.name, "changed" if fields else "same", ref, fields)


def _differs(was: Any, wanted: Any) -> dict[str, serial.Json]:
    return {"was": _shown(was), "is": _shown(wanted)}


def _shown(value: Any) -> serial.Json:
    """The value, or the beginning of its text: the differences are stored with the references."""
    text = serial.canonical(value)
    return value if len(text) <= VALUE_SHOWN else serial.clean(text, VALUE_SHOWN)
