"""`sf.imports.text(DIR)`: import tasks, decisions, values and gates from a text export.

The import compares three versions of each record: at the last export (`.base.json`), in the store, and in the file.

    file = store               nothing to do
    store = last export        only the file changed: import the file's version
    file = last export         only the store changed: keep the store's version
    all three differ           a conflict: list it, and import the file's version only with `theirs`

A missing line deletes nothing. Each record is written by the ordinary methods, in a transaction of its own, so after a
kill the next import continues. Effects and loops are never imported. An agent cannot change a gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from standfast import crash, serial
from standfast.clock import parse_duration
from standfast.config import people
from standfast.core.progress import Progress, each, quiet
from standfast.db.contract import Tx
from standfast.db.store import Store
from standfast.errors import Conflict, InvalidInput, NotFound, StandfastError, StorageError
from standfast.ids import short
from standfast.interchange import text_export, text_records
from standfast.interchange.text_records import FOLDERS, REDACTED, SINGLE, Fields, Record
from standfast.ledger.decisions import Decision, Decisions, changes
from standfast.ledger.gates import Gates
from standfast.models import Model
from standfast.record.state import State
from standfast.record.tasks import Task, Tasks, sightings

RECORDS_MAX = 200_000
_WORDS = ("what", "why", "then", "tags", "agent")


class Difference(Model):
    """One record that differs between file and store."""

    kind: str
    name: str
    action: str
    """add, change, keep (only the store changed), conflict (both changed) or refused."""
    fields: list[str]
    """The names of the fields that differ."""
    note: str | None = None
    """The reason of a refusal."""

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "action", "kind", "name", "fields", "note"


class TextImport(Model):
    """The result of importing text. Without `commit` nothing was changed."""

    directory: str
    committed: bool
    records: int
    same: int
    differences: list[Difference]

    @property
    def left(self) -> list[Difference]:
        """Differences that the import did not apply."""
        return [one for one in self.differences if one.action in ("conflict", "refused")]


class _Pair(NamedTuple):
    theirs: Record
    ours: Record | None
    action: str


def run(
    store: Store, directory: str, *, commit: bool = False, theirs: bool = False, progress: Progress = quiet
) -> TextImport:
    """Compare, and with `commit` import the changes of the files; with `theirs` also conflicts."""
    return taken(
        store,
        directory,
        read(directory),
        text_export.base_of(directory),
        commit=commit,
        theirs=theirs,
        progress=progress,
    )


def taken(
    store: Store,
    directory: str,
    found: list[Record],
    base: dict[str, str],
    *,
    commit: bool,
    theirs: bool,
    progress: Progress = quiet,
) -> TextImport:
    """Import records that the caller has read."""
    own = store.read(_by_name)
    pairs = [
        _compared(one, own.get((one.kind, one.name)), base, theirs)
        for one in each("comparing records", found, progress)
    ]
    differing = [pair for pair in pairs if pair.action != "same"]
    wanted = [pair for pair in differing if pair.action in ("add", "change")]
    notes = {**dict(_refusals(wanted)), **(_bring_all(store, wanted, progress) if commit else {})}
    listed = [_difference(pair, notes.get((pair.theirs.kind, pair.theirs.name))) for pair in differing]
    if commit and os.path.isdir(directory):
        _agree(store, directory, found, base)
    return TextImport(directory, commit, len(found), len(pairs) - len(differing), listed)


def _by_name(tx: Tx) -> dict[tuple[str, str], Record]:
    return {(one.kind, one.name): one for one in text_records.of_store(tx)}


def _compared(theirs: Record, ours: Record | None, base: dict[str, str], forced: bool) -> _Pair:
    if ours is None:
        return _Pair(theirs, None, "add")
    if ours.line == theirs.line:
        return _Pair(theirs, ours, "same")
    known = base.get(f"{theirs.kind}:{theirs.name}")
    if known == text_export.hash_of(theirs.line):
        return _Pair(theirs, ours, "change" if forced else "keep")
    changed = known == text_export.hash_of(ours.line) or forced
    return _Pair(theirs, ours, "change" if changed else "conflict")


def _difference(pair: _Pair, note: str | None) -> Difference:
    ours = pair.ours.fields if pair.ours else {}
    names = {*ours, *pair.theirs.fields} if pair.ours else set()
    fields = sorted(name for name in names if _said(ours, name) != _said(pair.theirs.fields, name))
    name = pair.theirs.name.replace("\t", ":").removeprefix(":")
    return Difference(pair.theirs.kind, name, "refused" if note else pair.action, fields, note)


def _said(fields: Fields, name: str) -> str:
    return text_records.text({"value": fields.get(name) or None}) if name != "value" else repr(fields.get(name))


def _agree(store: Store, directory: str, found: list[Record], base: dict[str, str]) -> None:
    """Make records that are now equal in file and store the base of the next import."""
    own = store.read(_by_name)
    same = {
        f"{one.kind}:{one.name}": text_export.hash_of(one.line)
        for one in found
        if (ours := own.get((one.kind, one.name))) is not None and ours.line == one.line
    }
    text_export.put_hashes(directory, base | same)


# -- input files ---------------------------------------------------------------------------------------


def read(directory: str) -> list[Record]:
    """All records of the files. Raises NotFound, or InvalidInput with the line; nothing is written before."""
    _check_head(directory)
    records: dict[tuple[str, str], Record] = {}
    for kind, path in _paths(directory):
        try:
            content = text_export.member(directory, path)
        except OSError as error:
            raise InvalidInput(f"{os.path.join(directory, path)} cannot be read: {error.strerror}") from None
        for one in text_records.parsed(kind, content.split(b"\n"), path):
            if (kind, one.name) in records:
                raise InvalidInput(f"{path}: {kind} {one.name} occurs twice", "remove one of the lines")
            records[kind, one.name] = one
            if len(records) > RECORDS_MAX:
                raise InvalidInput(f"{directory} has more than {RECORDS_MAX:,} records, which is the limit")
    return list(records.values())


def _check_head(directory: str) -> None:
    if not os.path.isdir(directory):
        raise NotFound(f"there is no directory {directory}", "standfast export --text DIR writes one")
    try:
        head = serial.loads(text_export.member(directory, text_export.HEAD), what=text_export.HEAD)
    except OSError as error:
        reason = f"{text_export.HEAD}: {error.strerror}"
        raise InvalidInput(f"{directory} is not a text export: {reason}", "standfast export --text DIR") from None
    form = head.get("form") if isinstance(head, dict) else None
    if form != text_export.FORM:
        raise InvalidInput(
            f"{directory} has the format {serial.clean(str(form), 60)!r}, and this version reads {text_export.FORM}",
            "upgrade standfast",
        )


def _paths(directory: str) -> Iterator[tuple[str, str]]:
    for kind, folder in FOLDERS.items():
        place = os.path.join(directory, folder)
        if os.path.islink(place):
            raise InvalidInput(f"{place} is a symbolic link, and an import reads no file through one")
        if os.path.isdir(place):
            yield from ((kind, f"{folder}/{name}") for name in sorted(os.listdir(place)) if name.endswith(".jsonl"))
    yield from ((kind, path) for kind, path in SINGLE.items() if os.path.lexists(os.path.join(directory, path)))


# -- import of records ---------------------------------------------------------------------------------


def _refusals(wanted: list[_Pair]) -> Iterator[tuple[tuple[str, str], str]]:
    """The records that are refused before the first write, each with the reason."""
    for pair in wanted:
        one = pair.theirs
        if REDACTED in one.line:
            yield (one.kind, one.name), "the line has a redacted secret: the store would lose the original"
        elif one.kind == "gate" and (refusal := people.refusal("changes gates by an import of text")) is not None:
            yield (one.kind, one.name), refusal.message
        elif one.kind == "decision" and pair.ours and _words(one) != _words(pair.ours):
            yield (one.kind, one.name), "the words of a decision are never changed; record another decision"


def _words(one: Record) -> list[Any]:
    return [one.fields.get(name) or None for name in _WORDS]


def _bring_all(store: Store, wanted: list[_Pair], progress: Progress) -> dict[tuple[str, str], str]:
    """Write the records, then the links of tasks. Returns the reasons of refused records."""
    notes = dict(_refusals(wanted))
    for bring, doing in ((_bring, "importing records"), (_tie, "linking tasks")):
        for pair in each(doing, wanted, progress):
            one = pair.theirs
            if (one.kind, one.name) in notes:
                continue
            try:
                with store.transaction() as tx:
                    bring(store, tx, one)
            except StorageError:
                raise
            except StandfastError as refusal:
                notes[one.kind, one.name] = refusal.message
            crash.point("import.after_batch")
    return notes


def _bring(store: Store, tx: Tx, one: Record) -> None:
    _BRING[one.kind](store, tx, one.fields)


def _decision(store: Store, tx: Tx, wanted: Fields) -> None:
    resource, id, state = Decisions(store, tx), wanted["id"], wanted["state"]
    first = "standing" if state == "standing" else "open"
    try:
        found = changes.find(tx, id)
    except NotFound:
        own = text_records.said(wanted)
        made = changes.added(tx, own, changes.outside(tx), state=first, id=id)
        if made is None:
            raise Conflict("the store has the same decision under another id") from None
        found = made
    _refuse_elsewhere(tx, found)
    if (found.state, found.outcome) == (state, wanted.get("outcome")):
        return
    found = resource.reopen(id)
    end = {"done": resource.done, "failed": resource.fail, "withdrawn": resource.withdraw}.get(state)
    if end is not None:
        end(id, wanted.get("outcome"))
    elif found.state != state:
        raise Conflict(f"decision {short(id)} was made as {found.state} and cannot be {state}")


def _task(store: Store, tx: Tx, wanted: Fields) -> None:
    """Write a task and its state. `_tie` adds its parent and dependencies, which may not exist yet."""
    resource, id = Tasks(store, tx), wanted["id"]
    try:
        found = resource.get(id)
    except NotFound:
        found = sightings.add(tx, text_records.report(wanted), id=id)
        if found.id != id:
            raise Conflict(f"the same problem is open as task {short(found.id)}") from None
    _refuse_elsewhere(tx, found)
    identity = wanted["fingerprint"], wanted["kind"], wanted.get("source", "")
    if (found.fingerprint, found.kind, found.source) != identity:
        raise Conflict("fingerprint, kind and source of a task never change")
    given: dict[str, Any] = {name: wanted.get(name) for name in ("title", "body", "priority", "branch", "assignee")}
    resource.edit(id, labels=wanted.get("labels", ()), **given)
    _task_state(resource, tx, id, wanted)


def _refuse_elsewhere(tx: Tx, found: Decision | Task) -> None:
    if (found.scope, found.repository) != tuple(tx.caller.keyspace):
        raise Conflict(f"{short(found.id)} belongs to another repository of this store")


def _task_state(resource: Tasks, tx: Tx, id: str, wanted: Fields) -> None:
    now, found = tx.now_us(), resource.get(id)
    until_us = text_records.moment_us(wanted.get("snoozed_until"), "snoozed_until")
    state = "open" if wanted["state"] == "snoozed" and (until_us or 0) <= now else wanted["state"]
    until_us = until_us if state == "snoozed" else None
    ends = (state, wanted.get("reason"), wanted.get("result"), until_us)
    if (found.state, found.reason, found.result, found.snoozed_until_us) == ends:
        return
    resource.reopen(id)
    if state == "closed":
        resource.done(id, reason=wanted.get("reason", "done"), result=wanted.get("result"))
    elif state == "accepted":
        resource.accept(id, reason=wanted.get("reason"))
    elif state == "snoozed":
        resource.snooze(id, until=_moment(wanted["snoozed_until"]))


def _tie(store: Store, tx: Tx, one: Record) -> None:
    if one.kind != "task":
        return
    resource, id, wanted = Tasks(store, tx), one.fields["id"], one.fields
    has = {other.id for other in resource.show(id).needs}
    needs = set(wanted.get("needs", ()))
    cool_down = wanted.get("cool_down")
    resource.edit(
        id,
        parent=wanted.get("parent"),
        cool_down=None if cool_down is None else parse_duration(cool_down) / 1_000_000,
        due=_moment(wanted["due"]) if "due" in wanted else None,
        needs=sorted(needs - has),
        no_needs=sorted(has - needs),
    )


def _moment(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)  # methods refuse a text with a past time, and accept a datetime


def _value(store: Store, tx: Tx, wanted: Fields) -> None:
    resource, key, namespace = State(store, tx), wanted["key"], wanted.get("namespace", "")
    schema = wanted.get("json_schema")
    try:
        version = resource.get(key, namespace=namespace).version
    except NotFound:
        version = 0
    resource.swap(key, wanted["value"], version=version, namespace=namespace, json_schema=schema)


def _gate(store: Store, tx: Tx, wanted: Fields) -> None:
    """Replace a gate. Only people get here: `_refusals` has refused agents."""
    resource, pattern = Gates(store, tx), wanted["pattern"]
    with suppress(NotFound):
        resource.remove(pattern)
    resource.add(pattern, need=wanted["need"], why=wanted.get("why"))


_BRING: dict[str, Callable[[Store, Tx, Fields], None]] = {
    "decision": _decision,
    "task": _task,
    "state": _value,
    "gate": _gate,
}
