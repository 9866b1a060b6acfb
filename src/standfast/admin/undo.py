"""`sf.undo()` and `sf.removed`: put back what a method overwrote or deleted.

An undo is a change like any other. It compares the row with what the change wrote, column by column, and refuses
(`Conflict`) if another change came since. It appends to the journal and keeps its own before-images, so it can be
undone. Values of `state` are read from the journal. A change that consists of several (`apply`, clearing a
conversation) is undone with all its parts, or not at all.

It changes rows of the store. It cannot take back an effect that was sent: see `effect compensate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from standfast import crash, hints, serial
from standfast.clock import DAY_US, Time, iso
from standfast.config import people
from standfast.config.scope import Keyspace, Label
from standfast.core import journal, removed, repositories
from standfast.core.checks import page_size, past_us
from standfast.core.receipts import Receipt, parse_receipt, row_hash
from standfast.db import row_statements
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.ids import like_suffix, short
from standfast.ledger.gates import Gates
from standfast.models import Model
from standfast.record.loops import edit as loops
from standfast.record.loops import schedule
from standfast.record.state import values
from standfast.record.state.models import Place

SQL = load(__name__)

NOT_COMPARED = frozenset(("actor", "next_slot_us"))
"""Columns that an undo restores without comparing them: the daemon may have changed them."""
STATE = ("state.set", "state.deleted")
COMPOUND = ("application.committed", "application.undone", "session.cleared", "session.undone")
"""Changes whose parts are journal rows of their own, in the same transaction and before them."""
CHANGES_MAX = 1000
"""One call undoes at most this many changes."""


class Change(Model):
    """One change that can be undone."""

    seq: int
    """The sequence number of the change's journal row."""
    time_us: int
    agent: str
    type: str
    subject: str
    summary: str | None
    rows: int
    """The number of its before-images. 0 for a value of `state`, which the journal has."""
    undone: bool

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "seq", "time_us time", "agent by", "type", "subject", "summary", "undone"


class Undone(Model):
    """The result of an undo."""

    changes: list[Change]
    """The undone changes, the newest first."""
    left: list[str]
    """Rows that these changes added and that stay. An undo deletes no task and no loop."""
    receipt: Receipt | None = None


ChangeList: TypeAlias = "list[Change]"


class Removed(Resource):
    """What can be undone."""

    __slots__ = ()

    @query
    def list(
        self, tx: Tx, *, agent: str | None = None, since: Time | None = None, before: int | None = None, limit: int = 50
    ) -> ChangeList:
        """List the changes that can be undone, the newest first; of the last day, unless `since` says more.

        - `agent`: only by this agent.
        - `since`: only list rows since this time: 7d, "mon 09:00".
        - `before`: start before this sequence number, the last one of the page before.
        """
        return _page(tx, agent, since, before, page_size(limit))

    @query
    def find(self, tx: Tx, which: str) -> Change:
        """The change that a receipt, a sequence number, an id or the end of an id names. Raises NotFound."""
        return _found(tx, which)

    def undo(self, which: str | None = None, *, agent: str | None = None, since: Time | None = None) -> Undone:
        """Undo one change, or all by an agent since a time: all of them or none.

        Raises Conflict naming who changed the row since, NotFound if nothing is kept of the change.
        """
        if (which is None) == (agent is None and since is None):
            raise InvalidInput("undo takes one change, or --actor and --since", "standfast undo")
        done, gates = self._write(lambda tx: _undo(tx, which, agent, since))
        if gates:
            Gates(self.store, self.tx).mirror_after()
        return done


# -- lookup of a change --------------------------------------------------------------------------------


def _page(tx: Tx, actor: str | None, since: Time | None, before: int | None, limit: int) -> ChangeList:
    since_us = past_us(since, tx.now_us(), "since") if since is not None else tx.now_us() - DAY_US
    oldest_us = max(since_us or 0, tx.now_us() - removed.KEPT_US)
    asked: Row = {"actor": actor or "", "since_us": oldest_us, "before": before or 2**62, "limit": limit}
    return [_change(row) for row in tx.all(SQL.page, **asked)]


