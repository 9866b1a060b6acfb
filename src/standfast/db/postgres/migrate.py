"""Upgrade the schema to this version, while other processes open the store too.

The caller read the version without a lock. This module reads it again under one. All pending steps are applied in one
transaction, so a killed process leaves the old schema or the new one. The lock belongs to the transaction, because a
pooler would lose a lock of the session. If two clients create one catalogue row in spite of the lock, the one that
fails tries again.

`settle` is for a journal that came from another cluster by restore or move. The transaction numbers of its rows mean
nothing on this cluster, so `settled_seq` marks where they end.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from standfast import crash, log
from standfast.db.contract import DEADLINE_S
from standfast.db.migrations import MIGRATIONS, ddl, refuse
from standfast.db.migrations.migration import Migration
from standfast.db.postgres.server_checks import LAST, Found
from standfast.errors import Corrupt, schema_damaged
from standfast.ids import new_id

if TYPE_CHECKING:
    from standfast.db.postgres.driver import psycopg

LOCK_KEY = 0x53544644
_WAITED = frozenset({"40001", "40P01", "55P03"})
_EXISTS = frozenset({"23505", "42P06", "42P07", "42710", "XX000"})
"""SQLSTATEs of a race: another process created the object first. XX000 is "tuple concurrently updated"."""
_EXISTS_RERUNS_MAX = 5
_LOCAL = (
    "SELECT set_config('search_path', 'standfast, pg_temp', true), set_config('synchronous_commit', 'on', true),"
    " set_config('lock_timeout', '5000', true), set_config('statement_timeout', '300000', true),"
    " set_config('idle_in_transaction_session_timeout', '30000', true)"
)
_PUT_META = "INSERT INTO meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_NOW_US = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"


def migrate(connection: psycopg.Connection[Any], migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply pending migrations, or find that another process just did."""
    import random

    from standfast.db.postgres.driver import psycopg

    end = time.monotonic() + DEADLINE_S
    for attempt in itertools.count(1):
        try:
            with connection.transaction():
                found = migrate_locked(connection, migrations)
            if found < migrations[-1].version:
                log.info("migrated from schema %d to %d", found, migrations[-1].version)
            return
        except psycopg.Error as error:
            race = error.sqlstate in _WAITED or (error.sqlstate in _EXISTS and attempt <= _EXISTS_RERUNS_MAX)
            if not race or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.005, 0.1))


def migrate_locked(connection: psycopg.Connection[Any], migrations: Sequence[Migration]) -> int:
    """Returns the schema that was found."""
    connection.execute(_LOCAL)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    found = version(connection)
    if found:
        _as_owner(connection)
        refuse(found, dict(connection.execute("SELECT version, checksum FROM migration").fetchall()), migrations)
    else:
        _make_room(connection)
    for migration in migrations:
        if migration.version > found:
            crash.point("migrate.before_step")
            _apply(connection, migration)
            crash.point("migrate.after_step")
    return found


def version(connection: psycopg.Connection[Any]) -> int:
    """The schema of the store; 0 if there is none."""
    if _one(connection, "SELECT to_regclass('standfast.meta') IS NULL"):
        return 0
    return int(_one(connection, "SELECT value FROM standfast.meta WHERE key = 'schema_version'") or 0)


def _as_owner(connection: psycopg.Connection[Any]) -> None:
    """Migrate as the owner's role, so that new tables belong to it even if a member of the role migrates."""
    owner = "SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE nspname = 'standfast'"
    owner += " AND nspowner <> to_regrole(quote_ident(current_user)) AND pg_has_role(nspowner, 'MEMBER')"
    found = _one(connection, owner)
    if found is not None:
        connection.execute(f"SET LOCAL ROLE {found}".encode())


def _make_room(connection: psycopg.Connection[Any]) -> None:
    """Create the schema. An empty schema that an administrator created is used as it is."""
    if _one(connection, "SELECT to_regnamespace('standfast') IS NULL"):
        connection.execute("CREATE SCHEMA standfast")
    elif _one(connection, "SELECT to_regclass('standfast.event') IS NOT NULL"):
        raise schema_damaged("table meta is missing")
    elif _one(connection, "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('standfast')"):
        raise Corrupt(
            "the schema standfast of this database belongs to another program",
            "use another database: standfast db pg URL",
            code="not_a_store",
        )


def _apply(connection: psycopg.Connection[Any], migration: Migration) -> None:
    connection.execute(ddl(migration, "postgres").encode())
    if migration.version == 1:
        meta = {"store_id": new_id("sto"), "epoch": "1", "settled_seq": "", "cluster": cluster(connection)}
        for key, value in meta.items():
            connection.execute(_PUT_META, (key, value))
    connection.execute(
        f"INSERT INTO migration (version, name, checksum, applied_us) VALUES (%s, %s, %s, {_NOW_US})",
        (migration.version, migration.name, migration.checksum),
    )
    fence = int(_one(connection, "SELECT value FROM meta WHERE key = 'min_writer'") or 0)
    connection.execute(_PUT_META, ("min_writer", str(max(fence, migration.min_writer))))
    connection.execute(_PUT_META, ("schema_version", str(migration.version)))


def cluster(connection: psycopg.Connection[Any]) -> str:
    """The cluster's system identifier. Empty if this role may not read it."""
    from standfast.db.postgres.driver import psycopg

    try:
        with connection.transaction():  # a savepoint: a refusal must not end the migration
            return str(_one(connection, "SELECT system_identifier FROM pg_control_system()"))
    except psycopg.errors.InsufficientPrivilege:
        return ""


def moved(found: Found) -> bool:
    """Whether the journal was written on another cluster: by the clusters' names, or because its last
    row has a transaction number that this cluster has not reached."""
    known = bool(found.cluster) and bool(found.meta.get("cluster"))
    foreign = known and found.meta["cluster"] != found.cluster
    return foreign or (found.ahead and found.last_seq > last_bound(found.meta.get("settled_seq", "")))


def last_bound(bounds: str) -> int:
    return int(bounds.rpartition(",")[2] or 0)


def settle(connection: psycopg.Connection[Any], cluster: str) -> None:
    """Set `settled_seq` to the last row of another cluster.

    This happens once, also if many processes open the store.
    """
    with connection.transaction():
        connection.execute(_LOCAL)
        there = connection.execute("SELECT value FROM meta WHERE key = 'cluster' FOR UPDATE").fetchone()
        foreign = there is not None and bool(there[0]) and bool(cluster) and there[0] != cluster
        bounds = str(_one(connection, "SELECT value FROM meta WHERE key = 'settled_seq'") or "")
        last = connection.execute(LAST).fetchone()
        if last is not None and last[0] > last_bound(bounds) and (foreign or last[1]):
            connection.execute(_PUT_META, ("settled_seq", f"{bounds},{last[0]}".lstrip(",")))
        if foreign:
            connection.execute(_PUT_META, ("cluster", cluster))


def _one(connection: psycopg.Connection[Any], text: str) -> Any:
    row = connection.execute(text.encode()).fetchone()
    return row[0] if row else None
