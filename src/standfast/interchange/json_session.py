"""A session kept in a JSON file: what an agent without a store writes for itself.

    {"id": "fix-42", "messages": [{"role": "user", "content": "…"}], "decisions": [{"what": "…", "why": "…"}],
     "tool_results": [{"id": "c1", "tool": "bash", "output": "…"}], "state": {"step": 3}}

A list of messages is enough, and so are JSON lines of messages. Tool calls are understood as
OpenAI's and Anthropic's interfaces write them. The session's key is `json:` and its id, or the name of its
file. Values are history: a command that says how to verify one is left behind.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from standfast import serial
from standfast.errors import InvalidInput
from standfast.interchange.transcripts.files import Importer, Piece, Place, Reader, Record, document, in_pieces, walk
from standfast.interchange.transcripts.gemini_cli import whole
from standfast.interchange.transcripts.model import Batch, Thread, fit, loaded, moment, short_id, text_of

NAMES = ("id", "session_id", "sessionId", "key", "name")
TIMES = ("timestamp", "created_at", "time", "ts", "date")
NOT_VALUES = frozenset((*NAMES, *TIMES, "messages", "history", "conversation", "decisions", "tool_results", "agent"))

_FILE = re.compile(r"\.jsonl?$")


class JsonSession(Importer):
    agent = "json"
    in_place = True

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        raise InvalidInput("import json needs the path of a file", "standfast import json session.json")

    def find(self, root: str) -> Iterator[str]:
        return walk(root, _FILE)

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)

    def look(self, path: str, head_bytes: int | None = None) -> Place:
        return whole(super().look(path, head_bytes), path)

    def pieces(self, path: str, start: int, carry: Mapping[str, Any], *, redact: bool) -> Iterator[Piece]:
        if path.endswith(".jsonl"):
            yield from super().pieces(path, start, carry, redact=redact)
            return
        found = document(path, redact=redact)
        if found is None:
            raise InvalidInput(f"{path} is not a JSON document")
        values = [(n, value) for n, value in enumerate(_records(found)) if n >= start]
        yield from in_pieces(values, total=os.path.getsize(path))


def _records(found: Any) -> Iterator[dict[str, Any]]:
    if isinstance(found, list):
        found = {"messages": found}
    if not isinstance(found, dict):
        return
    messages = next((found[n] for n in ("messages", "history", "conversation") if isinstance(found.get(n), list)), None)
    if messages is None:
        return
    yield {"header": {name: value for name, value in found.items() if value is not messages}}
    for message in messages:
        yield message if isinstance(message, dict) else {"role": "user", "content": message}


class _Reader(Reader):
    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        super().__init__(path, carry, counts)
        self.id: str = carry.get("session") or short_id(os.path.splitext(os.path.basename(path))[0])

    @property
    def native_id(self) -> str | None:
        return self.id

    @property
    def thread(self) -> Thread:
        return Thread(self.id)

    def read(self, record: Record, batch: Batch) -> None:
        value = record.value
        if not isinstance(value, dict):
            self.count("(not an object)", known=False)
        elif isinstance(value.get("header"), dict):
            self._header(record, value["header"], batch)
        elif isinstance(value.get("role"), str):
            self._message(record, value, batch)
        else:
            self.count("(other)", known=False)

    def _header(self, record: Record, header: dict[str, Any], batch: Batch) -> None:
        self.count("header", known=True)
        name = next((header[n] for n in NAMES if isinstance(header.get(n), str | int)), None)
        if name is not None and name != "":
            self.id = self.carry["session"] = short_id(str(name))
        at_us = _time(header) or self.carry.get("at")
        if at_us is not None:
            self.carry["at"] = at_us
            batch.at(at_us)
        cwd = header.get("cwd")
        batch.know(self.thread, started_us=at_us, cwd=cwd if isinstance(cwd, str) else None)
        for decided in _dicts(header.get("decisions")):
            what = decided.get("what") or decided.get("decision") or decided.get("title")
            if isinstance(what, str) and what.strip():
                why, outcome = decided.get("why") or decided.get("reason"), decided.get("outcome")
                batch.decisions.append((self.thread, fit(what)[:2000], _optional(why), _optional(outcome)))
        for n, result in enumerate(_dicts(header.get("tool_results"))):
            self._result(record, result, n, batch)
        state = header.get("state")
        values = state if isinstance(state, dict) else {}
        values |= {name: header[name] for name in header if name not in NOT_VALUES and name != "state"}
        for name, value in values.items():
            self._value(name, value, batch)

    def _result(self, record: Record, result: dict[str, Any], n: int, batch: Batch) -> None:
        call_id = short_id(result.get("id") or result.get("tool_call_id") or f"result-{n}")
        tool = short_id(result.get("tool") or result.get("name") or "(unnamed)")
        native = f"json:{self.id}:result:{call_id}"
        at_us = _time(result) or self.carry.get("at", 0)
        batch.call(self.thread, native, call_id, tool, result.get("input"), at_us, record.offset)
        failed = result.get("is_error") is True or bool(result.get("error"))
        output = result.get("output", result.get("result", result.get("error")))
        status = "error" if failed else "ok"
        batch.answer(self.thread, native, call_id, status, _told(output), at_us, record.offset)

    def _value(self, name: str, value: Any, batch: Batch) -> None:
        """A value of the session, by itself: `verify` and the like are commands of another user."""
        if isinstance(value, dict) and "value" in value and ("verify" in value or "version" in value):
            value = value["value"]
        try:
            batch.values.append((self.thread, short_id(name), serial.dumps(value, what=name)))
        except InvalidInput:
            self.count("(value that cannot be stored)", known=False)

    def _message(self, record: Record, value: dict[str, Any], batch: Batch) -> None:
        role = short_id(value["role"])[:50]
        self.count(role, known=True)
        at_us = _time(value) or self.carry.get("at", 0)
        self.carry["at"] = at_us
        batch.at(at_us)
        thread, offset = self.thread, record.offset
        native = f"json:{self.id}:{short_id(str(value.get('id') or f'@{offset}'))}"
        content = value.get("content")
        tools: list[dict[str, Any]] = []
        for call in _dicts(value.get("tool_calls")):
            function = call.get("function")
            function = function if isinstance(function, dict) else call
            call_id, tool = short_id(call.get("id") or native), short_id(function.get("name") or "(unnamed)")
            batch.call(thread, native, call_id, tool, loaded(function.get("arguments")), at_us, offset)
            tools.append({"call": call_id, "tool": tool})
        if value.get("tool_call_id"):
            call_id = short_id(value["tool_call_id"])
            batch.answer(thread, native, call_id, "ok", text_of(content), at_us, offset)
            tools.append({"result": call_id})
        blocks = content if isinstance(content, list) else []
        for block in _dicts(blocks):
            if block.get("type") == "tool_use" and block.get("id"):
                call_id, tool = short_id(block["id"]), short_id(block.get("name") or "(unnamed)")
                batch.call(thread, native, call_id, tool, block.get("input"), at_us, offset)
                tools.append({"call": call_id, "tool": tool})
            elif block.get("type") == "tool_result" and block.get("tool_use_id"):
                call_id, status = short_id(block["tool_use_id"]), "error" if block.get("is_error") is True else "ok"
                batch.answer(thread, native, call_id, status, text_of(block.get("content")), at_us, offset)
                tools.append({"result": call_id, "status": status})
        text = text_of([b for b in blocks if not _is_tool(b)] if blocks else content)
        if (text and not value.get("tool_call_id")) or not tools:
            batch.say(thread, native, role, text, at_us, offset)
        else:
            batch.refer(thread, native, {"tools": tools}, at_us, offset)


def _is_tool(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result")


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _time(value: dict[str, Any]) -> int | None:
    return next((us for name in TIMES if (us := moment(value.get(name))) is not None), None)


def _told(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _optional(value: Any) -> str | None:
    return fit(value)[:2000] if isinstance(value, str) and value else None
