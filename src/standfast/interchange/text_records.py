"""Records of a text export: read them from the store and from lines.

A record is one decision, task, value or gate of one repository. Its line is redacted JSON with sorted keys and without
empty fields. No field changes with time alone, and the time of a task or decision is in its id. So two exports without
a change in between are equal byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from standfast import serial
from standfast.clock import format_duration, iso, parse_duration
from standfast.config.scope import Keyspace
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput
from standfast.ids import is_id, prefix_of, time_us
from standfast.ledger import gates
from standfast.ledger.decisions import models as decisions
from standfast.record.state import schemas
from standfast.record.state.models import VALUE_MAX_BYTES, Place
from standfast.record.tasks import models as tasks
from standfast.record.tasks import sightings
from standfast.serial.redaction import redacted

SQL = load(__name__)

Fields = dict[str, Any]
SINGLE = {"state": "state.jsonl", "gate": "gates.jsonl"}
"""Kinds with all records in one file. Decisions and tasks have a file for each month."""
FOLDERS = {"decision": "decisions", "task": "tasks"}
KINDS = (*FOLDERS, *SINGLE)
REDACTED = "[redacted:"
EVENTS_PAGE = 5_000
_TEXTS, _TEXT, _NUMBER, _ANY = list, str, int, object
_FIELDS: dict[str, dict[str, type]] = {
    "decision": {**dict.fromkeys(("id", "agent", "outcome", "state", "then", "what", "why"), _TEXT), "tags": _TEXTS},
    "task": {
        **dict.fromkeys(("id", "fingerprint", "state", "reason", "title", "body", "kind", "source"), _TEXT),
        **dict.fromkeys(("branch", "assignee", "parent", "cool_down", "snoozed_until", "due"), _TEXT),
        "priority": _NUMBER,
        "labels": _TEXTS,
        "needs": _TEXTS,
        "result": _ANY,
    },
    "state": {"namespace": _TEXT, "key": _TEXT, "value": _ANY, "json_schema": _ANY},
    "gate": {"pattern": _TEXT, "need": _TEXT, "why": _TEXT},
}
_REQUIRED = {
    "decision": ("id", "state", "what"),
    "task": ("id", "fingerprint", "state", "title", "kind", "priority"),
    "state": ("key", "value"),
    "gate": ("pattern", "need"),
}


class Record(NamedTuple):
    """One record: a line of a file."""

    kind: str
    name: str
    """The id of a decision or task, the namespace and key of a value, or the pattern of a gate."""
    fields: Fields

    @property
    def line(self) -> str:
        return text(self.fields)

    @property
    def file(self) -> str:
        folder = FOLDERS.get(self.kind)
        return f"{folder}/{month(time_us(self.name))}.jsonl" if folder else SINGLE[self.kind]


def text(fields: Mapping[str, Any]) -> str:
    """The fields as one line of JSON: sorted keys, no empty fields, redacted."""
    said = {name: value for name, value in fields.items() if name == "value" or value not in (None, "", [])}
    return redacted(json.dumps(said, sort_keys=True, ensure_ascii=False))


def month(us: int) -> str:
    return iso(us)[:7]


# -- records of the store ------------------------------------------------------------------------------


def of_store(tx: Tx) -> list[Record]:
    """Every record of the caller's repository, in the order of the files."""
    where: Row = tx.caller.keyspace._asdict()
    needs: dict[str, list[str]] = {}
    for row in tx.all(SQL.needs, **where):
        needs.setdefault(row["task_id"], []).append(row["needs_id"])
    found = [_decision(row) for row in tx.all(SQL.decisions, **where)]
    found += [_task(row, sorted(needs.get(row["id"], ()))) for row in tx.all(SQL.tasks, **where)]
    found += [_value(row) for row in tx.all(SQL.values, **where) if not is_id(row["namespace"])]
    found += [Record("gate", row["pattern"], dict(row)) for row in tx.all(SQL.gates, **where)]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.name))


def _decision(row: Row) -> Record:
    fields: Fields = {name: value for name, value in row.items() if name != "plan"}
    return Record("decision", row["id"], fields | {"then": row["plan"], "tags": _split(row["tags"])})


def _task(row: Row, needs: list[str]) -> Record:
    same = ("id", "fingerprint", "state", "reason", "title", "body", "kind", "source", "priority", "branch", "assignee")
    fields: Fields = {name: row[name] for name in same}
    fields |= {"labels": _split(row["labels"]), "needs": needs, "parent": row["parent_id"]}
    fields |= {"result": None if row["result"] is None else serial.read(row["result"])}
    fields |= {"cool_down": None if row["cool_down_us"] is None else format_duration(row["cool_down_us"])}
    for name in ("snoozed_until", "due"):
        fields[name] = None if row[f"{name}_us"] is None else iso(row[f"{name}_us"])
    return Record("task", row["id"], fields)


def _value(row: Row) -> Record:
    schema = None if row["json_schema"] is None else serial.read(row["json_schema"])
    fields = {**row, "value": serial.read(row["value"]), "json_schema": schema}
    return Record("state", _state_name(row), fields)


def _state_name(fields: Mapping[str, Any]) -> str:
    return f"{fields.get('namespace', '')}\t{fields['key']}"


def _split(labels: str) -> list[str]:
    return [one for one in labels.split(",") if one]


def loops(tx: Tx) -> list[Fields]:
    """The loops of the repository, for people. No import creates a loop."""
    rows = tx.all(SQL.loops, **_here(tx))
    return sorted(({**row, "command": serial.read(row["command"])} for row in rows), key=lambda one: str(one["name"]))


