"""The journal's tail on PostgreSQL, where rows become visible in another order than that of their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from standfast.clock import SYSTEM
from standfast.db.contract import Caller
from standfast.db.postgres.registry import open_engine
from standfast.db.store import Store
from standfast.footings import journal

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
        assert read_all(log, None, 50) == ([], None)  # not before the first of them is decided
        slow.commit()
        assert read_all(log, None, 50)[0] == ["early", "late"]


def test_a_tail_beside_many_writers_sees_every_row_once(store: Store) -> None:
    """Across pages, while rows become visible in any order."""
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
