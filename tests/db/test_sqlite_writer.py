"""The writer thread: it runs callers' transactions, callers can withdraw waiting ones, and no caller hurts another.

The lock between processes is held here by a `with store.transaction()` of this process, or by a FileLock of the
test; the writer thread waits for it in the kernel's queue.
"""

from __future__ import annotations

import asyncio
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
from standfast import ids
from standfast.core.event_loop import submitted
from standfast.db.sql import statement
from standfast.db.sqlite import migrate
from standfast.db.sqlite.lock import FileLock
from standfast.errors import Busy, InvalidInput
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.rows import INSERT, inserting, integrity, keys, put
from standfast_prove.faults.threads import Task
from tests.db.test_sqlite_interrupts import waits_in_the_kernel

WRITER = "standfast-writer"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


@pytest.fixture
def taken(sf: standfast.Standfast, path: Path) -> Iterator[FileLock]:
    """Hold the lock as another process would."""
    lock = FileLock(f"{path}.lock")
    lock.acquire(5)
    yield lock
    lock.close()


def until_it_waits(path: Path, pid: int) -> None:
    end = time.monotonic() + 30
    while not waits_in_the_kernel(pid, Path(f"{path}.lock")):
        assert time.monotonic() < end, "no thread waits for the lock"
        time.sleep(0.001)


def who(tx: Any) -> str:
    tx.run(INSERT, key=f"k-{time.monotonic_ns()}", value="1")
    return threading.current_thread().name


def test_one_thread_runs_the_bodies_of_all_callers(sf: standfast.Standfast, path: Path, taken: FileLock) -> None:
    """RULES 15: no caller uses the connection, so an exception in one caller cannot reach another."""
    threads: list[threading.Thread] = []
    tasks = [Task(lambda: sf._store.write(lambda _: threads.append(threading.current_thread()))) for _ in range(3)]
    until_it_waits(path, os.getpid())
    taken.release()
    assert [task.done() for task in tasks] == [None] * 3
    assert [thread.name for thread in threads] == [WRITER] * 3
    assert len(set(threads)) == 1


def test_a_store_that_is_only_read_starts_no_writer_thread(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the first open in a repository writes its label
    before = threading.active_count()
    with standfast.open(path, data_dir=tmp_path) as sf:
        keys(sf)
        assert threading.active_count() == before


def test_an_exception_of_a_body_reaches_only_its_caller(sf: standfast.Standfast, path: Path, taken: FileLock) -> None:
    def raises(tx: Any) -> None:
        who(tx)
        raise ZeroDivisionError(threading.current_thread().name)

    def nests(tx: Any) -> None:
        who(tx)
        put(sf, "k-inside")

    first = Task(lambda: sf._store.write(raises))
    until_it_waits(path, os.getpid())
    others = [Task(lambda: sf._store.write(nests)), Task(lambda: sf._store.write(who))]
    while sf.engine._writer.waiting() < 3:  # type: ignore[attr-defined]
        time.sleep(0.001)
    taken.release()
    assert isinstance(first.done(), ZeroDivisionError)
    assert str(first.done()) == WRITER
    assert isinstance(others[0].done(), InvalidInput)
    assert others[1].done() is None
    assert len(keys(sf)) == 1


def test_a_body_that_did_not_start_before_the_deadline_never_runs(
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
    """000-1: Ctrl-C is raised after the body that has begun is answered."""
    with Child("tests.db.test_sqlite_writer:writes_in_its_turn", path=str(path), slow_s=0.5) as child:
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
    """Our process holds the store's lock, and meanwhile a foreign program holds SQLite's lock."""
    foreign = apsw.Connection(str(path))
    migrate.define_guard(foreign)
    with Child("tests.db.test_sqlite_writer:writes_in_its_turn", path=str(path), slow_s=0) as child:
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


# -- other signals ------------------------------------------------------------------------------------------------


class Hit(BaseException):
    """What a signal handler raises."""


def is_hit(path: str, slow_s: float) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))

    def handler(*_: object) -> None:
        raise Hit

    signal.signal(signal.SIGXCPU, handler)
    say("open")
    heard()

    def body(tx: Any) -> None:
        say("begun")
        tx.run(INSERT, key="k-hit", value="1")
        time.sleep(slow_s)

    mates = [Task(sf._store.write, who) for _ in range(3)] if slow_s else []
    try:
        sf._store.write(body)
        say("written")
    except Hit:
        say("hit")
    assert [mate.done() for mate in mates] == [None] * len(mates)
    heard()
    put(sf, "k-next")
    say("next")


def waiting_to_be_hit(child: Child, path: Path, taken: FileLock) -> None:
    """A process that has opened the store and whose writer thread waits for the lock."""
    taken.release()
    child.expect("open")
    taken.acquire(5)
    child.tell("write")
    until_it_waits(path, child.pid)


