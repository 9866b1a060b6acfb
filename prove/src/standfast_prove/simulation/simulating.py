"""One simulation by its seed: a phase with faults, then one without, in which all work has to finish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from standfast import config, handle
from standfast.clock import Clock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast_prove.simulation.machine import Machine, in_one_process
from standfast_prove.simulation.strands import Strands
from standfast_prove.simulation.workloads import WORKLOADS, Payments, Workload

TURNS = 70
"""Turns with faults."""
TURNS_MAX = 3_000
"""Turns without faults, in which all work has to finish."""
LOOK_EVERY = 10


class Played(NamedTuple):
    """The result of one simulation."""

    seed: int
    trace: str
    steps: int
    counts: dict[str, int]
    bad: list[str]


class Simulator:
    """Plays one simulation after another on one store, each in its own scope."""

    def __init__(self, url: str, data: Path) -> None:
        self._url, self._data = url, data
        self._machine: Machine | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._settings = config.load(self._url, data_dir=self._data)
            self._sf = stack.enter_context(handle.connect(self._settings))
            self._strands = Strands()
            stack.callback(self._strands.close)
            stack.enter_context(in_one_process(self._here))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(None, None, None)

    def _here(self) -> Machine:
        assert self._machine is not None
        return self._machine

    def play(self, seed: int) -> Played:
        sqlite = self._sf.engine.name == "sqlite"
        scope = f"simulation {seed}"
        settings = self._settings._replace(scope=scope)
        machine = self._machine = Machine(seed, self._sf.engine, settings, self._strands, jumps=sqlite)
        with self._looking(scope, machine.clock):
            chosen: list[type[Workload]] = machine.draw.sample(WORKLOADS, machine.draw.choice((1, 2, 2, 3)))
            if Payments not in chosen and machine.draw.random() < 0.5:
                chosen[0] = Payments
            workloads = [kind(machine, self._sf) for kind in chosen]
            try:
                self._go_on(machine, workloads)
            finally:
                machine.end()
            for one in workloads:
                machine.bad += one.wrong()
                machine.count(type(one).__name__.lower())
        self._tidy(scope, machine.clock)
        return Played(seed, machine.trace, machine.steps, machine.counts, machine.bad)

    def _go_on(self, machine: Machine, workloads: list[Workload]) -> None:
        machine.play(TURNS, lambda: bool(machine.bad))
        machine.heal()
        for one in workloads:
            one.heal()
        turns = count()

        def over() -> bool:
            looks = next(turns) % LOOK_EVERY == 0
            return bool(machine.bad) or (looks and all(one.settled() for one in workloads))

        if not machine.play(TURNS_MAX, over):
            machine.bad.append(f"not settled after {TURNS_MAX} turns in which nothing went wrong")

    @contextmanager
    def _looking(self, scope: str, clock: Clock) -> Iterator[None]:
        """The judge sees the same clock, from its own process."""
        before = self._sf._store.caller
        holder = str(leases.Process("host", clock.boot_id()[:8], "1", 1, "1"))
        self._sf._store.caller = Caller(actor="judge", holder=holder, scope=scope, clock=clock)
        try:
            yield
        finally:
            self._sf._store.caller = before

    def _tidy(self, scope: str, clock: Clock) -> None:
        """Firing works on every scope, so no loop may be left for the next simulation."""
        with self._looking(scope, clock):
            for loop in self._sf.loops.list():
                self._sf.loops.remove(loop.id)