def _change(row: Row) -> Change:
    return Change(**{**row, "undone": bool(row["undone"])})


def _found(tx: Tx, which: str) -> Change:
    row = tx.maybe(SQL.by_seq, seq=_seq(tx, which))
    if row is None:
        raise NotFound(f"{serial.clean(which, 60)!r} names no change that can be undone", "standfast undo")
    _refuse_effect(row["subject"], row["type"])
    return _change(row)


def _seq(tx: Tx, which: str) -> int:
    """The sequence number of the named change; 0 if there is none."""
    text = which.strip()
    if text.isdigit() and len(text) < 18:
        return int(text)
    if text.startswith("{") or ":h1:" in text or ":h2:" in text:
        seq, hash = parse_receipt(text)
        row = tx.maybe(journal.SQL.by_seq, seq=seq)
        return seq if row is not None and row_hash(row) == hash else 0
    _refuse_effect(text, "")
    suffix = like_suffix(text)
    found = tx.maybe(SQL.about, name=text, state=f"state::{text}", pattern=f"%{suffix}" if suffix else "")
    return found["seq"] if found is not None else 0


def _refuse_effect(subject: str, type: str) -> None:
    if subject.startswith("eff_") or type.startswith("effect."):
        raise InvalidInput(
            f"{subject} is an effect: what was sent cannot be taken back in the store",
            f"record what reverses it: {hints.command('effect', 'compensate', short(subject))}",
            code="effect_not_undoable",
        )


# -- undo of a change ----------------------------------------------------------------------------------


class _Image(NamedTuple):
    """A before-image."""

    table: str
    key: Row
    old: Row | None
    new: Row | None


class _Written(NamedTuple):
    """A row before and after the undo."""

    table: str
    old: Row | None
    new: Row | None


def _undo(tx: Tx, which: str | None, actor: str | None, since: Time | None) -> tuple[Undone, bool]:
    changes = [_found(tx, which)] if which is not None else _page(tx, actor, since, None, CHANGES_MAX)
    if which is None:
        changes = [change for change in changes if not change.undone and not change.type.endswith(".undone")]
    if not changes:
        raise NotFound("there is no change to undo", "standfast undo --since 7d")
    left: list[str] = []
    receipt = None
    for change in changes:
        receipt = _undone(tx, tx.one(journal.SQL.by_seq, seq=change.seq), left)
    gates = any(change.type.startswith(("gate.", "application.")) for change in changes)
    return Undone(changes, left, receipt), gates


def _undone(tx: Tx, event: Row, left: list[str]) -> Receipt:
    """Undo one change with its parts, the newest first."""
    parts = _parts(tx, event) if event["type"] in COMPOUND else []
    images = {event["seq"]: list(_images(tx, event["seq"]))}
    for part in parts:
        images[part["seq"]] = list(_images(tx, part["seq"]))
    count = 0
    for part in parts:
        if part["type"] in STATE:
            _undo_state(tx, part)
        elif images[part["seq"]]:
            _undo_rows(tx, part, images[part["seq"]], 0)
        else:
            left.append(part["subject"])
            continue
        count += 1
    if event["type"] in STATE:
        return _undo_state(tx, event)
    if not images[event["seq"]] and not count:
        raise NotFound(f"nothing is kept of {_named(event)}", "standfast undo")
    return _undo_rows(tx, event, images[event["seq"]], count)


def _parts(tx: Tx, event: Row) -> Sequence[Row]:
    data = serial.read(event["data"]) or {}
    limit = data.get("parts", CHANGES_MAX) if event["type"].endswith(".undone") else CHANGES_MAX
    asked: Row = {"seq": event["seq"], "time_us": event["time_us"], "holder": event["holder"]}
    return tx.all(SQL.parts, limit=limit, **asked)


