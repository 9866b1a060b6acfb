"""SQLite with faults: full, failing and read-only disks, lock holders that die or stop, forks.

Each test checks three things: every acknowledged row is stored, the error message names the
next step, and the store continues afterwards.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import standfast
from standfast_prove.campaigns.interrupts import in_a_fork
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.disk import Disk, fail_next_sync
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.mounts import memory, read_only
from standfast_prove.faults.rows import Oracle, integrity, keys, noted, put
from standfast_prove.faults.threads import Task
from tests.skipping import or_skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


def found(path: Path, data_dir: Path) -> list[str]:
    with standfast.open(path, data_dir=data_dir) as sf:
        return keys(sf)


# -- a full disk -------------------------------------------------------------------------------------------


def fill(sf: standfast.Standfast, name: str) -> tuple[list[str], standfast.StorageError]:
    """Write until the disk is full. Returns the acknowledged rows and the error."""
    acknowledged: list[str] = []
    for n in range(5000):
        try:
            put(sf, f"{name}-{n}", "x" * 3000)
        except standfast.StorageError as refusal:
            return acknowledged, refusal
        acknowledged.append(f"{name}-{n}")
    raise AssertionError("the disk never became full")


def test_a_full_disk_refuses_by_name_keeps_what_was_acknowledged_and_works_again_with_space(tmp_path: Path) -> None:
    """000-1"""
    with or_skip(), memory(tmp_path / "small", size="2m"):
        ballast = tmp_path / "small" / "ballast"
        ballast.write_bytes(bytes(400_000))
        path = tmp_path / "small" / "store" / "standfast.db"
        with standfast.open(path, data_dir=tmp_path) as sf:
            acknowledged, refusal = fill(sf, "k-first")
            assert refusal.code == "disk_full"
            assert "free some space" in refusal.hint
            assert sorted(keys(sf)) == sorted(acknowledged)  # reading continues
            for n in range(3):
                with pytest.raises(standfast.StorageError):
                    put(sf, f"k-refused-{n}", "x" * 3000)
            ballast.unlink()
            more, _ = fill(sf, "k-second")
            assert len(more) > 10
        assert sorted(found(path, tmp_path)) == sorted(acknowledged + more)
        assert integrity(path) == "ok"


def test_a_full_disk_under_many_threads_acknowledges_nothing_that_is_not_there(tmp_path: Path) -> None:
    """000-1: a batch that does not fit fails as a whole or row by row."""
    with or_skip(), memory(tmp_path / "small", size="2m"):
        path = tmp_path / "small" / "store" / "standfast.db"
        with standfast.open(path, data_dir=tmp_path) as sf:
            acknowledged: list[str] = []
            tasks = [Task(lambda n=n: acknowledged.extend(fill(sf, f"k{n}")[0])) for n in range(8)]
            assert [task.done() for task in tasks] == [None] * 8
        there = set(found(path, tmp_path))
        assert set(acknowledged) <= there
        assert integrity(path) == "ok"


def test_a_store_cannot_be_made_on_a_full_disk_and_the_message_says_so(tmp_path: Path) -> None:
    with or_skip(), memory(tmp_path / "small", size="64k"):
        (tmp_path / "small" / "ballast").write_bytes(bytes(60_000))
        with pytest.raises(standfast.StorageError) as caught:
            standfast.open(tmp_path / "small" / "standfast.db", data_dir=tmp_path)
        assert caught.value.hint
        (tmp_path / "small" / "ballast").unlink()


def test_a_limit_on_the_size_of_files_is_survived(tmp_path: Path) -> None:
    """000-1: like a full disk, but without mounting a file system: RLIMIT_FSIZE stops the file from growing."""
    path, oracle = tmp_path / "standfast.db", tmp_path / "oracle"
    with Child("tests.db.test_sqlite_faults:write_under_a_limit", path=str(path), oracle=str(oracle)) as child:
        child.expect("refused")
        child.expect("works again")
    acknowledged = noted(oracle)
    assert len(acknowledged) > 20
    assert set(acknowledged) <= set(found(path, tmp_path))
    assert integrity(path) == "ok"


def write_under_a_limit(path: str, oracle: str) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(path)), Oracle(oracle)
    size = os.stat(path + "-wal").st_size + 600_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    acknowledged, _ = fill(sf, "k-limited")
    for key in acknowledged:
        told.note(key)
    say("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    put(sf, "k-after")
    told.note("k-after")
    say("works again")
    heard()


# -- a read-only place --------------------------------------------------------------------------------------


def test_a_read_only_file_system_is_reported_and_works_again_when_it_is_writable(tmp_path: Path) -> None:
    with or_skip(), memory(tmp_path / "small", size="4m"):
        path = tmp_path / "small" / "store" / "standfast.db"
        with standfast.open(path, data_dir=tmp_path) as sf:
            put(sf, "k1")
        with read_only(tmp_path / "small"):
            with pytest.raises(standfast.StorageError) as existing:
                standfast.open(path, data_dir=tmp_path)
            with pytest.raises(standfast.StorageError) as fresh:
                standfast.open(tmp_path / "small" / "new" / "standfast.db", data_dir=tmp_path)
        for caught in (existing, fresh):
            assert caught.value.code == "not_writable"
            assert caught.value.hint
        assert found(path, tmp_path) == ["k1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT SHOWN on this machine: another user needs root")
def test_a_directory_of_another_user_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "store" / "standfast.db"
    standfast.open(path, data_dir=tmp_path).close()
    with Child("tests.db.test_sqlite_faults:open_as_nobody", path=str(path)) as child:
        assert child.end() == ["not_writable"]


def open_as_nobody(path: str) -> None:
    standfast.open(":memory:", data_dir="/nonexistent").close()  # imports every module, while the source is readable
    os.environ["HOME"] = "/nonexistent"
    os.chdir("/")
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        standfast.open(path, data_dir="/nonexistent")
    except standfast.StorageError as error:
        say(error.code)


# -- a disk that fails to sync ------------------------------------------------------------------------------


def test_a_failed_sync_is_neither_success_nor_failure_and_the_store_heals(tmp_path: Path) -> None:
    """000-1: the kernel reports a failed sync once and forgets the pages. No later row may depend on these pages."""
    with or_skip():
        disk = Disk(tmp_path)
    oracle = tmp_path / "oracle"
    with Child(
        "tests.db.test_sqlite_faults:write_past_a_failed_sync", env=disk.env, path=str(disk.path), oracle=str(oracle)
    ) as child:
        child.expect("CommitUnknown sync_failed 75")
        child.expect("the engine was given up")
        child.expect("healed")
    disk.lose_power(random.Random(0))
    there = found(disk.path, tmp_path)
    assert len(noted(oracle)) == 20
    assert set(noted(oracle)) <= set(there)
    assert integrity(disk.path) == "ok"


def write_past_a_failed_sync(path: str, oracle: str) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)
    for n in range(10):
        put(sf, f"k-before-{n}")
        told.note(f"k-before-{n}")
    old = sf.engine
    fail_next_sync("-wal")
    try:
        put(sf, "k-unknown")
    except standfast.CommitUnknown as error:
        say(f"CommitUnknown {error.code} {error.exit_code}")
    if old.dead is not None:
        say("the engine was given up")
    for n in range(10):
        put(sf, f"k-after-{n}")
        told.note(f"k-after-{n}")
    say("healed")
    heard()


def test_what_others_committed_before_a_sync_failed_is_not_acknowledged_behind_it(tmp_path: Path) -> None:
    """000-1: the kernel reports the error to one process. The next one's sync succeeds, behind a gap in the WAL."""
    with or_skip():
        disk = Disk(tmp_path, sync_us=50_000)
    oracle = tmp_path / "oracle"
    with Child(
        "tests.db.test_sqlite_faults:fail_beside_others", env=disk.env, path=str(disk.path), oracle=str(oracle)
    ) as child:
        child.expect("done")
    disk.lose_power(random.Random(0))
    assert "-" in noted(oracle)
    assert set(noted(oracle)) - {"-"} <= set(found(disk.path, tmp_path))


