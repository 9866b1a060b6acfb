"""Loops: how late a slot is, with a thousand loops in one store, on the real clock.

One process fires as the daemon does: it sleeps until a loop is due, fires, and sleeps again. Another thread claims each
queued run and ends it immediately, as a worker with an instant command would. The lateness is the time from a slot
until its row is durable, or until its run is claimed. The table also has the lateness of a bare sleep until the same
slots, because no scheduler is earlier than its timer.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from standfast.clock import SECOND_US, SystemClock
from standfast_prove.bench.measure import Plan, Table, interleaved

if TYPE_CHECKING:
    from standfast import Standfast

LOOPS = 1_000
EVERY_S = 10
ROUNDS_MAX = 5


class Shifted(SystemClock):
    """The real clock, set back some seconds while loops are created, so that their slots are spread."""

    shift_us = 0

    def now_us(self) -> int:
        return super().now_us() - self.shift_us


class Late(NamedTuple):
    """Sorted delays in seconds."""

    fired: list[float]
    claimed: list[float]


def loops(plan: Plan) -> list[Table]:
    """A thousand loops, all due in the same second, then spread over ten seconds."""
    count = LOOPS if plan.rows > 10_000 else 20
    window_s = EVERY_S + 0.5 if count == LOOPS else 1.2  # every loop is due once
    with _store(plan, count, spread=False) as at_once, _store(plan, count, spread=True) as spread:
        samples = interleaved(
            min(plan.rounds, ROUNDS_MAX),
            {
                "due at once": lambda: _lateness(at_once, window_s),
                "spread": lambda: _lateness(spread, window_s),
                "bare sleep": lambda: Late(_bare(1.2), []),
            },
            patience_s=plan.patience_s,
        )
    title = f"How late a slot is, {count:,} loops every {EVERY_S if count == LOOPS else 1} s"
    table = Table(
        title, "Fired: its row is durable. Claimed: a worker has it. A lone worker ends each run before the next."
    )
    for name, label in (("spread", "spread"), ("due at once", "all due in one second")):
        table.add(f"{label}: fired, p50", [_part(late.fired, 0.5) for late in samples[name]], "s")
        table.add(f"{label}: fired, p99", [_part(late.fired, 0.99) for late in samples[name]], "s")
        table.add(f"{label}: claimed, p99", [_part(late.claimed, 0.99) for late in samples[name]], "s")
    table.add("a bare sleep, p99", [_part(late.fired, 0.99) for late in samples["bare sleep"]], "s")
    return [table]


def _store(plan: Plan, count: int, *, spread: bool) -> Standfast:
    from standfast import config, handle

    clock = Shifted()
    place = plan.fresh("loops")
    sf = handle.connect(config.load(str(place / "standfast.db"), data_dir=place, scope="bench"), clock=clock)
    every = EVERY_S if count == LOOPS else 1
    for second in range(every):
        clock.shift_us = second * SECOND_US if spread else 0
        with sf.transaction() as tx:  # `now` stays the same until the transaction ends
            for n in range(second, count, every):
                tx.loops.add(f"loop {n}", ["true"], every=f"{every}s", catch_up="none", overlap="queue", cwd="/")
    clock.shift_us = 0
    return sf


def _lateness(sf: Standfast, window_s: float) -> Late:
    late, over = Late([], []), threading.Event()
    for _ in range(3):  # skip the slots of the time in which other things were measured
        sf.loops.fire_due(limit=1000)
        _drain(sf, None)
    sf.loops.fire_due(limit=1000)
    until = time.monotonic() + window_s
    worker = threading.Thread(target=_work, args=(sf, late, over))
    worker.start()
    try:
        while time.monotonic() < until:
            due_us = sf.loops.next_due_us(runs=False)
            assert due_us is not None
            wait_s = min((due_us - time.time_ns() // 1000) / SECOND_US, until - time.monotonic())
            if wait_s > 0:
                time.sleep(wait_s)
                continue
            fired = sf.loops.fire_due(limit=1000)
            now_us = time.time_ns() // 1000
            late.fired.extend((now_us - run.slot_us) / SECOND_US for run in fired)
    finally:
        over.set()
        worker.join()
    return Late(sorted(late.fired), sorted(late.claimed))


def _work(sf: Standfast, late: Late, over: threading.Event) -> None:
    while not over.is_set():
        if not _drain(sf, late):
            over.wait(0.002)


def _drain(sf: Standfast, late: Late | None) -> int:
    count = 0
    while (run := sf.runs.claim(host=os.uname().nodename)) is not None:
        if late is not None:
            late.claimed.append((time.time_ns() // 1000 - run.slot_us) / SECOND_US)
        sf.runs.finish(run.id, run.attempt, exit_code=0, duration=0)
        count += 1
    return count


def _bare(window_s: float) -> list[float]:
    """Sleeps until each tenth of a second and measures how late each sleep ended."""
    until, late = time.time() + window_s, list[float]()
    moment = time.time()
    while moment < until:
        moment += 0.1
        time.sleep(max(0.0, moment - time.time()))
        late.append(time.time() - moment)
    return sorted(late)


def _part(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0
