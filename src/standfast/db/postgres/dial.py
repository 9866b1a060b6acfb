"""The way to the server: each of its addresses in turn, each with an end, and what kind of absence it was.

libpq connects without blocking and leaves the waiting to us, so that a silent address costs its
`connect_timeout` and no more, and Ctrl-C is heard. Several hosts are several attempts. A name is resolved
by libpq itself; only where the address it took stays silent, the name's other addresses are asked for.

`connect` is the same way with psycopg at its end: for migrations, for those who listen, for people.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING, Any

from standfast import modules
from standfast.db.postgres.binding import CONNECTION_BAD, Binding, Ping, Polling, binding
from standfast.db.postgres.faults import ABSENT, FULL_HOUSE, REFUSED, STARTING, Fault

if TYPE_CHECKING:
    from standfast.db.postgres.address import Address
    from standfast.db.postgres.driver import psycopg
    from standfast.db.postgres.libpq import PGconn

UNBOUNDED_S = 130.0
"""What `connect_timeout=0` means here: an end there must be, and this is about TCP's own."""
SHORTEST_S = 2.0
"""libpq's own rule: less is taken for this."""
_ENVIRONMENT = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "load_balance_hosts": "PGLOADBALANCEHOSTS",
}

Params = dict[str, str]


class _Failed(Exception):
    """One attempt. `silent` is the address that did not answer in time, if that was it."""

    def __init__(self, words: str, silent: str | None = None) -> None:
        super().__init__(words)
        self.silent = silent
        self.attempt: Params = {}

    @property
    def told(self) -> str:
        host, port, hostaddr = (self.attempt.get(key) for key in ("host", "port", "hostaddr"))
        return f"- host: {host!r}, port: {port!r}, hostaddr: {hostaddr!r}: {self}"


def dial(address: Address) -> PGconn:
    """A new connection that never blocks. Raises Fault, saying what kind of absence it is."""
    way, timeout_s = binding(), _timeout_s(address.params)
    failures: list[_Failed] = []
    attempts = _attempts(address.params)
    while attempts:
        attempt = attempts.pop(0)
        try:
            return _connected(way, attempt, timeout_s)
        except _Failed as error:
            error.attempt = attempt
            failures.append(error)
            if error.silent is not None:
                attempts[:0] = _other_addresses(attempt, error.silent)
    raise _fault(address, _words(failures), silent=failures[-1].silent is not None)


