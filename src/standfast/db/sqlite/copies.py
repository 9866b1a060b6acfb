"""Copies of a SQLite file: take one snapshot, stop all writers for a plain copy, and make a new file of rows.

Closing a descriptor of the file drops the locks that a process has on it. So `snapshot` and `examine` are only for a
process that does not have the file open: copies are taken in a child process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import apsw

from standfast.clock import SYSTEM
from standfast.db import catalogue
from standfast.db.contract import DEADLINE_S, Caller
from standfast.db.sqlite import library, migrate
from standfast.db.sqlite.lock import FileLock
from standfast.db.tables import OWN_META, Sum, Table, carried, line, up_to
from standfast.errors import Busy, NotFound

PAGES_PER_STEP = 8192
"""32 MB of pages between two progress reports."""
_ARTIFACTS = "SELECT digest, max(size_bytes) FROM artifact WHERE uri NOT LIKE 's3:%' GROUP BY digest ORDER BY digest"
_LAST = "SELECT COALESCE(max(seq), 0) FROM event"
_PUT_META = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class Facts(NamedTuple):
    """Facts about a store, read from one snapshot."""

    store_id: str
    epoch: int
    schema: int
    seq: int
    """The highest sequence number of the journal."""
    rows: dict[str, int]
    artifacts: dict[str, int]
    """Digest and size of each artifact."""


def snapshot(path: str, to: str, progress: Callable[[int, int], object]) -> Facts:
    """Write one consistent snapshot of the database at `path` to the new file `to`, by SQLite's online backup.

    Writers continue meanwhile. `progress` is called with the bytes written so far and the total.
    """
    with translated(path), closing(opened(path, apsw.SQLITE_OPEN_READONLY)) as source:
        return save(source, to, progress)


def save(source: apsw.Connection, to: str, progress: Callable[[int, int], object] = lambda done, total: None) -> Facts:
    """Save a copy through an open connection, which must not be in a transaction."""
    with translated(to), closing(apsw.Connection(to)) as target:
        target.execute("PRAGMA synchronous=OFF")  # a temporary file: only the compressed one is synced
        source.execute("BEGIN").fetchall()
        facts = _facts(source)  # a read pins the snapshot, so the backup never starts again
        page_bytes = int(source.execute("PRAGMA page_size").get)
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_PER_STEP)
                progress((backup.page_count - backup.remaining) * page_bytes, backup.page_count * page_bytes)
        source.execute("ROLLBACK").fetchall()
    return facts


@contextmanager
def translated(path: str) -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise library.translated(error, path) from error


def opened(path: str, flags: int) -> apsw.Connection:
    connection = apsw.Connection(path, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW)
    connection.set_busy_timeout(10_000)
    migrate.define_guard(connection)
    return connection


def _facts(connection: apsw.Connection) -> Facts:
    store_id, epoch, *_ = migrate.identity(connection)
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return Facts(
        store_id=store_id,
        epoch=epoch,
        schema=migrate.version(connection),
        seq=int(connection.execute(_LAST).get),
        rows={table: int(connection.execute(_count(table)).get) for table in catalogue.tables() if table in there},
        artifacts={digest: int(size) for digest, size in connection.execute(_ARTIFACTS)},
    )


def _count(table: str) -> str:
    return f"SELECT count(*) FROM {table}"


def examine(path: str, hashed: bool) -> tuple[Facts, dict[str, str], list[str]]:
    """The contents of a restored file: row counts, table hashes if `hashed`, and rows with a broken foreign key."""
    with translated(path), closing(opened(path, apsw.SQLITE_OPEN_READONLY)) as connection:
        facts = _facts(connection)
        broken = [f"{table} row {row}" for table, row, *_ in connection.execute("PRAGMA foreign_key_check")]
        hashes = {table.name: _hash(connection, table) for table in carried(facts.schema)} if hashed else {}
    return facts, hashes, broken


def _hash(connection: apsw.Connection, table: Table) -> str:
    found = Sum()
    where = " WHERE key <> 'copy_of'" if table.name == "meta" else ""
    text = f"SELECT {', '.join(table.columns)} FROM {table.name}{where}"
    for row in connection.execute(text):
        found.add(line(row))
    return found.hash


@contextmanager
def frozen(path: str) -> Iterator[None]:
    """While the block runs, no process writes and the WAL is empty, so a plain copy of the file is complete.

    Writers of other processes wait up to DEADLINE_S. Raises Busy while a reader keeps the log from being emptied.
    """
    if not os.path.exists(path):
        raise NotFound(f"there is no store at {path}", "standfast where")
    lock, end = FileLock(path + ".lock"), time.monotonic() + DEADLINE_S
    try:
        lock.acquire(DEADLINE_S)
        with closing(opened(path, apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0]:
                if time.monotonic() > end:
                    raise Busy(f"a read of {path} has been open for {DEADLINE_S:.0f} s", "try again when it has ended")
                library.pause(0.05)
            yield
    finally:
        lock.close()


# -- restore --------------------------------------------------------------------------------------------


def put_meta(path: str, values: dict[str, str]) -> None:
    """Set rows of `meta` in a restored file. With `copy_of` the store is read only."""
    with translated(path), closing(opened(path, apsw.SQLITE_OPEN_READWRITE)) as connection, connection:
        connection.executemany(_PUT_META, list(values.items()))


def meta(path: str) -> dict[str, str]:
    """The rows of `meta` of a store that this process does not have open."""
    if not os.path.exists(path):
        raise NotFound(f"there is no store at {path}", "standfast restore --here")
    with translated(path), closing(opened(path, apsw.SQLITE_OPEN_READONLY)) as connection:
        return dict(connection.execute("SELECT key, value FROM meta"))


def identified(path: str) -> tuple[str, int, int] | None:
    """Id, epoch and last sequence number of a store that this process does not have open; None if it is damaged."""
    try:
        with closing(opened(path, apsw.SQLITE_OPEN_READONLY)) as connection:
            store_id, epoch, *_ = migrate.identity(connection)
            return store_id, epoch, int(connection.execute(_LAST).get)
    except apsw.Error:
        return None


def carry_over(path: str, old: str, lacking: str, texts: Iterable[str]) -> int | None:
    """Run statements on `path`, with the database `old` attached as `old`. Returns the last sequence number of `old`.
    Returns None, and changes nothing, if `old` cannot be read or the query `lacking` counts missing rows."""
    try:
        with closing(opened(path, apsw.SQLITE_OPEN_READWRITE)) as connection:
            connection.execute("PRAGMA synchronous=FULL; ATTACH ? AS old", (old,)).fetchall()
            if connection.execute(lacking).get:
                return None
            with connection:
                for text in texts:
                    connection.execute(text).fetchall()
            return int(connection.execute("SELECT COALESCE(max(seq), 0) FROM old.event").get)
    except apsw.Error:
        return None


def load(path: str, schema: int, rows: Iterable[tuple[Table, Iterator[Any]]]) -> None:
    """Make the file `path` of the rows of a copy, in one transaction. Triggers come last, because they would make the
    inserts 5 times slower.
    """
    caller = Caller(actor="restore", holder="restore", scope="", clock=SYSTEM)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with translated(path), closing(opened(path, flags)) as connection, connection:
        for migration in up_to(schema):
            migrate.apply_step(connection, caller, migration)
        connection.execute("DELETE FROM meta; DELETE FROM migration").fetchall()
        settled = ""
        for table, values in rows:
            if table.name == "meta":
                found = list(values)
                settled = next((value for key, value in found if key == "settled_seq"), "")
                values = (row for row in found if row[0] not in OWN_META)
            marks = ", ".join("?" * len(table.columns))
            text = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
            connection.executemany(text, values)
        # Up to this row, cursors that come from PostgreSQL continue in transaction order: see `journal.following`.
        connection.execute(
            "INSERT INTO meta SELECT 'settled_seq', trim(? || ',' || max(seq), ',') FROM event HAVING max(seq) > 0",
            (settled,),
        ).fetchall()
        migrate.protect(connection, up_to(schema))
