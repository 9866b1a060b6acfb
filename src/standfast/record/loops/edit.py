"""Changing loops: add, find, change, pause, resume, remove.

A loop is identified by its name in its scope. Adding it again with the same specification changes nothing, so a script
may add its loops every time it starts. Before a loop changes, its due slots get their rows, so no due slot is lost.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, hints, serial
from standfast.clock import SECOND_US
from standfast.core import journal, lookup, removed, repositories
from standfast.core.checks import no_cursor, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InvalidInput
from standfast.ids import new_id
from standfast.record.loops import fire, schedule
from standfast.record.loops.models import Loop, loop

SQL = load(__name__)

SETTINGS = (
    *("kind", "schedule", "zone", "command", "cwd", "environment", "catch_up", "catch_up_max", "overlap"),
    *("timeout_us", "retries_max", "backoff_us", "failures_max"),
)
WHEN = ("kind", "schedule", "zone")


class Wanted(NamedTuple):
    """The specification of a loop, checked. `columns` has the stored form."""

    name: str
    columns: Row
    account: str
    """`user@host` of the account that adds it."""

    def written_by(self) -> Row:
        return by(self.account)

    @property
    def hash(self) -> str:
        return serial.hash(self.columns)


def refuse_gated(tx: Tx, loop: Row) -> None:
    """Refuse an agent that adds or starts a loop whose command a gate matches: no hook checks commands of the daemon.

    Gates of every repository count, because the loop may run in any of them. The values of its variables count too.
    """
    from standfast.config import people

    refused = people.refusal("adds or starts a loop whose command a gate stops")
    if refused is None:
        return
    from standfast.ledger import gates
    from standfast.ledger.gate_patterns import met

    variables = (serial.read(loop["environment"]) or {}).values()
    if met(gates.page(tx, tx.caller.keyspace, everywhere=True), serial.read(loop["command"]), texts=[*variables]):
        raise refused


def add(tx: Tx, wanted: Wanted) -> Loop:
    """Add the loop of a name, or change it if its specification differs."""
    refuse_gated(tx, wanted.columns)
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
        return loop(made, _journal_change(tx, made, "loop.added", f"{made['name']}: {said}"), change="new")
    found = tx.maybe(SQL.by_name, scope=scope, name=wanted.name)
    if found is not None:
        repositories.refuse(tx, found, f"loop {wanted.name!r}")
        found = tx.maybe(SQL.by_id_for_update, id=found["id"])
    if found is None or found["state"] == "removed":
        raise _past(columns)
    if found["spec_hash"] == wanted.hash:
        return loop(found, change="same")
    return _changed(tx, found, wanted, anchor_us, next_slot_us)


def _changed(tx: Tx, old: Row, wanted: Wanted, anchor_us: int, next_slot_us: int | None) -> Loop:
    columns = wanted.columns
    differing = [name for name in SETTINGS if old[name] != columns[name]]
    settled: Row = {name: old[name] for name in ("state", "reason", "anchor_us")}
    if any(name in WHEN for name in differing):
        if next_slot_us is None:
            raise _past(columns)
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
    receipt = _journal_change(tx, row, "loop.changed", f"{row['name']}: {', '.join(differing)}", data)
    removed.keep(tx, "loop", old, row)
    return loop(row, receipt, change="changed")


def by(account: str) -> Row:
    """The columns with the account that wrote a loop."""
    return {"account": account, "host": account.rpartition("@")[2]}


def pause(tx: Tx, row: Row, reason: str) -> Loop:
    """Pause a loop: its slots are skipped until it is resumed. Queued runs are cancelled, a running one continues."""
    if row["state"] == "paused":
        return loop(row)
    if row["state"] != "active":
        raise _over(row, "paused")
    crash.point("loop.before_pause")
    _settle(tx, row, f"the loop was paused: {reason}")
    row = tx.one(SQL.by_id, id=row["id"])
    if row["state"] != "active":  # its last slot was among the missed ones
        return loop(row)
    stopped = _set(tx, row, "paused", reason, row["failures"], row["next_slot_us"])
    cancel_queued(tx, row, f"the loop was paused: {reason}")
    receipt = _journal_change(tx, stopped, "loop.paused", f"{row['name']}: {reason}")
    removed.keep(tx, "loop", row, stopped)
    return loop(stopped, receipt)


def resume(tx: Tx, row: Row) -> Loop:
    """Run the slots again from now on. Also corrects the next slot of an active loop that a wrong clock set too far."""
    if row["state"] not in ("active", "paused"):
        raise _over(row, "resumed")
    refuse_gated(tx, row)
    crash.point("loop.before_resume")
    schedule.checked_zone(row["zone"])
    when = schedule.of(row["kind"], row["schedule"], row["zone"], row["anchor_us"])
    if row["next_slot_us"] is None:  # paused because its schedule could not be read; its slots have no rows yet
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
    receipt = _journal_change(tx, going, "loop.resumed", row["name"])
    removed.keep(tx, "loop", row, going)
    return loop(going, receipt)


def remove(tx: Tx, row: Row) -> Loop:
    """Remove a loop: its name is free and its runs stay. Queued runs are cancelled, a running one continues."""
    if row["state"] == "removed":
        return loop(row)
    crash.point("loop.before_remove")
    _settle(tx, row, "the loop was removed")
    row = tx.one(SQL.by_id, id=row["id"])
    gone = _set(tx, row, "removed", f"removed by {tx.caller.actor}", row["failures"], None)
    cancel_queued(tx, row, "the loop was removed")
    receipt = _journal_change(tx, gone, "loop.removed", row["name"])
    removed.keep(tx, "loop", row, gone)
    return loop(gone, receipt)


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


# -- lookup ------------------------------------------------------------------------------------------


def find(tx: Tx, which: str | Loop) -> Row:
    """Find a loop by its name in this scope, by its id, or by the end of its id. Raises NotFound."""
    name = which.id if isinstance(which, Loop) else which
    row = lookup.row_of(tx, name, "lop", by_key=lambda text: tx.maybe(SQL.by_name, scope=tx.caller.scope, name=text))
    if row is None:
        raise lookup.unknown(tx, "loop", name)
    if name == row["name"]:
        repositories.refuse(tx, row, f"loop {name!r}")
    return row


def locked(tx: Tx, which: str | Loop) -> Row:
    """The row; no other transaction changes or fires it until this one ends. Raises NotFound."""
    return tx.one(SQL.by_id_for_update, id=find(tx, which)["id"])


def page(tx: Tx, *, state: str | None, everywhere: bool, limit: int, after: str | None) -> list[Loop]:
    at: Row = {"after_scope": "", "after_name": "", "after_id": ""}
    if after is not None:
        last = tx.maybe(SQL.by_id, id=after)
        if last is None:
            raise no_cursor(after)
        at = {"after_scope": last["scope"], "after_name": last["name"], "after_id": last["id"]}
    at |= {"limit": page_size(limit), **repositories.filtered(tx, everywhere=everywhere)}
    rows = tx.all(SQL.page, scope=tx.caller.scope, everywhere=int(everywhere), state=state or "", **at)
    return [loop(row) for row in rows]


# -- private functions -------------------------------------------------------------------------------


def _settle(tx: Tx, row: Row, then: str) -> None:
    """Write the rows of due slots before the loop changes."""
    if row["state"] == "paused":
        fire.pass_over(tx, row, "skipped", f"paused: {row['reason']}")
    else:
        fire.pass_over(tx, row, "missed", f"no daemon was running, and then {then}")


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


def _journal_change(tx: Tx, row: Row, type: str, summary: str, data: serial.Json = None) -> Receipt:
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
    """A value for the journal: of the environment only the names of the variables, never their values."""
    if name == "environment":
        return sorted(serial.read(value)) if value else []
    return value if isinstance(value, int) else serial.clean(str(value), 300) if value is not None else None


def _past(columns: Row) -> InvalidInput:
    if columns["kind"] == "once":
        moment = schedule.shown(int(columns["schedule"]), columns["zone"])
        return InvalidInput(f"{moment} is in the past", 'a time in the future: --at "tomorrow 03:00"')
    return InvalidInput("this schedule has no time in the future", "standfast loop add --help")


def _over(row: Row, wanted: str) -> IllegalTransition:
    return IllegalTransition(
        f"the loop {row['name']!r} is {row['state']} and cannot be {wanted}: {row['reason']}",
        f"{hints.command('loop', 'add', row['name'])} …    gives it a schedule",
    )
