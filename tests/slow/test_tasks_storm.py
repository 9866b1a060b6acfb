"""Many processes work on tasks. They are killed, or paused past their leases, and their clocks jump."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import standfast
from standfast import config, handle
from standfast.clock import SECOND_US
from standfast.errors import LeaseLost
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.clocks import SharedClock
from standfast_prove.linearizability import Call, linearizable

PROCESSES = 8
LEASE_US = 10 * SECOND_US


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


# -- sightings -------------------------------------------------------------------------------------------


def see(url: str, data: str, number: int, times: int) -> None:
    """In a child process: report the same condition again and again."""
    with standfast.open(url, data_dir=data) as sf:
        for n in range(times):
            sf.tasks.add(f"Queue is LONG at 2026-11-15T03:{n % 60:02d}:00Z", body=f"{number}/{n}", source="watch")


def test_a_thousand_sightings_from_eight_processes_are_one_task(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    """000-24: 1,000 runs on an unchanged condition leave one task, updated 1,000 times."""
    data = str(tmp_path / "data")
    asked: dict[str, object] = {"url": engine_url, "data": data, "times": 125}
    pids = nursery.race("tests.slow.test_tasks_storm:see", [asked | {"number": n} for n in range(PROCESSES)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * PROCESSES
    with standfast.open(engine_url, data_dir=data) as sf:
        (task,) = sf.tasks.list(state="any")
        assert (task.occurrences, task.episode, task.state) == (1000, 1, "open")
        counted = [event for event in sf.tasks.history(task, limit=1000) if event.type in ("task.opened", "task.seen")]
        assert sorted(event.data["occurrences"] for event in counted) == list(range(1, 1001))


def see_and_close(url: str, data: str, number: int, times: int) -> None:
    """In a child process: report a task. The first process that claims the task closes it."""
    draw = random.Random(number)
    with standfast.open(url, data_dir=data) as sf:
        for _ in range(times):
            task = sf.tasks.add("flaky", cool_down=draw.choice(["0s", "200us"]))
            if draw.random() < 0.5:
                sf.tasks.done(task.id)


def test_episodes_opened_and_closed_by_eight_processes_leave_no_gap_and_no_double(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    asked: dict[str, object] = {"url": engine_url, "data": data, "times": 40}
    pids = nursery.race("tests.slow.test_tasks_storm:see_and_close", [asked | {"number": n} for n in range(PROCESSES)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * PROCESSES
    with standfast.open(engine_url, data_dir=data) as sf:
        lives = sorted(sf.tasks.list(state="any", limit=1000), key=lambda task: task.episode)
    assert [task.episode for task in lives] == list(range(1, len(lives) + 1))
    assert {task.state for task in lives[:-1]} == {"closed"}
    assert sum(task.occurrences for task in lives) == PROCESSES * 40


# -- claims ------------------------------------------------------------------------------------------------


def work(url: str, data: str, clock: str, history: str, number: int, jumps: bool) -> None:
    """In a child process: claim a task, hold it, finish or release it, until the process is killed or no task is
    left.
    """
    draw, time_ = random.Random(number), SharedClock(Path(clock))
    # Every second one is a process, which is dead at once when it is killed; the others are actors, two
    # or more of one name: only their fences tell them apart.
    settings = config.load(url, data_dir=data, actor=f"worker {number % 4}")
    sf = handle.connect(settings, clock=time_, as_actor=number % 2 == 0)
    told = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def asking(kind: str, task: str | None = None, fence: int = 0) -> str:
        call = f"{number}.{draw.getrandbits(60)}"
        asked = {"call": call, "at": time.monotonic(), "clock": time_.mono_us(), "kind": kind}
        os.write(told, json.dumps(asked | {"task": task, "fence": fence, "by": number}).encode() + b"\n")
        return call

    def answered(call: str, result: str, **more: object) -> None:
        at = {"call": call, "at": time.monotonic(), "clock": time_.mono_us()}
        os.write(told, json.dumps(at | {"result": result, **more}).encode() + b"\n")

    while True:
        time_.jump_us = draw.randrange(-(10**15), 10**15) if jumps else 0
        call = asking("claim")
        task = sf.tasks.claim(for_=LEASE_US / 1_000_000)
        if task is None:
            answered(call, "nothing")
            if not sf.tasks.list(limit=1):
                return
            continue
        answered(call, "claimed", task=task.id, fence=task.fence)
        for _ in range(draw.randrange(3)):
            call = asking("renew", task.id, task.fence)
            try:
                sf.tasks.renew(task)
                answered(call, "ok")
            except LeaseLost:
                answered(call, "lost")
        kind = "done" if draw.random() < 0.08 else "release"
        call = asking(kind, task.id, task.fence)
        try:
            sf.tasks.done(task) if kind == "done" else sf.tasks.release(task)
            answered(call, "ok")
        except LeaseLost:
            answered(call, "lost")


class Held(NamedTuple):
    """The model of one task: the fencing token of its last claim, whether it is held, whether it is closed."""

    fence: int = 0
    held: bool = False
    closed: bool = False


def step(state: Held, asked: tuple[str, int], result: str, seen: bool) -> Held | None:
    """The holder of the last token may act, and a claim gets the next token. The model ignores the end of leases."""
    kind, fence = asked
    if kind == "claim":
        if state.closed:
            return None
        return Held(state.fence + 1, held=True) if not seen or fence == state.fence + 1 else None
    valid = state.fence == fence and not state.closed
    if seen and (result == "ok") != valid:
        return None
    if not valid or kind == "renew":
        return state
    return Held(fence, closed=True) if kind == "done" else Held(fence)


class Record(NamedTuple):
    """One call of a worker. Its end is missing if the worker was killed."""

    kind: str
    by: int
    task: str | None
    fence: int
    began: float
    ended: float
    clock: int
    clock_after: int
    result: str


def read(history: Path) -> list[Record]:
    asked: dict[str, dict[str, Any]] = {}
    for line in history.read_text().splitlines():
        entry = json.loads(line)
        if "kind" in entry:
            asked[entry["call"]] = entry
        else:
            asked[entry.pop("call")] |= {"ended": entry.pop("at"), "clock_after": entry.pop("clock"), **entry}
    return [
        Record(
            one["kind"],
            one["by"],
            one["task"],
            one["fence"],
            one["at"],
            one.get("ended", inf),
            one["clock"],
            one.get("clock_after", 2**62),
            one.get("result", "unknown"),
        )
        for one in asked.values()
    ]


def calls_of(task: str, records: list[Record]) -> list[Call]:
    """The calls that concern one task. A claim without a recorded end may have got any task."""
    mine = [one for one in records if one.task == task or (one.kind == "claim" and one.result == "unknown")]
    return [Call(one.began, one.ended, (one.kind, one.fence), one.result) for one in mine]


def torment(nursery: Nursery, start: Any, clock: SharedClock, history: Path, seed: int) -> dict[int, float]:
    """Kill processes, pause them past the lease and advance the clock until all work is done. Returns the times of
    the kills.
    """
    draw = random.Random(seed)
    alive = {number: start(number) for number in range(PROCESSES)}
    killed: dict[int, float] = {}
    following = PROCESSES
    end = time.monotonic() + 60
    while alive:
        assert time.monotonic() < end, "the work was not done in a minute"
        _progress(history, 0.05)
        number = draw.choice(list(alive))
        match draw.randrange(4):
            case 0 if following < 3 * PROCESSES:
                nursery.kill(alive.pop(number))
                killed[number] = time.monotonic()
                alive[following] = start(following)
                following += 1
            case 1:
                os.kill(alive[number], signal.SIGSTOP)
                clock.advance(LEASE_US + LEASE_US // 2)
                _progress(history, 0.1)
                os.kill(alive[number], signal.SIGCONT)
            case _:
                clock.advance(LEASE_US // 4)
        for number, pid in list(alive.items()):
            if (code := nursery.wait(pid, 0)) is not None:
                assert code == 0
                del alive[number]
    return killed


def _progress(history: Path, patience_s: float) -> None:
    """Let the workers run until 2,000 more bytes are recorded, or for `patience_s`."""
    size = history.stat().st_size if history.exists() else 0
    end = time.monotonic() + patience_s
    while (not history.exists() or history.stat().st_size < size + 2_000) and time.monotonic() < end:
        select.select([], [], [], 0.005)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_claim_has_one_valid_holder_through_kills_pauses_and_jumping_clocks(
    nursery: Nursery, engine_url: str, tmp_path: Path, seed: int
) -> None:
    """Every recorded history is linearizable. Only the fencing tokens decide."""
    data, history, clock = str(tmp_path / "data"), tmp_path / "history", SharedClock(tmp_path / "clock")
    with handle.connect(config.load(engine_url, data_dir=data), clock=clock) as sf:
        tasks = [sf.tasks.add(f"task {n}").id for n in range(6)]
    # On PostgreSQL only the server's clock counts, and it does not jump.
    jumps = not engine_url.startswith("postgres")
    paths = {"clock": str(tmp_path / "clock"), "history": str(history)}

    def start(number: int) -> int:
        return nursery.start(
            "tests.slow.test_tasks_storm:work", url=engine_url, data=data, number=number, jumps=jumps, **paths
        )

    killed = torment(nursery, start, clock, history, seed)
    records = read(history)
    for task in tasks:
        assert linearizable(calls_of(task, records), Held(), step), f"{task}: {calls_of(task, records)}"
    with handle.connect(config.load(engine_url, data_dir=data), clock=clock) as sf:
        for task in tasks:
            told = [event.type for event in sf.tasks.history(task, limit=1000)]
            assert told.count("task.closed") == 1
            assert sf.tasks.get(task).fence == told.count("task.claimed") + told.count("task.taken_over")
    check_that_nobody_alive_was_robbed(records, killed)


def check_that_nobody_alive_was_robbed(records: list[Record], killed: dict[int, float]) -> None:
    """A task got another holder only after it was given back, its holder was killed, or the lease had ended."""
    by_task: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        if one.task is not None and one.result in ("claimed", "ok"):
            by_task[one.task].append(one)
    robbed = []
    for changes in by_task.values():
        claims = {one.fence: one for one in changes if one.kind == "claim"}
        for fence, taken in claims.items():
            before = claims.get(fence - 1)
            mine = [one for one in changes if one.fence == fence - 1]
            if before is None or any(one.kind == "release" for one in mine) or before.by in killed:
                continue
            heard = max(one.clock for one in mine if one.kind in ("claim", "renew"))
            if taken.clock_after < heard + LEASE_US:
                robbed.append((before, taken))
    assert robbed == []
