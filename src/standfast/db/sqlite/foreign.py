"""SQLite databases of other programs, opened read only.

apsw opens them, because one process must not use two SQLite libraries. The flag and a pragma both forbid writing. The
caller names the tables, because such a file may hold credentials.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from standfast.errors import InvalidInput

if TYPE_CHECKING:
    import apsw

    from standfast.db.contract import Row

BUSY_MS = 2000
STEPS = 10_000
"""Instructions of SQLite between two checks of the deadline."""


class ForeignDatabase:
    """An open database of another program."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def rows(self, text: str, params: Sequence[object] = ()) -> Iterator[Row]:
        cursor = self._connection.execute(text, tuple(params))
        names: tuple[str, ...] | None = None
        for row in cursor:
            names = names or tuple(column[0] for column in cursor.get_description())
            yield dict(zip(names, row, strict=True))

    def has(self, table: str) -> bool:
        """Whether there is an ordinary table of this name. Views and virtual tables do not count, because a query or a
        module computes their rows."""
        known = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND rootpage > 0 AND name = ?"
        return any(self.rows(known, (table,)))


@contextmanager
def opened(path: str, *, within_s: float | None = None) -> Iterator[ForeignDatabase]:
    """Raises InvalidInput if it is not a database, cannot be read, or takes longer than `within_s` to read."""
    import apsw

    try:
        connection = _connect(path)
    except apsw.Error as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    if within_s is not None:
        end_s = time.monotonic() + within_s
        connection.set_progress_handler(lambda: time.monotonic() > end_s, STEPS)
    try:
        yield ForeignDatabase(connection)
    except apsw.InterruptError:
        raise InvalidInput(f"{path} was not read within {within_s:g} s; the rest is not read") from None
    except apsw.Error as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from None
    finally:
        connection.close()


def _connect(path: str) -> apsw.Connection:
    import apsw

    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    plain = f"file:{quote(os.path.abspath(path))}"
    try:
        connection = apsw.Connection(f"{plain}?mode=ro", flags=flags)
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA query_only=1").fetchall()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.CantOpenError:
        # SQLite cannot create the -shm file here. Without a WAL, immutable mode reads every row.
        if os.path.exists(path + "-wal") and os.path.getsize(path + "-wal"):
            raise
        connection = apsw.Connection(f"{plain}?immutable=1", flags=flags)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    return connection
