"""Read the backup settings of a PostgreSQL server in a read-only transaction."""

from __future__ import annotations

from typing import Any

from standfast.db.postgres.address import Address
from standfast.db.postgres.connect import connect
from standfast.db.postgres.driver import psycopg
from standfast.db.postgres.faults import spoken

_ASKED = b"""
SELECT current_setting('server_version') AS version,
       current_setting('fsync') AS fsync,
       current_setting('data_checksums') AS checksums,
       current_setting('archive_mode') AS archive_mode,
       pg_is_in_recovery() AS standby,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT archived_count FROM pg_stat_archiver) AS archived,
       (SELECT failed_count FROM pg_stat_archiver) AS failed,
       (SELECT CAST(extract(epoch FROM statement_timestamp() - last_archived_time) AS bigint) FROM pg_stat_archiver)
           AS archived_age_s,
       (SELECT last_failed_time > COALESCE(last_archived_time, '-infinity') FROM pg_stat_archiver) AS failing,
       pg_database_size(current_database()) AS size_bytes
"""


def ask(url: str) -> dict[str, Any]:
    """One row of facts."""
    address = Address(url)
    with spoken(address), connect(address) as connection:
        connection.read_only = True
        with connection.transaction(force_rollback=True):
            cursor = connection.cursor(row_factory=psycopg.rows.dict_row)
            found: dict[str, Any] | None = cursor.execute(_ASKED).fetchone()
            assert found is not None
            return found
