"""The real agents from npm (Claude Code, Codex, Gemini CLI and opencode) with an LLM server on the loopback.

`standfast install` installs our hooks. The agent runs one prompt, and the LLM asks for one shell command. The store
must then have the session, the prompt and the tool call. Next a gate is added, the LLM asks for a gated command, and
the agent must not run it. Finally, importing the transcript must add no second row.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "standfast")
PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini-cli": "@google/gemini-cli",
    "opencode": "opencode-ai",
}
COMMANDS = {"claude-code": "claude", "codex": "codex", "gemini-cli": "gemini", "opencode": "opencode"}
PROVIDER = "@ai-sdk/openai-compatible"
INSTALL_MAX_S = 600
RUN_MAX_S = 180


class Model(ThreadingHTTPServer):
    """An LLM server that asks for one command and accepts any answer."""

    command = "true"


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._send(b'{"data": [], "models": []}', "application/json")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        assert isinstance(self.server, Model)
        if "count_tokens" in self.path:
            self._send(b'{"input_tokens": 1}', "application/json")
            return
        ways = {"/responses": _codex, "/messages": _claude, "/chat/completions": _opencode}
        how = next((way for part, way in ways.items() if part in self.path), _gemini)
        self._send(how(body, self.server.command).encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _codex(body: dict[str, Any], command: str) -> str:
    item: dict[str, Any]
    if any(one.get("type") == "function_call_output" for one in body.get("input", [])):
        text = {"type": "output_text", "text": "Done."}
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": [text]}
    else:
        names = [tool.get("name") for tool in body.get("tools", [])]
        tool, given = ("exec_command", {"cmd": command})
        if tool not in names:
            tool, given = "shell_command", {"command": command}
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": tool,
            "arguments": json.dumps(given),
        }
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _claude(body: dict[str, Any], command: str) -> str:
    parts = [part for one in body.get("messages", []) if isinstance(one["content"], list) for part in one["content"]]
    able = any(tool.get("name") == "Bash" for tool in body.get("tools", []))
    asks = able and not any(part.get("type") == "tool_result" for part in parts)
    begin: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "Done."}
    if asks:
        begin = {"type": "tool_use", "id": "toolu_01", "name": "Bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps({"command": command, "description": "x"})}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
    }
    stop = {"stop_reason": "tool_use" if asks else "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": begin},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def _opencode(body: dict[str, Any], command: str) -> str:
    able = any(tool["function"]["name"] == "bash" for tool in body.get("tools", []))
    asks = able and not any(one.get("role") == "tool" for one in body.get("messages", []))
    delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if asks:
        given = json.dumps({"command": command, "description": "x"})
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "bash", "arguments": given}}
        delta = {"role": "assistant", "tool_calls": [call]}
    ends = [(delta, None), ({}, "tool_calls" if asks else "stop")]
    chunks = [
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": one, "finish_reason": end}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        for one, end in ends
    ]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _gemini(body: dict[str, Any], command: str) -> str:
    answered = any("functionResponse" in part for one in body.get("contents", []) for part in one.get("parts", []))
    call = {"functionCall": {"name": "run_shell_command", "args": {"command": command}}}
    part = {"text": "Done."} if answered else call
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return f"data: {json.dumps({'candidates': [candidate], 'usageMetadata': usage})}\n\n"


class World(NamedTuple):
    place: Path
    port: int

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def project(self) -> Path:
        return self.place / "project"

    def environment(self) -> dict[str, str]:
        foreign = ("PYTHON", "STANDFAST_", "CLAUDE", "ANTHROPIC", "CODEX", "GEMINI", "OPENCODE", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        ours = {"HOME": str(self.home), "STANDFAST_DATA_DIR": str(self.place / "data"), "MOCK_KEY": "x"}
        claude = {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            "ANTHROPIC_API_KEY": "x",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        model = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{self.port}"}
        ours["PWD"] = str(self.project)  # opencode uses this variable, not the directory in which it was started
        return {**kept, **ours, **claude, **model, "GEMINI_CLI_TRUST_WORKSPACE": "true"}

    def standfast(self, *words: str) -> None:
        ran = subprocess.run(
            [PROGRAM, *words], env=self.environment(), cwd=self.project, capture_output=True, text=True
        )
        if ran.returncode != 0:
            raise RuntimeError(f"standfast {' '.join(words)}: {ran.stderr}")

    def run(self, agent: str) -> str:
        program = str(self.place / "npm" / "node_modules" / ".bin" / COMMANDS[agent])
        words = {
            "claude-code": ["-p", "list the files", "--allowedTools", "Bash", "--model", "claude-sonnet-4-5"],
            "codex": [
                *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
                *("--dangerously-bypass-hook-trust", "list the files"),
            ],
            "opencode": ["run", "-m", "mock/m", "list the files"],
            "gemini-cli": ["--yolo", "-m", "gemini-2.5-flash", "-p", "list the files"],
        }[agent]
        ran = subprocess.run(
            [program, *words],
            env=self.environment(),
            cwd=self.project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_MAX_S,
        )
        return ran.stdout + ran.stderr


def run(seed: int) -> Outcome:
    """Run each agent twice. Unavailable without npm or its registry.

    The directory is on disk, not in /tmp, because a sandbox replaces /tmp or makes it writable.
    """
    with tempfile.TemporaryDirectory(prefix=f"standfast-prove-{seed}-", dir="/var/tmp") as place:
        return _run(Path(place))


def _run(place: Path) -> Outcome:
    outcome = Outcome("agents")
    server = Model(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        world = World(place, server.server_port)
        _prepare(world)
        for agent in PACKAGES:
            _one(world, server, agent, outcome)
    finally:
        server.shutdown()
    return outcome


def _prepare(world: World) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not here")
    world.home.mkdir()
    world.project.mkdir()
    got = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--prefix", str(world.place / "npm"), *PACKAGES.values()],
        capture_output=True,
        text=True,
        timeout=INSTALL_MAX_S,
    )
    if got.returncode != 0:
        raise Unavailable(f"npm cannot install them: {got.stderr.strip()[-200:]}")
    subprocess.run(["git", "init", "-q", "."], cwd=world.project, check=True)
    (world.home / ".codex").mkdir()
    (world.home / ".codex" / "config.toml").write_text(
        f'model = "mock"\nmodel_provider = "mock"\n[model_providers.mock]\nname = "mock"\n'
        f'base_url = "http://127.0.0.1:{world.port}/v1"\nwire_api = "responses"\nenv_key = "MOCK_KEY"\n'
    )
    (world.home / ".claude").mkdir()
    options = {"baseURL": f"http://127.0.0.1:{world.port}/v1", "apiKey": "x"}
    provider = {"npm": PROVIDER, "name": "mock", "options": options, "models": {"m": {"name": "m", "tool_call": True}}}
    (world.home / ".config" / "opencode").mkdir(parents=True)
    (world.home / ".config" / "opencode" / "opencode.json").write_text(
        json.dumps({"provider": {"mock": provider}, "permission": {"*": "allow"}})
    )
    (world.home / ".gemini").mkdir()
    (world.home / ".gemini" / "settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')


def _one(world: World, server: Model, agent: str, outcome: Outcome) -> None:
    world.standfast("install", agent)
    server.command = "echo hi > made.txt"
    said = world.run(agent)
    outcome.refuse(not (world.project / "made.txt").exists(), f"{agent} did not run the command: {said[-1500:]}")
    (world.project / "made.txt").unlink(missing_ok=True)
    before = _told(world, agent)
    expected = ["agent.started", "prompt.submitted", "tool.called", "tool.answered", "turn.ended"]
    for type in expected if agent == "opencode" else [*expected, "agent.ended"]:  # its sessions have no end event
        outcome.refuse(before.count(type) != 1, f"{agent}: {type} is in the journal {before.count(type)} times")
    outcome.count(f"{agent}: events from its hooks", len(before))
    world.standfast("gate", "add", "release-it*")
    server.command = "release-it; echo released > released.txt"
    said = world.run(agent)
    outcome.refuse((world.project / "released.txt").exists(), f"{agent} ran what a gate holds")
    outcome.refuse("gate.held" not in _told(world, agent), f"{agent}: no gate has held anything: {said[-1500:]}")
    outcome.count(f"{agent}: calls held by a gate")
    world.standfast("import", agent)
    with standfast.open(data_dir=world.place / "data") as sf:
        sessions = [one for one in sf.sessions.list(everywhere=True, limit=100) if one.agent == agent]
        outcome.refuse(len(sessions) != 2, f"{agent}: {len(sessions)} sessions after hooks and import, not 2")
        for session in sessions:
            calls = list(sf.rows("SELECT call_id FROM tool_call WHERE session_id = :id", {"id": session.id}))
            outcome.refuse(len(calls) != 1, f"{agent}: {len(calls)} rows for one tool call")
    if agent == "codex":
        _sandboxed(world, outcome)
    world.standfast("install", agent, "--remove")


def _sandboxed(world: World, outcome: Outcome) -> None:
    """The hook in Codex's sandbox cannot write the store. It writes the spool, which is drained into the store once."""
    payload = {
        "session_id": "boxed",
        "cwd": str(world.project),
        "hook_event_name": "UserPromptSubmit",
        "prompt": "boxed",
    }
    program = str(world.place / "npm" / "node_modules" / ".bin" / "codex")
    line = f"{PROGRAM} hook codex"
    ran = subprocess.run(
        [program, "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", "/bin/sh", "-c", line],
        input=json.dumps(payload),
        env=world.environment(),
        cwd=world.project,
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
    )
    spooled = any((world.project / ".standfast" / "spool").glob("*"))
    for _ in range(2):
        world.standfast("status")
    with standfast.open(data_dir=world.place / "data") as sf:
        rows = list(sf.rows("SELECT source FROM event WHERE type = 'prompt.submitted' AND summary = 'boxed'"))
    outcome.refuse([row["source"] for row in rows] != ["seen"], f"codex's sandbox: {rows}; {ran.stderr[-500:]}")
    outcome.count("codex: records that came home from its sandbox by the spool", int(spooled))


def _told(world: World, agent: str) -> list[str]:
    """The event types of the agent's hooks."""
    with standfast.open(data_dir=world.place / "data") as sf:
        rows = sf.rows(
            "SELECT e.type FROM event e JOIN session s ON s.id = e.session_id"
            " WHERE s.agent = :agent AND e.source = 'seen'",
            {"agent": agent},
        )
        return [row["type"] for row in rows]
