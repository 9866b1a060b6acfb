"""Move a store into a database of PostgreSQL, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from standfast.db.move_mark import another_mover
from standfast.db.postgres import copies, migrate
from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.driver import psycopg
from standfast.db.postgres.faults import spoken
from standfast.db.tables import Table, carried

MOVER_KEY = migrate.LOCK_KEY + 1
_MOVER = (
    b"SELECT set_config('lock_timeout', '1s', true), set_config('idle_in_transaction_session_timeout', '0', true),"
    b" set_config('tcp_keepalives_idle', '30', true), set_config('tcp_keepalives_interval', '10', true),"
    b" set_config('tcp_keepalives_count', '3', true)"
)
"""The server needs a moment to notice that a client died, and 60 s to notice that its host died."""


class Made:
    """Read the loaded rows, in the transaction that loads them."""

    def __init__(self, connection: psycopg.Connection[Any], schema: int) -> None:
        self._connection = connection
        self.tables = carried(schema)

    def rows(self, table: Table) -> Iterator[Any]:
        yield from copies.rows_of(self._connection, table)

    def put_artifact(self, digest: str, blocks: Iterable[bytes]) -> None:
        copies.put_chunks(self._connection, digest, blocks)


@contextmanager
def mover(url: str) -> Iterator[Callable[[], None]]:
    """Hold the lock of the process that moves the store in this database. The server releases it when the process or
    its host dies.

    Raises Busy if another process holds it. The yielded function raises StorageError if the lock was lost: then another
    process may have undone the move.
    """
    address = Address(url)
    with spoken(address):
        connection = connect(address)
    with closing(connection):
        with spoken(address):
            connection.execute(b"BEGIN")
            connection.execute(_MOVER)
            try:
                connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (MOVER_KEY,))
            except psycopg.errors.LockNotAvailable:
                raise another_mover() from None

        def check() -> None:
            with spoken(address):
                connection.execute(b"SELECT 1")

        yield check


@contextmanager
def loading(
    url: str, schema: int, rows: Iterable[tuple[Table, Iterator[Any]]], meta: dict[str, str], aside: str
) -> Iterator[Made]:
    """Make a store of these rows, in one transaction that ends with the block."""
    with copies.loading(url, schema, rows, "", aside) as connection:
        own = {"schema_version": str(schema), "cluster": migrate.cluster(connection)}
        copies.put_meta(connection, {**meta, **own})
        yield Made(connection, schema)


def meta(url: str) -> dict[str, str]:
    """The `meta` rows of the store in this database. Empty if there is none. Waits until no other move can commit."""
    with copies.locked(url) as connection:
        if connection.execute(b"SELECT to_regclass('standfast.meta') IS NULL").fetchall()[0][0]:
            return {}
        return dict(connection.execute(b"SELECT key, value FROM standfast.meta").fetchall())
