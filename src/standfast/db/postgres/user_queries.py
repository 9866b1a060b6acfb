"""A person's own queries, and the facts about a server that `doctor` and `status` show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from standfast.db.contract import Row
from standfast.db.postgres.connect import connect
from standfast.db.postgres.driver import pq, psycopg
from standfast.db.postgres.faults import READ_ONLY, Fault, translated
from standfast.db.postgres.server_checks import ask
from standfast.db.postgres.values import bind, number, persons_query
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.db.postgres.address import Address
    from standfast.db.postgres.wire import Wire

ROWS_MAX_S = 60
"""How long a person's query may pin its snapshot. Meanwhile the server cannot reuse the space of dead rows."""
ANSWER_S = 10.0
_LOCAL = (
    "SELECT set_config('search_path', 'standfast, pg_temp', true),"
    f" set_config('statement_timeout', '{ROWS_MAX_S}s', true),"
    f" set_config('idle_in_transaction_session_timeout', '{ROWS_MAX_S}s', true)"
)
_PERSONS_MISTAKES = ("42", "22", "0A", "25", "2F", "21", "54")
_FACTS = b"""
SELECT current_setting('server_version') AS server_version,
       current_database() AS database,
       current_user AS role,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       pg_is_in_recovery() AS standby,
       pg_database_size(current_database()) AS size_bytes,
       (SELECT COALESCE(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'standfast') AS dead_rows,
       (SELECT COALESCE(sum(n_live_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'standfast') AS live_rows,
       (SELECT COALESCE(max(age(backend_xmin)), 0) FROM pg_stat_activity) AS oldest_xmin_age,
       (SELECT COALESCE(max(age(xmin)), 0) FROM pg_replication_slots) AS oldest_slot_age,
       (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections
"""
_OLDEST = b"""
SELECT pid, application_name, state,
       CAST(extract(epoch FROM statement_timestamp() - xact_start) AS double precision) AS open_s
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
  AND backend_type = 'client backend'
ORDER BY xact_start
LIMIT 1
"""
# The journal is read up to the oldest transaction number that is still in use. The whole cluster shares these numbers.
# pg_locks shows the owner of a number to every role; only members of pg_read_all_stats see times.
_HELD_BACK = b"""
WITH oldest AS (SELECT CAST(pg_snapshot_xmin(pg_current_snapshot()) AS xid) AS xid)
SELECT locks.pid AS pid, CAST(NULL AS text) AS gid, CAST(activity.datname AS text) AS database,
       CAST(activity.usename AS text) AS role, activity.application_name AS application,
       CAST(extract(epoch FROM clock_timestamp() - activity.xact_start) AS double precision) AS open_s
FROM oldest
JOIN pg_locks AS locks ON locks.transactionid = oldest.xid
JOIN pg_stat_activity AS activity ON activity.pid = locks.pid
WHERE locks.locktype = 'transactionid' AND locks.mode = 'ExclusiveLock' AND locks.granted
  AND locks.pid <> pg_backend_pid()
UNION ALL
SELECT NULL, prepared.gid, CAST(prepared.database AS text), CAST(prepared.owner AS text), '',
       CAST(extract(epoch FROM clock_timestamp() - prepared.prepared) AS double precision)
FROM oldest JOIN pg_prepared_xacts AS prepared ON prepared.transaction = oldest.xid
"""
HELD_BACK_S = 10.0
"""How long a transaction must be open to be named."""


def held_back(wire: Wire) -> str:
    """A transaction that has delayed readers of the journal for longer than HELD_BACK_S, as a sentence. Empty if none
    does."""
    for row in ask(wire, _HELD_BACK, ANSWER_S):
        if row["open_s"] is not None and row["open_s"] < HELD_BACK_S:
            continue
        since = "an unknown time" if row["open_s"] is None else f"{row['open_s']:.0f} s"
        whose = f"of {row['role']} in database {row['database']}"
        if row["gid"] is not None:
            who, end = f"the prepared transaction {row['gid']!r} {whose}", f"ROLLBACK PREPARED '{row['gid']}'"
        else:
            name = f" ({row['application']})" if row["application"] else ""
            who, end = f"server process {row['pid']} {whose}{name}", f"SELECT pg_terminate_backend({row['pid']})"
        return (
            f"{who} has kept a transaction open for {since}: readers of the journal see no newer events until it "
            f"ends; if it hangs, end it: {end}"
        )
    return ""


def rows(address: Address, text: str, params: dict[str, object] | None) -> Iterator[Row]:
    """Stream the rows of a person's query, in a transaction that cannot write."""

    class Number(psycopg.adapt.Loader):
        def load(self, data: Any) -> int | float:
            return number(bytes(data))

    try:
        connection = connect(address)
    except Fault as fault:
        raise translated(fault, address) from None
    # Close it, do not reuse it: a reader that stops early leaves unread rows on the connection.
    with connection:
        connection.adapters.register_loader("numeric", Number)
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        query = persons_query(text, params or {})
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(_LOCAL.encode())
                bind(query, params or {})
                given = [(params or {})[name] for name in query.names]
                cursor = psycopg.RawCursor(connection, row_factory=psycopg.rows.dict_row)
                yield from cursor.stream(query.text, given)
        except psycopg.Error as error:
            raise _refused(error, address, lost=connection.broken) from None


def _refused(error: psycopg.Error, address: Address, *, lost: bool) -> Exception:
    state = error.sqlstate or ""
    if state in READ_ONLY:
        return InvalidInput("this statement does more than read", "only SELECT is run here")
    if not lost and (not state or state.startswith(_PERSONS_MISTAKES)):
        words = address.hide(str(error)).strip()
        return InvalidInput(
            f"the query is refused: {words}",
            "tables: standfast sql \"SELECT tablename FROM pg_tables WHERE schemaname = 'standfast'\"",
        )
    return translated(Fault(str(error), sqlstate=state, lost=lost), address)


def facts(wire: Wire) -> Row:
    """Facts about the server and our schema, in one round trip."""
    return ask(wire, _FACTS, ANSWER_S)[0]


def in_the_way(wire: Wire) -> str:
    """The oldest open transaction except ours, as a sentence. Empty if there is none."""
    found = ask(wire, _OLDEST, ANSWER_S)
    if not found:
        return ""
    row = found[0]
    name = row["application_name"] or "a client"
    return (
        f"the oldest open transaction there: {name}, server process {row['pid']}, {row['state']}, "
        f"{row['open_s']:.0f} s; if it hangs, end it: SELECT pg_terminate_backend({row['pid']})"
    )


def driver_version() -> str:
    return f"psycopg {psycopg.__version__} ({pq.__impl__}), libpq {pq.version()}"
