"""Artifacts: a read returns the stored bytes, or the error says which bytes are wrong."""

from __future__ import annotations

import io
import os
import resource
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, cast

import pytest

import standfast
from standfast import crash
from standfast.core import artifact_files, artifacts
from standfast.core.artifacts import Artifact, Fault
from standfast.db.sql import statement
from standfast.errors import Corrupt, InvalidInput, NotFound, StorageError
from standfast.ids import is_id

MIB = 1024 * 1024
BIG = bytes(range(256)) * 4096 * 3 + b"the end"  # three full chunks and a partial one


def chunk_count(sf: standfast.Standfast) -> int:
    """The number of stored contents: files on SQLite, first chunks on PostgreSQL."""
    root = artifacts.directory(sf._store)
    if root is not None:
        return sum(1 for path in Path(root).rglob("*") if path.is_file() and path.name != "lock")
    return int(next(sf.rows("SELECT count(*) AS n FROM artifact_chunk WHERE n = 0"))["n"])


def damage(sf: standfast.Standfast, artifact: Artifact, how: str) -> None:
    """Damage stored bytes as disks, people and programs do."""
    root = artifacts.directory(sf._store)
    if root is None:
        _damage_rows(sf, artifact, how)
        return
    path = Path(artifact_files.path_of(root, artifact.digest))
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif how == "cut":
        path.write_bytes(content[:-1])
    else:
        path.write_bytes(content + b"more")


def _damage_rows(sf: standfast.Standfast, artifact: Artifact, how: str) -> None:
    changes = {
        "missing": "DELETE FROM artifact_chunk WHERE digest = :digest",
        "changed": "UPDATE artifact_chunk SET bytes = overlay(bytes PLACING 'xyz' FROM 1) WHERE digest = :digest",
        "cut": "UPDATE artifact_chunk SET bytes = substring(bytes FROM 2) WHERE digest = :digest AND n = 0",
        "longer": "INSERT INTO artifact_chunk (digest, n, bytes) VALUES (:digest, 999, 'more')",
    }
    sf._store.write(lambda tx: tx.run(statement(changes[how]), digest=artifact.digest))


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[standfast.Standfast]:
    """A store on SQLite, for tests about files."""
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data") as store:
        yield store


# -- putting and getting -----------------------------------------------------------------------------------


def test_get_returns_the_bytes_that_were_put(sf: standfast.Standfast) -> None:
    """002-28, 002-42: id, session, type, URI, content hash, size and retention class are kept."""
    made = sf.artifacts.put(BIG, name="build.log", kind="log")
    assert is_id(made.id)
    assert made.replace(id="", uri="", agent="", created_us=0, receipt=None) == Artifact(
        id="",
        scope=sf.scope,
        session_id=None,
        name="build.log",
        kind="log",
        digest="sha256:" + sha256(BIG).hexdigest(),
        uri="",
        size_bytes=len(BIG),
        retention="keep",
        agent="",
        created_us=0,
    )
    assert made.uri.split(":")[0] in ("file", "chunk")
    assert sf.artifacts.get(made.id) == BIG
    assert sf.artifacts.show(made.id) == made.replace(receipt=None)
    assert artifacts.read(sf._store, made.id) == BIG


@pytest.mark.parametrize("size", [0, 1, artifact_files.BLOCK_BYTES - 1, artifact_files.BLOCK_BYTES, 600_000])
def test_every_size_is_read_back(sf: standfast.Standfast, size: int) -> None:
    data = os.urandom(size)
    assert sf.artifacts.get(sf.artifacts.put(data, name="x").id) == data


def test_a_path_a_stream_and_bytes_are_the_same_artifact(sf: standfast.Standfast, tmp_path: Path) -> None:
    file = tmp_path / "answer.txt"
    file.write_bytes(BIG)
    made = sf.artifacts.put(file)
    assert made.name == "answer.txt"
    with file.open("rb") as stream:
        assert sf.artifacts.put(stream).id == made.id
    assert sf.artifacts.put(io.BytesIO(BIG), name="answer.txt").id == made.id
    assert sf.artifacts.put(bytearray(BIG), name="answer.txt").id == made.id
    assert sf.artifacts.put(memoryview(BIG), name="answer.txt").id == made.id
    stored = [event for event in sf.journal.about(made.id) if event.type == "artifact.stored"]
    assert len(stored) == 1


