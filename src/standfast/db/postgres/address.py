"""Where the server is: the URL, what libpq is told beside it, and the way there.

`?pooler=transaction` is ours: it says that a transaction pooler stands in between, and is taken
out before libpq sees the URL. Whatever a person wrote into the URL stands; what they left out
gets a bound, because a network may go silent.
"""

from __future__ import annotations

from typing import Any

from standfast.config.target import Target, mask
from standfast.db.postgres.driver import pq, psycopg
from standfast.db.postgres.faults import ABSENT, FULL_HOUSE, REFUSED, STARTING, Fault
from standfast.errors import InvalidInput

POOLERS = {"transaction": True, "session": False, "none": False, "": False}
DEFAULTS: dict[str, str] = {
    "application_name": "standfast",
    "connect_timeout": "10",
    "client_encoding": "UTF8",
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


class Address:
    """One server, one database, one role. Prints itself without its password."""

    __slots__ = ("_target", "params", "pooler", "shown", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self._target = Target("postgres", url)
        plain, self.pooler = _without_pooler(url)
        self.shown = self._target.shown
        try:
            given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(plain)
        except psycopg.ProgrammingError as error:
            # The driver quotes what it could not read, and that may be the password.
            raise InvalidInput(
                f"{self.shown} is not a PostgreSQL URL: {self.hide(str(error)).strip()}",
                "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
            ) from None
        self.params: dict[str, Any] = DEFAULTS | given
        if "," in str(given.get("host", "")):
            # One of several is the primary: ask each until it is found, also after a failover.
            self.params.setdefault("target_session_attrs", "read-write")

    @property
    def role(self) -> str:
        return str(self.params.get("user") or "CURRENT_ROLE")

    def hide(self, text: str) -> str:
        """Any text without this address's password."""
        try:
            return self._target.hide(text)
        except ValueError:  # the URL cannot even be taken apart; then its usual shapes are masked
            return mask(text)

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def connect(address: Address) -> psycopg.Connection[Any]:
    """A new connection, without a transaction of its own. Raises Fault, saying what kind of absence it is."""
    try:
        connection = psycopg.connect(**address.params, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise _fault(address, error) from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    connection.read_only = False
    return connection


def _fault(address: Address, error: psycopg.Error) -> Fault:
    """libpq tells no code for a connection that failed, and its words are in the server's language."""
    words = str(error).strip() or type(error).__name__
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        # Nobody answered. To ask once more would take as long again, and libpq's ping lets no other thread run.
        return Fault(words, sqlstate=ABSENT, lost=True)
    asked = pq.PGconn.ping(psycopg.conninfo.make_conninfo(**address.params).encode())
    if asked == pq.Ping.NO_RESPONSE:
        return Fault(words, sqlstate=ABSENT, lost=True)
    if asked == pq.Ping.REJECT:
        return Fault(words, sqlstate=STARTING, lost=True)
    if "too many" in words or "connection slots" in words:
        return Fault(words, sqlstate=FULL_HOUSE)
    if any(state in words for state in ("read-only", "standby", "recovery")):
        return Fault(words, sqlstate="25006", lost=True)
    return Fault(words, sqlstate=REFUSED, lost=True)  # it answers, and refuses us


def _without_pooler(url: str) -> tuple[str, bool]:
    plain, mark, query = url.partition("?")
    kept, pooler = [], False
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key != "pooler":
            kept.append(part)
        elif value in POOLERS:
            pooler = POOLERS[value]
        else:
            raise InvalidInput(f"pooler={value} is not a kind of pooler", "write pooler=transaction, or leave it out")
    rest = "&".join(part for part in kept if part)
    return plain + (mark + rest if rest else ""), pooler
