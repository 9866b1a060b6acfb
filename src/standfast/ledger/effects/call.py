"""What a declared function is told, and what it and its probe may answer."""

from __future__ import annotations

from typing import Any, NamedTuple

from standfast import serial


class Call(NamedTuple):
    """What a function learns about the call it serves."""

    key: str
    """For the remote's idempotency header: the same for every attempt, `sf_` and 32 hex digits."""
    attempt: int
    session: str | None
    """The key of the session."""
    intent: serial.Json = None
    result: Any = None
    """The recorded result, for an undo."""


class NotApplied(Exception):
    """Nothing was sent: raise it in `do`, or return it from a probe that looked and found nothing."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(why or "not applied")
        self.why = why


class Applied:
    """A probe's yes: it is there, and this is the result."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Applied({self.value!r})"


class Unknown:
    """A probe's shrug: it could not find out."""

    __slots__ = ("why",)

    def __init__(self, why: str | None = None) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"Unknown({self.why!r})" if self.why else "Unknown()"


class RepeatedEffect(UserWarning):
    """The same effect twice in one opening of a session: the second time it was answered from the record."""
