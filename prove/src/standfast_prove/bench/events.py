"""Events: an append to a long stream, a fold with and without a snapshot, and the delay of a follower."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from standfast.db.sql import Statement, statement
from standfast_prove.bench.measure import Plan, Table, at_most, interleaved, percentile, ratios

if TYPE_CHECKING:
    from standfast import Standfast
    from standfast.core.journal import Event
    from standfast.db.contract import Tx

SHORT, LONG = 1_000, 100_000
TAIL = 100
SLICES = 5
"""Five times as many rounds of a fifth of the time, so that other load hits both sides alike."""
SENT = 40
CHUNK = 20_000
PATIENCE_S = 60.0
COLUMNS = "time_us, occurred_us, scope, actor, holder, source, type, subject, stream, version, data"
FILL = Statement(
    "fill_events",
    f"INSERT INTO event ({COLUMNS})"
    " WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT n, n, :scope, 'worker', 'p:host:12345678:4026531836:4711:471147', 'said', 'counted', 'stream:' || :name,"
    ' :name, n, printf(\'{"n":%d,"text":"%0100d"}\', n, n) FROM i',
    f"INSERT INTO event ({COLUMNS})"
    " SELECT n, n, :scope, 'worker', 'p:host:12345678:4026531836:4711:471147', 'said', 'counted', 'stream:' || :name,"
    " :name, n, '{\"n\":' || n || ',\"text\":\"' || lpad(CAST(n AS text), 100, '0') || '\"}'"
    " FROM generate_series(CAST(:first AS bigint), CAST(:last AS bigint)) AS i (n)",
)
STREAM = statement("INSERT INTO stream (scope, name, version, updated_us) VALUES (:scope, :name, :version, 1)")
ANALYZE = statement("ANALYZE")
DATA = {"n": 1, "text": "0" * 100}


def events(plan: Plan) -> list[Table]:
    """Streams of two lengths, each in its own store. The same caller uses both in turns."""
    places = {name: str(plan.fresh(f"events-{name}") / "standfast.db") for name in ("short", "long")}
    return _measured(plan, "SQLite", places)


def events_postgres(plan: Plan) -> list[Table]:
    """The same on a server."""
    from standfast_prove.bench.postgres import server
    from standfast_prove.bench.tasks import _database

    with server(plan.directory) as url:
        fresh = _database(url)
        return _measured(plan, "PostgreSQL", {name: fresh(name) for name in ("short", "long")})


def _measured(plan: Plan, engine: str, places: dict[str, str]) -> list[Table]:
    sizes = {"short": min(SHORT, _long(plan) // 2), "long": _long(plan)}
    stores = {name: _filled(plan, place, sizes[name]) for name, place in places.items()}
    try:
        return [
            _appending(plan, engine, stores, sizes),
            _folding(plan, engine, stores["long"], sizes["long"]),
            _hearing(plan, engine, places["short"]),
        ]
    finally:
        for store in stores.values():
            store.close()


def _long(plan: Plan) -> int:
    return min(LONG, plan.rows // 2)


# -- appending ------------------------------------------------------------------------------------------------


def _appending(plan: Plan, engine: str, stores: dict[str, Standfast], sizes: dict[str, int]) -> Table:
    contestants: dict[str, Callable[[], float]] = {}
    for key, durable in (("", True), (" without the sync", False)):
        for name, store in stores.items():
            contestants[f"{name}{key}"] = _cost(store, plan.window_s / SLICES, durable)
    interleaved(1, contestants)
    costs = interleaved(plan.rounds * SLICES, contestants, patience_s=plan.patience_s)
    table = Table(
        f"{engine}, an append to a long stream",
        f"A stream of {sizes['long']:,} events against one of {sizes['short']:,}; one caller, an event of 120 bytes.",
    )
    for key, reach in (("", at_most(1.2)), (" without the sync", at_most(1.2))):
        for name, size in sizes.items():
            table.add(f"at {size:,}{key}", costs[f"{name}{key}"], "s")
        table.add(f"long / short{key}", ratios(costs[f"long{key}"], costs[f"short{key}"]), "x", reach)
    return table


def _cost(store: Standfast, window_s: float, durable: bool) -> Callable[[], float]:
    from standfast.record.events import Events

    def append(tx: Tx) -> object:
        return Events(store._store, tx).append("counter", "counted", DATA)

    def measure() -> float:
        count, start = 0, time.monotonic()
        while (now := time.monotonic()) < start + window_s or not count:
            store._store.write(append, durable=durable)
            count += 1
        return (now - start) / count

    return measure


# -- folding --------------------------------------------------------------------------------------------------


def total(state: int, event: Event) -> int:
    return state + int(event.data["n"])


def _folding(plan: Plan, engine: str, store: Standfast, size: int) -> Table:
    """Compute the same state from all events, and from a snapshot and the 100 events after it."""
    _append(store, size // 100)
    store.events.fold("counter", total, 0, name="total", snapshot_every=1)
    store.events.append_many("counter", [("counted", DATA)] * TAIL)
    read: dict[str, int] = {}

    def fold(label: str, name: str | None) -> float:
        start = time.monotonic()
        folded = store.events.fold("counter", total, 0, name=name, snapshot_every=TAIL * 10)
        read[label] = folded.read
        return time.monotonic() - start

    rounds = {"whole": lambda: fold("whole", None), "tail": lambda: fold("tail", "total")}
    interleaved(1, rounds)
    seconds = interleaved(plan.rounds, rounds, patience_s=plan.patience_s)
    table = Table(f"{engine}, a state folded from {size:,} events and more", f"A snapshot, and {TAIL} events after it.")
    table.add("without a snapshot", seconds["whole"], "s")
    table.add("with a snapshot", seconds["tail"], "s")
    table.add("without / with", ratios(seconds["whole"], seconds["tail"]), "x")
    table.add("events read without", [read["whole"]], "")
    table.add("events read with", [read["tail"]], "", at_most(TAIL))
    return table


def _append(store: Standfast, count: int) -> None:
    for first in range(0, count, 500):
        store.events.append_many("counter", [("counted", DATA)] * min(500, count - first))


# -- hearing --------------------------------------------------------------------------------------------------


def _hearing(plan: Plan, engine: str, place: str) -> Table:
    """One process appends, another follows. Measures the time until the follower has the event."""
    sent = SENT if plan.window_s >= 0.2 else 5
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    child = context.Process(target=follow, args=(theirs, place, str(plan.directory)), daemon=True)
    child.start()
    theirs.close()
    waits: list[list[float]] = []
    with _opened(plan, place) as store:
        try:
            _answer(pipe)
            for _ in range(plan.rounds + 1):
                pipe.send(sent)
                for _ in range(sent):
                    time.sleep(random.uniform(0.005, 0.03))
                    store.events.append("heard", "said", time.monotonic_ns())
                waits.append(_answer(pipe))
        finally:
            pipe.send(None)
            child.join(10)
            if child.is_alive():
                child.kill()
    table = Table(
        f"{engine}, from an append to whoever follows",
        "The time from the call of append (with its sync) until the other process has the event.",
    )
    table.add("append → followed, p50", [percentile(sorted(one), 0.5) for one in waits[1:]], "s", at_most(0.02))
    table.add("append → followed, slowest", [max(one) for one in waits[1:]], "s")
    return table


def _answer(pipe: Any) -> Any:
    if not pipe.poll(PATIENCE_S):
        raise RuntimeError("the following process gave no answer")
    return pipe.recv()


def follow(pipe: Connection, place: str, directory: str) -> None:
    """In the child."""
    from pathlib import Path

    with _opened(Plan(directory=Path(directory)), place) as store, store.events.follow("heard", after=0) as following:
        pipe.send(None)
        while (wanted := pipe.recv()) is not None:
            waits: list[float] = []
            while len(waits) < wanted:
                event = next(following)
                waits.append((time.monotonic_ns() - event.data) / 1e9)
            pipe.send(waits)


# -- small parts ----------------------------------------------------------------------------------------------


def _opened(plan: Plan, place: str) -> Standfast:
    from standfast import config, handle

    return handle.connect(config.load(place, data_dir=plan.directory / "data", scope="bench"))


def _filled(plan: Plan, place: str, size: int) -> Standfast:
    store = _opened(plan, place)
    for first in range(1, size + 1, CHUNK):
        asked = {"first": first, "last": min(first + CHUNK - 1, size), "scope": "bench", "name": "counter"}
        store._store.write(lambda tx, asked=asked: tx.run(FILL, **asked), durable=False)  # type: ignore[misc]
    store._store.write(lambda tx: tx.run(STREAM, scope="bench", name="counter", version=size))
    store._store.write(lambda tx: tx.run(ANALYZE))
    return store