def _images(tx: Tx, seq: int) -> Iterator[_Image]:
    """The before-images of a change, the newest first."""
    for row in tx.all(SQL.images, seq=seq):
        old, new = (removed.loads(row[name]) if row[name] else None for name in ("old_values", "new_values"))
        yield _Image(row["table_name"], removed.loads(row["row_key"]), old, new)


def _undo_rows(tx: Tx, event: Row, images: Sequence[_Image], parts: int) -> Receipt:
    if any(image.table == "gate" for image in images):  # a part of an application may be a gate too
        people.refuse("undoes a change of a gate")
    moved: dict[str, dict[int, int]] = {}
    written = [_put_back(tx, event, image, moved) for image in images]
    crash.point("undo.before_journal")
    noun = event["type"].partition(".")[0]
    state = next((one.new.get("state") for one in written if one.new is not None), event["state"])
    receipt = journal.append(
        tx,
        f"{noun}.undone",
        event["subject"],
        summary=f"{event['type']} by {event['actor']} undone",
        data={"undoes": event["seq"], "rows": len(written), "parts": parts},
        session_id=event["session_id"],
        state=state,
        scope=event["scope"],
        label=Label(event["git_dir"], event["origin"]),
    )
    for one in written:
        removed.keep(tx, *one)
    tx.run(SQL.mark, seq=event["seq"], now_us=tx.now_us())
    return receipt


def _put_back(tx: Tx, event: Row, image: _Image, moved: dict[str, dict[int, int]]) -> _Written:
    table, key = image.table, image.key
    for column, numbers in moved.items():
        if column in key:
            key = key | {column: numbers.get(key[column], key[column])}
    now = tx.maybe(row_statements.get(table, tuple(key)), **key)
    if not _is_as_written(now, image.new):
        raise _conflict(tx, event, image)
    if image.old is None:
        tx.run(row_statements.delete(table, tuple(key)), **key)
        return _Written(table, now, None)
    if now is None:
        row = _numbered(tx, table, image.old | key, moved)
        tx.run(row_statements.insert(table, tuple(row)), **row)
        return _Written(table, None, row)
    old = _adjusted(tx, table, now | image.old)
    _refuse_taken(tx, table, old)
    changed = {name: old[name] for name in image.old}
    if "updated_us" in now:
        changed["updated_us"] = tx.now_us()
    tx.run(
        row_statements.update(table, tuple(changed), tuple(key)), **changed, **{f"key_{n}": v for n, v in key.items()}
    )
    return _Written(table, now, now | changed)


def _is_as_written(now: Row | None, new: Row | None) -> bool:
    """Whether the row is as the change left it."""
    if now is None or new is None:
        return now is new
    kept = removed.NOT_KEPT | NOT_COMPARED
    return all(now.get(name) == value for name, value in new.items() if name not in kept)


def _numbered(tx: Tx, table: str, row: Row, moved: dict[str, dict[int, int]]) -> Row:
    """The row with a free number. `moved` has the new number for rows that refer to the old one."""
    if "seq" not in row or tx.maybe(row_statements.get(table, ("seq",)), seq=row["seq"]) is None:
        return row
    seq = tx.one(row_statements.next_seq(table))["seq"]
    moved.setdefault(f"{table}_seq", {})[row["seq"]] = seq
    return row | {"seq": seq}


def _adjusted(tx: Tx, table: str, row: Row) -> Row:
    """The row of a loop with its next slot in the future; other rows are unchanged."""
    if table != "loop" or row["state"] not in ("active", "paused"):
        return row
    loops.refuse_gated(tx, row)
    when = schedule.of(row["kind"], row["schedule"], row["zone"], row["anchor_us"])
    return row | {"next_slot_us": when.after(tx.now_us())}


