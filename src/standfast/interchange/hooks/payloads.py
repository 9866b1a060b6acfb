"""Turn the payload of any agent's hook into one record.

Agents use the same field names and different names for their events. All functions here are pure and never raise for
any payload. They redact and bound texts, so that neither the store nor the spool gets a secret of a known form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from standfast import serial
from standfast.models import Model

AGENTS = ("claude-code", "codex", "gemini-cli", "opencode")

PAYLOAD_MAX_BYTES = 4 << 20
"""A hook reads only the event and the session from a larger payload."""
INPUT_MAX = 64_000
"""A longer input is not stored here. The transcript has it."""
OUTPUT_MAX = 20_000
PROMPT_MAX = 20_000
ID_MAX = 200
SUMMARY_MAX = 200
DESCRIPTION_MAX = 1_000

# The kind of each event. Some kinds start a session, some end it, and the others occur within it.
KINDS = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "BeforeAgent": "prompt",
    "PreToolUse": "call",
    "BeforeTool": "call",
    "PostToolUse": "answer",
    "AfterTool": "answer",
    "PostToolUseFailure": "failure",
    "PermissionDenied": "denied",
    "Stop": "stop",
    "AfterAgent": "stop",
    "StopFailure": "stop",
    "agent-turn-complete": "stop",
    "SessionEnd": "end",
    "SubagentStart": "subagent_start",
    "SubagentStop": "subagent_stop",
    "PreCompact": "compact",
    "PostCompact": "compacted",
    "InstallCheck": "check",  # our own: `standfast install` asks whether the installed command reaches the store
}
# Gemini CLI sends PreCompress before every turn. The others repeat the facts of another event.
SILENT = frozenset(
    {"PreCompress", "BeforeModel", "AfterModel", "BeforeToolSelection", "MessageDisplay", "UserPromptExpansion"}
)
_FACTS = ("source", "model", "reason", "trigger", "permission_mode", "agent_type", "turn_id", "notification_type")
_SHELLS = frozenset({"Bash", "bash", "shell", "local_shell", "run_shell_command", "exec_command", "unified_exec"})


def word_set(words: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(words.split())


_RUNNING = word_set(
    "bash sh zsh fish powershell shell exec execute run runner command cmd terminal process spawn script ssh pty "
    "console subprocess invoke eval stdin keys keystrokes tmux repl kernel cell sandbox"
)
_COMMANDS = word_set(
    "command commands cmd cmds script scripts argv args arguments shell program executable code commandline "
    "command_line cmdline run exec stdin chars keys keystrokes"
)
# Tools that read or write files, or ask the user: their texts are no commands. `Task` starts an agent with own hooks.
_FILE_TOOLS = word_set(
    "Read Write Edit MultiEdit NotebookEdit Glob Grep LS WebFetch WebSearch Task Agent TodoWrite TodoRead ExitPlanMode "
    "AskUserQuestion Skill read write edit patch grep glob list webfetch websearch task todowrite todoread question "
    "read_file write_file replace search_file_content glob_files list_directory read_many_files web_fetch "
    "google_web_search save_memory apply_patch update_plan view_image"
)
ASKING = "claude-code"
"""The agent that can ask its user, see `can_ask`."""
# Claude Code in a terminal, in VS Code and on the desktop, where a person answers its prompts.
_PROMPTING = frozenset({"cli", "claude-vscode", "claude-desktop"})
# The LLM's description of a command, which differs on every call. Claude Code, Gemini CLI and Codex use these names.
_FREE_TEXT = ("description", "justification", "explanation")
_TELLING = ("command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "description", "prompt")
# Compiled on first use: most hooks need none of them.
_EXIT = r"(?i:(?:^|\n)\s*(?:(?:Command failed with )?exit code:?|Process exited with code) (-?\d{1,4})\b)"
_EVENT = rb'"hook_event_name"\s*:\s*"([A-Za-z]{1,40})"'
_SESSION = rb'"session_id"\s*:\s*"([\w.:-]{1,200})"'
_CWD = rb'"cwd"\s*:\s*"([^"\\]{1,1000})"'


class Heard(Model):
    """One record of a hook. Every field is valid JSON, because a spool stores each record as one line."""

    agent: str
    kind: str
    """A value of KINDS, or "other"."""
    name: str
    """The agent's own name of the event."""
    native: str
    """The agent's id of its session."""
    at_us: int
    cwd: str | None = None
    node: str | None = None
    """The agent's id of the sub-agent, if the event belongs to one."""
    call_id: str | None = None
    tool: str | None = None
    input: str | None = None
    output: str | None = None
    status: str | None = None
    exit_code: int | None = None
    duration_us: int | None = None
    summary: str | None = None
    facts: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The session's key. An import of the transcript uses the same key."""
        return f"{self.agent}:{self.native}"


