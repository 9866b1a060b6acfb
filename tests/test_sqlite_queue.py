"""The queue inside one process: everybody who was served is woken, whatever happens to those before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import ids
from standfast.db.sqlite import queue as module
from standfast.db.sqlite.queue import Entry, Queue
from standfast.db.sqlite.signals import HeldBack
from standfast.prove.faults.rows import keys, put
from standfast.prove.faults.threads import Task


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as store:
        yield store


def asleep(count: int) -> list[Entry]:
    """Threads that wait for their answer, without the threads."""
    entries = [Entry([]) for _ in range(count)]
    for entry in entries:
        entry.turn = threading.Lock()
        entry.turn.acquire()
    return entries


def woken(entries: list[Entry]) -> list[int]:
    return [n for n, entry in enumerate(entries) if entry.turn is not None and not entry.turn.locked()]


def runs_again(queue: Queue, entry: Entry) -> None:
    """What a thread does first when it was woken to hear its answer."""
    assert entry.answer is not None
    queue._wake_next(entry.answer)


def test_each_of_those_who_were_served_wakes_the_next_one() -> None:
    queue, served = Queue(), asleep(4)
    queue.answer(served)
    for n in range(4):
        assert woken(served) == list(range(n + 1))
        assert queue._coming == 1
        runs_again(queue, served[n])
    assert queue._coming == 0


def test_one_who_was_interrupted_before_it_was_woken_is_passed_over() -> None:
    queue, served = Queue(), asleep(4)
    queue._leave(served[1])
    queue.answer(served)
    queue._leave(served[2])
    runs_again(queue, served[0])
    assert woken(served) == [0, 3]
    runs_again(queue, served[3])
    assert queue._coming == 0


def test_one_who_is_interrupted_when_it_was_woken_still_wakes_the_next_one() -> None:
    queue, served = Queue(), asleep(3)
    queue.answer(served)
    queue._leave(served[0])
    assert woken(served) == [0, 1]
    queue._leave(served[1])
    queue._leave(served[2])
    queue._leave(served[2])  # however often
    assert queue._coming == 0


def test_one_who_was_interrupted_is_not_put_back_and_never_told_to_lead() -> None:
    queue, waiting = Queue(), asleep(3)
    queue._leading = True  # and the leader has taken all three along
    queue._leave(waiting[0])
    queue.put_back(waiting)
    queue.hand_over()
    assert [entry.leads for entry in waiting] == [False, True, False]


def test_when_one_took_long_to_get_going_all_that_are_left_are_woken() -> None:
    queue, served = Queue(), asleep(5)
    queue.answer(served)
    assert served[0].answer is not None
    served[0].answer.since -= 1.0  # somebody else computes: a turn of the interpreter takes 5 ms, not 20 µs
    runs_again(queue, served[0])
    assert woken(served) == [0, 1, 2, 3, 4]
    for entry in served[1:]:
        runs_again(queue, entry)
    assert queue._coming == 0


def test_nobody_leads_before_those_who_were_just_answered_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 600.0)
    queue, served = Queue(), asleep(2)
    queue.answer(served)
    assert not queue.lead_alone()
    leader = Entry([])
    task = Task(lambda: queue.enter(leader, HeldBack().__enter__()))
    while queue._patient is None:
        time.sleep(0.001)
    runs_again(queue, served[0])
    assert task.is_alive()
    runs_again(queue, served[1])
    assert task.done() is None
    assert leader.leads
    assert queue._patient is None


def test_a_leader_does_not_wait_for_ever_for_one_who_does_not_come() -> None:
    queue, served = Queue(), asleep(2)
    queue.answer(served)
    assert queue.enter(Entry([]), HeldBack().__enter__())
    assert queue._patient is None


def test_threads_that_write_on_and_on_share_their_commits(sf: standfast.Standfast) -> None:
    """000-5, DESIGN 6: sixty-four callers are served together, not a few at a time."""
    together = threading.Barrier(64)

    def write() -> None:
        together.wait()
        for _ in range(20):
            put(sf, f"k{ids.new_id('msg')}")

    before = int(str(sf.engine.facts()["batches"]))
    assert [task.done() for task in [Task(write) for _ in range(64)]] == [None] * 64
    assert len(keys(sf)) == 64 * 20
    assert int(str(sf.engine.facts()["batches"])) - before <= 64 * 20 / 8
