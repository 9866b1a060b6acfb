"""The journal's tail on PostgreSQL, where rows do not become visible in the order of their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import standfast
from standfast import config, handle
from standfast.admin.doctor import examine
from standfast.clock import SYSTEM
from standfast.core import journal
from standfast.daemon.keeper_client import RunOutputs
from standfast.daemon.tick import Daemon, Options
from standfast.db.contract import Caller
from standfast.db.postgres import user_queries
from standfast.db.postgres.registry import open_engine
from standfast.db.store import Store
from standfast.record.events import follow
from standfast_prove.postgres import TemporaryPostgres, fresh_database

CALLER = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)
EVENT = (
    "INSERT INTO standfast.event (xid, time_us, occurred_us, scope, actor, holder, source, type, subject)"
    " VALUES (CAST(%s AS xid8), 1, 1, '', 'a', 'h', 'seen', 'x.y', %s)"
)


@pytest.fixture
def store(pg_database: str) -> Iterator[Store]:
    opened = Store(lambda caller: open_engine(pg_database, caller), CALLER, lambda: "h")
    yield opened
    opened.close()


def read_all(log: journal.Journal, cursor: str | None, limit: int) -> tuple[list[str], str | None]:
    subjects: list[str] = []
    while (page := log.tail(cursor, limit=limit)).events:
        subjects += [event.subject for event in page.events]
        cursor = page.cursor
    return subjects, cursor


@pytest.mark.parametrize("limit", [1, 2, 50])
@pytest.mark.parametrize("settled", ["", "6", "3"])
def test_transactions_are_ordered_by_their_number_and_not_by_its_digits(
    store: Store, pg_database: str, limit: int, settled: str
) -> None:
    with psycopg.connect(pg_database) as admin:
        for xid in ("8", "9", "10", "99", "100", "101"):
            admin.execute(EVENT, (xid, xid))
        admin.execute("UPDATE standfast.meta SET value = %s WHERE key = 'settled_seq'", (settled,))
    log = journal.Journal(store)
    subjects, cursor = read_all(log, None, limit)
    assert subjects == ["8", "9", "10", "99", "100", "101"]
    assert log.now() == cursor


def test_a_row_committed_late_is_neither_skipped_nor_overtaken(store: Store, pg_database: str) -> None:
    log = journal.Journal(store)
    with psycopg.connect(pg_database) as slow:
        slow.execute(EVENT.replace("CAST(%s AS xid8)", "DEFAULT"), ("early",))
        store.write(lambda tx: journal.append(tx, "x.y", "late"))
        assert read_all(log, None, 50) == ([], None)  # not before the first transaction has ended
        slow.commit()
        assert read_all(log, None, 50)[0] == ["early", "late"]


def test_a_tail_beside_many_writers_sees_every_row_once(store: Store) -> None:
    """The tail reads several pages while rows become visible in any order."""
    writers, each = 6, 60

    def write(worker: int) -> None:
        for n in range(each):
            store.write(lambda tx, n=n: journal.append(tx, "x.y", f"{worker}:{n}"))  # type: ignore[misc]

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(writers)]
    for thread in threads:
        thread.start()
    log, seen, cursor = journal.Journal(store), list[str](), None
    while any(thread.is_alive() for thread in threads):
        more, cursor = read_all(log, cursor, 7)
        seen += more
    for thread in threads:
        thread.join()
    seen += read_all(log, cursor, 7)[0]
    assert len(seen) == len(set(seen)) == writers * each


# -- held back by another transaction -------------------------------------------------------------------------


@pytest.fixture
def neighbour(pg_url: str, pg_database: str) -> Iterator[psycopg.Connection[object]]:
    """An open transaction with a transaction id, in another database of the same server."""
    with fresh_database(pg_url) as other, psycopg.connect(other, application_name="nightly-report") as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield connection
        connection.rollback()


def test_an_open_transaction_in_another_database_is_named(
    store: Store, neighbour: psycopg.Connection[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-11: all databases of a server share transaction ids, so it delays every reader of every journal."""
    log = journal.Journal(store)
    store.write(lambda tx: journal.append(tx, "x.y", "waits"))
    assert read_all(log, None, 50) == ([], None)
    assert store.engine.held_back() == ""  # for a short time, as every writer does
    monkeypatch.setattr(user_queries, "HELD_BACK_S", 0.0)
    said = store.engine.held_back()
    assert f"server process {neighbour.info.backend_pid} of" in said
    assert f"in database {neighbour.info.dbname} (nightly-report) has kept a transaction open for" in said
    assert f"pg_terminate_backend({neighbour.info.backend_pid})" in said
    neighbour.rollback()
    assert store.engine.held_back() == ""
    assert read_all(log, None, 50)[0] == ["waits"]


def test_a_role_without_rights_is_notified_too(
    store: Store, pg_database: str, neighbour: psycopg.Connection[object]
) -> None:
    """The server hides the times of other roles, so the message has the process but not its age."""
    with psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain_reader LOGIN")
        try:
            url = make_conninfo_url(pg_database, "plain_reader")
            with psycopg.connect(url) as connection:
                rows = connection.execute(user_queries._HELD_BACK).fetchall()
            assert [(row[0], row[5]) for row in rows] == [(neighbour.info.backend_pid, None)]
        finally:
            admin.execute("DROP ROLE plain_reader")


def make_conninfo_url(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()


def test_a_prepared_transaction_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryPostgres("max_prepared_transactions = 2") as server:
        engine = open_engine(server.url, CALLER)
        with psycopg.connect(server.url, autocommit=True) as admin:
            for text in ("BEGIN", "SELECT pg_current_xact_id()", "PREPARE TRANSACTION 'forgotten'"):
                admin.execute(text)
            monkeypatch.setattr(user_queries, "HELD_BACK_S", 0.0)
            said = engine.held_back()
            assert "the prepared transaction 'forgotten' of" in said
            assert said.endswith("ROLLBACK PREPARED 'forgotten'")
        engine.release()


def test_a_follower_the_daemon_and_doctor_name_it(
    pg_database: str, neighbour: psycopg.Connection[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-11: each of them names the transaction once, with the process to end."""
    monkeypatch.setattr(user_queries, "HELD_BACK_S", 0.0)
    monkeypatch.setattr(follow, "HELD_BACK_EVERY_S", 0.0)
    monkeypatch.setenv("STANDFAST_DB_URL", pg_database)
    process = f"server process {neighbour.info.backend_pid} of"
    with standfast.open(pg_database, data_dir=tmp_path) as sf:
        said: list[str] = []
        with sf.events.follow() as tail:
            tail.on_held_back = said.append
            assert tail.within(0.3) is None
            assert tail.within(0.3) is None
        assert [one.startswith(process) for one in said] == [True]
        daemon = Daemon(sf, RunOutputs(str(tmp_path), SYSTEM), Options(), said.append)
        daemon.tick()
        daemon.tick()
        assert [one.startswith(process) for one in said].count(True) == 2
    found = {one.id: one for one in examine(lambda: config.load(quiet=True), handle.connect)}
    assert found["journal"].state == "warn"
    assert found["journal"].text.startswith(process)
    assert "pg_terminate_backend" in found["journal"].remedy
