"""The way to the server: psycopg opens each connection, and a failure says what kind of absence it is.

psycopg tries each host in turn, each with its `connect_timeout`, and Ctrl-C is heard meanwhile.
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
    except psycopg.ProgrammingError as error:  # a setting in the URL that is no such value
        fault = Fault(str(error), sqlstate=REFUSED, final=True)
    except psycopg.Error as error:
        silent = isinstance(error, psycopg.errors.ConnectionTimeout)
        fault = _fault(address, str(error).strip() or type(error).__name__, silent=silent)
    raise fault  # not above: psycopg's error holds the password, and would be its context


def _ready(connection: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


def _fault(address: Address, words: str, *, silent: bool) -> Fault:
    """libpq tells no code for a connection that failed, and its words are in the server's language."""
    if silent:
        # No server answered. To ask once more would take as long again, and psycopg's ping lets no other thread run.
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
    return Fault(words, sqlstate=REFUSED, lost=True)  # it answers, and refuses us


def _ping(address: Address) -> int:
    return pq.PGconn.ping(psycopg.conninfo.make_conninfo(**address.params).encode())
