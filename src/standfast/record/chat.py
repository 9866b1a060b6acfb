"""Messages of a session in the form of OpenAI's and Anthropic's chat interfaces, and tool calls without a result.

Your own agent loop stores what the LLM returned, unchanged, and one message per tool result:

    s.say("user", "fix the parser", key="prompt")
    s.say("assistant", reply)           # text, OpenAI's message, or Anthropic's message or list of content blocks
    s.say("tool", {"call_id": call.call_id, "result": value})           # or {"call_id": …, "error": "no such branch"}

Both providers refuse a history in which a tool call is not directly followed by its result. So these functions put each
result directly after its call, add a result that says "interrupted" to a call without one, and leave out a result
without its call. The stored messages do not change. Messages from one provider can be sent to the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from standfast import serial
from standfast.errors import InvalidInput
from standfast.models import Model
from standfast.record.messages import Message

INTERRUPTED = "No answer to this call was recorded: it was interrupted, and may or may not have been carried out."


class ToolCall(Model):
    """A tool call of the LLM. `arguments` is text if the LLM wrote no valid JSON."""

    call_id: str
    name: str
    arguments: Any


class _Result(NamedTuple):
    content: Any
    """Text, or content blocks in Anthropic's form."""
    is_error: bool


class _Turn(NamedTuple):
    role: str
    content: Any
    """The content as it was stored: text, a list of parts or blocks, or OpenAI's message."""
    calls: list[ToolCall]
    results: list[_Result | None]
    """One for each call."""


def orphans(messages: Iterable[Message]) -> list[ToolCall]:
    """The tool calls without a result, in order. Run them before you call the LLM again."""
    turns = _turns(messages)
    return [call for turn in turns for call, result in zip(turn.calls, turn.results, strict=True) if result is None]


def to_openai(messages: Iterable[Message]) -> dict[str, Any]:
    """The arguments for `client.chat.completions.create(model=…, **to_openai(s.messages()))`.

    Raises InvalidInput for a role that the providers do not accept, and for a tool result without a call id.
    """
    made: list[dict[str, Any]] = []
    for turn in _turns(messages):
        made.append(_openai(turn))
        for call, result in zip(turn.calls, turn.results, strict=True):
            content = INTERRUPTED if result is None else _text(result.content)
            made.append({"role": "tool", "tool_call_id": call.call_id, "content": content})
    return {"messages": made}


def to_anthropic(messages: Iterable[Message]) -> dict[str, Any]:
    """The arguments for `client.messages.create(model=…, max_tokens=…, **to_anthropic(s.messages()))`.

    Messages with the role `system` become one text before the messages. Raises InvalidInput as `to_openai` does, and
    if the first message is not from the user.
    """
    system: list[str] = []
    made: list[dict[str, Any]] = []
    for turn in _turns(messages):
        if turn.role in ("system", "developer"):
            system.append(_text(turn.content))
            continue
        _add(made, turn.role, _blocks(turn))
        _add(made, "user", [_tool_result(*pair) for pair in zip(turn.calls, turn.results, strict=True)])
    if made and made[0]["role"] != "user":
        raise InvalidInput(
            "the first message is from the assistant; Anthropic needs one from the user",
            "read more messages: last=1000",
        )
    return {**({"system": "\n\n".join(system)} if system else {}), "messages": made}


# -- stored messages ------------------------------------------------------------------------------------------


def _turns(messages: Iterable[Message]) -> list[_Turn]:
    """The messages that are not retracted, each tool call with its result."""
    turns: list[_Turn] = []
    unanswered: dict[str, tuple[_Turn, int]] = {}  # open calls by id; an LLM may reuse the id of an ended call
    for message in messages:
        if message.retracted_us is not None:
            continue
        turn, results = _read(message)
        for call_id, result in results:
            if call_id in unanswered:
                asked, place = unanswered.pop(call_id)
                asked.results[place] = result
        if turn is not None:
            turns.append(turn)
            unanswered |= {call.call_id: (turn, place) for place, call in enumerate(turn.calls)}
    return turns


