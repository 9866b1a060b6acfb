"""Databases of other programs on a PostgreSQL server, read and never written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from standfast.db.contract import Row
from standfast.db.postgres.driver import psycopg
from standfast.errors import StorageError

BATCH = 200


class ForeignDatabase:
    """One read-only snapshot of a database of another program."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, text: str, params: dict[str, object] | None = None) -> Iterator[Row]:
        """The rows of a query, some at a time; parameters are `%(name)s`."""
        from psycopg.rows import dict_row

        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(text, params)
            while rows := cursor.fetchmany(BATCH):
                yield from rows

    def tables(self) -> frozenset[str]:
        text = "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false))"
        return frozenset(str(row["table_name"]) for row in self.rows(text))


@contextmanager
def reading(url: str) -> Iterator[ForeignDatabase]:
    """Raises StorageError where the server cannot be asked."""
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            yield ForeignDatabase(connection)
    except psycopg.Error as error:
        # The driver's message may quote parts of the URL, so show only the kind of the error.
        raise StorageError(f"the server cannot be asked: {type(error).__name__}", "is the URL right?") from None
