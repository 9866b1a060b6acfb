"""Upgrade a file's schema to this version, while other processes open it too.

The caller holds the file lock. The version is read again inside the transaction, all pending
steps are applied in that one transaction, and `user_version` moves with them: a killed process
leaves the old schema or the new one, never half of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from standfast import crash, log
from standfast.db.contract import Caller
from standfast.db.migrations import MIGRATIONS, ddl, refuse
from standfast.db.migrations.migration import Migration
from standfast.errors import Corrupt
from standfast.ids import new_id

APPLICATION_ID = 0x53544644
GUARD = "only_standfast_writes_here"
"""A function that only our connections define. The triggers call it, so that any other program's write fails with "no
such function: only_standfast_writes_here" and changes nothing."""


def version(connection: apsw.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").get)


def migrate(connection: apsw.Connection, caller: Caller, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply pending migrations. The caller holds the lock between processes."""
    latest = migrations[-1].version
    if _found(connection, migrations) == latest:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _found(connection, migrations)
        refuse_foreign(connection, found)
        for migration in migrations:
            if migration.version > found:
                crash.point("migrate.before_step")
                apply_step(connection, caller, migration)
                crash.point("migrate.after_step")
        protect(connection, migrations)
        connection.execute("COMMIT")
        if found < migrations[-1].version:
            log.info("migrated from schema %d to %d", found, migrations[-1].version)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _found(connection: apsw.Connection, migrations: Sequence[Migration]) -> int:
    """The schema of this store. Raises for a newer schema and for other migrations."""
    found, history = version(connection), {}
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migration' AND type = 'table'").get:
        history = dict(connection.execute("SELECT version, checksum FROM migration"))
    refuse(found, history, migrations)
    return found


def identity(connection: apsw.Connection) -> tuple[str, int, int, str, str]:
    """The store's id, its epoch, the lowest schema that may write to it, the copy that it was restored from, and where
    it moved."""
    wanted = "SELECT key, value FROM meta WHERE key IN ('store_id', 'epoch', 'min_writer', 'copy_of', 'moved')"
    meta = dict(connection.execute(wanted))
    numbers = int(meta.get("epoch", "1")), int(meta.get("min_writer", "0"))
    return meta.get("store_id", ""), *numbers, meta.get("copy_of", ""), meta.get("moved", "")


def refuse_foreign(connection: apsw.Connection, found: int) -> None:
    """A database of another program is left alone."""
    application = int(connection.execute("PRAGMA application_id").get)
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").get)
    if application not in (0, APPLICATION_ID) or (found == 0 and tables):
        raise Corrupt(
            f"{connection.filename} is a database of another program",
            "choose another file for standfast: standfast db sqlite PATH",
            code="not_a_store",
        )


def apply_step(connection: apsw.Connection, caller: Caller, migration: Migration) -> None:
    connection.execute(ddl(migration, "sqlite")).fetchall()
    if migration.version == 1:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute("INSERT INTO meta (key, value) VALUES ('store_id', ?), ('epoch', '1')", (new_id("sto"),))
    connection.execute(
        "INSERT INTO migration (version, name, checksum, applied_us) VALUES (?, ?, ?, ?)",
        (migration.version, migration.name, migration.checksum, caller.clock.now_us()),
    )
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('min_writer', ?1)"
        " ON CONFLICT (key) DO UPDATE SET value = max(CAST(value AS INTEGER), CAST(?1 AS INTEGER))",
        (str(migration.min_writer),),
    )
    connection.execute(f"PRAGMA user_version={migration.version}")


def define_guard(connection: apsw.Connection) -> None:
    connection.create_scalar_function(GUARD, _pass, 0, deterministic=True, flags=apsw.SQLITE_INNOCUOUS)


def _pass(*_: object) -> None:
    """The guard function of our own connections: it does nothing, so their writes pass."""


def protect(connection: apsw.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Put the guard triggers on every table of ours that lacks them; returns how many were missing."""
    missing = unprotected(connection, migrations)
    for table, change in missing:
        connection.execute(guard_trigger(table, change)).fetchall()
    return len(missing)


def guard_trigger(table: str, change: str) -> str:
    from standfast.db import catalogue

    name = catalogue.guard(table, change)
    return f"CREATE TRIGGER {name} BEFORE {change} ON {table} BEGIN SELECT {GUARD}(); END"


def unprotected(connection: apsw.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> list[tuple[str, str]]:
    """Tables of ours, and the kinds of change on them that no guard trigger watches.

    Other tables are never guarded: Litestream writes into its own. The index of words is a virtual table and takes
    no trigger.
    """
    from standfast.db import catalogue

    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    triggers = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    return [
        (table, change)
        for table in catalogue.tables(migrations)
        for change in catalogue.CHANGES
        if table in there and catalogue.guard(table, change) not in triggers
    ]