def events(tx: Tx, after: int) -> list[Row]:
    """A page of the journal of the repository, without payloads."""
    return tx.all(SQL.events, after=after, limit=EVENTS_PAGE, **_here(tx))


def _here(tx: Tx) -> Row:
    """Select rows of this repository and rows without repository; outside a repository, only the latter."""
    return {"scope": tx.caller.scope, "here": tx.caller.keyspace.repository}


# -- records of lines ----------------------------------------------------------------------------------


def parsed(kind: str, lines: Iterable[bytes], where: str) -> Iterator[Record]:
    """The records of a file's lines. Raises InvalidInput naming the line."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield of_line(kind, line, f"{where}:{number}")


def of_line(kind: str, line: bytes, where: str) -> Record:
    try:
        return checked(kind, serial.loads(line, what="the line"))
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error.message}", error.hint or _EXPORT_AGAIN) from None


_EXPORT_AGAIN = "mend the line, or write the files again: standfast export --text DIR"


def checked(kind: str, fields: Any) -> Record:
    """A record with these fields, checked by the rules of its resource. Raises InvalidInput."""
    if not isinstance(fields, dict):
        raise InvalidInput(f"a {kind} is a JSON object, not {type(fields).__name__}", _EXPORT_AGAIN)
    known = _FIELDS[kind]
    for name, value in fields.items():
        if name not in known:
            raise InvalidInput(f"a {kind} has no field {serial.clean(name, 40)!r}", f"one of: {', '.join(known)}")
        if not _fits(value, known[name]):
            raise InvalidInput(f"{name} of a {kind} is not {_WANTED[known[name]]}", _EXPORT_AGAIN)
    if missing := [name for name in _REQUIRED[kind] if name not in fields]:
        raise InvalidInput(f"the {kind} has no {missing[0]}", _EXPORT_AGAIN)
    return Record(kind, _CHECKS[kind](fields), fields)


_WANTED = {_TEXT: "a text", _NUMBER: "a whole number", _TEXTS: "a list of texts"}


def _fits(value: Any, wanted: type) -> bool:
    if wanted is _TEXTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return wanted is _ANY or type(value) is wanted


def _checked_id(fields: Fields, prefix: str, states: tuple[str, ...]) -> str:
    id = fields["id"]
    if not is_id(id) or prefix_of(id) != prefix:
        raise InvalidInput(f"{serial.clean(id, 40)!r} is not an id that begins with {prefix}_", _EXPORT_AGAIN)
    if fields["state"] not in states:
        raise InvalidInput(f"{serial.clean(fields['state'], 40)!r} is not a state", f"one of: {', '.join(states)}")
    return str(id)


def _checked_decision(fields: Fields) -> str:
    said(fields)
    return _checked_id(fields, "dec", decisions.STATES)


def said(fields: Fields) -> decisions.Said:
    return decisions.checked(
        fields["what"], fields.get("why"), fields.get("then"), fields.get("tags", ()), fields.get("agent")
    )


def _checked_task(fields: Fields) -> str:
    report(fields)
    for other in (*fields.get("needs", ()), *([fields["parent"]] if "parent" in fields else ())):
        if not is_id(other) or prefix_of(other) != "tsk":
            raise InvalidInput(f"{serial.clean(other, 40)!r} is not the id of a task", _EXPORT_AGAIN)
    for name in ("reason", "body"):
        tasks.checked_text(fields.get(name, ""), name)
    for name in ("snoozed_until", "due"):
        moment_us(fields.get(name), name)
    serial.dumps(fields.get("result"), what="result")
    parse_duration(fields.get("cool_down", "0s"))
    if fields["state"] == "snoozed" and "snoozed_until" not in fields:
        raise InvalidInput("a snoozed task has no snoozed_until", _EXPORT_AGAIN)
    return _checked_id(fields, "tsk", tasks.STATES)


def report(fields: Fields) -> sightings.Report:
    same = ("body", "kind", "fingerprint", "priority", "labels", "branch", "assignee")
    given = {name: fields[name] for name in same if name in fields}
    return sightings.report(fields["title"], source=fields.get("source", ""), **given)


def moment_us(text: str | None, what: str) -> int | None:
    """The microseconds of a time that `iso` wrote."""
    if text is None:
        return None
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{what} is not a time such as 2026-11-20T09:00:00Z", _EXPORT_AGAIN) from None
    if found.tzinfo is None:
        raise InvalidInput(f"{what} has no time zone: end it with Z", _EXPORT_AGAIN)
    return round(found.timestamp() * 1_000_000)


def _checked_value(fields: Fields) -> str:
    Place(Keyspace(), fields.get("namespace", "")).named(fields["key"])
    if is_id(fields.get("namespace", "")):
        raise InvalidInput("the namespace is the id of a session, and values of sessions are in bundles", _EXPORT_AGAIN)
    serial.dumps(fields["value"], what="value", limit_bytes=VALUE_MAX_BYTES)
    if "json_schema" in fields:
        schemas.check(fields["value"], schemas.compiled(fields["json_schema"]), fields["key"])
    return _state_name(fields)


def _checked_gate(fields: Fields) -> str:
    gates.checked_need(fields["need"])
    gates.checked_why(fields.get("why"))
    return gates.checked_pattern(fields["pattern"])


_CHECKS: dict[str, Callable[[Fields], str]] = {
    "decision": _checked_decision,
    "task": _checked_task,
    "state": _checked_value,
    "gate": _checked_gate,
}
