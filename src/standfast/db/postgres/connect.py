"""Connect to the server through psycopg, and distinguish an unreachable server from one that refuses the login.

psycopg tries each host in turn, each with its `connect_timeout`. Ctrl-C interrupts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast.db.postgres.driver import pq, psycopg
from standfast.db.postgres.faults import ABSENT, FULL_HOUSE, REFUSED, STARTING, Fault

if TYPE_CHECKING:
    from standfast.db.postgres.address import Address


def connect(address: Address) -> psycopg.Connection[Any]:
    """A new connection, without a transaction of its own. Raises Fault."""
    given: dict[str, Any] = {**address.params}
    try:
        return _ready(psycopg.connect(**given, autocommit=True, prepare_threshold=None))
    except psycopg.ProgrammingError as error:  # the URL has an invalid value for a setting
        fault = Fault(str(error), sqlstate=REFUSED, final=True)
    except psycopg.Error as error:
        silent = isinstance(error, psycopg.errors.ConnectionTimeout)
        fault = _fault(address, str(error).strip() or type(error).__name__, silent=silent)
    raise fault  # raised outside the `except` block: psycopg's error, which has the password, would be its context


def _ready(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


def _fault(address: Address, words: str, *, silent: bool) -> Fault:
    """The fault of a failed connection. libpq gives no SQLSTATE for it, and its message is in the server's
    language."""
    if silent:
        # No server answered. A second try would take as long again, and psycopg's ping holds the GIL.
        return Fault(words, sqlstate=ABSENT, lost=True)
    asked = _ping(address)
    if asked == pq.Ping.NO_RESPONSE:
        return Fault(words, sqlstate=ABSENT, lost=True)
    if asked == pq.Ping.REJECT:
        return Fault(words, sqlstate=STARTING, lost=True)
    if "too many" in words or "connection slots" in words:
        return Fault(words, sqlstate=FULL_HOUSE)
    if any(state in words for state in ("read-only", "standby", "recovery")):
        return Fault(words, sqlstate="25006", lost=True)
    return Fault(words, sqlstate=REFUSED, lost=True)  # the server answers and refuses the login


def _ping(address: Address) -> int:
    return pq.PGconn.ping(psycopg.conninfo.make_conninfo(**address.params).encode())
