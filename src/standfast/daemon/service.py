"""The process: takes the lock, opens the store, ticks, waits, drains.

    lock ─▶ store ─▶ ┌─ tick ─ wait for a slot, the bell, a child or a signal ─┐ ─▶ drain ─▶ give back
                     └─────────────────────────────────────────────────────────┘

The store being busy, or a server being away, is weather: it is waited out here and in every part, and
never ends the daemon. What ends it is a signal, a store that is configured elsewhere by now, or the loss
of its own lock file; each time what runs is given time to end, and is told.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from standfast import __version__, crash, handle
from standfast.clock import SECOND_US, SYSTEM
from standfast.daemon import status
from standfast.daemon.children import Spool
from standfast.daemon.instance import Instance
from standfast.daemon.lead import Lead
from standfast.daemon.parts import Firing, Sweeping, Watching
from standfast.daemon.supervisor import BACKOFF_MAX_US, BACKOFF_MIN_US, Part, Supervisor
from standfast.daemon.work import Work
from standfast.db.sqlite.place import make_private
from standfast.errors import StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.db.contract import Engine, Watch
    from standfast.handle import Standfast

WORKERS_MAX = 8
GRACE_S = 30.0
STANDBY_US = 2 * SECOND_US
APART_S = 0.01
"""However often the bell rings, the store is looked at no more often than this."""
WAIT_MAX_US = 10 * SECOND_US
STATUS_EVERY_US = SECOND_US

Say = Callable[[str], None]


class Options(NamedTuple):
    workers_max: int = WORKERS_MAX
    """Commands that run at the same time at most."""
    grace_s: float = GRACE_S
    """How long they may go on after SIGTERM."""


class Ended(NamedTuple):
    """Why a daemon ended, and whether it should be started again."""

    why: str
    restart: bool


class Daemon:
    """What one tick does. It knows no signals and no real time: a test moves the clock."""

    def __init__(self, sf: Standfast, spool: Spool, options: Options, say: Say, watching: Watching | None = None):
        self.sf = sf
        self.clock = sf._store.caller.clock
        self.say = say
        self.lead = Lead(sf, f"standfast daemon on {os.uname().nodename}")
        self.spool = spool
        self.options = options
        self.draining = False
        self.counts = {"fired": 0, "finished": 0, "adopted": 0}
        self.work = self._made_work()
        parts: dict[str, Callable[[], Part]] = {
            "fire": lambda: Firing(sf, self.counts),
            "run": self._made_work,
            "sweep": lambda: Sweeping(sf),
        }
        if watching is not None:
            parts["watch"] = lambda: watching
        self.supervisor = Supervisor(parts, self.clock, say)
        self.state = "starting"
        self.note: str | None = None
        self._failures = 0
        self._promised_us = 0

    def _made_work(self) -> Work:
        """Made anew it knows nothing, and finds what runs by the rows and the keepers' places."""
        self.work = Work(self.sf, self.spool, self.options.workers_max, self.counts, self.say)
        self.work.draining = self.draining
        return self.work

    def drain(self) -> None:
        """From now on nothing begins."""
        self.draining = self.work.draining = True

    def tick(self, *, woken: bool = False) -> int:
        """Do what is due; the microseconds until something may be due again."""
        try:
            leads = self.lead.step()
        except StorageError as error:
            return self._weather(error)
        self._failures, self.note = 0, None
        if not leads:
            self._be("standby", f"standing by: {self.lead.other or 'another daemon'} leads")
            return self._stand_by()
        self._be("draining" if self.draining else "active", "leading")
        wait_us = self.supervisor.step(woken=woken)
        if all(part.state == "ok" for part in self.supervisor.states() if part.name == "run"):
            self._promise()
        return min(wait_us, WAIT_MAX_US)

    def _stand_by(self) -> int:
        """What was begun on this machine is still seen to here: the leader may be on another."""
        try:
            self.work.follow(leads=False)
            self._promise()
        except StorageError as error:
            return self._weather(error)
        return STANDBY_US

    def _weather(self, error: StorageError) -> int:
        self.note = error.message.splitlines()[0]
        self._be("waiting", f"waiting for the store: {self.note}")
        self._failures += 1
        return min(BACKOFF_MIN_US << min(self._failures - 1, 20), BACKOFF_MAX_US // 6)

    def _be(self, state: str, words: str) -> None:
        if state != self.state:
            self.state = state
            self.say(words)

    def _promise(self) -> None:
        """On a server another machine takes over by time, so our keepers must know how much of it is left.

        After what a predecessor left was taken over: before that its leases are not ours to speak of.
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
        )


class Signals:
    """Signals as flags; one that comes while we wait ends the waiting."""

    def __init__(self) -> None:
        self.asked = 0
        """How often we were asked to end."""
        self._waiting = False
        self._noted = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]

    def _heard(self, number: int, _: object) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.asked += 1
        self._noted = True
        if self._waiting:
            raise _Woken

    def wait(self, waiting: Callable[[], bool]) -> bool:
        """Whether something happened: the bell, a child that ended, a signal."""
        try:
            try:
                self._waiting = True
                return self._noted or waiting()  # one that came a moment ago must not be slept over
            finally:
                self._waiting = False
        except _Woken:
            return True
        finally:
            self._noted = False


class _Woken(Exception):
    pass


class Ear:
    """The bell of the store, also after its engine had to be opened anew."""

    def __init__(self, sf: Standfast) -> None:
        self._sf = sf
        self._engine: Engine | None = None
        self._watch: Watch | None = None

    def listen(self, seconds: float) -> bool:
        try:
            if self._watch is None or self._sf.engine is not self._engine:
                self.close()
                self._engine = self._sf.engine
                self._watch = self._engine.watch()
                return True  # what was committed before we listened was not heard
            return self._watch.wait(seconds)
        except (StorageError, OSError):
            time.sleep(min(seconds, 1.0))
            return False

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class Service:
    """One life of the daemon."""

    def __init__(self, settings: Settings, options: Options, say: Say, reload: Callable[[], Settings]) -> None:
        self.settings = settings
        self.options = options
        self.say = say
        self.reload = reload
        self.since_us = SYSTEM.now_us()
        self._shown: tuple[int, status.Status] | None = None

    def run(self) -> Ended:
        """Until something ends it; what did. Raises InProgress if this data directory has its daemon."""
        make_private(self.settings.data_dir)
        with Instance(self.settings.data_dir, SYSTEM) as guard, Signals() as signals:
            spool = Spool(self.settings.data_dir, SYSTEM)
            sf = self._opened(guard, signals)
            if sf is None:
                return Ended("asked to end", restart=False)
            try:
                return self._live(sf, guard, spool, signals)
            finally:
                sf.close()

    def _opened(self, guard: Instance, signals: Signals) -> Standfast | None:
        """The store, as soon as it can be had. What no waiting cures is raised."""
        failures = 0
        while not signals.asked:
            try:
                return handle.connect(self.settings)
            except StorageError as error:
                if error.exit_code == 78 or error.code in ("corrupt", "not_a_store"):
                    raise
                words = error.message.splitlines()[0]
            if not failures:
                self.say(f"waiting for the store: {words}")
                _notify("READY=1")
            self._tell(status.Status("waiting", os.getpid(), guard.process, self.settings.target.shown, __version__,
                                     self.since_us, None, [], [], {}, words))  # fmt: skip
            failures += 1
            pause_s = min(BACKOFF_MIN_US << min(failures - 1, 20), BACKOFF_MAX_US // 6) / SECOND_US
            signals.wait(partial(_sleep, pause_s))
        return None

    def _live(self, sf: Standfast, guard: Instance, spool: Spool, signals: Signals) -> Ended:
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
        """Nothing new begins; what runs may end by itself for a while, then it is ended, and every end recorded.

        With the store away the ends stay with the keepers: the next daemon records them.
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
        """What others see, when it changed."""
        now_us = SYSTEM.mono_us()
        if self._shown is not None:
            then_us, shown = self._shown
            if shown == found or (shown.state == found.state and now_us - then_us < STATUS_EVERY_US):
                return
        status.write(self.settings.data_dir, found)
        self._shown = (now_us, found)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _notify(words: str) -> None:
    """To systemd, if it started us and wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.connect("\0" + address[1:] if address.startswith("@") else address)
            line.send(words.encode())
    except OSError:
        pass
