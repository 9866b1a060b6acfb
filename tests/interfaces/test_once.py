"""`standfast once` and `standfast effect`: a command whose result is stored is not run again."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.cli.child import Capture, bytes_of
from standfast.cli.once import period
from standfast.clock import ManualClock
from standfast.daemon.keeper import KEPT_BYTES
from standfast_prove.scenes import told

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "standfast"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "STANDFAST_DATA_DIR": str(tmp_path / "data"), "STANDFAST_ACTOR": "tester"}


@pytest.fixture
def run(tmp_path: Path, environment: dict[str, str]) -> Run:
    def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        given = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 60, **more}
        return subprocess.run([*COMMAND, *words], **given)

    return run


@pytest.fixture
def store(tmp_path: Path) -> Callable[[], standfast.Standfast]:
    """The store that the commands use, opened outside any repository."""

    def opened() -> standfast.Standfast:
        from standfast import config, handle

        return handle.connect(config.load(data_dir=tmp_path / "data", cwd=tmp_path))

    return opened


def counting(tmp_path: Path, then: str = "exit 0") -> tuple[str, ...]:
    """A command that appends a line to the outside system at each run."""
    return ("sh", "-c", f"echo ran >> {tmp_path / 'world'}; {then}")


def ran(tmp_path: Path) -> int:
    world = tmp_path / "world"
    return len(world.read_text().splitlines()) if world.exists() else 0


# -- once ----------------------------------------------------------------------------------------------


def test_a_command_is_run_once_and_its_answer_is_replayed_with_both_streams_apart(run: Run, tmp_path: Path) -> None:
    command = counting(tmp_path, "echo data; echo words >&2")
    first = run("once", "k", "--", *command)
    assert (first.returncode, first.stdout, first.stderr) == (0, "data\n", "words\n")
    second = run("once", "k", "--", *command)
    assert (second.returncode, second.stdout) == (0, "data\n")
    assert re.fullmatch(r"standfast: replayed from \d\d:\d\d\nwords\n", second.stderr)
    assert ran(tmp_path) == 1


def test_the_same_key_for_another_command_is_a_conflict_unless_by_is_equal(run: Run, tmp_path: Path) -> None:
    run("once", "k", "--", "echo", "one")
    refused = run("once", "k", "--", "echo", "two")
    assert refused.returncode == 4
    assert "was used for another command: it was echo one, is echo two" in refused.stderr
    unnamed = run("once", "--why", "release", "--", "echo", "three")
    assert (unnamed.returncode, unnamed.stdout) == (2, "")
    assert unnamed.stderr.endswith("  standfast once --why release KEY -- echo three\n")
    assert run("once", "v", "--by", "release 7", "--", "echo", "one").stdout == "one\n"
    assert run("once", "v", "--by", "release 7", "--", "echo", "two").stdout == "one\n"
    assert run("once", "v", "--by", "release 8", "--", "echo", "two").returncode == 4


def test_a_command_ended_by_a_signal_is_in_doubt_until_a_person_settles_it(run: Run, tmp_path: Path) -> None:
    command = counting(tmp_path, "kill -9 $$")
    killed = run("once", "k", "--", *command)
    assert killed.returncode == 128 + 9
    assert "standfast effect resolve" in killed.stderr
    assert run("once", "k", "--", *command).returncode == 6
    assert run("effect", "resolve", "k", "--not-applied", "--evidence", "looked").returncode == 0
    assert run("once", "k", "--", *command).returncode == 128 + 9
    assert ran(tmp_path) == 2
    assert run("effect", "resolve", "k", "--applied", "--evidence", "there", "--result", "by hand").returncode == 0
    replayed = run("once", "k", "--", *command)
    assert (replayed.returncode, replayed.stdout) == (0, "by hand\n")


@pytest.mark.parametrize(
    ("probe", "code", "runs"), [("echo found", 0, 1), ("exit 3", 128 + 9, 2), ("exit 1", 6, 1), ("kill -9 $$", 6, 1)]
)
def test_in_doubt_the_probe_runs_and_only_exit_3_means_not_applied(
    run: Run, tmp_path: Path, probe: str, code: int, runs: int
) -> None:
    command = counting(tmp_path, "kill -9 $$")
    run("once", "k", "--probe", probe, "--settle", "0s", "--", *command)
    again = run("once", "k", "--probe", probe, "--settle", "0s", "--", *command)
    assert (again.returncode, ran(tmp_path)) == (code, runs)
    assert again.stdout == ("found\n" if code == 0 else "")


def test_the_wait_before_the_second_probe_is_announced(run: Run, tmp_path: Path) -> None:
    command = counting(tmp_path, "kill -9 $$")
    run("once", "k", "--", *command)
    again = run("once", "k", "--probe", "exit 3", "--settle", "4s", "--", *command)
    assert re.search(r"the probe says not applied; it runs again in \d+m?s \(--settle\)", again.stderr)


FAILING = "test -e ready && echo ok || { echo half; exit 9; }"


def test_a_failure_is_not_replayed_as_a_result(run: Run, tmp_path: Path, store: Any) -> None:
    """000-36: a non-zero exit proves nothing. The first call exits as the command did, the next one exits 6."""
    command = counting(tmp_path, FAILING)
    first = run("once", "k", "--", *command)
    assert (first.returncode, first.stdout) == (9, "half\n")
    assert "--again" in first.stderr
    second = run("once", "k", "--", *command)
    assert (second.returncode, second.stdout, ran(tmp_path)) == (6, "", 1)
    assert re.search(r"failed at \d\d:\d\d with exit 9; it may have happened in part", second.stderr)
    assert "Run it again: --again. Count failures as not applied: --retry-failed." in second.stderr
    with store() as sf:
        assert (sf.effects.get("k").in_doubt, sf.effects.get("k").error) == (True, "Failed: exit 9")


@pytest.mark.parametrize("option", ["--again", "--retry-failed", "--until-ok"])
def test_a_failure_is_run_again_under_its_key_by_an_option(run: Run, tmp_path: Path, store: Any, option: str) -> None:
    """000-36: the key then has the result of the later run."""
    command = counting(tmp_path, FAILING)
    assert run("once", "k", "--", *command).returncode == 9
    (tmp_path / "ready").touch()
    assert run("once", "k", option, "--", *command).stdout == "ok\n"
    assert run("once", "k", "--", *command).stdout == "ok\n"
    assert ran(tmp_path) == 2
    with store() as sf:
        assert told(sf, "k") == ["planned", "dispatched", "gave_up", "resolved", "dispatched", "acknowledged"]


def test_a_probe_settles_a_failure(run: Run, tmp_path: Path) -> None:
    command = counting(tmp_path, "exit 9")
    asked = ("once", "k", "--settle", "0s", "--probe")
    assert run(*asked, "exit 3", "--", *command).returncode == 9
    assert run(*asked, "exit 3", "--", *command).returncode == 9, "not applied: it is run again"
    assert run(*asked, "exit 1", "--", *command).returncode == 6
    assert run(*asked, "echo there", "--", *command).stdout == "there\n"
    assert ran(tmp_path) == 2


def test_a_command_that_a_signal_ended_has_not_failed(run: Run, tmp_path: Path) -> None:
    """000-36: `--retry-failed` counts exits; only `--again` runs what a signal ended."""
    command = counting(tmp_path, "kill -9 $$")
    assert run("once", "k", "--", *command).returncode == 128 + 9
    assert run("once", "k", "--retry-failed", "--", *command).returncode == 6
    assert run("once", "k", "--again", "--", *command).returncode == 128 + 9
    assert ran(tmp_path) == 2


def test_retry_failed_counts_a_failure_as_not_applied(run: Run, tmp_path: Path, store: Any) -> None:
    command = counting(tmp_path, FAILING)
    assert run("once", "k", "--retry-failed", "--", *command).returncode == 9
    assert run("once", "k", "--retry-failed", "--", *command).returncode == 9
    with store() as sf:
        assert sf.effects.get("k").state == "failed"
    (tmp_path / "ready").touch()
    assert run("once", "k", "--retry-failed", "--", *command).stdout == "ok\n"
    assert run("once", "k", "--retry-failed", "--", *command).stdout == "ok\n"
    assert ran(tmp_path) == 3


def test_again_runs_it_once_more_and_replays_nothing(run: Run, tmp_path: Path, store: Any) -> None:
    for expected in (1, 2, 3):
        assert run("once", "k", "--again", "--", *counting(tmp_path)).returncode == 0
        assert ran(tmp_path) == expected
    assert run("once", "k", "--", *counting(tmp_path)).returncode == 0
    assert ran(tmp_path) == 3
    with store() as sf:
        assert [effect.key for effect in sf.effects.list()] == ["k #3", "k #2", "k"]


def test_a_period_is_part_of_the_key() -> None:
    clock = ManualClock()
    assert period("day", clock) == time.strftime("%Y-%m-%d", time.localtime(clock.now_us() // 1_000_000))
    days = set()
    for _ in range(3):
        days.add(period("day", clock))
        clock.advance("24h")
    assert len(days) == 3
    assert re.fullmatch(r"\d{4}-W\d\d", period("week", clock))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d", period("hour", clock))


def test_a_command_that_is_not_there_was_not_run(run: Run, store: Any) -> None:
    missing = run("once", "k", "--", "no-such-command")
    assert missing.returncode == 127
    assert "no-such-command" in missing.stderr
    assert run("once", "d", "--", "/").returncode == 126
    with store() as sf:
        assert sf.effects.get("k").state == "failed"


def test_the_command_learns_its_key_and_its_session(run: Run, store: Any) -> None:
    with store() as sf:
        sf.sessions.open("fix-42")
    told_key = run("once", "k", "--session", "fix-42", "--", "sh", "-c", "echo $STANDFAST_CALL_KEY $STANDFAST_ATTEMPT")
    assert re.fullmatch(r"sf_[0-9a-f]{32} 1\n", told_key.stdout)
    with store() as sf:
        assert sf.effects.get("k").session_id == sf.sessions.get("fix-42").id


def test_json_is_one_document_and_still_exits_as_the_command_did(run: Run) -> None:
    for replayed in (False, True):
        done = run("once", "k", "--json", "--", "sh", "-c", "echo hi")
        data = json.loads(done.stdout)["data"]
        assert (done.returncode, data["replayed"], data["state"]) == (0, replayed, "acknowledged")
        assert data["result"] == {"exit": 0, "stdout": "hi\n", "stderr": ""}
    failed = run("once", "f", "--json", "--", "sh", "-c", "echo hi; exit 4")
    data = json.loads(failed.stdout)["data"]
    assert (failed.returncode, data["state"]) == (4, "dispatched")
    assert data["result"] == {"exit": 4, "stdout": "hi\n", "stderr": ""}


def test_a_running_command_is_busy_and_after_the_death_of_its_process_in_doubt_at_once(
    run: Run, tmp_path: Path, environment: dict[str, str]
) -> None:
    """The holder is the command itself, not the process that started it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = ("sh", "-c", f"echo started; read line < {fifo}; echo $line")
    with subprocess.Popen(
        [*COMMAND, "once", "k", "--", *command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"
        busy = run("once", "k", "--", *command)
        assert busy.returncode == 75
        shell = int(re.search(r"process (\d+)", busy.stderr).group(1))  # type: ignore[union-attr]
        assert shell != other.pid
        other.kill()
        other.wait()
        assert run("once", "k", "--", *command).returncode == 75  # the command is alive
        os.kill(shell, signal.SIGKILL)
        while run("once", "k", "--", *command).returncode == 75:
            time.sleep(0.05)  # until its new parent has reaped it
        assert run("once", "k", "--", *command).returncode == 6


def test_signals_are_passed_on_to_the_command(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    command = ("sh", "-c", "trap 'echo stopped; exit 0' TERM; echo started; while :; do sleep 0.05; done")
    with subprocess.Popen(
        [*COMMAND, "once", "k", "--", *command], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "started\n"
        other.terminate()
        assert other.stdout.read() == "stopped\n"
    assert other.returncode == 0
    assert run("once", "k", "--", *command).stdout == "started\nstopped\n"


def test_a_needed_approval_is_requested_and_then_the_command_runs_once(run: Run, tmp_path: Path, store: Any) -> None:
    command = counting(tmp_path)
    assert run("once", "k", "--approve", "--why", "release day", "--", *command).returncode == 5
    with store() as sf:
        (asked,) = sf.approvals.list()
        assert asked.why == "release day"
        sf.approvals.grant(asked.id, approver="anna")
    assert run("once", "k", "--approve", "--", *command).returncode == 0
    assert run("once", "k", "--approve", "--", *command).returncode == 0
    assert ran(tmp_path) == 1


def test_a_gate_requests_an_approval_with_or_without_the_option(run: Run, tmp_path: Path, store: Any) -> None:
    with store() as sf:
        sf.gates.add("git push*", why="main is protected")
    assert run("once", "k", "--", "git", "push", "origin").returncode == 5
    with store() as sf:
        assert sf.approvals.list()[0].gate == "git push*"


def test_on_a_terminal_the_command_has_one_too(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    words = [
        *COMMAND,
        "once",
        "k",
        "--",
        "sh",
        "-c",
        "test -t 0 && test -t 1 && test -t 2 && echo terminal; read x; echo $x",
    ]
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(words[0], words, environment)
    os.write(master, b"typed\n")
    said = b""
    while select.select([master], [], [], 60)[0]:
        try:
            said += os.read(master, 4096)
        except OSError:  # a terminal raises this after the last process has closed it
            break
    else:
        os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(master)
    assert b"terminal\r\n" in said
    replayed = run("once", "k", "--", *words[words.index("--") + 1 :])
    assert "terminal" in replayed.stdout
    assert "\\r" not in replayed.stdout
    assert "\r" not in replayed.stdout
    assert replayed.stdout.rstrip().endswith("typed")


def test_secrets_in_captured_output_are_not_stored(run: Run) -> None:
    secret = "ghp_" + "a" * 36
    assert run("once", "k", "--", "echo", "token", "x").returncode == 0
    shown = run("once", "s", "--", "sh", "-c", 'printf "%s%s\\n" ghp_ ' + "a" * 36)
    assert secret in shown.stdout
    assert secret not in run("once", "s", "--", "sh", "-c", 'printf "%s%s\\n" ghp_ ' + "a" * 36).stdout


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([b"text\n"], True),
        ([b"\xff\xfe\0"], True),
        ([b"x" * KEPT_BYTES, b"y" * KEPT_BYTES], True),
        ([b"a" * 300_000], False),
    ],
)
def test_captured_output_is_replayed_byte_for_byte_or_with_both_its_ends(parts: list[bytes], whole: bool) -> None:
    capture = Capture()
    for part in parts:
        capture.feed(part)
    data, back = b"".join(parts), bytes_of(capture.value(redact=True))
    if whole:
        assert back == data
    else:
        assert back.startswith(data[:KEPT_BYTES])
        assert back.endswith(data[-KEPT_BYTES:])
        assert b"bytes left out" in back
        assert len(back) < 3 * KEPT_BYTES


# -- effect ----------------------------------------------------------------------------------------------


def test_an_effect_begins_in_one_command_and_ends_in_another(run: Run, store: Any) -> None:
    begun = run("effect", "begin", "deploy", "to=prod", "--key", "d", "--json")
    data = json.loads(begun.stdout)["data"]
    assert (begun.returncode, data["state"], data["intent"]) == (0, "dispatched", {"to": "prod"})
    assert data["call_key"].startswith("sf_")
    assert data["holder"] == "a:tester"
    busy = run("effect", "begin", "deploy", "to=prod", "--key", "d")
    assert busy.returncode == 75
    assert "standfast effect done " in busy.stderr
    assert "standfast effect fail " in busy.stderr
    done = run("effect", "done", "d", '{"run": 7}', "--ref", "https://ci/7", "--json")
    assert json.loads(done.stdout)["data"]["receipt"]["hash"].startswith("h2:")
    again = run("effect", "begin", "deploy", "to=prod", "--key", "d")
    assert (again.returncode, again.stdout) == (7, '{"run": 7}\n')
    assert run("effect", "begin", "deploy", "to=test", "--key", "d").returncode == 4


def test_the_same_command_line_sends_a_planned_effect(run: Run) -> None:
    assert "planned" in run("effect", "begin", "deploy", '{"to": "prod"}', "--plan", "--key", "d").stdout
    assert "dispatched" in run("effect", "begin", "deploy", '{"to": "prod"}', "--key", "d").stdout
    failed = run("effect", "fail", "d", "no route")
    assert (failed.returncode, "failed" in failed.stdout) == (0, True)
    begun = run("effect", "begin", "deploy", "to=prod", "--key", "d")
    assert ["attempt", "2"] in [line.split() for line in begun.stdout.splitlines()]


def test_a_doubt_is_listed_shown_and_settled(run: Run, store: Any) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    assert run("effect", "begin", "deploy", "--key", "d", "--while", str(gone.pid)).returncode == 0
    assert "nothing is in doubt" in run("effect", "list", "--in-doubt").stderr
    gone.kill()
    gone.wait()
    assert "in doubt" in run("effect", "list", "--in-doubt").stdout
    shown = run("effect", "show", "d")
    assert "ask: in doubt" in shown.stdout
    assert "standfast effect resolve" in shown.stderr
    assert json.loads(run("effect", "show", "d", "--json").stdout)["data"]["replay"]["action"] == "ask"
    assert run("effect", "resolve", "d", "--evidence", "x").returncode == 2
    assert run("effect", "resolve", "d", "--applied", "--evidence", "it is there").returncode == 0
    assert run("effect", "resolve", "d", "--not-applied", "--evidence", "x").returncode == 4
    with store() as sf:
        assert told(sf, "d") == ["planned", "dispatched", "resolved"]


def test_compensate_runs_a_command_with_the_result_on_stdin(run: Run, tmp_path: Path) -> None:
    run("effect", "begin", "deploy", "--key", "d")
    run("effect", "done", "d", '{"run": 7}')
    compensate = ("effect", "compensate", "d", "--", "sh", "-c", f"cat >> {tmp_path / 'undone'}; test -e ready")
    refused = run(*compensate)
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (1, "standfast: not compensated: sh exited 1")
    (tmp_path / "ready").touch()
    assert "compensated" in run(*compensate).stdout
    assert run(*compensate).returncode == 0
    assert (tmp_path / "undone").read_text() == '{"run": 7}' * 2


def test_a_compensation_that_a_signal_ended_is_in_doubt(run: Run) -> None:
    run("effect", "begin", "deploy", "--key", "d")
    run("effect", "done", "d")
    killed = run("effect", "compensate", "d", "--", "sh", "-c", "kill -9 $$")
    assert (killed.returncode, killed.stderr.splitlines()) == (
        6,
        ["standfast: sh ended by SIGKILL: the compensation is in doubt", "  standfast effect list --in-doubt"],
    )
    assert "compensate:deploy" in run("effect", "list", "--in-doubt").stdout


def test_an_invalid_option_is_refused_by_its_name(run: Run) -> None:
    for words, match in {
        ("effect", "begin", "deploy", "prod"): "neither JSON nor name=value",
        ("effect", "begin", "deploy", '{"a": 1, "a": 2}'): "appears twice",
        ("effect", "show", "nothing"): "no store",
        ("once", "by:x", "--", "true"): "made by standfast",
    }.items():
        refused = run(*words)
        assert refused.returncode in (2, 3)
        assert match in refused.stderr


def test_the_same_on_postgresql(run: Run, tmp_path: Path, environment: dict[str, str], pg_database: str) -> None:
    there = {**environment, "STANDFAST_DB_URL": pg_database}
    command = counting(tmp_path, "echo done; exit 2")
    assert [run("once", "k", "--", *command, env=there).returncode for _ in range(2)] == [2, 6]
    assert run("once", "k", "--retry-failed", "--", *command, env=there).returncode == 2
    assert ran(tmp_path) == 2
    killed = counting(tmp_path, "kill -9 $$")
    assert [run("once", "d", "--", *killed, env=there).returncode for _ in range(2)] == [128 + 9, 6]
    assert "in doubt" in run("effect", "list", "--in-doubt", env=there).stdout


def test_while_an_effect_of_the_session_is_in_doubt_a_new_key_is_not_run(
    run: Run, tmp_path: Path, store: Callable[[], standfast.Standfast]
) -> None:
    """000-36: RULES 4: in a session a killed command blocks the next `once`, but not its own replay."""
    with store() as sf, sf.session("work"):
        pass
    run("once", "a", "--session", "work", "--", *counting(tmp_path))
    run("once", "b", "--session", "work", "--", *counting(tmp_path, "kill -9 $$"))
    new = run("once", "c", "--session", "work", "--", *counting(tmp_path))
    assert new.returncode == 6
    assert "is in doubt" in new.stderr
    assert run("once", "a", "--session", "work", "--", *counting(tmp_path)).returncode == 0
    assert run("once", "c", "--", *counting(tmp_path)).returncode == 0, "outside the session it is run"
    assert (tmp_path / "world").read_text().splitlines() == ["ran"] * 3


def test_settle_is_a_duration(run: Run, tmp_path: Path) -> None:
    refused = run("once", "k", "--probe", "exit 3", "--settle", "soon", "--", *counting(tmp_path))
    assert refused.returncode == 2
    assert "'soon' is not a duration" in refused.stderr
    assert not (tmp_path / "world").exists()


# Files.


def building(tmp_path: Path) -> tuple[str, ...]:
    return counting(tmp_path, "cat source > built; echo built")


def test_a_file_that_the_command_wrote_is_written_again_when_it_is_missing(run: Run, tmp_path: Path) -> None:
    """001-37: the replay has the output and the file; the command is not run again."""
    (tmp_path / "source").write_text("one\n")
    line = ("once", "build", "--in", "source", "--out", "built", "--", *building(tmp_path))
    first = run(*line)
    assert (first.returncode, first.stdout) == (0, "built\n"), first.stderr
    (tmp_path / "built").unlink()
    again = run(*line)
    assert (again.returncode, again.stdout) == (0, "built\n")
    assert "standfast: wrote built again (4 bytes)" in again.stderr
    assert (tmp_path / "built").read_text() == "one\n"
    assert (tmp_path / "world").read_text() == "ran\n"


def test_a_file_that_was_changed_since_stays_and_the_stored_one_is_a_command_away(run: Run, tmp_path: Path) -> None:
    """R14: a replay overwrites nothing."""
    (tmp_path / "source").write_text("one\n")
    line = ("once", "build", "--out", "built", "--", *building(tmp_path))
    run(*line)
    (tmp_path / "built").write_text("mine\n")
    again = run(*line)
    assert "built has changed since the command wrote it, and was not overwritten" in again.stderr
    assert (tmp_path / "built").read_text() == "mine\n"
    hint = next(row for row in again.stderr.splitlines() if "artifact get" in row).split()
    assert run(*hint[1:]).returncode == 0
    assert (tmp_path / "built.stored").read_text() == "one\n"


def test_the_same_key_with_another_input_is_refused(run: Run, tmp_path: Path) -> None:
    """001-37: the same key must mean the same; a missing input is refused before anything is recorded."""
    (tmp_path / "source").write_text("one\n")
    line = ("once", "build", "--in", "source", "--", *building(tmp_path))
    assert run(*line).returncode == 0
    (tmp_path / "source").write_text("two\n")
    assert run(*line).returncode == 4
    assert (tmp_path / "world").read_text() == "ran\n"
    missing = run("once", "other", "--in", "nowhere", "--", *building(tmp_path))
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (3, "standfast: there is no file nowhere")
    assert run("effect", "show", "other").returncode == 3