def fail_beside_others(path: str, oracle: str) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)

    def write(n: int) -> None:
        try:
            put(sf, f"k{n}", "x" * 9000)
            told.note(f"k{n}")
        except standfast.CommitUnknown:
            told.note("-")

    put(sf, "k-before")
    fail_next_sync("-wal")
    first = Task(write, 1)
    while os.stat(path + "-wal").st_size < 9000 or not first.is_alive():
        os.sched_yield()
    others = [Task(write, n) for n in range(2, 8)]  # the others commit during the first one's sync
    assert [task.done() for task in [first, *others]] == [None] * 7
    say("done")
    heard()  # power is lost before a process could rewrite the WAL


def test_a_failed_sync_is_healed_also_by_a_process_that_has_not_seen_it(tmp_path: Path) -> None:
    """000-1: the process that got the error is dead. The next process must not append to the WAL behind the gap."""
    with or_skip():
        disk = Disk(tmp_path)
    oracle = tmp_path / "oracle"
    with Child("tests.db.test_sqlite_faults:fail_and_die", env=disk.env, path=str(disk.path)) as first:
        first.expect("CommitUnknown")
    with Child(
        "tests.db.test_sqlite_faults:write_ten", env=disk.env, path=str(disk.path), oracle=str(oracle)
    ) as second:
        second.expect("done")
    disk.lose_power(random.Random(0))
    assert len(noted(oracle)) == 10
    assert set(noted(oracle)) <= set(found(disk.path, tmp_path))