class Asked(Model):
    """The action of a tool call in the form that gates compare. It is never stored."""

    tool: str
    input: Any
    command: str | list[str]
    cwd: str | None = None
    texts: tuple[str, ...] = ()
    """All other texts of the call that may run a command."""

    @property
    def action(self) -> Any:
        """The part of a call that a grant covers. For a command this is the input without the LLM's description."""
        if not self.command or not isinstance(self.input, dict):
            return self.input
        return {name: value for name, value in self.input.items() if name not in _FREE_TEXT}

    @property
    def description(self) -> str | None:
        """The LLM's description. The approver sees it, and the hash of the question leaves it out."""
        given = self.input if self.command and isinstance(self.input, dict) else {}
        found = next((given[name] for name in _FREE_TEXT if isinstance(given.get(name), str)), None)
        return fit(found)[:DESCRIPTION_MAX] if found else None


def parsed(data: bytes) -> dict[str, Any] | None:
    """The payload, or None. For a payload that is too large or cut off, only the fields at its beginning."""
    if len(data) <= PAYLOAD_MAX_BYTES:
        try:
            value = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return _beginning(data)
        return value if isinstance(value, dict) else None
    return _beginning(data)


def _beginning(data: bytes) -> dict[str, Any] | None:
    """The readable fields of a payload that does not parse, marked `unreadable`: gates cannot judge it."""
    found: dict[str, Any] = {}
    for name, pattern in (("hook_event_name", _EVENT), ("session_id", _SESSION), ("cwd", _CWD)):
        match = re.search(pattern, data[:100_000])
        if match is not None:
            found[name] = match[1].decode("utf-8", "replace")
    return {**found, "unreadable": True} if "hook_event_name" in found else None


def heard(agent: str, payload: dict[str, Any], at_us: int, *, redact: bool = True) -> Heard | None:
    """The record of a payload; None if there is nothing to record."""
    name = _word(payload.get("hook_event_name")) or _word(payload.get("type"))
    native = _word(payload.get("session_id")) or _word(payload.get("thread-id"))
    if not name or not native or name in SILENT or not native.isprintable():
        return None
    clean = _Cleaner(redact)
    cwd = payload.get("cwd")
    base = Heard(
        agent=agent,
        kind=KINDS.get(name, "other"),
        name=name,
        native=native,
        at_us=at_us,
        cwd=fit(cwd)[:1000] if isinstance(cwd, str) and cwd.startswith("/") else None,
        node=_word(payload.get("agent_id")),
        facts={field: _word(payload[field]) for field in _FACTS if _word(payload.get(field))},
    )
    if payload.get("unreadable"):
        return base.replace(summary=f"{name}: the payload was too large or cut off", kind=_safe_kind(base.kind))
    if base.kind in ("call", "answer", "failure", "denied"):
        return _called(base, payload, clean)
    return _said(base, payload, clean)