def test_a_write_that_raised_while_it_waited_is_never_made(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    """000-1: a write that raised is not made later, and an acknowledged one is made."""
    with Child("tests.db.test_sqlite_writer:is_hit", path=str(path), slow_s=0) as child:
        waiting_to_be_hit(child, path, taken)
        child.signal(signal.SIGXCPU)
        child.expect("hit")
        taken.release()
        put(sf, "k-other")
        taken.acquire(5)
        child.tell("again")
        until_it_waits(path, child.pid)
        assert keys(sf) == ["k-other"]
        taken.release()
        child.expect("next")
    assert keys(sf) == ["k-next", "k-other"]


def test_a_caller_hit_while_its_body_runs_hurts_no_caller_of_the_same_commit(
    sf: standfast.Standfast, path: Path, taken: FileLock
) -> None:
    """RULES 15: the other callers get their answers, and none of their writes is made twice."""
    with Child("tests.db.test_sqlite_writer:is_hit", path=str(path), slow_s=0.5) as child:
        waiting_to_be_hit(child, path, taken)
        taken.release()
        child.expect("begun")
        child.signal(signal.SIGXCPU)
        child.expect("hit")
        child.tell("again")
        child.expect("next")
    assert len(keys(sf)) == 3 + 2
    assert {"k-hit", "k-next"} <= set(keys(sf))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_body_that_raises_system_exit_fails_only_its_own_caller(
    sf: standfast.Standfast, error: type[BaseException]
) -> None:
    """RULES 15: three callers share a commit, the first body raises."""

    def ends(tx: Any) -> None:
        tx.run(INSERT, key="k-ends", value="1")
        raise error

    with sf.transaction():
        tasks = [Task(lambda: sf._store.write(ends)), *(Task(put, sf, f"k{n}") for n in range(2))]
        while sf.engine._writer.waiting() < 3:  # type: ignore[attr-defined]
            os.sched_yield()
    assert [type(task.done()) for task in tasks] == [error, type(None), type(None)]
    assert keys(sf) == ["k0", "k1"]


def test_a_statement_that_runs_past_the_limit_of_its_block_is_ended(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-33: the time limit of the block also applies while SQLite runs a statement."""
    set_limit("TRANSACTION_MAX_S", 0.2, change=monkeypatch.setattr)

    def compute() -> None:
        with sf.transaction():
            held = sf._store.held
            assert held is not None
            held.all(ENDLESS)

    with pytest.raises(standfast.StorageError) as caught:
        compute()
    assert caught.value.code == "transaction_too_long"
    put(sf, "k-after")


ENDLESS = statement("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n")


def test_a_caller_that_holds_a_transaction_can_have_the_wal_synced(sf: standfast.Standfast) -> None:
    with sf.transaction() as tx:
        tx.leases.acquire("deploy")
        sf._store.sync()
    assert sf.leases.get("deploy").fence == 1


def test_a_submitted_body_is_refused_at_its_deadline(
    sf: standfast.Standfast, path: Path, taken: FileLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is refused in time, although no caller waits for it and the writer thread waits in the kernel."""
    set_limit("DEADLINE_S", 0.2, change=monkeypatch.setattr)
    with pytest.raises(Busy, match=f"process {os.getpid()}"):
        asyncio.run(submitted(sf._store, inserting("k-never")))
    taken.release()
    put(sf, "k-after")
    assert keys(sf) == ["k-after"]


def test_closing_gives_up_at_its_timeout_while_another_process_keeps_the_lock(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer thread waits in the kernel and cannot be woken; it closes the files when it gets the lock."""
    set_limit("DEADLINE_S", 0.1, change=monkeypatch.setattr)
    sf = standfast.open(path, data_dir=tmp_path)
    engine = sf.engine
    lock = FileLock(f"{path}.lock")
    lock.acquire(5)
    with pytest.raises(Busy):
        put(sf, "k-never")  # the thread stays in the kernel's queue
    assert not engine.close(timeout_s=0.1)  # type: ignore[attr-defined]
    engine.close_later()  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput):
        engine.write(inserting("k-late"), sf._store.caller)
    lock.close()
    end = time.monotonic() + 30
    while engine._store.is_open():  # type: ignore[attr-defined]
        assert time.monotonic() < end, "the files are still open"
        os.sched_yield()
    set_limit("DEADLINE_S", 30.0, change=monkeypatch.setattr)
    with standfast.open(path, data_dir=tmp_path) as again:
        assert keys(again) == []


def test_threads_that_write_on_and_on_share_their_commits(sf: standfast.Standfast) -> None:
    """64 callers share commits."""
    together = threading.Barrier(64)

    def write() -> None:
        together.wait()
        for _ in range(20):
            put(sf, f"k{ids.new_id('msg')}")

    before = int(str(sf.engine.facts()["batches"]))
    assert [task.done() for task in [Task(write) for _ in range(64)]] == [None] * 64
    assert len(keys(sf)) == 64 * 20
    assert int(str(sf.engine.facts()["batches"])) - before <= 64 * 20 / 8


# -- foreign exceptions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asynchronous", "signal"])
def test_a_storm_of_exceptions_in_some_callers_hurts_no_other_caller(tmp_path: Path, kind: str) -> None:
    """R10, RULES 15: callers without an exception get no error and do not hang; no row is lost or stored twice."""
    with Child(
        f"standfast_prove.campaigns.interrupts:{kind}_storm", path=str(tmp_path / "standfast.db"), seed=1, acts=400
    ) as child:
        hit, hurt, *_ = child.end(150)
    assert int(hit) > 20
    assert hurt == "[]"


# -- fork --------------------------------------------------------------------------------------------------------


def fork_in_a_block(path: str) -> None:
    """R4: the child leaves the block normally, the parent raises."""
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    try:
        with sf.transaction() as tx:
            tx.state.set("parent", 1)
            pid = os.fork()
            if pid == 0:
                try:
                    tx.state.set("child", 1)
                except standfast.StorageError as error:
                    os.write(1, f"statement {error.code}\n".encode())
            else:
                os.waitpid(pid, 0)
                raise ValueError
    except standfast.StorageError as error:
        os.write(1, f"commit {error.code}\n".encode())
        os._exit(0)
    except ValueError:
        say("rolled back")
    say([row["key"] for row in sf.rows("SELECT key FROM state")])
    put(sf, "k-after")
    say(keys(sf))


def test_a_forked_child_cannot_touch_the_transaction_it_inherited(path: Path) -> None:
    """R4, 000-1: statement and commit are refused before SQLite is called, and the parent rolls back."""
    with Child("tests.db.test_sqlite_writer:fork_in_a_block", path=str(path)) as parent:
        assert parent.end() == ["statement forked", "commit forked", "rolled back", "[]", "['k-after']"]
    assert integrity(path) == "ok"


def fork_and_roll_back(path: str) -> None:
    """R4: the child leaves the block with an error and asks for a rollback, the parent commits."""
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    engine: Any = sf.engine
    try:
        with sf.transaction() as tx:
            tx.state.set("parent", 1)
            pid = os.fork()
            if pid == 0:
                raise ValueError
            os.waitpid(pid, 0)
    except ValueError:
        os.write(1, f"left {engine.connection.in_transaction}\n".encode())
        try:
            engine._commits.rollback()
        except standfast.StorageError as error:
            os.write(1, f"rollback {error.code} {engine.connection.in_transaction}\n".encode())
        os._exit(0)
    say([row["key"] for row in sf.rows("SELECT key FROM state")])


def test_a_forked_child_cannot_roll_back_the_transaction_it_inherited(path: Path) -> None:
    """R4, 000-1: the rollback is refused before SQLite is called: the connection is still in the transaction."""
    with Child("tests.db.test_sqlite_writer:fork_and_roll_back", path=str(path)) as parent:
        assert parent.end() == ["left True", "rollback forked True", "['parent']"]
    assert integrity(path) == "ok"


def fork_in_a_body(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))

    def body(tx: Any) -> None:
        tx.run(INSERT, key="k-parent", value="1")
        pid = os.fork()
        if pid == 0:
            try:
                tx.run(INSERT, key="k-child", value="1")
            except standfast.StorageError as error:
                os.write(1, f"statement {error.code}\n".encode())
            return
        os.waitpid(pid, 0)

    sf._store.write(body)
    say(keys(sf))


def test_a_body_that_forks_commits_only_in_the_parent(path: Path) -> None:
    """R4: the child returns from the body, too, and commits nothing."""
    with Child("tests.db.test_sqlite_writer:fork_in_a_body", path=str(path)) as parent:
        assert parent.end() == ["statement forked", "['k-parent']"]
    assert integrity(path) == "ok"


def fork_and_use_the_engine(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-before")
    with sf.transaction():
        engine, caller = sf.engine, sf._store.caller
        pid = os.fork()
        if pid == 0:
            for use in (lambda: engine.write(inserting("k-child"), caller), engine.sync):
                try:
                    use()
                except standfast.StorageError as error:
                    os.write(1, f"{error.code}\n".encode())
            os._exit(0)
        os.waitpid(pid, 0)
    say(keys(sf))


def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have(path: Path) -> None:
    """R4: the writer thread exists in the parent alone."""
    with Child("tests.db.test_sqlite_writer:fork_and_use_the_engine", path=str(path)) as parent:
        assert parent.end() == ["forked", "forked", "['k-before']"]


def test_a_closed_store_leaves_no_thread(path: Path, tmp_path: Path) -> None:
    """A fork or the exit of a command must not happen while a thread is ending."""
    before = threading.active_count()
    for n in range(20):
        with standfast.open(path, data_dir=tmp_path) as sf:
            put(sf, f"k{n}")
        assert threading.active_count() == before
