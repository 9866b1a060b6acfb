"""The shape all agents share: conversations, what was said in them, tools called and answered, usage, folds.

A `Batch` gathers what a reader found in some records, ready to be written: texts fit for both engines,
hashed and summarised, outside any transaction. Records are known by the id their agent gave them, so
that a copy in another file adds nothing.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from standfast import serial

TEXT_MAX = 2_000_000
"""Characters of one message, input or output that are stored; the raw record has all of it."""
ID_MAX = 200
SUMMARY_MAX = 200
LISTED_MAX = 50
"""Distinct versions, sessions and sub-agents that are listed per file; beyond that only counted."""

_TELLING = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "description", "prompt")


# A decoded record has no cycles.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Thread(NamedTuple):
    """One conversation of an agent. `node` is its sub-agent's name, None for the session's own."""

    session: str
    node: str | None = None

    @property
    def native(self) -> str:
        return self.session if self.node is None else f"{self.session}/{self.node}"


class Said(NamedTuple):
    """One message to be."""

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
    """The usage of one response, as the agent counts it."""

    thread: Thread
    response: str
    model: str | None
    input: int
    cached: int
    cache_write: int
    output: int
    reasoning: int
    cost_microusd: int | None
    occurred_us: int
    last_wins: bool = False
    """A running total: the newest replaces the older. Otherwise the largest of each field counts."""


class Folded(NamedTuple):
    """A compaction: at `native`, everything before was folded; `summary` comes with it or in the next record."""

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
        """Values of the session: key and JSON. Never with a command to verify them."""
        self.dropped: list[str] = []
        """Responses whose usage turned out to be counted elsewhere."""
        self.first_us: int | None = None
        self.last_us: int | None = None

    def know(self, thread: Thread, **facts: Any) -> None:
        """Fields of a conversation: cwd, title, started_us, forked_from, version. The first value counts."""
        known = self.facts.setdefault(thread, {})
        for name, value in facts.items():
            if value is not None:
                known.setdefault(name, value)

    def at(self, us: int) -> None:
        if self.first_us is None or us < self.first_us:
            self.first_us = us
        if self.last_us is None or us > self.last_us:
            self.last_us = us

    def say(
        self, thread: Thread, native: str, role: str, content: str, at_us: int, offset: int, *, shown: bool = True
    ) -> None:
        """One message of text. It is left out of the timeline unless it is `shown`."""
        if thread not in self.facts:
            self.facts[thread] = {}
        content, hash = _hashed(role, content)
        summary = f"{role}: {one_line(content, SUMMARY_MAX - len(role) - 2)}" if shown else None
        self.said.append(Said(thread, native, role, "text", content, hash, summary, at_us, offset))

    def use(self, used: Used) -> None:
        """The usage of one response, however many records repeat it."""
        known = self.used.get(used.response)
        if known is None or used.last_wins:
            self.used[used.response] = used
        elif known[3:8] != used[3:8]:
            self.used[used.response] = known._replace(
                input=max(known.input, used.input),
                cached=max(known.cached, used.cached),
                cache_write=max(known.cache_write, used.cache_write),
                output=max(known.output, used.output),
                reasoning=max(known.reasoning, used.reasoning),
            )

    def refer(self, thread: Thread, native: str, value: dict[str, Any], at_us: int, offset: int) -> None:
        """A record that only calls or answers tools: its place in the conversation, the rest is the tool call's."""
        if thread not in self.facts:
            self.facts[thread] = {}
        text, hash = _hashed("tool", _encode(value))
        self.said.append(Said(thread, native, "tool", "json", text, hash, None, at_us, offset))

    def call(
        self, thread: Thread, native: str, call_id: str, tool: str, input: Any, at_us: int, offset: int, **more: Any
    ) -> None:
        text = None if input is None else fit(_text_of(input))
        row = {
            "thread": thread,
            "native": native,
            "call_id": short_id(call_id),
            "tool": short_id(tool),
            "input": text,
            "summary": call_summary(tool, input),
            "called_us": at_us,
            "offset": offset,
        }
        self.calls.append(row | more if more else row)

    def answer(
        self,
        thread: Thread,
        native: str,
        call_id: str,
        status: str,
        output: str | None,
        at_us: int | None,
        offset: int,
        **more: Any,
    ) -> None:
        """What came back. Without `output` it is only word of how it ended: exit code, duration."""
        row = {
            "thread": thread,
            "native": native,
            "call_id": short_id(call_id),
            "status": status,
            "output": None if output is None else fit(output),
            "answered_us": at_us,
            "offset": offset,
        }
        self.calls.append(row | more if more else row)


def one_line(text: str, limit: int) -> str:
    """As `serial.clean`, at a fifth of its cost for text without anything to clean."""
    head = text[: limit + 100]
    line = " ".join(head.split())
    if not line.isprintable():
        return serial.clean(text[:1000], limit)
    if len(line) <= limit and len(head) == len(text):
        return line
    return line[: limit - 1].rstrip() + "…"


def _hashed(role: str, content: str) -> tuple[str, str]:
    """Fit text and its hash."""
    try:
        data = content.encode()
    except UnicodeEncodeError:
        data = b"\x00"
    if len(data) > TEXT_MAX or b"\x00" in data:
        content = fit(content)
        data = content.encode()
    return content, "h1:" + hashlib.sha256(role.encode() + b"\n" + data).hexdigest()


def fit(text: str) -> str:
    """Text both engines can hold: no NUL, no lone surrogates, bounded."""
    if len(text) > TEXT_MAX:
        text = text[:TEXT_MAX] + f"\n[cut: {len(text):,} characters]"
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def short_id(text: object) -> str:
    """An id or name from a stranger, fit to be one of ours: printable, one line, bounded; else its hash."""
    plain = text if isinstance(text, str) else json.dumps(text, default=str)
    if 0 < len(plain) <= ID_MAX and plain.isprintable():
        return plain
    return "x-" + hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def name_of(text: object) -> str:
    """The name of a sub-agent: as `short_id`, and without a slash, which would be a path."""
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


def call_summary(tool: str, input: Any) -> str:
    """One line: the tool, and the argument that tells most."""
    told = ""
    if isinstance(input, str):
        told = input[:600]
    elif isinstance(input, dict):
        for name in _TELLING:
            value = input.get(name)
            if value:
                told = value[:600] if isinstance(value, str) else " ".join(map(str, value))[:600]
                break
    return one_line(f"{tool} {told}".strip(), SUMMARY_MAX)


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


def listed(known: list[str], name: object) -> None:
    """Remember a distinct name, as long as there is resource."""
    if isinstance(name, str) and name and name not in known and len(known) < LISTED_MAX:
        known.append(name[:ID_MAX])


def loaded(text: Any) -> Any:
    """The value of a JSON text; anything else as it is."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