def asked(payload: dict[str, Any]) -> Asked | None:
    """The action for the gates. None if the event is no tool call or the payload cannot be read."""
    tool = payload.get("tool_name")
    if KINDS.get(str(payload.get("hook_event_name"))) != "call" or not isinstance(tool, str):
        return None
    return _asked(tool[:ID_MAX], payload)


def answered(payload: dict[str, Any]) -> Asked:
    """The call that this payload answers."""
    return _asked(_word(payload.get("tool_name")) or "?", payload)


def _asked(tool: str, payload: dict[str, Any]) -> Asked:
    given, cwd = payload.get("tool_input"), payload.get("cwd")
    there = fit(cwd) if isinstance(cwd, str) and cwd.startswith("/") else None
    return Asked(tool, given, command_of(given), there, texts_of(tool, given))


def asks(payload: dict[str, Any]) -> bool:
    """Whether an agent waits for the answer to a tool call."""
    return KINDS.get(str(payload.get("hook_event_name"))) == "call"


def can_ask(agent: str, environ: Mapping[str, str]) -> bool:
    """Whether the agent can ask its user in its own prompt. Only Claude Code with a person at the terminal can.

    `claude -p` and the SDKs set this variable to other values. They would refuse the call and not say how to continue.
    Codex ignores the answer "ask" and makes the call.
    """
    return agent == ASKING and environ.get("CLAUDE_CODE_ENTRYPOINT") in _PROMPTING


def command_of(given: Any) -> str | list[str]:
    """The command line, or the list of its words, in a tool's input; empty if it has none."""
    if isinstance(given, str):
        return given
    if isinstance(given, dict):
        for name in ("command", "cmd", "script"):
            value = given.get(name)
            if isinstance(value, str):
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                # `["bash", "-lc", "git push"]`: gates compare these words in the same way as a command line.
                return value
    return ""


def texts_of(tool: str, given: Any) -> tuple[str, ...]:
    """All other texts of a call that may run a command, from any field. A list of texts is joined to a command line."""
    if not isinstance(given, dict | list) or not _runs(tool, given):
        return ()
    command = command_of(given)
    found: list[str] = []
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            from shlex import join

            found.append(join(value))
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            known = value is given and tool in _SHELLS
            waiting += reversed(
                [one for name, one in value.items() if one != command and not (known and name in _FREE_TEXT)]
            )
    return tuple(found)


def _runs(tool: str, given: Any) -> bool:
    """Whether a call may run a command, by the words in the tool's name or by the names of its fields."""
    if tool in _FILE_TOOLS:
        return False
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", tool)
    if tool in _SHELLS or not _RUNNING.isdisjoint(word.lower() for word in words):
        return True
    waiting: list[Any] = [given]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if not _COMMANDS.isdisjoint(name.lower() for name in value if isinstance(name, str)):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def _called(base: Heard, payload: dict[str, Any], clean: _Cleaner) -> Heard:
    tool = _word(payload.get("tool_name")) or "?"
    given = payload.get("tool_input")
    call = base.replace(
        tool=tool,
        call_id=_word(payload.get("tool_use_id")) or _word(payload.get("call_id")),
        input=clean.input(given),
        summary=clean.line(call_summary(tool, given)),
    )
    if base.kind == "call":
        return call.replace(status="pending")
    answer = next((payload[name] for name in ("tool_response", "tool_output") if name in payload), None)
    error = next((payload[name] for name in ("error", "error_message", "denial_reason") if payload.get(name)), None)
    output = clean.text(_output(answer if answer is not None else error))
    status, code = _outcome(base, tool, answer, output, payload)
    duration = payload.get("duration_ms")
    return call.replace(
        kind="answer" if base.kind != "denied" else "denied",
        output=_cut(output, OUTPUT_MAX),
        status=status,
        exit_code=code,
        duration_us=int(duration * 1000) if isinstance(duration, int | float) and 0 <= duration < 1e9 else None,
    )