def connect(address: Address) -> psycopg.Connection[Any]:
    """The same through psycopg, without a transaction of its own. Raises Fault."""
    modules.load("standfast.db.postgres.driver")
    from standfast.db.postgres.driver import psycopg

    told: dict[str, Any] = {**address.params}
    try:
        connection = psycopg.connect(**told, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        silent = isinstance(error, psycopg.errors.ConnectionTimeout)
        raise _fault(address, str(error).strip() or type(error).__name__, silent=silent) from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


# -- one attempt --------------------------------------------------------------------------------------


def _connected(way: Binding, params: Params, timeout_s: float) -> PGconn:
    connection = way.PGconn.connect_start(conninfo(params))
    try:
        _complete(connection, time.monotonic() + timeout_s)
        connection.nonblocking = 1
    except way.Error as error:
        connection.finish()
        raise _Failed(f"connection failed: {error}") from None
    except BaseException:
        connection.finish()
        raise
    return connection


def _complete(connection: PGconn, end: float) -> None:
    if connection.status == CONNECTION_BAD:
        raise _Failed(f"connection is bad: {_said(connection)}")
    while (state := connection.connect_poll()) != Polling.OK:
        if state == Polling.FAILED:
            raise _Failed(f"connection failed: {_said(connection)}")
        poll = select.poll()  # the socket is another one after each address that refused
        poll.register(connection.socket, select.POLLIN if state == Polling.READING else select.POLLOUT)
        left_s = end - time.monotonic()
        if left_s <= 0 or not poll.poll(left_s * 1000):
            raise _Failed("connection timeout expired", silent=connection.hostaddr.decode())


def _said(connection: PGconn) -> str:
    return connection.error_message.decode("utf-8", "replace").strip() or "no error details available"


def conninfo(params: Params) -> bytes:
    quoted = {key: value.replace("\\", "\\\\").replace("'", "\\'") for key, value in params.items()}
    return " ".join(f"{key}='{value}'" for key, value in quoted.items()).encode()


# -- which attempts -----------------------------------------------------------------------------------


def _attempts(params: Params) -> list[Params]:
    """One for each host. libpq could try them all in one, but then the first silent one would take all the time."""
    hosts, addresses, ports = (_list(params, key) for key in ("host", "hostaddr", "port"))
    count = max(len(hosts), len(addresses))
    matched = {len(hosts), len(addresses)} <= {0, count} and len(ports) in (0, 1, count)
    if count <= 1 or not matched:
        return [params]  # and libpq says what does not match
    lists = {"host": hosts, "hostaddr": addresses, "port": ports * count if len(ports) == 1 else ports}
    attempts = [{**params, **{key: given[n] for key, given in lists.items() if given}} for n in range(count)]
    if _setting(params, "load_balance_hosts") == "random":
        import random

        random.shuffle(attempts)
    if _setting(params, "target_session_attrs") == "prefer-standby":
        first = [{**attempt, "target_session_attrs": "standby"} for attempt in attempts]
        return first + [{**attempt, "target_session_attrs": "any"} for attempt in attempts]
    return attempts


def _other_addresses(params: Params, silent: str) -> list[Params]:
    """After an address that did not answer: those that its name has beside it."""
    host = _setting(params, "host")
    if not silent or not host or host.startswith("/") or _setting(params, "hostaddr"):
        return []
    import socket

    try:
        found = socket.getaddrinfo(host, _setting(params, "port") or 5432, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = [str(place[4][0]) for place in found]
    later = addresses[addresses.index(silent) + 1 :] if silent in addresses else []
    return [{**params, "hostaddr": other} for other in later]


def _list(params: Params, key: str) -> list[str]:
    given = _setting(params, key)
    return given.split(",") if given else []


def _setting(params: Params, key: str) -> str:
    return params.get(key) or os.environ.get(_ENVIRONMENT[key], "")


def _timeout_s(params: Params) -> float:
    given = params.get("connect_timeout", "0")
    try:
        timeout_s = float(given)
    except ValueError:
        raise Fault(f"bad value for connect_timeout: {given!r}", sqlstate=REFUSED, final=True) from None
    return max(timeout_s, SHORTEST_S) if timeout_s > 0 else UNBOUNDED_S


# -- what kind of absence -----------------------------------------------------------------------------


def _words(failures: list[_Failed]) -> str:
    last = str(failures[-1])
    if len(failures) == 1:
        return last
    told = [failure.told for failure in failures]
    return "\n".join([last, "Multiple connection attempts failed. All failures were:", *told])


def _fault(address: Address, words: str, *, silent: bool) -> Fault:
    """libpq tells no code for a connection that failed, and its words are in the server's language."""
    if silent:
        # Nobody answered. To ask once more would take as long again, and psycopg's ping lets no other thread run.
        return Fault(words, sqlstate=ABSENT, lost=True)
    asked = binding().PGconn.ping(conninfo(address.params))
    if asked == Ping.NO_RESPONSE:
        return Fault(words, sqlstate=ABSENT, lost=True)
    if asked == Ping.REJECT:
        return Fault(words, sqlstate=STARTING, lost=True)
    if "too many" in words or "connection slots" in words:
        return Fault(words, sqlstate=FULL_HOUSE)
    if any(state in words for state in ("read-only", "standby", "recovery")):
        return Fault(words, sqlstate="25006", lost=True)
    return Fault(words, sqlstate=REFUSED, lost=True)  # it answers, and refuses us
