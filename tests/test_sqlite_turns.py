"""Turns between processes: who has to wait for the lock has its work done by the thread that waited.

The lock is held here by a `with store.transaction()` of this process; the child, or another store of this process,
stands in the kernel's queue for it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import standfast
from standfast.db.sqlite import lock as lock_module
from standfast.db.sqlite import migrate
from standfast.db.sqlite.lock import FileLock
from standfast.errors import Busy, InvalidInput
from standfast.prove.faults.children import Child, heard, say
from standfast.prove.faults.limits import set_limit
from standfast.prove.faults.rows import INSERT, keys, put
from standfast.prove.faults.threads import Task
from tests.test_sqlite_interrupts import waits_in_the_kernel

WAITED = "standfast-lock"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


@pytest.fixture
def taken(sf: standfast.Standfast, path: Path) -> Iterator[FileLock]:
    """The turn of another process."""
    lock = FileLock(f"{path}.lock")
    lock.acquire(5)
    yield lock
    lock.close()


def until_it_waits(path: Path, pid: int) -> None:
    end = time.monotonic() + 30
    while not waits_in_the_kernel(pid, Path(f"{path}.lock")):
        assert time.monotonic() < end, "nobody stands in the queue"
        time.sleep(0.001)


def who(tx: Any) -> str:
    tx.run(INSERT, key=f"k-{time.monotonic_ns()}", value="1")
    return threading.current_thread().name


def test_whoever_finds_the_lock_free_does_its_work_itself(sf: standfast.Standfast) -> None:
    assert sf._store.write(who) == threading.current_thread().name


def test_whoever_has_to_wait_has_it_done_by_the_thread_that_waited(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    names: list[str] = []
    task = Task(lambda: names.append(sf._store.write(who)))
    until_it_waits(path, os.getpid())
    taken.release()
    assert task.done() is None
    assert names == [WAITED]
    assert len(keys(sf)) == 1


def test_what_a_body_raises_there_reaches_its_caller_and_nobody_else(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    def raises(tx: Any) -> None:
        who(tx)
        raise ZeroDivisionError(threading.current_thread().name)

    def nests(tx: Any) -> None:
        who(tx)
        put(sf, "k-inside")

    first = Task(lambda: sf._store.write(raises))
    until_it_waits(path, os.getpid())
    others = [Task(lambda: sf._store.write(nests)), Task(lambda: sf._store.write(who))]
    while len(sf.engine.queue._waiting) < 2:  # type: ignore[attr-defined]
        time.sleep(0.001)
    taken.release()
    assert isinstance(first.done(), ZeroDivisionError)
    assert str(first.done()) == WAITED
    assert isinstance(others[0].done(), InvalidInput)
    assert others[1].done() is None
    assert len(keys(sf)) == 1


def test_what_was_not_begun_by_the_deadline_never_is(
    sf: standfast.Standfast, path: Path, taken: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit("DEADLINE_S", 0.2, change=monkeypatch.setattr)
    with pytest.raises(Busy, match=rf"process {os.getpid()} "):
        put(sf, "k-never")
    taken.release()
    for n in range(3):
        put(sf, f"k-{n}")
    assert keys(sf) == ["k-0", "k-1", "k-2"]


# -- Ctrl-C ----------------------------------------------------------------------------------------------------


def writes_in_its_turn(path: str, slow_s: float) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    say("open")
    heard()

    def body(tx: Any) -> str:
        say("begun")
        time.sleep(slow_s)
        tx.run(INSERT, key="k-main", value="1")
        return who(tx)

    try:
        say(f"done by {sf._store.write(body)}")
    except KeyboardInterrupt:
        say("interrupted")
    say(keys(sf))
    put(sf, "k-after")
    say("works again")


def test_an_interrupt_while_another_thread_does_the_work_waits_until_it_is_done(
    sf: standfast.Standfast, path: Path
) -> None:
    """000-1: Ctrl-C never strikes between a commit and its answer, whichever thread commits."""
    with Child("tests.test_sqlite_turns:writes_in_its_turn", path=str(path), slow_s=0.5) as child:
        child.expect("open")
        with sf.transaction():
            child.tell("write")
            until_it_waits(path, child.pid)
        child.expect("begun")
        child.signal(signal.SIGINT)
        child.expect("interrupted")
        assert "k-main" in child.hear()
        child.expect("works again")
    assert {"k-main", "k-after"} <= set(keys(sf))


def test_an_interrupt_while_that_thread_waits_for_a_foreign_program_undoes_it(
    sf: standfast.Standfast, path: Path
) -> None:
    """The lock between our processes is ours, the database is somebody else's for a while."""
    foreign = apsw.Connection(str(path))
    migrate.define_guard(foreign)
    with Child("tests.test_sqlite_turns:writes_in_its_turn", path=str(path), slow_s=0) as child:
        child.expect("open")
        lock = FileLock(f"{path}.lock")
        lock.acquire(5)
        child.tell("write")
        until_it_waits(path, child.pid)
        foreign.execute("BEGIN IMMEDIATE")
        lock.release()
        while lock.take():  # until it is the child's turn
            lock.release()
        child.signal(signal.SIGINT)
        child.expect("interrupted")
        assert child.hear() == "[]"
        foreign.execute("ROLLBACK")
        child.expect("works again")
        lock.close()
    foreign.close()
    assert keys(sf) == ["k-after"]


