"""Many asyncio tasks of one event loop write records, compared with aiosqlite."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from standfast_prove.bench import peers
from standfast_prove.bench.measure import Plan, Table, at_least, ratios
from standfast_prove.bench.ways import BODY, INSERT, TABLE, AsyncWrite, Way, Write
from standfast_prove.bench.writing import add_rates, add_waits, crew_of, pair, played, rate

AIOSQLITE = "aiosqlite==0.22.1"
MIXED = "standfast_prove.bench.aio:AioSqliteMixed"


def tasks(plan: Plan) -> list[Table]:
    """Many asyncio tasks of one event loop write records, compared with aiosqlite."""
    path = peers.installed(AIOSQLITE)
    usual = "standfast_prove.bench.aio:AioSqlite" if path else "executor each"
    with ExitStack() as stack:
        kinds = [usual, MIXED] if path else [usual]
        crews = {
            **{k: crew_of(stack, plan, k, callers=plan.tasks, tasks=True, path=[path] if path else []) for k in kinds},
            "connection each": crew_of(stack, plan, "connection each", callers=plan.tasks),
            "ours": crew_of(stack, plan, "ours", callers=plan.tasks, tasks=True),
            "raw sync": crew_of(stack, plan, "raw sync"),
        }
        rounds = played(plan, crews)
    name = AIOSQLITE.replace("==", " ") if path else "aiosqlite's pattern by hand"
    table = Table(
        f"SQLite, {plan.tasks} asyncio tasks",
        f"{name}: one connection with its thread, FULL, a lock so that each task commits its own. Mixed is without "
        "the lock: faster, but a commit takes along what other tasks have half done, and so does a rollback.",
    )
    labels = {"raw sync": "raw sync, one caller", usual: name, MIXED: "aiosqlite, mixed transactions"}
    add_rates(table, rounds, {key: label for key, label in labels.items() if key in rounds} | {"ours": "records"})
    # Only ways that use tasks are compared here. The table of threads compares one thread per task.
    table.add(f"records / {name}", ratios(rate(rounds["ours"]), rate(rounds[usual])), "x", at_least(5.0))
    table.add("records / a connection and thread each", ratios(*pair(rounds)), "x")
    add_waits(table, "records", rounds["ours"])
    add_waits(table, name, rounds[usual])
    return [table]


class AioSqlite(Way):
    """aiosqlite: one connection with its own thread. A lock keeps the transactions of the tasks apart."""

    shared = False

    def writers(self, count: int) -> list[Write]:
        raise NotImplementedError

    async def async_writers(self, count: int) -> list[AsyncWrite]:
        import aiosqlite  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

        self._connection = await aiosqlite.connect(self._file())
        await self._connection.execute("PRAGMA journal_mode=WAL")
        await self._connection.execute("PRAGMA synchronous=FULL")
        await self._connection.execute(TABLE)
        await self._connection.commit()
        self._turn = asyncio.Lock()
        return [self._write_mixed if self.shared else self._write] * count

    async def _write(self) -> None:
        async with self._turn:
            await self._write_mixed()

    async def _write_mixed(self) -> None:
        await self._connection.execute(INSERT, (BODY,))
        await self._connection.commit()

    async def aclose(self) -> None:
        await self._connection.close()


class AioSqliteMixed(AioSqlite):
    """The same without the lock: a commit or rollback also ends the unfinished transactions of other tasks."""

    shared = True
