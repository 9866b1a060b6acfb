"""Loops in a shell. `standfast`, `doctor` and `timeline` report a loop that stopped firing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle, when
from standfast.cli import app
from standfast.clock import DAY_US, ManualClock
from standfast.record.loops import Loop

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "data"
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(place))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    return place


def said(capsys: Capture, *words: str) -> Any:
    """The `data` of a command that must succeed."""
    code = app.run(["--json", *words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)["data"]


def refused(capsys: Capture, *words: str) -> tuple[int, str, str]:
    code = app.run(["--json", *words])
    error = json.loads(capsys.readouterr().err.splitlines()[-1])["error"]
    return code, error["message"], error["hint"]


def test_a_loop_is_added_listed_paused_resumed_and_removed(capsys: Capture, tmp_path: Path) -> None:
    added = said(capsys, "loop", "add", "nightly", "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--retries", "2",
                 "--timeout", "1h", "--env", "LEVEL=9", "--", "make", "nightly", "--all")  # fmt: skip
    assert (added["change"], added["command"], added["cwd"]) == ("new", ["make", "nightly", "--all"], str(tmp_path))
    assert (added["retries_max"], added["timeout_us"], added["environment"]) == (2, 3_600_000_000, {"LEVEL": "9"})
    assert added["receipt"]["seq"] > 0
    assert [one["name"] for one in said(capsys, "loop", "list")] == ["nightly"]
    assert said(capsys, "loop", "pause", "nightly", "--reason", "disk")["reason"] == "disk"
    assert said(capsys, "loop", "resume", "nightly")["state"] == "active"
    assert said(capsys, "loop", "show", "nightly")["runs"] == []
    assert said(capsys, "loop", "remove", "nightly")["state"] == "removed"
    assert said(capsys, "loop", "list") == []


def test_changing_a_paused_loop_prints_that_it_is_still_paused(capsys: Capture) -> None:
    """003-40: the printed next command resumes the loop."""
    add = ["loop", "add", "nightly", "--every", "1h", "--", "make"]
    said(capsys, *add)
    said(capsys, "loop", "pause", "nightly", "--reason", "disk")
    assert app.run([*add, "all"]) == 0
    out, err = capsys.readouterr()
    assert out == "nightly is changed: it runs make all, every 1h, and is still paused: disk\n"
    assert err == "next: standfast loop resume nightly\n"


def test_a_schedule_before_the_command_is_understood(capsys: Capture) -> None:
    for typed, kind in (("0 3 * * *", "cron"), ("@daily", "cron"), ("15m", "every"), ("every 2h", "every")):
        added = said(capsys, "loop", "add", "guess", typed, "--", "make", "test")
        assert (added["kind"], added["command"]) == (kind, ["make", "test"])


def test_a_value_that_looks_secret_is_never_printed(capsys: Capture) -> None:
    words = ["--env", "API_TOKEN=hunter2", "--env", "DB=postgres://ann:hunter2@db/x", "--env", "MODE=fast"]
    assert app.run(["loop", "add", "nightly", "--every", "1h", *words, "--", "true"]) == 0
    for command in (["loop", "list"], ["loop", "show", "nightly"], ["loop", "runs"], ["timeline"], ["status"]):
        assert app.run(command) == 0
        assert app.run([*command, "--json"]) == 0
    everything = "".join(capsys.readouterr())
    assert "hunter2" not in everything
    assert "MODE" in everything


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["add", "x", "--", "true"], 2, "one schedule"),
        (["add", "x", "--every", "5m"], 2, "needs a command"),
        (["add", "x", "--every", "often", "--", "true"], 2, "not a duration"),
        (["add", "x", "--every", "5m", "--cron", "* * * * *", "--", "true"], 2, "one schedule"),
        (["add", "x", "--at", "2001-01-01", "--", "true"], 2, "is in the past"),
        (["add", "x", "--every", "5m", "--env", "A", "--", "true"], 2, "no value"),
        (["add", "x", "--every", "5m", "--overlap", "kill", "--", "true"], 2, "overlap"),
        (["add", "x", "--every", "5m", "--zone", "Nowhere", "--", "true"], 2, "time zone"),
        (["show", "nope"], 3, "no loop 'nope'"),
        (["cancel", "9k2m4x"], 3, "no run"),
        (["runs", "--since", "whenever"], 2, "is not a time"),
        (["runs", "--after", "x"], 2, "is not a cursor"),
    ],
)
def test_errors_have_their_message_and_exit_code(capsys: Capture, words: list[str], code: int, message: str) -> None:
    assert app.run(["loop", "add", "there", "--every", "1h", "--", "true"]) == 0
    capsys.readouterr()
    found, told, hint = refused(capsys, "loop", *words)
    assert (found, message in told) == (code, True), told
    assert hint


def test_a_run_in_this_terminal_exits_as_its_command_and_is_recorded(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """000-14: every run is recorded, failures included."""
    assert app.run(["loop", "add", "job", "--every", "1h", "--", "sh", "-c", "echo $STANDFAST_LOOP; exit 3"]) == 0
    capfd.readouterr()
    assert app.run(["loop", "run", "job", "--here"]) == 3
    assert capfd.readouterr().out == "job\n"
    assert app.run(["loop", "add", "gone", "--every", "1h", "--", "/no/such/command"]) == 0
    assert app.run(["loop", "run", "gone", "--here"]) == 1
    assert app.run(["loop", "add", "slow", "--every", "1h", "--timeout", "200ms", "--", "sleep", "60"]) == 0
    assert app.run(["loop", "run", "slow", "--here"]) != 0
    capfd.readouterr()
    assert app.run(["loop", "run", "job"]) == 0
    assert capfd.readouterr().out.startswith("run_")
    assert app.run(["loop", "runs", "--json"]) == 0
    runs = json.loads(capfd.readouterr().out)["data"]
    assert [(run["loop"], run["state"], run["exit_code"]) for run in runs] == [
        ("job", "queued", None),
        ("slow", "timed_out", -15),
        ("gone", "failed", None),
        ("job", "failed", 3),
    ]
    assert app.run(["loop", "cancel", runs[0]["id"][-8:]]) == 0
    assert app.run(["loop", "cancel", runs[0]["id"][-8:]]) == 4


def test_a_requested_run_says_that_it_waits_for_a_daemon(capsys: Capture) -> None:
    """003-40: stdout has only the id, for scripts."""
    assert app.run(["loop", "add", "job", "--every", "1h", "--", "true"]) == 0
    capsys.readouterr()
    assert app.run(["loop", "run", "job"]) == 0
    out, err = capsys.readouterr()
    end = out.strip()[-6:]
    assert err.splitlines() == [
        "standfast: the run waits for a daemon, and no daemon runs; to run it here, cancel it and add --here",
        "next: standfast daemon start",
        f"  or: standfast loop cancel {end}",
    ]


def test_a_requested_run_names_the_account_whose_daemon_starts_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.run(["loop", "add", "job", "--every", "1h", "--", "true"]) == 0
    capsys.readouterr()
    uname = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((uname[0], "elsewhere", *uname[2:])))
    assert app.run(["loop", "run", "job"]) == 0
    err = capsys.readouterr().err
    assert "standfast: no daemon of this account starts the run: it belongs to " in err
    assert "next: standfast loop runs job" in err


# -- a loop that stopped firing --------------------------------------------------------------------------


def stopped(days: int = 21) -> Loop:
    """A nightly loop that fired once. Then no daemon ran."""
    clock = ManualClock((time.time_ns() // 1000 // DAY_US - days - 1) * DAY_US)
    with handle.connect(config.load(), clock=clock) as sf:
        loop = sf.loops.add("nightly", ["make"], cron="0 3 * * *", zone="UTC")
        clock.advance("4h")
        sf.loops.fire_due()
        run = sf.runs.claim(host="here")
        assert run is not None
        sf.runs.finish(run.id, 1, exit_code=0, duration="1us")
    return loop


def test_a_nightly_job_that_stopped_three_weeks_ago_is_reported_everywhere(capsys: Capture) -> None:
    """000-16, 000-17: no daemon recorded the missing slots, so commands compute them from the schedule."""
    stopped()
    (need,) = said(capsys, "status")["needs"]
    assert need["kind"] == "loop_absent"
    assert "'nightly' did not run: no daemon fired it, 2" in need["what"]
    (finding,) = [one for one in said(capsys, "doctor") if one["id"] == "loops"]
    assert finding["state"] == "warn"
    assert "did not run: no daemon fired it" in finding["text"]
    runs = said(capsys, "loop", "runs", "nightly", "--since", "3w")
    assert [run["state"] for run in runs] == ["absent"]
    assert runs[0]["slots"] in (21, 22)
    moment = time.strftime("%Y-%m-%d 03:00 UTC", time.gmtime(time.time() - 7 * 86_400))
    found = said(capsys, "timeline", "--at", moment)["entries"]
    assert [(entry["type"], entry["state"]) for entry in found] == [("run.absent", "absent")]
    assert "nightly did not run: no daemon fired it" in found[0]["summary"]
    assert app.run(["loop", "runs", "nightly"]) == 0
    told = capsys.readouterr()
    assert "absent" in told.out
    assert "did not run: " in told.err


def test_missed_slots_are_in_the_timeline_at_their_own_times(capsys: Capture) -> None:
    """000-17: the journal has one line for the gap, the timeline one for each slot in its window."""
    stopped()
    with standfast.open() as sf:
        assert len(sf.loops.fire_due()) in (21, 22)
    assert said(capsys, "status")["needs"] == []
    moment = time.strftime("%Y-%m-%d 03:00 UTC", time.gmtime(time.time() - 7 * 86_400))
    (entry,) = said(capsys, "timeline", "--at", moment)["entries"]
    assert entry["type"] == "run.missed"
    assert "no daemon was running" in entry["summary"]
    assert said(capsys, "timeline", "--at", moment, "--type", "task")["entries"] == []
    first = time.strftime("%Y-%m-%d 03:00 UTC", time.gmtime(time.time() - 21 * 86_400))
    assert len(said(capsys, "timeline", "--at", first)["entries"]) == 1  # not twice: this is the line of the journal


def test_a_loop_that_paused_itself_and_a_run_without_a_worker_need_a_person(capsys: Capture) -> None:
    clock = ManualClock(time.time_ns() // 1000 - DAY_US)
    with handle.connect(config.load(), clock=clock) as sf:
        sf.loops.add("bad", ["false"], every="1h", failures_max=1)
        sf.runs.ask("bad")
        run = sf.runs.claim(host="here")
        assert run is not None
        sf.runs.finish(run.id, 1, exit_code=1, duration="1us")
        sf.loops.add("idle", ["true"], at=when.utc(clock.now_us() + DAY_US * 400))
        sf.runs.ask("idle")
    kinds = {need["kind"]: need["what"] for need in said(capsys, "status")["needs"]}
    assert set(kinds) == {"loop_stopped", "run_waiting"}
    assert 'paused itself: "1 runs in a row failed' in kinds["loop_stopped"]


def test_the_doctor_reports_a_clock_that_was_ahead(capsys: Capture) -> None:
    now_us = time.time_ns() // 1000
    clock = ManualClock(now_us)
    with handle.connect(config.load(), clock=clock) as sf:
        sf.loops.add("hourly", ["true"], every="1h")
        clock.jump("30d")
        sf.loops.fire_due()
    findings = [one for one in said(capsys, "doctor") if one["id"] == "loops"]
    assert [one["state"] for one in findings] == ["warn"]
    assert findings[0]["remedy"] == "standfast loop resume hourly"


def test_an_argument_of_the_command_is_not_taken_for_the_name_of_the_loop(capsys: Capture) -> None:
    code, message, hint = refused(capsys, "loop", "add", "--every", "5m", "--", "echo", "hi")
    assert (code, "NAME is missing" in message, "NAME" in hint) == (2, True, True)
    assert said(capsys, "loop", "list") == []
    assert said(capsys, "loop", "add", "--every", "5m", "hello", "--", "echo", "hi")["command"] == ["echo", "hi"]
