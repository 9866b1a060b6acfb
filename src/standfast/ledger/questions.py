"""The question of an approval: one text that is hashed, stored, shown to the approver and never changed.

    {"action": …, "attempts": 1, "directory": "/srv/shop", "key": …, "request": {…}, "scope": …, "tool": …}

All parts except `request` say what will be done. The transaction that dispatches the effect builds them again from the
row that it is about to send. `request` says who asks, why and until when. It is copied from the stored text, because
another process with another reason may dispatch. The hash covers both, so the approver's screen shows this text alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from standfast import serial
from standfast.core.checks import whole
from standfast.db.contract import Row

ATTEMPTS_MAX = 10
PART_MAX = 500
"""The question shows at most this many characters of a session's key, a description or a decision."""

_ACTION = '{"action":'


class Parts(NamedTuple):
    """The parts of a stored question, by the names of `Question`."""

    tool: str
    scope: str
    effect_key: str
    directory: str | None
    attempts: int
    intent: str | None
    requester: str
    why: str | None
    gate: str | None
    session_key: str | None
    agent: str | None
    description: str | None
    decision: str | None
    requested_us: int
    expires_us: int


def checked_attempts(number: object, name: str = "attempts") -> int:
    """The number of dispatches that a question asks for. Raises InvalidInput unless it is from 1 to 10."""
    return whole(number, name, least=1, most=ATTEMPTS_MAX, hint=f"for example: {name}=3")


def attempts(effect: Row) -> int:
    return checked_attempts(_dict(serial.read(effect["context"])).get("attempts", 1))


def request(effect: Row, session: Row | None, **said: serial.Json) -> dict[str, serial.Json]:
    """The part `request` of the question. Names without a value are left out."""
    description = _dict(serial.read(effect["context"])).get("description")
    parts = {**said, "description": description if isinstance(description, str) else None}
    if session is not None:
        decision = ", because ".join(filter(None, (session["what"], session["why"])))
        parts |= {"session_key": session["key"], "agent": session["agent"], "decision": decision}
    parts |= {name: text[:PART_MAX] for name in _CUT if isinstance(text := parts.get(name), str)}
    return {name: value for name, value in parts.items() if value not in (None, "")}


_CUT = ("session_key", "agent", "description", "decision")


def text(effect: Row, request: serial.Json) -> str:
    """The question for `effect` (tool, scope, key, intent, context): canonical JSON."""
    directory = _dict(serial.read(effect["context"])).get("cwd")
    fields = {"attempts": attempts(effect), "key": effect["key"], "scope": effect["scope"], "tool": effect["tool"]}
    fields["request"] = request
    if directory is not None:
        fields["directory"] = directory
    # The intent is canonical text already. It is put first, because "action" sorts first.
    return f"{_ACTION}{effect['intent']},{serial.canonical(fields)[1:]}"


def asks_for(effect: Row, stored: str | None, hash: str | None) -> bool:
    """Whether the stored question with this hash asks for exactly what `effect` will do now."""
    return serial.hash_text(text(effect, _fields(stored).get("request"))) == hash


def parts(stored: str | None) -> Parts:
    """The parts of the stored text. A text that is not a question has no action and cannot be granted."""
    fields = _fields(stored)
    said = _dict(fields.get("request"))

    def words(name: str, of: dict[str, Any] = said) -> str | None:
        value = of.get(name)
        return None if value is None else str(value)

    return Parts(
        tool=words("tool", fields) or "",
        scope=words("scope", fields) or "",
        effect_key=words("key", fields) or "",
        directory=words("directory", fields),
        attempts=_number(fields.get("attempts")),
        intent=fields.get("action"),
        requester=words("requester") or "",
        requested_us=_number(said.get("requested_us")),
        expires_us=_number(said.get("expires_us")),
        **{name: words(name) for name in ("why", "gate", *_CUT)},
    )


def _fields(stored: str | None) -> dict[str, Any]:
    """The fields of a stored question. The action stays text, as it is stored."""
    if stored is None or not stored.startswith(_ACTION):
        return {}
    from json import JSONDecoder

    try:
        _, end = JSONDecoder().raw_decode(stored, len(_ACTION))
        rest = serial.read("{" + stored[end:].removeprefix(","))
    except (ValueError, RecursionError):
        return {}
    return {**rest, "action": stored[len(_ACTION) : end]} if isinstance(rest, dict) else {}


def _dict(value: serial.Json) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
