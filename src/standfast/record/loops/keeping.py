"""Keeping loops: added by name, found, changed, paused, resumed, removed.

A loop is known by its name in its scope. Adding it again with the same specification changes nothing, so
that a script may add its loops every time it starts. Whatever is done to a loop, its slots up to that
moment get their rows first: nothing that was due is forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, serial
from standfast.clock import SECOND_US
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InvalidInput, NotFound, StandfastError
from standfast.footings import hints, journal, naming, repositories
from standfast.footings.journal import Receipt
from standfast.ids import new_id
from standfast.record.loops import firing, schedule
from standfast.record.loops.nouns import Loop, loop

SQL = load(__name__)

PAGE_MAX = 1000
SETTINGS = (
    "kind",
    "schedule",
    "zone",
    "command",
    "cwd",
    "environment",
    "catch_up",
    "catch_up_max",
    "overlap",
    "timeout_us",
    "retries_max",
    "backoff_us",
    "failures_max",
)
WHEN = ("kind", "schedule", "zone")


class Wanted(NamedTuple):
    """A loop as a caller wants it, checked; `columns` are as they are stored."""

    name: str
    columns: Row
    account: str
    """`user@host` of the account that wants it."""

    def written_by(self) -> Row:
        return by(self.account)

    @property
    def hash(self) -> str:
        return serial.hash(self.columns)


def _gated(tx: Tx, wanted: Wanted) -> StandfastError | None:
    """A daemon runs the command later, where no hook looks: an agent may not add what a gate would stop now."""
    from standfast.config import people

    refused = people.refusal("adds a loop whose command a gate stops")
    if refused is None:
        return None
    from standfast.ledger import gates
    from standfast.ledger.gate_patterns import met

    return refused if met(gates.page(tx, tx.caller.home), serial.read(wanted.columns["command"])) else None


def add(tx: Tx, wanted: Wanted) -> Loop | StandfastError:
    """One loop per name: made, found as it is wanted, or changed to what is wanted."""
    refused = _gated(tx, wanted)
    if refused is not None:
        return refused
    crash.point("loop.before_add")
    scope, now_us, columns = tx.caller.scope, tx.now_us(), wanted.columns
    anchor_us = now_us // SECOND_US * SECOND_US
    when = schedule.of(columns["kind"], columns["schedule"], columns["zone"], anchor_us)
    next_slot_us = when.after(now_us)
    new: Row = {"id": new_id("lop"), "scope": scope, "name": wanted.name, "spec_hash": wanted.hash, **columns}
    made: Row | None = None
    if next_slot_us is not None:
        made = tx.maybe(
            SQL.create,
            anchor_us=anchor_us,
            next_slot_us=next_slot_us,
            actor=tx.caller.actor,
            now_us=now_us,
            **new,
            **wanted.written_by(),
            **tx.caller.labelled(),
        )
    if made is not None:
        said = schedule.said(made["kind"], made["schedule"], made["zone"])
        return loop(made, _told(tx, made, "loop.added", f"{made['name']}: {said}"), change="new")
    found = tx.maybe(SQL.by_name, scope=scope, name=wanted.name)
    if found is not None:
        refusal = repositories.refused(tx, found, f"loop {wanted.name!r}")
        if refusal is not None:
            return refusal
        found = tx.maybe(SQL.by_id_for_update, id=found["id"])
    if found is None or found["state"] == "removed":
        return _past(columns)
    if found["spec_hash"] == wanted.hash:
        return loop(_adopted(tx, found, wanted.account), change="same")
    return _changed(tx, found, wanted, anchor_us, next_slot_us)


def _changed(tx: Tx, old: Row, wanted: Wanted, anchor_us: int, next_slot_us: int | None) -> Loop | StandfastError:
    columns = wanted.columns
    differing = [name for name in SETTINGS if old[name] != columns[name]]
    settled: Row = {name: old[name] for name in ("state", "reason", "anchor_us")}
    if any(name in WHEN for name in differing):
        if next_slot_us is None:
            return _past(columns)
        _settle(tx, old, "the schedule was changed")
        settled = {"state": old["state"], "reason": old["reason"], "anchor_us": anchor_us}
        if old["state"] == "finished":
            settled |= {"state": "active", "reason": None}
    else:
        next_slot_us = old["next_slot_us"]
    row = tx.one(
        SQL.change,
        id=old["id"],
        old_hash=old["spec_hash"],
        spec_hash=wanted.hash,
        next_slot_us=next_slot_us,
        actor=tx.caller.actor,
        now_us=tx.now_us(),
        **columns,
        **settled,
        **wanted.written_by(),
    )
    data = {name: [_harmless(name, old[name]), _harmless(name, columns[name])] for name in differing}
    told = _told(tx, row, "loop.changed", f"{row['name']}: {', '.join(differing)}", data)
    return loop(row, told, change="changed")


def by(account: str) -> Row:
    """The columns that say who wrote a loop."""
    return {"account": account, "host": account.rpartition("@")[2]}


def _adopted(tx: Tx, row: Row, account: str) -> Row:
    """A loop of an older version belongs to the account that adds or resumes it."""
    if row["account"] is not None:
        return row
    taken = tx.maybe(SQL.adopt, id=row["id"], now_us=tx.now_us(), **by(account))
    if taken is None:
        return row
    _told(tx, taken, "loop.changed", f"{taken['name']}: account", {"account": [None, account]})
    return taken


def pause(tx: Tx, row: Row, reason: str) -> Loop | StandfastError:
    """No slot is run until it is resumed; what waits is cancelled, what runs goes on."""
    if row["state"] == "paused":
        return loop(row)
    if row["state"] != "active":
        return _over(row, "paused")
    crash.point("loop.before_pause")
    _settle(tx, row, f"the loop was paused: {reason}")
    row = tx.one(SQL.by_id, id=row["id"])
    if row["state"] != "active":  # its last moment was among those that nobody fired
        return loop(row)
    stopped = _set(tx, row, "paused", reason, row["failures"], row["next_slot_us"])
    cancel_queued(tx, row, f"the loop was paused: {reason}")
    return loop(stopped, _told(tx, stopped, "loop.paused", f"{row['name']}: {reason}"))


def resume(tx: Tx, row: Row, account: str) -> Loop | StandfastError:
    """Its slots are run again from now on. Slots of an active loop that a wrong clock has put far off come near."""
    if row["state"] not in ("active", "paused"):
        return _over(row, "resumed")
    crash.point("loop.before_resume")
    row = _adopted(tx, row, account)
    schedule.checked_zone(row["zone"])
    when = schedule.of(row["kind"], row["schedule"], row["zone"], row["anchor_us"])
    if row["next_slot_us"] is None:  # put off because its schedule could not be read: its slots were never looked at
        first_us = when.after(row["last_slot_us"] or row["created_us"])
        row = _set(tx, row, "paused", row["reason"], row["failures"], first_us)
    if row["state"] == "paused":
        _settle(tx, row, "the loop was resumed")
        row = tx.one(SQL.by_id, id=row["id"])
    if row["state"] == "finished":
        return loop(row)
    near_us = when.after(tx.now_us())
    next_slot_us = min(row["next_slot_us"], near_us) if near_us is not None else row["next_slot_us"]
    if (row["state"], row["failures"], row["next_slot_us"]) == ("active", 0, next_slot_us):
        return loop(row)
    going = _set(tx, row, "active", None, 0, next_slot_us)
    return loop(going, _told(tx, going, "loop.resumed", row["name"]))


def remove(tx: Tx, row: Row) -> Loop | StandfastError:
    """Its name is free; its runs stay. What waits is cancelled, what runs ends by itself."""
    if row["state"] == "removed":
        return loop(row)
    crash.point("loop.before_remove")
    _settle(tx, row, "the loop was removed")
    row = tx.one(SQL.by_id, id=row["id"])
    gone = _set(tx, row, "removed", f"removed by {tx.caller.actor}", row["failures"], None)
    cancel_queued(tx, row, "the loop was removed")
    return loop(gone, _told(tx, gone, "loop.removed", row["name"]))


def cancel_queued(tx: Tx, row: Row, reason: str) -> None:
    for one in tx.all(SQL.cancel_queued, loop_id=row["id"], reason=reason, now_us=tx.now_us()):
        journal.append(
            tx,
            "run.cancelled",
            one["id"],
            summary=f"{row['name']}: {reason}",
            data={"loop": row["id"], "slot_us": one["slot_us"]},
            state="cancelled",
            scope=row["scope"],
            label=repositories.labelled(row),
        )


# -- finding -----------------------------------------------------------------------------------------


def find(tx: Tx, which: str | Loop) -> Row | StandfastError:
    """By name in this scope, by id, or by the end of an id."""
    name = which.id if isinstance(which, Loop) else which
    row = naming.row_of(
        tx,
        name,
        by_id=SQL.by_id,
        by_key=lambda text: tx.maybe(SQL.by_name, scope=tx.caller.scope, name=text),
        ends=SQL.by_suffix,
        prefix="lop",
        noun="loop",
    )
    if row is not None:
        if name != row["name"]:
            return row
        return repositories.refused(tx, row, f"loop {name!r}") or row
    return NotFound(
        f"there is no loop {serial.clean(name, 80)!r} in this scope", "standfast loop list    (--all: every scope)"
    )


def locked(tx: Tx, which: str | Loop) -> Row | StandfastError:
    """The row, and nobody else changes or fires it until this transaction ends."""
    row = find(tx, which)
    return row if isinstance(row, StandfastError) else tx.one(SQL.by_id_for_update, id=row["id"])


def page(tx: Tx, *, state: str | None, everywhere: bool, limit: int, after: str | None) -> list[Loop] | StandfastError:
    at: Row = {"after_scope": "", "after_name": "", "after_id": ""}
    if after is not None:
        last = tx.maybe(SQL.by_id, id=after)
        if last is None:
            return InvalidInput(f"{serial.clean(after, 60)!r} is not a place in this list", "give the last loop's id")
        at = {"after_scope": last["scope"], "after_name": last["name"], "after_id": last["id"]}
    limit = max(1, min(limit, PAGE_MAX))
    at |= repositories.filtered(tx, everywhere=everywhere)
    rows = tx.all(SQL.page, scope=tx.caller.scope, everywhere=int(everywhere), state=state or "", limit=limit, **at)
    return [loop(row) for row in rows]


# -- small parts -------------------------------------------------------------------------------------


def _settle(tx: Tx, row: Row, then: str) -> None:
    """What was due until now gets its rows before the loop becomes another."""
    if row["state"] == "paused":
        firing.pass_over(tx, row, "skipped", f"paused: {row['reason']}")
    else:
        firing.pass_over(tx, row, "missed", f"nobody was there to fire it, and then {then}")


def _set(tx: Tx, row: Row, state: str, reason: str | None, failures: int, next_slot_us: int | None) -> Row:
    return tx.one(
        SQL.set_state,
        id=row["id"],
        old_state=row["state"],
        state=state,
        reason=reason,
        failures=failures,
        next_slot_us=next_slot_us,
        now_us=tx.now_us(),
    )


def _told(tx: Tx, row: Row, type: str, summary: str, data: serial.Json = None) -> Receipt:
    return journal.append(
        tx,
        type,
        row["id"],
        summary=summary,
        data=data,
        state=row["state"],
        scope=row["scope"],
        label=repositories.labelled(row),
    )


def _harmless(name: str, value: object) -> serial.Json:
    """The journal tells which variables were set, never to what."""
    if name == "environment":
        return sorted(serial.read(value)) if value else []
    return value if isinstance(value, int) else serial.clean(str(value), 300) if value is not None else None


def _past(columns: Row) -> StandfastError:
    if columns["kind"] == "once":
        moment = schedule.shown(int(columns["schedule"]), columns["zone"])
        return InvalidInput(f"{moment} is in the past", 'a moment to come: --at "tomorrow 03:00"')
    return InvalidInput("this schedule has no moment to come", "standfast loop add --help")


def _over(row: Row, wanted: str) -> IllegalTransition:
    return IllegalTransition(
        f"the loop {row['name']!r} is {row['state']} and cannot be {wanted}: {row['reason']}",
        f"{hints.command('loop', 'add', row['name'])} …    gives it a schedule",
    )
