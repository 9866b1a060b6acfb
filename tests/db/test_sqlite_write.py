"""Concurrent writes to a SQLite file: by threads of one process, and beside foreign programs."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import standfast
from standfast.db.contract import Tx
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.disk import Disk
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.rows import COUNT_UP, INSERT, KEYS, inserting, keys, put, value
from standfast_prove.faults.threads import Task
from tests.skipping import or_skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


class OnPurpose(Exception):
    pass


def queue_up(sf: standfast.Standfast, functions: list[Callable[[], object]]) -> list[Task]:
    """Start a thread for each write while a transaction holds the lock, so that all wait in one queue."""
    with sf.transaction():
        tasks = [Task(function) for function in functions]
        while sf.engine._writer.waiting() < len(tasks):  # type: ignore[attr-defined]
            os.sched_yield()
    return tasks


# -- one commit for many ---------------------------------------------------------------------------------


def test_sixty_four_threads_that_wait_together_share_a_few_commits(sf: standfast.Standfast) -> None:
    before = int(str(sf.engine.facts()["batches"]))
    tasks = queue_up(sf, [lambda n=n: put(sf, f"k{n:02}") for n in range(64)])
    assert [task.done() for task in tasks] == [None] * 64
    assert keys(sf) == [f"k{n:02}" for n in range(64)]
    assert int(str(sf.engine.facts()["batches"])) - before < 32


@pytest.mark.parametrize("error", [OnPurpose, "a row that is there already"])
def test_of_64_writes_in_a_group_commit_only_the_failing_one_fails(sf: standfast.Standfast, error: object) -> None:
    """000-1: all acknowledged rows are stored, and none of the failed writes."""
    put(sf, "taken")

    def write(n: int) -> None:
        def body(tx: Tx) -> None:
            tx.run(INSERT, key=f"k{n:02}", value="1")
            if n % 9 == 4:
                if error is OnPurpose:
                    raise OnPurpose
                tx.run(INSERT, key="taken", value="again")

        sf._store.write(body)

    tasks = queue_up(sf, [lambda n=n: write(n) for n in range(64)])
    failed = {n for n, task in enumerate(tasks) if task.done() is not None}
    assert failed == {n for n in range(64) if n % 9 == 4}
    assert keys(sf) == [f"k{n:02}" for n in range(64) if n not in failed]


def test_an_error_of_one_body_in_a_group_commit_reaches_only_its_caller(sf: standfast.Standfast) -> None:
    def refuse() -> None:
        def body(tx: Tx) -> standfast.StandfastError:
            tx.run(INSERT, key="k-asked", value="1")
            return standfast.ApprovalRequired("a person has to say yes")

        sf._store.write(body)

    tasks = queue_up(sf, [refuse, lambda: put(sf, "k-other")])
    assert [type(task.done()) for task in tasks] == [standfast.ApprovalRequired, type(None)]
    assert keys(sf) == ["k-asked", "k-other"]


def test_a_refusal_raised_before_a_write_rolls_back_nothing_of_a_shared_commit(sf: standfast.Standfast) -> None:
    """RULES §1: if a transaction that wrote nothing raises an error, no other transaction of the batch runs twice."""
    runs: list[int] = []

    def write(n: int) -> None:
        def body(tx: Tx) -> None:
            runs.append(n)
            if n % 3 == 1:
                raise standfast.NotFound(f"there is no {n}")
            tx.run(INSERT, key=f"k{n}", value="1")

        sf._store.write(body)

    tasks = queue_up(sf, [lambda n=n: write(n) for n in range(9)])
    assert [str(task.done()) for task in tasks if task.done()] == [f"there is no {n}" for n in (1, 4, 7)]
    assert sorted(runs) == list(range(9))
    assert keys(sf) == [f"k{n}" for n in range(9) if n % 3 != 1]


@pytest.mark.parametrize("error", [standfast.NotFound, standfast.StorageError])
def test_a_refusal_raised_after_a_write_takes_its_own_write_back(
    sf: standfast.Standfast, error: type[standfast.StandfastError]
) -> None:
    def refuse() -> None:
        def body(tx: Tx) -> None:
            tx.run(INSERT, key="k-refused", value="1")
            raise error("no")

        sf._store.write(body)

    tasks = queue_up(sf, [refuse, lambda: put(sf, "k-other")])
    assert [type(task.done()) for task in tasks] == [error, type(None)]
    assert keys(sf) == ["k-other"]


def test_a_slow_body_does_not_keep_the_lock_for_those_behind_it(sf: standfast.Standfast) -> None:
    """At its time limit, the batch commits the finished writes. The other writes are in the next batch."""
    started = threading.Event()

    def slow(tx: Tx) -> None:
        started.wait(0.2)  # never set, so that the transaction takes 0.2 s
        tx.run(INSERT, key="k-slow", value="1")

    tasks = queue_up(sf, [lambda: sf._store.write(slow), *(lambda n=n: put(sf, f"k{n}") for n in range(8))])
    assert [task.done() for task in tasks] == [None] * 9
    assert len(keys(sf)) == 9
    assert int(str(sf.engine.facts()["slow_batches"])) >= 1


def test_a_heartbeat_is_visible_at_once_and_on_disk_with_the_next_durable_write(tmp_path: Path) -> None:
    with or_skip():
        disk = Disk(tmp_path)
    with Child("tests.db.test_sqlite_write:beat", env=disk.env, path=str(disk.path)) as child:
        child.expect("['k-beat']")
        child.expect("synced")
    disk.lose_power(random.Random(0))
    with standfast.open(disk.path, data_dir=tmp_path) as sf:
        assert keys(sf) == ["k-beat", "k-synced"]


def beat(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-beat", durable=False)
    say(keys(sf))
    put(sf, "k-synced", durable=False)
    sf._store.sync()
    say("synced")
    heard()


# -- closing -----------------------------------------------------------------------------------------------


def test_closing_beside_writers_keeps_what_was_acknowledged_and_refuses_the_rest_by_name(tmp_path: Path) -> None:
    """000-1: the error says that the store is closed, and is never about a bad descriptor."""
    for round in range(10):
        path = tmp_path / f"{round}.db"
        sf = standfast.open(path, data_dir=tmp_path)
        acknowledged: list[str] = []
        running = threading.Barrier(7)

        def write(n: int, sf: standfast.Standfast = sf, running: threading.Barrier = running) -> None:
            for i in range(1_000_000):
                put(sf, f"k{n}-{i}")
                acknowledged.append(f"k{n}-{i}")  # noqa: B023  this round's threads end in this round
                if i == 5:
                    running.wait()

        tasks = [Task(write, n) for n in range(6)]
        running.wait()
        sf.close()
        errors = [task.done() for task in tasks]
        assert {type(error) for error in errors} == {standfast.InvalidInput}, errors
        with standfast.open(path, data_dir=tmp_path) as again:
            assert set(acknowledged) <= set(keys(again))


def test_a_hundred_openings_and_closings_leave_no_descriptor_behind(path: Path, tmp_path: Path) -> None:
    standfast.open(path, data_dir=tmp_path).close()
    before = len(os.listdir("/proc/self/fd"))
    for n in range(100):
        with standfast.open(path, data_dir=tmp_path) as sf:
            put(sf, f"k{n}")
    assert len(os.listdir("/proc/self/fd")) <= before


# -- foreign programs at the file ------------------------------------------------------------------------------


def test_a_foreign_writer_in_the_way_is_waited_for(sf: standfast.Standfast, path: Path) -> None:
    """000-12, 003-33: after BUSY the engine waits instead of failing."""
    foreign = apsw.Connection(str(path))
    foreign.execute("BEGIN IMMEDIATE")
    with closing(foreign):
        task = Task(put, sf, "k-waited")
        task.join(0.4)  # longer than SQLite's busy timeout in our connections
        assert task.is_alive()
        foreign.execute("ROLLBACK")
        assert task.done() is None
    assert keys(sf) == ["k-waited"]


def test_a_foreign_write_lock_that_stays_is_busy_at_the_deadline(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit("DEADLINE_S", 0.3, change=monkeypatch.setattr)
    with closing(apsw.Connection(str(path))) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(standfast.Busy):
            put(sf, "k-never")
        with pytest.raises(standfast.Busy), sf.transaction():
            pass
        foreign.execute("ROLLBACK")
    put(sf, "k-after")
    assert keys(sf) == ["k-after"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_task_gives_up_a_write_while_a_foreign_program_keeps_the_lock(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """RULES 15: the thread has taken the write and puts it back again and again. A cancel or the deadline ends that."""
    set_limit("DEADLINE_S", 30.0 if cancelled else 0.3, change=monkeypatch.setattr)

    async def main() -> None:
        async with standfast.aopen(path, data_dir=tmp_path) as sf:
            with closing(apsw.Connection(str(path))) as foreign:
                foreign.execute("BEGIN IMMEDIATE")
                task = asyncio.create_task(sf.leases.acquire("one"))
                await asyncio.sleep(0.1)  # the thread tries to begin by now
                if cancelled:
                    task.cancel()
                done, _ = await asyncio.wait([task], timeout=10)
                foreign.execute("ROLLBACK")
            assert done
            with pytest.raises(asyncio.CancelledError if cancelled else standfast.Busy):
                task.result()
            await sf.leases.acquire("two")
            with pytest.raises(standfast.NotFound):
                await sf.leases.get("one")

    asyncio.run(main())


def busy_snapshot(place: Path) -> apsw.BusyError:
    """Cause a real SQLITE_BUSY_SNAPSHOT (517): one connection reads, another writes, then the first one writes."""
    place.mkdir(exist_ok=True)
    with (
        closing(apsw.Connection(str(place / "two.db"))) as first,
        closing(apsw.Connection(str(place / "two.db"))) as second,
    ):
        first.execute("PRAGMA journal_mode=WAL; CREATE TABLE IF NOT EXISTS t (a)").fetchall()
        first.execute("BEGIN; SELECT count(*) FROM t").fetchall()
        second.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(apsw.BusyError) as caught:
            first.execute("INSERT INTO t VALUES (2)")
        first.execute("ROLLBACK")
        return caught.value


def test_busy_snapshot_is_what_it_is_called(tmp_path: Path) -> None:
    error = busy_snapshot(tmp_path)
    assert (error.result, error.extendedresult) == (apsw.SQLITE_BUSY, apsw.SQLITE_BUSY_SNAPSHOT)
    assert error.extendedresult == 517


def test_a_body_struck_by_busy_snapshot_is_run_again(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-12: waiting does not help against a stale snapshot, so the engine runs the transaction again."""
    runs = []

    def body(tx: Tx) -> None:
        runs.append(tx)
        tx.run(COUNT_UP, key="k-counted")
        if len(runs) == 1:
            raise busy_snapshot(tmp_path / "elsewhere")

    sf._store.write(body)
    assert len(runs) == 2
    assert value(sf, "k-counted") == "1"