def test_the_same_bytes_are_stored_once_under_any_name(sf: standfast.Standfast) -> None:
    """001-59: a second name for the same bytes refers to them."""
    one = sf.artifacts.put(BIG, name="one")
    two = sf.artifacts.put(BIG, name="two", kind="log")
    assert one.id != two.id
    assert one.digest == two.digest
    assert chunk_count(sf) == 1
    assert sf.artifacts.get("one") == sf.artifacts.get("two") == BIG


def test_a_stream_that_reads_little_at_a_time_is_stored_in_full_blocks(sf: standfast.Standfast) -> None:
    class Dribble(io.RawIOBase):
        left = BIG

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            part, self.left = self.left[: min(size, 1000)], self.left[min(size, 1000) :]
            return part

    made = sf.artifacts.put(cast("BinaryIO", Dribble()), name="dribble")
    assert sf.artifacts.get(made.id) == BIG


def test_an_artifact_is_found_by_id_by_its_end_and_by_name(sf: standfast.Standfast) -> None:
    made = sf.artifacts.put(b"old", name="notes.txt")
    new = sf.artifacts.put(b"new", name="notes.txt")
    assert sf.artifacts.show(made.id[-10:]).id == made.id
    assert sf.artifacts.show(f"ART_{made.id[-10:].upper()}").id == made.id
    assert sf.artifacts.show("notes.txt").id == new.id
    for unknown in ("nothing.txt", "art_" + "0" * 26, "zzzzzz", "\0", ""):
        with pytest.raises(NotFound, match="there is no artifact"):
            sf.artifacts.get(unknown)


def test_a_list_is_paged_and_filtered(sf: standfast.Standfast) -> None:
    ids = [sf.artifacts.put(b"%d" % n, name=f"n{n}", kind="log" if n % 2 else "diff").id for n in range(7)]
    assert [found.id for found in sf.artifacts.list()] == ids[::-1]
    first = sf.artifacts.list(limit=3)
    second = sf.artifacts.list(limit=3, after=first[-1].id)
    third = sf.artifacts.list(limit=3, after=second[-1].id)
    assert [found.id for page in (first, second, third) for found in page] == ids[::-1]
    assert [found.name for found in sf.artifacts.list(kind="log")] == ["n5", "n3", "n1"]
    assert [found.name for found in sf.artifacts.list(name="n4")] == ["n4"]


def test_bytes_go_to_a_path_of_the_callers_choice(sf: standfast.Standfast, tmp_path: Path) -> None:
    made = sf.artifacts.put(BIG, name="build.log")
    target = tmp_path / "out" / "mine.log"
    target.parent.mkdir()
    target.write_text("was here before")
    assert sf.artifacts.get(made.id, target) == sf.artifacts.show(made.id)
    assert target.read_bytes() == BIG
    assert sf.artifacts.get(made.id, str(target)).id == made.id
    assert sf.artifacts.get(made.id, "/dev/null").id == made.id
    into = io.BytesIO()
    sf.artifacts.get(made.id, into)
    assert into.getvalue() == BIG
    assert [path.name for path in target.parent.iterdir()] == ["mine.log"]


def test_a_large_stream_needs_little_memory(sf: standfast.Standfast, tmp_path: Path) -> None:
    class Endless(io.RawIOBase):
        left = 48 * MIB

        def read(self, size: int = -1) -> bytes:
            size = min(size, self.left)
            self.left -= size
            return os.urandom(size)

    sf.artifacts.put(b"warm", name="warm")
    tracemalloc.start()
    try:
        made = sf.artifacts.put(cast("BinaryIO", Endless()), name="large")
        sf.artifacts.get(made.id, tmp_path / "large")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.size_bytes == 48 * MIB
    assert peak < 16 * MIB
    assert sf.artifacts.verify(made.id) == []


# -- refusals ------------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../x",
    "a/b",
    "a\\b",
    "..\\x",
    "C:\\x",
    "nul\0",
    "line\nbreak",
    "tab\t",
    "bell\x07",
    "esc\x1b[2J",
    "del\x7f",
    "rtl\u202egpj.exe",
    "zero\u200bwidth",
    "sep\u2028",
    "half\ud800",
    " lead",
    "trail ",
    "x" * 201,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_not_a_label_is_refused(sf: standfast.Standfast, name: str) -> None:
    """No path traversal: a name of the caller never becomes a path."""
    with pytest.raises(InvalidInput, match="the name"):
        sf.artifacts.put(b"x", name=name)
    assert sf.artifacts.list() == []
    assert chunk_count(sf) == 0


