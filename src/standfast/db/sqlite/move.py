"""Move a store out of a SQLite file or into one, with the rows of all tables in the catalogue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import apsw

from standfast.db.move_mark import another_mover
from standfast.db.sqlite import copies, migrate
from standfast.db.sqlite.location import make_private
from standfast.db.sqlite.lock import FileLock
from standfast.db.sqlite.move_aside import LOCK_WAIT_S, left, swap
from standfast.db.tables import Table, carried
from standfast.errors import Conflict


class Snapshot:
    """A snapshot of a file that this process does not have open."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.schema = migrate.version(connection)
        self.tables = carried(self.schema)
        self.meta: dict[str, str] = dict(connection.execute("SELECT key, value FROM meta"))
        sizes = "SELECT digest, max(size_bytes) FROM artifact GROUP BY digest ORDER BY digest"
        self.artifacts: dict[str, int] = dict(connection.execute(sizes))

    def rows(self, table: Table) -> Iterator[Any]:
        """The rows in the order of the key. A row that was written on SQLite has no transaction id: it is read as 0."""
        columns = ("COALESCE(xid, 0)" if column == "xid" else column for column in table.columns)
        text = f"SELECT {', '.join(columns)} FROM {table.name} ORDER BY {', '.join(table.key)}"
        yield from self._connection.execute(text)

    def count(self, table: Table) -> int:
        text = f"SELECT count(*) FROM {table.name}"
        return int(self._connection.execute(text).get)


@contextmanager
def snapshot(path: str) -> Iterator[Snapshot]:
    """Open one snapshot. Nothing in it can write."""
    with copies.translated(path), closing(copies.opened(path, apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.execute("BEGIN").fetchall()
        yield Snapshot(connection)


@contextmanager
def mover(path: str) -> Iterator[Callable[[], None]]:
    """Hold the lock of the process that moves the store at `path`. The kernel releases it when that process dies.

    Raises Busy if another process holds it. The yielded function exists for PostgreSQL, whose lock can be lost.
    """
    lock = FileLock(path + ".mover")
    try:
        if not lock.take():
            raise another_mover()
        yield lambda: None
    finally:
        lock.close()


def forget(path: str) -> None:
    """Remove the unfinished file of a move to `path`. A move that still runs then fails: it cannot rename the file."""
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.moving")


@contextmanager
def loading(
    path: str, schema: int, rows: Iterable[tuple[Table, Iterator[Any]]], meta: dict[str, str], aside: str
) -> Iterator[Snapshot]:
    """Make the file `path` from these rows. The file gets its name when the block ends without an error. `aside` is a
    directory for a sealed store at `path`, which moved away before.
    """
    make_private(os.path.dirname(path))
    incoming = f"{path}.moving"
    made = _made(path, incoming)

    def check() -> None:
        if not aside and left(path):
            raise Conflict(f"another process made a store at {path}: nothing was moved", "move to another place")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(made), os.stat(incoming)):
                return
        raise Conflict(f"another move to {path} has begun: nothing was moved", "see the store there: standfast db")

    try:
        copies.load(incoming, schema, rows)
        copies.put_meta(incoming, meta)
        with snapshot(incoming) as found:
            yield found
        os.fsync(made)
        swap(path, incoming, aside, check)
    finally:
        os.close(made)


def _made(path: str, incoming: str) -> int:
    """The descriptor of the new file `incoming`. While it is open, no other file gets its inode number.

    The lock keeps a move that renames its own `incoming` from renaming this one.
    """
    lock = FileLock(path + ".lock")
    try:
        lock.acquire(LOCK_WAIT_S)
        forget(path)  # a move that was killed left it
        return os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    finally:
        lock.close()
