"""Sessions of OpenAI Agents: items added one call at a time, and the last fifty read out of ten thousand.

Ours against the SDK's `SQLiteSession` and `SQLAlchemySession` from PyPI (see `peers`). Each is used as its
documentation says, with its own file. Each call is durable, because `synchronous` is FULL in all of them. Ours writes a
row of the journal with each item.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from standfast_prove.bench import peers
from standfast_prove.bench.measure import Plan, Table, at_least, at_most, interleaved, ratios

OPENAI_AGENTS = "openai-agents[sqlalchemy]==0.24.0"
AIOSQLITE = "aiosqlite==0.22.1"
GREENLET = "greenlet==3.5.6"
ITEM = {"role": "user", "content": "x" * 1000}
ITEMS = 10_000
LAST = 50
AT_ONCE = 16
READS = 20

Make = Callable[[AsyncExitStack, Path, str], Awaitable[Any]]


def openai_sessions(plan: Plan) -> list[Table]:
    """On SQLite."""
    return _compared(plan, "SQLite", {"standfast": _ours, "SQLiteSession": _sqlite, "SQLAlchemySession": _alchemy})


def openai_sessions_postgres(plan: Plan) -> list[Table]:
    """On one server."""
    from standfast_prove.bench.postgres import server

    with server(plan.directory) as url:
        makes: dict[str, Make] = {
            "standfast": lambda stack, place, key: _ours(stack, url, key),
            "SQLAlchemySession": lambda stack, place, key: _alchemy(stack, url, key),
        }
        return _compared(plan, "PostgreSQL", makes)


def _compared(plan: Plan, engine: str, makes: dict[str, Make]) -> list[Table]:
    places = [peers.installed(one) for one in (OPENAI_AGENTS, AIOSQLITE, GREENLET)]
    items = min(ITEMS, plan.rows // 20)
    if None in places:
        tables = _measured(plan, engine, {"standfast": _resource}, items)
        for table in tables:
            table.note += f" {OPENAI_AGENTS} could not be installed: NOT COMPARED, and ours without the SDK's loop."
        return tables
    sys.path.extend(place for place in places if place is not None and place not in sys.path)
    return _measured(plan, engine, makes, items)


def _measured(plan: Plan, engine: str, makes: dict[str, Make], items: int) -> list[Table]:
    alone, together = (_adding(plan, engine, makes, sessions) for sessions in (1, AT_ONCE))
    return [alone, together, _reading(plan, engine, makes, items)]


def _adding(plan: Plan, engine: str, makes: dict[str, Make], sessions: int) -> Table:
    alone = sessions == 1
    who = "a session" if alone else f"{sessions} sessions at once, one loop,"
    reach = at_least(1.0)
    table = Table(f"{engine}, items added to {who} of OpenAI Agents", "One item of 1 KB a call, each call awaited.")
    rounds = {name: _run(plan, make, sessions, lambda all: _added(plan, all)) for name, make in makes.items()}
    found = interleaved(plan.rounds, rounds, patience_s=plan.patience_s)
    for name, rates in found.items():
        table.add(name, rates, "/s")
    for name in list(makes)[1:]:
        table.add(f"standfast ÷ {name}", ratios(found["standfast"], found[name]), "x", reach)
    return table


def _reading(plan: Plan, engine: str, makes: dict[str, Make], items: int) -> Table:
    title = f"{engine}, the last {LAST} of {items:,} items of a session of OpenAI Agents"
    table = Table(title, f"get_items(limit={LAST}), the median of {READS}; and everything added before in one call.")
    rounds = {name: _run(plan, make, 1, lambda all: _read(all[0], items)) for name, make in makes.items()}
    found = interleaved(min(3, plan.rounds), rounds, patience_s=plan.patience_s)
    for name, times in found.items():
        table.add(name, [read for read, _, _ in times], "s")
    for name in list(makes)[1:]:
        ours, theirs = ([read for read, _, _ in found[one]] for one in ("standfast", name))
        table.add(f"standfast ÷ {name}", ratios(ours, theirs), "x", at_most(1.0))
    for place, what in ((1, "all of them read"), (2, "all of them added in one call")):
        for name, times in found.items():
            table.add(f"{name}: {what}", [one[place] for one in times], "s")
    return table


def _run(plan: Plan, make: Make, sessions: int, work: Callable[[list[Any]], Awaitable[Any]]) -> Callable[[], Any]:
    async def run() -> Any:
        place = plan.fresh("sessions")
        async with AsyncExitStack() as stack:
            return await work([await make(stack, place, f"{place.name}-{n}") for n in range(sessions)])

    return lambda: asyncio.run(run())


async def _added(plan: Plan, sessions: list[Any]) -> float:
    for session in sessions:
        await session.add_items([ITEM])
    started = time.perf_counter()
    end = started + plan.window_s

    async def one(session: Any) -> int:
        count = 0
        while time.perf_counter() < end:
            await session.add_items([ITEM])
            count += 1
        return count

    counts = await asyncio.gather(*(one(session) for session in sessions))
    return sum(counts) / (time.perf_counter() - started)


async def _read(session: Any, items: int) -> tuple[float, float, float]:
    started = time.perf_counter()
    await session.add_items([ITEM | {"n": n} for n in range(items)])
    added = time.perf_counter() - started
    waits = []
    for _ in range(READS):
        started = time.perf_counter()
        got = await session.get_items(limit=LAST)
        waits.append(time.perf_counter() - started)
        assert [one["n"] for one in got] == list(range(items - LAST, items))[-LAST:]
    started = time.perf_counter()
    assert len(await session.get_items()) == items
    return sorted(waits)[len(waits) // 2], time.perf_counter() - started, added


# -- the contestants ---------------------------------------------------------------------------------------------


async def _ours(stack: AsyncExitStack, place: Path | str, key: str) -> Any:
    from standfast.adapters.openai_agents import Session

    return await stack.enter_async_context(Session(key, place if isinstance(place, str) else place / "ours.db"))


class _Conversation:
    """The calls of a session, made directly on `sf.conversations`."""

    def __init__(self, resource: Any, key: str) -> None:
        self.resource, self.key = resource, key

    async def add_items(self, items: list[Any]) -> None:
        from standfast.record.conversations import line

        self.resource.add(self.key, [line(item, role="user", summary=item["content"], redact=True) for item in items])

    async def get_items(self, limit: int | None = None) -> list[Any]:
        found: list[Any] = self.resource.items(self.key, last=limit)
        return found


async def _resource(stack: AsyncExitStack, place: Path, key: str) -> Any:
    import standfast
    from standfast.record.conversations import Conversations

    sf = stack.enter_context(standfast.open(place / "ours.db", data_dir=place))
    return _Conversation(Conversations(sf._store), key)


async def _sqlite(stack: AsyncExitStack, place: Path, key: str) -> Any:
    from agents import SQLiteSession  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

    session = SQLiteSession(key, place / "theirs.db")
    stack.callback(session.close)
    return session


async def _alchemy(stack: AsyncExitStack, place: Path | str, key: str) -> Any:
    from agents.extensions.memory import SQLAlchemySession  # type: ignore[import-not-found,unused-ignore]

    if isinstance(place, Path):
        url = f"sqlite+aiosqlite:///{place / 'theirs.db'}"
    else:
        url = place.split("?")[0].replace("postgresql://", "postgresql+asyncpg://", 1)
    session = SQLAlchemySession.from_url(key, url=url, create_tables=True)
    stack.push_async_callback(session._engine.dispose)
    return session