def test_a_read_before_a_write_never_uses_a_stale_snapshot(sf: standfast.Standfast, path: Path) -> None:
    """000-12: two connections of our engine: the second one waits, and neither fails."""

    def read_then_write(tx: Tx) -> None:
        before = len(tx.all(KEYS, pattern="k%"))
        with closing(apsw.Connection(str(path))) as other, pytest.raises(apsw.BusyError):
            other.execute("BEGIN IMMEDIATE")
        tx.run(INSERT, key=f"k{before}", value="1")

    for _ in range(3):
        sf._store.write(read_then_write)
    assert keys(sf) == ["k0", "k1", "k2"]


WRITER_BYTE, RECOVER_BYTE, IN_USE_BYTE = 120, 122, 128


def test_a_log_that_another_process_is_recovering_is_waited_for(path: Path, tmp_path: Path) -> None:
    """000-12: the engine waits on BUSY_RECOVERY too. The recovering process holds the locks on the shared memory."""
    with standfast.open(path, data_dir=tmp_path) as sf:
        put(sf, "k-before")
    Path(f"{path}-shm").write_bytes(bytes(32768))  # the index is invalid, so the next process has to recover
    with Child("tests.db.test_sqlite_write:recover_for_ever", shm=f"{path}-shm") as recovering:
        recovering.expect("recovering")
        with closing(apsw.Connection(str(path))) as other, pytest.raises(apsw.BusyError) as caught:
            other.execute("SELECT count(*) FROM meta").fetchall()
        assert caught.value.extendedresult == apsw.SQLITE_BUSY_RECOVERY
        opened: list[standfast.Standfast] = []
        task = Task(lambda: opened.append(standfast.open(path, data_dir=tmp_path)))
        task.join(0.4)
        assert task.is_alive()
        recovering.tell("enough")
        assert task.done() is None
    with opened[0] as sf:
        put(sf, "k-after")
        assert keys(sf) == ["k-after", "k-before"]


