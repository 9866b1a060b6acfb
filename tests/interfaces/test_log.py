"""The logger `standfast`: what an operator sees with `--verbose`, and that a library prints only warnings by itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

import standfast
from standfast import log
from standfast.db.contract import Engine
from standfast.errors import CommitUnknown
from tests.walks import Names, opened


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=log.NAME)
    return caplog


@pytest.mark.without_store
def test_a_new_store_logs_its_migration_and_its_opening(
    engine_url: str, tmp_path: Path, events: pytest.LogCaptureFixture
) -> None:
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        migrated, opened = events.messages
        assert migrated.startswith("migrated from schema 0 to ")
        assert opened == f"opened {sf._store.shown}, store {sf._store.pin[0]}"
    with standfast.open(engine_url, data_dir=tmp_path / "data"):
        assert events.messages[2:] == [opened]


def test_a_store_logs_that_it_opened_a_new_engine(sf: standfast.Standfast, events: pytest.LogCaptureFixture) -> None:
    engine: Engine = sf._store.engine
    engine.close()
    engine.dead = CommitUnknown("the database file was replaced", "")
    sf.tasks.add("go on")
    (reopened,) = [message for message in events.messages if message.startswith("reopened")]
    assert reopened == f"reopened {sf._store.shown}: the database file was replaced"


def test_a_retry_is_logged(pg_database: str, tmp_path: Path, events: pytest.LogCaptureFixture) -> None:
    """000-12: the call is repeated after the server closed its connection."""
    with standfast.open(pg_database, data_dir=tmp_path / "data") as sf:
        sf.tasks.add("one")
        with psycopg.connect(pg_database, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND datname = current_database()"
            )
        sf.tasks.add("two")
        assert any(message.startswith("retry 1: ") for message in events.messages)


def test_a_session_taken_over_is_logged(engine_url: str, tmp_path: Path, events: pytest.LogCaptureFixture) -> None:
    """001-64: with the holder that was found dead."""
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child,
        opened(engine_url, tmp_path, Names(), as_actor=False, pid=child.pid) as first,
    ):
        holder = first.sessions.open("work").record.holder
        child.kill()
        child.wait()
        with opened(engine_url, tmp_path, Names(), as_actor=False) as second:
            second.sessions.open("work")
    assert events.messages[-1] == f"session work taken over from {holder}"


def test_without_a_handler_only_a_warning_is_printed() -> None:
    code = "import logging, standfast.log as log\nlog.info('one')\nlog.warning('two')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "two\n")


def test_verbose_prints_the_events_on_stderr_and_the_same_answer(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-m", "standfast", *words], env=environment, capture_output=True, text=True
        )

    added = run("--verbose", "task", "add", "look", "--json")
    assert "standfast: migrated from schema 0 to " in added.stderr
    assert "standfast: opened " in added.stderr
    quiet, verbose = run("task", "list", "--json"), run("--verbose", "task", "list", "--json")
    assert quiet.stdout == verbose.stdout
    assert "standfast: opened " not in quiet.stderr
    assert "standfast: opened " in verbose.stderr
