"""Keepers: however the daemon ends, the result of a command is stored or its end is recorded."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from standfast.clock import SYSTEM
from standfast.core.leases import parse_process
from standfast.daemon import keeper, keeper_client
from standfast.daemon.keeper_client import Child, RunOutputs
from standfast_prove.faults import mounts
from standfast_prove.faults.daemons import fill, until
from tests.features.test_leases import HOLDING
from tests.skipping import or_skip


@pytest.fixture
def spool(tmp_path: Path) -> RunOutputs:
    return RunOutputs(str(tmp_path), SYSTEM)


def spec(*argv: str, cwd: str = "/", **more: Any) -> dict[str, Any]:
    return {"argv": list(argv), "cwd": cwd, "environment": dict(os.environ), "grace_s": 0.2, **more}


def going(spool: RunOutputs, *argv: str, **more: Any) -> Child:
    child = spool.start("run_x", 1)
    child.go(spec(*argv, **more))
    return child


def ended(child: Child) -> Child:
    until(lambda: not child.here)
    return child


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        ("echo out; echo err >&2", 0, b"out\n", b"err\n"),
        ("exit 42", 42, b"", b""),
        ("kill -9 $$", -9, b"", b""),
        ("kill -TERM $$", -15, b"", b""),
        ("cat; echo no input", 0, b"no input\n", b""),
    ],
)
def test_output_and_exit_code_are_stored(
    spool: RunOutputs, command: str, code: int, stdout: bytes, stderr: bytes
) -> None:
    found = ended(going(spool, "sh", "-c", command)).result()
    assert found is not None
    assert (found.code, found.why, found.stdout, found.stderr) == (code, None, stdout, stderr)


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "failure"),
    [
        (["no-such-command"], "/", 127, "no-such-command: No such file or directory"),
        (["ls"], "/no/such/place", 127, "/no/such/place: No such file or directory"),
        (["/etc/passwd"], "/", 126, "/etc/passwd: Permission denied"),
        (["sh", "-c", "exit 0\0"], "/", 126, "sh: embedded null byte"),
    ],
)
def test_a_command_that_cannot_run_gives_its_reason(
    spool: RunOutputs, argv: list[str], cwd: str, code: int, failure: str
) -> None:
    found = ended(going(spool, *argv, cwd=cwd)).result()
    assert found is not None
    assert (found.code, found.failure) == (code, failure)


def test_both_ends_of_long_output_are_stored(spool: RunOutputs) -> None:
    found = ended(going(spool, "sh", "-c", "echo first; head -c 5000000 /dev/zero; echo last")).result()
    assert found is not None
    assert found.stdout.startswith(b"first\n")
    assert found.stdout.endswith(b"last\n")
    assert b"bytes left out" in found.stdout
    assert len(found.stdout) < 2 * keeper.KEPT_BYTES + 100


def test_a_timeout_is_a_request_first_and_then_none(spool: RunOutputs) -> None:
    polite = ended(
        going(spool, "sh", "-c", "trap 'echo bye; exit 9' TERM; while :; do sleep 0.01; done", timeout_us=100_000)
    )
    found = polite.result()
    assert found is not None
    assert (found.code, found.why, found.stdout) == (9, "timed_out", b"bye\n")
    deaf = ended(going(spool, "sh", "-c", "trap '' TERM; while :; do sleep 0.01; done", timeout_us=100_000)).result()
    assert deaf is not None
    assert (deaf.code, deaf.why) == (-9, "timed_out")


@pytest.mark.parametrize("now", [False, True])
def test_a_command_can_be_stopped_or_killed(spool: RunOutputs, now: bool, tmp_path: Path) -> None:
    child = going(
        spool, "sh", "-c", f"trap '' TERM; touch {tmp_path}/there; while :; do sleep 0.01; done", grace_s=3600
    )
    until((tmp_path / "there").exists)
    child.end(now=now)
    if not now:
        until(lambda: child.here)
        child.end(now=True)
    found = ended(child).result()
    assert found is not None
    assert (found.code, found.why) == (-9, "cancelled")


def test_a_keeper_without_a_complete_order_never_starts_its_command(spool: RunOutputs, tmp_path: Path) -> None:
    child = spool.start("run_x", 1)
    assert child._popen is not None
    assert child._popen.stdin is not None
    child._popen.stdin.write(json.dumps(spec("touch", str(tmp_path / "begun"))).encode()[:-3])
    child._popen.stdin.close()
    ended(child)
    assert child.never_began
    assert child.result() is None
    assert not (tmp_path / "begun").exists()
    other = spool.start("run_y", 1)
    other.never()
    assert other.gone
    assert not other.known


def test_a_stopped_keeper_that_is_not_needed_is_killed(spool: RunOutputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-1: the daemon waits for the keeper only until a deadline."""
    monkeypatch.setattr(keeper_client, "NEVER_MAX_S", 0.05)
    child = spool.start("run_x", 1)
    os.kill(child.pid, signal.SIGSTOP)
    child.never()
    assert child.gone


