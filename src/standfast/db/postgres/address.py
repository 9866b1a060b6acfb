"""Where the server is: the URL, and what libpq is told beside it.

`?pooler=transaction` is ours: it says that a transaction pooler stands in between, and is taken
out before libpq sees the URL. Whatever a person wrote into the URL stands; what they left out
gets a bound, because a network may go silent.
"""

from __future__ import annotations

from collections.abc import Callable

from standfast.config.target import Target, mask
from standfast.db.postgres.driver import pq, psycopg
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
        self.shown = self._target.shown
        plain, self.pooler = _without_pooler(url, self.hide)
        given = self._given(plain)
        self.params: dict[str, str] = DEFAULTS | given
        if "," in given.get("host", ""):
            # One of several is the primary: ask each until it is found, also after a failover.
            self.params.setdefault("target_session_attrs", "read-write")

    def _given(self, plain: str) -> dict[str, str]:
        """What the URL says, as libpq reads it.

        The driver quotes what it could not read, and that may be the password. Our error is raised after the
        driver's was handled: it must not hang on ours as `__context__`, which error reports print.
        """
        try:
            options = pq.Conninfo.parse(plain.encode())
            return {option.keyword.decode(): option.val.decode() for option in options if option.val is not None}
        except psycopg.Error as error:
            refusal = InvalidInput(
                f"{self.shown} is not a PostgreSQL URL: {self.hide(str(error)).strip()}",
                "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
            )
        except UnicodeDecodeError:
            refusal = InvalidInput(f"{self.shown} holds percent codes that are no UTF-8")
        raise refusal

    @property
    def role(self) -> str:
        return self.params.get("user") or "CURRENT_ROLE"

    def hide(self, text: str) -> str:
        """Any text without this address's password."""
        try:
            return self._target.hide(text)
        except ValueError:  # the URL cannot even be taken apart; then its usual shapes are masked
            return mask(text)

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def _without_pooler(url: str, hide: Callable[[str], str]) -> tuple[str, bool]:
    plain, mark, query = url.partition("?")
    kept, pooler = [], False
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key != "pooler":
            kept.append(part)
        elif value in POOLERS:
            pooler = POOLERS[value]
        else:
            shown = f"pooler={hide(value)}"
            raise InvalidInput(f"{shown} is not a kind of pooler", "write pooler=transaction, or leave it out")
    rest = "&".join(part for part in kept if part)
    return plain + (mark + rest if rest else ""), pooler