def recover_for_ever(shm: str) -> None:
    import fcntl

    fd = os.open(shm, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_SH, 1, IN_USE_BYTE)
    for byte in (WRITER_BYTE, RECOVER_BYTE):
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, byte)
    say("recovering")
    heard()


# -- a transaction in the caller's hands -----------------------------------------------------------------------


def test_resources_inside_a_block_see_the_writes_of_the_block_and_no_others_do(
    sf: standfast.Standfast, path: Path
) -> None:
    with sf.transaction() as tx:
        lease = tx.leases.acquire("deploy")
        assert tx.leases.get("deploy").fence == lease.fence
        with pytest.raises(standfast.NotFound):
            sf.leases.get("deploy")
        with closing(apsw.Connection(str(path))) as other:
            assert other.execute("SELECT count(*) FROM lease").get == 0
    assert sf.leases.get("deploy").fence == lease.fence


def test_a_block_cannot_be_entered_twice_in_a_thread(sf: standfast.Standfast) -> None:
    with (
        sf.transaction(),
        pytest.raises(standfast.InvalidInput, match="a transaction is open in this thread"),
        sf.transaction(),
    ):
        pass
    put(sf, "k-after")


def test_a_body_cannot_write_past_its_own_transaction(sf: standfast.Standfast) -> None:
    with pytest.raises(standfast.InvalidInput, match="a transaction is open in this thread"):
        sf._store.write(lambda tx: put(sf, "k-inner"))
    put(sf, "k-after")
    assert keys(sf) == ["k-after"]


