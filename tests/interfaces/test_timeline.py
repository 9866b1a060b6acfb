"""The timeline shows the events around a time, from the journal only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.core import journal

START_US = 1_794_279_600_000_000  # Tue 2026-11-10 03:00:00 UTC


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def night(engine_url: str, tmp_path: Path) -> standfast.Standfast:
    """A store with events at 02:40, 03:00 and 04:30. The clock is at 09:00."""
    clock = ManualClock(START_US)
    sf = standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock)
    clock.jump("-20m")
    sf.leases.acquire("early")
    clock.jump("20m")
    sf._store.write(lambda tx: journal.append(tx, "task.added", "tsk_1", summary="a flaky test", source="said"))
    clock.jump("90m")
    sf.leases.acquire("late")
    clock.jump("270m")
    return sf


def test_the_window_is_around_the_moment_and_in_order(night: standfast.Standfast) -> None:
    """000-17: the timeline shows the events of 3am on Tuesday, without asking an agent."""
    found = night.timeline(at="tue 03:00", window="1h")
    assert [(entry.type, entry.source) for entry in found.entries] == [
        ("lease.acquired", "seen"),
        ("task.added", "said"),
    ]
    assert str(found.at) == "Tue 2026-11-10 03:00:00 UTC"
    assert not found.truncated
    night.close()


def test_a_time_without_events_is_shown_as_a_gap_with_both_ends(night: standfast.Standfast) -> None:
    """000-16: the timeline shows when nothing ran."""
    found = night.timeline(at="04:00", window="30m")
    assert found.entries == []
    assert [(gap.from_us, gap.until_us) for gap in found.gaps] == [(START_US, START_US + 90 * 60 * 1_000_000)]
    assert night.timeline(at="tue 02:00", window="1h").gaps[0].open_start
    assert night.timeline(at="now", window="2h").gaps[-1].open_end
    night.close()


def test_it_can_be_narrowed_by_subject_type_and_actor(night: standfast.Standfast) -> None:
    wide = {"at": "tue 03:30", "window": "4h"}
    assert [e.subject for e in night.timeline(**wide, subject="lock:late").entries] == ["lock:late"]
    assert [e.type for e in night.timeline(**wide, type="task").entries] == ["task.added"]
    assert len(night.timeline(**wide, type="lease.acquired").entries) == 2
    assert night.timeline(**wide, agent="another").entries == []
    assert len(night.timeline(**wide, agent=night.agent).entries) == 3
    night.close()


def test_another_scope_is_shown_only_on_request(night: standfast.Standfast) -> None:
    night._store.caller.scope = "elsewhere"
    assert night.timeline(at="tue 03:00").entries == []
    assert len(night.timeline(at="tue 03:00", everywhere=True).entries) == 2
    night.close()


def test_a_limit_cuts_the_list_and_is_reported(night: standfast.Standfast) -> None:
    found = night.timeline(at="tue 03:30", window="4h", limit=2)
    assert len(found.entries) == 2
    assert found.truncated
    night.close()


def test_an_unknown_subject_is_refused_by_name(night: standfast.Standfast) -> None:
    with pytest.raises(standfast.NotFound, match="no session 'nope'"):
        night.timeline(session="nope")
    with pytest.raises(standfast.InvalidInput, match="not a time"):
        night.timeline(at="whenever")
    with pytest.raises(standfast.InvalidInput):
        night.timeline(window="0s")
    night.close()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "standfast", *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_shows_people_a_table_and_programs_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    with standfast.open() as sf:
        sf.leases.acquire("deploy", note="ship it")
    text = run("timeline")
    assert text.returncode == 0, text.stderr
    assert "UTC" in text.stdout.splitlines()[0]
    assert "lease.acquired  ship it" in text.stdout
    data = json.loads(run("timeline", "--json").stdout)["data"]
    assert [entry["subject"] for entry in data["entries"]] == ["lock:deploy"]
    assert run("timeline", "--md").stdout.startswith("## ")
    assert run("timeline", "--at", "whenever").returncode == 2
    assert run("timeline", "--at", "2001-02-03").stdout.splitlines()[1].startswith("(nothing before ")
    assert "next: standfast timeline --since 1d --all" in run("timeline", "--all", "--at", "2001-02-03").stderr


def test_an_open_item_is_marked_beside_its_last_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entry of a killed agent looks like any other, so the timeline marks that its item is still open."""
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    agent = """
import os, signal, standfast
with standfast.open() as sf, sf.session("fix-42") as s:
    s.effect("deploy", {"to": "prod"}, do=lambda call: os.kill(os.getpid(), signal.SIGKILL))
"""
    subprocess.run([sys.executable, "-c", agent], timeout=60)
    told = run("timeline").stdout
    assert "session.opened  fix-42 (crashed: its process is gone)" in told
    assert "effect.dispatched  deploy to=prod (still in doubt)" in told
    assert told.count("still in doubt") == 1


