"""The cost of a record in a large store compared with a small one, and the cost of a long history."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from standfast.db.sql import Statement, statement
from standfast_prove.bench.measure import Plan, Table, at_most, interleaved, ratios

if TYPE_CHECKING:
    from standfast import Standfast
    from standfast.db.contract import Tx

SMALL = 1000
CHUNK = 20_000
SAMPLES = 100
"""The number of frequent calls at each size."""
ROWS = statement(
    "INSERT INTO bench_row (body) WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT printf('%0200d', n) FROM i",
    name="grow_rows",
)
EVENTS = statement(
    "INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
    " WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT n, n, '', 'worker', 'p:host:12345678:4026531836:4711:471147', 'seen', 'row.added',"
    " printf('msg_%026d', n) FROM i",
    name="grow_events",
)


def growth(plan: Plan) -> list[Table]:
    """A store with many records and one with a thousand. The same caller writes to both in turns."""
    small, large = _grown(plan.fresh("small"), SMALL), _grown(plan.fresh("large"), plan.rows)
    contestants: dict[str, Callable[[], float]] = {}
    for key, durable in (("", True), (" without the sync", False)):
        contestants[f"small{key}"] = _cost(small, plan.window_s, durable)
        contestants[f"large{key}"] = _cost(large, plan.window_s, durable)
    interleaved(1, contestants)
    costs = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    small.close()
    large.close()
    table = Table(
        "SQLite, a record in a large store", f"{plan.rows:,} records, each with its journal row, against {SMALL:,}."
    )
    for key, reach in (("", at_most(1.2)), (" without the sync", None)):
        table.add(f"at {SMALL:,}{key}", costs[f"small{key}"], "s")
        table.add(f"at {plan.rows:,}{key}", costs[f"large{key}"], "s")
        table.add(f"large / small{key}", ratios(costs[f"large{key}"], costs[f"small{key}"]), "x", reach)
    return [table]


def history(plan: Plan) -> list[Table]:
    """Sessions, effects, messages, tasks and streams: up to ten million events. Frequent calls are timed at each
    power of ten.
    """
    place = plan.fresh("history")
    return [_history(place, str(place / "standfast.db"), 2 * plan.rows, "SQLite")]


def history_postgres(plan: Plan) -> list[Table]:
    """The same on a server, with 1,000,000 events in a full run."""
    from standfast_prove.bench.postgres import server
    from standfast_prove.postgres import fresh_database

    with server(plan.directory) as url, fresh_database(url) as database:
        return [_history(plan.fresh("history"), database, plan.rows // 5, "PostgreSQL")]


def _history(place: Path, where: str, most: int, engine: str) -> Table:
    from standfast_prove.campaigns.growth import Growing
    from standfast_prove.campaigns.warm import warmed
    from standfast_prove.faults.children import Nursery

    sizes = [size for size in (10**n for n in range(3, 8)) if size < most] + [most]
    table = Table(
        f"{engine}, a long history",
        "Of ten events three are an effect's, two are messages, two a task's, two a stream's, one a step's, each with "
        "its rows. Effect: a session, one effect, the end. Resume: all of it belongs to the session that is resumed. "
        "Recovery: a process was killed in an effect; from a cold start until it is done.",
    )
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres="://" in where)
        growing = Growing(nursery, place, where)
        for size in sizes:
            for what, number in growing.measure(size, min(SAMPLES, most // 200)).items():
                value, unit = (number / 1e6, "s") if what.endswith("µs") else (float(number), "bytes")
                table.add(f"{what.removesuffix(' µs')} at {size:,}", [value], unit)
    return table


def _grown(place: Path, rows: int) -> Standfast:
    import standfast
    from standfast_prove.bench.rows import create

    store = standfast.open(place / "standfast.db", data_dir=place)
    create(store)
    for first in range(1, rows + 1, CHUNK):
        last = min(first + CHUNK - 1, rows)
        for grow in (ROWS, EVENTS):
            _grow(store, grow, first, last)
    return store


def _grow(store: Standfast, grow: Statement, first: int, last: int) -> None:
    store._store.write(lambda tx: tx.run(grow, first=first, last=last), durable=False)


def _cost(store: Standfast, window_s: float, durable: bool) -> Callable[[], float]:
    from standfast.ids import new_id
    from standfast_prove.bench.rows import Rows
    from standfast_prove.bench.ways import BODY

    def add(tx: Tx) -> object:
        return Rows(store._store, tx).add(new_id("msg"), BODY)

    def measure() -> float:
        count, start = 0, time.monotonic()
        while (now := time.monotonic()) < start + window_s or not count:
            store._store.write(add, durable=durable)
            count += 1
        return (now - start) / count

    return measure