def test_without_the_rewrite_rows_behind_a_failed_sync_are_lost(tmp_path: Path) -> None:
    """The control: the disk of these tests really loses pages, and only the rewrite saves the rows."""
    with or_skip():
        disk = Disk(tmp_path)
    oracle = tmp_path / "oracle"
    with Child("tests.db.test_sqlite_faults:fail_and_die", env=disk.env, path=str(disk.path)) as first:
        first.expect("CommitUnknown")
    Path(f"{disk.path}.unsynced").unlink()  # the mark that would warn the next process
    with Child(
        "tests.db.test_sqlite_faults:write_ten", env=disk.env, path=str(disk.path), oracle=str(oracle)
    ) as second:
        second.expect("done")
    disk.lose_power(random.Random(0))
    assert set(noted(oracle)) - set(found(disk.path, tmp_path))


def fail_and_die(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-before")
    fail_next_sync("-wal")
    try:
        put(sf, "k-unknown", "x" * 20_000)
    except standfast.CommitUnknown:
        say("CommitUnknown")
    heard()


def write_ten(path: str, oracle: str) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)
    for n in range(10):
        put(sf, f"k-second-{n}")
        told.note(f"k-second-{n}")
    say("done")
    heard()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_failed_sync_of_the_database_file_in_a_checkpoint_loses_nothing(tmp_path: Path, nth: int) -> None:
    """000-1: the WAL restarts only after the database file is synced."""
    with or_skip():
        disk = Disk(tmp_path)
    oracle = tmp_path / "oracle"
    with Child(
        "tests.db.test_sqlite_faults:fail_in_checkpoints",
        env=disk.env,
        path=str(disk.path),
        oracle=str(oracle),
        nth=nth,
    ) as child:
        child.expect("done")
    disk.lose_power(random.Random(0))
    assert len(noted(oracle)) > 100
    assert set(noted(oracle)) <= set(found(disk.path, tmp_path))
    assert integrity(disk.path) == "ok"


def fail_in_checkpoints(path: str, oracle: str, nth: int) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)
    set_limit("CHECKPOINT_FRAMES", 30)
    fail_next_sync(".db", nth)
    for n in range(150):
        with suppress(standfast.CommitUnknown):
            put(sf, f"k{n}", "x" * 300)
            told.note(f"k{n}")
    say("done")
    heard()


