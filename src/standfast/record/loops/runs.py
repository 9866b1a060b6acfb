"""Runs: one per slot, claimed by one worker at a time, ended once.

             claim                    finish: exit 0
    queued ─────────▶ running ─────────────────────▶ done
      ▲                 │ ├─ finish: anything else ─▶ failed, timed_out, cancelled
      │ retries remain  │ └─ its worker exits ──────▶ abandoned
      └─────────────────┘
    cancel ends queued runs, and asks the worker of a running one

A worker claims a run and gets the number of its attempt, which is the fencing token: its reports count only while no
other worker has the run. One run of a loop runs at a time, in the order of the slots. A retried run keeps its slot.
This module starts no process: the worker does that between `claim` and `finish`, outside any transaction.

Runs do not use `core/claims.py`: their fencing token is the attempt, a row is read together with its loop, and a run
whose lease has expired is first adopted or abandoned, and never claimed directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from standfast import crash, hints, serial
from standfast.clock import SECOND_US, Duration, Time, duration_us, format_duration
from standfast.config.actor import account
from standfast.core import journal, keys, leases, lookup, notices, repositories
from standfast.core.checks import page_size, past_us, time_and_id
from standfast.core.claims import FREE, HOLDERS_MAX, keep_while_alive
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Resource, Store, query, transactional
from standfast.errors import Conflict, IllegalTransition, InProgress, InvalidInput, LeaseLost, NotFound
from standfast.ids import is_id, short
from standfast.record.loops import edit, fire, schedule
from standfast.record.loops.models import (
    BACKOFF_MAX_US,
    RUN_STATES,
    Job,
    Run,
    checked_one_of,
    checked_reason,
    job,
)
from standfast.record.loops.models import run as noun

SQL = load(__name__)

ASKS_MAX = 1000
CANCELLED = "cancelled by hand"
FAR_US = 2**62
"""A time later than every slot."""
_LAST = "run_z"  # after every id

# Inside the resource class `list` is a method, so annotations there use this name instead of `list[…]`.
RunList: TypeAlias = "list[Run]"


class Ended(NamedTuple):
    """A run that ended, and the reason if its loop was paused with it."""

    run: Run
    paused: str | None


class Outcome(NamedTuple):
    """How an attempt ended."""

    state: str
    reason: str | None
    exit_code: int | None = None
    duration_us: int | None = None
    stdout_id: str | None = None
    stderr_id: str | None = None


class Runs(Resource):
    """Runs: one per slot of a loop. Workers claim, finish and adopt them."""

    __slots__ = ()

    # -- methods for workers --------------------------------------------------------------------------

    def claim(self, *, host: str, run_id: str | None = None, accounts: Sequence[str] = ()) -> Run | None:
        """Claim a run that is ready, with its attempt and its `job`; None if there is none.

        Only runs of loops of the caller's account or of `accounts` (`user@host`) are claimed. The lease is renewed
        while this process lives. With `run_id` that run is claimed, of any account: raises InProgress while another run
        of its loop is running, IllegalTransition if it is not queued.
        """
        keys.checked(host, "a host")
        own = (account(), *accounts)
        claimed = self._write(lambda tx: _claim(tx, host, run_id, own))
        if claimed is not None:
            _keep_while_alive(self.store, self.tx)
        return claimed

    @transactional
    def started(self, tx: Tx, run_id: str, attempt: int, *, pid: int, process: str) -> Run:
        """Record the child process; `process` identifies it. Raises LeaseLost if another worker has the run."""
        crash.point("run.before_start")
        row = _held(tx, run_id, attempt)
        if leases.parse_process(process) is None:
            raise InvalidInput(f"{process[:60]!r} does not identify a process", "str(leases.process(pid, clock))")
        tx.one(SQL.begun, id=row["id"], attempt=attempt, pid=pid, process=process)
        row |= {"pid": pid, "process": process}
        made = _journal_change(
            tx, row, "run.started", f"pid {pid} on {row['host']}", {"attempt": attempt, "process": process}
        )
        return noun(tx, row, made)

    def finish(
        self,
        run_id: str,
        attempt: int,
        *,
        exit_code: int | None = None,
        timed_out: bool = False,
        cancelled: bool = False,
        duration: Duration,
        stdout_id: str | None = None,
        stderr_id: str | None = None,
        reason: str | None = None,
    ) -> Run:
        """Record the outcome of this attempt. A failed run with retries left is queued again in its slot.

        After `failures_max` runs in a row failed permanently, the loop is paused, and one notice is sent. Raises
        LeaseLost if another worker has the run: then this outcome is not recorded.
        """
        state = "cancelled" if cancelled else "timed_out" if timed_out else "done" if exit_code == 0 else "failed"
        why = checked_reason(reason) if reason else None
        outcome = Outcome(state, why, exit_code, duration_us(duration, "duration"), stdout_id, stderr_id)

        def finish(tx: Tx) -> Ended:
            crash.point("run.before_finish")
            return _ended(tx, _held(tx, run_id, attempt), outcome)

        ended = self._write(finish)
        if ended.paused is not None:
            run = ended.run
            hint = f"{hints.command('loop', 'runs', run.loop)}; then: {hints.command('loop', 'resume', run.loop)}"
            notices.tell(self.store, "loop.paused", run.loop_id, f"{run.loop}: {ended.paused}", hint, tx=self.tx)
        return ended.run

    @query
    def left(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Running runs whose worker has exited or whose lease has expired. The next worker finds out their outcome."""
        return [noun(tx, row) for row in _left(tx, SQL.over_seen, SQL.of_holder_seen, limit)]

    @query
    def mine(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Running runs that this process holds."""
        return [noun(tx, row) for row in tx.all(SQL.of_holder_seen, holder=tx.caller.holder, limit=page_size(limit))]

    def adopt(self, run_id: str, attempt: int) -> Run:
        """Take over an attempt from a worker that has exited. Its child continues, and the attempt stays the same.

        Raises InProgress while that worker may be alive, LeaseLost if the run has another attempt or has ended.
        """

        def adopt(tx: Tx) -> Run:
            crash.point("run.before_adopt")
            row = _given_up(tx, run_id, attempt)
            taken = {"actor": tx.caller.actor, **leases.new_lease(tx)}
            tx.one(SQL.adopt, id=row["id"], attempt=attempt, old_holder=row["holder"], **taken)
            made = _journal_change(
                tx, row, "run.adopted", f"from {leases.holder_text(row['holder'])}", {"attempt": attempt}
            )
            return noun(tx, row | taken, made)

        adopted = self._write(adopt)
        _keep_while_alive(self.store, self.tx)
        return adopted

    @transactional
    def requeue(self, tx: Tx, run_id: str, attempt: int, *, reason: str) -> Run:
        """Queue a claimed run again in its slot: its worker has exited and had not started the command.

        Raises InProgress while that worker may be alive, LeaseLost if the run has another attempt or has ended.
        """
        crash.point("run.before_requeue")
        row = _given_up(tx, run_id, attempt)
        if row["cancel_reason"] is not None:
            return _ended(tx, row, Outcome("cancelled", row["cancel_reason"])).run
        why = checked_reason(reason)
        tx.one(SQL.requeue, id=row["id"], attempt=attempt, reason=why)
        row |= {"state": "queued", "reason": why, "process": None, "pid": None, **FREE}
        return noun(tx, row, _journal_change(tx, row, "run.requeued", why, {"attempt": attempt}))

    @transactional
    def abandon_dead(self, tx: Tx, *, limit: int = 100) -> RunList:
        """End running runs whose worker has exited or whose lease has expired: abandoned, or queued again.

        A run whose child is known to be alive on this host is left alone: `left` lists it.
        """
        crash.point("run.before_abandon")
        return [
            _abandoned(tx, row).run for row in _left(tx, SQL.over, SQL.of_holder, limit) if not _lives_here(tx, row)
        ]

    @query
    def to_cancel(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Runs of this process that were cancelled: kill the child, then `finish(cancelled=True)`."""
        return [noun(tx, row) for row in tx.all(SQL.to_cancel, holder=tx.caller.holder, limit=page_size(limit))]

    # -- methods for all callers --------------------------------------------------------------------------

    def cancel(self, run: str, reason: str = CANCELLED) -> Run:
        """Cancel a RUN: a queued run at once. The daemon ends a running one.

        - `reason`: the reason, which the run shows.

        Raises IllegalTransition if it has ended.
        """
        why = checked_reason(reason)
        return self._write(lambda tx: _cancel(tx, run, why))

    @transactional
    def ask(self, tx: Tx, name: str) -> Run:
        """Queue a run now, of a loop in any state but removed. It waits for the loop's earlier runs."""
        crash.point("run.before_ask")
        loop = edit.locked(tx, name)
        if loop["state"] == "removed":
            raise IllegalTransition(f"the loop {loop['name']!r} is removed", "standfast loop list")
        edit.refuse_gated(tx, loop)
        for slot_us in range(_between(tx.now_us()), _between(tx.now_us()) + ASKS_MAX):
            row = fire.write_run(tx, loop, slot_us, "asked", "queued", None) if slot_us % SECOND_US else None
            if row is not None:
                receipt = _journal_change(
                    tx, row, "run.queued", f"asked for by {tx.caller.actor}", {"slot_us": slot_us}
                )
                return noun(tx, row, receipt)
        raise Conflict(f"{loop['name']!r} was requested {ASKS_MAX:,} times at the same time", "try again")

    @query
    def get(self, tx: Tx, run_id: str) -> Run:
        """Get a run by its id or the end of its id. Raises NotFound."""
        return noun(tx, _find(tx, run_id))

    @query
    def list(
        self,
        tx: Tx,
        loop: str | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        state: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> RunList:
        """List the runs of a loop, of this scope, or of the whole store, the newest slot first.

        `since` is the earliest slot, and `until` the end. `after` is the `place` of the last run you have.
        """
        since_us = past_us(since, tx.now_us(), "since")
        slot_us, id = time_and_id(after)
        until_us = past_us(until, tx.now_us(), "until")
        asked: Row = {
            "since_us": since_us or 0,
            "until_us": until_us or FAR_US,
            "limit": page_size(limit),
            "id": id or _LAST,
        }
        asked["state"] = checked_one_of(state, "a run's state", RUN_STATES) if state else ""
        if loop is not None:
            rows = tx.all(SQL.of_loop, loop_id=edit.find(tx, loop)["id"], slot_us=slot_us, **asked)
        elif everywhere:
            rows = tx.all(SQL.everywhere, **asked)
        else:
            rows = tx.all(SQL.of_scope, scope=self.scope, slot_us=slot_us, **repositories.filtered(tx), **asked)
        return [noun(tx, row) for row in rows]


# -- claims --------------------------------------------------------------------------------------------


def _claim(tx: Tx, host: str, run_id: str | None, accounts: tuple[str, ...]) -> Run | None:
    crash.point("run.before_claim")
    row = _ready(tx, accounts) if run_id is None else _waiting(tx, run_id)
    if row is None:
        return None
    other = tx.maybe(SQL.running, loop_id=row["loop_id"])
    if other is not None and run_id is not None:
        raise _goes(tx, row, other)
    if other is not None:
        return None
    term = leases.new_lease(tx)
    taken = {"host": host, "actor": tx.caller.actor, **term}
    tx.one(SQL.take, id=row["id"], attempt=row["attempt"], now_us=tx.now_us(), **taken)
    attempt = row["attempt"] + 1
    row |= fire.EMPTY | taken | {"state": "running", "reason": None, "attempt": attempt, "started_us": tx.now_us()}
    made = _journal_change(
        tx, row, "run.claimed", f"attempt {attempt} on {host}", {"attempt": attempt, "by": term["holder"]}
    )
    return noun(tx, row, made, job=job(row))


# -- end of a run --------------------------------------------------------------------------------------


def _ended(tx: Tx, row: Row, outcome: Outcome) -> Ended:
    """End a running attempt: the run ends, or it is queued again in the same slot."""
    again = _again(row, outcome)
    now_us = tx.now_us()
    state = "queued" if again else outcome.state
    reason = _why(row, outcome, again)
    change: Row = {
        "state": state,
        "reason": reason,
        "exit_code": outcome.exit_code,
        "duration_us": outcome.duration_us,
        "stdout_id": outcome.stdout_id,
        "stderr_id": outcome.stderr_id,
        "ready_us": now_us + _backoff_us(row) if again else row["ready_us"],
        "ended_us": None if again else now_us,
    }
    tx.one(SQL.end, id=row["id"], attempt=row["attempt"], **change)
    row |= {**change, "cancel_reason": None, **FREE}
    data: Row = {"attempt": row["attempt"], "outcome": outcome.state, "exit_code": outcome.exit_code}
    data |= {"duration_us": outcome.duration_us, "stdout": outcome.stdout_id, "stderr": outcome.stderr_id}
    receipt = _journal_change(tx, row, "run.retried" if again else f"run.{state}", reason or "exit 0", data)
    return Ended(noun(tx, row, receipt), None if again else _counted(tx, row))


def _again(row: Row, outcome: Outcome) -> bool:
    tried = outcome.state in ("failed", "timed_out", "abandoned")
    return tried and row["cancel_reason"] is None and bool(row["attempt"] <= row["retries_max"])


def _backoff_us(row: Row) -> int:
    """The wait before a retry: it doubles with each attempt, up to an hour."""
    return int(min(row["backoff_us"] << min(row["attempt"] - 1, 32), BACKOFF_MAX_US))


def _why(row: Row, outcome: Outcome, again: bool) -> str | None:
    if outcome.state == "done":
        return outcome.reason
    why = outcome.reason or row["cancel_reason"] or _exit(outcome)
    if again:
        wait = format_duration(_backoff_us(row), parts=2)
        return f"{why}; attempt {row['attempt'] + 1} of {row['retries_max'] + 1} in {wait}"
    tries = f" (attempt {row['attempt']} of {row['retries_max'] + 1})" if row["retries_max"] else ""
    return f"{why}{tries}"


def _exit(outcome: Outcome) -> str:
    if outcome.state == "timed_out":
        return f"it was ended after {format_duration(outcome.duration_us or 0, parts=2)}: its timeout"
    if outcome.exit_code is None:
        return "it could not be run" if outcome.state == "failed" else outcome.state
    return f"exit {outcome.exit_code}" if outcome.exit_code >= 0 else f"ended by signal {-outcome.exit_code}"


def _counted(tx: Tx, row: Row) -> str | None:
    """Count the loop's failures in a row. Returns the reason if this failure pauses the loop."""
    if row["state"] == "done":
        tx.run(SQL.succeeded, id=row["loop_id"])
    if row["state"] not in ("failed", "timed_out"):
        return None
    loop = tx.one(SQL.failed, id=row["loop_id"])
    if loop["state"] != "active" or not 0 < loop["failures_max"] <= loop["failures"]:
        return None
    reason = f"{loop['failures']} runs in a row failed; the last one: {row['reason']}"
    return reason if edit.pause(tx, loop, serial.clean(reason, 500)).state == "paused" else None


def _cancel(tx: Tx, run_id: str, reason: str) -> Run:
    row = _locked(tx, run_id)
    if row["state"] not in ("queued", "running"):
        raise IllegalTransition(f"{_named(row)} has ended: {row['state']}", hints.command("loop", "runs", row["loop"]))
    crash.point("run.before_cancel")
    change: Row = {"id": row["id"], "attempt": row["attempt"], "reason": reason}
    if row["state"] == "queued":
        tx.one(SQL.cancel_waiting, now_us=tx.now_us(), **change)
        row |= {"state": "cancelled", "reason": reason, "ended_us": tx.now_us()}
        return noun(tx, row, _journal_change(tx, row, "run.cancelled", reason))
    tx.one(SQL.ask_to_end, **change)
    row |= {"cancel_reason": reason}
    return noun(tx, row, _journal_change(tx, row, "run.cancel_asked", reason, {"attempt": row["attempt"]}))


def _abandoned(tx: Tx, row: Row) -> Ended:
    standing = leases.judge(tx, row)
    gone = "is gone" if standing.gone else "was not heard of in time"
    child = f"; its child was pid {row['pid']}" if row["pid"] else ""
    reason = f"its worker, {leases.holder_text(row['holder'])} ({row['host']}), {gone}{child}"
    if row["cancel_reason"] is not None:
        return _ended(tx, row, Outcome("cancelled", f"{row['cancel_reason']}; {reason}"))
    return _ended(tx, row, Outcome("abandoned", reason))


def _left(tx: Tx, over: Statement, of_holder: Statement, limit: int) -> list[Row]:
    """Runs whose worker's lease has expired or whose process has exited."""
    holders = [row["holder"] for row in tx.all(SQL.holders, limit=HOLDERS_MAX)]
    gone = [holder for holder in holders if leases.is_gone(holder, tx.caller.clock)]
    rows = tx.all(over, limit=page_size(limit), **tx.lease_clock()) if holders else []
    rows += [row for holder in gone for row in tx.all(of_holder, holder=holder, limit=page_size(limit))]
    return list({row["id"]: row for row in rows}.values())[: page_size(limit)]  # a run may be in both lists


def _lives_here(tx: Tx, row: Row) -> bool:
    return row["process"] is not None and leases.is_here(row["process"], tx.caller.clock)


# -- lookup --------------------------------------------------------------------------------------------


def _find(tx: Tx, run_id: object) -> Row:
    row = lookup.row_of(tx, run_id, "run", by_id=SQL.by_id)
    return row or _refuse_unknown(run_id)


def _locked(tx: Tx, run_id: str) -> Row:
    id = run_id if is_id(run_id) else _find(tx, run_id)["id"]
    return tx.maybe(SQL.by_id_for_update, id=id) or _refuse_unknown(run_id)


def _refuse_unknown(run_id: object) -> Row:
    raise NotFound(f"there is no run {serial.clean(str(run_id), 60)!r}", "standfast loop runs")


def _held(tx: Tx, run_id: str, attempt: int) -> Row:
    """The locked row, if this attempt is still running. Raises NotFound, LeaseLost."""
    row = _locked(tx, run_id)
    if row["state"] == "running" and row["attempt"] == attempt:
        return row
    now = f"attempt {row['attempt']} {'runs' if row['state'] == 'running' else 'ended as ' + row['state']}"
    raise LeaseLost(f"attempt {attempt} of {_named(row)} has ended: {now}", hints.command("loop", "runs", row["loop"]))


def _given_up(tx: Tx, run_id: str, attempt: int) -> Row:
    """The locked row, if the caller holds this attempt, or its worker has exited or its lease has expired."""
    row = _held(tx, run_id, attempt)
    if row["holder"] != tx.caller.holder and leases.judge(tx, row).live:
        raise leases.in_progress(tx, _named(row), row)
    return row


def _ready(tx: Tx, accounts: tuple[str, ...]) -> Row | None:
    found = (tx.maybe(SQL.ready, now_us=tx.now_us(), account=account) for account in dict.fromkeys(accounts))
    return next((row for row in found if row is not None), None)


def _waiting(tx: Tx, run_id: str) -> Row:
    found = _find(tx, run_id)
    row = tx.maybe(SQL.ready_by_id, id=found["id"])
    if row is not None:
        return row
    raise IllegalTransition(f"{_named(found)} is not queued: {found['state']}", "standfast loop runs")


def _goes(tx: Tx, row: Row, other: Row) -> InProgress:
    slot = schedule.shown(other["slot_us"])
    return leases.in_progress(tx, f"the loop {row['loop']!r} (its run of {slot})", other)


# -- private functions -----------------------------------------------------------------------------------


def _between(us: int) -> int:
    """A time that is no whole second. Slots are whole seconds, so a requested run never takes a slot."""
    return us if us % SECOND_US else us + 1


def _journal_change(tx: Tx, row: Row, type: str, said: str, data: Row | None = None) -> Receipt:
    about = {"loop": row["loop_id"], "slot_us": row["slot_us"], **(data or {})}
    return journal.append(
        tx,
        type,
        row["id"],
        summary=f"{row['loop']}: {said}",
        data=about,
        state=row["state"],
        scope=row["scope"],
        label=repositories.labelled(row),
    )


def _named(row: Row) -> str:
    return f"run {short(row['id'])} of {row['loop']!r}"


def _keep_while_alive(store: Store, tx: Tx | None) -> None:
    leases.renewed("run")  # only now: on PostgreSQL the role of an agent may not update this table
    keep_while_alive(store, tx, store.caller.holder)


__all__ = ["Job", "Run", "Runs"]
