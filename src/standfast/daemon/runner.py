"""Run the commands of loops, from the claim to the recorded end. Runs of a dead daemon are taken over.

    claim ─▶ keeper started, waiting ─▶ started (the row names the keeper) ─▶ go ─▶ result ─▶ finish

The process may be killed at each arrow. The next daemon reads the rows and the keepers' directories and continues from
there (`keeper_client` lists the cases). No command starts twice. Before `started` is recorded, the keeper has received
nothing. Afterwards the next daemon finds the keeper by its identity.

If the store is busy or its server is away, the next step retries; the keeper and its result wait. `LeaseLost` is
permanent: another process has decided about the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import crash, handle, serial
from standfast.clock import SECOND_US
from standfast.config.scope import Label, carried
from standfast.core import artifacts
from standfast.core.leases import renewer
from standfast.daemon import keeper
from standfast.daemon.keeper_client import Child, Result, RunOutputs
from standfast.errors import Conflict, NotFound
from standfast.serial.redaction import redacted

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.loops.models import Run

LOOK_EVERY_US = 10 * SECOND_US
"""How often the runner looks for runs of a dead daemon."""
CHECK_EVERY_US = SECOND_US
"""How often the runner checks its keepers. A keeper of another daemon sends no signal when it ends."""
TERM_GRACE_S = 10.0
"""How long a command may run between SIGTERM and SIGKILL."""
PAGE = 1000
STDERR_READ_MAX = 4096
STDERR_SHOWN_MAX = 160
"""Characters of the last line of stderr in the reason of a failed run."""

_OURS_ALONE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "STANDFAST_CRASH_AT")
"""Variables of the daemon that its commands do not get."""


class Going(NamedTuple):
    """A run of this daemon and its keeper."""

    run: Run
    child: Child


class Work:
    """The runs of this daemon."""

    def __init__(
        self,
        sf: Standfast,
        spool: RunOutputs,
        workers_max: int,
        counts: dict[str, int],
        say: Callable[[str], None],
        accounts: Sequence[str],
    ) -> None:
        self._sf = sf
        self._spool = spool
        self._workers_max = workers_max
        self._counts = counts
        self._say = say
        self._accounts = accounts
        self._clock = sf._store.caller.clock
        self._host = os.uname().nodename
        self._going: dict[tuple[str, int], Going] = {}
        self._released: set[tuple[str, int]] = set()
        """Runs whose keeper may have received its command, including adopted runs."""
        self._look_us: int | None = None
        self.draining = False

    # -- methods for the service -----------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """No command runs here, and the end of each is recorded."""
        return not self._going

    @property
    def quiet(self) -> bool:
        """No command runs here. Some ends may not be recorded yet."""
        return not any(one.child.here for one in self._going.values())

    def end_all(self, *, now: bool) -> None:
        """End every command: SIGTERM, or SIGKILL with `now`."""
        for one in self._going.values():
            one.child.end(now=now)

    def shown(self) -> list[dict[str, Any]]:
        return [
            {"loop": run.loop, "slot_us": run.slot_us, "attempt": run.attempt, "pid": child.pid, "run": run.id}
            for run, child in self._going.values()
        ]

    # -- one tick ---------------------------------------------------------------------------------

    def step(self) -> int:
        """Take over, record ends, cancel, begin ready runs."""
        self.follow(leads=True)
        ready_us = LOOK_EVERY_US if self.draining else self._claim()
        return min(ready_us, CHECK_EVERY_US if self._going else LOOK_EVERY_US)

    def follow(self, *, leads: bool) -> None:
        """Take over runs of dead daemons, begin claimed runs, record the ended ones and cancel. A daemon on standby
        does this too, for runs that began on this machine."""
        now_us = self._clock.mono_us()
        if self._look_us is None or now_us - self._look_us >= LOOK_EVERY_US:
            self._take_over(leads=leads)
            self._look_us = now_us
        self._begin_claimed()
        self._reap()
        self._cancel()

    # -- start of a command -----------------------------------------------------------------------

    def _claim(self) -> int:
        """Begin ready runs up to the limit. Returns the microseconds until more may be ready."""
        while len(self._going) < self._workers_max:
            # Read before the claim: a claim is a write, and each write sends a notification that would wake this
            # thread again.
            due_us = self._sf.loops.next_due_us(slots=False, accounts=self._accounts)
            now_us = self._sf.read(lambda tx: tx.now_us())
            if due_us is None or due_us > now_us:
                return LOOK_EVERY_US if due_us is None else due_us - now_us
            run = self._sf.runs.claim(host=self._host, accounts=self._accounts)
            if run is None:
                break
            crash.point("daemon.after_claim")
            self._start(run)
            self._begin_claimed()
        return LOOK_EVERY_US

    def _start(self, run: Run) -> None:
        child = self._spool.start(run.id, run.attempt)
        self._going[run.id, run.attempt] = Going(run, child)

    def _begin_claimed(self) -> None:
        """Name the keeper in the row, then let it start the command. Retried until the store has the row."""
        for key, (run, child) in list(self._going.items()):
            if key in self._released:
                continue
            crash.point("daemon.before_started")
            try:
                self._sf.runs.started(*key, pid=child.pid, process=child.process)
            except (Conflict, NotFound) as error:
                self._drop(key, error.message)
                continue
            crash.point("daemon.after_started")
            child.go(self._spec(run))
            self._released.add(key)
            crash.point("daemon.after_go")

    def _spec(self, run: Run) -> dict[str, Any]:
        assert run.job is not None
        own = {name: value for name, value in os.environ.items() if name not in _OURS_ALONE}
        about = {
            "STANDFAST_ACTOR": f"loop:{run.loop}",
            "STANDFAST_LOOP": run.loop,
            "STANDFAST_RUN": run.id,
            "STANDFAST_SLOT_US": str(run.slot_us),
            "STANDFAST_ATTEMPT": str(run.attempt),
            **carried(run.scope, Label(run.git_dir, run.origin)),
        }
        return {
            "argv": list(run.job.command),
            "cwd": run.job.cwd,
            "environment": {**own, **about, **run.job.environment},
            "timeout_us": run.job.timeout_us,
            "grace_s": TERM_GRACE_S,
            **self._leased(),
        }

    def _leased(self) -> dict[str, Any]:
        """The end of the lease, for the keeper. On PostgreSQL another machine may take over the run then."""
        if self._sf.settings.target.engine != "postgres":
            return {}
        left_us = max(0, renewer(self._sf._store).good_until_us - self._clock.mono_us())
        return {"lease": self._spool.lease, "lease_until": keeper.now() + left_us / SECOND_US}

    # -- end of a command -------------------------------------------------------------------------

    def _reap(self) -> None:
        for key, (run, child) in list(self._going.items()):
            if key in self._released and not child.here and (child.gone or child.result() is not None):
                self._finish(run, child)

    def _finish(self, run: Run, child: Child) -> None:
        key = (run.id, run.attempt)
        result = child.result()
        crash.point("daemon.before_finish")
        try:
            if result is None or result.code is None:
                self._unanswered(run, child, result)
            else:
                self._answered(run, result)
        except (Conflict, NotFound) as error:
            self._drop(key, error.message)
            return
        crash.point("daemon.after_finish")
        self._counts["finished"] += 1
        self._forget(key)

    def _answered(self, run: Run, result: Result) -> None:
        assert result.code is not None
        outputs = {name: self._kept(run, name, getattr(result, name)) for name in ("stdout", "stderr")}
        crash.point("daemon.before_end")
        self._sf.runs.finish(
            run.id,
            run.attempt,
            exit_code=result.code,
            timed_out=result.why == "timed_out",
            cancelled=result.why == "cancelled",
            duration=result.duration_us / SECOND_US,
            stdout_id=outputs["stdout"],
            stderr_id=outputs["stderr"],
            reason=self._reason(result),
        )

    def _reason(self, result: Result) -> str | None:
        if result.why == "cancelled" and self.draining:
            return "the daemon was stopped"
        if result.why == "lost":
            return "the store was unreachable for too long: ended before another machine could take over"
        return result.failure or _last_words(result)

    def _unanswered(self, run: Run, child: Child, result: Result | None) -> None:
        """The keeper is gone and wrote no result."""
        if result is not None or child.never_began:
            self._sf.runs.requeue(run.id, run.attempt, reason=(result and result.failure) or "it never began")
        elif child.end_leftovers():
            reason = f"{_why_unknown(child)}: its outcome is unknown, and its remaining processes were killed"
            self._sf.runs.finish(run.id, run.attempt, duration=0, reason=reason)
        else:
            raise RuntimeError(f"processes of run {run.id} cannot be ended")

    def _kept(self, run: Run, name: str, data: bytes) -> str | None:
        """Store the redacted output as an artifact. Equal outputs share one artifact."""
        if not data:
            return None
        if self._sf._store.redact:
            data = redacted(data.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        # Stored in the scope and the repository of the loop, where people search for it.
        whose = self._sf.settings._replace(scope=run.scope, label=Label(run.git_dir, run.origin), outside=False)
        with handle.connect(whose, clock=self._clock) as sf:
            # Stored beside the store, because a run must end also while S3 does not answer.
            return artifacts.put(sf._store, data, name=f"{run.id}.{run.attempt}.{name}", kind="log").id

    def _cancel(self) -> None:
        """Ask each cancelled run to end, once."""
        if not self._going:
            return
        for run in self._sf.runs.to_cancel(limit=PAGE):
            found = self._going.get((run.id, run.attempt))
            if found is not None and found.run.cancel_reason is None:
                self._going[run.id, run.attempt] = found._replace(
                    run=found.run.replace(cancel_reason=run.cancel_reason)
                )
                found.child.end()

    def _drop(self, key: tuple[str, int], why: str) -> None:
        """Another process has decided about this attempt: end its processes."""
        self._say(f"run {key[0]}: {why}")
        child = self._going[key].child
        if key not in self._released:
            child.never()
        elif child.here:
            child.end()
            return  # checked again when it has ended
        self._forget(key)

    def _forget(self, key: tuple[str, int]) -> None:
        del self._going[key]
        self._released.discard(key)
        self._spool.forget(*key)

    # -- takeover ---------------------------------------------------------------------------------

    def _take_over(self, *, leads: bool) -> None:
        """Take over runs of a dead daemon, and our own runs whose claim was committed although the answer was lost."""
        runs = self._sf.runs
        left = runs.left(limit=PAGE)
        for run in [*runs.mine(limit=PAGE), *left]:
            if (run.id, run.attempt) not in self._going:
                self._take(run)
        if leads and left:
            for run in runs.abandon_dead(limit=PAGE):
                self._say(f"{run.loop}: {run.reason}")
        wanted = {key for key in self._spool.left_behind() if key not in self._going}
        for run_id, attempt in wanted:
            self._tidy(run_id, attempt)

    def _take(self, run: Run) -> None:
        try:
            if (
                run.process is None
            ):  # claimed and never started: a keeper gets its command only after its identity is stored
                self._sf.runs.requeue(run.id, run.attempt, reason="its worker ended before the command began")
                return
            child = self._spool.adopted(run.id, run.attempt, run.process)
            if not child.here and not child.gone and child.result() is None:
                return  # the run is on another machine, and its lease ends by time
            if child.gone and not child.known:
                child.end_leftovers()  # the keeper belongs to another data directory: the outcome is unknown
                return
            adopted = self._sf.runs.adopt(run.id, run.attempt)
        except (Conflict, NotFound):
            return  # its worker is alive, or another daemon took it first
        self._going[run.id, run.attempt] = Going(adopted, child)
        self._released.add((run.id, run.attempt))
        self._counts["adopted"] += 1
        self._say(f"{run.loop}: took over run {run.id}, which {'is running' if child.here else 'has ended'}")

    def _tidy(self, run_id: str, attempt: int) -> None:
        """Remove the directory of a run that has ended or was claimed again."""
        try:
            run = self._sf.runs.get(run_id)
        except NotFound:
            return  # the directory belongs to another store: do not touch it
        if run.state != "running" or run.attempt != attempt:
            self._spool.forget(run_id, attempt)


def _last_words(result: Result) -> str | None:
    """The exit code with the last line of stderr, for a command that failed by itself."""
    if result.why or not result.code or result.code < 0:
        return None
    lines = result.stderr[-STDERR_READ_MAX:].decode(errors="replace").strip().splitlines()
    return f"exit {result.code}: {serial.summary(lines[-1], STDERR_SHOWN_MAX)}" if lines else None


def _why_unknown(child: Child) -> str:
    if child.rebooted:
        return "the machine was restarted"
    return "its keeper was killed" if child.known else "it was begun from another data directory"
