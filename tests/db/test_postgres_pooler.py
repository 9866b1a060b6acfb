"""Behind a transaction pooler: the engine relies on no session, because each transaction may get another one.

The pooler of most tests is `RotatingPooler`, which serves each transaction from another session.
If pgbouncer is installed, or STANDFAST_TEST_PGBOUNCER names it, a test uses it too.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from standfast.clock import SYSTEM
from standfast.core import journal
from standfast.db.contract import Caller
from standfast.db.postgres.engine import DIRECT_URL, PostgresEngine
from standfast.db.postgres.registry import open_engine
from standfast.db.sql import statement
from standfast.errors import InvalidInput
from standfast_prove.faults.proxy import RotatingPooler
from standfast_prove.postgres import launcher

CALLER = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)
PUT = statement("INSERT INTO lease (scope, name, fence) VALUES ('', :name, 1) RETURNING name", name="put")
COUNT = statement("SELECT count(*) AS n FROM lease", name="count")
PLANS = statement("SELECT count(*) AS n FROM pg_prepared_statements", name="plans")


@pytest.fixture
def pooler(pg_database: str) -> Iterator[RotatingPooler]:
    port = urlsplit(pg_database).port
    assert port is not None
    with RotatingPooler(port) as proxy:
        yield proxy


def work(engine: PostgresEngine, threads: int = 4, each: int = 15) -> int:
    """Use every operation of the engine from several threads. Returns the expected number of rows."""

    def one(worker: int) -> None:
        for n in range(each):
            name = f"{worker}:{n}"
            assert engine.write(lambda tx, name=name: tx.one(PUT, name=name), CALLER) == {"name": name}  # type: ignore[misc]
            engine.write(lambda tx, name=name: journal.append(tx, "x.y", name), CALLER)  # type: ignore[misc]
            engine.read(lambda tx: tx.one(COUNT), CALLER)
        with engine.transaction(CALLER) as tx:
            tx.run(PUT, name=f"{worker}:held")

    started = [threading.Thread(target=one, args=(worker,)) for worker in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(60)
    assert list(engine.rows("SELECT count(*) AS n FROM event")) == [{"n": threads * each}]
    return threads * (each + 1)


def test_everything_works_behind_a_transaction_pooler(pooler: RotatingPooler, pg_database: str) -> None:
    """The engine opens, migrates, writes, reads and holds a block, with each transaction in another session."""
    engine = open_engine(pooler.url(pg_database), CALLER)
    expected = work(engine)
    assert engine.read(lambda tx: tx.one(COUNT), CALLER) == {"n": expected}
    assert engine.facts()["pooler"] is True  # the engine noticed the pooler
    assert [engine.read(lambda tx: tx.one(PLANS), CALLER)["n"] for _ in range(3)] == [0, 0, 0]
    engine.release()
    assert pooler.transactions > 100
    assert pooler.impatient == 0


def test_behind_a_pooler_no_session_setting_is_left_changed(pooler: RotatingPooler, pg_database: str) -> None:
    engine = open_engine(pooler.url(pg_database), CALLER)
    work(engine, threads=2, each=5)
    with psycopg.connect(pooler.url(pg_database), autocommit=True, prepare_threshold=None) as other:
        for _ in range(pooler.SESSIONS):
            ask = "SELECT current_setting('search_path'), current_setting('statement_timeout')"
            assert other.execute(ask).fetchone() == ('"$user", public', "0")
            locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
            assert other.execute(locks).fetchone() == (0,)
            assert other.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)
    engine.release()


def test_a_pooler_that_hides_itself_is_noticed_at_the_first_lost_plan(pooler: RotatingPooler, pg_database: str) -> None:
    """Some poolers pass the server's process id on, so the engine cannot notice them when it connects."""
    engine = open_engine(pooler.url(pg_database), CALLER)
    engine._prepare = True  # as if the engine had not noticed the pooler
    engine._pool.renew()
    expected = work(engine)
    assert engine.read(lambda tx: tx.one(COUNT), CALLER) == {"n": expected}
    assert engine.facts()["pooler"] is True
    engine.release()


def test_a_declared_pooler_is_believed_and_the_parameter_is_not_sent_to_the_server(pg_database: str) -> None:
    engine = open_engine(pg_database + "?pooler=transaction", CALLER)
    assert engine.facts()["pooler"] is True
    engine.write(lambda tx: tx.run(PUT, name="a"), CALLER)
    assert engine.read(lambda tx: tx.one(PLANS), CALLER) == {"n": 0}
    engine.release()
    plain = open_engine(pg_database + "?application_name=mine&pooler=none", CALLER)
    name = statement("SELECT current_setting('application_name') AS name")
    assert plain.read(lambda tx: tx.one(name), CALLER) == {"name": "mine"}
    assert plain.facts()["pooler"] is False
    plain.release()


def test_behind_a_pooler_waiting_callers_poll_or_listen_on_a_direct_connection(
    pooler: RotatingPooler, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(pooler.url(pg_database), CALLER)
    with engine.watch() as watch:
        assert watch.wait(5.0) is True  # no notification came
    assert engine.facts()["listening"] is False
    engine.release()

    monkeypatch.setenv(DIRECT_URL, pg_database)
    engine = open_engine(pooler.url(pg_database), CALLER)
    other = open_engine(pg_database, CALLER)
    with engine.watch() as watch:
        deadline = time.monotonic() + 10
        while not engine.facts()["listening"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert engine.facts()["listening"] is True
        watch.wait(0)
        other.write(lambda tx: tx.run(PUT, name="b"), CALLER)
        assert watch.wait(5.0)
    other.release()
    engine.release()


# -- pgbouncer ----------------------------------------------------------------------------------------


@pytest.fixture
def bouncer(pg_database: str, tmp_path: Path) -> Iterator[str]:
    program = os.environ.get("STANDFAST_TEST_PGBOUNCER") or shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed: its own behaviour was NOT tested, only that of RotatingPooler")
    server, database = urlsplit(pg_database), pg_database.rpartition("/")[2]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "pgbouncer.ini").write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={server.port} dbname={database} user={server.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
        f"pool_mode = transaction\ndefault_pool_size = 2\nlogfile = {tmp_path}/log\n"
    )
    run = [*launcher().prefix, program, str(tmp_path / "pgbouncer.ini")]
    process = subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, f"pgbouncer ended as {getpass.getuser()}"
            time.sleep(0.02)
        yield pg_database.replace(f":{server.port}/", f":{port}/")
    finally:
        process.terminate()
        process.wait(20)


def test_everything_works_behind_pgbouncer(bouncer: str, pg_database: str) -> None:
    engine = open_engine(bouncer, CALLER)
    expected = work(engine)
    assert engine.read(lambda tx: tx.one(COUNT), CALLER) == {"n": expected}
    assert engine.facts()["pooler"] is True
    engine.release()


def test_an_unknown_kind_of_pooler_is_refused_by_name(pg_database: str) -> None:
    with pytest.raises(InvalidInput, match="pooler=sometimes"):
        open_engine(pg_database + "?pooler=sometimes", CALLER)
