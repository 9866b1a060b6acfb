"""The PostgreSQL engine with faults: races, cut connections, killed servers, and the messages about them."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from standfast.clock import SYSTEM
from standfast.db.contract import Caller, Tx
from standfast.db.postgres import connect, retry
from standfast.db.postgres.address import Address
from standfast.db.postgres.engine import PostgresEngine
from standfast.db.postgres.faults import ABSENT, Fault
from standfast.db.postgres.registry import open_engine
from standfast.db.sql import statement
from standfast.errors import Busy, CommitUnknown, InvalidInput, SchemaTooNew, StandfastError, StorageError
from standfast_prove.faults.proxy import CuttableLine
from standfast_prove.postgres import TemporaryPostgres

CALLER = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)

TABLE = "CREATE TABLE standfast.thing (key text PRIMARY KEY, n bigint NOT NULL)"
PUT = statement("INSERT INTO thing (key, n) VALUES (:key, :n) RETURNING key", name="put")
ADD = statement("UPDATE thing SET n = n + 1 WHERE key = :key RETURNING n", name="add")
KEYS = statement("SELECT key FROM thing ORDER BY key", name="keys")
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{}'; END $$"


@pytest.fixture
def engine(pg_database: str) -> Iterator[PostgresEngine]:
    opened = open_engine(pg_database, CALLER)
    with psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute(TABLE)
    yield opened
    opened.release()


@pytest.fixture
def line(pg_database: str) -> Iterator[CuttableLine]:
    port = urlsplit(pg_database).port
    assert port is not None
    with CuttableLine(port) as proxy:
        yield proxy


@pytest.fixture
def far(engine: PostgresEngine, line: CuttableLine, pg_database: str) -> Iterator[PostgresEngine]:
    """An engine whose connection to the server can be cut."""
    opened = open_engine(line.url(pg_database), CALLER)
    yield opened
    opened.release()


def keys(engine: PostgresEngine) -> list[str]:
    return [row["key"] for row in engine.read(lambda tx: tx.all(KEYS), CALLER)]


def put(engine: PostgresEngine, key: str, n: int = 0) -> None:
    engine.write(lambda tx: tx.run(PUT, key=key, n=n), CALLER)


def in_thread(work: object) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


# -- races ----------------------------------------------------------------------------------------


def test_a_deadlock_is_retried_without_an_error(engine: PostgresEngine) -> None:
    put(engine, "a")
    put(engine, "b")
    meet = threading.Barrier(2)
    runs: list[str] = []

    def cross(first: str, second: str) -> None:
        def body(tx: Tx) -> None:
            runs.append(first)
            tx.one(ADD, key=first)
            if len(runs) <= 2:
                meet.wait(10)
            tx.one(ADD, key=second)

        engine.write(body, CALLER)

    threads = [in_thread(lambda: cross("a", "b")), in_thread(lambda: cross("b", "a"))]
    for thread in threads:
        thread.join(20)
    assert len(runs) == 3  # the server ended one of the two
    assert engine.read(lambda tx: tx.one(statement("SELECT sum(n) AS n FROM thing")), CALLER) == {"n": 4}


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "23505"])
def test_a_lost_race_is_run_again(engine: PostgresEngine, code: str) -> None:
    runs: list[int] = []
    fail = statement(RAISE.format(code))

    def body(tx: Tx) -> int:
        runs.append(1)
        tx.run(PUT, key="a", n=0)
        if len(runs) < 3:
            tx.run(fail)
        return len(runs)

    assert engine.write(body, CALLER) == 3
    assert keys(engine) == ["a"]


def test_two_bodies_that_read_and_then_write_end_in_a_serial_order(engine: PostgresEngine) -> None:
    top = statement("SELECT COALESCE(max(n), 0) + 1 AS n FROM thing")
    meet = threading.Barrier(2)
    found: list[int] = []
    runs: list[int] = []

    def body(tx: Tx) -> int:
        runs.append(1)
        n = int(tx.one(top)["n"])
        if len(runs) <= 2:
            meet.wait(10)
        tx.one(PUT, key=str(n), n=n)
        return n

    threads = [in_thread(lambda: found.append(engine.write(body, CALLER))) for _ in range(2)]
    for thread in threads:
        thread.join(20)
    assert sorted(found) == [1, 2]


def test_a_row_that_stays_locked_until_the_deadline_is_busy_and_names_the_holder(
    engine: PostgresEngine, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(engine, "a")
    monkeypatch.setattr(retry, "DEADLINE_S", 0.5)
    monkeypatch.setattr(retry.RetryBudget.__init__, "__defaults__", (0.5,))
    header = engine._modes.write.header.replace(b"'lock_timeout', '10000'", b"'lock_timeout', '100'")
    write = engine._modes.write._replace(header=header)
    monkeypatch.setattr(engine, "_modes", engine._modes._replace(write=write))
    with psycopg.connect(pg_database, application_name="another program") as other:
        other.execute("UPDATE standfast.thing SET n = 5")
        with pytest.raises(Busy) as raised:
            engine.write(lambda tx: tx.one(ADD, key="a"), CALLER)
        pid = other.info.backend_pid
    assert f"another program, server process {pid}, idle in transaction" in raised.value.hint
    assert raised.value.exit_code == 75


def test_a_statement_without_end_is_ended(engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    header = engine._modes.read.header.replace(b"'statement_timeout', '5000'", b"'statement_timeout', '100'")
    read = engine._modes.read._replace(header=header)
    monkeypatch.setattr(engine, "_modes", engine._modes._replace(read=read))
    with pytest.raises(StorageError) as raised:
        engine.read(lambda tx: tx.one(statement("SELECT pg_sleep(30)")), CALLER)
    assert raised.value.code == "timeout"
    assert keys(engine) == []


def test_a_new_min_writer_fences_a_running_engine_at_its_next_write(engine: PostgresEngine, pg_database: str) -> None:
    put(engine, "a")
    with psycopg.connect(pg_database) as newer:
        newer.execute("UPDATE standfast.meta SET value = '9999' WHERE key = 'min_writer'")
    with pytest.raises(SchemaTooNew, match="9999"):
        put(engine, "b")
    with pytest.raises(SchemaTooNew, match="upgrade"), engine.transaction(CALLER) as tx:
        tx.run(PUT, key="b", n=0)
    assert keys(engine) == ["a"]  # reading continues


# -- lost connections -------------------------------------------------------------------------------


def test_a_lost_answer_to_commit_is_neither_success_nor_failure(far: PostgresEngine, line: CuttableLine) -> None:
    runs: list[int] = []

    def body(tx: Tx) -> None:
        runs.append(1)
        tx.run(PUT, key="a", n=0)

    put(far, "before")
    line.cut_at("COMMIT")
    with pytest.raises(CommitUnknown) as raised:
        far.write(body, CALLER)
    assert raised.value.exit_code == 75
    assert "look it up by its key" in raised.value.hint
    assert (len(runs), line.cuts) == (1, 1)  # never run again
    assert keys(far) == ["a", "before"]  # in this case the row was committed


def test_a_lost_answer_to_the_commit_of_a_held_transaction_too(far: PostgresEngine, line: CuttableLine) -> None:
    line.cut_at("COMMIT")
    with pytest.raises(CommitUnknown), far.transaction(CALLER) as tx:
        tx.run(PUT, key="a", n=0)


def test_a_line_cut_before_commit_is_dialled_again_and_the_body_run_again(
    far: PostgresEngine, line: CuttableLine
) -> None:
    runs: list[int] = []

    def body(tx: Tx) -> None:
        runs.append(1)
        tx.one(PUT, key="a", n=0)
        tx.run(PUT, key="b", n=0)

    put(far, "before")
    line.cut_at("INSERT 0 1")
    far.write(body, CALLER)
    assert (len(runs), line.cuts) == (2, 1)
    assert keys(far) == ["a", "b", "before"]


def test_a_line_cut_inside_a_held_transaction_is_an_error_and_nothing_is_run_again(
    far: PostgresEngine, line: CuttableLine
) -> None:
    line.cut_at("INSERT 0 1")
    with pytest.raises(StorageError) as raised, far.transaction(CALLER) as tx:
        tx.one(PUT, key="a", n=0)
    assert raised.value.code == "unreachable"
    assert keys(far) == []


@pytest.mark.slow
def test_lines_that_went_stale_while_idle_are_replaced_unseen(far: PostgresEngine, line: CuttableLine) -> None:
    put(far, "a")
    line.cut()
    put(far, "b")
    line.cut()
    assert keys(far) == ["a", "b"]
    line.cut()
    with far.transaction(CALLER) as tx:
        tx.run(PUT, key="c", n=0)
    assert keys(far) == ["a", "b", "c"]


def test_a_commit_that_was_rolled_back_for_a_reason_is_an_ordinary_failure(
    engine: PostgresEngine, pg_database: str
) -> None:
    with psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute("ALTER TABLE standfast.thing ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
    with pytest.raises(StorageError) as raised:
        engine.write(lambda tx: (tx.run(PUT, key="a", n=1), tx.run(PUT, key="b", n=1)), CALLER)
    assert not isinstance(raised.value, CommitUnknown)
    assert keys(engine) == []


def test_a_silent_server_is_given_up_after_a_while(far: PostgresEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of a stopped server still acknowledges TCP packets, but the server sends no answer."""
    monkeypatch.setattr(retry.RetryBudget.__init__, "__defaults__", (0.0,))
    read = far._modes.read._replace(answer_s=0.2)
    monkeypatch.setattr(far, "_modes", far._modes._replace(read=read))
    with pytest.raises(StorageError, match="does not answer"):
        far.read(lambda tx: tx.one(statement("SELECT pg_sleep(2)")), CALLER)


