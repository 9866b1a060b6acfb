"""Claude Code: JSON lines, one file per session, sub-agents inside or beside it.

    1.x      sub-agents in the session's file, marked `isSidechain` and distinguished by their chains of parents
    2.0      `agent-<id>.jsonl` beside the session
    2.1      `<session>/subagents/agent-<id>.jsonl` with a small `.meta.json`

Claude Code writes one response as several records and repeats the usage in each. Usage is counted once per message and
request, with the largest value of each field. A fork, and sometimes a resume, copies records into another file. The
uuid identifies a record in all files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from standfast.interchange.hooks.payloads import word_set
from standfast.interchange.transcripts.files import Importer, Reader, Record, walk
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Spot,
    Thread,
    Used,
    listed,
    mapping,
    mappings,
    moment,
    name_of,
    number,
    short_id,
    string,
    text_of,
)

KNOWN = word_set(
    "user assistant system summary progress attachment file-history-snapshot pr-link queue-operation permission-mode "
    "mode ai-title custom-title agent-name last-prompt worktree-state relocated bridge-session frame-link started "
    "result cost-state atis-latch"
)
SYNTHETIC = "<synthetic>"
CHAIN_MAX = 256
"""The newest records of inline sub-agents: a later record names one of them as its parent."""

_FILE = re.compile(r"\.jsonl$")
_SUBAGENT = re.compile(r"(?:^|/)([^/]+)/subagents/agent-([^/]+)\.jsonl$")
_BESIDE = re.compile(r"(?:^|/)agent-([^/]+)\.jsonl$")
_NOT_THE_PERSON = ("<command-", "<local-command-", "<system-reminder>", "Caveat: The messages below", "<bash-")


class ClaudeCode(Importer):
    agent = "claude-code"

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        home = environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
        return [os.path.join(home, "projects")]

    def find(self, root: str) -> Iterator[str]:
        # A session comes before its sub-agents: `x.jsonl` is listed before the directory `x` is walked.
        return walk(root, _FILE)

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)


class _Reader(Reader):
    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        super().__init__(path, carry, counts)
        plain = path.replace(os.sep, "/")
        below = _SUBAGENT.search(plain)
        beside = _BESIDE.search(plain)
        self.owner = short_id(below.group(1)) if below else None
        self.subagent = name_of(below.group(2)) if below else name_of(beside.group(1)) if beside else None
        self.title = _agent_type(path) if self.subagent else None
        self.own: Thread | None = None
        self.seen: tuple[Any, ...] = ()
        self.counted: tuple[Any, ...] = ()
        self.chain: dict[str, str] = carry.setdefault("chain", {})
        counts.setdefault("compactions", 0)
        for name in ("versions", "sessions", "agent_ids"):
            counts.setdefault(name, [])
        counts.setdefault("sidechain", 0)
        counts.setdefault("error_results", 0)

    @property
    def native_id(self) -> str | None:
        session = self.owner or self.carry.get("session")
        return session if self.subagent is None or session is None else f"{session}/{self.subagent}"

    def read(self, record: Record, batch: Batch) -> None:
        value = record.value
        if not isinstance(value, dict):
            self.count("(not an object)", known=False)
            return
        type = value.get("type")
        type = type if isinstance(type, str) else "(no type)"
        self.count(type, known=type in KNOWN)
        self._note(value)
        at_us = moment(value.get("timestamp"))
        if at_us is not None:
            self.carry["at"] = at_us
            batch.at(at_us)
        if type in ("user", "assistant"):
            self._said(record, value, type, batch)
        elif type == "system":
            self._system(record, value, batch)
        elif type == "summary":
            self._summary(value, batch)
        elif type in ("ai-title", "custom-title"):
            title = string(value.get("title") or value.get("aiTitle") or value.get("customTitle"))
            if title is not None:
                thread = self._thread(value)
                batch.know(thread)
                batch.titles.append((None, thread, title))
        elif type == "cost-state":
            self._cost(value, batch)

    def _note(self, value: dict[str, Any]) -> None:
        counts = self.counts
        seen = (value.get("sessionId"), value.get("version"), value.get("agentId"))
        if seen != self.seen:  # nearly every record repeats the values of the record before
            self.seen = seen
            session = seen[0]
            if isinstance(session, str) and session:
                self.carry["session"] = short_id(session)
                listed(counts["sessions"], session)
            listed(counts["versions"], seen[1])
            listed(counts["agent_ids"], seen[2])
        counts["sidechain"] += value.get("isSidechain") is True

    def _thread(self, value: dict[str, Any]) -> Thread:
        """The conversation that a record belongs to."""
        session = self.owner or self.carry.get("session") or short_id(os.path.basename(self.path))
        if self.subagent is not None or value.get("isSidechain") is not True:
            if self.own is None or self.own.session != session:
                self.own = Thread(session, self.subagent)
            return self.own
        agent = value.get("agentId")
        return Thread(session, name_of(agent) if isinstance(agent, str) and agent else self._chained(value))

    def _chained(self, value: dict[str, Any]) -> str:
        """The name of an inline sub-agent, from the first record of its chain: that record has no parent."""
        uuid, parent = short_id(value.get("uuid")), value.get("parentUuid")
        chain = self.chain.get(short_id(parent)) if parent is not None else None
        if chain is None and parent is not None and self.chain:
            chain = next(reversed(self.chain.values()))
        chain = chain or f"sidechain-{uuid[:8]}"
        self.chain[uuid] = chain
        if len(self.chain) > CHAIN_MAX:
            del self.chain[next(iter(self.chain))]
        return chain

    def _spot(self, record: Record, value: dict[str, Any], batch: Batch) -> Spot:
        """The conversation and position of a record. The first record of a conversation also gives its facts."""
        thread, at_us = self._thread(value), self.carry.get("at", 0)
        if not batch.facts.get(thread):
            forked = mapping(value.get("forkedFrom")).get("sessionId")
            batch.know(
                thread,
                cwd=string(value.get("cwd")),
                branch=_name(value.get("gitBranch")),
                version=_name(value.get("version")),
                title=self.title,
                started_us=at_us,
                forked_from=short_id(forked) if forked else None,
            )
        return Spot(thread, self._native(record, value), at_us, record.offset)

    def _said(self, record: Record, value: dict[str, Any], type: str, batch: Batch) -> None:
        message = mapping(value.get("message"))
        spot = self._spot(record, value, batch)
        text, thoughts, tools = self._blocks(message.get("content"), spot, batch)
        if text or not (thoughts or tools):
            role = self._role(value, type, text)
            batch.say(spot, role, text, shown=bool(text))
            if role == "summary":
                batch.folded.append(Folded(spot.thread, spot.native, text, None))
        elif tools:
            batch.refer(spot, {"tools": tools})
        if thoughts:
            own = spot._replace(native=f"{spot.native}#thinking") if text or tools else spot
            batch.say(own, "reasoning", "\n".join(thoughts), shown=False)
        if type == "assistant":
            self._usage(value, message, spot, batch)

    def _blocks(self, content: Any, spot: Spot, batch: Batch) -> tuple[str, list[str], list[dict[str, Any]]]:
        """The text, the thoughts and the tool calls in the blocks of a message."""
        if isinstance(content, str):
            return content, [], []
        texts: list[str] = []
        thoughts: list[str] = []
        tools: list[dict[str, Any]] = []
        for block in mappings(content):
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                texts.append(block["text"])
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                thoughts.append(block["thinking"])
            elif kind == "tool_use" and not block.get("id"):  # without an id no answer can refer to the call
                tools.append({"tool": short_id(block.get("name") or "(unnamed)")})
            elif kind == "tool_use":
                tools.append(batch.call(spot, block["id"], block.get("name"), block.get("input")))
            elif kind == "tool_result":
                failed = block.get("is_error") is True
                self.counts["error_results"] += failed
                status, output = "error" if failed else "ok", text_of(block.get("content"))
                tools.append(batch.answer(spot, block.get("tool_use_id") or "(none)", status, output))
            else:
                texts.append(f"[{short_id(kind)}]")
        return "\n".join(texts), thoughts, tools

    @staticmethod
    def _role(value: dict[str, Any], type: str, text: str) -> str:
        if type == "assistant":
            return "assistant"
        if value.get("isCompactSummary") is True:
            return "summary"
        if value.get("isMeta") is True or text.startswith(_NOT_THE_PERSON):
            return "system"
        return "user"

    def _native(self, record: Record, value: dict[str, Any]) -> str:
        uuid = value.get("uuid")
        if isinstance(uuid, str) and uuid:
            return f"claude-code:{short_id(uuid)}"
        return f"claude-code:{self.native_id or short_id(os.path.basename(self.path))}@{record.offset}"

    def _usage(self, value: dict[str, Any], message: dict[str, Any], spot: Spot, batch: Batch) -> None:
        usage, model = message.get("usage"), message.get("model")
        if not isinstance(usage, dict):
            return
        if model == SYNTHETIC:  # Claude Code wrote this message itself
            self.counts["synthetic_responses"] = self.counts.get("synthetic_responses", 0) + 1
            return
        response, request = message.get("id"), value.get("requestId")
        repeated = (id(batch), response, request, usage)
        if repeated == self.counted:  # nearly every response is several records in a row
            return
        self.counted = repeated
        known = f"{short_id(response)}:{short_id(request)}" if response or request else spot.native
        batch.use(
            Used(
                spot.thread,
                f"claude-code:{known}",
                _name(model),
                number(usage.get("input_tokens")),
                number(usage.get("cache_read_input_tokens")),
                number(usage.get("cache_creation_input_tokens")),
                number(usage.get("output_tokens")),
                0,
                None,
                spot.at_us,
            )
        )

    def _system(self, record: Record, value: dict[str, Any], batch: Batch) -> None:
        content = value.get("content")
        boundary = value.get("subtype") == "compact_boundary"
        if not boundary and not isinstance(content, str):
            self._thread(value)  # records it, because a later record of an inline sub-agent may name it as its parent
            return
        spot = self._spot(record, value, batch)
        text = content if isinstance(content, str) else "Conversation compacted"
        batch.say(spot, "system", text, shown=boundary)
        if boundary:
            self.counts["compactions"] += 1
            facts = mapping(value.get("compactMetadata"))
            kept = {name: value for name, value in facts.items() if name in ("trigger", "preTokens")}
            batch.folded.append(Folded(spot.thread, spot.native, None, kept if _plain(kept) else None))

    def _summary(self, value: dict[str, Any], batch: Batch) -> None:
        """A title. It belongs to the session that has the message `leafUuid`, which is often in another file."""
        leaf, summary = value.get("leafUuid"), string(value.get("summary"))
        if isinstance(leaf, str) and summary is not None:
            batch.titles.append((f"claude-code:{short_id(leaf)}", None, summary))

    def _cost(self, value: dict[str, Any], batch: Batch) -> None:
        cost = value.get("totalCostUSD")
        if isinstance(cost, int | float) and 0 <= cost < 1e9 and self.native_id is not None:
            thread = self._thread(value)
            batch.know(thread)
            response = f"claude-code:{self.native_id}:cost"
            at_us = self.carry.get("at", 0)
            batch.use(Used(thread, response, None, 0, 0, 0, 0, 0, round(cost * 1e6), at_us, last_wins=True))


def _agent_type(path: str) -> str | None:
    """The type of a sub-agent, from the `.meta.json` beside its transcript."""
    try:
        with open(path.removesuffix(".jsonl") + ".meta.json", "rb") as file:
            found = json.loads(file.read(65536)).get("agentType")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return found[:100] if isinstance(found, str) and found.isprintable() else None


def _name(value: Any) -> str | None:
    return short_id(value) if isinstance(value, str) and value else None


def _plain(value: dict[str, Any]) -> bool:
    return bool(value) and all(isinstance(item, str | int) for item in value.values())
