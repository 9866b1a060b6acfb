"""`standfast.NOT_SENT`: exceptions that prove that a request never left this machine.

    @standfast.effect("hook.post", by=("url",), not_applied=standfast.NOT_SENT, retry=5)

Each is raised before a connection is made: no address was found, the connection was refused, or connecting timed out.
An error after that proves nothing, so `ConnectionResetError` and read timeouts are not in the list. The classes of HTTP
clients are listed by name, so that no client has to be installed or imported.
"""

from __future__ import annotations

from socket import gaierror
from typing import Final

_NAMES = frozenset(
    (
        "aiohttp.client_exceptions.ClientConnectorError",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
        "requests.exceptions.ConnectTimeout",
        "urllib3.exceptions.ConnectTimeoutError",
        "urllib3.exceptions.NewConnectionError",
    )
)


class _ByName(type):
    def __instancecheck__(cls, error: object) -> bool:
        return any(f"{one.__module__}.{one.__qualname__}" in _NAMES for one in type(error).__mro__)


class NeverConnected(Exception, metaclass=_ByName):
    """The exceptions of HTTP clients that are raised before a connection is made."""


NOT_SENT: Final[tuple[type[Exception], ...]] = (ConnectionRefusedError, gaierror, NeverConnected)
"""`not_applied=standfast.NOT_SENT`: nothing was sent, so another attempt is safe. For functions of one request."""