def test_a_block_past_its_limit_is_rolled_back_and_others_continue_while_it_still_runs(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-33: no process can block all other writers."""
    set_limit("TRANSACTION_MAX_S", 0.2, change=monkeypatch.setattr)

    def overstay() -> None:
        with sf.transaction() as tx:
            tx.leases.acquire("deploy")
            waiting = Task(put, sf, "k-other")
            assert waiting.done() is None  # this block is still open
            tx.leases.acquire("release")

    with pytest.raises(standfast.StorageError) as caught:
        overstay()
    assert caught.value.code == "transaction_too_long"
    assert keys(sf) == ["k-other"]
    with pytest.raises(standfast.NotFound):
        sf.leases.get("deploy")
    put(sf, "k-after")


def test_an_error_inside_a_block_leaves_nothing_and_frees_the_others(sf: standfast.Standfast) -> None:
    waiting: list[Task] = []

    def fail() -> None:
        with sf.transaction() as tx:
            tx.leases.acquire("deploy")
            waiting.append(Task(put, sf, "k-other"))
            raise OnPurpose

    with pytest.raises(OnPurpose):
        fail()
    assert waiting[0].done() is None
    with pytest.raises(standfast.NotFound):
        sf.leases.get("deploy")


# -- without a thread per caller -----------------------------------------------------------------------------------


def test_submitted_bodies_mix_with_threads_and_each_hears_of_its_own(sf: standfast.Standfast) -> None:
    answers: dict[str, BaseException | None] = {}
    all_told = threading.Event()

    def told(key: str) -> Callable[[object, BaseException | None], None]:
        def done(_: object, error: BaseException | None) -> None:
            answers[key] = error
            if len(answers) == 40:
                all_told.set()

        return done

    def failing(tx: Tx) -> None:
        raise OnPurpose

    tasks = [Task(put, sf, f"k-thread-{n}") for n in range(8)]
    for n in range(40):
        body = failing if n % 10 == 3 else inserting(f"k-loop-{n}")
        sf.engine.submit(body, sf._store.caller, told(f"k-loop-{n}"))
    assert all_told.wait(60)
    assert [task.done() for task in tasks] == [None] * 8
    assert {key for key, error in answers.items() if isinstance(error, OnPurpose)} == {
        f"k-loop-{n}" for n in (3, 13, 23, 33)
    }
    assert len(keys(sf)) == 8 + 36
