"""The report after a crash: each piece that is left open, and the command that settles it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.views import recovery
from tests.others import Other


def test_nothing_to_settle_is_an_empty_report(sf: standfast.Standfast) -> None:
    report = sf.recovery.report()
    assert not report
    assert report.items == []


def test_a_lock_of_a_killed_process_is_listed_with_its_command(engine_url: str, tmp_path: Path) -> None:
    """001-64: a lock that a dead holder still has is shown as such."""
    code = (
        "import os, signal, sys, standfast\n"
        "sf = standfast.open(sys.argv[1], data_dir=sys.argv[2])\n"
        "sf.leases.acquire('deploy', note='ship it')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, engine_url, str(tmp_path / "data")], timeout=60)
    assert done.returncode == -9
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        (item,) = sf.recovery.report().items
        assert (item.kind, item.id) == ("lock_expired", "lock:deploy")
        assert item.command == "standfast lock deploy --release"
        assert sf.leases.acquire("deploy").fence == 2
        assert not sf.recovery.report()


def test_the_records_were_written_before_their_process_died(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    """001-2, 001-56: the report has decisions with reasons, the state of tasks, configuration and errors."""
    code = """
        sf.state.set("retries", 3, namespace="config")
        task = sf.tasks.add("deploy it")
        try:
            with sf.session("first") as s:
                raise ValueError("no such branch")
        except ValueError:
            pass
        with sf.session("work") as s:
            sf.tasks.claim(task)
            with s.decide("deploy 1.2", why="the tests are green", then="deploy"):
                s.say("assistant", "deploying")
                say("ready")
                wait()
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("ready")
        other.kill()
    (decision,) = sf.decisions.incomplete()
    assert (decision.what, decision.why, decision.then) == ("deploy 1.2", "the tests are green", "deploy")
    (task,) = sf.tasks.list()
    assert (task.title, task.standing, task.reclaimable) == ("deploy it", "gone", True)
    assert sf.state.get("retries", namespace="config").value == 3
    assert sf.sessions.get("first").reason == "ValueError: no such branch"
    assert [message.content for message in sf.sessions.messages("work")] == ["deploying"]
    assert sf.sessions.get("work").crashed


def test_a_lock_that_ran_out_is_listed_and_a_live_one_is_not(engine_url: str, tmp_path: Path) -> None:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        sf.leases.acquire("deploy")
        assert not sf.recovery.report()
        clock.advance("61s")
        assert [item.kind for item in sf.recovery.report().items] == ["lock_expired"]


def test_a_killed_daemon_is_reported_with_the_command_that_starts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's lock is not listed as a lock, because giving it back would not start a daemon."""
    monkeypatch.chdir(tmp_path)  # outside any repository, because the daemon's lock is there
    clock = ManualClock()
    with standfast.open(data_dir=tmp_path / "data", clock=clock) as sf:
        sf.leases.acquire("daemon:ada@vm")
        clock.advance("61s")
        (item,) = sf.recovery.report().items
        assert (item.command, "daemon was killed" in item.what) == ("standfast daemon start", True)


@pytest.mark.parametrize(
    "name",
    [
        *("dispatched_effects", "held_sessions", "waiting_sessions", "open_decisions", "waiting_approvals"),
        *("held_locks", "dead_letters", "waiting_boxes", "waiting_runs"),
    ],
)
def test_the_report_reads_only_open_rows(tmp_path: Path, name: str) -> None:
    """002-13: the question for work that needs a person does not read the closed rows."""
    statement = getattr(recovery.SQL, name)
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as sf:
        asked = {"at_us": -1, "id": "", "limit": 1, "now_us": 0, "late_us": 0, "boot_id": "", "mono_us": 0}
        connection = sf.engine.connection  # type: ignore[attr-defined]
        plan = " ".join(
            row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement.sqlite}", statement.bind(asked))
        )
    assert "USING INDEX" in plan, plan
