"""Gemini CLI: one JSON document rewritten in place, or (since 0.40) a log of operations on one.

In the log a message is written again under its id as it grows, `$set` changes the document (its whole list of
messages, too), and `$rewindTo` takes back a message and all after it. Rewound messages are kept and marked, because
people ask about them. Results are inside their calls; the person's message that repeats them is not one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from standfast.interchange.transcripts.files import Importer, Piece, Place, Reader, Record, document, in_pieces, walk
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Thread,
    Used,
    moment,
    name_of,
    number,
    short_id,
    text_of,
)

STATUS = {"success": "ok", "error": "error", "cancelled": "cancelled"}
KNOWN = frozenset(("user", "gemini", "model", "info", "error", "warning"))

_FILE = re.compile(r"(?:^|/)(?:session-[^/]*|chats/.+)\.jsonl?$")
_SUBAGENT = re.compile(r"/chats/([^/]+)/([^/]+)\.jsonl?$")


class GeminiCli(Importer):
    agent = "gemini-cli"
    in_place = True

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        return [os.path.join(os.path.expanduser("~"), ".gemini", "tmp")]

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
        if not isinstance(found, dict) or not isinstance(found.get("messages"), list):
            return
        header = {name: value for name, value in found.items() if name != "messages"}
        values = enumerate([header, *found["messages"]])
        rest = ((n, value) for n, value in values if n >= start)
        yield from in_pieces(rest, total=os.path.getsize(path))


def whole(place: Place, path: str) -> Place:
    """A document is known by all of its bytes: after any change it is read again."""
    if path.endswith(".jsonl"):
        return place
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return place._replace(head=f"0:{digest.hexdigest()}")


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
        if isinstance(changes.get("summary"), str) and changes["summary"]:
            batch.know(self.thread)
            batch.titles.append((None, self.thread, changes["summary"]))
        messages = changes.get("messages")
        if not isinstance(messages, list):
            return
        folded = self.carry.get("spoken", 0) > 0
        for message in messages:
            if isinstance(message, dict) and isinstance(message.get("type"), str):
                self._message(record, message, batch)
                if folded:  # the list is replaced because what was before was folded into it
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
        native = self._native(value.get("id") or f"@{record.offset}")
        content = value.get("content") or value.get("parts")
        text = text_of([part for part in content if not _response(part)] if isinstance(content, list) else content)
        calls = [call for call in value.get("toolCalls") or () if isinstance(call, dict)]
        answers = [part for part in content if _response(part)] if isinstance(content, list) else []
        if text or not (calls or answers):
            role = _role(kind, text)
            text = text or _thoughts(value)
            batch.say(self.thread, native, role, text, at_us, record.offset, shown=role in ("user", "assistant"))
        else:
            told = [{"call": short_id(call.get("id")), "tool": short_id(call.get("name"))} for call in calls]
            told += [{"result": short_id(part["functionResponse"].get("id"))} for part in answers]
            batch.refer(self.thread, native, {"tools": told}, at_us, record.offset)
        for call in calls:
            self._call(call, native, at_us, record, batch)
        self._usage(value, native, at_us, batch)

    def _call(self, call: dict[str, Any], native: str, at_us: int, record: Record, batch: Batch) -> None:
        call_id, tool = short_id(call.get("id") or native), short_id(call.get("name") or "(unnamed)")
        batch.call(self.thread, native, call_id, tool, call.get("args"), at_us, record.offset)
        status = STATUS.get(call.get("status", ""), "unknown")
        if status != "unknown":
            ended_us = moment(call.get("timestamp")) or at_us
            output = _output(call.get("result")) or text_of(call.get("resultDisplay"))
            batch.answer(self.thread, native, call_id, status, output, ended_us, record.offset)

    def _usage(self, value: dict[str, Any], native: str, at_us: int, batch: Batch) -> None:
        tokens = value.get("tokens")
        if isinstance(tokens, dict):
            model = value.get("model")
            batch.use(
                Used(
                    self.thread,
                    native,
                    short_id(model) if isinstance(model, str) else None,
                    number(tokens.get("input")),
                    number(tokens.get("cached")),
                    0,
                    number(tokens.get("output")),
                    number(tokens.get("thoughts")),
                    None,
                    at_us,
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
    """The text of a call's result: the responses inside it."""
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
    thoughts = value.get("thoughts")
    told = [thought for thought in thoughts if isinstance(thought, dict)] if isinstance(thoughts, list) else []
    return "\n".join(str(thought.get("description") or thought.get("subject") or "") for thought in told)


def _project_root(path: str) -> str | None:
    """The directory a chat was held in, as a file above it says."""
    folder = os.path.dirname(path)
    for _ in range(3):
        try:
            with open(os.path.join(folder, ".project_root"), "rb") as file:
                return file.read(4096).decode("utf-8", "replace").strip() or None
        except OSError:
            folder = os.path.dirname(folder)
    return None
