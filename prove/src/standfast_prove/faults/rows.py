"""The simplest rows of a store, written by the same engine call as all other rows.

A row is a key in `meta`. Tests of `db` need no more: each property of one insert in a transaction also holds for
every method.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from standfast.db.sql import statement

if TYPE_CHECKING:
    import standfast
    from standfast.db.contract import Tx

INSERT = statement("INSERT INTO meta (key, value) VALUES (:key, :value)", name="test_insert")
COUNT_UP = statement(
    "INSERT INTO meta (key, value) VALUES (:key, '1')"
    " ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS INTEGER) + 1 AS TEXT)",
    name="test_count_up",
)
KEYS = statement("SELECT key FROM meta WHERE key LIKE :pattern ORDER BY key", name="test_keys")
VALUE = statement("SELECT value FROM meta WHERE key = :key", name="test_value")


def inserting(key: str, value: str = "1") -> Callable[[Tx], None]:
    """The body that inserts one row."""
    return lambda tx: tx.run(INSERT, key=key, value=value)


def put(sf: standfast.Standfast, key: str, value: str = "1", *, durable: bool = True) -> None:
    sf._store.write(inserting(key, value), durable=durable)


def count_up(sf: standfast.Standfast, key: str) -> None:
    sf._store.write(lambda tx: tx.run(COUNT_UP, key=key))


def value(sf: standfast.Standfast, key: str) -> str | None:
    row = sf.read(lambda tx: tx.maybe(VALUE, key=key))
    return None if row is None else row["value"]


def keys(sf: standfast.Standfast, prefix: str = "k") -> list[str]:
    """The keys that begin with `prefix`. The store's own keys do not begin with k."""
    return [row["key"] for row in sf.read(lambda tx: tx.all(KEYS, pattern=prefix + "%"))]


def integrity(path: str | Path) -> str:
    """SQLite's integrity check of the file, by the engine's library. "ok" if it is sound."""
    import apsw

    connection = apsw.Connection(str(path))
    try:
        return "; ".join(row[0] for row in connection.execute("PRAGMA integrity_check(3)"))
    finally:
        connection.close()


def checkpoint(path: str | Path) -> None:
    """Checkpoint the whole WAL into the file. No process may have it open."""
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        busy, *_ = next(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)"))
        assert not busy, f"{path} is in use"
    finally:
        connection.close()


class Oracle:
    """The acknowledgements, written outside the store by the process that got them.

    One `write` to a file opened for appending gives whole lines, also with other writers. Only processes die, so
    nothing needs to be synced. If a writer is killed during the `write`, the kernel may cut the line between two pages.
    """

    def __init__(self, path: str | Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def close(self) -> None:
        os.close(self._fd)


def noted(path: str | Path) -> list[str]:
    """The lines of an oracle; an empty list if nothing was acknowledged."""
    try:
        return [line for line in Path(path).read_text().splitlines() if line]
    except FileNotFoundError:
        return []
