"""`Call`, which an effect's function may receive, and the answers that a function or a probe gives."""

from __future__ import annotations

from typing import Any

from standfast import serial


class Call:
    """The call that an effect's function, probe or compensation serves.

    It is not a NamedTuple: type checkers would accept one as any first parameter.
    """

    __slots__ = ("attempt", "intent", "key", "result", "session")

    def __init__(
        self, key: str, attempt: int, session: str | None, intent: serial.Json = None, result: Any = None
    ) -> None:
        self.key = key
        """The idempotency key for the remote service, the same for every attempt: `sf_` and 32 hex digits."""
        self.attempt = attempt
        self.session = session
        """The key of the session."""
        self.intent = intent
        self.result = result
        """The recorded result, for a compensation."""

    def _replace(self, **changed: Any) -> Call:
        return Call(**{name: changed.get(name, getattr(self, name)) for name in Call.__slots__})

    def __repr__(self) -> str:
        return f"Call(key={self.key!r}, attempt={self.attempt}, session={self.session!r})"


class LostCall(Call):
    """The call of a probe if the store lost the session that sent the effect. The effect was sent under another key.

    Reading `key` raises LookupError, so a probe that needs the key counts as Unknown.
    """

    __slots__ = ()

    def __init__(self, call: Call) -> None:
        super().__init__("", call.attempt, call.session, call.intent, call.result)

    @property
    def key(self) -> str:
        raise LookupError("the store lost the session that sent this effect, and its call.key; search by the intent")

    @key.setter
    def key(self, value: str) -> None:
        """The key is unknown: ignore what the base class sets."""

    def _replace(self, **changed: Any) -> Call:
        return LostCall(Call("", self.attempt, self.session, self.intent, self.result)._replace(**changed))


class NotApplied(Exception):
    """Nothing was sent. Raise it in `do`, or return it from a probe that found nothing."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(why or "not applied")
        self.why = why


class Applied:
    """A probe found the effect, with this result."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Applied({self.value!r})"


class Unknown:
    """A probe could not find out."""

    __slots__ = ("why",)

    def __init__(self, why: str | None = None) -> None:
        self.why = why

    def __repr__(self) -> str:
        return f"Unknown({self.why!r})" if self.why else "Unknown()"


class RepeatedEffect(UserWarning):
    """A session called the same effect twice in one opening. The second call returned the stored result."""
