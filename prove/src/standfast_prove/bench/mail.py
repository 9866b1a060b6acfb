"""Mail: the time until another process receives it, and the rate at which readers claim and finish it.

The time starts before the call of send, so it includes the sync. It ends when the other process has the body. By then
our mail is durably leased. DBOS has `send` and `recv`: sent by its
client in one process, received by a workflow in another, in its default configuration.

Each turn of a reader claims the next mail and finishes it. Ours makes two durable transactions, with a lease, a fencing
token, a row for the attempt and two journal rows. litequeue marks a message and waits for a person if its reader dies.
The bare table has no lease and no journal.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from standfast.db.sql import Statement
from standfast_prove.bench import peers
from standfast_prove.bench.measure import Plan, Table, at_most, interleaved, percentile, ratios
from standfast_prove.bench.tasks import (
    BARE,
    CHUNK,
    LITEQUEUE,
    Contestant,
    _count,
    _database,
    _place,
    _workers,
    fill_litequeue,
    opened,
)
from standfast_prove.bench.ways import BODY, BUSY_TIMEOUT_MS, Way, Write

DBOS = "dbos==3.3.0"
SENT, SENT_DBOS = 40, 3
PATIENCE_S = 120.0
BOX = "bench"

FILL = Statement(
    "fill",
    "INSERT INTO mail (id, scope, box, sender, thread_id, body, hash, priority, state, attempts, attempts_max,"
    " provenance, ready_us, kept, fence, sent_us)"
    " WITH RECURSIVE i (n) AS (SELECT :first UNION ALL SELECT n + 1 FROM i WHERE n < :last)"
    " SELECT printf('mal_%026d', n), :scope, :box, 'bench', printf('mal_%026d', n), :body, '', 2, 'sent', 0, 5, '{}',"
    " n, 0, 0, n FROM i",
    "INSERT INTO mail (id, scope, box, sender, thread_id, body, hash, priority, state, attempts, attempts_max,"
    " provenance, ready_us, kept, fence, sent_us)"
    " SELECT 'mal_' || lpad(CAST(n AS text), 26, '0'), :scope, :box, 'bench', 'mal_' || lpad(CAST(n AS text), 26, '0'),"
    " :body, '', 2, 'sent', 0, 5, '{}', n, 0, 0, n FROM generate_series(:first, :last) AS i (n)",
)


def mail(plan: Plan) -> list[Table]:
    """On SQLite: across two processes against DBOS, then 1 and 8 readers against litequeue and a bare table."""
    tables = [_received(plan, "SQLite", None)]
    present = [one for one in SQLITE if not one.requirement or peers.installed(one.requirement)]
    note = "" if len(present) == len(SQLITE) else f"Could not be installed here: {LITEQUEUE}."
    for count in _sizes(plan):
        title = f"SQLite, a mail taken and ended by {_count(count).replace('worker', 'reader')}"
        tables.append(_workers(plan, title, note, present, count, _place(plan)))
    return tables


def mail_postgres(plan: Plan) -> list[Table]:
    """The same on one server."""
    from standfast_prove.bench.postgres import server

    with server(plan.directory) as url:
        make = _database(url)
        tables = [_received(plan, "PostgreSQL", make)]
        for count in _sizes(plan):
            title = f"PostgreSQL, a mail taken and ended by {_count(count).replace('worker', 'reader')}"
            note = "Bare: a connection each, two statements, two commits; no journal, no lease, no fence."
            tables.append(_workers(plan, title, note, [OURS, BARE], count, make))
    return tables


def _sizes(plan: Plan) -> tuple[int, ...]:
    return (1, 8) if plan.rounds > 1 else (2,)


# -- send → received ------------------------------------------------------------------------------------------


def _received(plan: Plan, engine: str, make: Callable[[str], str] | None) -> Table:
    path = peers.installed(DBOS)
    small = plan.window_s < 0.2
    counts = {"ours": 5 if small else SENT} | ({"dbos": SENT_DBOS} if path else {})
    with ExitStack() as stack:
        pairs = {
            way: stack.enter_context(Pair(plan, way, make(way) if make else None, path if way == "dbos" else None))
            for way in counts
        }
        contestants = {way: partial(pair.round, counts[way]) for way, pair in pairs.items()}
        interleaved(1, contestants)
        seen = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    said = "" if path else f" {DBOS} could not be installed: NOT COMPARED with it."
    if said:
        print(said.strip(), file=sys.stderr, flush=True)
    table = Table(
        f"{engine}, a mail from one process to another",
        "The time from the call of send until the other process has the body." + said,
    )
    labels = {"ours": "send → received", "dbos": f"{DBOS.replace('==', ' ')} send → recv"}
    medians = {way: [percentile(sorted(waits), 0.5) for waits in found] for way, found in seen.items()}
    for way, found in seen.items():
        table.add(f"{labels[way]}, p50", medians[way], "s", at_most(0.02) if way == "ours" else None)
        table.add(f"{labels[way]}, slowest", [max(waits) for waits in found], "s")
    if "dbos" in medians:
        table.add(f"{labels['dbos']} / {labels['ours']}", ratios(medians["dbos"], medians["ours"]), "x")
    return table


class Pair:
    """Two processes of one way: one sends, the other receives; both stay ready between the rounds."""

    def __init__(self, plan: Plan, way: str, url: str | None, path: str | None) -> None:
        place = plan.fresh(f"mail-{way}")
        context = multiprocessing.get_context("spawn")
        self._pipes: dict[str, Connection] = {}
        self._children = []
        for role in ("receive", "send"):
            ours, theirs = context.Pipe()
            child = context.Process(target=_child, args=(theirs, way, role, str(place), url, path), daemon=True)
            child.start()
            theirs.close()
            self._pipes[role] = ours
            self._children.append(child)
            self._answer(role)  # DBOS creates its tables in the receiver, so the sender starts second

    def round(self, count: int) -> list[float]:
        """Send at random times. Returns how long each mail took to be received."""
        for role in ("receive", "send"):
            self._pipes[role].send(count)
        waits: list[float] = self._answer("receive")
        self._answer("send")
        return waits

    def _answer(self, role: str) -> Any:
        if not self._pipes[role].poll(PATIENCE_S):
            raise RuntimeError(f"the process that was to {role} gave no answer")
        return self._pipes[role].recv()

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in self._pipes.values():
            with suppress(OSError):
                pipe.send(None)
        for child in self._children:
            child.join(10)
            if child.is_alive():
                child.kill()


def _child(pipe: Connection, way: str, role: str, place: str, url: str | None, path: str | None) -> None:
    os.chdir(place)
    if path:
        sys.path.insert(0, path)
    {("ours", "send"): _send, ("ours", "receive"): _receive, ("dbos", "send"): _dbos_send}.get(
        (way, role), _dbos_receive
    )(pipe, place, url)


def _send(pipe: Connection, place: str, url: str | None) -> None:
    with opened(url or place) as store:
        pipe.send(None)
        while (count := pipe.recv()) is not None:
            _at_moments(count, lambda: store.mail.send(BOX, time.monotonic_ns()))
            pipe.send(None)


def _receive(pipe: Connection, place: str, url: str | None) -> None:
    with opened(url or place) as store, store.mail.follow(BOX) as follow:
        pipe.send(None)
        while (count := pipe.recv()) is not None:
            waits: list[float] = []
            while len(waits) < count:
                found = next(follow)
                waits.append((time.monotonic_ns() - found.body) / 1e9)
                store.mail.done(found)
            pipe.send(waits)


def _dbos_send(pipe: Connection, place: str, url: str | None) -> None:
    from dbos import DBOSClient  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

    client = DBOSClient(system_database_url=url or f"sqlite:///{place}/dbos.sqlite")
    pipe.send(None)
    number = 0
    while (count := pipe.recv()) is not None:
        number += 1
        _at_moments(count, partial(_dbos_message, client, f"receiver {number}"))
        pipe.send(None)


def _dbos_message(client: Any, destination: str) -> None:
    while True:
        try:
            return client.send(destination, time.monotonic_ns())  # type: ignore[no-any-return]
        except Exception as error:  # the workflow of this round may not have started yet
            if "NonExistent" not in type(error).__name__:
                raise
            time.sleep(0.01)


def _dbos_receive(pipe: Connection, place: str, url: str | None) -> None:
    from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found,unused-ignore]  # as above

    where = url or f"sqlite:///{place}/dbos.sqlite"
    DBOS(config={"name": "benchmark", "log_level": "WARNING", "system_database_url": where})

    @DBOS.workflow()  # type: ignore[untyped-decorator,unused-ignore]
    def receive(count: int) -> list[float]:
        waits = []
        for _ in range(count):
            sent_ns = DBOS.recv(timeout_seconds=60)
            waits.append((time.monotonic_ns() - sent_ns) / 1e9)
        return waits

    DBOS.launch()
    pipe.send(None)
    number = 0
    while (count := pipe.recv()) is not None:
        number += 1
        with SetWorkflowID(f"receiver {number}"):
            pipe.send(receive(count))
    DBOS.destroy()


def _at_moments(count: int, send: Callable[[], object]) -> None:
    for _ in range(count):
        time.sleep(random.uniform(0.005, 0.03))
        send()


# -- taken and ended --------------------------------------------------------------------------------------------


class Ours(Way):
    """`sf.mail.claim(box)` and `sf.mail.done(mail)`."""

    def writers(self, count: int) -> list[Write]:
        self._store = opened(self.place)
        return [self._turn] * count

    def _turn(self) -> None:
        found = self._store.mail.claim(BOX)
        assert found is not None, "the box is empty: the figures would mean nothing"
        self._store.mail.done(found)

    def close(self) -> None:
        self._store.close()


class BareTable(Way):
    """A table and two statements with one synced commit each, without lease, fencing token and journal."""

    def writers(self, count: int) -> list[Write]:
        return [self._writer() for _ in range(count)]

    def _writer(self) -> Write:
        import apsw

        connection = apsw.Connection(os.path.join(self.place, "bare.sqlite"))
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()

        def turn() -> None:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "UPDATE bare SET state = 'claimed' WHERE n = (SELECT n FROM bare WHERE state = 'open'"
                " ORDER BY priority, n LIMIT 1) RETURNING n, body"
            ).fetchall()
            connection.execute("COMMIT")
            assert row, "the table is empty: the figures would mean nothing"
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE bare SET state = 'done' WHERE n = ?", (row[0][0],))
            connection.execute("COMMIT")

        return turn


def fill_ours(place: str, count: int) -> None:
    with opened(place) as store:
        for first in range(1, count + 1, CHUNK):
            last = min(first + CHUNK - 1, count)
            store._store.write(_chunk(first, last), durable=False)


def _chunk(first: int, last: int) -> Callable[[Any], None]:
    return lambda tx: tx.run(FILL, first=first, last=last, scope="bench", box=BOX, body=f'"{BODY}"')


def fill_bare(place: str, count: int) -> None:
    import apsw

    connection = apsw.Connection(os.path.join(place, "bare.sqlite"))
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute(
        "CREATE TABLE bare (n INTEGER PRIMARY KEY, priority INTEGER NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL);"
        "CREATE INDEX bare_ready ON bare (priority, n) WHERE state = 'open'"
    ).fetchall()
    with connection:
        connection.executemany(
            "INSERT INTO bare (n, priority, state, body) VALUES (?, 2, 'open', ?)", ((n, BODY) for n in range(count))
        )
    connection.close()


OURS = Contestant("claim and done", "standfast_prove.bench.mail:Ours", fill_ours)
SQLITE = (
    OURS,
    Contestant("a bare table", "standfast_prove.bench.mail:BareTable", fill_bare),
    Contestant("litequeue: pop and done, NORMAL", "standfast_prove.bench.tasks:LiteQueue", fill_litequeue, LITEQUEUE),
    Contestant("litequeue: pop and done, FULL", "standfast_prove.bench.tasks:LiteQueueFull", fill_litequeue, LITEQUEUE),
)
