"""A session in a JSON file, as an agent without a store writes it.

    {"id": "fix-42", "messages": [{"role": "user", "content": "…"}], "decisions": [{"what": "…", "why": "…"}],
     "tool_results": [{"id": "c1", "tool": "bash", "output": "…"}], "state": {"step": 3}}

The file may also be a list of messages, or JSON lines of messages. Tool calls have the form of OpenAI's or Anthropic's
API. The session's key is `json:` with its id or with the name of its file. A command that verifies a value is left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from standfast import serial
from standfast.errors import InvalidInput
from standfast.interchange.transcripts.files import DocumentImporter, Reader, Record, walk
from standfast.interchange.transcripts.model import (
    Batch,
    Spot,
    Thread,
    fit,
    loaded,
    mapping,
    mappings,
    moment,
    short_id,
    string,
    text_of,
)

NAMES = ("id", "session_id", "sessionId", "key", "name")
TIMES = ("timestamp", "created_at", "time", "ts", "date")
NOT_VALUES = frozenset((*NAMES, *TIMES, "messages", "history", "conversation", "decisions", "tool_results", "agent"))

_FILE = re.compile(r"\.jsonl?$")


class JsonSession(DocumentImporter):
    agent = "json"

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        raise InvalidInput("import json needs the path of a file", "standfast import json session.json")

    def find(self, root: str) -> Iterator[str]:
        return walk(root, _FILE)

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)

    def records(self, document: Any, path: str) -> Iterable[dict[str, Any]]:
        if document is None:
            raise InvalidInput(f"{path} is not a JSON document")
        found = {"messages": document} if isinstance(document, list) else mapping(document)
        name = next((name for name in ("messages", "history", "conversation") if isinstance(found.get(name), list)), "")
        if not name:
            return []
        header = {other: value for other, value in found.items() if other != name}
        said = (one if isinstance(one, dict) else {"role": "user", "content": one} for one in found[name])
        return [{"header": header}, *said]


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
        batch.know(self.thread, started_us=at_us, cwd=string(header.get("cwd")))
        for decided in mappings(header.get("decisions")):
            what = decided.get("what") or decided.get("decision") or decided.get("title")
            if isinstance(what, str) and what.strip():
                why, outcome = decided.get("why") or decided.get("reason"), decided.get("outcome")
                batch.decisions.append((self.thread, fit(what)[:2000], _optional(why), _optional(outcome)))
        for n, result in enumerate(mappings(header.get("tool_results"))):
            self._result(record, result, n, batch)
        others = {name: header[name] for name in header if name not in NOT_VALUES and name != "state"}
        values = mapping(header.get("state")) | others
        for name, value in values.items():
            self._value(name, value, batch)

    def _result(self, record: Record, result: dict[str, Any], n: int, batch: Batch) -> None:
        call_id = short_id(result.get("id") or result.get("tool_call_id") or f"result-{n}")
        at_us = _time(result) or self.carry.get("at", 0)
        spot = Spot(self.thread, f"json:{self.id}:result:{call_id}", at_us, record.offset)
        batch.call(spot, call_id, result.get("tool") or result.get("name"), result.get("input"))
        failed = result.get("is_error") is True or bool(result.get("error"))
        output = result.get("output", result.get("result", result.get("error")))
        batch.answer(spot, call_id, "error" if failed else "ok", _output(output))

    def _value(self, name: str, value: Any, batch: Batch) -> None:
        """Add a value of the session. Its `verify` is left out: another user wrote that command."""
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
        own = value.get("id") or f"@{record.offset}"
        spot = Spot(self.thread, f"json:{self.id}:{short_id(str(own))}", at_us, record.offset)
        content = value.get("content")
        tools: list[dict[str, Any]] = []
        for call in mappings(value.get("tool_calls")):
            function = call.get("function")
            function = function if isinstance(function, dict) else call
            arguments = loaded(function.get("arguments"))
            tools.append(batch.call(spot, call.get("id") or spot.native, function.get("name"), arguments))
        if value.get("tool_call_id"):
            made = batch.answer(spot, value["tool_call_id"], "ok", text_of(content))
            tools.append({"result": made["result"]})
        for block in mappings(content):
            if block.get("type") == "tool_use" and block.get("id"):
                tools.append(batch.call(spot, block["id"], block.get("name"), block.get("input")))
            elif block.get("type") == "tool_result" and block.get("tool_use_id"):
                status = "error" if block.get("is_error") is True else "ok"
                tools.append(batch.answer(spot, block["tool_use_id"], status, text_of(block.get("content"))))
        text = text_of([one for one in content if not _is_tool(one)] if isinstance(content, list) else content)
        if (text and not value.get("tool_call_id")) or not tools:
            batch.say(spot, role, text)
        else:
            batch.refer(spot, {"tools": tools})


def _is_tool(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result")


def _time(value: dict[str, Any]) -> int | None:
    return next((us for name in TIMES if (us := moment(value.get(name))) is not None), None)


def _output(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _optional(value: Any) -> str | None:
    return fit(value)[:2000] if isinstance(value, str) and value else None