def _read(message: Message) -> tuple[_Turn | None, list[tuple[str, _Result]]]:
    content = _content(message)
    match message.role:
        case "assistant":
            calls = [*_calls(content)]
            return _Turn("assistant", content, calls, [None] * len(calls)), []
        case "tool":
            return None, [_result(message)]
        case "user" if isinstance(content, list):
            given = [block for block in content if block.get("type") == "tool_result"]
            rest = [block for block in content if block.get("type") != "tool_result"]
            found = [(one["tool_use_id"], _Result(one.get("content", ""), bool(one.get("is_error")))) for one in given]
            return _Turn("user", rest, [], []) if rest else None, found
        case "user" | "system" | "developer":
            return _Turn(message.role, content, [], []), []
    raise InvalidInput(
        f"message {message.position} has the role {serial.clean(message.role, 50)!r}, which no LLM takes",
        "leave it out: [m for m in messages if m.role in ('system', 'user', 'assistant', 'tool')]",
    )


def _content(message: Message) -> Any:
    """Text, a list of parts or blocks, or OpenAI's assistant message. Any other JSON value becomes text."""
    content: Any = message.content
    if (
        isinstance(content, dict)
        and "content" in content
        and (message.role != "assistant" or content.get("type") == "message")
    ):
        content = content["content"]  # the whole message was stored, with its role
    if isinstance(content, str) or (isinstance(content, list) and all(isinstance(part, dict) for part in content)):
        return content
    if isinstance(content, dict) and message.role == "assistant" and content.keys() & {"content", "tool_calls"}:
        return content
    return serial.dumps(content)


def _calls(content: Any) -> Iterable[ToolCall]:
    if isinstance(content, list):
        blocks = [block for block in content if block.get("type") == "tool_use"]
        return [ToolCall(block["id"], block["name"], block["input"]) for block in blocks]
    asked = (content.get("tool_calls") or []) if isinstance(content, dict) else []
    return [_call(one["id"], one.get("function") or one["custom"]) for one in asked]


def _call(call_id: str, function: dict[str, Any]) -> ToolCall:
    return ToolCall(call_id, function["name"], _arguments(function.get("arguments", function.get("input"))))


def _arguments(text: Any) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _result(message: Message) -> tuple[str, _Result]:
    said = message.content
    if isinstance(said, dict):
        call_id = said.get("call_id", said.get("tool_call_id"))
        for name in ("result", "error", "content"):
            if isinstance(call_id, str) and name in said:
                value = said[name]
                return call_id, _Result(value if isinstance(value, str) else serial.dumps(value), name == "error")
    raise InvalidInput(
        f"message {message.position} has the role 'tool' and no call_id",
        's.say("tool", {"call_id": call.call_id, "result": value})',
    )


def _text(content: Any) -> str:
    """The text of a message. Images and reasoning have none."""
    if isinstance(content, dict):
        content = content.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content if isinstance(content, str) else ""


# -- the providers' forms -------------------------------------------------------------------------------------


def _openai(turn: _Turn) -> dict[str, Any]:
    if isinstance(turn.content, dict):  # OpenAI's own message, without the fields that only responses have
        said = {name: value for name, value in turn.content.items() if value and name != "annotations"}
        return {"role": turn.role, "content": None if turn.calls else "", **said}
    if turn.role != "assistant":
        return {"role": turn.role, "content": turn.content}
    text = _text(turn.content)
    if not turn.calls:
        return {"role": "assistant", "content": text}
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in turn.calls
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _blocks(turn: _Turn) -> list[Any]:
    if isinstance(turn.content, list):  # Anthropic's own blocks; its library dumps nulls that a request refuses
        return [{name: value for name, value in block.items() if value is not None} for block in turn.content]
    text = _text(turn.content)
    used = [{"type": "tool_use", "id": call.call_id, "name": call.name, "input": _input(call)} for call in turn.calls]
    return [*([{"type": "text", "text": text}] if text else []), *used]


def _input(call: ToolCall) -> dict[str, Any]:
    return call.arguments if isinstance(call.arguments, dict) else {"arguments": call.arguments}


def _tool_result(call: ToolCall, result: _Result | None) -> dict[str, Any]:
    content, is_error = result or _Result(INTERRUPTED, True)
    return {"type": "tool_result", "tool_use_id": call.call_id, "content": content, "is_error": is_error}


def _add(made: list[dict[str, Any]], role: str, blocks: list[Any]) -> None:
    """Add blocks. Roles must alternate, so consecutive blocks of one role become one message."""
    if blocks and made and made[-1]["role"] == role:
        made[-1]["content"] = [*made[-1]["content"], *blocks]
    elif blocks:
        made.append({"role": role, "content": blocks})