def _outcome(base: Heard, tool: str, answer: Any, output: str, payload: dict[str, Any]) -> tuple[str, int | None]:
    """The status and exit code of a call. A status that the agent does not report is `unknown`."""
    if base.kind == "denied":
        return "cancelled", None
    match = re.search(_EXIT, output[-2000:]) or re.search(_EXIT, output[:200])
    code = int(match[1]) if match and tool in _SHELLS else None
    fields = answer if isinstance(answer, dict) else {}
    for name in ("exit_code", "exitCode"):
        if isinstance(fields.get(name), int) and not isinstance(fields[name], bool) and abs(fields[name]) < 2**31:
            code = fields[name]
    if payload.get("is_interrupt") or fields.get("interrupted"):
        return "cancelled", code
    if base.kind == "failure" or fields.get("error") or fields.get("is_error"):
        return "error", code
    if code is not None:
        return ("ok" if code == 0 else "error"), code
    if base.agent == "codex" and tool in _SHELLS:
        return "unknown", None  # Codex reports the output of a shell and not its exit code
    return "ok", None


def _said(base: Heard, payload: dict[str, Any], clean: _Cleaner) -> Heard:
    facts = dict(base.facts or {})
    text = next((payload[name] for name in ("prompt", "prompt_text") if isinstance(payload.get(name), str)), None)
    if base.kind == "prompt" and text is not None:
        text = clean.text(text)
        facts["prompt"] = _cut(text, PROMPT_MAX)
        return base.replace(summary=serial.summary(text, SUMMARY_MAX), facts=facts)
    for name in ("message", "error", "error_type", "summary", "task_description", "title", "agent_transcript_path"):
        if isinstance(payload.get(name), str):
            facts[name] = _cut(clean.text(payload[name]), 1000)
    told = next(
        (facts[name] for name in ("message", "error", "source", "reason", "trigger", "agent_type") if name in facts), ""
    )
    return base.replace(summary=clean.line(f"{base.name} {told}".strip()), facts=facts)


def call_summary(tool: str, given: Any) -> str:
    """The tool and the most telling argument of a call."""
    value = given
    if isinstance(given, dict):
        value = next((given[name] for name in _TELLING if given.get(name)), "")
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return f"{tool} {value[:2000] if isinstance(value, str) else ''}".strip()


def fit(text: str) -> str:
    """The text as both engines can store it: no NUL, no lone surrogates."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class _Cleaner:
    """Redacts texts before they are cut, because half a secret has no known form."""

    def __init__(self, redact: bool) -> None:
        self._redact = redact

    def text(self, text: str) -> str:
        if self._redact:
            from standfast.serial.redaction import redacted

            text = redacted(text)
        return fit(text)

    def line(self, text: str) -> str:
        return serial.summary(text, SUMMARY_MAX)

    def input(self, given: Any) -> str | None:
        if given is None:
            return None
        text = given if isinstance(given, str) else _dumped(given)
        return None if len(text) > INPUT_MAX else self.text(text)


def _output(answer: Any) -> str:
    if answer is None or isinstance(answer, str):
        return answer or ""
    if isinstance(answer, dict):
        if isinstance(answer.get("stdout"), str):
            parts = [answer["stdout"], answer.get("stderr")]
            return "\n".join(part for part in parts if isinstance(part, str) and part)
        if isinstance(answer.get("llmContent"), str):
            return str(answer["llmContent"])
    return _dumped(answer)


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return "[too deep to be shown]"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n[cut: {len(text):,} characters]"


def _word(value: Any) -> str | None:
    """A printable text of at most ID_MAX characters; None for other values."""
    if not isinstance(value, str) or not value or len(value) > ID_MAX:
        return None
    return value if value.isprintable() else None


def _safe_kind(kind: str) -> str:
    """The kind of an unreadable payload. It still opens or leaves its session, and counts as no tool call."""
    return kind if kind in ("start", "stop", "end") else "other"
