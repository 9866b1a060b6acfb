"""The machine of a simulation: its clock, its processes and its faults."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Hashable, Iterator, MutableSet
from contextlib import contextmanager
from typing import Any

from standfast.clock import SECOND_US, ManualClock
from standfast.config import Settings
from standfast.core import leases
from standfast.db.contract import Caller, Engine
from standfast.db.store import Store
from standfast.handle import Standfast
from standfast.ledger.effects import begin, one_at_a_time
from standfast.record import open_session
from standfast_prove.mutants.patching import Patching
from standfast_prove.simulation.boundary import Boundary, Killed, Renewing
from standfast_prove.simulation.strands import Strand, Strands

NAMESPACE = "1"
HERE, THERE, ACTOR = "here", "there", "actor"
"""A process of this host, a process of another pid namespace, or an actor whose commands start and exit."""
ASLEEP_MAX_US = 80 * SECOND_US
"""The longest pause, less than two leases. A process of another host could sleep for longer, between its intent and its
request. Then it sends the request although another process has abandoned the effect. No store can prevent that. The
docs say so, and no seed plays it.
"""


class Process:
    """One process of a role, from its start to its end or its kill."""

    def __init__(self, machine: Machine, role: str, pid: int, kind: str) -> None:
        self.machine, self.role, self.pid, self.kind = machine, role, pid, kind
        self.alive, self.steps = True, 0
        self.wakes_us = 0
        """The awake time until which it sleeps or is stopped."""
        self.stopped_at = -1
        self.stops = 0
        self.sending: str | None = None
        """The request that it will send next. The intent is recorded, and nothing was sent yet."""
        self.strand: Strand
        clock = machine.clock
        self.holder = (
            leases.actor_holder(role)
            if kind == ACTOR
            else str(leases.Process("host", clock.boot_id()[:8], NAMESPACE if kind == HERE else "2", pid, str(pid)))
        )
        caller = Caller(actor=role, holder=self.holder, scope=machine.scope, clock=clock)
        self.store = Store(lambda caller: Boundary(machine.engine, self), caller, lambda: self.holder)
        self.renewing = Renewing(self.store)
        self.store.companions["renewer"] = self.renewing
        self.store.data_dir = machine.settings.data_dir
        self.sf = Standfast(machine.settings, self.store)

    @property
    def draw(self) -> random.Random:
        return self.machine.draw

    def stands(self, where: str) -> None:
        """Called before an outside action. Here the process may be killed or paused, or another process may get the
        turn.
        """
        self.passes(where)
        self.machine.trouble(self, where)
        if self.wakes_us > self.machine.mono_us or self.machine.draw.random() < 0.6:
            self.machine.stop(self)

    def passes(self, where: str) -> None:
        """Called after an action: the process may be killed here."""
        if not self.alive:
            raise Killed
        self.steps += 1
        self.machine.step(self, where)

    def sleeps(self, seconds: float) -> None:
        if not self.alive:
            raise Killed
        self.wakes_us = self.machine.mono_us + round(seconds * SECOND_US)
        self.machine.stop(self)

    def tells(self, *words: object) -> None:
        self.machine.tell(self.role, *words)


class Machine:
    """Runs roles as processes until all have ended."""

    def __init__(self, seed: int, engine: Engine, settings: Settings, strands: Strands, *, jumps: bool) -> None:
        self.draw = random.Random(seed)
        self.clock = ManualClock(1_767_225_600_000_000 + seed % 997 * SECOND_US)
        self.engine, self.settings, self.scope = engine, settings, f"simulation {seed}"
        self.jumps, self.latest_us = jumps, 0
        self.mono_us = 0
        """The elapsed time over all boots."""
        self.faulty = True
        self.processes: list[Process] = []
        self.bodies: dict[str, tuple[Callable[[Process], None], tuple[str, ...]]] = {}
        self.starts_us: dict[str, int] = {}
        """Roles without a process, with the time when each gets one."""
        self.current: Process | None = None
        """The process of this turn. None means the thread that plays the simulation."""
        self._main = threading.Lock()
        self._main.acquire()
        self._here = self._main
        """The lock of the thread that runs now."""
        self._killer: tuple[Process | None, threading.Lock] | None = None
        self.steps = 0
        self.counts: dict[str, int] = {}
        self.bad: list[str] = []
        self._pids = 100
        self._strands = strands
        self._trace = hashlib.sha256()

    # -- playing -----------------------------------------------------------------------------------------

    def plays(self, role: str, body: Callable[[Process], None], *kinds: str) -> None:
        """Add a role. A process of one of these kinds plays it until `body` ends. After a kill a new one does."""
        self.bodies[role] = (body, kinds)
        self.starts_us[role] = 0

    def play(self, turns: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Run up to a number of turns. Returns False if they were used up before the end."""
        self._left, self._until = turns, until
        self._hand_over(self._next(), self._main)
        return self._left > 0

    def stop(self, process: Process) -> None:
        """In a process: give the turn to another process, or to itself."""
        self._hand_over(self._next(), process.strand.baton)
        if not process.alive:
            raise Killed

    def _hand_over(self, to: Process | None, mine: threading.Lock) -> None:
        theirs = self._given(to)
        if theirs is not mine:
            theirs.release()
            mine.acquire()

    def _given(self, to: Process | None) -> threading.Lock:
        self.current, self._here = to, to.strand.baton if to else self._main
        return self._here

    def _next(self) -> Process | None:
        """One turn: inject faults, then choose the next process, or None at the end. Runs in the active thread."""
        while self._left > 0 and not self._until():
            self._left -= 1
            if self.faulty and self.draw.random() < 0.12:
                self._fault()
                if self.current is not None and not self.current.alive:
                    return self.current  # killed here: the stack unwinds
            for role, at_us in list(self.starts_us.items()):
                if at_us <= self.mono_us:
                    self._start(role)
            now_us = self.mono_us
            ready = [one for one in self.processes if one.wakes_us <= now_us]
            if ready:
                return self.draw.choice(ready)
            waits = [*(one.wakes_us for one in self.processes), *self.starts_us.values()]
            if not waits:
                return None
            self.pass_time(min(waits) - now_us)
        return None

    def _start(self, role: str) -> None:
        body, kinds = self.bodies[role]
        del self.starts_us[role]
        self._pids += 1
        process = Process(self, role, self._pids, self.draw.choice(kinds))
        process.strand = self._strands.take(lambda: self._life(process, body))
        self.processes.append(process)
        self.tell(role, "starts", process.kind)

    def _life(self, process: Process, body: Callable[[Process], None]) -> None:
        """Runs in the strand of the process, from its first step to its end."""
        try:
            body(process)
            self.tell(process.role, "ends")
        except Killed:
            self.starts_us.setdefault(process.role, self.mono_us + round(self.draw.random() * 20 * SECOND_US))
        except Exception as error:  # noqa: BLE001  # an error that no role expects must not be
            self.bad.append(f"{process.role} met {type(error).__name__}: {error}")
        process.alive = False
        self.processes.remove(process)
        if self._killer is not None:
            (self.current, self._here), self._killer = self._killer, None
            theirs = self._here
        else:
            self.current = None
            theirs = self._given(self._next())
        self._strands.give_back(process.strand)
        theirs.release()

    def kill(self, process: Process) -> None:
        """Called from outside: the strand unwinds without side effects and returns control."""
        process.alive = False
        if process is self.current:
            return
        mine, self._killer = self._here, (self.current, self._here)
        self._given(process).release()
        mine.acquire()

    def step(self, process: Process, where: str) -> None:
        """Called by the running process: time passes, and the process may be killed."""
        self.steps += 1
        self.tell(process.role, where)
        self.pass_time(self.draw.choice((0, 1_000, 40_000, 300_000)))
        if self.faulty and self.draw.random() < 0.015:
            self.count("kills")
            self.tell(process.role, "dies")
            process.alive = False
            raise Killed

    def pass_time(self, us: int) -> None:
        """All running processes renew their leases, as their renewal threads would."""
        for one in self.processes:
            one.stops += us > 15 * SECOND_US and not one.renewing.started  # its thread has not started yet
        while us > 0:
            part_us = min(us, 15 * SECOND_US)
            us -= part_us
            self.clock.advance(part_us / SECOND_US)
            self.mono_us += part_us
            mono_us = self.clock.mono_us()
            for one in self.processes:
                if one.renewing.started and one.renewing.due(mono_us) and one.alive and not self._stopped(one):
                    self._renew(one)

    def _stopped(self, process: Process) -> bool:
        return process.stopped_at == process.steps and self.mono_us < process.wakes_us

    def _renew(self, process: Process) -> None:
        """Not counted as a step, because another thread does it."""
        caller = process.store.caller
        self.engine.write(leases.renew_all, caller, durable=False)
        process.renewing.start()

    def heal(self) -> None:
        """Inject no more faults. Stopped processes continue at their time."""
        self.faulty = False
        self.tell("healed")
        behind_us = self.latest_us - self.clock.now_us()
        if behind_us > 0:  # otherwise work that was postponed while the clock was ahead would wait that long
            self.clock.jump(behind_us / SECOND_US)

    def end(self) -> None:
        """Ends the processes that still wait for work."""
        self.starts_us.clear()
        self.faulty = False
        for process in list(self.processes):
            self.kill(process)
        self.starts_us.clear()

    # -- what goes wrong ---------------------------------------------------------------------------------

    def _fault(self) -> None:
        faults = (self._kills, self._stops, self._sets_the_clock, self._lets_time_pass, self._reboots)
        self.draw.choices(faults, (30, 40, 12, 15, 3))[0]()

    def _kills(self) -> None:
        if self.processes:
            self._killed(self.draw.choice(self.processes))

    def _killed(self, process: Process) -> None:
        self.count("kills")
        self.tell(process.role, "is killed")
        self.kill(process)

    def trouble(self, process: Process, where: str) -> None:
        """Prefers a process that holds a lease and is about to record or send."""
        if where in ("write", "read", "transaction") or not self.faulty or self.draw.random() > 0.25:
            return
        self._stop(process)
        if self.draw.random() < 0.3:
            self._sets_the_clock()

    def _stops(self) -> None:
        awake = [one for one in self.processes if not self._stopped(one)]
        if awake:
            self._stop(self.draw.choice(awake))

    def _stop(self, process: Process) -> None:
        """Stop a process, perhaps for longer than its lease, so that it writes late."""
        for_us = round(self.draw.choice((5, 40, 110)) * SECOND_US * (0.5 + self.draw.random()))
        if process.sending is not None and process.kind != HERE:
            for_us = min(for_us, ASLEEP_MAX_US)
        process.stopped_at = process.steps
        process.stops += 1
        process.wakes_us = max(process.wakes_us, self.mono_us + for_us)
        self.count("stops")
        self.tell(process.role, "is stopped")

    def _sets_the_clock(self) -> None:
        if self.jumps:
            self.latest_us = max(self.latest_us, self.clock.now_us())
            self.clock.jump(self.draw.choice((-3_000, -60, 60, 600, 3_000)) * self.draw.random())
            self.count("clock jumps")

    def _lets_time_pass(self) -> None:
        self.pass_time(round(self.draw.choice((3, 30, 100)) * SECOND_US * self.draw.random()))

    def _reboots(self) -> None:
        for process in list(self.processes):
            self._killed(process)
        self.clock.reboot()
        self.count("reboots")

    # -- saying ------------------------------------------------------------------------------------------

    def tell(self, *words: object) -> None:
        self._trace.update(f"{self.mono_us} {words}\n".encode())

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def stat(self, pid: int) -> tuple[str, str]:
        """Whether the system lists a process."""
        there = any(one.pid == pid and one.alive for one in self.processes)
        return ("S", str(pid)) if there else ("absent", "")


class Apart(MutableSet[Any]):
    """A set that has separate content for each simulated process."""

    def __init__(self, pid: Callable[[], int]) -> None:
        self._pid, self._found = pid, set[tuple[int, Hashable]]()

    def add(self, value: Hashable) -> None:
        self._found.add((self._pid(), value))

    def discard(self, value: Hashable) -> None:
        self._found.discard((self._pid(), value))

    def __contains__(self, value: object) -> bool:
        return (self._pid(), value) in self._found

    def __iter__(self) -> Iterator[Any]:
        return iter([])

    def __len__(self) -> int:
        return len(self._found)


@contextmanager
def in_one_process(machine: Callable[[], Machine]) -> Iterator[None]:
    """The simulated machine answers the product's questions about processes, and keeps per-process state separately
    for each."""

    def pid() -> int:
        current = machine().current
        return current.pid if current else 0

    with Patching() as patch:
        patch.setattr(leases, "_stat", lambda pid: machine().stat(pid))
        patch.setattr(leases, "_namespace", lambda: NAMESPACE)
        patch.setattr(one_at_a_time, "_under_way", Apart(pid))
        patch.setattr(begin, "BEGUN", Apart(pid))
        open_session._open_here.clear()
        yield