def test_a_dead_keeper_is_recognised_by_its_identity_and_not_by_its_pid(spool: RunOutputs) -> None:
    child = going(spool, "sleep", "60")
    found = parse_process(child.process)
    assert found is not None
    assert spool.adopted("run_x", 1, child.process).here
    recycled = spool.adopted("run_x", 1, str(found._replace(start="1")))
    assert recycled.gone
    assert not recycled.here
    recycled.end(now=True)
    assert child.here
    elsewhere = spool.adopted("run_z", 1, str(found._replace(boot="other", host="other")))
    assert not elsewhere.here
    assert not elsewhere.gone
    rebooted = spool.adopted("run_x", 1, str(found._replace(boot="earlier")))
    assert rebooted.gone
    assert rebooted.leftovers() == [], "a number from before the reboot means nothing now"
    until(lambda: os.path.exists(os.path.join(child.place, "begun")))
    os.unlink(os.path.join(child.place, "begun"))
    assert not rebooted.never_began, "the mark may have been lost with the power"
    child.end(now=True)
    ended(child)


def test_what_a_killed_keeper_leaves_is_found_by_its_session_and_ended(spool: RunOutputs, tmp_path: Path) -> None:
    child = going(
        spool, "sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait"
    )
    until((tmp_path / "pid").exists)
    background = int((tmp_path / "pid").read_text())
    os.kill(child.pid, signal.SIGKILL)
    ended(child)
    assert len(child.leftovers()) == 1
    until(child.end_leftovers)
    until(lambda: not os.path.exists(f"/proc/{background}"))
    assert child.result() is None
    assert not child.never_began


def test_remaining_processes_are_ended_when_the_last_thread_has_exited(spool: RunOutputs, tmp_path: Path) -> None:
    """The first thread of a process may be a zombie while others still have files open. The run ends after them."""
    for number in range(8):
        door = tmp_path / f"held-{number}"
        child = going(spool, sys.executable, "-c", HOLDING, str(door))
        until(partial(held, door))
        os.kill(child.pid, signal.SIGKILL)
        ended(child)
        while not child.end_leftovers():
            pass
        assert not held(door)
        spool.forget("run_x", 1)


def held(door: Path) -> bool:
    if not door.exists():
        return False
    with open(door) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_past_the_moment_when_another_machine_may_take_over_the_command_is_ended(spool: RunOutputs) -> None:
    """On another machine the lease ends by time. The command must end before that machine may take the run over."""
    spool.promise(SYSTEM.mono_us() + 3_600_000_000)
    child = going(spool, "sleep", "60", lease=spool.lease, lease_until=keeper.now())
    spool.promise(SYSTEM.mono_us())
    found = ended(child).result()
    assert found is not None
    assert (found.code, found.why) == (-signal.SIGTERM, "lost")
    for words in ("", "garbage", "-1"):
        Path(spool.lease).write_text(words)
        found = ended(going(spool, "true", lease=spool.lease, lease_until=keeper.now() + 60)).result()
        assert found is not None
        assert (found.code, found.why) == (0, None)


def test_on_a_full_disk_the_answer_waits_and_the_output_is_given_up(tmp_path: Path) -> None:
    with or_skip(), mounts.memory(tmp_path / "small", size="128k"):
        spool = RunOutputs(str(tmp_path / "small"), SYSTEM)
        child = going(
            spool, "sh", "-c", f"head -c 50000 /dev/zero; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 5"
        )
        filling = fill(tmp_path / "small")
        (tmp_path / "go").touch()
        until(
            lambda: (
                os.path.exists(os.path.join(child.place, "result.new"))
                or os.path.exists(os.path.join(child.place, "stdout.new"))
            )
        )
        assert child.here
        filling.unlink()
        found = ended(child).result()
        assert found is not None
        assert found.code == 5


@pytest.mark.parametrize(
    "words",
    [b"", b"{}", b"null", b"[1]", b"\xff", b'{"code": 1}', b'{"code":1,"why":null,"failure":null,"duration_us":"x"}'],
)
def test_an_unreadable_result_counts_as_none(spool: RunOutputs, words: bytes) -> None:
    child = spool.start("run_x", 1)
    (Path(child.place) / "result").write_bytes(words)
    assert child.result() is None
    child.never()