# -- lock holders -----------------------------------------------------------------------------------------------


def hold_the_lock(path: str) -> None:
    set_limit("TRANSACTION_MAX_S", 120)  # this test stops the process, not the clock
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    with sf.transaction() as tx:
        tx.leases.acquire("half done")
        say("holding")
        heard()
    say("committed")


def test_the_lock_of_a_killed_process_is_free_at_once(sf: standfast.Standfast, path: Path) -> None:
    """000-1, 003-33: the store has no row of its open transaction."""
    with Child("tests.db.test_sqlite_faults:hold_the_lock", path=str(path)) as holder:
        holder.expect("holding")
        waiting = Task(put, sf, "k-waited")
        waiting.join(0.2)
        assert waiting.is_alive()
        holder.kill()
        assert waiting.done() is None
    with pytest.raises(standfast.NotFound):
        sf.leases.get("half done")


def test_waiting_for_the_lock_takes_no_further_descriptor(sf: standfast.Standfast, path: Path) -> None:
    """003-33: a process that may open no more files still waits for its turn."""
    put(sf, "k-before")
    with Child("tests.db.test_sqlite_faults:hold_the_lock", path=str(path)) as holder:
        holder.expect("holding")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            waiting = Task(put, sf, "k-waited")
            holder.tell("go on")
            holder.expect("committed")
            assert waiting.done() is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert keys(sf) == ["k-before", "k-waited"]