# -- servers that die ---------------------------------------------------------------------------------


def test_acknowledged_rows_survive_kill_9_of_the_server_and_no_others_appear() -> None:
    """000-1: the server is killed twice while eight threads write; the engine continues by itself."""
    with TemporaryPostgres() as server:
        engine = open_engine(server.url, CALLER)
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(TABLE)
        acknowledged, unknown = [set[str]() for _ in range(8)], set[str]()
        stop = threading.Event()

        def work(worker: int) -> None:
            n = 0
            while not stop.is_set():
                n += 1
                key = f"{worker}:{n}"
                try:
                    put(engine, key)
                    acknowledged[worker].add(key)
                except CommitUnknown:
                    unknown.add(key)

        threads = [in_thread(lambda worker=worker: work(worker)) for worker in range(8)]  # type: ignore[misc]
        for _ in range(2):
            target = sum(map(len, acknowledged)) + 300
            while sum(map(len, acknowledged)) < target:
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.01)
            server.kill()
            server.restart()
        target = sum(map(len, acknowledged)) + 100
        while sum(map(len, acknowledged)) < target and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        stop.set()
        for thread in threads:
            thread.join(60)
        present = set(keys(engine))
        engine.release()
    told = set[str]().union(*acknowledged)
    assert told - present == set()
    assert present - told <= unknown
    assert len(told) >= 700


