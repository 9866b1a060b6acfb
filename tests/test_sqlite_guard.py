"""What protects the file against everybody else: the guard, the check of the log, the triggers, the caretaker."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import standfast
from standfast.db.sqlite import library
from standfast.prove.faults.children import Child, heard, say
from standfast.prove.faults.limits import set_limit
from standfast.prove.faults.rows import keys, put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


VISIT = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM meta').fetchall(); c.close()"


def visit(path: Path) -> None:
    """Another program, with the interpreter's own SQLite, reads the store and leaves."""
    subprocess.run([sys.executable, "-c", VISIT, str(path)], check=True)


def drop_our_locks(path: Path) -> None:
    """What any tool in this process does that reads, hashes or copies files."""
    for file in (path, Path(f"{path}-shm")):
        with open(file, "rb"):
            pass


# -- the guard ---------------------------------------------------------------------------------------------


def test_opening_the_file_by_hand_does_not_let_a_foreign_program_delete_the_log(
    sf: standfast.Standfast, path: Path, tmp_path: Path
) -> None:
    """000-1: closing any descriptor of the file drops SQLite's locks; the guard's stay."""
    log = os.stat(f"{path}-wal").st_ino
    for n in range(5):
        put(sf, f"k{n}")
        drop_our_locks(path)
        visit(path)
    assert os.stat(f"{path}-wal").st_ino == log
    with Child("tests.test_sqlite_guard:say_keys", path=str(path), data_dir=str(tmp_path)) as other:
        assert other.hear() == str([f"k{n}" for n in range(5)])


def say_keys(path: str, data_dir: str) -> None:
    with standfast.open(path, data_dir=data_dir) as sf:
        say(keys(sf))


def test_another_sqlite_library_in_this_process_does_not_take_the_log_away(sf: standfast.Standfast, path: Path) -> None:
    """Two libraries on one file in one process cancel each other's locks: five of five rows were lost that way."""
    log = os.stat(f"{path}-wal").st_ino
    for n in range(5):
        put(sf, f"k{n}")
        with closing(sqlite3.connect(path)) as stock:
            stock.execute("SELECT count(*) FROM meta").fetchall()
    assert os.stat(f"{path}-wal").st_ino == log
    assert keys(sf) == [f"k{n}" for n in range(5)]


def test_without_the_guard_the_same_visitor_deletes_the_log_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """The control: the danger is real, and the check of the log stands behind the guard."""
    path = tmp_path / "standfast.db"
    with Child("tests.test_sqlite_guard:write_unguarded", path=str(path)) as child:
        child.expect("open")
        visit(path)
        assert not Path(f"{path}-wal").exists()
        child.tell("write")
        assert child.hear().startswith("CommitUnknown")
        child.expect("['k-before']")  # the engine was given up: the store is open again, and says what is there


def write_unguarded(path: str) -> None:
    from standfast.db.sqlite import guard

    guard._share = lambda *_: None  # in this process only: the product has no such switch
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-before")
    drop_our_locks(Path(path))
    say("open")
    heard()
    try:
        put(sf, "k-unknown")
    except standfast.CommitUnknown as error:
        say(f"CommitUnknown: {error.message}")
    say(keys(sf))


# -- the check of the log ------------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True], ids=["looking", "told by the kernel"])
@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_log_that_is_not_ours_any_more_acknowledges_nothing(
    sf: standfast.Standfast, path: Path, how: str, busy: bool
) -> None:
    """000-1: neither success nor failure, the engine given up, and the store open again at the next call."""
    put(sf, "k-before")
    if busy:
        write_often(sf)
    sf._store.write(lambda tx: None)
    old = sf.engine
    log = Path(f"{path}-wal")
    if how == "removed":
        log.unlink()
    elif how == "renamed":
        log.rename(f"{log}.moved")
    else:
        shutil.copy(log, f"{log}.copy")
        os.replace(f"{log}.copy", log)
    with pytest.raises(standfast.CommitUnknown, match="was removed or replaced"):
        put(sf, "k-unknown")
    assert old.dead is not None
    put(sf, "k-after")
    assert sf.engine is not old
    assert "k-after" in keys(sf)


def write_often(sf: standfast.Standfast) -> None:
    """Until the kernel is asked to tell what happens to the log."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells")
    end = time.monotonic() + 60
    while not told(sf):
        assert time.monotonic() < end, "256 writes within two seconds, and nobody asked the kernel"
        for _ in range(64):
            sf._store.write(lambda tx: None, durable=False)


def told(sf: standfast.Standfast) -> bool:
    return sf.engine._log._told_fd >= 0  # type: ignore[attr-defined,no-any-return]


def test_what_else_happens_to_the_log_of_a_busy_writer_is_no_reason_to_give_up(
    sf: standfast.Standfast, path: Path
) -> None:
    write_often(sf)
    engine, log = sf.engine, Path(f"{path}-wal")
    for n in range(300):  # more than one answer's worth
        log.chmod(0o600 if n % 2 else 0o640)
        os.utime(log)
        if n % 50 == 0:
            put(sf, f"k-{n}")
    log.chmod(0o600)
    put(sf, "k-last")
    assert sf.engine is engine
    log.unlink()
    with pytest.raises(standfast.CommitUnknown):
        put(sf, "k-unknown")


def test_who_writes_now_and_then_asks_nothing_of_the_kernel(sf: standfast.Standfast) -> None:
    """A user has 128 of these, and other programs need them too."""
    for n in range(20):
        put(sf, f"k-{n}")
    assert not told(sf)


def test_where_the_kernel_tells_no_more_a_busy_writer_looks_and_a_waiter_looks_again(
    sf: standfast.Standfast, path: Path
) -> None:
    put(sf, "k-before")
    with no_more_files():
        for _ in range(1200):
            sf._store.write(lambda tx: None, durable=False)
        assert not told(sf)
        with sf.engine.watch() as watch:
            assert watch.wait(0.01)
    Path(f"{path}-wal").unlink()
    with pytest.raises(standfast.CommitUnknown):
        put(sf, "k-unknown")


@contextmanager
def no_more_files() -> Iterator[None]:
    """The kernel gives this process no descriptor more; it says the same when a user has as many watches as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


