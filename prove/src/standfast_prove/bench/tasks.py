"""Claims: a task taken and finished, against the usual queues.

Each turn of a worker claims the next task and finishes it. Ours makes two durable transactions, each with its journal
row: a lease with a fencing token, then a closed task. The next worker takes over the task of a killed worker. The
others do less: huey deletes the task before the work begins, litequeue marks it and waits for a person, and the bare
query on PostgreSQL has no lease.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.db.sql import Statement
from standfast_prove.bench import peers
from standfast_prove.bench.crew import Crew
from standfast_prove.bench.measure import Plan, Table, interleaved, ratios
from standfast_prove.bench.ways import Way, Write

if TYPE_CHECKING:
    from standfast import Standfast

HUEY, LITEQUEUE = "huey==3.5.0", "litequeue==0.9"
BACKLOG_MAX = 1_000_000
CHUNK = 20_000
CREWS = {1: (1, 1), 8: (8, 1), 32: (8, 4)}
"""Workers: processes × threads."""

FILL = Statement(
    "fill",
    "INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, kind, source, priority, labels,"
    " occurrences, first_seen_us, last_seen_us, last_sweep, fence, created_us, updated_us)"
    " WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT printf('tsk_%026d', n), :scope, :repository, printf('f1:%064d', n), 1, 'open', printf('task %d', n),"
    " 'task', '', 2, '', 1, n, n, 0, 0, n, n FROM i",
    "INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, kind, source, priority, labels,"
    " occurrences, first_seen_us, last_seen_us, last_sweep, fence, created_us, updated_us)"
    " SELECT 'tsk_' || lpad(CAST(n AS text), 26, '0'), :scope, :repository, 'f1:' || lpad(CAST(n AS text), 64, '0'), 1,"
    " 'open', 'task ' || n, 'task', '', 2, '', 1, n, n, 0, 0, n, n FROM generate_series(:first, :last) AS i (n)",
)


# -- the ways ---------------------------------------------------------------------------------------------


class Ours(Way):
    """`sf.tasks.claim()` and `sf.tasks.done(task)`."""

    def writers(self, count: int) -> list[Write]:
        self._store = opened(self.place)
        return [self._turn] * count

    def _turn(self) -> None:
        task = self._store.tasks.claim()
        assert task is not None, "the queue is empty: the figures would mean nothing"
        self._store.tasks.done(task)

    def close(self) -> None:
        self._store.close()


class Bare(Way):
    """FOR UPDATE SKIP LOCKED and nothing else: no journal, no lease, no fence; a commit each."""

    CREATE = """
        CREATE TABLE IF NOT EXISTS bare (n BIGINT PRIMARY KEY, priority BIGINT NOT NULL, state TEXT NOT NULL,
                                         title TEXT NOT NULL, holder TEXT, claimed_us BIGINT, closed_us BIGINT);
        CREATE INDEX IF NOT EXISTS bare_ready ON bare (priority, n) WHERE state = 'open'"""
    CLAIM = b"""
        UPDATE bare SET state = 'claimed', holder = $1, claimed_us = 1
        WHERE n = (SELECT n FROM bare WHERE state = 'open' ORDER BY priority, n LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING n, title"""
    DONE = b"UPDATE bare SET state = 'closed', closed_us = 2 WHERE n = $1 AND state = 'claimed'"

    def writers(self, count: int) -> list[Write]:
        return [self._writer() for _ in range(count)]

    def _writer(self) -> Write:
        import psycopg

        connection = psycopg.connect(self.place, autocommit=True)
        cursor = psycopg.RawCursor(connection)
        holder = str(os.getpid())

        def turn() -> None:
            row = cursor.execute(self.CLAIM, [holder]).fetchone()
            assert row is not None, "the queue is empty: the figures would mean nothing"
            cursor.execute(self.DONE, [row[0]])

        return turn


class Huey(Way):
    """huey's own storage, unchanged: the commit that hands out a task deletes it."""

    def writers(self, count: int) -> list[Write]:
        from huey.storage import SqliteStorage  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

        storage = SqliteStorage("bench", filename=os.path.join(self.place, "huey.sqlite"), timeout=60)

        def turn() -> None:
            assert storage.dequeue() is not None, "the queue is empty: the figures would mean nothing"

        return [turn] * count


class LiteQueue(Way):
    """litequeue's own pop and done, unchanged: power loss may lose a commit."""

    synchronous = "NORMAL"

    def writers(self, count: int) -> list[Write]:
        return [self._writer() for _ in range(count)]

    def _writer(self) -> Write:
        from litequeue import LiteQueue as Queue  # type: ignore[import-not-found,unused-ignore]  # as above

        queue = Queue(os.path.join(self.place, "litequeue.sqlite"), timeout=60)
        queue.conn.execute(f"PRAGMA synchronous={self.synchronous}")

        def turn() -> None:
            message = queue.pop()
            assert message is not None, "the queue is empty: the figures would mean nothing"
            queue.done(message.message_id)

        return turn


class LiteQueueFull(LiteQueue):
    """The same, with each commit on disk."""

    synchronous = "FULL"


def opened(place: str) -> Standfast:
    from standfast import config, handle

    server = "://" in place
    url = place if server else os.path.join(place, "standfast.db")
    settings = config.load(url, data_dir=None if server else place, scope="bench", outside=True)
    return handle.connect(settings)


# -- filling ------------------------------------------------------------------------------------------------


def fill_ours(place: str, count: int) -> None:
    with opened(place) as store:
        for first in range(1, count + 1, CHUNK):
            last = min(first + CHUNK - 1, count)
            store._store.write(_chunk(first, last), durable=False)


def _chunk(first: int, last: int) -> Callable[[Any], None]:
    return lambda tx: tx.run(FILL, first=first, last=last, **tx.caller.keyspace._asdict())


def fill_bare(place: str, count: int) -> None:
    import psycopg

    with psycopg.connect(place) as connection:
        connection.execute(Bare.CREATE.encode())
        connection.execute(
            "INSERT INTO bare SELECT n, 2, 'open', 'task ' || n FROM generate_series(1, %s) AS i (n)", [count]
        )


def _vacuum(place: str) -> None:
    """Run VACUUM, as a server does a little later by itself. It is the same for both sides."""
    import psycopg

    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def fill_huey(place: str, count: int) -> None:
    import sqlite3

    from huey.storage import SqliteStorage  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

    file = os.path.join(place, "huey.sqlite")
    SqliteStorage("bench", filename=file).close()
    with sqlite3.connect(file) as connection:
        rows = ((f"task {n}".encode(),) for n in range(count))
        connection.executemany("INSERT INTO task (queue, data, priority) VALUES ('bench', ?, 0)", rows)
    connection.close()


def fill_litequeue(place: str, count: int) -> None:
    from litequeue import LiteQueue as Queue  # type: ignore[import-not-found,unused-ignore]  # as above

    queue = Queue(os.path.join(place, "litequeue.sqlite"))
    queue.conn.execute("BEGIN")
    for n in range(count):
        queue.put(f"task {n}")
    queue.conn.execute("COMMIT")
    queue.close()


class Contestant(NamedTuple):
    label: str
    way: str
    fill: Callable[[str, int], None]
    requirement: str = ""


OURS = Contestant("claim and done", "standfast_prove.bench.tasks:Ours", fill_ours)
BARE = Contestant("bare SKIP LOCKED and update", "standfast_prove.bench.tasks:Bare", fill_bare)
SQLITE = (
    OURS,
    Contestant("huey: dequeue", "standfast_prove.bench.tasks:Huey", fill_huey, HUEY),
    Contestant("litequeue: pop and done, NORMAL", "standfast_prove.bench.tasks:LiteQueue", fill_litequeue, LITEQUEUE),
    Contestant("litequeue: pop and done, FULL", "standfast_prove.bench.tasks:LiteQueueFull", fill_litequeue, LITEQUEUE),
)


# -- the area -----------------------------------------------------------------------------------------------


def claims(plan: Plan) -> list[Table]:
    """A task taken and finished: 1, 8 and 32 workers on a short queue, one worker on a long one."""
    present, missing = _present()
    note = f"Could not be installed here: {', '.join(missing)}." if missing else ""
    tables = [
        _workers(plan, f"SQLite, a task taken and finished by {_count(count)}", note, present, count, _place(plan))
        for count in _sizes(plan)
    ]
    return [*tables, _long(plan, "SQLite, a long queue of tasks", present, _place(plan))]


def claims_postgres(plan: Plan) -> list[Table]:
    """The same on a server, compared with a plain query that does only the necessary writes."""
    from standfast_prove.bench.postgres import server

    note = "Bare: a connection each, two statements, two commits; no journal, no lease, no fence."
    with server(plan.directory) as url:
        tables = [
            _workers(
                plan,
                f"PostgreSQL, a task taken and finished by {_count(count)}",
                note,
                [OURS, BARE],
                count,
                _database(url),
            )
            for count in _sizes(plan)
        ]
        return [*tables, _long(plan, "PostgreSQL, a long queue of tasks", [OURS, BARE], _database(url))]


def _workers(
    plan: Plan, title: str, note: str, contestants: Sequence[Contestant], count: int, place: Callable[[str], str]
) -> Table:
    """Compare workers. The first way is ours, and the others are compared with it."""
    ours = contestants[0].label
    processes, threads = CREWS.get(count, (count, 1))
    with ExitStack() as stack:
        crews = {
            one.label: _crew(stack, one, place(one.label), _short(plan), processes, threads) for one in contestants
        }
        rounds = {label: partial(crew.round, plan.window_s) for label, crew in crews.items()}
        interleaved(1, rounds)
        samples = interleaved(plan.rounds, rounds, patience_s=plan.patience_s)
    table = Table(title, note)
    rates = {label: [sample.rate for sample in found] for label, found in samples.items()}
    for label, values in rates.items():
        table.add(label, values, "/s")
    for label, values in rates.items():
        if label != ours:
            table.add(f"{ours} / {label}", ratios(rates[ours], values), "x")
    table.add(f"{ours}: wait p99", [sample.wait(0.99) for sample in samples[ours]], "s")
    return table


def _long(plan: Plan, title: str, contestants: Sequence[Contestant], place: Callable[[str], str]) -> Table:
    """One worker takes tasks from a long queue, then from a short one."""
    sizes = {"short": _short(plan), "long": _backlog(plan)}
    with ExitStack() as stack:
        rounds = {}
        for one in contestants:
            for size, count in sizes.items():
                crew = _crew(stack, one, place(f"{one.label} {size}"), count)
                rounds[f"{one.label}, {count:,} waiting"] = partial(crew.round, plan.window_s)
        interleaved(1, rounds)
        samples = interleaved(plan.rounds, rounds, patience_s=plan.patience_s)
    table = Table(title, f"{sizes['long']:,} tasks waiting, against {sizes['short']:,}.")
    rates = {label: [sample.rate for sample in found] for label, found in samples.items()}
    for label, values in rates.items():
        table.add(label, values, "/s")
    for one in contestants:
        long, short = (rates[f"{one.label}, {sizes[size]:,} waiting"] for size in ("long", "short"))
        table.add(f"{one.label}: long / short", ratios(long, short), "x")
    return table


# -- small parts ----------------------------------------------------------------------------------------------


def _present() -> tuple[list[Contestant], list[str]]:
    missing = {one.requirement for one in SQLITE if one.requirement and peers.installed(one.requirement) is None}
    return [one for one in SQLITE if one.requirement not in missing], sorted(missing)


def _crew(stack: ExitStack, one: Contestant, place: str, tasks: int, processes: int = 1, threads: int = 1) -> Crew:
    """Workers that take tasks from a queue of a given length."""
    path = [found] if one.requirement and (found := peers.installed(one.requirement)) else []
    sys.path[:0] = path  # a peer is importable only while its queue is filled
    try:
        one.fill(place, tasks)
    finally:
        del sys.path[: len(path)]
    if "://" in place:
        _vacuum(place)
    return stack.enter_context(Crew(one.way, place, processes=processes, callers=threads, path=path))


def _place(plan: Plan) -> Callable[[str], str]:
    return lambda label: str(plan.fresh("claims"))


def _database(url: str) -> Callable[[str], str]:
    """A database of its own for each queue, on one server."""
    from urllib.parse import urlsplit
    from uuid import uuid4

    def make(_: str) -> str:
        import psycopg

        name = f"claims_{uuid4().hex}"
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        return urlsplit(url)._replace(path=f"/{name}").geturl()

    return make


def _sizes(plan: Plan) -> Sequence[int]:
    return tuple(CREWS) if plan.rounds > 1 else (1, 2)


def _count(workers: int) -> str:
    return f"{workers} worker{'s' * (workers > 1)}"


def _backlog(plan: Plan) -> int:
    return min(BACKLOG_MAX, max(plan.rows // 2, 2 * _short(plan)))


def _short(plan: Plan) -> int:
    """Enough tasks for the warm-up and every round of the fastest contestant, also on a disk where a sync costs
    nothing.
    """
    return max(10_000, round(20_000 * plan.window_s * (plan.rounds + 1)))
