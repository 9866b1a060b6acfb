"""Read one URL for a probe, or send one request for an effect, with a deadline."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from typing import Any, NamedTuple

from standfast.actions.action import CannotTell
from standfast.ledger.effects.call import NotApplied

BODY_MAX_BYTES = 4 << 20
AGENT = {"User-Agent": "standfast"}


class Reply(NamedTuple):
    """The answer of a server."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises CannotTell for any other body."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise CannotTell(f"the server answered {self.status} without JSON") from None


def checked(url: object) -> str:
    """Check that a value is an HTTP URL. Raises CannotTell if not."""
    if not isinstance(url, str) or not url.isascii() or any(c <= " " for c in url):
        raise CannotTell(f"{str(url)[:60]!r} is not a URL")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise CannotTell(f"{url[:60]!r} is not an HTTP address")
    return url


def read(url: str, *, within_s: float, headers: Mapping[str, str] | None = None, method: str = "GET") -> Reply:
    """GET or HEAD a URL. Any status is an answer. Raises CannotTell without an answer."""
    request = urllib.request.Request(checked(url), headers={**AGENT, **(headers or {})}, method=method)
    host = urllib.parse.urlsplit(url).hostname
    try:
        return _reply(request, within_s)
    except (OSError, HTTPException, ValueError) as error:
        raise CannotTell(f"{host} did not answer: {getattr(error, 'reason', error)}") from None


def send(method: str, url: str, body: bytes, *, within_s: float, headers: Mapping[str, str]) -> Reply:
    """Send a request of an effect. Raises NotApplied if no connection was made; other errors pass unchanged."""
    request = urllib.request.Request(checked(url), data=body, headers={**AGENT, **headers}, method=method)
    try:
        return _reply(request, within_s)
    except urllib.error.URLError as error:
        import socket

        if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
            raise NotApplied(f"no connection: {error.reason}") from None
        raise


def _reply(request: urllib.request.Request, within_s: float) -> Reply:
    try:
        with urllib.request.urlopen(request, timeout=max(within_s, 0.1)) as found:
            return Reply(found.status, _lower(found.headers.items()), found.read(BODY_MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return Reply(error.code, _lower(error.headers.items()), error.read(BODY_MAX_BYTES))


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
