"""The time until another process sees a write, and the CPU cost of waiting for it."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from standfast_prove.bench.measure import Plan, Table, at_most, interleaved, percentile

if TYPE_CHECKING:
    from standfast import Standfast
    from standfast.db.contract import Watch

SENT = 40
POLL_S = 0.01
PATIENCE_S = 60.0


def wakeup(plan: Plan) -> list[Table]:
    """One process writes, and another waits for it: with our notification, and by polling every 10 ms."""
    sent = SENT if plan.window_s >= 0.2 else 5
    with Pair(plan, bell=True) as bell, Pair(plan, bell=False) as poll:
        contestants = {"bell": lambda: bell.round(sent), "poll": lambda: poll.round(sent)}
        interleaved(1, contestants)
        seen = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
        idle = interleaved(
            plan.rounds, {"bell": lambda: bell.idle(plan.window_s), "poll": lambda: poll.idle(plan.window_s)}
        )
    table = Table(
        "SQLite, from one process to another",
        "The time from the call of the write (with its sync) until the other process has read the event.",
    )
    labels = {"bell": "send → received", "poll": f"looking every {POLL_S * 1000:.0f} ms"}
    for key, label in labels.items():
        reach = at_most(0.02) if key == "bell" else None
        table.add(f"{label}, p50", [percentile(sorted(waits), 0.5) for waits in seen[key]], "s", reach)
        table.add(f"{label}, slowest", [max(waits) for waits in seen[key]], "s")
    for key, label in labels.items():
        table.add(f"{label}: CPU while nothing comes", [share * 100 for share in idle[key]], "%")
    return [table]


class Pair:
    """This process sends, a child receives."""

    def __init__(self, plan: Plan, *, bell: bool) -> None:
        import standfast
        from standfast_prove.bench.rows import Rows, create

        place = plan.fresh("bell" if bell else "poll")
        self._store = standfast.open(place / "standfast.db", data_dir=place)
        create(self._store)
        self._rows = Rows(self._store._store)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=receive, args=(theirs, str(place), bell), daemon=True)
        self._child.start()
        theirs.close()
        self._answer()

    def round(self, sent: int) -> list[float]:
        """Send at random times. Returns the time until the receiver saw each write."""
        self._pipe.send(sent)
        self._answer()
        for _ in range(sent):
            time.sleep(random.uniform(0.005, 0.03))
            self._rows.add(f"sent:{time.monotonic_ns()}", "hello")
        waits: list[float] = self._answer()
        return waits

    def idle(self, window_s: float) -> float:
        """The share of one core that the receiver uses while nothing is sent."""
        self._pipe.send(window_s)
        share: float = self._answer()
        return share

    def _answer(self) -> Any:
        if not self._pipe.poll(PATIENCE_S):
            raise RuntimeError("the receiving process gave no answer")
        return self._pipe.recv()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pipe.send(None)
        self._child.join(10)
        if self._child.is_alive():
            self._child.kill()
        self._store.close()


def receive(pipe: Connection, place: str, bell: bool) -> None:
    import standfast

    with standfast.open(f"{place}/standfast.db", data_dir=place) as store, store.engine.watch() as watch:
        pipe.send(None)
        while (order := pipe.recv()) is not None:
            cursor = store.journal.now()
            if isinstance(order, int):
                pipe.send(None)
                pipe.send(_received(store, watch if bell else None, cursor, order))
            else:
                pipe.send(_idle(store, watch if bell else None, cursor, order))


def _received(store: Standfast, watch: Watch | None, cursor: str, wanted: int) -> list[float]:
    waits: list[float] = []
    while len(waits) < wanted:
        page = store.journal.tail(cursor)
        now_ns, cursor = time.monotonic_ns(), page.cursor
        waits += [(now_ns - int(event.subject.removeprefix("sent:"))) / 1e9 for event in page.events]
        if not page.events:
            _pause(watch, 1.0)
    return waits


def _idle(store: Standfast, watch: Watch | None, cursor: str, window_s: float) -> float:
    start, cpu_s = time.monotonic(), time.process_time()
    while (left := start + window_s - time.monotonic()) > 0:
        store.journal.tail(cursor)
        _pause(watch, left)
    return (time.process_time() - cpu_s) / (time.monotonic() - start)


def _pause(watch: Watch | None, timeout_s: float) -> None:
    if watch is None:
        time.sleep(POLL_S)
    else:
        watch.wait(timeout_s)