def test_a_stopped_lock_holder_is_named_at_the_deadline_and_everything_continues_when_it_does(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-33: a clear error instead of a wait without end."""
    set_limit("DEADLINE_S", 0.3, change=monkeypatch.setattr)
    with Child("tests.db.test_sqlite_faults:hold_the_lock", path=str(path)) as holder:
        holder.expect("holding")
        holder.signal(signal.SIGSTOP)
        for attempt in (lambda: put(sf, "k-never"), lambda: sf.transaction().__enter__()):
            with pytest.raises(standfast.Busy) as caught:
                attempt()
            assert f"process {holder.pid} " in caught.value.message
            assert f"kill {holder.pid}" in caught.value.hint
            assert caught.value.exit_code == 75
        assert sf.engine.facts()["lock_holder_pid"] == holder.pid
        assert keys(sf) == []  # readers do not wait for the lock
        holder.signal(signal.SIGCONT)
        holder.tell("go on")
        holder.expect("committed")
        put(sf, "k-after")
    assert sf.leases.get("half done").fence == 1
    assert keys(sf) == ["k-after"]


def test_a_stopped_lock_holder_keeps_an_opening_waiting_no_longer_than_the_deadline(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Child("tests.db.test_sqlite_faults:hold_the_lock", path=str(path)) as holder:
        holder.expect("holding")
        holder.signal(signal.SIGSTOP)
        set_limit("DEADLINE_S", 0.2, change=monkeypatch.setattr)
        with pytest.raises(standfast.Busy, match=f"process {holder.pid} "):
            standfast.open(path, data_dir=tmp_path)


# -- fork -----------------------------------------------------------------------------------------------------


def fork_and_write(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-parent-before")
    parent = sf._store.caller.holder

    def child() -> None:
        put(sf, "k-child")
        assert sf._store.caller.holder != parent
        assert in_a_fork(lambda: put(sf, "k-grandchild")) == 0
        put(sf, "k-child-after")

    say(in_a_fork(child))
    put(sf, "k-parent-after")
    say(keys(sf))


def test_a_forked_child_opens_its_own_engine_and_the_parent_continues(path: Path) -> None:
    """000-1"""
    with Child("tests.db.test_sqlite_faults:fork_and_write", path=str(path)) as parent:
        assert parent.end() == [
            "0",
            "['k-child', 'k-child-after', 'k-grandchild', 'k-parent-after', 'k-parent-before']",
        ]


def fork_beside_writers(path: str, oracle: str) -> None:
    sf, told = standfast.open(path, data_dir=os.path.dirname(path)), Oracle(oracle)
    stop = threading.Event()

    def write(n: int) -> None:
        i = 0
        while not stop.is_set():
            put(sf, f"k{n}-{i}")
            told.note(f"k{n}-{i}")
            assert sf.read(lambda tx: tx.now_us())
            i += 1

    def use_blocks() -> None:
        i = 0
        while not stop.is_set():
            with sf.transaction() as tx:
                tx.leases.acquire(f"{i}")
            i += 1

    def child(n: int) -> None:
        put(sf, f"k-child-{n}")
        told.note(f"k-child-{n}")

    tasks = [*(Task(write, n) for n in range(4)), Task(use_blocks)]
    codes = [in_a_fork(lambda n=n: child(n)) for n in range(40)]
    stop.set()
    say({code for code in codes if code != 0})
    say([task.done() for task in tasks])


def test_forking_beside_writing_threads_disturbs_none_of_them(path: Path, tmp_path: Path) -> None:
    """000-1: neither the parent's threads nor the child notice."""
    oracle = tmp_path / "oracle"
    with Child("tests.db.test_sqlite_faults:fork_beside_writers", path=str(path), oracle=str(oracle)) as parent:
        assert parent.end() == ["set()", str([None] * 5)]
    acknowledged = noted(oracle)
    assert len([key for key in acknowledged if key.startswith("k-child")]) == 40
    assert set(acknowledged) <= set(found(path, tmp_path))
    assert integrity(path) == "ok"


def fork_inside(path: str, where: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-before")

    def child() -> None:
        try:
            put(sf, "k-child")
        except standfast.StorageError as error:
            os.write(1, f"{error.code}: {error.hint}\n".encode())

    if where == "transaction":
        with sf.transaction() as tx:
            tx.leases.acquire("deploy")
            say(in_a_fork(child))
    else:
        rows = sf.rows("SELECT key, (SELECT count(*) FROM meta) AS n FROM meta")
        next(rows)
        say(in_a_fork(child))
        list(rows)
    put(sf, "k-after")
    say(keys(sf))


@pytest.mark.parametrize("where", ["transaction", "stream"])
def test_a_child_forked_in_the_middle_of_something_is_refused_with_a_sentence(path: Path, where: str) -> None:
    """In such a child, SQLite's record of its locks is wrong: the child would read and write without locks."""
    with Child("tests.db.test_sqlite_faults:fork_inside", path=str(path), where=where) as parent:
        refusal, code, there = parent.end()
        assert refusal.startswith("forked: fork outside transactions")
        assert code == "0"
        assert there == "['k-after', 'k-before']"


def fork_and_be_killed(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    with sf.transaction():
        pid = os.fork()
        if pid == 0:
            os.write(1, b"forked\n")
            signal.pause()
        say(pid)
        heard()


def test_a_child_does_not_keep_the_lock_of_its_killed_parent(path: Path, sf: standfast.Standfast) -> None:
    """003-33: the child inherited the descriptor and continues to run without using the store."""
    with Child("tests.db.test_sqlite_faults:fork_and_be_killed", path=str(path)) as parent:
        said = {parent.hear(), parent.hear()}
        (child,) = (int(line) for line in said if line != "forked")
        try:
            parent.process.kill()
            put(sf, "k-after")
        finally:
            os.kill(child, signal.SIGKILL)
    assert keys(sf) == ["k-after"]


def test_a_lock_holder_whose_command_cannot_be_read_is_named_by_a_question_mark() -> None:
    """A waiter names the holder; a zombie has no command line any more."""
    from standfast.db.sqlite.lock import _command

    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert _command(pid) == "?"
    os.waitpid(pid, 0)
    assert _command(pid) == "?"
    assert "python" in _command(os.getpid())
