"""Knowledge: the ten nearest of many vectors, for all agents and for one of ten, with recall compared with brute
force.
"""

from __future__ import annotations

import math
import random
import time
from array import array
from collections.abc import Callable
from heapq import nlargest
from operator import mul
from typing import TypeAlias

import standfast
from standfast.db.contract import Row
from standfast.ids import new_id
from standfast.record import vectors
from standfast.record.knowledge import SQL
from standfast_prove.bench.measure import Plan, Table, at_least, at_most
from standfast_prove.bench.postgres import server

ROWS = 100_000
DIMENSIONS = 384
TOPICS = 256
AGENTS = 10
BATCH = 500
QUERIES = 20
CHECKED = 5
"""The number of queries that brute force also answers. One such query takes seconds."""

Vectors: TypeAlias = "list[array[float]]"


def knowledge(plan: Plan) -> list[Table]:
    """SQLite with sqlite-vec: every vector is compared."""
    place = plan.fresh("knowledge")
    rows = _vectors(min(ROWS, plan.rows))
    table = Table(f"SQLite, the 10 nearest of {len(rows):,} × {DIMENSIONS}", "sqlite-vec compares every vector.")
    with standfast.open(place / "standfast.db", data_dir=place) as sf:
        _fill(sf, rows)
        _measure(table, sf, rows, whole_ms=250, recall=1.0)
    return [table]


def knowledge_postgres(plan: Plan) -> list[Table]:
    """PostgreSQL with pgvector, before and after `knowledge index`."""
    rows = _vectors(min(ROWS, plan.rows))
    with server(plan.directory) as url, standfast.open(url, data_dir=plan.fresh("knowledge_postgres")) as sf:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        _fill(sf, rows)
        exact = Table(f"PostgreSQL, the 10 nearest of {len(rows):,} × {DIMENSIONS}", "pgvector compares every vector.")
        _measure(exact, sf, rows, whole_ms=None, recall=1.0)
        began = time.perf_counter()
        sf.knowledge.index()
        hnsw = Table(f"PostgreSQL, HNSW, the 10 nearest of {len(rows):,} × {DIMENSIONS}")
        hnsw.add("making the index", [time.perf_counter() - began], "s")
        _measure(hnsw, sf, rows, whole_ms=250, recall=0.95)
    return [exact, hnsw]


class Texts:
    """Vectors as an embedder makes them. Each text has a few of many topics."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(TOPICS)
        self._topics = [_unit(chance) for _ in range(TOPICS)]
        self._chance = random.Random(seed)

    def __next__(self) -> array[float]:
        chance = self._chance
        about = chance.sample(self._topics, 4)
        a, b, c, d = (chance.uniform(0.2, 1.2) for _ in about)
        return array(
            "f", (a * one + b * two + c * three + d * four for one, two, three, four in zip(*about, strict=True))
        )


def _unit(chance: random.Random) -> array[float]:
    numbers = array("h", chance.randbytes(2 * DIMENSIONS))
    length = math.sqrt(sum(map(mul, numbers, numbers)))
    return array("f", (number / length for number in numbers))


def _vectors(count: int, seed: int = 5) -> Vectors:
    texts = Texts(seed)
    return [next(texts) for _ in range(count)]


def _fill(sf: standfast.Standfast, rows: Vectors) -> None:
    """Insert the first row by the method. Insert the others by its statement, without the journal, in large
    transactions.
    """
    first = sf.knowledge.add("fact 0", agent="agent-0", embedding=rows[0])
    same = sf._store.write(lambda tx: tx.one(SQL.image, id=first.id))
    for start in range(1, len(rows), BATCH):
        made = [_row(same, n, rows[n]) for n in range(start, min(start + BATCH, len(rows)))]
        sf._store.write(lambda tx, made=made: tx.many(SQL.add, made))  # type: ignore[misc]


def _row(same: Row, n: int, vector: array[float]) -> Row:
    own = {"id": new_id("knw"), "agent": f"agent-{n % AGENTS}", "text": f"fact {n}", "hash": f"{n:064x}"}
    return {**same, **own, "words": f"fact {n}", "vector": vectors.packed(vector, "a vector"), "now_us": 1}


def _measure(table: Table, sf: standfast.Standfast, rows: Vectors, *, whole_ms: float | None, recall: float) -> None:
    """On SQLite the search runs in this process, so its CPU time is the time on a quiet machine."""
    queries = _vectors(QUERIES, seed=6)
    cpu = sf.engine.name == "sqlite"
    for label, agent, most_ms in (("all agents", None, whole_ms), ("one agent of ten", "agent-3", 60)):
        waits, used = _waits(lambda query, agent=agent: sf.knowledge.search("", embedding=query, agent=agent), queries)  # type: ignore[misc]
        reach = at_most(most_ms) if most_ms is not None else None
        table.add(label, waits, "ms", None if cpu else reach)
        if cpu:
            table.add(f"{label}: CPU", used, "ms", reach)
    table.add("recall", [_recall(sf, rows, query) for query in queries[:CHECKED]], "", at_least(recall))


def _waits(ask: Callable[[array[float]], object], queries: Vectors) -> tuple[list[float], list[float]]:
    """Time and CPU time of each query, in ms."""
    ask(queries[0])
    waits, used = [], []
    for query in queries:
        began, cpu = time.perf_counter(), time.process_time()
        ask(query)
        waits.append((time.perf_counter() - began) * 1000)
        used.append((time.process_time() - cpu) * 1000)
    return waits, used


def _recall(sf: standfast.Standfast, rows: Vectors, query: array[float]) -> float:
    best = nlargest(10, range(len(rows)), key=lambda n: sum(map(mul, rows[n], query)) / math.hypot(*rows[n]))
    found = {one.text for one in sf.knowledge.search("", embedding=query)}
    return len(found & {f"fact {n}" for n in best}) / len(best)
