"""Runs: one worker claims each run. A run ends once, is retried in its slot, and is taken over from a dead worker."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle, when
from standfast.clock import MINUTE_US, SECOND_US, ManualClock
from standfast.core import leases
from standfast.db.contract import Caller
from standfast.errors import IllegalTransition, InProgress, InvalidInput, LeaseLost, NotFound
from standfast.record.loops import Run

Open = Callable[[], standfast.Standfast]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    handles: list[standfast.Standfast] = []

    def enter() -> standfast.Standfast:
        handles.append(handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope="here"), clock=clock))
        return handles[-1]

    yield enter
    for store in handles:
        store.close()


@pytest.fixture
def sf(place: Open) -> standfast.Standfast:
    return place()


def held_by(sf: standfast.Standfast, holder: str) -> standfast.Standfast:
    """The same handle with another holder, as in another process."""
    old = sf._store.caller
    sf._store.caller = Caller(actor=old.actor, holder=holder, scope=old.scope, clock=old.clock)
    return sf


def elsewhere(pid: int = 4711) -> str:
    """A process on another machine, whose state this host cannot know."""
    return str(leases.Process("there", "manual-b", "other", pid, "1"))


def due(sf: standfast.Standfast, clock: ManualClock, **changed: object) -> Run:
    sf.loops.add("nightly", ["make", "nightly"], every="15m", cwd="/", environment={"A": "b"}, **changed)  # type: ignore[arg-type]
    clock.advance("15m")
    (run,) = sf.loops.fire_due()
    return run


def claimed(sf: standfast.Standfast, host: str = "here") -> Run:
    run = sf.runs.claim(host=host)
    assert run is not None
    return run


def test_a_run_is_claimed_started_and_done_and_each_step_is_in_the_journal(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    """000-14, 000-15, 000-18: standfast writes the events of a run, not its command."""
    queued = due(sf, clock, timeout="1m")
    run = claimed(sf)
    assert (run.id, run.state, run.attempt, run.host, run.holder) == (
        queued.id,
        "running",
        1,
        "here",
        sf._store.caller.holder,
    )
    assert run.job is not None
    assert run.job.as_dict() == {
        "command": ("make", "nightly"),
        "cwd": "/",
        "environment": {"A": "b"},
        "timeout_us": MINUTE_US,
    }
    assert sf.runs.claim(host="here") is None
    process = leases.this_process(clock)
    begun = sf.runs.started(run.id, 1, pid=5, process=process)
    assert (begun.pid, begun.process) == (5, process)
    clock.advance("3s")
    done = sf.runs.finish(run.id, 1, exit_code=0, duration="3s", stdout_id="art_x")
    assert (done.state, done.exit_code, done.duration_us, done.stdout_id, done.holder) == (
        "done",
        0,
        3 * SECOND_US,
        "art_x",
        None,
    )
    assert (done.ended_us, done.started_us) == (clock.now_us(), clock.now_us() - 3 * SECOND_US)
    assert sf.runs.get(run.id).replace(receipt=done.receipt) == done
    assert [event.type for event in sf.journal.about(run.id)] == [
        "run.queued",
        "run.claimed",
        "run.started",
        "run.done",
    ]
    with pytest.raises(LeaseLost, match="attempt 1 ended as done"):
        sf.runs.finish(run.id, 1, exit_code=1, duration="1us")


@pytest.mark.parametrize("kind", ["failed", "timed_out"])
def test_a_failed_run_is_tried_again_in_its_slot_with_more_patience_each_time(
    sf: standfast.Standfast, clock: ManualClock, kind: str
) -> None:
    first = due(sf, clock, retries_max=2)
    for attempt, wait in ((1, "30s"), (2, "60s")):
        run = claimed(sf)
        assert (run.id, run.slot_us, run.attempt) == (first.id, first.slot_us, attempt)
        again = sf.runs.finish(run.id, attempt, exit_code=-15, timed_out=kind == "timed_out", duration="2s")
        assert (again.state, again.attempt, again.ended_us) == ("queued", attempt, None)
        assert f"attempt {attempt + 1} of 3 in" in (again.reason or "")
        with pytest.raises(LeaseLost):
            sf.runs.finish(run.id, attempt, exit_code=0, duration="1us")
        clock.advance("29s")
        assert sf.runs.claim(host="here") is None
        clock.advance(wait)
    run = claimed(sf)
    last = sf.runs.finish(run.id, 3, exit_code=-15, timed_out=kind == "timed_out", duration="2s")
    assert (last.state, last.attempt) == (kind, 3)
    assert {"failed": "ended by signal 15", "timed_out": "its timeout"}[kind] in (last.reason or "")
    assert len(sf.runs.list("nightly")) == 1
    assert sf.loops.get("nightly").failures == 1


def test_a_run_of_a_dead_worker_is_abandoned_or_retried(sf: standfast.Standfast, clock: ManualClock) -> None:
    """000-37: a dead worker is recognised by pid and start time, not by its pid alone."""
    due(sf, clock, retries_max=1)
    body = subprocess.Popen(["sleep", "1000"])
    holder = str(leases.process(body.pid, clock))
    run = claimed(held_by(sf, holder), "there")
    sf.runs.started(run.id, 1, pid=body.pid, process=holder)
    held_by(sf, leases.this_process(clock))
    assert sf.runs.abandon_dead() == []
    body.kill()
    body.wait()
    (again,) = sf.runs.abandon_dead()
    assert (again.state, again.id) == ("queued", run.id)
    assert f"process {body.pid} on" in (again.reason or "")
    with pytest.raises(LeaseLost):
        sf.runs.finish(run.id, 1, exit_code=0, duration="1us")
    clock.advance("30s")
    claimed(held_by(sf, elsewhere()), "there")
    held_by(sf, leases.this_process(clock))
    assert sf.runs.abandon_dead() == []  # this host cannot know whether it is alive
    clock.advance("61s")
    (gone,) = sf.runs.abandon_dead()
    assert (gone.state, gone.attempt, gone.host) == ("abandoned", 2, "there")
    assert "was not heard of in time" in (gone.reason or "")
    assert sf.loops.get("nightly").failures == 0  # the host failed, not the job


def test_a_child_that_outlived_its_worker_is_found_before_its_run_is_given_away(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    due(sf, clock)
    child = subprocess.Popen(["sleep", "1000"])
    identity = str(leases.process(child.pid, clock))
    run = claimed(held_by(sf, elsewhere()))
    sf.runs.started(run.id, 1, pid=child.pid, process=identity)
    held_by(sf, leases.this_process(clock))
    clock.advance("61s")
    assert [one.process for one in sf.runs.left()] == [identity]
    assert sf.runs.abandon_dead() == []
    child.kill()
    child.wait()
    assert [one.state for one in sf.runs.abandon_dead()] == ["abandoned"]


def test_a_recycled_pid_is_not_taken_for_the_child(sf: standfast.Standfast, clock: ManualClock) -> None:
    due(sf, clock)
    run = claimed(held_by(sf, elsewhere()))
    found = leases.process(1, clock)
    sf.runs.started(run.id, 1, pid=1, process=str(found._replace(start="1")))
    held_by(sf, leases.this_process(clock))
    clock.advance("61s")
    assert [one.state for one in sf.runs.abandon_dead()] == ["abandoned"]


def test_what_waits_is_cancelled_at_once_and_what_runs_by_its_worker(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    waiting = due(sf, clock, overlap="queue", retries_max=5)
    cancelled = sf.runs.cancel(waiting.id, "not today")
    assert (cancelled.state, cancelled.reason) == ("cancelled", "not today")
    with pytest.raises(IllegalTransition, match="has ended"):
        sf.runs.cancel(waiting.id, "again")
    clock.advance("15m")
    sf.loops.fire_due()
    run = claimed(sf)
    assert sf.runs.to_cancel() == []
    asked = sf.runs.cancel(run.id[-8:], "it hangs")
    assert (asked.state, asked.cancel_reason) == ("running", "it hangs")
    assert [one.id for one in sf.runs.to_cancel()] == [run.id]
    ended = sf.runs.finish(run.id, 1, cancelled=True, exit_code=-15, duration="1us")
    assert (ended.state, ended.cancel_reason, ended.reason) == ("cancelled", None, "it hangs (attempt 1 of 6)")


def test_a_cancelled_run_whose_worker_dies_is_not_retried(sf: standfast.Standfast, clock: ManualClock) -> None:
    due(sf, clock, retries_max=5)
    run = claimed(held_by(sf, elsewhere()))
    sf.runs.cancel(run.id, "it hangs")
    held_by(sf, leases.this_process(clock))
    clock.advance("61s")
    (ended,) = sf.runs.abandon_dead()
    assert (ended.state, (ended.reason or "")[:8]) == ("cancelled", "it hangs")


def test_a_requested_run_replaces_no_slot(sf: standfast.Standfast, clock: ManualClock) -> None:
    first = due(sf, clock)
    asked = [sf.runs.ask("nightly") for _ in range(3)]  # exactly at the time of a slot
    assert {run.source for run in asked} == {"asked"}
    assert len({run.slot_us for run in (first, *asked)}) == 4
    assert [claimed(sf).id, sf.runs.claim(host="here")] == [first.id, None]  # a loop has one claimed run
    sf.runs.finish(first.id, 1, exit_code=0, duration="1us")
    assert claimed(sf).id == asked[0].id
    with pytest.raises(InProgress, match="nightly"):
        sf.runs.claim(host="here", run_id=asked[2].id)
    sf.runs.finish(asked[0].id, 1, exit_code=0, duration="1us")
    third = sf.runs.claim(host="here", run_id=asked[2].id)
    assert third is not None
    assert third.id == asked[2].id
    with pytest.raises(IllegalTransition, match="is not queued"):
        sf.runs.claim(host="here", run_id=asked[0].id)
    with pytest.raises(NotFound):
        sf.runs.ask("weekly")


def test_runs_of_one_loop_run_one_after_the_other(place: Open, clock: ManualClock) -> None:
    """000-36: the schema also refuses two claimed runs of one loop."""
    stores = [place() for _ in range(4)]
    for n in range(3):
        stores[0].loops.add(f"loop {n}", ["true"], every="15m", overlap="queue")
    for _ in range(5):
        clock.advance("15m")
        stores[0].loops.fire_due()
    barrier, seen, mutex = threading.Barrier(4), list[Run](), threading.Lock()
    at_once: Counter[str] = Counter()

    def work(sf: standfast.Standfast) -> None:
        barrier.wait()
        while len(seen) < 15:
            run = sf.runs.claim(host="x")
            if run is None:
                continue
            with mutex:
                at_once[run.loop] += 1
                assert at_once[run.loop] == 1
                seen.append(run)
            with mutex:
                at_once[run.loop] -= 1
            sf.runs.finish(run.id, run.attempt, exit_code=0, duration="1us")

    threads = [threading.Thread(target=work, args=(sf,)) for sf in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(run.attempt for run in seen) == {1: 15}
    for n in range(3):
        slots = [run.slot_us for run in seen if run.loop == f"loop {n}"]
        assert slots == sorted(set(slots))


def test_each_page_of_runs_begins_after_the_last_one(sf: standfast.Standfast, clock: ManualClock) -> None:
    sf.loops.add("often", ["true"], every="1m", catch_up="all", catch_up_max=3)
    clock.advance("20m")
    sf.loops.fire_due()
    for asked in ({"loop": "often"}, {}, {"everywhere": True}):
        whole = sf.runs.list(limit=100, **asked)
        paged: list[Run] = []
        while page := sf.runs.list(limit=7, after=paged[-1].place if paged else None, **asked):
            paged += page
        assert paged == whole
        assert len(whole) == 20
    recent = sf.runs.list("often", since=when.utc(clock.now_us() - 5 * MINUTE_US))
    assert [run.slot_us for run in recent] == [clock.now_us() - n * MINUTE_US for n in range(6)]
    assert len(sf.runs.list(state="queued")) == 3
    for garbage in ("x", "1:2", "99999999999999999999:run_x", ":"):
        with pytest.raises(InvalidInput, match="cursor"):
            sf.runs.list(after=garbage)
    with pytest.raises(InvalidInput, match="state"):
        sf.runs.list(state="sleeping")
    run = claimed(sf)
    with pytest.raises(InvalidInput, match="identify a process"):
        sf.runs.started(run.id, 1, pid=1, process="pid 1")


def test_loops_and_runs_are_awaited_by_the_same_names(engine_url: str, tmp_path: Path) -> None:
    import asyncio

    async def main() -> list[str]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            await sf.loops.add("nightly", ["true"], every="15m")
            asked = await sf.runs.ask("nightly")
            run = await sf.runs.claim(host="here")
            await sf.runs.finish(run.id, run.attempt, exit_code=0, duration="1us")
            assert (await sf.loops.absent(), await sf.loops.fire_due()) == ([], [])
            return [asked.id, *(one.id for one in await sf.runs.list("nightly", state="done"))]

    asked, done = asyncio.run(main())
    assert asked == done
