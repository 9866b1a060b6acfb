"""Budgets: a reservation and its settlement, against plain conditional updates of the same two rows.

Each caller spends from the budget of its process and from the parent budget of all processes. A plain pair is two
transactions with the two updates of our own statements, with one connection per caller. It has no hold, no journal and
no lease, so only the sums survive a crash.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from standfast.db.contract import Row
from standfast.db.sql import Statement
from standfast.ledger.budgets.amounts import UNITS
from standfast_prove.bench import ways
from standfast_prove.bench.crew import Crew
from standfast_prove.bench.measure import Plan, Table, at_least, interleaved, ratios
from standfast_prove.bench.postgres import server

PROCESSES, THREADS = 4, 8
LIMIT = 10**12
MOST, USED = 30, 10
Run = Callable[[str, Row], object]


def budgets(plan: Plan) -> list[Table]:
    """On SQLite, with one file for each way."""
    places = {way: str(plan.fresh(way)) for way in ("Ours", "Bare", "Engine")}
    return [_compared(plan, "SQLite", places)]


def budgets_postgres(plan: Plan) -> list[Table]:
    """On PostgreSQL, with one server for all ways."""
    with server(plan.directory) as url:
        return [_compared(plan, "PostgreSQL", dict.fromkeys(("Ours", "BarePostgres", "Engine"), url))]


def _compared(plan: Plan, engine: str, places: dict[str, str]) -> Table:
    processes, threads = min(PROCESSES, plan.processes[-1]), min(THREADS, plan.threads[-1])
    with ExitStack() as stack:
        crews = {
            way: stack.enter_context(Crew(f"{__name__}:{way}", place, processes=processes, callers=threads))
            for way, place in places.items()
        }
        contestants = {way: partial(one.round, plan.window_s) for way, one in crews.items()}
        interleaved(1, contestants)
        rounds = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    ours, bare, shared = ([one.rate for one in samples] for samples in rounds.values())
    table = Table(
        f"{engine}, budgets, {processes} processes × {threads} threads",
        "A pair is `reserve` and `settle` in two budgets, one inside the other. Bare: the same conditional updates, "
        "without hold, lease and journal, on a connection each; then also in the shared commits of our engine.",
    )
    table.add("pairs", ours, "/s")
    table.add("bare conditional updates", bare, "/s")
    table.add("the same in our shared commits", shared, "/s")
    table.add("pairs / bare conditional updates", ratios(ours, bare), "x", at_least(0.5))
    table.add("pairs / the same in our shared commits", ratios(ours, shared), "x")
    for label, samples in zip(("pairs", "bare"), rounds.values(), strict=False):
        table.add(f"{label}: wait p99", [one.wait(0.99) for one in samples], "s")
        table.add(f"{label}: min/max share", [one.share for one in samples], "x")
    return table


class Ours(ways.Ours):
    """`sf.budgets.reserve` and `settle`."""

    def writers(self, count: int) -> list[ways.Write]:
        import standfast

        self._store = standfast.open(self._url(), data_dir=self._data_dir())
        own, found = f"agent:{os.getpid()}", self._store.budgets
        found.set("team", tokens=LIMIT)
        found.set(own, tokens=LIMIT, within="team")
        return [lambda: found.settle(found.reserve(own, tokens=MOST), tokens=USED)] * count


class Engine(ways.Ours):
    """The plain updates through our engine, in its group commits."""

    def writers(self, count: int) -> list[ways.Write]:
        import standfast

        self._store = standfast.open(self._url(), data_dir=self._data_dir())
        _, take, give_back = _statements()
        own, found = f"agent:{os.getpid()}", self._store.budgets
        ids = [found.set("team", tokens=LIMIT).id, found.set(own, tokens=LIMIT, within="team").id]
        write = self._store._store.write

        def both(statement: Statement, fields: Row) -> None:
            write(lambda tx: [tx.run(statement, **{**fields, "id": id}) for id in ids])

        def pair() -> None:
            both(take, _most())
            both(give_back, _spent())

        return [pair] * count


class Bare(ways.BothRows):
    """One apsw connection for each caller, synchronous=FULL."""

    def _writer(self) -> ways.Write:
        connection, _ = self._opened()
        return _pair("sqlite", lambda text, fields: connection.execute(text, fields).fetchall())


class BarePostgres(ways.BarePsycopg):
    """One psycopg connection for each caller."""

    def _writer(self) -> ways.Write:
        import psycopg

        connection = psycopg.connect(self.place, autocommit=True, options="-c search_path=standfast")
        return _pair("postgres", lambda text, fields: connection.execute(text.encode(), fields))


def _pair(engine: str, run: Run) -> ways.Write:
    add, take, give_back = (getattr(one, engine) for one in _statements())
    ids = [f"bud_{number:026}" for number in (0, os.getpid())]
    for id in ids:
        run(add, _row(id))
    begin = "BEGIN IMMEDIATE" if engine == "sqlite" else "BEGIN"

    def both(statement: str, fields: Row) -> None:
        run(begin, {})
        for id in ids:
            run(statement, {**fields, "id": id})
        run("COMMIT", {})

    def pair() -> None:
        both(take, _most())
        both(give_back, _spent())

    return pair


def _statements() -> tuple[Statement, Statement, Statement]:
    from standfast.ledger.budgets.resource import SQL

    return SQL.add, SQL.take, SQL.give_back


def _row(id: str) -> Row:
    limits = {f"max_{unit}": None for unit in UNITS} | {"max_tokens": LIMIT}
    nothing = dict.fromkeys(("git_dir", "origin", "parent", "per"))
    own = {"id": id, "scope": "bare", "name": id, "window_us": 0, "action": "warn", "actor": "worker", "now_us": 1}
    return {**own, **limits, **nothing}


def _most() -> Row:
    return {f"most_{unit}": 0 for unit in UNITS} | {"most_tokens": MOST, "most_calls": 1}


def _spent() -> Row:
    return _most() | {f"spent_{unit}": 0 for unit in UNITS} | {"spent_tokens": USED, "spent_calls": 1}
