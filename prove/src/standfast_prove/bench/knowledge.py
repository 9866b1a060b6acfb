"""Knowledge: the ten nearest of many vectors, all agents and one of ten, with recall against brute force."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable
from heapq import nlargest
from operator import mul
from typing import TypeAlias

import standfast
from standfast_prove.bench.measure import Plan, Table, at_least, at_most
from standfast_prove.bench.postgres import server

ROWS = 100_000
DIMENSIONS = 384
AGENTS = 10
BATCH = 50
"""Texts of one transaction: a caller may hold one for 5 s."""
QUERIES = 20
CHECKED = 5
"""Queries that brute force answers too: one takes seconds."""

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


def _vectors(count: int) -> Vectors:
    chance = random.Random(5)
    return [_unit(chance) for _ in range(count)]


def _unit(chance: random.Random) -> array[float]:
    numbers = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
    length = sum(map(mul, numbers, numbers)) ** 0.5
    return array("f", (number / length for number in numbers))


def _fill(sf: standfast.Standfast, rows: Vectors) -> None:
    for start in range(0, len(rows), BATCH):
        with sf.transaction() as tx:
            for n in range(start, min(start + BATCH, len(rows))):
                tx.knowledge.add(f"fact {n}", agent=f"agent-{n % AGENTS}", embedding=rows[n])


def _measure(table: Table, sf: standfast.Standfast, rows: Vectors, *, whole_ms: float | None, recall: float) -> None:
    chance = random.Random(6)
    queries = [_unit(chance) for _ in range(QUERIES)]
    whole = at_most(whole_ms) if whole_ms is not None else None
    table.add("all agents", _waits(lambda query: sf.knowledge.search("", embedding=query), queries), "ms", whole)
    one = _waits(lambda query: sf.knowledge.search("", embedding=query, agent="agent-3"), queries)
    table.add("one agent of ten", one, "ms", at_most(60))
    table.add("recall", [_recall(sf, rows, query) for query in queries[:CHECKED]], "", at_least(recall))


def _waits(ask: Callable[[array[float]], object], queries: Vectors) -> list[float]:
    ask(queries[0])
    waits = []
    for query in queries:
        began = time.perf_counter()
        ask(query)
        waits.append((time.perf_counter() - began) * 1000)
    return waits


def _recall(sf: standfast.Standfast, rows: Vectors, query: array[float]) -> float:
    best = nlargest(10, range(len(rows)), key=lambda n: sum(map(mul, rows[n], query)))
    found = {one.text for one in sf.knowledge.search("", embedding=query)}
    return len(found & {f"fact {n}" for n in best}) / len(best)
