"""Runs: one per slot, taken by one worker at a time, ended once.

             claim                    finish: exit 0
    queued ─────────▶ running ─────────────────────▶ done
      ▲                 │ ├─ finish: anything else ─▶ failed, timed_out, cancelled
      │ retries remain  │ └─ its worker is gone ────▶ abandoned
      └─────────────────┘
    cancel ends what is queued, and asks the worker of what runs

A worker claims a run and gets its attempt, which is its fence: whatever it says later about that attempt
counts only while nobody else has the run. Of one loop one run goes at a time, in the order of the
slots; a run that is tried again keeps its slot and its place. Nothing here starts a process: that
is the worker's part, between `claim` and `finish` and outside any transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.clock import SECOND_US, format_duration
from standfast.config.actor import account
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Room, Store, query, verb
from standfast.errors import Conflict, IllegalTransition, InProgress, InvalidInput, LeaseLost, NotFound, StandfastError
from standfast.footings import hints, journal, keys, leases, naming, notices, repositories
from standfast.footings.journal import Receipt
from standfast.ids import is_id, short
from standfast.record.loops import firing, keeping, schedule
from standfast.record.loops.nouns import BACKOFF_MAX_US, RUN_STATES, Job, Loop, Run, checked_one_of, checked_reason, job
from standfast.record.loops.nouns import run as noun

SQL = load(__name__)

PAGE_MAX = 1000
HOLDERS_MAX = 1000
ASKS_MAX = 1000
ENDED = ("done", "failed", "timed_out", "abandoned", "cancelled")

# In the room `list` is a verb, so that the types need another name there.
RunList: TypeAlias = "list[Run]"


class Ended(NamedTuple):
    """A run that ended, and why its loop was paused with it, if it was."""

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


class Runs(Room):
    """What became of each slot, and the work on those that are to be run."""

    __slots__ = ()

    # -- for whoever performs them ---------------------------------------------------------------------

    def claim(self, *, host: str, run_id: str | None = None, accounts: Sequence[str] = ()) -> Run | None:
        """One run that is ready, now the caller's, with its attempt and its `job`; or None.

        Only of a loop of the caller's account or of `accounts` (`user@host`).
        Its lease is kept as long as this process lives. With `run_id` that very one, of any account: raises
        InProgress while another run of its loop goes, IllegalTransition if it does not wait any more.
        """
        claimed = self._claim(keys.checked(host, "a host"), run_id, (account(), *accounts))
        if claimed is not None:
            _at_work(self.store, self.tx)
        return claimed

    @verb
    def _claim(self, tx: Tx, host: str, run_id: str | None, accounts: tuple[str, ...]) -> Run | StandfastError | None:
        crash.point("run.before_claim")
        row = _ready(tx, accounts) if run_id is None else _waiting(tx, run_id)
        if row is None or isinstance(row, StandfastError):
            return row
        other = tx.maybe(SQL.running, loop_id=row["loop_id"])
        if other is not None:
            return None if run_id is None else _goes(tx, row, other)
        term = leases.term_of(tx)
        taken = {"host": host, "actor": tx.caller.actor, **term}
        tx.one(SQL.take, id=row["id"], attempt=row["attempt"], now_us=tx.now_us(), **taken)
        attempt = row["attempt"] + 1
        row |= (
            firing.EMPTY | taken | {"state": "running", "reason": None, "attempt": attempt, "started_us": tx.now_us()}
        )
        told = _told(tx, row, "run.claimed", f"attempt {attempt} on {host}", {"attempt": attempt, "by": term["holder"]})
        return noun(tx, row, told, job=job(row))

    @verb
    def started(self, tx: Tx, run_id: str, attempt: int, *, pid: int, process: str) -> Run | StandfastError:
        """Its child is there: `process` tells it from every other. Raises LeaseLost if the run is another's now."""
        crash.point("run.before_start")
        row = _held(tx, run_id, attempt)
        if isinstance(row, StandfastError):
            return row
        if leases.parse_process(process) is None:
            return InvalidInput(f"{process[:60]!r} does not identify a process", "str(leases.process(pid, clock))")
        tx.one(SQL.begun, id=row["id"], attempt=attempt, pid=pid, process=process)
        row |= {"pid": pid, "process": process}
        told = _told(tx, row, "run.started", f"pid {pid} on {row['host']}", {"attempt": attempt, "process": process})
        return noun(tx, row, told)

    def finish(
        self,
        run_id: str,
        attempt: int,
        *,
        exit_code: int | None = None,
        timed_out: bool = False,
        cancelled: bool = False,
        duration_us: int,
        stdout_id: str | None = None,
        stderr_id: str | None = None,
        reason: str | None = None,
    ) -> Run:
        """Say how this attempt ended. Failed and with retries left, the run is queued again in its slot.

        After `failures_max` runs in a row that failed for good the loop pauses itself, and that is
        announced once. Raises LeaseLost if the run is another's now: what happened is recorded there.
        """
        state = "cancelled" if cancelled else "timed_out" if timed_out else "done" if exit_code == 0 else "failed"
        why = checked_reason(reason) if reason else None
        outcome = Outcome(state, why, exit_code, duration_us, stdout_id, stderr_id)
        ended = self._finish(run_id, attempt, outcome)
        if ended.paused is not None:
            run = ended.run
            hint = f"{hints.command('loop', 'runs', run.loop)}; then: {hints.command('loop', 'resume', run.loop)}"
            notices.tell(self.store, "loop.paused", run.loop_id, f"{run.loop}: {ended.paused}", hint, tx=self.tx)
        return ended.run

    @verb
    def _finish(self, tx: Tx, run_id: str, attempt: int, outcome: Outcome) -> Ended | StandfastError:
        crash.point("run.before_finish")
        row = _held(tx, run_id, attempt)
        return row if isinstance(row, StandfastError) else _ended(tx, row, outcome)

    @query
    def orphans(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Running, their worker gone or out of time, and their child is known to be alive on this machine.

        End the child by its identity; `abandon_dead` does not touch the run before.
        """
        return [noun(tx, row) for row in _left(tx, SQL.over_seen, SQL.of_holder_seen, limit) if _lives_here(tx, row)]

    @query
    def left(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Running, and their worker is gone or out of time: whoever comes next finds out what became of each."""
        return [noun(tx, row) for row in _left(tx, SQL.over_seen, SQL.of_holder_seen, limit)]

    @query
    def mine(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Running, and held by this process."""
        return [noun(tx, row) for row in tx.all(SQL.of_holder_seen, holder=tx.caller.holder, limit=_page(limit))]

    def adopt(self, run_id: str, attempt: int) -> Run:
        """Take an attempt over from a worker that is gone: its child goes on, and the attempt stays the same.

        Raises InProgress while that worker may be alive, LeaseLost if the attempt does not count any more.
        """
        adopted = self._adopt(run_id, attempt)
        _at_work(self.store, self.tx)
        return adopted

    @verb
    def _adopt(self, tx: Tx, run_id: str, attempt: int) -> Run | StandfastError:
        crash.point("run.before_adopt")
        row = _given_up(tx, run_id, attempt)
        if isinstance(row, StandfastError):
            return row
        taken = {"actor": tx.caller.actor, **leases.term_of(tx)}
        tx.one(SQL.adopt, id=row["id"], attempt=attempt, old_holder=row["holder"], **taken)
        told = _told(tx, row, "run.adopted", f"from {leases.who(row['holder'])}", {"attempt": attempt})
        return noun(tx, row | taken, told)

    @verb
    def requeue(self, tx: Tx, run_id: str, attempt: int, *, reason: str) -> Run | StandfastError:
        """Claimed, and known never to have begun: ready again at once, in its slot.

        Raises InProgress while its worker may be alive, LeaseLost if the attempt does not count any more.
        """
        crash.point("run.before_requeue")
        row = _given_up(tx, run_id, attempt)
        if isinstance(row, StandfastError):
            return row
        if row["cancel_reason"] is not None:
            return _ended(tx, row, Outcome("cancelled", row["cancel_reason"])).run
        why = checked_reason(reason)
        tx.one(SQL.requeue, id=row["id"], attempt=attempt, reason=why)
        row |= {"state": "queued", "reason": why, "process": None, "pid": None}
        row |= dict.fromkeys(("holder", "lease_until_us", "lease_boot", "lease_mono_us"))
        return noun(tx, row, _told(tx, row, "run.requeued", why, {"attempt": attempt}))

    @verb
    def abandon_dead(self, tx: Tx, *, limit: int = 100) -> RunList:
        """End what runs under a worker that is known dead or out of time: abandoned, or queued again.

        One whose child is known to be alive here is left alone: see `orphans`.
        """
        crash.point("run.before_abandon")
        return [
            _abandoned(tx, row).run for row in _left(tx, SQL.over, SQL.of_holder, limit) if not _lives_here(tx, row)
        ]

    @query
    def to_cancel(self, tx: Tx, *, limit: int = 100) -> RunList:
        """Runs of this process that somebody asked to end: kill the child, then `finish(cancelled=True)`."""
        return [noun(tx, row) for row in tx.all(SQL.to_cancel, holder=tx.caller.holder, limit=_page(limit))]

    # -- for everybody ------------------------------------------------------------------------------------

    def cancel(self, run_id: str, reason: str) -> Run:
        """End it: at once if it waits; if it runs its worker is asked to. Raises IllegalTransition if it is over."""
        return self._cancel(run_id, checked_reason(reason))

    @verb
    def _cancel(self, tx: Tx, run_id: str, reason: str) -> Run | StandfastError:
        row = _locked(tx, run_id)
        if isinstance(row, StandfastError):
            return row
        if row["state"] not in ("queued", "running"):
            return IllegalTransition(
                f"{_named(row)} is over: {row['state']}", hints.command("loop", "runs", row["loop"])
            )
        crash.point("run.before_cancel")
        change: Row = {"id": row["id"], "attempt": row["attempt"], "reason": reason}
        if row["state"] == "queued":
            tx.one(SQL.cancel_waiting, now_us=tx.now_us(), **change)
            row |= {"state": "cancelled", "reason": reason, "ended_us": tx.now_us()}
            return noun(tx, row, _told(tx, row, "run.cancelled", reason))
        tx.one(SQL.ask_to_end, **change)
        row |= {"cancel_reason": reason}
        return noun(tx, row, _told(tx, row, "run.cancel_asked", reason, {"attempt": row["attempt"]}))

    @verb
    def ask(self, tx: Tx, name: str) -> Run | StandfastError:
        """A run now, of a loop in whatever state, behind what of it is waiting or going already."""
        crash.point("run.before_ask")
        loop = keeping.locked(tx, name)
        if isinstance(loop, StandfastError):
            return loop
        if loop["state"] == "removed":
            return IllegalTransition(f"the loop {loop['name']!r} is removed", "standfast loop list")
        for slot_us in range(_between(tx.now_us()), _between(tx.now_us()) + ASKS_MAX):
            row = firing.write_run(tx, loop, slot_us, "asked", "queued", None) if slot_us % SECOND_US else None
            if row is not None:
                told = _told(tx, row, "run.queued", f"asked for by {tx.caller.actor}", {"slot_us": slot_us})
                return noun(tx, row, told)
        return Conflict(f"{loop['name']!r} was asked for {ASKS_MAX:,} times in this moment", "try again")

    @query
    def get(self, tx: Tx, run_id: str) -> Run | StandfastError:
        """By its id or the end of it. Raises NotFound."""
        row = _find(tx, run_id)
        return row if isinstance(row, StandfastError) else noun(tx, row)

    @query
    def list(
        self,
        tx: Tx,
        loop: str | None = None,
        *,
        since_us: int | None = None,
        state: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> RunList | StandfastError:
        """What became of the slots, the newest first; of one loop, of this scope, or everywhere.

        `since_us` is the earliest slot; `after` is the `place` of the last one you have.
        """
        slot_us, id = _place(after)
        asked: Row = {"since_us": since_us or 0, "limit": _page(limit), "id": id}
        asked["state"] = checked_one_of(state, "a run's state", RUN_STATES) if state else ""
        if loop is not None:
            found = keeping.find(tx, loop)
            if isinstance(found, StandfastError):
                return found
            rows = tx.all(SQL.of_loop, loop_id=found["id"], slot_us=slot_us, **asked)
        elif everywhere:
            rows = tx.all(SQL.everywhere, **asked)
        else:
            rows = tx.all(SQL.of_scope, scope=self.scope, slot_us=slot_us, **repositories.filtered(tx), **asked)
        return [noun(tx, row) for row in rows]


# -- ending --------------------------------------------------------------------------------------------


def _ended(tx: Tx, row: Row, outcome: Outcome) -> Ended:
    """The one way out of `running`: over for good, or back into the queue in the same slot."""
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
    row |= change | dict.fromkeys(("cancel_reason", "holder", "lease_until_us", "lease_boot", "lease_mono_us"))
    data: Row = {"attempt": row["attempt"], "outcome": outcome.state, "exit_code": outcome.exit_code}
    data |= {"duration_us": outcome.duration_us, "stdout": outcome.stdout_id, "stderr": outcome.stderr_id}
    told = _told(tx, row, "run.retried" if again else f"run.{state}", reason or "exit 0", data)
    return Ended(noun(tx, row, told), None if again else _counted(tx, row))


def _again(row: Row, outcome: Outcome) -> bool:
    tried = outcome.state in ("failed", "timed_out", "abandoned")
    return tried and row["cancel_reason"] is None and bool(row["attempt"] <= row["retries_max"])


def _backoff_us(row: Row) -> int:
    """Twice as long after each attempt, and never more than an hour."""
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
    """Failures in a row pause the loop; why, if this one did."""
    if row["state"] == "done":
        tx.run(SQL.succeeded, id=row["loop_id"])
    if row["state"] not in ("failed", "timed_out"):
        return None
    loop = tx.one(SQL.failed, id=row["loop_id"])
    if loop["state"] != "active" or not 0 < loop["failures_max"] <= loop["failures"]:
        return None
    reason = f"{loop['failures']} runs in a row failed; the last one: {row['reason']}"
    paused = keeping.pause(tx, loop, serial.clean(reason, 500))
    return reason if isinstance(paused, Loop) and paused.state == "paused" else None


def _abandoned(tx: Tx, row: Row) -> Ended:
    standing = leases.stand(tx, row)
    gone = "is gone" if standing.gone else "was not heard of in time"
    child = f"; its child was pid {row['pid']}" if row["pid"] else ""
    reason = f"its worker, {leases.who(row['holder'])} ({row['host']}), {gone}{child}"
    if row["cancel_reason"] is not None:
        return _ended(tx, row, Outcome("cancelled", f"{row['cancel_reason']}; {reason}"))
    return _ended(tx, row, Outcome("abandoned", reason))


def _left(tx: Tx, over: Statement, of_holder: Statement, limit: int) -> list[Row]:
    """What runs under somebody whose time has run out, or under a process that is known to be gone."""
    holders = [row["holder"] for row in tx.all(SQL.holders, limit=HOLDERS_MAX)]
    gone = [holder for holder in holders if leases.is_gone(holder, tx.caller.clock)]
    rows = tx.all(over, limit=_page(limit), **tx.lease_clock()) if holders else []
    rows += [row for holder in gone for row in tx.all(of_holder, holder=holder, limit=_page(limit))]
    return list({row["id"]: row for row in rows}.values())[: _page(limit)]  # some are both


def _lives_here(tx: Tx, row: Row) -> bool:
    return row["process"] is not None and leases.is_here(row["process"], tx.caller.clock)


# -- finding -------------------------------------------------------------------------------------------


def _find(tx: Tx, run_id: object) -> Row | StandfastError:
    row = naming.row_of(tx, run_id, by_id=SQL.by_id, ends=SQL.by_suffix, prefix="run", noun="run")
    if row is None:
        return NotFound(f"there is no run {serial.clean(str(run_id), 60)!r}", "standfast loop runs")
    return row


def _locked(tx: Tx, run_id: str) -> Row | StandfastError:
    row = _find(tx, run_id) if not is_id(run_id) else {"id": run_id}
    if isinstance(row, StandfastError):
        return row
    found = tx.maybe(SQL.by_id_for_update, id=row["id"])
    return found if found is not None else NotFound(f"there is no run {run_id!r}", "standfast loop runs")


def _held(tx: Tx, run_id: str, attempt: int) -> Row | StandfastError:
    """The row, locked, if this attempt is still the one that counts."""
    row = _locked(tx, run_id)
    if isinstance(row, StandfastError) or (row["state"] == "running" and row["attempt"] == attempt):
        return row
    now = f"attempt {row['attempt']} {'runs' if row['state'] == 'running' else 'ended as ' + row['state']}"
    return LeaseLost(
        f"attempt {attempt} of {_named(row)} does not count any more: {now}", hints.command("loop", "runs", row["loop"])
    )


def _given_up(tx: Tx, run_id: str, attempt: int) -> Row | StandfastError:
    """The row, locked, if the caller holds this attempt, or nobody who may be alive does."""
    row = _held(tx, run_id, attempt)
    if isinstance(row, StandfastError) or row["holder"] == tx.caller.holder or not leases.stand(tx, row).live:
        return row
    return leases.in_progress(tx, _named(row), row)


def _ready(tx: Tx, accounts: tuple[str, ...]) -> Row | None:
    found = (tx.maybe(SQL.ready, now_us=tx.now_us(), **whose) for whose in firing.of_accounts(tx, accounts))
    return next((row for row in found if row is not None), None)


def _waiting(tx: Tx, run_id: str) -> Row | StandfastError:
    found = _find(tx, run_id)
    if isinstance(found, StandfastError):
        return found
    row = tx.maybe(SQL.ready_by_id, id=found["id"])
    if row is not None:
        return row
    return IllegalTransition(f"{_named(found)} does not wait any more: {found['state']}", "standfast loop runs")


def _goes(tx: Tx, row: Row, other: Row) -> InProgress:
    slot = schedule.shown(other["slot_us"])
    return leases.in_progress(tx, f"the loop {row['loop']!r} (its run of {slot})", other)


def _place(after: str | None) -> tuple[int, str]:
    if after is None:
        return schedule.LAST_US, "\x7f"
    slot_us, _, id = after.partition(":")
    if not (slot_us.isascii() and slot_us.isdigit() and len(slot_us) < 19 and is_id(id)):
        raise InvalidInput(
            f"{serial.clean(after, 60)!r} is not a place in this list", "use the `next` of the last page"
        )
    return int(slot_us), id


# -- small parts -----------------------------------------------------------------------------------------


def _between(us: int) -> int:
    """Slots are whole seconds; what is asked for lies between them and never takes one's place."""
    return us if us % SECOND_US else us + 1


def _told(tx: Tx, row: Row, type: str, said: str, data: Row | None = None) -> Receipt:
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


def _page(limit: int) -> int:
    return max(1, min(limit, PAGE_MAX))


def _at_work(store: Store, tx: Tx | None) -> None:
    """A process keeps what it claimed for as long as it lives."""
    if not store.caller.holder.startswith("p:"):
        return
    leases.renewed("run")  # not before: an agent's role on PostgreSQL may not update the table
    start = leases.renewer(store).start
    if tx is None:
        start()
    else:
        tx.after = [*(tx.after or ()), start]


__all__ = ["Job", "Run", "Runs"]
