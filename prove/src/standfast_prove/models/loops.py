"""Loops against the model of the soak: after any calls in any order, both agree on every slot."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import standfast
from standfast.clock import ManualClock
from standfast.db.contract import Caller
from standfast.errors import LeaseLost
from standfast.record.loops import Run
from standfast_prove.loops_soak import LEASE_US, Going, Kind, Model, Worker, add
from standfast_prove.models.machine import Machine
from standfast_prove.raising import raising

STEPS = 30

OUTCOMES = ("done", "failed", "timed_out")


class Program(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.sf: standfast.Standfast | None = None

    @initialize(
        catch_up=st.sampled_from(("latest", "all", "none")),
        overlap=st.sampled_from(("skip", "queue")),
        retries_max=st.integers(0, 2),
        failures_max=st.integers(0, 2),
        every=st.sampled_from(("15m", None)),
    )
    def fresh(self, catch_up: str, overlap: str, retries_max: int, failures_max: int, every: str | None) -> None:
        self.sf = self.opened(clock=self.clock)
        # At the start of summer time in Berlin, so that an hour is skipped.
        self.clock.jump((1_774_742_400_000_000 - self.clock.now_us()) / 1_000_000)
        cron = None if every else "*/30 0-3 * * *"
        kind = Kind(
            "l",
            every=every,
            cron=cron,
            zone="Europe/Berlin",
            catch_up=catch_up,
            catch_up_max=2,
            overlap=overlap,
            retries_max=retries_max,
            failures_max=failures_max,
        )
        loop = add(self.sf, kind)
        self.id, self.model = loop.id, Model(kind, self.clock.now_us())
        self.workers = [Worker(self.clock, here=False) for _ in range(2)]
        self.claims: list[tuple[Run, Going, Worker]] = []

    def teardown(self) -> None:
        if self.sf is not None:
            # Firing and taking over apply to every scope.
            for run in self.sf.runs.list(self.id, state="running"):
                self.sf.runs.finish(run.id, run.attempt, exit_code=0, duration="1us")
            self.sf.loops.remove(self.id)
            self.sf.close()

    def as_(self, worker: int) -> standfast.Standfast:
        assert self.sf is not None
        old = self.sf._store.caller
        holder = self.workers[worker].holder
        self.sf._store.caller = Caller(actor="machine", holder=holder, scope=old.scope, clock=self.clock)
        return self.sf

    def lease_clock_us(self) -> int:
        """Leases are judged by time awake on one machine, and by the server's clock on a server."""
        return self.clock.now_us() if self.url.startswith("postgres") else self.clock.mono_us()

    @rule(minutes=st.sampled_from((0, 1, 7, 15, 40, 200)))
    def time_passes(self, minutes: int) -> None:
        self.clock.advance(minutes * 60)

    @rule(minutes=st.integers(-60, 60))
    def the_clock_is_set(self, minutes: int) -> None:
        self.clock.jump(minutes * 60)

    @rule(worker=st.integers(0, 1))
    def fires(self, worker: int) -> None:
        self.as_(worker).loops.fire_due()
        self.model.fire(self.clock.now_us())

    @rule(worker=st.integers(0, 1))
    def claims_one(self, worker: int) -> None:
        head, run = self.model.head(), self.as_(worker).runs.claim(host="h")
        if head is None or head.ready_us > self.clock.now_us():
            assert run is None
            return
        assert run is not None
        assert (run.slot_us, run.attempt) == (head.slot_us, head.attempt + 1)
        head.attempt, head.worker = run.attempt, self.workers[worker]
        self.workers[worker].lease_mono_us = self.lease_clock_us() + LEASE_US
        self.claims.append((run, head, self.workers[worker]))

    @rule(which=st.integers(0, 3), state=st.sampled_from(OUTCOMES))
    def finishes(self, which: int, state: str) -> None:
        if which >= len(self.claims):
            return
        assert self.sf is not None
        run, going, worker = self.claims.pop(-1 - which)
        said = {"exit_code": {"done": 0, "failed": 1}.get(state), "timed_out": state == "timed_out"}
        if going.worker is not worker or going.attempt != run.attempt:
            with raising(LeaseLost):
                self.sf.runs.finish(run.id, run.attempt, duration="1us", **said)  # type: ignore[arg-type]
            return
        self.sf.runs.finish(run.id, run.attempt, duration="1us", **said)  # type: ignore[arg-type]
        self.model.over(going, state, self.clock.now_us())

    @rule()
    def the_silent_are_given_up(self) -> None:
        assert self.sf is not None
        acked = [run.slot_us for run in self.sf.runs.abandon_dead()]
        open_ = sorted(self.model.open, key=lambda one: one.slot_us)
        silent = [one for one in open_ if one.worker and one.worker.lease_mono_us <= self.lease_clock_us()]
        assert acked == [one.slot_us for one in silent]
        for going in silent:
            self.model.over(going, "abandoned", self.clock.now_us())

    @rule()
    def is_asked_for(self) -> None:
        assert self.sf is not None
        self.model.open.append(Going(self.sf.runs.ask(self.id).slot_us, self.clock.now_us()))

    @rule()
    def is_paused(self) -> None:
        assert self.sf is not None
        self.sf.loops.pause(self.id, "why not")
        if not self.model.paused:
            self.model.pause(self.clock.now_us())

    @rule()
    def is_resumed(self) -> None:
        assert self.sf is not None
        near_us, next_us = self.next_by_schedule(), self.sf.loops.get(self.id).next_slot_us
        if near_us is not None and next_us is not None and near_us < next_us:
            return  # a clock that was ahead: `resume` makes earlier slots due again, which has its own test
        self.sf.loops.resume(self.id)
        self.model.resume(self.clock.now_us())

    def next_by_schedule(self) -> int | None:
        from standfast.record.loops import schedule

        assert self.sf is not None
        loop = self.sf.loops.get(self.id)
        return schedule.of(loop.kind, loop.schedule, loop.zone, loop.anchor_us).after(self.clock.now_us())

    @invariant()
    def both_agree(self) -> None:
        if self.sf is None:
            return
        expected = dict(self.model.rows)
        for going in self.model.open:
            expected[going.slot_us] = ("running" if going.worker else "queued", going.attempt)
        found = {run.slot_us: (run.state, run.attempt) for run in self.sf.runs.list(self.id, limit=1000)}
        assert found == expected
        loop = self.sf.loops.get(self.id)
        assert (loop.next_slot_us, loop.state == "paused") == (self.model.next_us, self.model.paused)
