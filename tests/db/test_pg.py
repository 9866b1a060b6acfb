"""The temporary PostgreSQL of the other tests is durable, and is always removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from standfast_prove.postgres import TemporaryPostgres

ROOT = Path(__file__).resolve().parents[2]
GONE_S = 30.0

KEEPER = """
import signal
from standfast_prove.postgres import TemporaryPostgres
server = TemporaryPostgres()
print(server.pid, server._root, flush=True)
signal.pause()
"""


def test_a_killed_server_starts_again_with_what_was_committed() -> None:
    with TemporaryPostgres(conf="application_name = 'standfast'") as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept (a integer)")
            connection.execute("INSERT INTO kept VALUES (1)")
        url, pid = server.url, server.pid
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.restart()
        assert (server.url, server.pid != pid) == (url, True)
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT a FROM kept").fetchall() == [(1,)]
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            assert connection.execute("SHOW application_name").fetchone() == ("standfast",)


def test_a_server_ends_when_the_process_that_started_it_is_killed() -> None:
    keeper = subprocess.Popen([sys.executable, "-c", KEEPER], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with keeper:
        assert keeper.stdout is not None
        pid, root = keeper.stdout.readline().split()
        keeper.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + GONE_S
    while (serving(int(pid)) or Path(root).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)  # poll: the process that would notify us is dead
    assert not serving(int(pid))
    assert not Path(root).exists()


def serving(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.without_store
def test_each_test_has_a_database_of_its_own(pg_database: str, pg_url: str) -> None:
    assert pg_database != pg_url
    with psycopg.connect(pg_database) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone()
        assert tables == (0,)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)


@pytest.mark.without_store
def test_engine_url_names_an_empty_store_on_each_engine(engine_url: str, tmp_path: Path) -> None:
    if engine_url.startswith("postgresql://"):
        with psycopg.connect(engine_url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    else:
        assert Path(engine_url).parent == tmp_path
        assert not Path(engine_url).exists()
