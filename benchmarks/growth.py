"""What a record costs in a large store, against a small one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Plan, Table, at_most, interleaved, ratios
from standfast.db.sql import Statement, statement

if TYPE_CHECKING:
    from standfast import Standfast
    from standfast.db.contract import Tx

SMALL = 1000
CHUNK = 20_000
ROWS = statement(
    "INSERT INTO bench_row (body) WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT printf('%0200d', n) FROM i",
    name="grow_rows",
)
EVENTS = statement(
    "INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
    " WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT n, n, '', 'somebody', 'p:host:12345678:4026531836:4711:471147', 'seen', 'row.added',"
    " printf('msg_%026d', n) FROM i",
    name="grow_events",
)


def growth(plan: Plan) -> list[Table]:
    """A store with many records beside one with a thousand; the same caller writes to both in turns."""
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


def _grown(place: Path, rows: int) -> Standfast:
    import standfast
    from benchmarks.rows import create

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
    from benchmarks.rows import Rows
    from benchmarks.ways import BODY
    from standfast.ids import new_id

    def add(tx: Tx) -> object:
        return Rows(store._store, tx).add(new_id("msg"), BODY)

    def measure() -> float:
        count, start = 0, time.monotonic()
        while (now := time.monotonic()) < start + window_s or not count:
            store._store.write(add, durable=durable)
            count += 1
        return (now - start) / count

    return measure
