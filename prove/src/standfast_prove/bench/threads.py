"""Threads of LangGraph: a thread grows by one message per step. Ours against the official savers, all durable at each
step.

Each step writes one checkpoint and the writes of one task, as a graph does. The state is a list that grows by 1 KB per
step, and a channel of 20 KB that does not change. Ours adds a journal row to each of the two writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from standfast_prove.bench.measure import Plan, Table, at_least, at_most, interleaved, ratios

STEPS = (500, 1000)
MB = 1_000_000
FILE_MAX_MB = {500: 3.0, 1000: 6.0}
"""The limit for the size of a thread. On SQLite this is the size of the file. On a server it is the growth of the
tables, because the empty tables and indexes of all resources already take 1.5 MB there.
"""


class Grown(NamedTuple):
    """The cost of one thread: its steps per second, its size, and the time to read its newest checkpoint in a new
    saver.
    """

    per_s: float
    size_mb: float
    read_s: float
    empty_mb: float = 0.0


def langgraph(plan: Plan) -> list[Table]:
    """On SQLite. The size of the file at the end; the WAL beside ours has at most 4 MB."""
    tables = []
    for steps in _steps(plan):
        makes = {"standfast": partial(_ours, plan, steps), "SqliteSaver": partial(_sqlite, plan, steps)}
        tables.append(_compared(plan, "SQLite", steps, makes))
    return tables


def langgraph_postgres(plan: Plan) -> list[Table]:
    """On one server. Sizes are those of the tables with their indexes, after the run and before it."""
    from standfast_prove.bench.postgres import server
    from standfast_prove.bench.tasks import _database

    tables = []
    with server(plan.directory) as url:
        fresh = _database(url)
        for steps in _steps(plan):
            makes = {
                "standfast": partial(lambda n: _ours_postgres(fresh("ours"), n), steps),
                "PostgresSaver": partial(lambda n: _postgres(fresh("theirs"), n), steps),
            }
            tables.append(_compared(plan, "PostgreSQL", steps, makes))
    return tables


def _steps(plan: Plan) -> list[int]:
    return sorted({min(steps, max(2, plan.rows // 400)) for steps in STEPS})


def _compared(plan: Plan, engine: str, steps: int, makes: Mapping[str, Callable[[], Grown]]) -> Table:
    table = Table(f"{engine}, a thread of LangGraph that grows to {steps:,} steps", "1 KB more at each step.")
    theirs = list(makes)[1]
    found = interleaved(min(3, plan.rounds), makes, patience_s=plan.patience_s)
    for name, grown in found.items():
        table.add(f"{name}: steps", [one.per_s for one in grown], "/s")
    per_s = {name: [one.per_s for one in grown] for name, grown in found.items()}
    table.add(f"steps: standfast ÷ {theirs}", ratios(per_s["standfast"], per_s[theirs]), "x", at_least(1.0))
    for name, grown in found.items():
        bound = FILE_MAX_MB.get(steps) if name == "standfast" else None
        goal = at_most(bound) if bound else None
        on_server = engine == "PostgreSQL"
        table.add(f"{name}: size", [one.size_mb for one in grown], "MB", None if on_server else goal)
        if on_server:
            table.add(f"{name}: size but for empty tables", [one.size_mb - one.empty_mb for one in grown], "MB", goal)
    for name, grown in found.items():
        table.add(f"{name}: read the newest", [one.read_s for one in grown], "s")
    return table


def _grow(saver: Any, steps: int) -> float:
    from standfast_prove.graphs import growing

    begin = time.perf_counter()
    for _ in growing(saver, steps):
        pass
    return steps / (time.perf_counter() - begin)


def _read(saver: Any, steps: int) -> float:
    from standfast_prove.graphs import at

    begin = time.perf_counter()
    found = saver.get_tuple(at("growing"))
    end = time.perf_counter()
    assert len(found.checkpoint["channel_values"]["messages"]) == steps
    return end - begin


def _ours(plan: Plan, steps: int) -> Grown:
    from standfast.adapters.langgraph import Saver

    path = plan.fresh("threads") / "standfast.db"
    with Saver.from_conn_string(path) as saver:
        per_s = _grow(saver, steps)
    with Saver.from_conn_string(path) as saver:
        read_s = _read(saver, steps)
    return Grown(per_s, _size_mb(path), read_s)


def _sqlite(plan: Plan, steps: int) -> Grown:
    from langgraph.checkpoint.sqlite import SqliteSaver

    path = plan.fresh("sqlitesaver") / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        per_s = _grow(saver, steps)
    with SqliteSaver.from_conn_string(str(path)) as saver:
        read_s = _read(saver, steps)
    size_mb = _size_mb(path)
    path.unlink()
    return Grown(per_s, size_mb, read_s)


def _size_mb(path: Path) -> float:
    return path.stat().st_size / MB


def _ours_postgres(url: str, steps: int) -> Grown:
    from standfast.adapters.langgraph import Saver

    with Saver.from_conn_string(url) as saver:
        empty_mb = _database_mb(url)
        per_s = _grow(saver, steps)
    with Saver.from_conn_string(url) as saver:
        read_s = _read(saver, steps)
    return Grown(per_s, _database_mb(url), read_s, empty_mb)


def _postgres(url: str, steps: int) -> Grown:
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        empty_mb = _database_mb(url)
        per_s = _grow(saver, steps)
    with PostgresSaver.from_conn_string(url) as saver:
        read_s = _read(saver, steps)
    return Grown(per_s, _database_mb(url), read_s, empty_mb)


def _database_mb(url: str) -> float:
    import psycopg

    text = (
        "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    )
    with psycopg.connect(url) as connection:
        row = connection.execute(text).fetchone()
    assert row is not None
    return int(row[0]) / MB
