"""The daemon's process: it takes the lock, opens the store, ticks, waits and drains.

    lock ─▶ store ─▶ ┌─ tick ─ wait for a slot, the bell, a child or a signal ─┐ ─▶ drain ─▶ give back
                     └─────────────────────────────────────────────────────────┘

A busy store or an unreachable server never ends the daemon: this loop and every part wait and try again. It ends on a
signal, if the configuration names another store, or if it loses its lock file. At its end it signals running commands
and gives them time to end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from standfast import __version__, crash, handle
from standfast.clock import SECOND_US, SYSTEM
from standfast.daemon import status
from standfast.daemon.instance import Instance
from standfast.daemon.jobs import Watching
from standfast.daemon.keeper_client import RunOutputs
from standfast.daemon.supervisor import backoff_us
from standfast.daemon.tick import STORE_BACKOFF_MAX_US, Daemon, Options, Say
from standfast.daemon.wait import Ear, Signals, sleep
from standfast.db.sqlite.location import make_private
from standfast.errors import StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.handle import Standfast

APART_S = 0.01
"""The shortest time between two reads of the store, however many notifications arrive."""
NOTIFY_MAX_S = 1.0
STATUS_EVERY_US = SECOND_US


class Ended(NamedTuple):
    """Why a daemon ended, and whether it should be started again."""

    why: str
    restart: bool


class Service:
    """The daemon from its start to its end."""

    def __init__(self, settings: Settings, options: Options, say: Say, reload: Callable[[], Settings]) -> None:
        self.settings = settings
        self.options = options
        self.say = say
        self.reload = reload
        self.since_us = SYSTEM.now_us()
        self._shown: tuple[int, status.Status] | None = None

    def run(self) -> Ended:
        """Run until something ends it, and return the reason. Raises InProgress if this data directory has a daemon."""
        make_private(self.settings.data_dir)
        with Instance(self.settings.data_dir, SYSTEM) as guard, Signals() as signals:
            spool = RunOutputs(self.settings.data_dir, SYSTEM)
            sf = self._opened(guard, signals)
            if sf is None:
                return Ended("asked to end", restart=False)
            try:
                return self._live(sf, guard, spool, signals)
            finally:
                sf.close()

    def _opened(self, guard: Instance, signals: Signals) -> Standfast | None:
        """Wait until the store opens. Raises errors that waiting cannot solve. None if the daemon was asked to end."""
        failures = 0
        while not signals.asked:
            try:
                return handle.connect(self.settings)
            except StorageError as error:
                if error.exit_code == 78 or error.code in ("corrupt", "not_a_store", "store_missing", "store_moved"):
                    raise
                words = error.message.splitlines()[0]
            if not failures:
                self.say(f"waiting for the store: {words}")
                _notify("READY=1")
            self._tell(status.Status("waiting", os.getpid(), guard.process, self.settings.target.shown, __version__,
                                     self.since_us, None, [], [], {}, words))  # fmt: skip
            failures += 1
            signals.wait(partial(sleep, backoff_us(failures, STORE_BACKOFF_MAX_US) / SECOND_US))
        return None

    def _live(self, sf: Standfast, guard: Instance, spool: RunOutputs, signals: Signals) -> Ended:
        watching = Watching(self.settings, self.reload, guard)
        daemon = Daemon(sf, spool, self.options, self.say, watching)
        ear = Ear(sf)
        self.say(f"serving {self.settings.target.shown}, process {os.getpid()}")
        _notify("READY=1")
        woken = True
        try:
            while not (signals.asked or watching.ended):
                wait_us = daemon.tick(woken=woken)
                self._tell(daemon.status(guard.process, self.since_us))
                _notify("WATCHDOG=1")
                woken = signals.wait(partial(ear.listen, wait_us / SECOND_US))
                if woken:
                    time.sleep(APART_S)
            ended = Ended("asked to end" if signals.asked else watching.ended or "", restart=not signals.asked)
            self._drain(daemon, ear, guard, signals, ended.why)
        finally:
            ear.close()
        return ended

    def _drain(self, daemon: Daemon, ear: Ear, guard: Instance, signals: Signals, why: str) -> None:
        """Begin nothing new. Running commands get the grace period to end by themselves. Then the daemon ends them
        and records every end. If the store is away, the keepers hold the results, and the next daemon records them.
        """
        _notify("STOPPING=1")
        self.say(f"{why}: ending")
        crash.point("daemon.before_drain")
        end, ending = time.monotonic() + self.options.grace_s, 0
        daemon.drain()
        while not daemon.work.idle and not (daemon.work.quiet and daemon.state == "waiting"):
            wanted = 2 if signals.asked > 1 else int(time.monotonic() >= end)
            if ending < wanted:
                ending = wanted
                daemon.work.end_all(now=ending == 2)
            wait_us = daemon.tick(woken=True)
            self._tell(daemon.status(guard.process, self.since_us))
            left_s = max(end - time.monotonic(), APART_S) if not ending else 1.0
            signals.wait(partial(ear.listen, min(wait_us / SECOND_US, left_s)))
            time.sleep(APART_S)
        try:
            daemon.lead.give_back()
        except StandfastError as error:
            self.say(f"the lease ends with this process: {error.message.splitlines()[0]}")
        daemon.state, daemon.note = "stopped", why
        self._tell(daemon.status(guard.process, self.since_us))

    def _tell(self, found: status.Status) -> None:
        """Write the status file if the state changed."""
        now_us = SYSTEM.mono_us()
        if self._shown is not None:
            then_us, shown = self._shown
            if shown == found or (shown.state == found.state and now_us - then_us < STATUS_EVERY_US):
                return
        status.write(self.settings.data_dir, found)
        self._shown = (now_us, found)


def _notify(words: str) -> None:
    """Notify systemd, if it started us and set NOTIFY_SOCKET."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.settimeout(NOTIFY_MAX_S)
            line.connect("\0" + address[1:] if address.startswith("@") else address)
            line.send(words.encode())
    except OSError:
        pass
