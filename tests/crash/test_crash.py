"""Crash points: a disabled one does nothing, an enabled one kills the process exactly there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast import crash
from standfast.crash import Schedule
from standfast.errors import InvalidInput

PASSES_TWICE = """
from standfast import crash
for n in (1, 2):
    print("before", n, flush=True)
    crash.point("commit.before_commit")
    crash.point("commit.after_commit")
print("alive")
"""

PASSES_AND_FORKS = """
import os
from standfast import crash
crash.point("commit.after_commit")
if (pid := os.fork()) == 0:
    crash.point("commit.after_commit")
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
crash.point("commit.after_commit")
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    crash.disarm()


def run_with(where: str, code: str = PASSES_TWICE) -> subprocess.CompletedProcess[str]:
    env = os.environ | {crash.VARIABLE: where}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)


def test_off_a_point_does_nothing_and_knows_no_names() -> None:
    crash.point("not even a name")


def test_every_point_is_described_in_a_sentence() -> None:
    assert all(name.count(".") == 1 and name.replace(".", "_").isidentifier() for name in crash.POINTS)
    assert all(text[0].isupper() and text.endswith(".") for text in crash.POINTS.values())


@pytest.mark.parametrize(
    ("where", "said"),
    [("commit.after_commit", ["before 1"]), ("commit.after_commit:2", ["before 1", "before 2"])],
)
def test_the_variable_kills_at_the_nth_passage(where: str, said: list[str]) -> None:
    done = run_with(where)
    assert (done.returncode, done.stdout.splitlines()) == (-signal.SIGKILL, said)


def test_a_crash_point_that_is_never_passed_kills_no_process() -> None:
    done = run_with("commit.after_commit:3")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "alive")


def test_a_forked_child_counts_its_own_passages() -> None:
    done = run_with("commit.after_commit:2", PASSES_AND_FORKS)
    assert (done.returncode, done.stdout.splitlines()) == (-signal.SIGKILL, ["7"])


def test_a_misspelt_point_is_refused_at_the_start_with_near_names() -> None:
    done = run_with("commit.after_comit")
    assert done.returncode == 1
    assert "'commit.after_comit' is not a crash point" in done.stderr
    assert "commit.after_commit" in done.stderr.splitlines()[-1]
    assert done.stdout == ""


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "²", ""])
def test_a_count_that_is_none_is_refused(number: str) -> None:
    with pytest.raises(InvalidInput, match="is not a count"):
        crash.arm_at(f"commit.after_commit:{number}")


def test_a_hook_sees_every_point_until_disarmed() -> None:
    seen: list[str] = []
    crash.arm(seen.append)
    crash.point("commit.after_sync")
    crash.disarm()
    crash.point("commit.after_sync")
    assert seen == ["commit.after_sync"]


def test_an_armed_point_must_be_in_the_list() -> None:
    crash.arm(lambda name: None)
    with pytest.raises(AssertionError, match=r"'new\.point' is not in crash\.POINTS"):
        crash.point("new.point")


def test_recording_keeps_the_order_and_the_hook_that_was_there() -> None:
    seen: list[str] = []
    crash.arm(seen.append)
    with crash.record() as outer, crash.record() as inner:
        crash.point("commit.before_begin")
        crash.point("commit.after_begin")
    crash.point("commit.after_sync")
    assert inner == outer == ["commit.before_begin", "commit.after_begin"]
    assert seen == ["commit.before_begin", "commit.after_begin", "commit.after_sync"]


class Deploy:
    """A toy deployment: record the intent, act, record the result. Only files survive a kill."""

    def __init__(self, place: Path, *, careful: bool) -> None:
        self.place = place
        self.careful = careful

    def reset(self) -> None:
        for file in self.place.iterdir():
            file.unlink()

    def run(self) -> None:
        (self.place / "intent").touch()
        crash.point("commit.after_commit")
        self._act()

    def recover(self) -> None:
        crash.point("lease.before_acquire")
        if (self.place / "done").exists():
            return
        if (self.place / "intent").exists() and not (self.careful and (self.place / "acted-1").exists()):
            self._act()
        (self.place / "done").touch()

    def _act(self) -> None:
        (self.place / f"acted-{1 + len(list(self.place.glob('acted-*')))}").touch()
        crash.point("commit.after_sync")
        (self.place / "done").touch()
        crash.point("lease.before_release")

    def check(self, schedule: Schedule) -> None:
        with open(self.place.parent / "schedules", "a", encoding="utf-8") as file:
            file.write(f"{schedule}\n")
        acted = len(list(self.place.glob("acted-*")))
        assert acted == 1, f"acted {acted} times"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "world").mkdir()
    return tmp_path / "world"


def test_a_sweep_kills_at_every_point_and_again_in_recovery(place: Path) -> None:
    world = Deploy(place, careful=True)
    count = crash.sweep(world.run, world.recover, world.check, reset=world.reset)
    schedules = (place.parent / "schedules").read_text().splitlines()
    assert len(schedules) == count
    assert schedules == [
        "not killed",
        "killed at commit.after_commit:1",
        "killed at commit.after_sync:1",
        "killed at lease.before_release:1",
        "killed at commit.after_commit:1, then at lease.before_acquire:1",
        "killed at commit.after_commit:1, then at commit.after_sync:1",
        "killed at commit.after_commit:1, then at lease.before_release:1",
        "killed at commit.after_sync:1, then at lease.before_acquire:1",
        "killed at lease.before_release:1, then at lease.before_acquire:1",
    ]


def test_a_sweep_names_the_schedule_that_breaks_the_program(place: Path) -> None:
    world = Deploy(place, careful=False)
    with pytest.raises(AssertionError, match=r"(?s)killed at commit\.after_sync:1:.*acted 2 times"):
        crash.sweep(world.run, world.recover, world.check, reset=world.reset)


def test_single_kills_only_when_asked(place: Path) -> None:
    world = Deploy(place, careful=True)
    assert crash.sweep(world.run, world.recover, world.check, reset=world.reset, double=False) == 4


def test_a_sweep_is_bounded_and_its_sample_is_the_seeds(place: Path) -> None:
    world, drawn = Deploy(place, careful=True), []
    for _ in range(2):
        assert crash.sweep(world.run, world.recover, world.check, reset=world.reset, max_schedules=6, seed=3) == 6
        drawn.append((place.parent / "schedules").read_text())
        (place.parent / "schedules").unlink()
    assert drawn[0] == drawn[1]


def test_a_recovery_that_raises_or_hangs_fails_the_sweep(place: Path) -> None:
    def raises() -> None:
        raise RuntimeError("recovery is broken")

    with pytest.raises(AssertionError, match=r"(?s)not killed:.*RuntimeError: recovery is broken"):
        crash.sweep(lambda: None, raises, print)
    with pytest.raises(AssertionError, match=r"still running after 0\.2 s"):
        crash.sweep(lambda: None, signal.pause, print, timeout_s=0.2)


def test_a_sweep_leaves_its_parent_disarmed_and_unkilled(place: Path) -> None:
    world = Deploy(place, careful=True)
    crash.sweep(world.run, world.recover, world.check, reset=world.reset, double=False)
    assert crash.point is crash._off
