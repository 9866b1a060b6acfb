"""The daemon's tick, called directly: it fires, runs, takes over, is on standby, and waits for the store."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import errors, when
from standfast.clock import HOUR_US, MINUTE_US, SECOND_US, SYSTEM, ManualClock
from standfast.daemon.supervisor import BACKOFF_MAX_US, Supervisor
from standfast.daemon.tick import Daemon
from standfast.record.loops.runs import Run
from standfast_prove.faults.daemons import Later, daemon, noted, noting, opened, until

AT_US = (SYSTEM.now_us() // SECOND_US) * SECOND_US + 30 * MINUTE_US


@pytest.fixture
def sf(engine_url: str, tmp_path: Path) -> Iterator[standfast.Standfast]:
    """A store whose clock is one hour ahead, so that a new loop is due immediately."""
    with opened(engine_url, tmp_path / "data", clock=Later()) as store:
        yield store


def add(sf: standfast.Standfast, name: str, command: list[str], **wanted: object) -> None:
    with opened(sf.settings.target.location, Path(sf.settings.data_dir)) as now:
        now.loops.add(name, command, at=when.utc(AT_US), cwd="/", **wanted)  # type: ignore[arg-type]


def ended(sf: standfast.Standfast, serving: Daemon, name: str) -> Run:
    until(
        lambda: all(run.ended_us for run in sf.runs.list(name)) and sf.runs.list(name), lambda: serving.tick(woken=True)
    )
    (run,) = sf.runs.list(name)
    return run


def begun(sf: standfast.Standfast, serving: Daemon, name: str) -> Run:
    until(lambda: any(run.process for run in sf.runs.list(name)), lambda: serving.tick(woken=True))
    (run,) = sf.runs.list(name)
    return run


# -- running ---------------------------------------------------------------------------------------------


def test_a_due_slot_is_fired_run_and_recorded_with_its_output(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-14, 000-15: every run is recorded, with its exit code and output."""
    then = "echo well; echo badly >&2; pwd; echo $COLOUR $STANDFAST_ACTOR; exit 3"
    add(sf, "nightly", noting(tmp_path / "out", then), environment={"COLOUR": "blue"})
    serving = daemon(sf)
    run = ended(sf, serving, "nightly")
    assert (run.state, run.exit_code, run.attempt, run.reason) == ("failed", 3, 1, "exit 3: badly")
    assert run.duration_us
    assert run.stdout_id
    assert run.stderr_id
    assert sf.artifacts.get(run.stdout_id) == b"well\n/\nblue loop:nightly\n"
    assert sf.artifacts.get(run.stderr_id) == b"badly\n"
    assert noted(tmp_path / "out") == {("nightly", AT_US): 1}
    assert serving.counts["fired"] == serving.counts["finished"] == 1
    assert os.listdir(serving.spool.directory + "/runs") == []
    types = [event.type for event in sf.journal.about(run.id, limit=100)]
    assert types == ["run.queued", "run.claimed", "run.started", "run.failed"]


def test_secrets_are_removed_from_the_output(sf: standfast.Standfast) -> None:
    add(sf, "leaky", ["echo", "ghp_" + "a" * 36])
    run = ended(sf, daemon(sf), "leaky")
    assert run.stdout_id is not None
    assert sf.artifacts.get(run.stdout_id) == b"[redacted:github]\n"


def test_a_command_that_is_not_there_fails_with_its_reason(sf: standfast.Standfast) -> None:
    add(sf, "typo", ["no-such-command"])
    run = ended(sf, daemon(sf), "typo")
    assert (run.state, run.exit_code) == ("failed", 127)
    assert run.reason == "no-such-command: No such file or directory"


def test_a_timeout_ends_the_whole_group(sf: standfast.Standfast, tmp_path: Path) -> None:
    command = ["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/background; wait"]
    add(sf, "slow", command, timeout="200ms")
    run = ended(sf, daemon(sf), "slow")
    assert (run.state, run.exit_code) == ("timed_out", -signal.SIGTERM)
    background = int((tmp_path / "background").read_text())
    until(lambda: not os.path.exists(f"/proc/{background}"))