class Standby(TemporaryPostgres):
    """A streaming standby of another server."""

    def __init__(self, primary: TemporaryPostgres) -> None:
        self._primary = primary
        super().__init__()

    def _create(self) -> None:
        copy = [f"{self._binaries}/pg_basebackup", "-D", str(self._data), "-d", self._primary.url, "-R", "-X", "stream"]
        subprocess.run([*self._launcher.prefix, *copy, "-c", "fast"], check=True, capture_output=True)


def test_writes_continue_at_the_promoted_standby_and_no_acknowledged_row_is_lost() -> None:
    """A synchronous standby is promoted while the primary is dead; the URL names both."""
    with TemporaryPostgres() as primary, Standby(primary) as standby:
        with psycopg.connect(primary.url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            admin.execute("SELECT pg_reload_conf()")
            while admin.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone() is None:
                time.sleep(0.01)
        both = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres"
        engine = open_engine(both, CALLER)
        assert engine.facts()["port"] == primary.port
        engine.write(lambda tx: tx.run(statement(TABLE)), CALLER)
        told, unknown = list[str](), list[str]()
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                key = str(len(told) + len(unknown))
                try:
                    put(engine, key)
                    told.append(key)
                except CommitUnknown:
                    unknown.append(key)

        thread = in_thread(work)
        _until(lambda: len(told) > 50)
        primary.kill()
        with psycopg.connect(standby.url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_promote()")
        before = len(told)
        _until(lambda: len(told) > before + 50)
        stop.set()
        thread.join(60)
        present = set(keys(engine))
        assert engine.facts()["port"] == standby.port
        engine.release()
    assert set(told) <= present
    assert present - set(told) <= set(unknown)


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_commit_whose_standby_never_answered_is_not_acknowledged() -> None:
    """The server waits for its standby. If this wait is cancelled, the server only warns, and COMMIT succeeds."""
    with TemporaryPostgres() as server:
        engine = open_engine(server.url, CALLER)
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(TABLE)
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
            admin.execute("SELECT pg_reload_conf()")
            errors, told, cancelled = list[BaseException](), list[str](), list[int]()

            def work() -> None:
                try:
                    for n in range(10_000):  # until the standby has connected
                        if len(cancelled) > 2:  # each of these was acknowledged
                            return
                        put(engine, str(n))
                        told.append(str(n))
                except StandfastError as error:
                    errors.append(error)

            thread = in_thread(work)
            waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            while thread.is_alive():
                for (pid,) in admin.execute(waiting).fetchall():
                    admin.execute("SELECT pg_cancel_backend(%s)", (pid,))
                    cancelled.append(pid)
                time.sleep(0.01)
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_reload_conf()")
        assert [type(error) for error in errors] == [CommitUnknown]
        assert set(keys(engine)) == {*told, str(len(told))}  # the row was committed, but on one server only
        engine.release()


# -- messages ----------------------------------------------------------------------------------------

SECRET = "s3cr3t-w0rd"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:{}@127.0.0.1:1/nowhere",
        "postgresql://someone@127.0.0.1:1/nowhere?password={}",
        "postgresql://postgres:{}@{{host}}/no_such_database",
        "postgresql://no_such_role:{}@{{host}}/postgres",
        "postgresql://postgres:{}@{{host}}/postgres?no_such_option=1",
        "postgresql://postgres:{}@{{host}}/postgres?pooler=strange",
        "postgresql://postgres:{}@[{{host}}/postgres",
    ],
)
def test_no_error_shows_a_password(pg_url: str, url: str) -> None:
    """003-24: the password is masked in the message, in the repr and in the traceback."""
    url = url.format(SECRET).replace("{host}", urlsplit(pg_url).netloc.rpartition("@")[2])
    with pytest.raises((StorageError, InvalidInput)) as raised:
        open_engine(url, CALLER)
    said = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + str(raised.value)
    assert SECRET not in said
    assert len(str(raised.value)) > 20


