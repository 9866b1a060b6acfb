"""A simulation on a virtual clock in which loops fire for years, and a model that predicts the end of each slot.

Daemons are started, killed between any two of their steps, stopped for longer than their leases, and moved to another
host. Two of them run at the same time. The machine reboots, and the wall clock is set forward and back. People pause,
resume, run, cancel, add and remove loops. Daemons of this host are real processes that are killed. A daemon of the
other host counts as dead only when its lease has ended. After every step the store and the model must agree on the
work that is due, and at the end on every slot of every loop: each has exactly one row.

The model shares no code with the product. Its cron slots come directly from cronsim, one by one.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim

import standfast
from standfast import config, handle, when
from standfast.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US, ManualClock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast.errors import IllegalTransition, LeaseLost
from standfast.record.loops import Loop, Run, schedule

START_US = 1_767_225_600_000_000
ON_TIME_US = 60 * SECOND_US
LEASE_US = 60 * SECOND_US
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Kind(NamedTuple):
    """A loop: its schedule and its rules for lateness, overlap and failure."""

    name: str
    every: str | None = None
    cron: str | None = None
    at_us: int | None = None
    zone: str = "UTC"
    catch_up: str = "latest"
    catch_up_max: int = 5
    overlap: str = "skip"
    retries_max: int = 0
    failures_max: int = 0
    longest_us: int = 10 * MINUTE_US
    """A run takes up to this time."""


KINDS = (
    Kind("half past two", cron="30 2 * * *", zone="Europe/Berlin", retries_max=2),
    Kind("three a day", cron="0 */8 * * *", zone="America/New_York", catch_up="none", longest_us=30 * HOUR_US),
    Kind("three a night", cron="15 1,2,3 * * *", zone="Australia/Lord_Howe", catch_up="all", overlap="queue"),
    Kind("weekly", cron="0 9 * * MON", zone="Africa/Casablanca", catch_up="all", failures_max=1),
    Kind("nineteen hours", every="19h", catch_up="all", overlap="queue", retries_max=1, longest_us=25 * HOUR_US),
    Kind("twenty-three hours", every="23h", catch_up="none", overlap="queue", failures_max=2),
    Kind("all and skip", every="29h", catch_up="all", catch_up_max=3, failures_max=1),
    Kind("the last of the month", cron="0 0 L * *", zone="Asia/Tokyo"),
)


# -- the model -------------------------------------------------------------------------------------------


def slots_of(kind: Kind, created_us: int) -> Iterator[int]:
    """Every slot after the creation of the loop, in order, computed without code of the product."""
    if kind.at_us is not None:
        yield kind.at_us
        return
    if kind.every is not None:
        hours, minutes = (int(kind.every[:-1]), 0) if kind.every.endswith("h") else (0, int(kind.every[:-1]))
        step_us = (hours * 60 + minutes) * MINUTE_US
        yield from count(created_us // SECOND_US * SECOND_US + step_us, step_us)
    assert kind.cron is not None
    start = (EPOCH + timedelta(microseconds=created_us)).astimezone(ZoneInfo(kind.zone))
    last = created_us
    for moment in CronSim(kind.cron, start):
        us = (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
        if us > last:
            last = us
            yield us


class Going:
    """A run that has not ended."""

    def __init__(self, slot_us: int, ready_us: int) -> None:
        self.slot_us, self.ready_us, self.attempt = slot_us, ready_us, 0
        self.worker: Worker | None = None
        self.child = False
        """The child process is recognised by its identity, not by its pid."""


class Model:
    """One loop, as the store should have it."""

    def __init__(self, kind: Kind, created_us: int) -> None:
        self.kind = kind
        self._slots = slots_of(kind, created_us)
        self.next_us: int | None = next(self._slots, None)
        self.paused = self.removed = False
        self.failures = 0
        self.open: list[Going] = []
        self.rows: dict[int, tuple[str, int]] = {}

    def take(self, now_us: int) -> list[int]:
        due = []
        while self.next_us is not None and self.next_us <= now_us:
            due.append(self.next_us)
            self.next_us = next(self._slots, None)
        return due

    def fire(self, now_us: int) -> None:
        due = self.take(now_us)
        if not due or self.paused:
            return self.end(due, "skipped")
        wanted = self.kind.catch_up_max if self.kind.catch_up == "all" else 1
        if self.kind.catch_up == "none" and now_us - due[-1] > ON_TIME_US:
            wanted = 0
        chosen = due[max(0, len(due) - wanted) :] if wanted else []
        self.end(due[: len(due) - len(chosen)], "missed")
        if self.kind.overlap == "skip" and self.open:
            return self.end(chosen, "skipped")
        self.open += [Going(slot_us, now_us) for slot_us in chosen]
        return None

    def end(self, slots: list[int], state: str, attempt: int = 0) -> None:
        for slot_us in slots:
            assert slot_us not in self.rows, "the model itself doubled a slot"
            self.rows[slot_us] = (state, attempt)

    def over(self, going: Going, state: str, now_us: int, *, cancelled: bool = False) -> None:
        """An attempt ended."""
        going.worker = None
        if state in ("failed", "timed_out", "abandoned") and going.attempt <= self.kind.retries_max and not cancelled:
            going.ready_us = now_us + 30 * SECOND_US * 2 ** (going.attempt - 1)
            return
        self.open.remove(going)
        self.end([going.slot_us], state, going.attempt)
        if state == "done":
            self.failures = 0
        if state in ("failed", "timed_out"):
            self.failures += 1
            if 0 < self.kind.failures_max <= self.failures and not self.paused and self.next_us is not None:
                self.pause(now_us)

    def pause(self, now_us: int) -> None:
        self.end(self.take(now_us), "missed")
        if self.next_us is None:
            return
        self.paused = True
        self.cancel_waiting()

    def cancel_waiting(self) -> None:
        for going in [one for one in self.open if one.worker is None]:
            self.open.remove(going)
            self.end([going.slot_us], "cancelled", going.attempt)

    def resume(self, now_us: int) -> None:
        if self.paused:
            self.end(self.take(now_us), "skipped")
        self.paused, self.failures = False, 0

    def head(self) -> Going | None:
        """The only run of the loop that may start: the one of the earliest slot, unless one is running."""
        if any(one.worker is not None for one in self.open):
            return None
        return min(self.open, key=lambda one: one.slot_us, default=None)


def add(sf: standfast.Standfast, kind: Kind) -> Loop:
    return sf.loops.add(
        kind.name,
        ["true"],
        every=kind.every,
        cron=kind.cron,
        at=None if kind.at_us is None else when.utc(kind.at_us),
        zone=kind.zone,
        catch_up=kind.catch_up,
        catch_up_max=kind.catch_up_max,
        overlap=kind.overlap,
        retries_max=kind.retries_max,
        failures_max=kind.failures_max,
        cwd="/",
    )


# -- the world -------------------------------------------------------------------------------------------


class Worker:
    """One daemon. On this host it is a real process. On the other host it is a name, and counts as dead when its lease
    has ended.
    """

    _pids = count(100_000)

    def __init__(self, clock: ManualClock, *, here: bool) -> None:
        self.here = here
        self.host = "here" if here else "there"
        self.body = subprocess.Popen(["sleep", "1000000"]) if here else None
        pid = self.body.pid if self.body else next(self._pids)
        found = leases.process(pid, clock) if here else leases.Process("there", "manual-b", "other", pid, "1")
        self.holder = str(found)
        self.stopped = False
        self.alive = True
        self.lease_mono_us = 0
        self.runs: dict[str, Performance] = {}

    @property
    def holds(self) -> bool:
        """Whether it has a lease that is still live in the model."""
        return any(one.going.worker is self for one in self.runs.values())

    def kill(self) -> None:
        self.alive = False
        if self.body is not None:
            self.body.kill()
            self.body.wait()


class Performance(NamedTuple):
    """A worker with its run: the time and the result of the run's end."""

    model: Model
    going: Going
    attempt: int
    ends_mono_us: int
    duration_us: int
    state: str