@pytest.mark.parametrize(
    "name", ["build.log", "v1..v2.diff", "größe.txt", "名前", "step:plan#2", "~", "-rf", "a b", "a\u202fb"]
)
def test_an_unusual_label_is_only_a_label(sf: standfast.Standfast, name: str) -> None:
    assert sf.artifacts.get(sf.artifacts.put(b"x", name=name).id) == b"x"
    assert sf.artifacts.show(name).name == name


@pytest.mark.parametrize("kind", ["", "Log", "a b", "../x", "x" * 101, "log\n"])
def test_a_kind_is_a_plain_word(sf: standfast.Standfast, kind: str) -> None:
    with pytest.raises(InvalidInput, match="the kind"):
        sf.artifacts.put(b"x", name="x", kind=kind)


def test_a_value_that_is_not_bytes_is_refused_with_its_type(sf: standfast.Standfast, tmp_path: Path) -> None:
    for wrong, fact in [
        ("text", "not of str"),
        (7, "not of int"),
        (io.StringIO("text"), "does not read bytes"),
        (tmp_path, "not a regular file"),
    ]:
        with pytest.raises(InvalidInput, match=fact):
            sf.artifacts.put(cast("bytes", wrong), name="x")
    with pytest.raises(InvalidInput, match="need a name"):
        sf.artifacts.put(b"x")
    with pytest.raises(NotFound, match="there is no file"):
        sf.artifacts.put(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="retention is one of scratch, session, keep, not 'ever'"):
        sf.artifacts.put(b"x", name="x", retention="ever")
    with pytest.raises(InvalidInput, match="needs a session"):
        sf.artifacts.put(b"x", name="x", retention="session")
    with pytest.raises(NotFound, match="there is no session 'nope'"):
        sf.artifacts.put(b"x", name="x", session="nope")
    assert chunk_count(sf) == 0


def test_too_many_bytes_leave_nothing_behind(sf: standfast.Standfast) -> None:
    sf._store.artifact_max_bytes = MIB
    with pytest.raises(InvalidInput, match="more than 1,048,576 bytes") as refused:
        sf.artifacts.put(io.BytesIO(b"x" * (MIB + 1)), name="x")
    assert refused.value.code == "too_large"
    assert chunk_count(sf) == 0
    assert sf.artifacts.put(b"x" * MIB, name="x").size_bytes == MIB