def test_an_address_prints_itself_without_its_password(pg_database: str) -> None:
    engine = open_engine(pg_database.replace("postgres@", f"postgres:{SECRET}@"), CALLER)
    shown = repr(engine.address) + str(engine.facts())
    engine.release()
    assert SECRET not in shown
    assert "***" in shown


def test_a_missing_server_is_reported_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(StorageError) as raised:
        open_engine("postgresql://postgres@127.0.0.1:1/postgres", CALLER)
    assert raised.value.code == "unreachable"
    assert time.monotonic() - began < 10


def test_a_server_that_never_answers_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """libpq's ping holds the GIL, so a second attempt would block the whole process for the connection's timeout."""
    monkeypatch.setattr(connect, "pq", None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://reader@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=2&sslmode=disable"
        with pytest.raises(Fault) as caught:
            connect.connect(Address(url))
    assert caught.value.sqlstate == ABSENT


def test_a_server_without_a_free_connection_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """003-27: callers wait for a connection and then get Busy, not an error about the store."""
    monkeypatch.setattr(retry.RetryBudget.__init__, "__defaults__", (0.3,))
    with TemporaryPostgres("max_connections = 5\nsuperuser_reserved_connections = 0\nmax_wal_senders = 0") as server:
        held = [psycopg.connect(server.url) for _ in range(5)]
        with pytest.raises(Busy, match="no free connection"):
            PostgresEngine(server.url, CALLER)
        for connection in held:
            connection.close()
