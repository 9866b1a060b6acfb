"""Codex: rollouts, JSON lines, one file per thread.

    to 0.3x    bare items; the first line is the header; no time per row
    0.40 on    {timestamp, type, payload}
    0.16x on   the same with an `ordinal` without gaps, and usage per response

Codex writes every message twice: as an item of the model and as an event for the screen. The reader takes messages from
the items. From the events it takes exit codes, durations and running totals of tokens. A fork refers to the first
messages of its parent. An older fork repeats them, and repeated messages stay with the parent only. Rows that a
sub-agent inherited belong to the parent. Codex compresses old files, also while they are read.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from standfast import modules
from standfast.errors import InvalidInput
from standfast.interchange.hooks.payloads import word_set
from standfast.interchange.transcripts.files import (
    HEAD_BYTES,
    SIZE_UNKNOWN,
    Importer,
    Piece,
    Place,
    Reader,
    Record,
    pieces,
    walk,
)
from standfast.interchange.transcripts.model import (
    Batch,
    Folded,
    Spot,
    Thread,
    Used,
    integer,
    loaded,
    mapping,
    moment,
    name_of,
    number,
    short_id,
    text_of,
)

KNOWN_TYPES = word_set(
    "session_meta turn_context compacted world_state token_usage_record security_risk_score inter_agent_communication "
    "inter_agent_communication_metadata"
)
KNOWN_ITEMS = word_set(
    "message reasoning function_call function_call_output custom_tool_call local_shell_call custom_tool_call_output "
    "web_search_call tool_search_call tool_search_output agent_message image_generation_call compaction "
    "ghost_snapshot"
)
KNOWN_EVENTS = word_set(
    "task_started task_complete item_completed token_count turn_aborted thread_rolled_back thread_settings_applied "
    "user_message agent_message agent_reasoning exec_command_end patch_apply_end mcp_tool_call_end context_compacted "
    "entered_review_mode exited_review_mode web_search_end image_generation_end view_image_tool_call error "
    "undo_completed thread_name_updated thread_goal_updated turn.completed"
)

_FILE = re.compile(r"(?:^|/)[^/]*\.jsonl(?:\.zst)?$")
_IN_NAME = re.compile(r"rollout-[\dT-]{19}-([0-9a-fA-F-]{36})(?:_[^/]*)?\.jsonl")
_EXITED = re.compile(r"^Process exited with code (-?\d{1,9})$", re.MULTILINE)
_NOT_THE_PERSON = ("<environment_context>", "# AGENTS.md instructions", "<skills_instructions>", "<user_instructions>")


COUNTED = (
    *("input_tokens", "cached_input_tokens", "cache_write_input_tokens"),
    *("output_tokens", "reasoning_output_tokens"),
)
"""The fields of a running total."""


class Codex(Importer):
    agent = "codex"
    version = 2
    """2: a running total that falls is a new counter. Version 1 read such totals wrongly, so its files are read
    again."""
    copies = True

    def roots(self, environ: Mapping[str, str]) -> list[str]:
        home = environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
        return [os.path.join(home, name) for name in ("sessions", "archived_sessions")]

    def find(self, root: str) -> Iterator[str]:
        """Each rollout once, by its name without `.zst`, the oldest first."""
        plain = {path.removesuffix(".zst") for path in walk(root, _FILE)}
        yield from self.in_order(list(plain))

    def in_order(self, paths: list[str]) -> list[str]:
        """Sort files by the time in their names, so that a fork comes after its parent, also from another
        directory."""
        return sorted(paths, key=lambda path: (os.path.basename(path), path))

    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        return _Reader(path, carry, counts)

    def look(self, path: str, head_bytes: int | None = None) -> Place:
        if os.path.exists(path):
            return super().look(path, head_bytes)
        import hashlib

        found = os.stat(path + ".zst")
        with _unpacked(path + ".zst") as file:
            head = file.read(HEAD_BYTES if head_bytes is None else head_bytes)
        # The unpacked size is known only after unpacking. SIZE_UNKNOWN is larger than any position, so the import
        # reads until the file ends.
        digest = f"{len(head)}:{hashlib.sha256(head).hexdigest()}"
        return Place(f"zst:{found.st_size}", digest, SIZE_UNKNOWN, found.st_mtime_ns // 1000)

    def pieces(self, path: str, start: int, carry: Mapping[str, Any], *, redact: bool) -> Iterator[Piece]:
        for _ in range(3):  # Codex may pack or unpack the file between `exists` and `open`
            try:
                with open(path, "rb") if os.path.exists(path) else _unpacked(path + ".zst") as file:
                    _skip(file, start)
                    yield from pieces(file, start, redact=redact)
                return
            except FileNotFoundError:
                continue
        raise FileNotFoundError(2, "it was moved while it was read", path)


def _unpacked(path: str) -> IO[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # Python 3.14

        opened: IO[bytes] = zstd.open(path, "rb")
        return opened
    except ImportError:
        pass
    try:
        import zstandard  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise InvalidInput(f"{path} is compressed with zstd", modules.install("zstd")) from None
    return io.BufferedReader(zstandard.open(path, "rb"))


def _skip(file: IO[bytes], count: int) -> None:
    if file.seekable():
        try:
            file.seek(count)
            return
        except (OSError, ValueError):
            pass
    while count > 0 and (got := len(file.read(min(count, 1 << 20)))):
        count -= got


class _Reader(Reader):
    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        super().__init__(path, carry, counts)
        counts.setdefault("compactions", 0)
        named = _IN_NAME.search(path)
        self.fallback = named.group(1) if named else short_id(os.path.basename(path).removesuffix(".jsonl"))

    @property
    def id(self) -> str:
        """The id of the thread that this file records."""
        found: str = self.carry.get("thread") or self.fallback
        return found

    @property
    def native_id(self) -> str | None:
        return self.thread.native

    @property
    def thread(self) -> Thread:
        root = self.carry.get("root")
        return Thread(root, name_of(self.id)) if root and root != self.id else Thread(self.id)

    def read(self, record: Record, batch: Batch) -> None:
        value = record.value
        if not isinstance(value, dict):
            self.count("(not an object)", known=False)
            return
        payload = value.get("payload")
        at_us = moment(value.get("timestamp")) or moment(value.get("created_at"))
        if at_us is not None:
            self.carry["at"] = at_us
            batch.at(at_us)
        if not isinstance(payload, dict):
            self._bare(record, value, batch)
            return
        type = short_id(value.get("type"))
        kind = short_id(payload.get("type"))
        if type == "response_item":
            self.count(f"{type}/{kind}", known=kind in KNOWN_ITEMS)
            self._item(record, value, payload, kind, batch)
        elif type == "event_msg":
            item = payload.get("item")
            name = f":{short_id(item.get('type'))}" if kind == "item_completed" and isinstance(item, dict) else ""
            self.count(f"{type}/{kind}{name}", known=kind in KNOWN_EVENTS)
            self._event(record, payload, kind, batch)
        else:
            self.count(type, known=type in KNOWN_TYPES)
            self._other(record, value, payload, type, batch)

    def _bare(self, record: Record, value: dict[str, Any], batch: Batch) -> None:
        """A row of the first era: an item without envelope, a state, or the header."""
        if "record_type" in value:
            self.count(f"legacy:{short_id(value['record_type'])}", known=True)
        elif isinstance(value.get("type"), str):
            kind = short_id(value["type"])
            self.count(f"legacy:{kind}", known=kind in KNOWN_ITEMS)
            self._item(record, value, value, kind, batch)
        else:
            self.count("legacy:header", known=True)
            if isinstance(value.get("id"), str) and "thread" not in self.carry:
                self._begin(value, batch)
            elif isinstance(value.get("role"), str):
                text = text_of(value.get("content") or value.get("message"))
                self._say(self._spot(record, value, {}), value["role"], text, batch)

    # -- file header -----------------------------------------------------------------------------------------

    def _begin(self, meta: dict[str, Any], batch: Batch) -> None:
        """Only the first header counts: a fork repeats the headers of its parent."""
        carry = self.carry
        carry["thread"] = short_id(meta.get("id"))
        parent, root = meta.get("parent_thread_id"), meta.get("session_id")
        spawn = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
        parent = parent or spawn.get("parent_thread_id")
        if parent:
            carry["root"] = short_id(root or parent)
        forked = meta.get("forked_from_id")
        if forked:
            carry["copy_of"] = short_id(forked)
        start = meta.get("subagent_history_start_ordinal")
        if isinstance(start, int):
            carry["inherited_before"] = start
        git = mapping(meta.get("git"))
        titles = [spawn.get("agent_nickname"), f"({spawn['agent_role']})" if spawn.get("agent_role") else None]
        batch.know(
            self.thread,
            cwd=_str(meta.get("cwd")),
            version=_str(meta.get("cli_version")),
            branch=_str(git.get("branch")),
            origin=_str(git.get("repository_url")),
            started_us=moment(meta.get("timestamp")),
            title=" ".join(short_id(title) for title in titles if title) or None,
            forked_from=short_id(forked) if forked else None,
        )

    def _other(self, record: Record, value: dict[str, Any], payload: dict[str, Any], type: str, batch: Batch) -> None:
        if type == "session_meta":
            if "thread" not in self.carry:
                self._begin(payload, batch)
        elif type == "turn_context":
            self.carry["model"] = _str(payload.get("model")) or self.carry.get("model")
        elif type == "compacted":
            self.counts["compactions"] += 1
            text = payload.get("message")
            text = text if isinstance(text, str) else ""
            spot = self._spot(record, value, {})
            batch.say(spot, "summary", text)
            batch.folded.append(Folded(spot.thread, spot.native, text, None))
        elif type == "token_usage_record":
            self._response(payload, batch)

    # -- messages and calls ----------------------------------------------------------------------------------

    def _item(self, record: Record, value: dict[str, Any], item: dict[str, Any], kind: str, batch: Batch) -> None:
        ordinal = value.get("ordinal")
        if isinstance(ordinal, int) and ordinal < self.carry.get("inherited_before", 0):
            self.counts["inherited"] = self.counts.get("inherited", 0) + 1
            return
        spot = self._spot(record, value, item)
        if kind == "message":
            role, text = short_id(item.get("role") or "user"), text_of(item.get("content"))
            self._say(spot, "system" if role == "user" and _injected(item, text) else role, text, batch)
        elif kind == "agent_message":
            self._say(spot, "assistant", text_of(item.get("content") or item.get("message")), batch)
        elif kind == "reasoning":
            if text := text_of(item.get("summary")):
                batch.say(spot, "reasoning", text, shown=False)
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            self._call(spot, item, kind, batch)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._answer(spot, item, batch)
        elif kind in ("web_search_call", "tool_search_call", "tool_search_output", "image_generation_call"):
            batch.refer(spot, {"tool": kind, "status": _str(item.get("status"))})

    def _say(self, spot: Spot, role: str, text: str, batch: Batch) -> None:
        batch.say(spot, role, text, shown=role in ("user", "assistant"))

    def _call(self, spot: Spot, item: dict[str, Any], kind: str, batch: Batch) -> None:
        given = item.get("arguments", item.get("input", item.get("action")))
        arguments = loaded(given) if kind == "function_call" else given
        name = item.get("name") or mapping(item.get("function")).get("name")
        tool = name or ("local_shell" if kind == "local_shell_call" else None)
        batch.refer(spot, batch.call(spot, item.get("call_id") or item.get("id") or spot.native, tool, arguments))

    def _answer(self, spot: Spot, item: dict[str, Any], batch: Batch) -> None:
        output, exit_code, failed = _outcome(item.get("output"))
        status = "error" if failed or exit_code not in (None, 0) else "ok"
        batch.refer(spot, batch.answer(spot, item.get("call_id") or "(none)", status, output, exit_code=exit_code))

    def _event(self, record: Record, payload: dict[str, Any], kind: str, batch: Batch) -> None:
        """Read from an event only the facts that no item has: the end of a command, the running total, the title."""
        item = mapping(payload.get("item"))
        if kind == "item_completed" and item.get("type") == "CommandExecution":
            self._ended(record, item, item.get("id"), batch)
        elif kind in ("exec_command_end", "patch_apply_end", "mcp_tool_call_end"):
            self._ended(record, payload, payload.get("call_id"), batch)
        elif kind == "token_count":
            self._total(payload, batch)
        elif kind == "thread_name_updated" and _str(payload.get("thread_name")):
            batch.know(self.thread)
            batch.titles.append((None, self.thread, str(payload["thread_name"])))

    def _ended(self, record: Record, item: dict[str, Any], call_id: Any, batch: Batch) -> None:
        if not isinstance(call_id, str) or not call_id:
            return
        code, success = integer(item.get("exit_code")), item.get("success")
        if code is None and not isinstance(success, bool):
            return
        batch.know(self.thread)
        status = "ok" if code == 0 or (code is None and success is True) else "error"
        batch.outcome(self.thread, call_id, status, record.offset, exit_code=code, duration_us=_duration_us(item))

    # -- usage -----------------------------------------------------------------------------------------------

    def _response(self, payload: dict[str, Any], batch: Batch) -> None:
        usage = payload.get("usage")
        if not isinstance(usage, dict):
            return
        batch.know(self.thread)
        if not self.carry.get("by_response"):
            self.carry["by_response"] = True
            batch.dropped.append(f"codex:{self.id}:total")
            batch.used.pop(f"codex:{self.id}:total", None)
        batch.use(self._used(f"codex:{self.id}:{short_id(payload.get('response_id'))}", usage))

    def _total(self, payload: dict[str, Any], batch: Batch) -> None:
        """Use the running total of the file, unless the file counts each response.

        A resumed session starts a new counter at 0. When the total falls, the last total of the old counter is added
        to all totals of the new one. `carry` keeps both, so an import can end between two totals.
        """
        total = mapping(payload.get("info")).get("total_token_usage")
        if not isinstance(total, dict) or self.carry.get("by_response"):
            return
        now = {name: number(total.get(name)) for name in COUNTED}
        last = self.carry.get("counter", {})
        if _fell(last, now):
            before = self.carry.get("counters_before", {})
            self.carry["counters_before"] = {name: before.get(name, 0) + last.get(name, 0) for name in COUNTED}
        self.carry["counter"] = now
        before = self.carry.get("counters_before", {})
        whole = {name: before.get(name, 0) + now[name] for name in COUNTED}
        batch.know(self.thread)
        batch.use(self._used(f"codex:{self.id}:total", whole, last_wins=True))

    def _used(self, response: str, usage: dict[str, Any], *, last_wins: bool = False) -> Used:
        return Used(
            self.thread,
            response,
            self.carry.get("model"),
            number(usage.get("input_tokens")),
            number(usage.get("cached_input_tokens")),
            number(usage.get("cache_write_input_tokens")),
            number(usage.get("output_tokens")),
            number(usage.get("reasoning_output_tokens")),
            None,
            self._at(),
            last_wins=last_wins,
        )

    # -- names -----------------------------------------------------------------------------------------------

    def _at(self) -> int:
        found: int = self.carry.get("at", 0)
        return found

    def _spot(self, record: Record, value: dict[str, Any], item: dict[str, Any]) -> Spot:
        """The identity of a row: its id, else its ordinal, else its offset. It is the same in every copy of the
        file."""
        id, ordinal = item.get("id"), value.get("ordinal")
        if isinstance(id, str) and id:
            own = short_id(id)
        else:
            own = f"#{ordinal}" if isinstance(ordinal, int) else f"@{record.offset}"
        return Spot(self.thread, f"codex:{self.id}:{own}", self._at(), record.offset)


def _fell(last: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether a new counter began: a running total never falls."""
    return now["input_tokens"] + now["output_tokens"] < last.get("input_tokens", 0) + last.get("output_tokens", 0)