def _refuse_taken(tx: Tx, table: str, row: Row) -> None:
    """Raise Conflict if another row now has the same name. Names must be unique."""
    taken = {"decision": SQL.decision_taken, "gate": SQL.gate_taken, "loop": SQL.loop_taken, "task": SQL.task_taken}
    other = tx.maybe(taken[table], row=row["id"]) if table in taken and _is_current(table, row) else None
    if other is not None:
        raise Conflict(
            f"{table} {short(row['id'])} cannot be put back: {table} {short(other['id'])} has the same name",
            f"standfast {table} list",
        )


def _is_current(table: str, row: Row) -> bool:
    if table == "gate":
        return row["removed_us"] is None
    return row["state"] not in {"loop": ("removed",), "task": ("closed",)}.get(table, ("withdrawn", "done", "failed"))


def _conflict(tx: Tx, event: Row, image: _Image) -> Conflict:
    later = tx.maybe(SQL.later, subject=event["subject"], seq=event["seq"])
    since = (
        f"{later['actor']} changed it at {iso(later['time_us'])} ({later['type']}, row {later['seq']})" if later else ""
    )
    named = " ".join(str(value) for value in image.key.values())
    return Conflict(
        f"{_named(event)} cannot be undone: {image.table} {serial.clean(named, 80)} was changed since"
        + (f": {since}" if since else ""),
        f"undo the later change first: {hints.command('undo', str(later['seq']))}" if later else "standfast undo",
        code="changed_since",
    )


def _named(event: Row) -> str:
    return f"{event['type']} of {serial.clean(event['subject'], 60)} (row {event['seq']})"


# -- state ---------------------------------------------------------------------------------------------


def _undo_state(tx: Tx, event: Row) -> Receipt:
    """Write the value of the version before, as a new version."""
    version = serial.read(event["data"])["version"]
    row = _state_row(tx, event)
    if row is None:
        raise _conflict(tx, event, _Image("state", {"subject": event["subject"]}, None, None))
    keyspace = Keyspace(row["scope"], row["repository"])
    place = Place(keyspace, row["namespace"], event["session_id"], repositories.labelled(row))
    before = _version_before(tx, event, version)
    crash.point("undo.before_journal")
    if before is not None and before["type"] == "state.set":
        data = serial.read(before["data"])
        if "value" not in data:
            raise NotFound(f"{_named(event)}: the value before it ended by itself, and is not kept", "standfast undo")
        live = event["type"] == "state.set"
        made = values.put(tx, place, row["key"], data["value"], version=row["version"] if live else 0)
    elif event["type"] == "state.set":
        made = values.remove(tx, place, row["key"], version=row["version"])
    else:
        raise NotFound(f"the journal has no value before {_named(event)}", "standfast undo")
    assert made.receipt is not None
    return made.receipt


def _state_row(tx: Tx, event: Row) -> Row | None:
    """The row of a key, if its value is the one that the event wrote."""
    text = event["subject"].removeprefix("state:")
    for at in (at for at, letter in enumerate(text) if letter == ":"):
        for row in tx.all(SQL.state, namespace=text[:at], key=text[at + 1 :]):
            here, there = repositories.labelled(row), repositories.labelled(event)
            same = here.meets(there) or (here.outside and there.outside)
            if same and row["scope"] == event["scope"] and _is_value_of(row, event):
                return row
    return None


def _is_value_of(row: Row, event: Row) -> bool:
    if event["type"] == "state.deleted":
        return bool(row["expires_us"] == 0)
    data = serial.read(event["data"])
    return row["expires_us"] is None and "value" in data and bool(serial.read(row["value"]) == data["value"])


def _version_before(tx: Tx, event: Row, version: int) -> Row | None:
    """The journal row of the version before; None if there was none."""
    for row in tx.all(SQL.versions, subject=event["subject"], seq=event["seq"], scope=event["scope"]):
        if serial.read(row["data"])["version"] == version - 1:
            return row
    if version > 1:
        raise NotFound(f"the journal has no value before {_named(event)}", "standfast undo")
    return None