def test_a_run_that_is_cancelled_is_ended(sf: standfast.Standfast) -> None:
    add(sf, "long", ["sleep", "60"])
    serving = daemon(sf)
    run = begun(sf, serving, "long")
    sf.runs.cancel(run.id, "not needed")
    run = ended(sf, serving, "long")
    assert (run.state, run.reason) == ("cancelled", "not needed")


def test_no_more_run_together_than_there_are_workers(sf: standfast.Standfast, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        add(sf, name, ["sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"])
    serving = daemon(sf, workers_max=2)
    until(lambda: len(serving.work.shown()) == 2, lambda: serving.tick(woken=True))
    for _ in range(5):
        serving.tick(woken=True)
    assert sorted(run.state for run in sf.runs.list()) == ["queued", "running", "running"]
    (tmp_path / "go").touch()
    for name in ("a", "b", "c"):
        assert ended(sf, serving, name).state == "done"


def test_a_tick_with_nothing_to_do_writes_nothing(sf: standfast.Standfast) -> None:
    """Each write sends the notification that wakes the daemon, so it would never sleep."""
    serving = daemon(sf)
    serving.tick()
    with sf._store.watch() as watch:
        while watch.wait(0.05):
            pass
        for _ in range(3):
            serving.tick(woken=True)
        if sf.engine.name == "sqlite":
            assert not watch.wait(0.05)


# -- runs of a dead daemon -------------------------------------------------------------------------------


LIVING = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from standfast_prove.faults.daemons import Later, daemon, opened, until
sf = opened({url!r}, Path({data!r}), clock=Later())
serving = daemon(sf)
until(lambda: any(run.process for run in sf.runs.list({name!r})), lambda: serving.tick(woken=True))
serving.tick()
print("begun", flush=True)
sys.stdin.readline()
"""


class Predecessor:
    """A daemon that has begun a run and is then killed."""

    def __init__(self, sf: standfast.Standfast, name: str) -> None:
        import sys

        root = str(Path(__file__).resolve().parents[2])
        code = LIVING.format(root=root, url=sf.settings.target.location, data=sf.settings.data_dir, name=name)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begun\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_what_a_killed_daemon_had_begun_is_adopted_and_its_answer_recorded(
    sf: standfast.Standfast, tmp_path: Path
) -> None:
    """000-11, 000-37, 000-50, 002-9, 002-26: a command is a separate process and survives the daemon."""
    add(sf, "long", noting(tmp_path / "out", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo over; exit 7"))
    Predecessor(sf, "long").kill()
    serving = daemon(sf)
    for _ in range(5):
        serving.tick(woken=True)
    (run,) = sf.runs.list("long")
    assert (run.state, run.attempt, run.holder) == ("running", 1, sf._store.caller.holder)
    (tmp_path / "go").touch()
    run = ended(sf, serving, "long")
    assert (run.state, run.exit_code, run.attempt) == ("failed", 7, 1)
    assert run.stdout_id is not None
    assert sf.artifacts.get(run.stdout_id) == b"over\n"
    assert noted(tmp_path / "out") == {("long", AT_US): 1}
    assert serving.counts["adopted"] == 1
    assert "run.adopted" in [event.type for event in sf.journal.about(run.id, limit=100)]


def test_a_result_that_came_while_no_daemon_ran_is_recorded(sf: standfast.Standfast, tmp_path: Path) -> None:
    add(sf, "long", noting(tmp_path / "out", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; echo over"))
    Predecessor(sf, "long").kill()
    (run,) = sf.runs.list("long")
    (tmp_path / "go").touch()
    until(lambda: not os.path.exists(f"/proc/{run.pid}"))
    run = ended(sf, daemon(sf), "long")
    assert (run.state, run.exit_code, run.attempt) == ("done", 0, 1)


def test_where_the_keeper_was_killed_too_the_rest_is_ended_before_the_run_is_given_up(
    sf: standfast.Standfast, tmp_path: Path
) -> None:
    """No second command is started while the first may still run."""
    add(sf, "long", noting(tmp_path / "out", f"echo $$ > {tmp_path}/pid; exec sleep 60"))
    before = Predecessor(sf, "long")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    command = int((tmp_path / "pid").read_text())
    (run,) = sf.runs.list("long")
    before.kill()
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{run.pid}"))
    assert os.path.exists(f"/proc/{command}")
    run = ended(sf, daemon(sf), "long")
    assert (run.state, run.exit_code, run.attempt) == ("failed", None, 1)
    assert run.reason is not None
    assert "its outcome is unknown" in run.reason
    until(lambda: not os.path.exists(f"/proc/{command}"))
    assert noted(tmp_path / "out") == {("long", AT_US): 1}


def test_a_part_that_fails_is_started_again_and_continues_its_work(sf: standfast.Standfast, tmp_path: Path) -> None:
    """002-31: only the failing part restarts, and its commands keep running."""
    add(sf, "long", noting(tmp_path / "out", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"))
    serving = daemon(sf)
    begun(sf, serving, "long")
    old = serving.work
    del old._going  # no part can work with this value
    serving.tick(woken=True)
    states = {part.name: part.state for part in serving.supervisor.states()}
    assert states == {"fire": "ok", "run": "failing", "sweep": "ok", "copy": "ok"}
    (tmp_path / "go").touch()
    assert ended(sf, serving, "long").state == "done"
    assert serving.work is not old
    assert noted(tmp_path / "out") == {("long", AT_US): 1}


def test_only_an_attempt_without_a_live_holder_is_taken_over(sf: standfast.Standfast) -> None:
    from standfast import handle

    add(sf, "nightly", ["true"])
    sf.loops.fire_due()
    with subprocess.Popen(["sleep", "60"]) as worker:
        with handle.connect(sf.settings, pid=worker.pid, clock=Later()) as other:
            run = other.runs.claim(host="here")
            assert run is not None
            assert [one.id for one in other.runs.mine()] == [run.id]
        for act in (sf.runs.adopt, lambda *key: sf.runs.requeue(*key, reason="it never began")):
            with pytest.raises(errors.InProgress, match=f"process {worker.pid} on"):
                act(run.id, 1)  # type: ignore[operator]
        assert sf.runs.left() == sf.runs.mine() == []
        worker.kill()
        worker.wait()
    assert [one.id for one in sf.runs.left()] == [run.id]
    adopted = sf.runs.adopt(run.id, 1)
    assert (adopted.holder, adopted.attempt, adopted.state) == (sf._store.caller.holder, 1, "running")
    assert [one.id for one in sf.runs.mine()] == [run.id]
    queued = sf.runs.requeue(run.id, 1, reason="it never began")
    assert (queued.state, queued.holder, queued.reason) == ("queued", None, "it never began")
    for act in (sf.runs.adopt, lambda *key: sf.runs.requeue(*key, reason="again")):
        with pytest.raises(errors.LeaseLost):
            act(run.id, 1)  # type: ignore[operator]
    again = sf.runs.claim(host="here")
    assert again is not None
    assert (again.id, again.attempt) == (run.id, 2)
    sf.runs.cancel(run.id, "not needed")
    assert sf.runs.requeue(run.id, 2, reason="it never began").state == "cancelled"


def test_a_claim_whose_answer_was_lost_is_found_again(sf: standfast.Standfast, tmp_path: Path) -> None:
    """After CommitUnknown the daemon may own a run without knowing it."""
    add(sf, "nightly", noting(tmp_path / "out"))
    sf.loops.fire_due()
    assert sf.runs.claim(host="here") is not None  # no caller got the answer
    serving = daemon(sf)
    run = ended(sf, serving, "nightly")
    assert (run.state, run.attempt) == ("done", 2)
    assert noted(tmp_path / "out") == {("nightly", AT_US): 1}


# -- one per store ----------------------------------------------------------------------------------------


def test_a_second_daemon_is_on_standby_and_takes_over(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-36: two daemons never run the same due job twice."""
    with subprocess.Popen(["sleep", "60"]) as other:
        from standfast import handle

        with handle.connect(sf.settings, pid=other.pid, clock=Later()) as first:
            leading = daemon(first)
            leading.tick()
            add(sf, "nightly", noting(tmp_path / "out"))
            second = daemon(sf)
            for _ in range(3):
                second.tick(woken=True)
            assert (leading.state, second.state) == ("active", "standby")
            assert second.lead.other == f"process {other.pid} on {os.uname().nodename}"
            assert sf.runs.list("nightly") == []
            other.kill()
            other.wait()
            assert ended(sf, second, "nightly").state == "done"
            assert second.state == "active"
            leading.lead._renewed_us = -HOUR_US  # the first daemon was suspended, and runs again
            leading.tick()
            assert leading.state == "standby"
    assert noted(tmp_path / "out") == {("nightly", AT_US): 1}


# -- transient faults --------------------------------------------------------------------------------------


class Flaky:
    def __init__(self, clock: ManualClock, wrong: list[Exception]) -> None:
        self.clock, self.wrong, self.made, self.steps = clock, wrong, 0, 0

    def make(self) -> Flaky:
        self.made += 1
        return self

    def step(self) -> int:
        self.steps += 1
        if self.wrong:
            raise self.wrong.pop(0)
        return 10 * SECOND_US


def test_a_transient_fault_is_waited_out_by_one_part_and_logged_once() -> None:
    """000-13: a store that is busy for a while does not end the daemon."""
    clock, said = ManualClock(), list[str]()
    busy, well = Flaky(clock, [errors.Busy("locked")] * 12), Flaky(clock, [])
    supervisor = Supervisor({"busy": busy.make, "well": well.make}, clock, said.append)
    for _ in range(200):
        clock.advance(max(supervisor.step(), 1) / SECOND_US)
    assert (busy.made, well.made) == (1, 1)
    assert [part.state for part in supervisor.states()] == ["ok", "ok"]
    assert said == ["busy: waiting: locked", "busy: well again after 12 failures"]


def test_a_failing_part_restarts_at_growing_intervals_and_the_others_continue() -> None:
    clock, said = ManualClock(), list[str]()
    bad, well = Flaky(clock, [RuntimeError("a bug")] * 1000), Flaky(clock, [])
    supervisor = Supervisor({"bad": bad.make, "well": well.make}, clock, said.append)
    for _ in range(500):
        clock.advance(max(supervisor.step(woken=True), 1) / SECOND_US)
    assert bad.made == bad.steps > 5
    assert well.steps == 500, "a notification wakes the healthy part, not the waiting one"
    state = supervisor.states()[0]
    assert (state.state, state.error) == ("failing", "RuntimeError: a bug")
    assert said == ["bad: failing: RuntimeError: a bug"]
    before = bad.steps
    clock.advance(BACKOFF_MAX_US / SECOND_US)
    supervisor.step()
    assert bad.steps == before + 1


def test_a_deleted_store_is_a_failure_and_is_tried_again() -> None:
    clock, said = ManualClock(), list[str]()
    flaky = Flaky(clock, [errors.Corrupt("damaged")])
    supervisor = Supervisor({"run": flaky.make}, clock, said.append)
    supervisor.step()
    assert supervisor.states()[0].state == "failing"
    clock.advance(BACKOFF_MAX_US / SECOND_US)
    supervisor.step()
    assert supervisor.states()[0].state == "ok"


# -- sweeping and notifying -----------------------------------------------------------------------------------


def test_the_daemon_sweeps_expired_rows_and_notifies_a_person(sf: standfast.Standfast, tmp_path: Path) -> None:
    from standfast import handle
    from standfast.daemon.jobs import Sweeping

    told = tmp_path / "notified"
    sf._store.notify = ("sh", "-c", f"echo $STANDFAST_EVENT >> {told}")
    add(sf, "nightly", ["true"], catch_up="none")
    daemon(sf).tick()
    sf.state.set("short", 1, for_="1us")
    sf.mail.send("reviewer", "hello", attempts_max=1)
    with subprocess.Popen(["sleep", "60"]) as reader:
        with handle.connect(sf.settings, pid=reader.pid, clock=Later()) as other:
            assert other.mail.claim("reviewer") is not None
        reader.kill()
        reader.wait()
    sweeping = Sweeping(sf)
    assert sweeping.step() > 0, "nothing is due yet"
    sweeping._due_us = [0] * len(sweeping._due_us)
    sweeping.step()
    assert [letter.reason for letter in sf.mail.dead()] != []
    until(lambda: told.exists() and len(told.read_text().split()) == 2)
    assert sorted(told.read_text().split()) == ["mail.dead", "run.missed"]


def test_one_sweep_that_fails_delays_no_other(sf: standfast.Standfast) -> None:
    from standfast.daemon.jobs import Sweeping

    done: list[str] = []

    def busy() -> None:
        raise errors.Busy("locked")

    sweeping = Sweeping(sf)
    sweeping._sweeps = [(SECOND_US, busy), (SECOND_US, lambda: done.append("swept"))]
    sweeping._due_us = [0, 0]
    for _ in range(2):
        with pytest.raises(errors.Busy):
            sweeping.step()
    assert done == ["swept"]


def test_an_overgrown_log_is_emptied_when_little_is_going_on(tmp_path: Path) -> None:
    with opened(str(tmp_path / "standfast.db"), tmp_path) as sf:
        with sf.transaction() as tx:
            for n in range(12):
                tx.state.set(f"large{n}", "x" * 1_000_000)
        log = tmp_path / "standfast.db-wal"
        assert log.stat().st_size > 8_000_000
        sf.engine.care()
        assert log.stat().st_size == 0
        assert sf.state.get("large11").value == "x" * 1_000_000


# -- a clock that is moved -----------------------------------------------------------------------------------


def test_a_day_on_a_virtual_clock(tmp_path: Path) -> None:
    """000-16: every slot of a day is fired, run and recorded, with hours without a daemon."""
    clock = ManualClock()
    with opened(str(tmp_path / "standfast.db"), tmp_path / "data", clock=clock) as sf:  # type: ignore[arg-type]
        added = sf.loops.add("hourly", noting(tmp_path / "out"), every="1h", cwd="/", catch_up="latest")
        serving = daemon(sf)
        for hour in range(24):
            clock.advance("1h")
            if 9 <= hour < 12:
                continue  # down
            until(lambda: sf.loops.next_due_us() > clock.now_us(), lambda: serving.tick(woken=True))  # type: ignore[operator]
            until(lambda: serving.work.idle, lambda: serving.tick(woken=True))
        runs = {run.slot_us: run for run in sf.runs.list("hourly", limit=100)}
        assert added.next_slot_us is not None
        states = [runs[added.next_slot_us + hour * HOUR_US].state for hour in range(24)]
        assert states == ["done"] * 9 + ["missed"] * 3 + ["done"] * 12
        assert noted(tmp_path / "out") == {("hourly", us): 1 for us, run in runs.items() if run.state == "done"}


def test_a_run_from_before_a_reboot_is_not_repeated_and_its_outcome_is_unknown(tmp_path: Path) -> None:
    clock = ManualClock()
    with opened(str(tmp_path / "standfast.db"), tmp_path / "data", clock=clock) as sf:  # type: ignore[arg-type]
        wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done"
        sf.loops.add("hourly", noting(tmp_path / "out", wait), every="1h", cwd="/")
        clock.advance("1h")
        first = daemon(sf)
        begun(sf, first, "hourly")
        until(lambda: noted(tmp_path / "out"))
        clock.reboot()
        (tmp_path / "go").touch()  # a restart would have ended the command
    with opened(str(tmp_path / "standfast.db"), tmp_path / "data", clock=clock) as sf:  # type: ignore[arg-type]
        run = ended(sf, daemon(sf), "hourly")
    assert run.state in ("failed", "done")  # done: its answer was on disk before the power loss
    assert run.state == "done" or "the machine was restarted" in str(run.reason)
    assert sum(noted(tmp_path / "out").values()) == 1
    for keeper in first.spool._ours.values():
        keeper.wait()
