"""Firing: one transaction writes a row for each due slot of a loop.

Firing locks a loop and reads its slots from `next_slot_us` up to now, its policy, and its queued and running runs. Each
of these slots gets a row, and `next_slot_us` becomes the first slot after now. A slot before it is never fired again,
so a clock that is set back fires no slot twice. The schema also refuses a second row for a slot.

    the newest slot          queued; or skipped, if a run of this loop is queued or running (overlap skip)
    older ones, catch-up all queued too, the newest `catch_up_max` of them
    all other slots          missed, with the reason; the newest 1,000 with a row each, older ones in one row
    while paused             skipped, all of them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from standfast import crash
from standfast.clock import format_duration
from standfast.core import journal, repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.ids import new_id
from standfast.record.loops import schedule
from standfast.record.loops.models import ON_TIME_US, QUEUED_MAX, SINGLE_MAX, Absent, Run, run
from standfast.serial import clean

SQL = load(__name__)

ABSENT = "no daemon fired it"
"""The reason why a due slot has no row."""
ROWS_MAX = 2_000
"""One call fires at most this many slots. The next call fires the other due loops."""


class Plan(NamedTuple):
    """The due slots of a loop, and the next slot."""

    chosen: list[int]
    """Slots to run, by the catch-up policy."""
    passed: list[int]
    """Slots that are not run, with a row each."""
    older: tuple[int, int, int] | None
    """The first, the last and the number of slots before `passed`, which share one row."""
    next_slot_us: int | None

    @property
    def last_slot_us(self) -> int:
        return (self.chosen or self.passed)[-1]


class Missed(NamedTuple):
    """Slots of one loop that were missed, for the notice."""

    loop_id: str
    name: str
    slots: int
    first_us: int
    last_us: int
    zone: str


class Fired(NamedTuple):
    runs: list[Run]
    missed: list[Missed]
    paused: list[Row]
    """Loops whose schedule could not be read, with the reason."""


def plan(when: schedule.Schedule, slot_us: int, now_us: int, *, catch_up: str, catch_up_max: int) -> Plan:
    """Decide by the catch-up policy which slots from `slot_us` to now run.

    `slot_us` is due. It counts as a slot even if the rules of its time zone have changed.
    """
    return _planned(when, slot_us, now_us, catch_up_max if catch_up == "all" else 1, late=catch_up != "none")


def passed_over(when: schedule.Schedule, slot_us: int, now_us: int) -> Plan:
    """The plan that runs no slot: every due slot is skipped."""
    return _planned(when, slot_us, now_us, 0, late=False)


def _planned(when: schedule.Schedule, slot_us: int, now_us: int, wanted: int, *, late: bool) -> Plan:
    """Run the newest `wanted` slots. With `late`, run them also if the newest slot is not on time."""
    most = SINGLE_MAX + wanted
    newest = when.newest(slot_us, now_us, most + 1)
    if not newest or (len(newest) <= most and newest[0] != slot_us):
        newest = [slot_us, *newest]
    chosen = newest[-wanted:] if wanted and (late or now_us - newest[-1] <= ON_TIME_US) else []
    rest = newest[: len(newest) - len(chosen)]
    passed, before = rest[-SINGLE_MAX:], rest[:-SINGLE_MAX]
    older = (slot_us, before[-1], when.count(slot_us, before[-1])) if before else None
    if older is not None and older[2] < 2:
        passed, older = [slot_us, *passed], None
    return Plan(chosen, passed, older, when.after(now_us))


def fire_due(tx: Tx, limit: int, accounts: Sequence[str]) -> Fired:
    """Fire every due loop of these accounts, of every scope, up to `limit` loops."""
    crash.point("loop.before_fire")
    fired = Fired([], [], [])
    own = dict.fromkeys(accounts)
    for row in [row for one in own for row in tx.all(SQL.due, now_us=tx.now_us(), limit=limit, account=one)][:limit]:
        if len(fired.runs) >= ROWS_MAX:
            break
        try:
            _schedule(row)
        except (KeyError, ValueError, OSError) as error:
            # A loop whose schedule cannot be read must not stop the other loops.
            fired.paused.append(_put_off(tx, row, error))
            continue
        if row["state"] == "paused":
            fired.runs.extend(pass_over(tx, row, "skipped", f"paused: {row['reason']}"))
        else:
            _fire(tx, row, fired)
    return fired


def _fire(tx: Tx, row: Row, fired: Fired) -> None:
    now_us = tx.now_us()
    policy = {"catch_up": row["catch_up"], "catch_up_max": row["catch_up_max"]}
    made = plan(_schedule(row), row["next_slot_us"], now_us, **policy)
    passed = _write_passed(tx, row, made, "missed", _why_missed(row, made, now_us)) if made.passed else []
    if passed:
        first, last = passed[0], passed[-1]
        slots = sum(one.slots for one in passed)
        until_us = last.until_slot_us or last.slot_us
        fired.missed.append(Missed(row["id"], row["name"], slots, first.slot_us, until_us, row["zone"]))
    fired.runs.extend(passed)
    room = QUEUED_MAX - row["open_runs"]
    for n, slot_us in enumerate(made.chosen):
        reason = _why_skipped(row, waits=n >= room)
        written = write_run(tx, row, slot_us, "slot", "skipped" if reason else "queued", reason)
        if written is not None:
            journal.append(
                tx,
                f"run.{written['state']}",
                written["id"],
                summary=f"{row['name']}, {_at(row, slot_us)}" + (f": {reason}" if reason else ""),
                data={"loop": row["id"], "slot_us": slot_us},
                state=written["state"],
                scope=row["scope"],
                label=repositories.labelled(row),
            )
            fired.runs.append(run(tx, written))
    _advance(tx, row, made)


def _put_off(tx: Tx, row: Row, error: Exception) -> Row:
    """Pause a loop whose time zone is unknown on this machine: a person has to repair it."""
    reason = clean(f"its schedule cannot be read on this machine: {error}", 300)
    tx.one(SQL.put_off, id=row["id"], slot_us=row["next_slot_us"], reason=reason, now_us=tx.now_us())
    summary = f"{row['name']}: {reason}"
    label = repositories.labelled(row)
    journal.append(tx, "loop.paused", row["id"], summary=summary, state="paused", scope=row["scope"], label=label)
    return row | {"reason": reason}


def pass_over(tx: Tx, row: Row, state: str, reason: str) -> list[Run]:
    """Write a row for each due slot with the reason why it is not run, and advance to the next slot."""
    slot_us = row["next_slot_us"]
    if slot_us is None or slot_us > tx.now_us():
        return []
    made = passed_over(_schedule(row), slot_us, tx.now_us())
    written = _write_passed(tx, row, made, state, reason)
    _advance(tx, row, made)
    return written


def abandon(tx: Tx, row: Row, until_us: int, reason: str) -> None:
    """Write one row for all slots up to `until_us`, of which the store has no record. They are never caught up."""
    slot_us = row["next_slot_us"]
    if slot_us > until_us:
        return
    try:
        when = _schedule(row)
    except (KeyError, ValueError, OSError):
        return  # the next firing pauses the loop with the reason
    last_us = max([slot_us, *when.newest(slot_us, until_us, 1)])
    slots = max(1, when.count(slot_us, last_us))
    older = (slot_us, last_us, slots) if slots > 1 else None
    _write_ended(tx, row, slot_us, "abandoned", reason, older)
    _advance(tx, row, Plan([], [last_us], older, when.after(until_us)))


def _write_passed(tx: Tx, row: Row, made: Plan, state: str, reason: str) -> list[Run]:
    """Write the rows of slots that are not run, and one journal entry for all of them."""
    if not made.passed:
        return []
    first_us = made.older[0] if made.older else made.passed[0]
    # One query for all slots instead of up to a thousand.
    known = tx.all(SQL.known, loop_id=row["id"], first_us=first_us, last_us=made.passed[-1], limit=SINGLE_MAX * 2)
    taken = {one["slot_us"] for one in known}
    ranges = [(first_us, made.older)] if made.older else []
    found = [
        run(tx, _write_ended(tx, row, slot_us, state, reason, older))
        for slot_us, older in [*ranges, *((slot_us, None) for slot_us in made.passed)]
        if slot_us not in taken
    ]
    if not found:
        return []
    slots = sum(one.slots for one in found)
    until_us = found[-1].until_slot_us or found[-1].slot_us
    span = f"{_at(row, first_us)}" + (f" to {_at(row, until_us)} ({slots} slots)" if slots > 1 else "")
    journal.append(
        tx,
        f"run.{state}",
        row["id"],
        summary=f"{row['name']}, {span}: {reason}",
        data={"loop": row["id"], "slots": slots, "slot_us": first_us, "until_slot_us": until_us},
        state=state,
        scope=row["scope"],
        label=repositories.labelled(row),
        occurred_us=first_us,
    )
    return found


def write_run(tx: Tx, row: Row, slot_us: int, source: str, state: str, reason: str | None) -> Row | None:
    """Write the row of one slot of the loop in `row`; None if the slot has a row already."""
    ended_us = None if state == "queued" else tx.now_us()
    written = _columns(tx, row, slot_us, state, reason) | {"source": source, "ended_us": ended_us}
    if tx.maybe(SQL.write, now_us=tx.now_us(), **written) is None:
        return None
    return {**EMPTY, **written, "loop": row["name"], "attempt": 0, "created_us": tx.now_us()}


def _write_ended(tx: Tx, row: Row, slot_us: int, state: str, reason: str, older: tuple[int, int, int] | None) -> Row:
    """Write the row of a slot, or of a range of slots, that is not run and has no row yet."""
    written = _columns(tx, row, slot_us, state, reason) | {"ended_us": tx.now_us()}
    if older is not None:
        written |= {"until_slot_us": older[1], "slots": older[2]}
    tx.run(SQL.write, now_us=tx.now_us(), **written)
    return {**EMPTY, **written, "loop": row["name"], "attempt": 0, "created_us": tx.now_us()}


def _columns(tx: Tx, row: Row, slot_us: int, state: str, reason: str | None) -> Row:
    return {
        "id": new_id("run"),
        "loop_id": row["id"],
        "scope": row["scope"],
        "git_dir": row["git_dir"],
        "origin": row["origin"],
        "slot_us": slot_us,
        "until_slot_us": None,
        "slots": 1,
        "source": "slot",
        "state": state,
        "reason": reason,
        "ready_us": tx.now_us(),
    }


EMPTY: Row = dict.fromkeys(
    ("exit_code", "duration_us", "host", "pid", "process", "stdout_id", "stderr_id", "cancel_reason", "holder",
     "actor", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us", "started_us")
)  # fmt: skip
"""The columns that are empty before a run begins."""


def _advance(tx: Tx, row: Row, made: Plan) -> None:
    over = made.next_slot_us is None
    tx.defer(
        SQL.advance,
        _there,
        id=row["id"],
        slot_us=row["next_slot_us"],
        next_slot_us=made.next_slot_us,
        last_slot_us=made.last_slot_us,
        state="finished" if over else row["state"],
        reason="its last moment is past" if over else row["reason"],
    )


def next_due_us(tx: Tx, *, slots: bool, runs: bool, accounts: Sequence[str]) -> int | None:
    asked = [one for one, wanted in ((SQL.next_slot, slots), (SQL.next_ready, runs)) if wanted]
    found = [tx.maybe(one, account=account) for one in asked for account in dict.fromkeys(accounts)]
    return min((row["us"] for row in found if row is not None), default=None)


def who_runs(account: str) -> tuple[str, str]:
    """The reason why no daemon here runs a loop of another account, and the next step."""
    line = f'[daemon] accounts = ["{clean(account, 200)}"]'
    return f"it belongs to {account}", f"start a daemon there, or let this one run it: {line} in config.toml"


def absent(tx: Tx, scope: str, *, everywhere: bool, limit: int) -> list[Absent]:
    now_us = tx.now_us()
    asked = {"scope": scope, "everywhere": int(everywhere), **repositories.filtered(tx, everywhere=everywhere)}
    rows = tx.all(SQL.late, late_us=now_us - ON_TIME_US, limit=limit, **asked)
    found = []
    for row in rows:
        try:
            when, slot_us = _schedule(row), row["next_slot_us"]
        except (KeyError, ValueError, OSError):
            continue  # the next firing pauses the loop with the reason
        until_us = max([slot_us, *when.newest(slot_us, now_us, 1)])
        slots = max(1, when.count(slot_us, until_us))
        about = (row["id"], row["scope"], row["name"], row["zone"])
        label = (row["git_dir"], row["origin"], row["account"])
        found.append(Absent(*about, slot_us, until_us, slots, row["last_slot_us"], *label))
    return found


def absent_between(tx: Tx, late: Absent, from_us: int, until_us: int) -> list[int]:
    """The absent slots in a time window, at most the last thousand."""
    row = tx.one(SQL.schedule_of, id=late.loop_id)
    last_us = min(until_us - 1, late.until_slot_us)
    return _schedule(row).newest(max(from_us, late.slot_us), last_us, SINGLE_MAX) if last_us >= from_us else []


# -- private functions -------------------------------------------------------------------------------


def _schedule(row: Row) -> schedule.Schedule:
    return schedule.of(row["kind"], row["schedule"], row["zone"], row["anchor_us"])


def _at(row: Row, us: int) -> str:
    return schedule.shown(us, row["zone"])


def _why_missed(row: Row, made: Plan, now_us: int) -> str:
    late = format_duration(now_us - made.last_slot_us, parts=2)
    if row["catch_up"] == "none":
        then = "catch-up none" + ("" if made.chosen else f": it was noticed {late} late")
    elif row["catch_up"] == "latest":
        then = f"catch-up latest keeps only {_at(row, made.last_slot_us)}"
    else:
        then = f"catch-up all keeps only the newest {row['catch_up_max']}"
    return f"no daemon was running; {then}"


def _why_skipped(row: Row, *, waits: bool) -> str | None:
    if row["overlap"] == "skip" and row["open_runs"]:
        return f"overlap skip: the run of {_at(row, row['open_slot_us'])} was not over"
    if waits:
        return f"{QUEUED_MAX:,} runs of this loop are waiting already"
    return None


def _there(row: Row) -> None:
    """Nothing to do: the loop is locked, so the compare-and-set returns a row, and `defer` asserts that."""
