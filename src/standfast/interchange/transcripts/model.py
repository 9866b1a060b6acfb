"""The records of all agents in one shape: conversations, messages, tool calls, usage and compactions.

A reader puts the records of one piece of a source into a `Batch`. The batch makes texts fit for both engines, hashes
and summarises them, outside any transaction. Each record keeps the id that its agent gave it (`native`), so a copy of
the record in another file adds nothing.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from standfast import serial
from standfast.interchange.hooks import payloads

TEXT_MAX = 2_000_000
"""Characters of one message, input or output that are stored; the raw record has all of it."""
ID_MAX = 200
SUMMARY_MAX = 200
LISTED_MAX = 50
"""Distinct versions, sessions and sub-agents that are listed per file. Further ones are only counted."""

# A decoded record has no cycles.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Thread(NamedTuple):
    """One conversation of an agent. `node` is the name of its sub-agent, None for the session's own conversation."""

    session: str
    node: str | None = None

    @property
    def native(self) -> str:
        return self.session if self.node is None else f"{self.session}/{self.node}"


class Spot(NamedTuple):
    """A record in a conversation: its id, its time and its offset in the source."""

    thread: Thread
    native: str
    at_us: int
    offset: int


class Said(NamedTuple):
    """One message, as it will be written."""

    thread: Thread
    native: str
    role: str
    format: str
    content: str
    hash: str
    summary: str | None
    occurred_us: int
    offset: int


class Used(NamedTuple):
    """The tokens and cost of one response, as the agent counts them."""

    thread: Thread
    response: str
    model: str | None
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost_microusd: int | None
    occurred_us: int
    last_wins: bool = False
    """True for a running total, where the newest record counts. Otherwise the largest value of each field counts."""


TOKENS = ("input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")


class Folded(NamedTuple):
    """A compaction at `native`: its summary replaces all earlier messages. The summary may be in the next record."""

    thread: Thread
    native: str
    summary: str | None
    facts: dict[str, Any] | None


class Batch:
    """Some records of one source, as they will be written."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.facts: dict[Thread, dict[str, Any]] = {}
        self.said: list[Said] = []
        self.calls: list[dict[str, Any]] = []
        self.used: dict[str, Used] = {}
        self.folded: list[Folded] = []
        self.titles: list[tuple[str | None, Thread | None, str]] = []
        self.retracted: list[tuple[Thread, str | None, int]] = []
        self.decisions: list[tuple[Thread, str, str | None, str | None]] = []
        self.values: list[tuple[Thread, str, str]] = []
        """Values of the session: key and JSON, without the command that verifies a value."""
        self.dropped: list[str] = []
        """Responses whose stored usage must be deleted, because other records count the same tokens."""
        self.first_us: int | None = None
        self.last_us: int | None = None

    def know(self, thread: Thread, **facts: Any) -> None:
        """Add facts about a conversation: cwd, title, started_us, forked_from, version. The first value counts."""
        known = self.facts.setdefault(thread, {})
        for name, value in facts.items():
            if value is not None:
                known.setdefault(name, value)

    def at(self, us: int) -> None:
        """Extend the time span of the batch."""
        self.first_us = us if self.first_us is None else min(self.first_us, us)
        self.last_us = us if self.last_us is None else max(self.last_us, us)

    def say(self, spot: Spot, role: str, content: str, *, shown: bool = True) -> None:
        """Add a message of text. The timeline shows it only if it is `shown`."""
        content, hash = _hashed(role, content)
        summary = f"{role}: {one_line(content, SUMMARY_MAX - len(role) - 2)}" if shown else None
        self._said(spot, role, "text", content, hash, summary)

    def refer(self, spot: Spot, value: dict[str, Any]) -> None:
        """Add a message that only refers to tool calls, so that they have a position in the conversation."""
        self._said(spot, "tool", "json", *_hashed("tool", _encode(value)), None)

    def _said(self, spot: Spot, role: str, format: str, content: str, hash: str, summary: str | None) -> None:
        if spot.thread not in self.facts:
            self.facts[spot.thread] = {}
        self.said.append(Said(spot.thread, spot.native, role, format, content, hash, summary, spot.at_us, spot.offset))

    def use(self, used: Used) -> None:
        """Add the usage of one response. Several records may repeat it."""
        known = self.used.get(used.response)
        if known is None or used.last_wins:
            self.used[used.response] = used
        else:
            self.used[used.response] = known._replace(
                **{name: max(getattr(known, name), getattr(used, name)) for name in TOKENS}
            )

    def call(self, spot: Spot, call_id: object, tool: object, input: Any) -> dict[str, Any]:
        """Add a tool call. Returns the reference for `refer`."""
        id, name = short_id(call_id), short_id(tool or "(unnamed)")
        text = None if input is None else fit(_text_of(input))
        row = {
            "tool": name,
            "input": text,
            "summary": one_line(payloads.call_summary(name, input), SUMMARY_MAX),
            "called_us": spot.at_us,
        }
        self.calls.append(_row(spot.thread, spot.native, id, spot.offset, row))
        return {"call": id, "tool": name}

    def answer(self, spot: Spot, call_id: object, status: str, output: str, **more: Any) -> dict[str, Any]:
        """Add the answer of a tool call. Returns the reference for `refer`."""
        id = short_id(call_id)
        row = {"status": status, "output": fit(output), "answered_us": spot.at_us, **more}
        self.calls.append(_row(spot.thread, spot.native, id, spot.offset, row))
        return {"result": id, "status": status}

    def outcome(self, thread: Thread, call_id: str, status: str, offset: int, **more: Any) -> None:
        """Add the status, exit code or duration of a call, from a record that is no message and has no output."""
        self.calls.append(_row(thread, None, short_id(call_id), offset, {"status": status, **more}))


def _row(thread: Thread, native: str | None, call_id: str, offset: int, more: dict[str, Any]) -> dict[str, Any]:
    return {"thread": thread, "native": native, "call_id": call_id, "import_offset": offset, **more}


def one_line(text: str, limit: int) -> str:
    """As `serial.clean`, but five times as fast for a printable text."""
    head = text[: limit + 100]
    line = " ".join(head.split())
    if not line.isprintable():
        return serial.clean(text[:1000], limit)
    if len(line) <= limit and len(head) == len(text):
        return line
    return line[: limit - 1].rstrip() + "…"


def _hashed(role: str, content: str) -> tuple[str, str]:
    """The text as both engines can store it, and its hash."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        data = b"\x00"
    if len(data) > TEXT_MAX or b"\x00" in data:
        content = fit(content)
        data = content.encode()
    return content, "h1:" + hashlib.sha256(role.encode() + b"\n" + data).hexdigest()


