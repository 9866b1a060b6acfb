"""The protection of the file against other processes: the guard, the identity check, the triggers, the caretaker."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import pytest

import standfast
from standfast.db.contract import Tx
from standfast.db.sql import statement
from standfast.db.sqlite import library
from standfast_prove.faults.children import Child, Nursery, heard, say
from standfast_prove.faults.daemons import until
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.mounts import bound
from standfast_prove.faults.rows import inserting, integrity, keys, put
from standfast_prove.faults.threads import Task
from tests.skipping import or_skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "standfast.db"


@pytest.fixture
def sf(path: Path, tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(path, data_dir=tmp_path) as store:
        yield store


VISIT = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM meta').fetchall(); c.close()"


def visit(path: Path) -> None:
    """Another program reads the store with Python's own SQLite and closes it."""
    subprocess.run([sys.executable, "-c", VISIT, str(path)], check=True)


def drop_our_locks(path: Path) -> None:
    """Open and close the file, as any tool in this process that reads, hashes or copies files."""
    for file in (path, Path(f"{path}-shm")):
        with open(file, "rb"):
            pass


# -- the guard ---------------------------------------------------------------------------------------------


def test_opening_the_file_by_hand_does_not_let_a_foreign_program_delete_the_log(
    sf: standfast.Standfast, path: Path, tmp_path: Path
) -> None:
    """000-1: closing any descriptor of the file drops SQLite's locks; the guard keeps its own."""
    log = os.stat(f"{path}-wal").st_ino
    for n in range(5):
        put(sf, f"k{n}")
        drop_our_locks(path)
        visit(path)
    assert os.stat(f"{path}-wal").st_ino == log
    with Child("tests.db.test_sqlite_guard:say_keys", path=str(path), data_dir=str(tmp_path)) as other:
        assert other.hear() == str([f"k{n}" for n in range(5)])


def say_keys(path: str, data_dir: str) -> None:
    with standfast.open(path, data_dir=data_dir) as sf:
        say(keys(sf))


def test_another_sqlite_library_in_this_process_does_not_take_the_log_away(sf: standfast.Standfast, path: Path) -> None:
    """Two SQLite libraries on one file in one process drop each other's locks, which lost five of five rows."""
    log = os.stat(f"{path}-wal").st_ino
    for n in range(5):
        put(sf, f"k{n}")
        with closing(sqlite3.connect(path)) as stock:
            stock.execute("SELECT count(*) FROM meta").fetchall()
    assert os.stat(f"{path}-wal").st_ino == log
    assert keys(sf) == [f"k{n}" for n in range(5)]


def test_without_the_guard_the_same_visitor_deletes_the_log_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """The control: without the guard, rows are lost, and the WAL check detects the loss."""
    path = tmp_path / "standfast.db"
    with Child("tests.db.test_sqlite_guard:write_unguarded", path=str(path)) as child:
        child.expect("open")
        visit(path)
        assert not Path(f"{path}-wal").exists()
        child.tell("write")
        assert child.hear().startswith("CommitUnknown")
        child.expect("['k-before']")  # the engine was abandoned; the new engine reads the remaining rows


def write_unguarded(path: str) -> None:
    from standfast.db.sqlite import wal

    wal._share = lambda *_: None  # in this process only: the product has no such switch
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


# -- the identity check ------------------------------------------------------------------------------------


def replaced(file: Path) -> None:
    shutil.copy(file, f"{file}.copy")
    os.replace(f"{file}.copy", file)


def overwritten(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(bytes(64))


def moved_with_its_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    f"{name} {how}": (suffix, act)
    for name, suffix in (("database", ""), ("WAL", "-wal"), ("shm", "-shm"))
    for how, act in (
        ("removed", Path.unlink),
        ("renamed", lambda file: file.rename(f"{file}.moved")),
        ("replaced", replaced),
    )
}
DAMAGE |= {
    "database truncated": ("", lambda file: os.truncate(file, 0)),
    "database cut short": ("", lambda file: os.truncate(file, 8192)),
    "WAL truncated": ("-wal", lambda file: os.truncate(file, 0)),
    "WAL overwritten": ("-wal", overwritten),
    "directory renamed": ("", moved_with_its_directory),
}


