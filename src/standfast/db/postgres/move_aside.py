"""Move a store aside by renaming its schema. The next open finds no store in the database."""

from __future__ import annotations

from standfast.db.postgres import server_checks
from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.faults import spoken


def store_id(url: str) -> str:
    """The id of the store in this database; empty if there is none."""
    address = Address(url)
    with spoken(address), connect(address) as connection:
        fresh = connection.execute(server_checks.PRESENT).fetchone()
        if fresh is None or fresh[0]:
            return ""
        row = connection.execute(b"SELECT value FROM standfast.meta WHERE key = 'store_id'").fetchone()
        return str(row[0]) if row else ""


def move_aside(url: str, schema: str) -> None:
    """Rename the schema `standfast`, if it is there. `schema` is a generated name that needs no quotes."""
    address = Address(url)
    with spoken(address), connect(address) as connection, connection.transaction():
        connection.execute(b"SET LOCAL lock_timeout = '30s'")
        there = connection.execute(b"SELECT to_regnamespace('standfast') IS NOT NULL").fetchone()
        if there is not None and there[0]:
            connection.execute(f"ALTER SCHEMA standfast RENAME TO {schema}".encode())
