"""One tick of the daemon: renew the lease of the leader, run every part that is due, return the time until the next.

It uses no signals, threads or real time: a test moves the clock and calls `tick`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from standfast import __version__
from standfast.admin.copies.automatic import Hourly
from standfast.clock import SECOND_US
from standfast.config.actor import account
from standfast.daemon import status
from standfast.daemon.jobs import Firing, Sweeping, Watching
from standfast.daemon.leader_lease import Lead
from standfast.daemon.runner import Work
from standfast.daemon.supervisor import Part, Supervisor, backoff_us
from standfast.errors import StorageError

if TYPE_CHECKING:
    from standfast.daemon.keeper_client import RunOutputs
    from standfast.handle import Standfast

WORKERS_MAX = 8
GRACE_S = 30.0
STANDBY_US = 2 * SECOND_US
WAIT_MAX_US = 10 * SECOND_US
HELD_BACK_EVERY_US = 60 * SECOND_US
STORE_BACKOFF_MAX_US = 5 * SECOND_US
"""The longest wait for a store that cannot be opened."""

Say = Callable[[str], None]


class Options(NamedTuple):
    workers_max: int = WORKERS_MAX
    """The most commands that run at the same time."""
    grace_s: float = GRACE_S
    """How long commands may continue after SIGTERM."""


class Daemon:
    """The state of the daemon between two ticks."""

    def __init__(self, sf: Standfast, spool: RunOutputs, options: Options, say: Say, watching: Watching | None = None):
        self.sf = sf
        self.clock = sf._store.caller.clock
        self.say = say
        self.accounts = (account(), *sf.settings.options.accounts)
        """The accounts whose loops it runs, its own first."""
        self.lead = Lead(sf, f"the daemon on {os.uname().nodename}", self.accounts)
        self.spool = spool
        self.options = options
        self.draining = False
        self.counts = {"fired": 0, "finished": 0, "adopted": 0}
        self.foreign: list[dict[str, str]] = []
        """Loops that are late and of other accounts."""
        self.work = self._made_work()
        parts: dict[str, Callable[[], Part]] = {
            "fire": lambda: Firing(sf, self.counts, self.accounts, self.foreign),
            "run": self._made_work,
            "sweep": lambda: Sweeping(sf),
            "copy": lambda: Hourly(
                sf.copies, lambda: sf.settings.options.copies.enabled and sf._store.memory is not None
            ),
        }
        if watching is not None:
            parts["watch"] = lambda: watching
        self.supervisor = Supervisor(parts, self.clock, say)
        self.state = "starting"
        self.note: str | None = None
        self._failures = 0
        self._promised_us = 0
        self._ask_held_back_us = 0
        self._held_back = ""

    def _made_work(self) -> Work:
        """The work of this daemon. After a restart, rows and keepers' directories show which commands run."""
        self.work = Work(self.sf, self.spool, self.options.workers_max, self.counts, self.say, self.accounts)
        self.work.draining = self.draining
        return self.work

    def drain(self) -> None:
        """Start no more runs."""
        self.draining = self.work.draining = True

    def tick(self, *, woken: bool = False) -> int:
        """Do the due work; the microseconds until something may be due again."""
        try:
            leads = self.lead.step()
        except StorageError as error:
            return self._weather(error)
        self._failures, self.note = 0, None
        if not leads:
            self._be("standby", f"standing by: {self.lead.other or 'another daemon'} leads")
            return self._stand_by()
        if self.draining:
            self._be("draining", "draining")
        else:
            self._be("active", "leading")
        wait_us = self.supervisor.step(woken=woken)
        if all(part.state == "ok" for part in self.supervisor.states() if part.name == "run"):
            self._promise()
        self._tell_held_back()
        return min(wait_us, WAIT_MAX_US)

    def _tell_held_back(self) -> None:
        """Name a transaction that delays readers of the journal: once per transaction, and at most once a minute."""
        now_us = self.clock.mono_us()
        if now_us < self._ask_held_back_us:
            return
        self._ask_held_back_us = now_us + HELD_BACK_EVERY_US
        said = self.sf.engine.held_back()
        who = said.partition(" has kept")[0]
        if who and who != self._held_back:
            self.say(said)
        self._held_back = who

    def _stand_by(self) -> int:
        """Handle runs that this machine started, because the leader may be on another machine."""
        try:
            self.work.follow(leads=False)
            self._promise()
        except StorageError as error:
            return self._weather(error)
        return STANDBY_US

    def _weather(self, error: StorageError) -> int:
        """How long to wait for a store that cannot be opened now. Raises if it moved to another place."""
        if error.code == "store_moved":
            raise error
        self.note = error.message.splitlines()[0]
        self._be("waiting", f"waiting for the store: {self.note}")
        self._failures += 1
        return backoff_us(self._failures, STORE_BACKOFF_MAX_US)

    def _be(self, state: str, words: str) -> None:
        if state != self.state:
            self.state = state
            self.say(words)

    def _promise(self) -> None:
        """Tell our keepers when our lease ends: on PostgreSQL another machine may take over then.

        Call it only after taking over from a predecessor, because until then its leases are not ours.
        """
        until_us = self.lead.good_until_us
        if self.sf.settings.target.engine == "postgres" and until_us != self._promised_us:
            self.spool.promise(until_us)
            self._promised_us = until_us

    def status(self, process: str, since_us: int) -> status.Status:
        return status.Status(
            state=self.state,
            pid=os.getpid(),
            process=process,
            store=self.sf.settings.target.shown,
            version=__version__,
            since_us=since_us,
            leader=self.lead.other,
            parts=[part._asdict() for part in self.supervisor.states()],
            runs=self.work.shown(),
            counts=dict(self.counts),
            note=self.note,
            foreign=list(self.foreign),
        )
