"""The parts of a message: texts, tool calls and results, in the formats of OpenAI, Anthropic and LangChain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

ARGUMENTS = ("command", "cmd", "file_path", "path", "pattern", "query", "url", "prompt", "description")
"""The argument that describes a call: the first of these that it has."""
DEPTH_MAX = 8


def preview(stored: str) -> str:
    """A JSON message as one line of text. Tool calls begin with →, results with ←."""
    try:
        found = list(parts(json.loads(stored)))
    except (ValueError, RecursionError):  # after redaction it may not be valid JSON
        return stored
    return " ".join(f"{mark} {text}".strip() for mark, text in found) or "(empty)"


def parts(content: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """(mark, text) of each part. Plain text has no mark."""
    if depth > DEPTH_MAX:
        yield "", _json(content)
    elif isinstance(content, str):
        yield "", content
    elif isinstance(content, list):
        for part in content:
            yield from parts(part, depth + 1)
    elif isinstance(content, dict):
        yield from _of_dict(content, depth)
    elif content is not None:
        yield "", _json(content)


def _of_dict(part: dict[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    kind = part.get("type")
    if (stored := _of_langchain(part)) is not None:
        part, kind = stored, stored.get("type", kind)
    if kind in ("tool_use", "function_call", "tool_call") or (kind is None and isinstance(part.get("function"), dict)):
        yield "→", _call(part)
    elif kind in ("tool_result", "function_call_output", "tool"):
        for _, text in parts(part.get("content", part.get("output")), depth + 1):
            yield "←", text
    elif kind in ("thinking", "reasoning"):
        return
    elif isinstance(part.get("text"), str):
        yield "", part["text"]
    elif "content" in part or "tool_calls" in part:
        yield from parts(part.get("content"), depth + 1)
        calls = part.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            yield "→", _call(call) if isinstance(call, dict) else _json(call)
    else:
        yield "", _json(part)


def _of_langchain(part: dict[str, Any]) -> dict[str, Any] | None:
    """The message inside the output of LangChain's `messages_to_dict` or `dumpd`."""
    kind = part.get("type")
    inside = part.get("kwargs" if kind == "constructor" and "lc" in part else "data")
    known = kind in ("human", "ai", "tool", "system", "function", "constructor")
    return inside if known and isinstance(inside, dict) else None


def _call(part: dict[str, Any]) -> str:
    """`Bash: git status`: the tool, and the argument that describes the call, or all arguments."""
    function = part.get("function")
    inner: dict[str, Any] = function if isinstance(function, dict) else part
    given = _read(next((inner[name] for name in ("input", "arguments", "args") if name in inner), None))
    fields = given if isinstance(given, dict) else {}
    said = next((fields[name] for name in ARGUMENTS if isinstance(fields.get(name), str)), None)
    if said is None:
        said = given if isinstance(given, str) else _json(given)
    return f"{inner.get('name', 'tool')}: {said}"


def _read(given: Any) -> Any:
    """OpenAI sends arguments as JSON text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