def fit(text: str) -> str:
    """The text as both engines can store it: no NUL, no lone surrogates, at most TEXT_MAX characters."""
    if len(text) > TEXT_MAX:
        text = text[:TEXT_MAX] + f"\n[cut: {len(text):,} characters]"
    return payloads.fit(text)


def short_id(text: object) -> str:
    """A foreign id or name if it is printable and has at most ID_MAX characters; otherwise its hash."""
    plain = text if isinstance(text, str) else json.dumps(text, default=str)
    if 0 < len(plain) <= ID_MAX and plain.isprintable():
        return plain
    return "x-" + hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def name_of(text: object) -> str:
    """The name of a sub-agent: a `short_id` without slashes, because names of nodes form a path."""
    return short_id(text).replace("/", "_")[:100]


def text_of(content: Any) -> str:
    """The readable text of a message's content: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else _text_of(content)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            if isinstance(text, str):
                parts.append(text)
            elif part.get("type"):
                parts.append(f"[{short_id(part['type'])}]")
    return "\n".join(parts)


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return _encode(value)
    except (ValueError, RecursionError):
        return "[too deep to be shown]"


def moment(text: Any) -> int | None:
    """Microseconds of an ISO time, or of epoch seconds or milliseconds; None for other values."""
    if isinstance(text, str):
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            return None
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        us = round(parsed.timestamp() * 1_000_000)
    elif isinstance(text, int | float) and not isinstance(text, bool) and 0 < text < 1e14:
        us = round(text * (1_000 if text > 1e11 else 1_000_000))
    else:
        return None
    return us if 0 <= us < 2**62 else None


def number(value: Any) -> int:
    """A count of tokens; 0 for other values."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def integer(value: Any) -> int | None:
    """A whole number, such as an exit code; None for other values."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def string(value: Any) -> str | None:
    """A text that is not empty; None for other values."""
    return value if isinstance(value, str) and value else None


def mapping(value: Any) -> dict[str, Any]:
    """A JSON object; an empty one for other values."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """The objects in a JSON list; none for other values."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def listed(known: list[str], name: object) -> None:
    """Add a distinct name to a list of at most LISTED_MAX names."""
    if isinstance(name, str) and name and name not in known and len(known) < LISTED_MAX:
        known.append(name[:ID_MAX])


def loaded(text: Any) -> Any:
    """The value of a JSON text; any other value unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
