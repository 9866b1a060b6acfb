"""Committing a specification: in one transaction, once per key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from standfast import crash, serial, when
from standfast.clock import iso
from standfast.core import journal, keys, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store, raised, refused_inside
from standfast.errors import InvalidInput, KeyConflict
from standfast.ledger.gates import Gates
from standfast.record.apply import plan
from standfast.record.apply.models import MODES, Applied, Change, Item
from standfast.record.apply.spec import Spec, local
from standfast.record.loops import edit
from standfast.record.state import values
from standfast.record.state.models import Place
from standfast.record.tasks import Tasks, sightings
from standfast.record.tasks import changes as tasks

SQL = load(__name__)


def apply(store: Store, spec: Spec, *, key: str | None, mode: str) -> Applied:
    """The differences between `spec` and the store; with mode "commit" they are written.

    Raises KeyConflict if the key was used for another specification. Raises InvalidInput if a commit has a problem;
    then nothing is changed.
    """
    if mode not in MODES:
        raise InvalidInput(f"a mode is {', '.join(MODES)}, not {serial.clean(str(mode), 40)!r}")
    if key is not None:
        keys.checked(key, "an application's key")
    if mode != "commit":
        return store.read(lambda tx: _looked(tx, spec, key, mode))
    if key is None:
        raise InvalidInput("a commit needs a key: the same key and file again change nothing", "--key KEY")
    refused_inside(store.held, "apply")
    refuse(spec.problems)
    crash.point("apply.before_commit")
    with store.transaction() as tx:
        applied = _committed(store, tx, spec, key)
    if spec.of("gates"):
        # A repeated call does this too, because the first process may have died between the commit and this copy.
        Gates(store).mirror()
    return applied


def _looked(tx: Tx, spec: Spec, key: str | None, mode: str) -> Applied:
    row = None if key is None else tx.maybe(SQL.by_key, scope=tx.caller.scope, key=key)
    if row is not None:
        _refuse_elsewhere(tx, row)
    if row is not None and row["spec_hash"] == spec.hash:
        return _replayed(row, spec, mode)
    changes, problems = plan.plan(tx, spec)
    if row is not None:
        conflict = _conflict(row)
        if mode != "preflight":
            raise conflict
        problems = (conflict.message, *problems)
    return Applied(mode, key, spec.hash, changes, problems)


def _refuse_elsewhere(tx: Tx, row: Row) -> None:
    """Refuse a key that was applied in another repository."""
    refusal = repositories.refused(tx, row | {"id": f"application:{row['key']}"}, f"the key {row['key']!r} of an apply")
    if refusal is not None:
        raise refusal


def _committed(store: Store, tx: Tx, spec: Spec, key: str) -> Applied:
    scope, caller = tx.caller.scope, tx.caller
    tasks.lock_fingerprint(tx, caller.keyspace, "apply")  # two files with one task: the second waits and finds it
    asked: Row = {"scope": scope, "key": key, "spec_hash": spec.hash}
    if tx.maybe(SQL.begin, actor=caller.actor, now_us=tx.now_us(), **asked, **caller.labelled()) is None:
        row = tx.one(SQL.by_key, scope=scope, key=key)
        _refuse_elsewhere(tx, row)
        if row["spec_hash"] != spec.hash:
            raise _conflict(row)
        return _replayed(row, spec, "commit")
    changes, problems = plan.plan(tx, spec)
    refuse(problems)
    made = _Making(store, tx, spec).all(changes)
    refs = serial.dumps([change.as_dict() for change in made], what="refs")
    tx.one(SQL.finish, scope=scope, key=key, refs=refs)
    counts = {
        action: sum(change.action == action for change in made) for action in ("new", "changed", "same", "closed")
    }
    words = ", ".join(f"{count} {action}" for action, count in counts.items() if count) or "nothing in it"
    data = {"spec_hash": spec.hash, **counts}
    receipt = journal.append(tx, "application.committed", f"application:{key}", summary=words, data=data)
    return Applied("commit", key, spec.hash, made, (), receipt=receipt)


class _Making:
    """One commit. It writes new and changed objects through their resources."""

    def __init__(self, store: Store, tx: Tx, spec: Spec) -> None:
        self._store = store
        self._tx = tx
        self._spec = spec
        self._tasks: dict[str, str] = {}
        """Ids of this file's tasks, by place."""

    def all(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        by_place = {item.place: item for item in self._spec.items}
        makers = {"tasks": self._task, "loops": self._loop, "state": self._state, "gates": self._gate}
        made = []
        for change in changes:
            ref = change.ref
            if change.action in ("new", "changed"):
                ref = makers[change.section](by_place[change.place], change)
            if change.section == "tasks":
                self._tasks[change.place] = str(ref)
            made.append(change.replace(ref=ref))
        for change in made:
            if change.section == "tasks" and change.action in ("new", "changed"):
                self._tie(by_place[change.place], change)
        return tuple(made)

    def _task(self, item: Item, change: Change) -> str:
        if change.action == "new":
            return str(raised(sightings.add(self._tx, item.wanted)).id)
        fields = {name: _plain(item, name) for name in change.fields if name in plan.TASK_FIELDS}
        if fields:
            Tasks(self._store, self._tx).edit(str(change.ref), **fields)
        return str(change.ref)

    def _tie(self, item: Item, change: Change) -> None:
        """Write its needs and its parent, after all tasks of the file exist."""
        resource, names = Tasks(self._store, self._tx), local(self._spec.of("tasks"))

        def id_of(word: str) -> str:
            return self._tasks[names[word].place] if word in names else word

        for word in item.given.get("needs", ()):
            resource.need(str(change.ref), id_of(word))
        if "parent" in item.given and (change.action == "new" or "parent" in change.fields):
            resource.edit(str(change.ref), parent=id_of(item.given["parent"]))

    def _loop(self, item: Item, change: Change) -> str:
        return edit.add(self._tx, item.wanted).id

    def _state(self, item: Item, change: Change) -> str:
        place = Place(self._tx.caller.keyspace, item.given.get("namespace", ""))
        raised(values.put(self._tx, place, item.given["key"], item.given["value"], item.wanted))
        return place.subject(item.given["key"])

    def _gate(self, item: Item, change: Change) -> str:
        scope = "" if item.given.get("global") else None
        return Gates(self._store, self._tx).add(scope=scope, **item.wanted).id


# -- private functions -------------------------------------------------------------------------------


def _plain(item: Item, name: str) -> Any:
    """A field in the form that `edit` takes: labels as they were given, other fields as they were checked."""
    if name == "labels":
        return item.given["labels"]
    value = getattr(item.wanted, plan.TASK_FIELDS[name])
    if name == "due" and value is not None:
        return when.utc(value)
    return timedelta(microseconds=value) if name == "cool_down" and value is not None else value


def _replayed(row: Row, spec: Spec, mode: str) -> Applied:
    changes = tuple(Change(**change) for change in serial.read(row["refs"]))
    return Applied(mode, row["key"], spec.hash, changes, (), replayed=True)


def _conflict(row: Row) -> KeyConflict:
    return KeyConflict(
        f"the key {row['key']!r} was used for another specification ({iso(row['applied_us'])}, by {row['actor']})",
        "use another key for a changed file",
    )


def refuse(problems: tuple[str, ...]) -> None:
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise InvalidInput(f"{problems[0]}{more}", "see all: standfast apply FILE --preflight")