# -- foreign writes --------------------------------------------------------------------------------------------


def test_stock_sqlite_reads_every_table_without_anything_of_ours(sf: standfast.Standfast, path: Path) -> None:
    """000-10: no function or extension is needed to read."""
    put(sf, "k-seen")
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "tables = [n for (n,) in c.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\")];"
        "print(len(tables), [c.execute(f'SELECT count(*) FROM {t}').fetchone() for t in tables][:0],"
        " c.execute(\"SELECT value FROM meta WHERE key = 'k-seen'\").fetchone()[0])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tables, _, seen = done.stdout.split()
    assert int(tables) >= 4
    assert seen == "1"


def test_stock_sqlite_cannot_change_a_row_of_any_table(sf: standfast.Standfast, path: Path) -> None:
    """000-30: inserting, changing and deleting fail by name, and nothing is changed."""
    put(sf, "k-ours")
    sf.leases.acquire("deploy")
    sf.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as stock:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search!_words%' ESCAPE '!'"
        tables = [name for (name,) in stock.execute(listed)]  # the index of words takes no guard: nothing relies on it
        assert {"meta", "migration", "event", "lease"} <= set(tables)
        before = list(stock.iterdump())
        for table in tables:
            column = stock.execute(f"SELECT name FROM pragma_table_info('{table}') LIMIT 1").fetchone()[0]
            for change in (
                f"INSERT INTO {table} ({column}) VALUES ('x')",
                f"REPLACE INTO {table} ({column}) VALUES ('x')",
                f"UPDATE {table} SET {column} = {column}",
                f"DELETE FROM {table}",
            ):
                with pytest.raises(sqlite3.OperationalError, match="only_standfast_writes_here"):
                    stock.execute(change)
        assert list(stock.iterdump()) == before


# -- the library -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ("3.7.0", False),
        ("3.40.1", False),
        ("3.44.6", False),  # has one of the two fixes
        ("3.50.1", False),
        ("3.50.2", False),
        ("3.50.6", False),
        ("3.50.7", True),
        ("3.50.12", True),
        ("3.51.0", False),
        ("3.51.2", False),
        ("3.51.3", True),
        ("3.52.0", True),
        ("3.54.1", True),
        ("4.0.0", True),
    ],
)
def test_a_linked_sqlite_that_loses_committed_rows_is_refused(version: str, safe: bool) -> None:
    assert library.safe(version) is safe
    if not safe:
        with pytest.raises(standfast.UnsafeStorage, match=version):
            library.check(version)


def test_the_library_that_is_linked_here_is_safe() -> None:
    """What counts is the library at run time: an update of a lock file has downgraded it elsewhere before."""
    library.check()


def test_a_savepoint_rolled_back_after_the_cache_spilled_loses_nothing(tmp_path: Path) -> None:
    """000-1: before 3.50.2 SQLite wrote such frames without checksums, and a crash took 99 of 100 committed rows."""
    path = tmp_path / "standfast.db"
    with Child("tests.test_sqlite_guard:spill_and_fail", path=str(path)) as child:
        child.expect("acknowledged 39, failed 1")
    with standfast.open(path, data_dir=tmp_path) as sf:
        assert len(keys(sf)) == 39 + 20


def spill_and_fail(path: str) -> None:
    """Forty writes in one commit, more than the page cache holds, and the last one fails."""
    from tests.test_sqlite_write import OnPurpose, queue_up

    sf = standfast.open(path, data_dir=os.path.dirname(path))

    def write(n: int) -> None:
        from standfast.db.contract import Tx
        from standfast.prove.faults.rows import INSERT

        def body(tx: Tx) -> None:
            tx.run(INSERT, key=f"k{n:02}", value="x" * 600_000)
            if n == 39:
                raise OnPurpose

        sf._store.write(body)

    tasks = queue_up(sf, [lambda n=n: write(n) for n in range(40)])
    failed = sum(task.done() is not None for task in tasks)
    for n in range(20):
        put(sf, f"k-later-{n}")
    say(f"acknowledged {40 - failed}, failed {failed}")
    heard()  # and is killed here: nothing is closed


# -- the caretaker -----------------------------------------------------------------------------------------------


def test_a_log_that_a_reader_made_large_is_given_back(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-41: past its bound the log is truncated, off the path of the writers."""
    set_limit("LOG_MAX_BYTES", 256 * 1024, change=monkeypatch.setattr)
    set_limit("_CARE_EVERY", 8, change=monkeypatch.setattr)
    pinned = sf.rows("SELECT key, (SELECT count(*) FROM meta) FROM meta")
    next(pinned)
    for n in range(64):
        put(sf, f"k-pinned-{n}", "x" * 60_000)
    assert os.stat(f"{path}-wal").st_size > 2 * 1024 * 1024
    pinned.close()  # type: ignore[attr-defined]
    for n in range(2000):
        put(sf, f"k-free-{n}")
        if os.stat(f"{path}-wal").st_size <= 256 * 1024:
            break
    assert os.stat(f"{path}-wal").st_size <= 256 * 1024
    assert len([key for key in keys(sf) if key.startswith("k-pinned")]) == 64