def test_the_limit_comes_from_the_configuration(engine_url: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.toml").write_text("artifact_max_bytes = 10\n")
    with standfast.open(engine_url, data_dir=tmp_path / "data") as store:
        with pytest.raises(InvalidInput, match="more than 10 bytes"):
            store.artifacts.put(b"eleven byte", name="x")
        store.artifacts.put(b"ten bytes!", name="x")


def test_what_a_stream_raises_passes_unchanged_and_leaves_nothing(sf: standfast.Standfast) -> None:
    class Broken(io.RawIOBase):
        reads = 0

        def read(self, size: int = -1) -> bytes:
            self.reads += 1
            if self.reads > 20:
                raise ZeroDivisionError("mine")
            return b"x" * size

    with pytest.raises(ZeroDivisionError, match="mine"):
        sf.artifacts.put(cast("BinaryIO", Broken()), name="x")
    assert chunk_count(sf) == 0
    assert sf.artifacts.list() == []


def test_bytes_are_refused_inside_a_transaction(sf: standfast.Standfast) -> None:
    """File work precedes the transaction."""
    with sf.transaction() as tx:
        with pytest.raises(InvalidInput, match=r"artifacts\.put cannot run inside a transaction"):
            tx.artifacts.put(b"x", name="x")
        with pytest.raises(InvalidInput, match=r"artifacts\.put cannot run inside a transaction"):
            sf.artifacts.put(b"x", name="x")
        with pytest.raises(InvalidInput, match="inside a transaction"):
            tx.artifacts.get("x")
        assert tx.artifacts.list() == []
    assert chunk_count(sf) == 0


def test_the_store_itself_is_not_put_into_itself(on_files: standfast.Standfast, tmp_path: Path) -> None:
    """Closing the database file anywhere in this process would drop SQLite's locks on it."""
    os.link(tmp_path / "standfast.db", tmp_path / "innocent.bin")
    for name in ("standfast.db", "standfast.db-shm", "innocent.bin"):
        with pytest.raises(InvalidInput, match="is the store itself"):
            on_files.artifacts.put(tmp_path / name)


def test_a_full_disk_is_an_error_and_nothing_is_recorded(on_files: standfast.Standfast) -> None:
    on_files.artifacts.put(b"first", name="first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))  # the kernel refuses to write past this, as a full disk does
    try:
        with pytest.raises(StorageError, match="was not stored") as refused:
            on_files.artifacts.put(b"x" * 3 * MIB, name="x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.code == "not_stored"
    assert [found.name for found in on_files.artifacts.list()] == ["first"]
    assert chunk_count(on_files) == 1


# -- proof at every read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["missing", "changed", "cut", "longer"])
def test_wrong_bytes_are_found_out_and_never_handed_out(sf: standfast.Standfast, tmp_path: Path, how: str) -> None:
    good = sf.artifacts.put(b"good", name="good")
    bad = sf.artifacts.put(BIG, name="bad.log")
    damage(sf, bad, how)
    code = "artifact_missing" if how == "missing" else "artifact_damaged"
    for read in (
        lambda: sf.artifacts.get(bad.id),
        lambda: artifacts.read(sf._store, bad.id),
        lambda: sf.artifacts.get(bad.id, tmp_path / "out"),
    ):
        with pytest.raises(Corrupt, match=rf"artifact {bad.id} \(bad\.log\)") as wrong:
            read()
        assert wrong.value.code == code
    into = io.BytesIO()
    with pytest.raises(Corrupt):
        sf.artifacts.get(bad.id, into)
    assert into.getvalue() == b""
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*.part"))
    fault = Fault(bad.replace(receipt=None), "missing" if how == "missing" else "damaged")
    assert sf.artifacts.verify() == [fault]
    assert sf.artifacts.verify(good.id) == []
    assert sf.artifacts.get("good") == b"good"
    if how != "changed":  # the collector counts references and reads no bytes
        assert sf.artifacts.collect().faults == [fault]


@pytest.mark.parametrize("how", ["missing", "changed", "cut", "longer"])
def test_putting_the_same_bytes_again_heals_them(sf: standfast.Standfast, how: str) -> None:
    made = sf.artifacts.put(BIG, name="x")
    damage(sf, made, how)
    assert sf.artifacts.put(BIG, name="x").id == made.id
    assert sf.artifacts.get(made.id) == BIG


def test_a_symbolic_link_instead_of_the_file_is_not_followed(on_files: standfast.Standfast, tmp_path: Path) -> None:
    made = on_files.artifacts.put(b"secret", name="x")
    root = artifacts.directory(on_files._store)
    assert root is not None
    path = Path(artifact_files.path_of(root, made.digest))
    (tmp_path / "elsewhere").write_bytes(b"secret")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot be read"):
        on_files.artifacts.get(made.id)


def test_a_digest_in_a_row_never_becomes_another_path(on_files: standfast.Standfast) -> None:
    made = on_files.artifacts.put(b"x", name="x")
    forged = statement("UPDATE artifact SET digest = :digest WHERE id = :id")
    for digest in ("sha256:../../../../etc/passwd", "sha256:" + "A" * 64, "", "x" * 64):
        on_files._store.write(lambda tx, digest=digest: tx.run(forged, id=made.id, digest=digest))  # type: ignore[misc]
        with pytest.raises(Corrupt, match="is not a digest"):
            on_files.artifacts.get(made.id)


# -- the directory --------------------------------------------------------------------------------------------------


def test_files_and_directories_are_private(on_files: standfast.Standfast, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = on_files.artifacts.put(b"x", name="x")
    finally:
        os.umask(before)
    hex_digest = made.digest.removeprefix("sha256:")
    file = tmp_path / "artifacts" / hex_digest[:2] / hex_digest[2:]
    assert made.uri == f"file:artifacts/{hex_digest[:2]}/{hex_digest[2:]}"
    assert file.read_bytes() == b"x"
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert [oct(path.stat().st_mode)[-3:] for path in (file.parent, file.parent.parent)] == ["700", "700"]
    assert oct((tmp_path / "artifacts" / "lock").stat().st_mode)[-3:] == "600"


def test_two_stores_in_one_directory_share_no_files(tmp_path: Path) -> None:
    """Otherwise the collector of one store would remove the other's bytes."""
    with standfast.open(tmp_path / "a.db", data_dir=tmp_path / "d") as a, standfast.open(tmp_path / "b.db") as b:
        a.artifacts.put(b"x", name="x")
        assert b.artifacts.list() == []
        assert artifacts.directory(a._store) != artifacts.directory(b._store)
        assert chunk_count(b) == 0


def test_the_bytes_are_durable_before_the_row_is(tmp_path: Path) -> None:
    """Before a row is written, its file is synced under its final name, and so is the directory."""
    code = """
import os, sys
import standfast
calls, names = [], {}
def told(name, then):
    real = getattr(os, name)
    def call(*args, **kwargs):
        result = real(*args, **kwargs)
        then(args, result)
        return result
    setattr(os, name, call)
def place(path):
    last = os.path.basename(path)
    if last.startswith("incoming-"): return "incoming"
    if len(last) == 62: return "digest"
    if len(last) == 2: return "shard"
    return last
told("open", lambda args, fd: names.__setitem__(fd, place(args[0])))
told("mkdir", lambda args, _: calls.append(f"mkdir {place(args[0])}"))
told("write", lambda args, _: calls.append(f"write {names[args[0]]}") if args[0] in names else None)
told("replace", lambda args, _: calls.append(f"rename {place(args[0])} to {place(args[1])}"))
told("fsync", lambda args, _: calls.append(f"sync {names[args[0]]}"))
told("fdatasync", lambda args, _: calls.append(f"sync {names.get(args[0], 'log')}"))
with standfast.open(sys.argv[1]) as sf:
    calls.clear()
    sf.artifacts.put(b"x" * 300_000, name="x")
    print("\\n".join(calls))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "standfast.db")], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "mkdir artifacts",
        f"sync {tmp_path.name}",
        "write incoming",
        "write incoming",
        "sync incoming",
        "mkdir shard",
        "rename incoming to digest",
        "sync shard",
        "sync artifacts",
        "sync standfast.db-wal",
    ]


@pytest.mark.parametrize("same", [True, False], ids=["one name", "names of their own"])
def test_processes_that_put_the_same_bytes_at_once_all_have_them(engine_url: str, tmp_path: Path, same: bool) -> None:
    code = """
import sys
import standfast
with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(10):
        made = sf.artifacts.put(b"%d" % n * 300_000, name=sys.argv[3])
        assert sf.artifacts.get(made.id) == b"%d" % n * 300_000
        print(made.id, flush=True)
"""
    standfast.open(engine_url, data_dir=tmp_path / "data").close()
    names = ["x"] * 4 if same else ["a", "b", "c", "d"]
    command = [sys.executable, "-c", code, engine_url, str(tmp_path / "data")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([*command, name], **pipes) for name in names]  # type: ignore[call-overload]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    ids = [child.communicate()[0].split() for child in children]
    assert [child.returncode for child in children] == [0] * 4
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        assert sf.artifacts.verify() == []
        assert chunk_count(sf) == 10
        assert len({id for line in ids for id in line}) == (10 if same else 40)


def test_two_that_replace_the_same_rows_wait_for_each_other(pg_database: str, tmp_path: Path) -> None:
    """The second process must see the chunks of the first; otherwise it would add the same chunks again."""
    import psycopg

    with standfast.open(pg_database, data_dir=tmp_path) as sf, psycopg.connect(pg_database, autocommit=True) as watcher:
        sf.artifacts.put(BIG, name="zero")
        moved, go_on = threading.Event(), threading.Event()
        at_the_row: set[str] = set()

        def hook(name: str) -> None:
            who = threading.current_thread().name
            if name == "artifact.before_row":
                at_the_row.add(who)
            if name == "commit.before_commit" and who == "one" and who in at_the_row and not go_on.is_set():
                moved.set()
                assert go_on.wait(30)

        threads = [
            threading.Thread(target=sf.artifacts.put, args=(BIG,), kwargs={"name": n}, name=n) for n in ("one", "two")
        ]
        crash.arm(hook)
        try:
            threads[0].start()
            assert moved.wait(30)
            threads[1].start()
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted"
            while watcher.execute(waiting).fetchone() is None:
                assert threads[1].is_alive()
                go_on.wait(0.01)
        finally:
            go_on.set()
            for thread in threads:
                thread.join()
            crash.disarm()
        assert [found.name for found in sf.artifacts.list()] == ["two", "one", "zero"]
        assert sf.artifacts.verify() == []
        assert chunk_count(sf) == 1
