"""Notifications on PostgreSQL wake waiters in this process and in others, and never delay a write."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from standfast.clock import SYSTEM
from standfast.db.contract import Caller
from standfast.db.postgres import notify
from standfast.db.postgres.engine import PostgresEngine
from standfast.db.postgres.faults import Fault
from standfast.db.postgres.registry import open_engine
from standfast.db.sql import statement
from standfast_prove.postgres import TemporaryPostgres

CALLER = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)
PUT = statement("INSERT INTO lease (scope, name, fence) VALUES ('', :name, 1)", name="put")
LOOK = statement("SELECT name FROM lease", name="look")

WRITER = """
import sys, time
from standfast.db.contract import Caller
from standfast.clock import SYSTEM
from standfast.db.postgres.registry import open_engine
from standfast.db.sql import statement
caller = Caller(actor="t", holder="h", scope="", clock=SYSTEM)
engine = open_engine(sys.argv[1], caller)
put = statement("INSERT INTO lease (scope, name, fence) VALUES ('', :name, 1)")
for line in sys.stdin:
    began = time.time()
    engine.write(lambda tx: tx.run(put, name=line.strip()), caller)
    print(time.time(), flush=True)
engine.release()
"""


@pytest.fixture
def engine(pg_database: str) -> Iterator[PostgresEngine]:
    opened = open_engine(pg_database, CALLER)
    yield opened
    opened.release()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters that do not poll: only a notification wakes them."""
    monkeypatch.setattr(notify, "LOOK_FIRST_S", 3600.0)


def listening(engine: PostgresEngine) -> None:
    deadline = time.monotonic() + 20
    while not engine._bell.listening:
        assert time.monotonic() < deadline, "no listener"
        time.sleep(0.005)


def put(engine: PostgresEngine, name: str) -> None:
    engine.write(lambda tx: tx.run(PUT, name=name), CALLER)


@pytest.mark.usefixtures("patient")
def test_a_commit_wakes_waiting_callers_of_this_process_at_once(engine: PostgresEngine) -> None:
    engine._bell._listen = None  # without help from the server
    with engine.watch() as first, engine.watch() as second:
        assert not first.wait(0)
        put(engine, "a")
        assert first.wait(0)
        assert second.wait(0)
        assert not first.wait(0)
        engine.read(lambda tx: tx.all(LOOK), CALLER)
        engine.write(lambda tx: tx.all(LOOK), CALLER)  # nothing was changed
        engine.write(lambda tx: tx.run(PUT, name="beat"), CALLER, durable=False)  # no caller waits for a heartbeat
        assert not first.wait(0)


@pytest.mark.usefixtures("patient")
def test_a_commit_in_another_process_wakes_us(engine: PostgresEngine, pg_database: str) -> None:
    """The waiter wakes within one poll interval. A benchmark measures the time."""
    run = [sys.executable, "-c", WRITER, pg_database]
    writer = subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None
    latencies = []
    with engine.watch() as watch:
        listening(engine)
        for n in range(20):
            watch.wait(0)
            writer.stdin.write(f"{n}\n")
            writer.stdin.flush()
            assert watch.wait(20.0), "no notification"
            woken = time.time()
            latencies.append(woken - float(writer.stdout.readline()))
            assert {"name": str(n)} in engine.read(lambda tx: tx.all(LOOK), CALLER)
            time.sleep(notify.APART_S)  # otherwise the next notification waits
    writer.stdin.close()
    assert writer.wait(20) == 0
    writer.stdout.close()
    print(f"median wake-up {sorted(latencies)[10] * 1000:.1f} ms")


def test_a_waiting_caller_polls_at_growing_intervals(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine._bell._listen = None
    waits: list[float] = []
    with engine.watch() as watch:
        monkeypatch.setattr(watch.woken, "wait", waits.append)  # type: ignore[attr-defined]
        assert [watch.wait(60) for _ in range(6)] == [True] * 6
        assert watch.wait(0.01) is False  # the caller's own timeout ended the wait
    bounds = [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert all(0.75 * bound <= wait <= bound for wait, bound in zip(waits, bounds, strict=False))
    assert waits[6] == 0.01


@pytest.mark.usefixtures("patient")
def test_the_listener_reconnects_after_its_connection_was_lost(engine: PostgresEngine, pg_database: str) -> None:
    other = PostgresEngine(pg_database, CALLER)
    with engine.watch() as watch:
        listening(engine)
        watch.wait(0)
        with psycopg.connect(pg_database, autocommit=True) as admin:
            ask = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            assert admin.execute(ask).fetchall() == [(True,)]
        assert watch.wait(20)  # woken, because a notification may have been missed
        put(other, "a")
        assert watch.wait(20)
    other.close()


def test_the_last_watch_takes_the_listener_with_it(engine: PostgresEngine, pg_database: str) -> None:
    def listeners() -> int:
        with psycopg.connect(pg_database) as admin:
            ask = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            row = admin.execute(ask).fetchone()
            return row[0] if row else 0

    first, second = engine.watch(), engine.watch()
    listening(engine)
    assert listeners() == 1
    first.close()
    assert engine._bell.listening
    second.close()
    assert not engine._bell.listening
    deadline = time.monotonic() + 20
    while listeners():
        assert time.monotonic() < deadline


def test_a_failed_notification_fails_no_write(engine: PostgresEngine) -> None:
    rung = threading.Event()

    def broken() -> None:
        rung.set()
        raise Fault("no bell today", lost=True)

    engine._bell._send = broken
    put(engine, "a")
    assert rung.wait(10)
    put(engine, "b")
    assert len(engine.read(lambda tx: tx.all(LOOK), CALLER)) == 2


def test_many_commits_ring_once_per_interval(engine: PostgresEngine) -> None:
    rings: list[float] = []
    engine._bell._send = lambda: rings.append(time.monotonic())
    began = time.monotonic()
    for n in range(100):
        put(engine, str(n))
    took_s = time.monotonic() - began
    assert 1 <= len(rings) <= took_s / notify.APART_S + 2
    assert all(later - earlier >= 0.9 * notify.APART_S for earlier, later in itertools.pairwise(rings))


@pytest.mark.usefixtures("patient")
def test_a_command_that_writes_and_exits_at_once_still_notifies(engine: PostgresEngine, pg_database: str) -> None:
    with engine.watch() as watch:
        listening(engine)
        watch.wait(0)
        other = PostgresEngine(pg_database, CALLER)
        put(other, "a")
        other.close()
        assert watch.wait(20)


def test_notifications_are_never_part_of_a_writing_transaction() -> None:
    """A NOTIFY in a writing transaction makes all commits of the server wait for one lock, as its log shows."""
    conf = "log_statement = 'all'\nlog_line_prefix = '%p %v '"
    with TemporaryPostgres(conf) as server:
        engine = open_engine(server.url, CALLER)
        for n in range(20):
            put(engine, str(n))
        engine.release()
        text = server.log()
    transactions: dict[str, set[str]] = {}
    for who, what in re.findall(r"^(\d+ \S+) LOG:  execute .*(INSERT INTO lease|pg_notify)", text, re.MULTILINE):
        transactions.setdefault(who, set()).add(what)
    kinds = list(transactions.values())
    assert kinds.count({"INSERT INTO lease"}) == 20
    assert kinds.count({"pg_notify"}) >= 1
    assert {"INSERT INTO lease", "pg_notify"} not in kinds
