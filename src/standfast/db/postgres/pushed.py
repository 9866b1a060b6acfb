"""The journals of many stores in one database: table `standfast_pushed.event`, one row for each store and number.

It is a copy to query, not a store: standfast never reads it back.
"""

from __future__ import annotations

from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.driver import psycopg
from standfast.db.postgres.faults import Fault
from standfast.errors import StorageError

_TABLE = """
CREATE SCHEMA IF NOT EXISTS standfast_pushed;
CREATE TABLE IF NOT EXISTS standfast_pushed.event (
    store text NOT NULL, seq bigint NOT NULL, event jsonb NOT NULL, pushed timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (store, seq))
"""
_UPTO = "SELECT COALESCE(max(seq), 0) FROM standfast_pushed.event WHERE store = %s"
_PUT = "INSERT INTO standfast_pushed.event (store, seq, event) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"


class Server:
    """A PostgreSQL server that stores the journals of many stores."""

    def __init__(self, url: str) -> None:
        address = Address(url)
        self.shown = address.shown
        try:
            self._connection = connect(address)
        except Fault as fault:
            raise self._failed(fault.message) from None
        try:
            self._connection.execute(_TABLE)
        except psycopg.Error as error:
            self.close()
            raise self._failed(str(error)) from None

    def _failed(self, reason: str) -> StorageError:
        fact = f"{self.shown} cannot be reached: {reason.strip().partition(chr(10))[0]}. Nothing is lost here"
        return StorageError(fact, "push again later: standfast store push TO", code="push_failed")

    def upto(self, store_id: str) -> int:
        try:
            row = self._connection.execute(_UPTO, (store_id,)).fetchone()
        except psycopg.Error as error:
            raise self._failed(str(error)) from None
        return int(row[0]) if row else 0

    def put(self, store_id: str, rows: list[tuple[int, str]]) -> None:
        """Insert the rows in one transaction. So if the highest number is there, all before it are too."""
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.executemany(_PUT, [(store_id, seq, text) for seq, text in rows])
        except psycopg.Error as error:
            raise self._failed(str(error)) from None

    def close(self) -> None:
        self._connection.close()