def test_the_approver_is_named_and_not_the_agent_that_asked(engine_url: str, tmp_path: Path) -> None:
    """R39, 000-17: `granted`, `denied` and `resolved` name the person who answered."""
    with standfast.open(engine_url, data_dir=tmp_path / "data", agent="ann") as sf:
        for n, answer in enumerate((sf.approvals.grant, sf.approvals.deny)):
            with (
                pytest.raises(standfast.ApprovalRequired) as caught,
                sf.session(f"job-{n}", agent="claude-code") as s,
            ):
                s.effect("Bash", {"n": n}, approve=True, do=lambda call: None)
            answer(str(caught.value.approval_id), approver="root@vm:pts/0")

        def dies(call: standfast.Call) -> None:
            raise RuntimeError("the line is dead")

        with pytest.raises(RuntimeError), sf.session("job-2", agent="claude-code") as s:
            s.effect("deploy", {}, do=dies)
        (effect,) = sf.effects.in_doubt()
        sf.effects.resolve(effect.id, "applied", evidence="looked")
        who = {entry.type: entry.agent for entry in sf.timeline().entries}
        recorded = {event.type: event.agent for event in sf.journal.tail(limit=100).events}
        assert who["approval.requested"] == "claude-code"
        for type in ("approval.granted", "approval.denied", "effect.resolved"):
            assert who[type] == recorded[type] != "claude-code"


def test_a_row_does_not_name_an_agent_that_took_the_session_over_later(engine_url: str, tmp_path: Path) -> None:
    """000-17: a session has the name of its present agent; rows of another actor keep the name of that actor."""
    agent = """
import os, sys, standfast
with standfast.open(sys.argv[1], data_dir=sys.argv[2], agent=sys.argv[3]) as sf:
    s = sf.session("shared", agent=sys.argv[4]).__enter__()
    os._exit(9)
"""
    data = tmp_path / "data"
    for words in (("coder", "coder"), ("claude-code:9f2c", "claude-code"), ("claude-code:77aa", "claude-code")):
        subprocess.run([sys.executable, "-c", agent, engine_url, str(data), *words], timeout=60)
    with standfast.open(engine_url, data_dir=data) as sf:
        opened = [("coder", "session.opened"), *[("claude-code", "session.taken_over")] * 2]
        assert [(entry.agent, entry.type) for entry in sf.timeline(session="shared").entries] == opened
        assert [entry.agent for entry in sf.timeline(agent="coder").entries] == ["coder"]
        assert [entry.agent for entry in sf.timeline(agent="claude-code").entries] == ["claude-code"] * 2
        sf.sessions.say("shared", "user", "stop")
        said = sf.timeline(session="shared").entries[-1]
        assert (said.type, said.agent) == ("message.said", sf.agent)


def test_every_short_id_that_the_table_prints_is_found_again(engine_url: str, tmp_path: Path) -> None:
    """000-17: `--subject` takes what the table printed, for every kind of thing."""
    from standfast.ids import is_id, short

    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.tasks.add("flaky test")
        sf.mail.send("coder", "hello")
        sf.decisions.record("take SQLite")
        sf.loops.add("nightly", ["true"], every="1h")
        with sf.session("job") as s:
            s.effect("deploy", {}, do=lambda call: None)
        entries = sf.timeline().entries
        subjects = {entry.subject for entry in entries if is_id(entry.subject)}
        assert {id[:3] for id in subjects} >= {"tsk", "mal", "dec", "lop", "ses", "eff"}
        for id in subjects:
            for typed in (id, short(id), short(id).upper(), f"{id[:4]}{short(id)}"):
                assert {entry.subject for entry in sf.timeline(subject=typed).entries} == {id}, typed
        assert sf.timeline(subject="lock:none").entries == []
        assert sf.timeline(session=short(next(id for id in subjects if id.startswith("ses_")))).entries != []


def test_the_end_of_two_ids_is_refused_with_both(engine_url: str, tmp_path: Path) -> None:
    """000-17: otherwise the events of two rows would look like those of one."""
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        ids = [f"{prefix}_{'0' * 20}9k2m4x" for prefix in ("tsk", "eff")]
        for id in ids:
            sf._store.write(lambda tx, id=id: journal.append(tx, "task.added", id))
        with pytest.raises(standfast.InvalidInput, match="more than one id") as caught:
            sf.timeline(subject="9k2m4x")
        assert all(id in caught.value.hint for id in ids)
        assert [entry.subject for entry in sf.timeline(subject="tsk_9k2m4x").entries] == ids[:1]


def test_a_truncated_table_prints_the_command_that_shows_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-17: the command that is printed shows all of it."""
    import shlex

    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    with standfast.open() as sf:
        for n in range(12):
            sf.leases.acquire(f"lock {n}")
    cut = run("timeline", "--limit", "5", "--type", "lease")
    assert cut.stdout.count("lease.acquired") == 5
    (line,) = [line for line in cut.stderr.splitlines() if "more was recorded" in line]
    words = shlex.split(line.partition("standfast ")[2])
    assert run(*words).stdout.count("lease.acquired") == 12
    assert "next: standfast timeline --since 30d --subject 'lock:lock 4'" in cut.stderr
