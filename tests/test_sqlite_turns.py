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
