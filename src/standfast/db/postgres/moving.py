"""Moving a store into a database of PostgreSQL: one transaction, which other processes see as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from standfast.db.postgres import copying, migrate
from standfast.db.postgres.driver import psycopg
from standfast.db.tables import Table, carried


class Made:
    """Read the loaded rows, in the transaction that loads them."""

    def __init__(self, connection: psycopg.Connection[Any], schema: int) -> None:
        self._connection = connection
        self.tables = carried(schema)

    def rows(self, table: Table) -> Iterator[Any]:
        yield from copying.rows_of(self._connection, table)

    def put_artifact(self, digest: str, blocks: Iterable[bytes]) -> None:
        copying.put_chunks(self._connection, digest, blocks)


@contextmanager
def loading(
    url: str, schema: int, rows: Iterable[tuple[Table, Iterator[list[Any]]]], meta: dict[str, str], aside: str
) -> Iterator[Made]:
    """Make the store of these rows, in one transaction that ends with the block."""
    with copying.loading(url, schema, rows, "", aside) as connection:
        own = {"schema_version": str(schema), "cluster": migrate.cluster(connection)}
        copying.put_meta(connection, {**meta, **own})
        yield Made(connection, schema)


def meta(url: str) -> dict[str, str]:
    """The `meta` rows of the store in this database. Empty if there is none. Waits until no other move can commit."""
    with copying.locked(url) as connection:
        if connection.execute(b"SELECT to_regclass('standfast.meta') IS NULL").fetchall()[0][0]:
            return {}
        return dict(connection.execute(b"SELECT key, value FROM standfast.meta").fetchall())
