"""Claude Code: JSON lines, one file per session, sub-agents inside or beside it.

    1.x      sub-agents inline, `isSidechain`, distinguished by their chain of parents
    2.0      `agent-<id>.jsonl` beside the session
    2.1      `<session>/subagents/agent-<id>.jsonl` with a small `.meta.json`

One response of the model is several records, each repeating its usage: it is counted once, by message and
request, the largest of each field. A fork or some resumes copy records into another file: a record is known by
its uuid, in any file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from standfast.interchange.transcripts.files import Importer, Reader, Record, walk
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Thread,
    Used,
    listed,
    moment,
    name_of,
    number,
    short_id,
    text_of,
)

KNOWN = frozenset(
    (
        *("user", "assistant", "system", "summary", "progress", "attachment", "file-history-snapshot", "pr-link"),
        *("queue-operation", "permission-mode", "mode", "ai-title", "custom-title", "agent-name", "last-prompt"),
        *("worktree-state", "relocated", "bridge-session", "frame-link", "started", "result", "cost-state"),
        "atis-latch",
    )
)
SYNTHETIC = "<synthetic>"
CHAIN_MAX = 256
"""Records of inline sub-agents whose children are still expected."""

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
        # The session before its sub-agents: `x.jsonl` sorts before the directory `x` is walked.
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
        if type in KNOWN and type in self.types:
            self.types[type] += 1
        else:
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
            title = value.get("title") or value.get("aiTitle") or value.get("customTitle")
            if isinstance(title, str) and title:
                thread = self._thread(value)
                batch.know(thread)
                batch.titles.append((None, thread, title))
        elif type == "cost-state":
            self._cost(value, batch)

    def _note(self, value: dict[str, Any]) -> None:
        counts = self.counts
        seen = (value.get("sessionId"), value.get("version"), value.get("agentId"))
        if seen != self.seen:  # almost always the same as the record before
            self.seen = seen
            session = seen[0]
            if isinstance(session, str) and session:
                self.carry["session"] = short_id(session)
                listed(counts["sessions"], session)
            listed(counts["versions"], seen[1])
            listed(counts["agent_ids"], seen[2])
        counts["sidechain"] += value.get("isSidechain") is True

    def _thread(self, value: dict[str, Any]) -> Thread:
        """Whose conversation a record belongs to."""
        session = self.owner or self.carry.get("session") or short_id(os.path.basename(self.path))
        if self.subagent is not None or value.get("isSidechain") is not True:
            if self.own is None or self.own.session != session:
                self.own = Thread(session, self.subagent)
            return self.own
        agent = value.get("agentId")
        return Thread(session, name_of(agent) if isinstance(agent, str) and agent else self._chained(value))

    def _chained(self, value: dict[str, Any]) -> str:
        """Inline sub-agents have no name: each is the chain that begins with a record without a parent."""
        uuid, parent = short_id(value.get("uuid")), value.get("parentUuid")
        chain = self.chain.get(short_id(parent)) if parent is not None else None
        if chain is None and parent is not None and self.chain:
            chain = next(reversed(self.chain.values()))
        chain = chain or f"sidechain-{uuid[:8]}"
        self.chain[uuid] = chain
        if len(self.chain) > CHAIN_MAX:
            del self.chain[next(iter(self.chain))]
        return chain

    def _known(self, thread: Thread, value: dict[str, Any], batch: Batch, at_us: int) -> None:
        forked = value.get("forkedFrom")
        cwd = value.get("cwd")
        batch.know(
            thread,
            cwd=cwd if isinstance(cwd, str) else None,
            branch=_str(value.get("gitBranch")),
            version=_str(value.get("version")),
            title=self.title,
            started_us=at_us,
            forked_from=short_id(forked["sessionId"]) if isinstance(forked, dict) and forked.get("sessionId") else None,
        )

    def _said(self, record: Record, value: dict[str, Any], type: str, batch: Batch) -> None:
        message = value.get("message")
        message = message if isinstance(message, dict) else {}
        thread = self._thread(value)
        at_us = self.carry.get("at", 0)
        if not batch.facts.get(thread):
            self._known(thread, value, batch, at_us)
        native = self._native(record, value)
        content = message.get("content")
        if isinstance(content, str):
            text, thoughts, tools = content, None, None
        else:
            text, thoughts, tools = self._blocks(record, content, thread, native, batch, at_us)
        if text or not (thoughts or tools):
            role = self._role(value, type, text)
            batch.say(thread, native, role, text, at_us, record.offset, shown=bool(text))
            if role == "summary":
                batch.folded.append(Folded(thread, native, text, None))
        elif tools:
            batch.refer(thread, native, {"tools": tools}, at_us, record.offset)
        if thoughts:
            own = f"{native}#thinking" if text or tools else native
            batch.say(thread, own, "reasoning", "\n".join(thoughts), at_us, record.offset, shown=False)
        if type == "assistant":
            self._usage(record, value, message, thread, batch, at_us)

    def _blocks(
        self, record: Record, content: Any, thread: Thread, native: str, batch: Batch, at_us: int
    ) -> tuple[str, list[str], list[dict[str, Any]]]:
        """The text, the thoughts and the tool calls in the blocks of a message."""
        texts: list[str] = []
        thoughts: list[str] = []
        tools: list[dict[str, Any]] = []
        for block in content if isinstance(content, list) else ():
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                texts.append(block["text"])
            elif kind == "thinking" and isinstance(block.get("thinking"), str):
                thoughts.append(block["thinking"])
            elif kind == "tool_use":
                tool = short_id(block.get("name") or "(unnamed)")
                if not block.get("id"):  # nothing could ever be paired with it
                    tools.append({"tool": tool})
                    continue
                call_id = short_id(block["id"])
                batch.call(thread, native, call_id, tool, block.get("input"), at_us, record.offset)
                tools.append({"call": call_id, "tool": tool})
            elif kind == "tool_result":
                call_id = short_id(block.get("tool_use_id") or "(none)")
                failed = block.get("is_error") is True
                self.counts["error_results"] += failed
                status = "error" if failed else "ok"
                batch.answer(thread, native, call_id, status, text_of(block.get("content")), at_us, record.offset)
                tools.append({"result": call_id, "status": status})
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

    def _usage(
        self, record: Record, value: dict[str, Any], message: dict[str, Any], thread: Thread, batch: Batch, at_us: int
    ) -> None:
        usage, model = message.get("usage"), message.get("model")
        if not isinstance(usage, dict):
            return
        if model == SYNTHETIC:  # made by the client itself: no model has answered
            self.counts["synthetic_responses"] = self.counts.get("synthetic_responses", 0) + 1
            return
        response, request = message.get("id"), value.get("requestId")
        repeated = (id(batch), response, request, usage)
        if repeated == self.counted:  # the next block of the same response, as nearly always
            return
        self.counted = repeated
        known = f"{short_id(response)}:{short_id(request)}" if response or request else self._native(record, value)
        batch.use(
            Used(
                thread,
                f"claude-code:{known}",
                _str(model),
                number(usage.get("input_tokens")),
                number(usage.get("cache_read_input_tokens")),
                number(usage.get("cache_creation_input_tokens")),
                number(usage.get("output_tokens")),
                0,
                None,
                at_us,
            )
        )

    def _system(self, record: Record, value: dict[str, Any], batch: Batch) -> None:
        thread = self._thread(value)
        at_us = self.carry.get("at", 0)
        native = self._native(record, value)
        content = value.get("content")
        boundary = value.get("subtype") == "compact_boundary"
        if not boundary and not isinstance(content, str):
            return
        if not batch.facts.get(thread):
            self._known(thread, value, batch, at_us)
        text = content if isinstance(content, str) else "Conversation compacted"
        batch.say(thread, native, "system", text, at_us, record.offset, shown=boundary)
        if boundary:
            self.counts["compactions"] += 1
            facts = value.get("compactMetadata")
            kept = {name: facts[name] for name in ("trigger", "preTokens") if isinstance(facts, dict) and name in facts}
            batch.folded.append(Folded(thread, native, None, kept if _plain(kept) else None))

    def _summary(self, value: dict[str, Any], batch: Batch) -> None:
        """A title, often of another file's session: it belongs to the session of the leaf."""
        leaf, summary = value.get("leafUuid"), value.get("summary")
        if isinstance(leaf, str) and isinstance(summary, str) and summary:
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
    """The kind of a sub-agent, from the small file beside its transcript."""
    try:
        with open(path.removesuffix(".jsonl") + ".meta.json", "rb") as file:
            found = json.loads(file.read(65536)).get("agentType")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return found[:100] if isinstance(found, str) and found.isprintable() else None


def _str(value: Any) -> str | None:
    return short_id(value) if isinstance(value, str) and value else None


def _plain(value: dict[str, Any]) -> bool:
    return bool(value) and all(isinstance(item, str | int) for item in value.values())
