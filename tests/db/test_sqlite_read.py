"""Reading a SQLite store: a snapshot waits for no process, blocks none, and ends at its time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import standfast
from standfast.db.contract import Tx
from standfast.db.sql import statement
from standfast.errors import Corrupt
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.rows import INSERT, KEYS, keys, put
from standfast_prove.faults.threads import Task
from tests.features.test_doctor import checkpoint

FOR_EVER = statement(
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) AS n FROM c", name="for_ever"
)


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as store:
        yield store


def count(tx: Tx) -> int:
    return len(tx.all(KEYS, pattern="k%"))


def test_a_read_sees_one_snapshot_while_a_writer_continues(sf: standfast.Standfast) -> None:
    """001-45: neither waits for the other."""

    def body(tx: Tx) -> tuple[int, int]:
        before = count(tx)
        assert Task(put, sf, "k-meanwhile").done() is None  # the writer commits during the read
        return before, count(tx)

    assert sf.read(body) == (0, 0)
    assert keys(sf) == ["k-meanwhile"]


def test_an_open_transaction_keeps_no_reader_waiting(sf: standfast.Standfast) -> None:
    """001-45"""
    put(sf, "k-before")
    with sf.transaction() as tx:
        tx.leases.acquire("deploy")
        read: list[int] = []
        assert Task(lambda: read.append(sf.read(count))).done() is None
        assert read == [1]
        assert sf.read(count) == 1  # also in the thread that holds the block


def test_twenty_readers_at_once_each_get_a_connection(sf: standfast.Standfast) -> None:
    put(sf, "k-before")
    together = threading.Barrier(20)

    def body(tx: Tx) -> int:
        together.wait(30)  # all twenty are inside a snapshot now
        return count(tx)

    found: list[int] = []
    tasks = [Task(lambda: found.append(sf.read(body))) for _ in range(20)]
    assert [task.done() for task in tasks] == [None] * 20
    assert found == [1] * 20


def test_a_read_past_its_age_is_ended_and_the_next_one_works(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-24: a snapshot pins the log: no process may keep one permanently."""
    set_limit("READ_MAX_S", 0.1, change=monkeypatch.setattr)
    with pytest.raises(standfast.StorageError, match="took too long"):
        sf.read(lambda tx: tx.one(FOR_EVER))
    assert sf.read(count) == 0


def test_a_read_cannot_write(sf: standfast.Standfast) -> None:
    with pytest.raises(standfast.StorageError):
        sf.read(lambda tx: tx.run(INSERT, key="k-never", value="1"))
    assert keys(sf) == []


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM meta",
        "INSERT INTO meta (key, value) VALUES ('k', 'v')",
        "UPDATE meta SET value = 'x'",
        "DROP TABLE meta",
        "CREATE TABLE theirs (a)",
        "ATTACH ':memory:' AS other",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA writable_schema=ON",
        "VACUUM",
        "BEGIN IMMEDIATE",
        "SELECT load_extension('x')",
    ],
)
def test_a_persons_query_does_nothing_but_read(sf: standfast.Standfast, text: str) -> None:
    """000-27, 000-30"""
    put(sf, "k-kept")
    with pytest.raises(standfast.StandfastError):
        list(sf.rows(text))
    assert keys(sf) == ["k-kept"]
    assert [row["name"] for row in sf.rows("SELECT name FROM sqlite_schema WHERE name = 'theirs'")] == []


def test_a_text_whose_bytes_have_changed_is_damage_by_name(tmp_path: Path) -> None:
    """A caller that reads the text gets Corrupt, not a codec error. All other callers continue."""
    path, title = tmp_path / "standfast.db", b"xyzzy to be damaged"
    with standfast.open(path, data_dir=tmp_path) as sf:
        damaged, whole = sf.tasks.add(title.decode(), body="see above"), sf.tasks.add("whole")
    checkpoint(path)
    content = path.read_bytes()
    assert content.count(title) >= 1
    path.write_bytes(content.replace(title, title.replace(b" to ", b"\xff\xfe\xc3\x28")))
    with standfast.open(path, data_dir=tmp_path) as sf:
        meetings: list[Callable[[], object]] = [
            lambda: sf.tasks.get(damaged.id),
            sf.tasks.list,
            lambda: sf.tasks.done(damaged.id),
            lambda: list(sf.rows("SELECT title FROM task")),
        ]
        for meet in meetings:
            with pytest.raises(Corrupt, match="its bytes are not UTF-8") as raised:
                meet()
            assert raised.value.hint == "standfast doctor"
        assert sf.tasks.get(whole.id).title == "whole"
        assert sf.tasks.done(whole).state == "closed"


def test_a_persons_query_is_streamed_and_can_be_stopped_halfway(sf: standfast.Standfast) -> None:
    for n in range(5):
        put(sf, f"k{n}")
    rows = sf.rows("SELECT key FROM meta WHERE key LIKE :pattern ORDER BY key", {"pattern": "k%"})
    assert next(rows) == {"key": "k0"}
    rows.close()  # type: ignore[attr-defined]
    put(sf, "k5")
    assert len(keys(sf)) == 6
