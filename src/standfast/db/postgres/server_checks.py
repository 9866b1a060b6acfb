"""The first round trip: which server this is, whether its commits are durable, and which store it has.

standfast refuses a server that would lose acknowledged writes. It also refuses a store whose owner is a role that the
caller neither belongs to nor names, because the owner's triggers run with the rights of every later caller. The same
round trip reads the schema's version without a lock, because agents open a store thousands of times and migrate it
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from standfast.db.postgres.faults import Fault
from standfast.db.postgres.values import rows_of
from standfast.errors import StorageError, UnsafeStorage

if TYPE_CHECKING:
    from standfast.db.contract import Row
    from standfast.db.postgres.address import Address
    from standfast.db.postgres.driver import PGresult
    from standfast.db.postgres.wire import Wire

OLDEST_SERVER = 130000
"""The journal's order needs 64-bit transaction numbers, which came with version 13."""
ANSWER_S = 30.0
NO_SUCH_TABLE = frozenset({"42P01", "3F000"})

SERVER = b"""
SELECT CAST(current_setting('server_version_num') AS bigint) AS version,
       current_setting('server_version') AS version_name,
       current_setting('fsync') AS fsync,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() AS standby,
       pg_backend_pid() AS pid,
       CAST(current_user AS text) AS role,
       (SELECT CAST(pg_get_userbyid(nspowner) AS text) FROM pg_namespace WHERE nspname = 'standfast') AS owner,
       (SELECT CAST(pg_get_userbyid(relowner) AS text) FROM pg_class
        WHERE oid = to_regclass('standfast.meta')) AS table_owner
"""
# Run only if the owner is neither the caller nor the role that the URL names. Superusers are ignored, because they
# could run code as any role without owning the store. Membership is read from the catalogue, because pg_has_role is
# true for every superuser, and a superuser needs this check most.
STRANGERS = b"""
WITH RECURSIVE mine (id) AS (
    SELECT oid FROM pg_roles WHERE rolname = current_user
    UNION SELECT belongs.roleid FROM pg_auth_members AS belongs JOIN mine ON belongs.member = mine.id
), owners (id) AS (
    SELECT nspowner FROM pg_namespace WHERE nspname = 'standfast'
    UNION SELECT relowner FROM pg_class WHERE relnamespace = to_regnamespace('standfast')
)
SELECT CAST(rolname AS text) AS name FROM owners JOIN pg_roles ON pg_roles.oid = owners.id
WHERE NOT rolsuper AND owners.id NOT IN (SELECT id FROM mine)
ORDER BY 1
"""
PRESENT = b"SELECT to_regclass('standfast.meta') IS NULL AS fresh"
META = b"SELECT key, value FROM standfast.meta"
HISTORY = b"SELECT version, checksum FROM standfast.migration"
LAST = b"""
SELECT seq, xid >= pg_snapshot_xmax(pg_current_snapshot()) AS ahead
FROM standfast.event
ORDER BY seq DESC
LIMIT 1
"""
CLUSTER = b"SELECT CAST(system_identifier AS text) AS id FROM pg_control_system()"


class Found(NamedTuple):
    """The answers of the first round trip."""

    version: int
    version_name: str
    standby: bool
    pooled: bool
    """True if the answer is from another server process than the one that accepted the connection. Then there is a
    pooler."""
    meta: dict[str, str]
    """Empty if there is no store yet."""
    history: dict[int, str]
    last_seq: int
    ahead: bool
    """Whether the last row of the journal has a transaction number that this cluster has not reached."""
    cluster: str
    """The system identifier of the cluster. Empty if this role may not read it."""

    @property
    def schema(self) -> int:
        return int(self.meta.get("schema_version", "0"))


def look(wire: Wire, address: Address, *, allow_unsafe: bool) -> Found:
    """One round trip, two if another role owns the store. Raises UnsafeStorage or StorageError for a server that
    cannot hold a store."""
    answers: dict[bytes, list[Row]] = {}
    for text in (SERVER, META, HISTORY, LAST, CLUSTER):  # an error ends the pipeline: CLUSTER may be refused
        wire.send(text, sink=_into(answers, text))
    fault = _collect(wire)
    if SERVER not in answers:
        assert fault is not None
        raise fault
    server = answers[SERVER][0]
    _judge(server, address, allow_unsafe=allow_unsafe)
    if not {server["owner"], server["table_owner"]} <= {None, server["role"], address.owner}:
        _refuse_strangers(wire, address)
    fresh = fault is not None and META not in answers and fault.sqlstate in NO_SUCH_TABLE
    if fault is not None and LAST not in answers and not fresh:
        raise fault
    last: Row = next(iter(answers.get(LAST, ())), {"seq": 0, "ahead": False})
    return Found(
        version=server["version"],
        version_name=server["version_name"],
        standby=server["standby"],
        pooled=server["pid"] != wire.backend_pid,
        meta={row["key"]: row["value"] for row in answers.get(META, ())},
        history={row["version"]: row["checksum"] for row in answers.get(HISTORY, ())},
        last_seq=last["seq"],
        ahead=last["ahead"],
        cluster=str(answers[CLUSTER][0]["id"]) if CLUSTER in answers else "",
    )


def ask(wire: Wire, text: bytes, answer_s: float = ANSWER_S) -> list[Row]:
    """The rows of one query, in one round trip outside a transaction."""
    answers: dict[bytes, list[Row]] = {}
    wire.send(text, sink=_into(answers, text))
    wire.collect(answer_s)
    return answers[text]


def is_fresh(wire: Wire) -> bool:
    """Whether there is no store in this database."""
    return bool(ask(wire, PRESENT)[0]["fresh"])


def meta(wire: Wire) -> dict[str, str]:
    """The store's rows in `meta`."""
    return {row["key"]: row["value"] for row in ask(wire, META)}


def _collect(wire: Wire) -> Fault | None:
    try:
        wire.collect(ANSWER_S)
    except Fault as fault:
        if fault.lost:
            raise
        return fault
    return None


def _into(answers: dict[bytes, list[Row]], text: bytes) -> Callable[[PGresult], None]:
    def take(answer: PGresult) -> None:
        answers[text] = rows_of(answer)

    return take


def _refuse_strangers(wire: Wire, address: Address) -> None:
    """Raise if a role that the caller neither belongs to nor names owns the store."""
    strangers = [row["name"] for row in ask(wire, STRANGERS) if row["name"] != address.owner]
    if strangers:
        raise StorageError(
            f"the store in {address.shown} belongs to role {', '.join(strangers)}, which your role is no member of: "
            "its triggers would run with your rights",
            f"if you trust that role, name it in the URL: ?owner={strangers[0]}; otherwise use another database",
            code="foreign_owner",
        )


def _judge(server: Row, address: Address, *, allow_unsafe: bool) -> None:
    if server["version"] < OLDEST_SERVER:
        raise StorageError(
            f"{address.shown} runs PostgreSQL {server['version_name']}; standfast needs 13 or newer",
            "upgrade the server, or use the default store: standfast db sqlite",
            code="server_too_old",
        )
    if allow_unsafe:
        return
    if server["fsync"] != "on":
        raise UnsafeStorage(
            f"{address.shown} runs with fsync = off: a power cut would lose acknowledged writes, or the database",
            "set fsync = on in postgresql.conf and reload; to accept the loss: STANDFAST_UNSAFE_STORAGE=1",
        )
    if server["encoding"] not in ("UTF8", "SQL_ASCII"):
        raise UnsafeStorage(
            f"{address.shown} stores text as {server['encoding']}, which cannot hold every character",
            "use a database made with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
