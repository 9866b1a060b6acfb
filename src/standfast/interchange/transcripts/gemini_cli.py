"""Gemini CLI: one JSON document rewritten in place, or (since 0.40) a log of operations on one.

In the log, Gemini CLI writes a message again under its id when it grows. `$set` changes the document, also its whole
list of messages. `$rewindTo` retracts a message and all later ones. The store keeps them, with `retracted_us`. A tool
call contains its result. A user's message that repeats the result is not imported as text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from standfast.interchange.transcripts.files import DocumentImporter, Reader, Record, walk
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Spot,
    Thread,
    Used,
    mapping,
    mappings,
    moment,
    name_of,
    number,
    short_id,
    string,
    text_of,
)

STATUS = {"success": "ok", "error": "error", "cancelled": "cancelled"}
KNOWN = frozenset(("user", "gemini", "model", "info", "error", "warning"))

_FILE = re.compile(r"(?:^|/)(?:session-[^/]*|chats/.+)\.jsonl?$")
_SUBAGENT = re.compile(r"/chats/([^/]+)/([^/]+)\.jsonl?$")


class GeminiCli(DocumentImporter):
    agent = "gemini-cli"

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        return [os.path.join(os.path.expanduser("~"), ".gemini", "tmp")]

    def find(self, root: str) -> Iterator[str]:
        return walk(root, _FILE)

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)

    def records(self, document: Any, path: str) -> Iterable[dict[str, Any]]:
        found = mapping(document)
        if not isinstance(found.get("messages"), list):
            return []
        return [{name: value for name, value in found.items() if name != "messages"}, *found["messages"]]


class _Reader(Reader):
    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        super().__init__(path, carry, counts)
        found = _SUBAGENT.search(path.replace(os.sep, "/"))
        self.owner = short_id(found.group(1)) if found else None
        self.id: str = carry.get("session") or short_id(os.path.splitext(os.path.basename(path))[0])

    @property
    def native_id(self) -> str | None:
        return self.thread.native

    @property
    def thread(self) -> Thread:
        return Thread(self.id) if self.owner is None else Thread(self.owner, name_of(self.id))

    def read(self, record: Record, batch: Batch) -> None:
        value = record.value
        if not isinstance(value, dict):
            self.count("(not an object)", known=False)
        elif "$set" in value:
            self._set(record, value["$set"], batch)
        elif "$rewindTo" in value:
            self.count("$rewindTo", known=True)
            batch.know(self.thread)
            target = value["$rewindTo"]
            native = self._native(target) if isinstance(target, str) else None
            batch.retracted.append((self.thread, native, len(batch.said)))
        elif isinstance(value.get("sessionId"), str) and "type" not in value:
            self._header(value, batch)
        elif isinstance(value.get("type"), str):
            self._message(record, value, batch)
        else:
            self.count("(other)", known=False)

    def _header(self, value: dict[str, Any], batch: Batch) -> None:
        self.count("$header", known=True)
        self.id = self.carry["session"] = short_id(value["sessionId"])
        started_us = moment(value.get("startTime"))
        if started_us is not None:
            self.carry["at"] = started_us
        batch.know(self.thread, started_us=started_us, cwd=_project_root(self.path))
        if isinstance(value.get("summary"), str):
            batch.titles.append((None, self.thread, value["summary"]))

    def _set(self, record: Record, changes: Any, batch: Batch) -> None:
        self.count("$set", known=True)
        if not isinstance(changes, dict):
            return
        if summary := string(changes.get("summary")):
            batch.know(self.thread)
            batch.titles.append((None, self.thread, summary))
        folded = self.carry.get("spoken", 0) > 0
        for message in mappings(changes.get("messages")):
            if isinstance(message.get("type"), str):
                self._message(record, message, batch)
                if folded:  # a compaction: the first message of the new list summarises the old list
                    said = batch.said[-1]
                    batch.folded.append(Folded(said.thread, said.native, said.content, None))
                    folded = False

    def _message(self, record: Record, value: dict[str, Any], batch: Batch) -> None:
        kind = short_id(value["type"])
        self.count(kind, known=kind in KNOWN)
        at_us = moment(value.get("timestamp")) or self.carry.get("at", 0)
        self.carry["at"] = at_us
        batch.at(at_us)
        self.carry["spoken"] = self.carry.get("spoken", 0) + 1
        spot = Spot(self.thread, self._native(value.get("id") or f"@{record.offset}"), at_us, record.offset)
        content = value.get("content") or value.get("parts")
        text = text_of([part for part in content if not _response(part)] if isinstance(content, list) else content)
        calls = mappings(value.get("toolCalls"))
        answers = [part for part in content if _response(part)] if isinstance(content, list) else []
        if text or not (calls or answers):
            role = _role(kind, text)
            batch.say(spot, role, text or _thoughts(value), shown=role in ("user", "assistant"))
        else:
            tools = [{"call": short_id(call.get("id")), "tool": short_id(call.get("name"))} for call in calls]
            tools += [{"result": short_id(part["functionResponse"].get("id"))} for part in answers]
            batch.refer(spot, {"tools": tools})
        for call in calls:
            self._call(call, spot, batch)
        self._usage(value, spot, batch)

    def _call(self, call: dict[str, Any], spot: Spot, batch: Batch) -> None:
        call_id = call.get("id") or spot.native
        batch.call(spot, call_id, call.get("name"), call.get("args"))
        status = STATUS.get(call.get("status", ""), "unknown")
        if status != "unknown":
            ended = spot._replace(at_us=moment(call.get("timestamp")) or spot.at_us)
            batch.answer(ended, call_id, status, _output(call.get("result")) or text_of(call.get("resultDisplay")))

    def _usage(self, value: dict[str, Any], spot: Spot, batch: Batch) -> None:
        tokens = value.get("tokens")
        if isinstance(tokens, dict):
            model = value.get("model")
            batch.use(
                Used(
                    spot.thread,
                    spot.native,
                    short_id(model) if isinstance(model, str) else None,
                    number(tokens.get("input")),
                    number(tokens.get("cached")),
                    0,
                    number(tokens.get("output")),
                    number(tokens.get("thoughts")),
                    None,
                    spot.at_us,
                )
            )

    def _native(self, id: str) -> str:
        return f"gemini-cli:{self.thread.native}:{short_id(id)}"


def _role(kind: str, text: str) -> str:
    if kind in ("gemini", "model"):
        return "assistant"
    if kind == "user":
        return "system" if text.startswith("<session_context>") else "user"
    return "system"


def _response(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("functionResponse"), dict)


def _output(result: Any) -> str:
    """The text of all parts of a call's result."""
    texts = []
    for part in result if isinstance(result, list) else ():
        response = part["functionResponse"].get("response") if _response(part) else None
        if isinstance(response, dict):
            output = response.get("output", response.get("error"))
            texts.append(output if isinstance(output, str) else text_of([response]))
        elif isinstance(part, dict):
            texts.append(text_of([part]))
    return "\n".join(texts)


def _thoughts(value: dict[str, Any]) -> str:
    thoughts = mappings(value.get("thoughts"))
    return "\n".join(str(thought.get("description") or thought.get("subject") or "") for thought in thoughts)


def _project_root(path: str) -> str | None:
    """The directory of a chat, from the file `.project_root` in one of the three directories above it."""
    folder = os.path.dirname(path)
    for _ in range(3):
        try:
            with open(os.path.join(folder, ".project_root"), "rb") as file:
                return file.read(4096).decode("utf-8", "replace").strip() or None
        except OSError:
            folder = os.path.dirname(folder)
    return None