def _injected(item: dict[str, Any], text: str) -> bool:
    """Whether Codex itself wrote this message of the role `user`."""
    kinds = mapping(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")
    if isinstance(kinds, list) and kinds:
        return not any(isinstance(kind, str) and kind.startswith("user.") for kind in kinds)
    return text.lstrip().startswith(_NOT_THE_PERSON)


def _outcome(output: Any) -> tuple[str, int | None, bool]:
    """The output as text, the exit code, and whether the call failed. Older files have the exit code in the text."""
    failed = False
    code = None
    if isinstance(output, dict):
        failed = output.get("success") is False
        output = output.get("content")
    text = text_of(output)
    if text.startswith("{"):
        inner = mapping(loaded(text))
        if isinstance(inner.get("metadata"), dict):
            code = integer(inner["metadata"].get("exit_code"))
            text = inner["output"] if isinstance(inner.get("output"), str) else text
    elif found := _EXITED.search(text[:2000]):
        code = int(found.group(1))
    return text, code, failed


def _duration_us(item: dict[str, Any]) -> int | None:
    duration = item.get("duration") or item.get("duration_ms")
    if isinstance(duration, dict):
        secs, nanos = number(duration.get("secs")), number(duration.get("nanos"))
        return secs * 1_000_000 + nanos // 1000
    if isinstance(duration, int | float) and 0 <= duration < 1e12:
        return round(duration * 1000)
    return None


def _str(value: Any) -> str | None:
    return value[:1000] if isinstance(value, str) and value and value.isprintable() else None