# -- what else can strike a thread that waits -------------------------------------------------------------------


class TooLong(Exception):
    """What a handler raises for a signal that is not held back."""


def is_struck(path: str, slow_s: float) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))

    def handler(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGXCPU, handler)
    say("open")
    heard()

    def body(tx: Any) -> None:
        say("begun")
        tx.run(INSERT, key="k-struck", value="1")
        time.sleep(slow_s)

    mates = [Task(sf._store.write, who) for _ in range(3)] if slow_s else []
    try:
        sf._store.write(body)
        say("written")
    except TooLong:
        say("struck")
    assert [mate.done() for mate in mates] == [None] * len(mates)
    heard()
    put(sf, "k-next")
    say("next")


def waiting_to_be_struck(child: Child, path: Path, taken: FileLock) -> None:
    """It has opened the store and stands in the queue with its write."""
    taken.release()
    child.expect("open")
    taken.acquire(5)
    child.tell("write")
    until_it_waits(path, child.pid)


def test_what_was_refused_while_it_waited_is_never_done_and_the_next_write_is_not_taken_for_it(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    """000-1: a write that raised is not made later, and an acknowledged one is made."""
    with Child("tests.test_sqlite_turns:is_struck", path=str(path), slow_s=0) as child:
        waiting_to_be_struck(child, path, taken)
        child.signal(signal.SIGXCPU)
        child.expect("struck")
        taken.release()
        put(sf, "k-other")
        taken.acquire(5)
        child.tell("again")
        until_it_waits(path, child.pid)
        assert keys(sf) == ["k-other"]
        taken.release()
        child.expect("next")
    assert keys(sf) == ["k-next", "k-other"]


def test_who_is_struck_while_its_work_is_done_hears_of_it_when_all_others_are_answered(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    """And nothing of theirs is done twice."""
    with Child("tests.test_sqlite_turns:is_struck", path=str(path), slow_s=0.5) as child:
        waiting_to_be_struck(child, path, taken)
        time.sleep(0.2)
        taken.release()
        child.expect("begun")
        child.signal(signal.SIGXCPU)
        child.expect("struck")
        child.tell("again")
        child.expect("next")
    assert len(keys(sf)) == 3 + 2
    assert {"k-struck", "k-next"} <= set(keys(sf))


def test_who_is_struck_when_it_has_the_lock_already_gives_it_back(
    sf: standfast.Standfast, path: Path, taken: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C may while a store is opened, where nothing holds it back."""
    wait = lock_module._Turn.wait

    def struck(turn: Any, *args: Any) -> bool:
        assert wait(turn, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(lock_module._Turn, "wait", struck)
    other = FileLock(f"{path}.lock")
    task = Task(other.acquire, 30)
    until_it_waits(path, os.getpid())
    taken.release()
    assert isinstance(task.done(), KeyboardInterrupt)
    put(sf, "k-after")
    other.close()
