"""Leases against a model of ten lines: there is never more than one live holder, and fencing tokens only grow.

Actors and processes of one machine acquire, renew and release one lock. Meanwhile time passes, the machine
sleeps and reboots, the wall clock is set, and processes are killed.
"""

from __future__ import annotations

import subprocess

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

import standfast
from standfast.clock import ManualClock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast_prove.models.machine import Machine

STEPS = 30

ACTORS = ("ann", "bob")
PROCESSES = 2
TERMS_S = (1, 10, 60, 900)


class Model:
    """The expected lock: its holder, its end in time awake, and its fencing token."""

    def __init__(self) -> None:
        self.holder: str | None = None
        self.until_s = 0
        self.fence = 0

    def live(self, now_s: int, dead: set[str]) -> bool:
        return self.holder is not None and self.holder not in dead and now_s < self.until_s

    def take(self, holder: str, until_s: int) -> None:
        self.holder, self.until_s, self.fence = holder, until_s, self.fence + 1


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.name, self.clock = "lock", ManualClock()
        self.sf = self.opened(clock=self.clock)
        self.now_s = 0
        self.model = Model()
        self.dead: set[str] = set()
        self.sleepers = [_start() for _ in range(PROCESSES)]
        self.fences: dict[str, int] = {}

    def teardown(self) -> None:
        self.sf.close()
        for sleeper in self.sleepers:
            sleeper.kill()
            sleeper.wait()

    # -- who acts ---------------------------------------------------------------------------------------

    def holder(self, who: int) -> str:
        if who < len(ACTORS):
            return leases.actor_holder(ACTORS[who])
        return str(leases.process(self.sleepers[who - len(ACTORS)].pid, self.clock))

    def resource(self, holder: str) -> leases.Leases:
        """The locks as this holder sees them, at this machine's time."""
        store = self.sf._store
        store.caller = Caller(actor=holder[2:], holder=holder, scope=store.caller.scope, clock=self.clock)
        return self.sf.leases

    anybody = st.integers(0, len(ACTORS) + PROCESSES - 1)

    # -- what they do --------------------------------------------------------------------------------------

    @rule(who=anybody, term_s=st.sampled_from(TERMS_S))
    def acquire(self, who: int, term_s: int) -> None:
        holder = self.holder(who)
        live, own = self.model.live(self.now_s, self.dead), self.model.holder == holder
        try:
            lease = self.resource(holder).acquire(self.name, for_=term_s)
        except standfast.InProgress:
            assert live
            assert not (own and holder.startswith("a:"))
            return
        if live:
            assert own, "two live holders"
            assert holder.startswith("a:")
            self.model.until_s = self.now_s + term_s
        else:
            self.model.take(holder, self.now_s + term_s)
        self.fences[holder] = lease.fence
        assert (lease.holder, lease.fence) == (self.model.holder, self.model.fence)

    @rule(who=anybody, term_s=st.sampled_from(TERMS_S))
    def renew(self, who: int, term_s: int) -> None:
        holder = self.holder(who)
        current = self.model.holder == holder and self.fences.get(holder) == self.model.fence
        try:
            self.resource(holder).renew(self.name, self.fences.get(holder, 0), for_=term_s)
        except (standfast.LeaseLost, standfast.NotFound):
            assert not current
            return
        assert current, "renewed a lease of another holder"
        self.model.until_s = self.now_s + term_s

    @rule(who=anybody)
    def release(self, who: int) -> None:
        holder = self.holder(who)
        current = self.model.holder == holder and self.fences.get(holder) == self.model.fence
        try:
            self.resource(holder).release(self.name, self.fences.get(holder, 0))
        except (standfast.LeaseLost, standfast.NotFound):
            assert not current
            return
        assert current, "released a lease of another holder"
        self.model.holder = None

    # -- what happens to them ---------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 9, 30, 61, 1000)))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.now_s += seconds

    @precondition(lambda self: self.sf.engine.name == "sqlite")  # a server has one clock, the wall clock
    @rule(delta=st.sampled_from(("40d", "-40d", "1s", "-1s")))
    def the_clock_is_set(self, delta: str) -> None:
        self.clock.jump(delta)

    @precondition(lambda self: self.sf.engine.name == "sqlite")
    @rule()
    def the_lid_is_closed(self) -> None:
        self.clock.sleep("8h")

    @precondition(lambda self: self.sf.engine.name == "sqlite")
    @rule()
    def the_machine_starts_anew(self) -> None:
        self.clock.reboot()
        self.now_s = 0
        self.model.until_s = 0

    @rule(number=st.integers(0, PROCESSES - 1))
    def a_process_is_killed_and_another_started(self, number: int) -> None:
        sleeper = self.sleepers[number]
        self.dead.add(str(leases.process(sleeper.pid, self.clock)))
        sleeper.kill()
        sleeper.wait()
        self.sleepers[number] = _start()

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        try:
            lease = self.resource("a:reader").get(self.name)
        except standfast.NotFound:
            assert self.model.fence == 0
            return
        assert (lease.holder, lease.fence) == (self.model.holder, self.model.fence)
        assert (lease.standing == "live") == self.model.live(self.now_s, self.dead)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"])
