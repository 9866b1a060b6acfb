"""An exception that hits one caller on PostgreSQL never reaches another caller.

The exception may come from a signal handler, from `PyThreadState_SetAsyncExc` or from a transaction. The connection
is returned to the pool only if the server's answer ended the transaction.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast.db.postgres.engine import PostgresEngine
from standfast.db.postgres.wire import Wire
from standfast_prove.faults.children import Child


class Hit(Exception):
    """The exception that a signal handler of the application raises."""


@pytest.fixture
def sf(pg_database: str, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(pg_database, data_dir=tmp_path) as opened:
        yield opened


def raising_once(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, *, after: bool) -> list[bool]:
    """The first call raises Hit before or after its work, as a signal handler could."""
    real, armed = getattr(target, name), [True]

    def hit(self: Any, *args: Any, **more: Any) -> Any:
        strike = armed[0] and threading.current_thread() is threading.main_thread()  # not in the thread that notifies
        armed[0] = armed[0] and not strike
        if strike and not after:
            raise Hit
        answer = real(self, *args, **more)
        if strike:
            raise Hit
        return answer

    monkeypatch.setattr(target, name, hit)
    return armed


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", ["send", "_send_prepared", "_sync", "collect", "_receive", "_answers", "end_later"])
def test_the_next_caller_never_reads_the_answers_of_another_transaction(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    """000-1, 002-10: libpq may have sent a command that the Python connection has not recorded."""
    sf.state.set("k", 7)
    armed = raising_once(monkeypatch, Wire, name, after=after)
    with contextlib.suppress(Hit):
        sf.state.get("k")
    assert not armed[0]
    assert [sf.state.get("k").value for _ in range(3)] == [7, 7, 7]
    sf.state.set("k", 8)
    assert sf.state.get("k").value == 8


def test_an_interrupted_write_is_rolled_back_and_its_rows_are_free(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch, pg_database: str
) -> None:
    """000-1: when a connection is discarded, its transaction on the server ends."""
    sf.state.set("k", 7)
    raising_once(monkeypatch, Wire, "_send_prepared", after=True)
    with pytest.raises(Hit):
        sf.state.set("k", 8)
    sf.state.set("k", 9)
    assert sf.state.get("k").value == 9
    ask = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'"
    with psycopg.connect(pg_database, autocommit=True) as admin:
        for _ in range(200):  # the server notices a closed connection when it next reads from it
            if admin.execute(ask).fetchall() == [(0,)]:
                return
            admin.execute("SELECT pg_sleep(0.05)")
    pytest.fail("a transaction stays open on the server")


def test_lost_connections_do_not_use_up_the_pool(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-11: a caller that is interrupted between taking a connection and using it returns its place in the pool."""
    engine = sf.engine
    assert isinstance(engine, PostgresEngine)
    from standfast.db.postgres.pool import CONNECTIONS_MAX, Pool

    for _ in range(CONNECTIONS_MAX + 2):
        with monkeypatch.context() as patch:
            raising_once(patch, Pool, "take", after=True)
            with pytest.raises(Hit):
                sf.state.set("k", 8)
        with monkeypatch.context() as patch:
            raising_once(patch, Pool, "give", after=False)
            with pytest.raises(Hit):
                sf.state.set("k", 8)
    sf.state.set("k", 9)
    assert engine._pool.use()["open"] <= CONNECTIONS_MAX


def test_a_foreign_exception_is_not_swallowed_by_a_lost_race(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-1: Ctrl-C after the server refused a statement ends the call; the transaction is not retried."""
    from standfast.db.postgres.tx import PostgresTx

    failed = PostgresTx._failed

    def interrupted(self: Any, fault: Exception) -> Exception:
        failed(self, fault)
        raise KeyboardInterrupt

    monkeypatch.setattr(PostgresTx, "_failed", interrupted)
    runs: list[int] = []

    def body(tx: Any) -> None:
        from standfast.db.sql import statement

        runs.append(1)
        tx.all(statement("SELECT 1 / 0 AS n"))

    with pytest.raises(KeyboardInterrupt):
        sf._store.write(body)
    assert runs == [1]


@pytest.mark.parametrize("how", ["signal", "thread"])
@pytest.mark.parametrize("what", ["write", "block", "read"])
def test_an_exception_at_any_point_hits_only_its_caller(pg_database: str, tmp_path: Path, what: str, how: str) -> None:
    """000-1, 002-10, 002-11: a sample of the campaign `interrupts-postgres`."""
    with Child(
        "standfast_prove.campaigns.interrupts_postgres:interrupt_everywhere",
        url=pg_database,
        directory=str(tmp_path),
        what=what,
        how=how,
        every=5,
        first=1,
    ) as child:
        hits, complaints = child.end(200)
    assert int(hits) > 10
    assert complaints == "[]"


def test_an_exception_while_opening_leaves_the_store_to_others(pg_database: str, tmp_path: Path) -> None:
    """000-1, 002-11: the next thread can open the store."""
    with Child(
        "standfast_prove.campaigns.interrupts_postgres:open_everywhere",
        url=pg_database,
        directory=str(tmp_path),
        every=25,
        first=1,
    ) as child:
        hits, complaints = child.end(200)
    assert int(hits) > 10
    assert complaints == "[]"


def test_a_storm_of_exceptions_hurts_only_those_it_hits(pg_database: str, tmp_path: Path) -> None:
    """000-1, 002-11: four threads are interrupted at random; four others get no error, lose no row and do not hang."""
    with Child(
        "standfast_prove.campaigns.interrupts_postgres:storm",
        url=pg_database,
        directory=str(tmp_path),
        seed=1,
        acts=150,
    ) as child:
        hits, complaints = child.end(200)
    assert int(hits) > 10
    assert complaints == "[]"