@pytest.mark.parametrize("writes", [1, 700], ids=["idle", "busy"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_not_the_stores_any_more_acknowledges_nothing(tmp_path: Path, damage: str, writes: int) -> None:
    """R2, R3, 000-1: the outcome is unknown, the engine dies, and the next call opens the store again."""
    path = tmp_path / "store" / "standfast.db"
    with Child("tests.db.test_sqlite_guard:write_and_be_damaged", path=str(path), writes=writes) as child:
        child.expect("ready")
        suffix, act = DAMAGE[damage]
        act(Path(f"{path}{suffix}"))
        child.tell("write")
        assert child.hear().startswith("CommitUnknown")
        child.expect("the engine is dead")


def write_and_be_damaged(path: str, writes: int) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(os.path.dirname(path)))
    put(sf, "k-before")
    with closing(apsw.Connection(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the database has its pages, the WAL starts again
    for n in range(writes):
        put(sf, f"k-{n}", durable=False)
    engine = sf.engine
    say("ready")
    heard()
    try:
        put(sf, "k-unknown")
        say("acknowledged")
    except standfast.CommitUnknown as error:
        say(f"CommitUnknown: {error.message}")
    say("the engine is dead" if engine.dead is not None else "the engine goes on")


def test_an_older_copy_over_the_database_is_noticed(sf: standfast.Standfast, path: Path, tmp_path: Path) -> None:
    """R2: `cp` keeps the inode; the change counter in the header decreases."""
    put(sf, "k-before")
    checkpoint(path)
    shutil.copyfile(path, tmp_path / "older.db")
    for n in range(50):
        put(sf, f"k-{n}", "x" * 3000)
    checkpoint(path)
    put(sf, "k-last")
    subprocess.run(["cp", str(tmp_path / "older.db"), str(path)], check=True)
    with pytest.raises(standfast.CommitUnknown, match="was overwritten or truncated"):
        put(sf, "k-unknown")


def test_an_older_copy_that_replaces_what_was_just_checkpointed_is_noticed(path: Path, tmp_path: Path) -> None:
    """R2: no check has seen the header that the checkpoint wrote, so only the missing pages show the copy."""
    with standfast.open(path, data_dir=tmp_path) as sf:
        put(sf, "k-before")
    checkpoint(path)
    shutil.copyfile(path, tmp_path / "older.db")
    with standfast.open(path, data_dir=tmp_path) as sf:
        for n in range(50):
            put(sf, f"k-{n}", "x" * 3000)
        sf.engine.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # type: ignore[attr-defined]
        subprocess.run(["cp", str(tmp_path / "older.db"), str(path)], check=True)
        with pytest.raises(standfast.CommitUnknown, match="was overwritten or truncated"):
            put(sf, "k-unknown")


def test_an_older_copy_is_noticed_by_a_process_that_did_not_see_the_checkpoint(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: the writer knows only the old header; the checkpointing process noted the new change counter."""
    set_limit("REPLACED_S", 0.1, change=monkeypatch.setattr)
    with standfast.open(path, data_dir=tmp_path) as sf:
        put(sf, "k-same", "a" * 3000)
    checkpoint(path)
    shutil.copyfile(path, tmp_path / "older.db")
    with Child("tests.db.test_sqlite_guard:write_once_heard", path=str(path)) as writer:
        writer.expect("open")
        with Child("tests.db.test_sqlite_guard:change_and_checkpoint", path=str(path)) as other:
            other.expect("checkpointed")
            assert path.stat().st_size == (tmp_path / "older.db").stat().st_size, "no page is missing in the copy"
            subprocess.run(["cp", str(tmp_path / "older.db"), str(path)], check=True)
            writer.tell("write")
            writer.expect("CommitUnknown: database_overwritten")
            with pytest.raises(standfast.StorageError, match="was removed or replaced"):
                standfast.open(path, data_dir=tmp_path)


@pytest.mark.parametrize("how", ["older", "another store", "both files"])
def test_a_database_that_was_replaced_beside_its_log_is_not_opened(path: Path, tmp_path: Path, how: str) -> None:
    """003-13: SQLite would mix the pages of both files, and an effect in the lost pages would be sent again."""
    other = tmp_path / "other" / "standfast.db"
    if how == "another store":
        standfast.open(other, data_dir=tmp_path).close()
        checkpoint(other)
    with standfast.open(path, data_dir=tmp_path) as sf:
        put(sf, "k-before")
        kept = [shutil.copyfile(f"{path}{suffix}", tmp_path / f"older{suffix}") for suffix in ("", "-wal")]
    grown(path)
    shutil.copyfile(other if how == "another store" else kept[0], path)
    if how == "both files":
        shutil.copyfile(kept[1], f"{path}-wal")
    else:
        with pytest.raises(standfast.StorageError, match=r"was replaced and .*-wal was not") as caught:
            standfast.open(path, data_dir=tmp_path)
        assert caught.value.code == "files_replaced"
        Path(f"{path}-wal").unlink()
    standfast.open(path, data_dir=tmp_path).close()
    assert integrity(path) == "ok"


def grown(path: Path) -> None:
    """Add rows: a checkpoint moved the first ones into the database, and the WAL has only the last one."""
    with Child("tests.db.test_sqlite_guard:grow", path=str(path)) as writer:
        writer.expect("grown")


def grow(path: str) -> None:
    set_limit("CHECKPOINT_FRAMES", 3)
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    for n in range(20):
        put(sf, f"k-grown-{n}", "y" * 3000)
    say("grown")


def write_once_heard(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    say("open")
    heard()
    say(outcome(lambda: put(sf, "k-unknown")))


def change_and_checkpoint(path: str) -> None:
    """Change one row in place until the writer thread has made a checkpoint and has begun the next WAL."""
    set_limit("CHECKPOINT_FRAMES", 3)
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    for value in "bcdef":
        sf._store.write(lambda tx: tx.run(CHANGE, value=value * 3000))  # noqa: B023
    say("checkpointed")
    heard()


CHANGE = statement("UPDATE meta SET value = :value WHERE key = 'k-same'")


def outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except standfast.CommitUnknown as error:
        return f"CommitUnknown: {error.code}"
    return "acknowledged"


def test_no_checkpoint_writes_into_a_file_that_was_overwritten(path: Path) -> None:
    """R2: SQLite's checkpoint inside COMMIT put a valid header into the damaged file, before our check."""
    with Child("tests.db.test_sqlite_guard:fill_the_wal", path=str(path)) as writer:
        writer.expect("ready")
        os.truncate(path, 0)
        writer.tell("write")
        writer.expect("database_overwritten")
    assert path.stat().st_size == 0


def test_a_header_that_is_not_ours_is_an_alarm_at_once(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: a second read of the header could return the valid header of a later checkpoint."""
    put(sf, "k-before")
    checkpoint(path)
    put(sf, "k-seen")
    set_limit("_TRIES", 10**9, change=monkeypatch.setattr)
    os.truncate(path, 0)
    assert isinstance(Task(put, sf, "k-unknown").done(), standfast.CommitUnknown)


def test_a_body_that_fails_on_an_overwritten_file_gets_the_alarm(sf: standfast.Standfast, path: Path) -> None:
    """R2: it may have read pages of another store, so its own error says nothing."""

    def body(tx: Tx) -> None:
        raise AssertionError("the session has no root")

    put(sf, "k-before")
    checkpoint(path)
    put(sf, "k-seen")
    os.truncate(path, 0)
    with pytest.raises(standfast.CommitUnknown, match="was overwritten or truncated"):
        sf._store.write(body)


def test_each_checkpoint_of_ours_leaves_a_new_change_counter(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: SQLite changes the counter only if pages are added, so an older copy could have the same counter."""
    set_limit("CHECKPOINT_FRAMES", 1, change=monkeypatch.setattr)
    put(sf, "k-same")
    seen = []
    for value in "bcdef":
        sf._store.write(lambda tx: tx.run(CHANGE, value=value))  # noqa: B023
        seen.append(sf.engine.changes)  # type: ignore[attr-defined]
    assert sorted(set(seen)) == seen


def test_a_process_that_writes_once_checkpoints_a_long_log(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-41: a command writes once and ends; the log must not grow with the number of commands."""
    set_limit("CHECKPOINT_FRAMES", 20, change=monkeypatch.setattr)
    frames = []
    for n in range(30):
        with standfast.open(path, data_dir=tmp_path) as sf:
            put(sf, f"k-{n}", "x" * 3000)
            frames.append(sf.engine._store.files.frames())  # type: ignore[attr-defined]
    assert max(frames[1:]) < 60
    assert sorted(frames) != frames


def test_another_store_with_a_higher_change_counter_is_noticed_by_all_processes(path: Path, tmp_path: Path) -> None:
    """R2: its header looks like a later checkpoint, but the WAL index knows of none. One process alarms the others."""
    with standfast.open(path, data_dir=tmp_path) as sf:
        put(sf, "k-before")
    checkpoint(path)
    other = tmp_path / "other" / "standfast.db"
    with standfast.open(other, data_dir=tmp_path) as sf:
        for n in range(50):
            put(sf, f"k-{n}", "x" * 3000)
            checkpoint(other) if n % 10 == 0 else None
    checkpoint(other)
    with Child("tests.db.test_sqlite_guard:write_once_heard", path=str(path)) as idle:
        idle.expect("open")
        with standfast.open(path, data_dir=tmp_path) as sf:
            put(sf, "k-ours")
            checkpoint(path)  # the idle process did not see it: it could take the copy for this checkpoint
            put(sf, "k-seen")
            subprocess.run(["cp", str(other), str(path)], check=True)
            with pytest.raises(standfast.CommitUnknown, match="was overwritten or truncated"):
                put(sf, "k-unknown")
        idle.tell("write")
        idle.expect("CommitUnknown: database_overwritten")


def checkpoint(path: Path, *more: str) -> None:
    """Checkpoint in another process: it copies the WAL into the database and truncates the WAL."""
    script = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.set_busy_timeout(20000);"
        "c.create_scalar_function('only_standfast_writes_here', lambda *_: None, 0, deterministic=True,"
        " flags=apsw.SQLITE_INNOCUOUS);"
        "[c.execute(text).fetchall() for text in sys.argv[2:]]"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(path), *more, "PRAGMA wal_checkpoint(TRUNCATE)"], check=True, timeout=60
    )


def test_a_header_that_a_power_loss_tore_is_read_from_the_wal(path: Path, tmp_path: Path) -> None:
    """000-1: page 1 is in the WAL and torn in the database. The store opens, and a checkpoint repairs the header."""
    write = (
        "import os, sys, standfast; standfast.open(sys.argv[1], data_dir=sys.argv[2]).state.set('k', 1); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", write, str(path), str(tmp_path)])
    with open(path, "r+b") as file:
        file.write(os.urandom(100))
    with standfast.open(path, data_dir=tmp_path) as sf:
        sf.state.set("k", 2)
        checkpoint(path)
        assert sf.state.set("k", 3).version == 3
    assert path.read_bytes().startswith(b"SQLite format 3")


BACKUP = (
    "import sqlite3, sys; source = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True);"
    "source.backup(sqlite3.connect(sys.argv[2]))"
)


def back_up(path: Path, copy: Path) -> None:
    """In another process: a second SQLite library in this one would drop our locks when it closes the file."""
    subprocess.run([sys.executable, "-c", BACKUP, str(path), str(copy)], check=True, timeout=60)


def test_what_other_programs_rightly_do_raises_no_alarm(
    sf: standfast.Standfast, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints and VACUUM of another process, `sqlite3 .backup`, our own truncation, chmod and touch."""
    set_limit("LOG_MAX_BYTES", 64 * 1024, change=monkeypatch.setattr)
    set_limit("_CARE_EVERY", 8, change=monkeypatch.setattr)
    engine, stop = sf.engine, threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stop.is_set():
            put(sf, f"k-{len(written)}", "x" * 2000)
            written.append(f"k-{len(written)}")

    writer = Task(write)
    for n in range(4):
        checkpoint(path)
        sf._store.write(lambda tx: tx.run(FORGET))
        checkpoint(path, "VACUUM")
        back_up(path, tmp_path / f"backup-{n}.db")
        Path(f"{path}-wal").chmod(0o600)
        os.utime(f"{path}-wal")
        before = len(written)
        until(lambda: len(written) > before or not writer.is_alive())  # noqa: B023
    stop.set()
    assert writer.done() is None
    assert len(written) >= 4
    assert sf.engine is engine


FORGET = statement("DELETE FROM meta WHERE key LIKE 'k-%'")


def test_without_free_descriptors_a_writer_still_checks_and_a_waiting_caller_polls(
    sf: standfast.Standfast, path: Path
) -> None:
    put(sf, "k-before")
    with no_more_files():
        put(sf, "k-during")
        with sf.engine.watch() as watch:
            assert watch.wait(0.01)
    Path(f"{path}-wal").unlink()
    with pytest.raises(standfast.CommitUnknown):
        put(sf, "k-unknown")


@contextmanager
def no_more_files() -> Iterator[None]:
    """The kernel refuses further descriptors. It returns the same error at a user's limit of inotify watches."""
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


# -- files that were replaced under another process ---------------------------------------------------------


def holds_the_store(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-holder")
    say("open")
    heard()
    try:
        put(sf, "k-second")
        say("acknowledged")
    except standfast.StorageError as error:
        say(type(error).__name__)
    heard()
    put(sf, "k-third")
    say(sorted({*keys(sf)} - {"k-second"}))  # its outcome is unknown


@pytest.mark.parametrize("how", ["removed", "replaced"])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_store_whose_files_were_replaced_under_another_process_is_not_opened(
    path: Path, tmp_path: Path, suffix: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: two processes with two WAL indexes lost 66 of 400 acknowledged rows and damaged the file."""
    set_limit("REPLACED_S", 0.2, change=monkeypatch.setattr)
    with Child("tests.db.test_sqlite_guard:holds_the_store", path=str(path)) as holder:
        holder.expect("open")
        file = Path(f"{path}{suffix}")
        file.unlink() if how == "removed" else replaced(file)
        with pytest.raises(standfast.StorageError) as caught:
            standfast.open(path, data_dir=tmp_path)
        assert caught.value.code == "files_replaced"
        assert str(file) in caught.value.message
        holder.tell("write")
        holder.expect("CommitUnknown")
        set_limit("REPLACED_S", 30.0, change=monkeypatch.setattr)  # the holder closes its files now
        if suffix == "-shm":  # no row is lost: both continue, one after the other
            with standfast.open(path, data_dir=tmp_path) as sf:
                put(sf, "k-ours")
                holder.tell("again")
                holder.expect("['k-holder', 'k-ours', 'k-third']")
    if suffix == "-shm":
        assert integrity(path) == "ok"


def test_a_writer_notices_lost_rows_after_another_process_rebuilt_the_index(path: Path) -> None:
    """R2, 000-1: WAL and WAL index agree again, so only the journal shows the loss."""
    standfast.open(path, data_dir=path.parent).close()
    checkpoint(path)
    with Child("tests.db.test_sqlite_guard:lose_rows_without_locks", path=str(path)) as writer:
        writer.expect("acknowledged")
        os.truncate(f"{path}-wal", 0)
        with Child("tests.db.test_sqlite_guard:add_tasks", path=str(path)) as rebuilder:
            rebuilder.expect("added")
            writer.tell("write")
            writer.expect("store_replaced, and again store_replaced")


def lose_rows_without_locks(path: str) -> None:
    from standfast.db.sqlite import wal

    wal._share = lambda *_: None  # in this process only: SQLite's own locks can be dropped, as on other systems
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    for n in range(3):
        sf.tasks.add(f"lost {n}")
    drop_our_locks(Path(path))
    say("acknowledged")
    heard()
    codes = []
    for n in range(2):
        try:
            sf.tasks.add(f"later {n}")
            codes.append("acknowledged")
        except standfast.StorageError as error:
            codes.append(error.code)
    say(", and again ".join(codes))


def add_tasks(path: str) -> None:
    """Add at least as many tasks as were lost, so that the sequence numbers of the lost rows are used again."""
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    for n in range(9):
        sf.tasks.add(f"other {n}")
    say("added")
    heard()


def test_a_removed_index_and_a_foreign_checkpoint_do_not_damage_the_database(path: Path) -> None:
    """R3: the next commit would checkpoint too, but its WAL index counts frames that the WAL no longer has."""
    with Child("tests.db.test_sqlite_guard:fill_the_wal", path=str(path)) as writer:
        writer.expect("ready")
        Path(f"{path}-shm").unlink()
        checkpoint(path)
        writer.tell("write")
        writer.expect("commit_unknown")
    assert integrity(path) == "ok"


def fill_the_wal(path: str) -> None:
    """Write 1,000 frames, the size at which SQLite checkpoints with the next commit."""
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    n = 0
    while os.stat(f"{path}-wal").st_size < 32 + 996 * (4096 + 24):
        n += 1
        put(sf, f"k-{n}", "x" * 2000, durable=False)
    assert os.stat(path).st_size == 4096, "SQLite has checkpointed already"
    say("ready")
    heard()
    try:
        put(sf, "k-unknown", "x" * 60_000)
        say("acknowledged")
    except standfast.StorageError as error:
        say(error.code)


def test_processes_that_start_and_exit_never_look_like_replaced_files(path: Path, tmp_path: Path) -> None:
    standfast.open(path, data_dir=tmp_path).close()
    with Nursery() as nursery:
        for _ in range(3):
            started = [
                nursery.start("tests.db.test_sqlite_guard:open_and_close", path=str(path), name=f"k{n}")
                for n in range(4)
            ]
            assert [nursery.wait(pid) for pid in started] == [0] * 4
    assert integrity(path) == "ok"


def open_and_close(path: str, name: str) -> None:
    for n in range(8):
        with standfast.open(path, data_dir=os.path.dirname(path)) as sf:
            put(sf, f"{name}-{os.getpid()}-{n}")


# -- one store ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value"), [("store_id", "sto_another"), ("epoch", "2")])
def test_a_write_into_another_store_or_a_later_epoch_is_refused(
    sf: standfast.Standfast, path: Path, key: str, value: str
) -> None:
    """RULES 12: every write transaction compares store and epoch; the refused write is rolled back."""
    put(sf, "k-before")
    engine = sf.engine
    checkpoint(path, f"UPDATE meta SET value = '{value}' WHERE key = '{key}'")
    with pytest.raises(standfast.StorageError) as caught:
        engine.write(inserting("k-never"), sf._store.caller)
    assert caught.value.code == "store_replaced"
    assert engine.dead is caught.value


def test_an_engine_knows_its_store_and_epoch(sf: standfast.Standfast) -> None:
    assert sf.engine.store_id.startswith("sto_")
    assert sf.engine.epoch == 1


def test_a_database_file_that_is_a_mount_point_is_refused(tmp_path: Path) -> None:
    """R5: such a file has two paths, each with its own WAL. A mounted directory works."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    with standfast.open(tmp_path / "a" / "standfast.db", data_dir=tmp_path) as sf:
        put(sf, "k-before")
    (tmp_path / "b" / "standfast.db").touch()
    one, two = tmp_path / "a" / "standfast.db", tmp_path / "b" / "standfast.db"
    with or_skip(), bound(one, two), pytest.raises(standfast.UnsafeStorage, match="mount point"):
        standfast.open(two, data_dir=tmp_path)
    with or_skip(), bound(one.parent, tmp_path / "c"), opened(tmp_path / "c", tmp_path) as sf:
        put(sf, "k-mounted")
        assert keys(sf) == ["k-before", "k-mounted"]


def opened(directory: Path, data_dir: Path) -> standfast.Standfast:
    return standfast.open(directory / "standfast.db", data_dir=data_dir)


def test_deleted_text_is_overwritten(path: Path, tmp_path: Path) -> None:
    """R7: `secure_delete`: no byte of a deleted row stays in the file."""
    with standfast.open(path, data_dir=tmp_path) as sf:
        for n in range(200):
            put(sf, f"k-{n}", "Zaphod Beeblebrox" * 20)
        sf._store.write(lambda tx: tx.run(FORGET))
    checkpoint(path)
    assert b"Zaphod" not in path.read_bytes()


# -- foreign writes --------------------------------------------------------------------------------------------


def test_stock_sqlite_reads_every_table_without_anything_of_ours(sf: standfast.Standfast, path: Path) -> None:
    """000-10: reading needs no function and no extension."""
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
    """000-30: INSERT, UPDATE and DELETE fail with the name of the guard, and no row changes."""
    put(sf, "k-ours")
    sf.leases.acquire("deploy")
    sf.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as stock:
        # The word index has no guard, because no promise depends on it.
        listed = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'search!_words%' ESCAPE '!'"
            " AND name NOT LIKE 'knowledge!_words%' ESCAPE '!'"
        )
        tables = [name for (name,) in stock.execute(listed)]
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
    """The test checks the library at run time, because an updated lock file may downgrade it."""
    library.check()


def test_a_savepoint_rolled_back_after_the_cache_spilled_loses_nothing(tmp_path: Path) -> None:
    """000-1: before 3.50.2 SQLite wrote such frames without checksums, and a crash took 99 of 100 committed rows."""
    path = tmp_path / "standfast.db"
    with Child("tests.db.test_sqlite_guard:spill_and_fail", path=str(path)) as child:
        child.expect("acknowledged 39, failed 1")
    with standfast.open(path, data_dir=tmp_path) as sf:
        assert len(keys(sf)) == 39 + 20


def spill_and_fail(path: str) -> None:
    """Commit forty writes, which exceed the page cache. The last one fails."""
    from tests.db.test_sqlite_write import OnPurpose, queue_up

    sf = standfast.open(path, data_dir=os.path.dirname(path))

    def write(n: int) -> None:
        from standfast_prove.faults.rows import INSERT

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
    heard()  # the process is killed here and closes nothing


# -- the caretaker -----------------------------------------------------------------------------------------------


def test_a_log_that_a_reader_made_large_is_given_back(
    sf: standfast.Standfast, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-41: past its limit the log is truncated by a thread other than the writer."""
    set_limit("LOG_MAX_BYTES", 256 * 1024, change=monkeypatch.setattr)
    set_limit("_CARE_EVERY", 8, change=monkeypatch.setattr)
    pinned = sf.rows("SELECT key, (SELECT count(*) FROM meta) FROM meta")
    next(pinned)
    for n in range(64):
        put(sf, f"k-pinned-{n}", "x" * 60_000)
    assert os.stat(f"{path}-wal").st_size > 2 * 1024 * 1024
    pinned.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 60  # a background thread truncates the log when it is scheduled
    while os.stat(f"{path}-wal").st_size > 256 * 1024 and time.monotonic() < deadline:
        put(sf, f"k-free-{time.monotonic_ns()}")
    assert os.stat(f"{path}-wal").st_size <= 256 * 1024
    assert len([key for key in keys(sf) if key.startswith("k-pinned")]) == 64