class World:
    def __init__(
        self,
        place: Path,
        seed: int,
        *,
        days: float,
        faults_per_day: float = 1.5,
        compare_days: float = 1e6,
        start_days: float = 0,
        url: str | None = None,
    ) -> None:
        self.clock = ManualClock(START_US + round(start_days * DAY_US) + seed % 50 * 3_601 * SECOND_US)
        self.seed, self.draw = seed, random.Random(seed)
        self.end_mono_us = round(days * DAY_US)
        self.compare_us = round(compare_days * DAY_US)
        self.fault_gap_us = DAY_US / faults_per_day
        where = url or str(place / "standfast.db")
        self.sf = handle.connect(config.load(where, data_dir=place, scope="soak"), clock=self.clock)
        self.one_clock = url is not None
        """A server's clock: no client sets it, and no reboot of a client ends a lease."""
        self.me = self.sf._store.caller
        self.workers: list[Worker] = []
        self.gone: list[Worker] = []
        self.models: dict[str, Model] = {}
        self.birth_mono_us: int | None = 0
        self.wake_mono_us: dict[Worker, int] = {}
        self.back_us = self.before_boot_us = 0
        self.stop_at_claim = False
        self.counts: dict[str, int] = {}
        self.names = count(1)
        self._ids: dict[int, str] = {}
        self._names: dict[str, str] = {}

    def mono_us(self) -> int:
        """The elapsed time of the simulation, over all boots."""
        return self.before_boot_us + self.clock.mono_us()

    # -- playing -----------------------------------------------------------------------------------------

    def play(self) -> None:
        try:
            for kind in KINDS:
                self.add(kind)
            fault_mono_us, compare_mono_us = self._soon(), self.compare_us
            while self.mono_us() < self.end_mono_us:
                if self.mono_us() >= compare_mono_us:
                    compare_mono_us += self.compare_us
                    self.compare()
                self._pass_time(fault_mono_us)
                self._wake()
                if self.mono_us() >= fault_mono_us:
                    self._fault()
                    fault_mono_us = self._soon()
                for worker in list(self.workers):
                    self._tick(worker)
            self.compare()
        finally:
            for worker in (*self.workers, *self.gone):
                worker.kill()
            self.sf.close()

    def _soon(self) -> int:
        return self.mono_us() + round(self.draw.expovariate(1 / self.fault_gap_us))

    def _pass_time(self, fault_mono_us: int) -> None:
        """Advance the clock to the next event."""
        mono_us, now_us = self.mono_us(), self.clock.now_us()
        waits = [fault_mono_us - mono_us, *(at - mono_us for at in self.wake_mono_us.values())]
        if self.birth_mono_us is not None:
            waits.append(self.birth_mono_us - mono_us)
        awake = [worker for worker in self.workers if not worker.stopped]
        waits += [one.ends_mono_us - mono_us for worker in awake for one in worker.runs.values()]
        if awake:
            due_us = self.sf.loops.next_due_us()
            assert due_us == self._next_due_us(), "the store and the model differ on what comes next"
            waits += [due_us - now_us] if due_us is not None else []
            # Runs of daemons on another host are ready again when their leases end.
            silent = [one for one in (*self.gone, *self.workers) if one not in awake and one.holds]
            waits += [one.lease_mono_us - mono_us for one in silent if one.lease_mono_us > mono_us]
        lateness_us = (
            self.draw.choice((0, 0, 700_000, 12 * SECOND_US, 65 * SECOND_US)) if self.draw.random() < 0.02 else 0
        )
        self.clock.advance((max(0, min(waits)) + lateness_us) / SECOND_US)
        for worker in awake:
            if worker.runs:
                self._as(worker)
                self.sf._store.write(leases.renew_all, durable=False)
                worker.lease_mono_us = self.mono_us() + LEASE_US
        self._as(None)

    def _next_due_us(self) -> int | None:
        found = [model.next_us for model in self.models.values() if model.next_us is not None]
        found += [head.ready_us for model in self.models.values() if (head := model.head()) is not None]
        return min(found, default=None)

    def _as(self, worker: Worker | None) -> None:
        holder = worker.holder if worker else self.me.holder
        self.sf._store.caller = Caller(actor="soak", holder=holder, scope="soak", clock=self.clock)

    def _tick(self, worker: Worker) -> None:
        """The steps of a daemon when it wakes. It may be killed between any two steps."""
        if worker not in self.workers or worker.stopped:
            return None
        self._as(worker)
        for step in (self._finish, self._abandon, self._fire, self._claim):
            if self.draw.random() < 0.0005:
                return self._die(worker)
            step(worker)
        self._as(None)
        return None

    def _finish(self, worker: Worker) -> None:
        for run_id, one in list(worker.runs.items()):
            if one.ends_mono_us > self.mono_us():
                continue
            del worker.runs[run_id]
            codes = {"done": 0, "failed": 3, "timed_out": None}
            counts = one.going.worker is worker and one.going.attempt == one.attempt
            try:
                self.sf.runs.finish(
                    run_id,
                    one.attempt,
                    exit_code=codes[one.state],
                    timed_out=one.state == "timed_out",
                    duration=one.duration_us / 1_000_000,
                )
            except LeaseLost:
                assert not counts, "a worker was refused what was its own"
                self._count("late workers refused")
                continue
            assert counts, "a worker that had lost its run was believed"
            one.model.over(one.going, one.state, self.clock.now_us())
            self._count(f"runs {one.state}")

    def _abandon(self, worker: Worker) -> None:
        alive = not any(
            one.worker and self._is_dead(one, one.worker) for model in self.models.values() for one in model.open
        )
        if alive and self.draw.random() < 0.9:
            return  # called sometimes, to check that no live worker loses its run
        acked = sorted((run.loop, run.slot_us) for run in self.sf.runs.abandon_dead(limit=1000))
        expected = []
        for name, model in self.models.items():
            for going in [one for one in model.open if one.worker is not None and self._is_dead(one, one.worker)]:
                expected.append((name.partition("#")[0], going.slot_us))
                model.over(going, "abandoned", self.clock.now_us())
                self._count("runs taken from the dead")
        assert acked == sorted(expected), f"{acked} were abandoned, not {expected}"

    def _is_dead(self, going: Going, worker: Worker) -> bool:
        if going.child and worker.alive:
            # Its worker is late, but the child process runs: only a process that ends the child may take the run.
            return False
        return (worker.here and not worker.alive) or worker.lease_mono_us <= self.mono_us()

    def _fire(self, worker: Worker) -> None:
        while (due_us := self._first_slot()) is not None and due_us <= self.clock.now_us():
            self.sf.loops.fire_due(limit=self.draw.choice((1, 3, 100)))
            # The model fires the same slots as the store. A limit only spreads them over several calls.
            for model in self.models.values():
                if model.next_us is not None and model.next_us <= self.clock.now_us():
                    row = self.sf.loops.get(self._id(model))
                    if row.next_slot_us is None or row.next_slot_us > self.clock.now_us():
                        model.fire(self.clock.now_us())

    def _first_slot(self) -> int | None:
        return min((model.next_us for model in self.models.values() if model.next_us is not None), default=None)

    def _claim(self, worker: Worker) -> None:
        if not self._ready() and self.draw.random() < 0.9:
            return None
        while (run := self.sf.runs.claim(host=worker.host)) is not None:
            model = self.models[self._names[run.loop_id]]
            going = model.head()
            assert going is not None
            assert going.ready_us <= self.clock.now_us()
            assert (run.slot_us, run.attempt) == (going.slot_us, going.attempt + 1), "not the one whose turn it was"
            going.attempt, going.worker = run.attempt, worker
            going.child = worker.here and self.draw.random() < 0.5
            worker.lease_mono_us = max(worker.lease_mono_us, self.mono_us() + LEASE_US)
            worker.runs[run.id] = self._performance(model, going, run)
            if going.child and worker.body is not None:
                # Here a command dies with its worker. The daemon's campaigns test commands that survive.
                self.sf.runs.started(run.id, run.attempt, pid=worker.body.pid, process=worker.holder)
            if self.draw.random() < 0.001:
                return self._die(worker)
            if self.stop_at_claim:
                return self._sleep(worker)
            if not self._ready() and self.draw.random() < 0.9:
                return None
        assert not self._ready(), "a run was ready and no worker got it"
        return None

    def _ready(self) -> bool:
        heads = (model.head() for model in self.models.values() if model.open)
        return any(head.ready_us <= self.clock.now_us() for head in heads if head is not None)

    def _performance(self, model: Model, going: Going, run: Run) -> Performance:
        fate = random.Random(f"{self.seed}/{run.loop}/{going.slot_us}/{going.attempt}")
        duration_us = round(model.kind.longest_us * fate.random() ** 6)
        state = fate.choices(("done", "failed", "timed_out"), (88, 9, 3))[0]
        return Performance(model, going, going.attempt, self.mono_us() + duration_us, duration_us, state)

    # -- what goes wrong, and what people do ---------------------------------------------------------------

    def _wake(self) -> None:
        mono_us = self.mono_us()
        if self.birth_mono_us is not None and self.birth_mono_us <= mono_us:
            self.birth_mono_us = None
            self.workers.append(Worker(self.clock, here=self.draw.random() < 0.6))
            self._count("daemons")
        for worker, at_us in list(self.wake_mono_us.items()):
            if at_us <= mono_us:
                del self.wake_mono_us[worker]
                worker.stopped = False

    def _die(self, worker: Worker) -> None:
        """Kill a worker. The next one starts soon or after a weekend, here or on another host."""
        worker.kill()
        self.workers.remove(worker)
        self.wake_mono_us.pop(worker, None)
        self.gone = [one for one in self.gone if one.holds] + [worker]
        self._as(None)
        self._count("kills")
        if not self.workers and self.birth_mono_us is None:
            weights = (30, 30, 25, 12, 3)
            away_us = self.draw.choices((SECOND_US, 5 * MINUTE_US, 3 * HOUR_US, 2 * DAY_US, 9 * DAY_US), weights)[0]
            self.birth_mono_us = self.mono_us() + round(away_us * self.draw.random())

    def _fault(self) -> None:
        faults = (self._kill, self._stop, self._second, self._jump, self._reboot, self._person, self._flood, self._once)
        jumps, reboots = (0, 0) if self.one_clock else (15, 4)
        self.draw.choices(faults, (30, 10, 8, jumps, reboots, 40, 2, 8))[0]()

    def _kill(self) -> None:
        if self.workers:
            self._die(self.draw.choice(self.workers))

    def _stop(self) -> None:
        """Stop a worker, sometimes for longer than its leases, so that it reports late. Workers in the middle of a run
        are preferred.
        """
        if awake := [worker for worker in self.workers if not worker.stopped]:
            self.stop_at_claim = self.draw.random() < 0.7
            if not self.stop_at_claim:
                self._sleep(self.draw.choice(awake))

    def _sleep(self, worker: Worker) -> None:
        worker.stopped, self.stop_at_claim = True, False
        self.wake_mono_us[worker] = self.mono_us() + round(self.draw.random() * 20 * MINUTE_US)
        self._count("stops")

    def _second(self) -> None:
        if len(self.workers) == 1:
            self.workers.append(Worker(self.clock, here=self.draw.random() < 0.5))
            self._count("daemons")

    def _jump(self) -> None:
        """Set the wall clock wrong for a while. An error of days is corrected later."""
        if self.back_us:
            jump_us, self.back_us = -self.back_us, 0
        else:
            jump_us = round(self.draw.gauss(0, 1) * HOUR_US)
            if self.draw.random() < 0.15:
                jump_us = self.back_us = round(3 * DAY_US * self.draw.random())
        self.clock.jump(jump_us / SECOND_US)
        self._count("clock jumps")

    def _reboot(self) -> None:
        for worker in list(self.workers):
            self._die(worker)
        self.before_boot_us += self.clock.mono_us()
        self.clock.reboot()
        for worker in self.gone:
            worker.lease_mono_us = 0  # no lease outlives a boot
        self._count("reboots")

    def _person(self) -> None:
        model = self.draw.choice([one for one in self.models.values() if not one.removed])
        self._as(None)
        now_us = self.clock.now_us()
        deed = self.draw.choice(("pause", "resume", "resume", "resume", "ask", "cancel", "same"))
        self._count(f"people {deed}")
        if deed == "pause" and model.next_us is not None and not model.paused:
            self.sf.loops.pause(self._id(model), "a person said so")
            model.pause(now_us)
        elif deed == "resume":
            with suppress(IllegalTransition):
                # Only with a correct clock: `resume` also restores slots that were skipped while the clock was ahead.
                if model.next_us is not None and not self._ahead(model):
                    self.sf.loops.resume(self._id(model))
                    model.resume(now_us)
        elif deed == "ask":
            run = self.sf.runs.ask(self._id(model))
            model.open.append(Going(run.slot_us, now_us))
        elif deed == "cancel" and (waiting := [one for one in model.open if one.worker is None]):
            going = self.draw.choice(waiting)
            (run,) = (one for one in self.sf.runs.list(self._id(model), limit=1000) if one.slot_us == going.slot_us)
            self.sf.runs.cancel(run.id, "not wanted")
            model.over(going, "cancelled", now_us)
        elif deed == "same" and model.kind.at_us is None:
            assert self._add_to_store(model.kind).change == "same"

    def _ahead(self, model: Model) -> bool:
        loop = self.sf.loops.get(self._id(model))
        near_us = schedule.of(loop.kind, loop.schedule, loop.zone, loop.anchor_us).after(self.clock.now_us())
        return near_us is not None and model.next_us is not None and near_us < model.next_us

    def _flood(self) -> None:
        """Add a loop with many slots and a long outage: more than 1,000 missed slots in one gap."""
        if self.back_us:
            return
        self.add(Kind("flood", every="5m", catch_up=self.draw.choice(("latest", "all", "none")), longest_us=MINUTE_US))
        name = list(self.models)[-1]
        for worker in list(self.workers):
            self._die(worker)
        self.birth_mono_us = None
        self.clock.advance(86_400 * (4 + self.draw.random()))
        worker = Worker(self.clock, here=True)
        self.workers.append(worker)
        self._as(worker)
        self._abandon(worker)
        self._fire(worker)
        self._as(None)
        model = self.models[name]
        self.sf.loops.remove(self._id(model))
        model.end(model.take(self.clock.now_us()), "missed")
        model.next_us, model.removed = None, True
        model.cancel_waiting()
        self._count("floods")

    def _once(self) -> None:
        at_us = (self.clock.now_us() + round(self.draw.random() * 3 * DAY_US)) // SECOND_US * SECOND_US + SECOND_US
        self.add(Kind(f"once {next(self.names)}", at_us=at_us, catch_up=self.draw.choice(("latest", "none"))))

    # -- loops -------------------------------------------------------------------------------------------

    def add(self, kind: Kind) -> None:
        loop = self._add_to_store(kind)
        assert loop.change == "new"
        key = kind.name if kind.name not in self.models else f"{kind.name}#{next(self.names)}"
        self.models[key] = Model(kind, self.clock.now_us())
        self._ids[id(self.models[key])] = loop.id
        self._names[loop.id] = key

    def _id(self, model: Model) -> str:
        return self._ids[id(model)]

    def _add_to_store(self, kind: Kind) -> Loop:
        return add(self.sf, kind)

    # -- judging -----------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Every slot of every loop has exactly the row the model predicts."""
        found: dict[str, dict[int, tuple[str, int]]] = {name: {} for name in self.models}
        for what in ("slots", "rows", "slots in ranges"):
            self.counts[what] = 0
        rows = list(self.sf.rows("SELECT loop_id, slot_us, until_slot_us, slots, state, attempt FROM run ORDER BY seq"))
        for row in rows:
            model = self.models[self._names[str(row["loop_id"])]]
            there = found[self._names[str(row["loop_id"])]]
            covered = [row["slot_us"]]
            if row["until_slot_us"] is not None:
                covered = [slot for slot in model.rows if row["slot_us"] <= slot <= row["until_slot_us"]]
                assert len(covered) == row["slots"], "a range does not stand for as many slots as it says"
                self.counts["slots in ranges"] = self.counts.get("slots in ranges", 0) + len(covered)
            for slot_us in covered:
                assert slot_us not in there, f"{slot_us} was doubled"
                there[slot_us] = (row["state"], row["attempt"])
        for name, model in self.models.items():
            expected = dict(model.rows)
            for going in model.open:
                expected[going.slot_us] = ("running" if going.worker else "queued", going.attempt)
            differing = {
                slot: (expected.get(slot), found[name].get(slot))
                for slot in expected.keys() | found[name].keys()
                if expected.get(slot) != found[name].get(slot)
            }
            assert not differing, (
                f"{name}: {len(differing)} slots differ (expected, found): {dict(list(differing.items())[:5])}"
            )
            self._count("slots", len(expected))
        self._count("rows", len(rows))

    def _count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


def soak(place: Path, *, seed: int, days: float, **more: Any) -> dict[str, int]:
    """Play and check. Returns the counts of what was played."""
    world = World(place, seed, days=days, **more)
    world.play()
    return world.counts
