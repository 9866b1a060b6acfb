"""Copies of a store on PostgreSQL: read all rows from one snapshot, and make a store of rows.

The snapshot is one REPEATABLE READ transaction that cannot write. Rows come by the table catalogue, so a copy restores
into either engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from standfast.db.postgres import migrate, server_checks
from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.driver import psycopg
from standfast.db.postgres.faults import spoken
from standfast.db.tables import Table, carried, rules, up_to
from standfast.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

ROWS_PER_TRIP = 2000
CHUNKS_PER_TRIP = 8
_LOCAL = (
    b"SELECT set_config('search_path', 'standfast, pg_temp', true), set_config('statement_timeout', '0', true),"
    b" set_config('lock_timeout', '30000', true), set_config('idle_in_transaction_session_timeout', '0', true)"
)
_READ = {("event", "xid"): "CAST(CAST(xid AS text) AS bigint)"}
"""Columns that psycopg would not decode as a number, with the expression to select."""


class Snapshot:
    """A store as it was at one time."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.meta: Mapping[str, str] = dict(self._ask("SELECT key, value FROM meta"))
        self.seq = int(self._ask("SELECT COALESCE(max(seq), 0) FROM event")[0][0])
        sizes = "SELECT digest, max(size_bytes) FROM artifact WHERE uri NOT LIKE 's3:%' GROUP BY digest ORDER BY digest"
        self.artifacts: dict[str, int] = dict(self._ask(sizes))

    @property
    def tables(self) -> tuple[Table, ...]:
        return carried(int(self.meta["schema_version"]))

    def rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        yield from rows_of(self._connection, table)

    def count(self, table: Table) -> int:
        return int(self._ask(f"SELECT count(*) FROM {table.name}")[0][0])

    def blocks(self, digest: str) -> Iterator[bytes]:
        """The bytes of an artifact."""
        text = "SELECT bytes FROM artifact_chunk WHERE digest = %s ORDER BY n"
        yield from (bytes(row[0]) for row in _stream(self._connection, text, (digest,), CHUNKS_PER_TRIP))

    def _ask(self, text: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(text.encode()).fetchall()


def rows_of(connection: psycopg.Connection[Any], table: Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table in the order of its key. COLLATE "C" gives the order of SQLite."""
    columns = ", ".join(_READ.get((table.name, column), column) for column in table.columns)
    types = rules(table.name)
    key = ", ".join(f'{name} COLLATE "C"' if types[name].type == "TEXT" else name for name in table.key)
    yield from _stream(connection, f"SELECT {columns} FROM {table.name} ORDER BY {key}", (), ROWS_PER_TRIP)


def _stream(
    connection: psycopg.Connection[Any], text: str, params: tuple[str, ...], together: int
) -> Iterator[tuple[Any, ...]]:
    with connection.cursor(name="standfast_copy") as cursor:
        cursor.execute(text.encode(), params)
        while rows := cursor.fetchmany(together):
            yield from rows


@contextmanager
def locked(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that excludes migrations and other loads of the same database."""
    address = Address(url)
    with spoken(address), connect(address) as connection, connection.transaction():
        connection.execute(b"SET LOCAL lock_timeout = '30s'")
        connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (migrate.LOCK_KEY,))
        yield connection


@contextmanager
def snapshot(url: str) -> Iterator[Snapshot]:
    """Open one snapshot of the store. Nothing in it can write."""
    address = Address(url)
    with spoken(address), connect(address) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        with connection.transaction(force_rollback=True):
            connection.execute(_LOCAL)
            yield Snapshot(connection)


# -- restore --------------------------------------------------------------------------------------------


@contextmanager
def loading(
    url: str, schema: int, rows: Iterable[tuple[Table, Iterator[Any]]], copy_id: str, aside: str = ""
) -> Iterator[psycopg.Connection[Any]]:
    """Make a store of the rows of a copy, in one transaction that ends with the block.

    With `aside`, an existing schema is renamed to this name first. Raises Conflict if the database has a store.
    """
    address = Address(url)
    with spoken(address), connect(address) as connection, connection.transaction():
        if aside:
            connection.execute(b"SET LOCAL lock_timeout = '30s'")
            connection.execute(f"ALTER SCHEMA standfast RENAME TO {aside}".encode())
        fresh = connection.execute(server_checks.PRESENT).fetchone()
        if fresh is None or not fresh[0]:
            raise Conflict(f"there is a store in {address.shown}", "restore into an empty database: --to URL")
        migrate.migrate_locked(connection, up_to(schema))
        connection.execute(_LOCAL)
        connection.execute(b"DELETE FROM meta")
        connection.execute(b"DELETE FROM migration")
        for table, values in rows:
            names = ", ".join(table.columns)
            with connection.cursor().copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as copy:
                for row in values:
                    copy.write_row(row)
            if table.key == ("seq",):
                text = f"SELECT setval(pg_get_serial_sequence('{table.name}', 'seq'), max(seq)) FROM {table.name}"
                connection.execute(text.encode())
        if copy_id:
            connection.execute(b"INSERT INTO meta (key, value) VALUES ('copy_of', %s)", (copy_id,))
        yield connection


def put_meta(connection: psycopg.Connection[Any], values: Mapping[str, str]) -> None:
    """Set facts of a restored store, in the transaction of `loading`."""
    for pair in values.items():
        text = b"INSERT INTO meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        connection.execute(text, pair)


def carry_over(connection: psycopg.Connection[Any], aside: str, lacking: str, texts: Iterable[str]) -> int | None:
    """Run statements that read the schema `aside`, in the transaction of `loading`. Returns its last sequence number.

    Returns None, and changes nothing, if its tables are not those of a store or if the query `lacking` counts missing
    rows.
    """
    try:
        with connection.transaction():
            if connection.execute(lacking.encode()).fetchall()[0][0]:
                return None
            for text in texts:
                connection.execute(text.encode())
            missing = "digest IN (SELECT digest FROM artifact) AND digest NOT IN (SELECT digest FROM artifact_chunk)"
            columns = "artifact_chunk (digest, n, bytes)"
            text = f"INSERT INTO {columns} SELECT digest, n, bytes FROM {aside}.artifact_chunk WHERE {missing}"
            connection.execute(text.encode())
            last = connection.execute(f"SELECT COALESCE(max(seq), 0) FROM {aside}.event".encode()).fetchone()
            return int(last[0]) if last else 0
    except psycopg.Error:
        return None


def put_chunks(connection: psycopg.Connection[Any], digest: str, blocks: Iterable[bytes]) -> None:
    """Store the bytes of one artifact, in the transaction of `loading`."""
    for n, block in enumerate(blocks):
        text = b"INSERT INTO artifact_chunk (digest, n, bytes) VALUES (%s, %s, %s)"
        connection.execute(text, (digest, n, block))
