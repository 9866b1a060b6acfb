"""Where the server is: the URL, and the other parameters for libpq.

Two parameters belong to standfast and are removed before libpq sees the URL. `?pooler=transaction` says that a
transaction pooler is between us and the server. `?owner=ROLE` says that the caller trusts the role that owns the store.
A setting in the URL overrides our default. Timeouts have defaults, because a network may stop answering.
"""

from __future__ import annotations

from standfast.config.target import Target, mask
from standfast.db.postgres.driver import pq, psycopg
from standfast.db.store_memory import decoded
from standfast.errors import InvalidInput

POOLERS = {"transaction": True, "session": False, "none": False, "": False}
OURS = ("pooler", "owner")
OWNER = "standfast_owner"
"""This role is trusted without `?owner=`, because only an administrator can create it (`standfast db roles`)."""
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

    __slots__ = ("_target", "owner", "params", "pooler", "shown", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self._target = Target("postgres", url)
        self.shown = self._target.shown
        plain, ours = _without_ours(url)
        self.pooler = self._is_pooler(ours.get("pooler", ""))
        self.owner = ours.get("owner", OWNER)
        """The role that may own the store even if the caller's role is not a member of it."""
        given = self._given(plain)
        self.params: dict[str, str] = DEFAULTS | given
        if "," in given.get("host", ""):
            # With several hosts, connect to the primary, also after a failover.
            self.params.setdefault("target_session_attrs", "read-write")

    def _given(self, plain: str) -> dict[str, str]:
        """The parts of the URL, as libpq parses them.

        The driver's error quotes the part that it could not read, which may be the password. So our error is raised
        outside the `except` block. Otherwise the driver's error would be its `__context__`, which error reports print.
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
            refusal = InvalidInput(f"{self.shown} has percent codes that are not UTF-8")
        raise refusal

    def _is_pooler(self, value: str) -> bool:
        if value in POOLERS:
            return POOLERS[value]
        shown = f"pooler={self.hide(value)}"
        raise InvalidInput(f"{shown} is not a kind of pooler", "write pooler=transaction, or leave it out")

    @property
    def role(self) -> str:
        return self.params.get("user") or "CURRENT_ROLE"

    def hide(self, text: str) -> str:
        """Any text without this address's password."""
        try:
            return self._target.hide(text)
        except ValueError:  # the URL cannot be parsed: mask the usual forms of a password
            return mask(text)

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def _without_ours(url: str) -> tuple[str, dict[str, str]]:
    """The URL as libpq takes it, and the parameters that only standfast knows."""
    plain, mark, query = url.partition("?")
    kept, ours = [], {}
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key in OURS:
            ours[key] = decoded(value)
        elif part:
            kept.append(part)
    return plain + (mark + "&".join(kept) if kept else ""), ours
