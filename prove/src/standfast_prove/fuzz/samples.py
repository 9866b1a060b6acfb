"""Valid inputs, which `garbage` mutates."""

from __future__ import annotations

import json
from typing import Any

FLEET: dict[str, Any] = {
    "tasks": [
        {"title": "fix the parser", "priority": 1, "labels": ["ci"]},
        {"title": "write the docs", "body": "all of them", "needs": ["fix the parser"]},
    ],
    "loops": [{"name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "command": ["make", "test"]}],
    "state": [{"key": "mode", "value": {"depth": [1, 2.5, None]}, "namespace": "fleet"}],
    "gates": [{"pattern": "git push*", "need": "approval", "why": "people read it first"}],
}

HOOK: dict[str, Any] = {
    "session_id": "11111111-2222-4333-8444-555555555555",
    "hook_event_name": "PostToolUse",
    "cwd": "/",
    "tool_name": "Bash",
    "tool_use_id": "toolu_1",
    "tool_input": {"command": "make test", "timeout": 60},
    "tool_response": {"stdout": "1 failed", "stderr": "", "interrupted": False},
    "transcript_path": "/nowhere/session.jsonl",
    "permission_mode": "default",
}


def _lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


_AT = "2026-11-10T03:00:00.000Z"
_CLAUDE = {"timestamp": _AT, "sessionId": HOOK["session_id"], "version": "2.1.38"}

TRANSCRIPTS: tuple[tuple[str, str, bytes], ...] = (
    (
        "claude-code",
        "{number:08d}-2222-4333-8444-555555555555.jsonl",
        _lines(
            {**_CLAUDE, "type": "user", "uuid": "u1", "message": {"role": "user", "content": "why is it red?"}},
            {
                **_CLAUDE,
                "type": "assistant",
                "uuid": "a1",
                "message": {
                    "role": "assistant",
                    "id": "msg_1",
                    "model": "m",
                    "usage": {"input_tokens": 7, "output_tokens": 5},
                    "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make"}}],
                },
            },
            {
                **_CLAUDE,
                "type": "user",
                "uuid": "r1",
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}],
                },
            },
        ),
    ),
    (
        "codex",
        "rollout-2026-11-10T03-00-00-{number:08d}-2222-4333-8444-555555555555.jsonl",
        _lines(
            {"timestamp": _AT, "type": "session_meta", "payload": {"id": "s", "cli_version": "0.166.0"}},
            {
                "timestamp": _AT,
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            },
            {
                "timestamp": _AT,
                "type": "response_item",
                "payload": {"type": "function_call", "call_id": "c", "name": "shell", "arguments": '{"command": "ls"}'},
            },
            {
                "timestamp": _AT,
                "type": "response_item",
                "payload": {"type": "function_call_output", "call_id": "c", "output": "a b"},
            },
        ),
    ),
    (
        "json",
        "session-{number}.json",
        json.dumps(
            {
                "key": "nightly",
                "messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}],
                "decisions": [{"what": "wait", "why": "it rains"}],
                "state": {"mode": 1},
            }
        ).encode(),
    ),
)

COMMANDS = (
    "status --json",
    "where",
    "brief --max-tokens 500",
    "session open fix-42 --agent ada",
    "session list --limit 5 --json",
    "session show fix-42",
    "session end fix-42",
    "effect begin pay --key k1 --json",
    "effect done k1 --result 1",
    "effect fail k1 --why refused",
    "effect list --state dispatched",
    "effect resolve k1 --applied --evidence seen",
    "decide wait --why rain --then walk",
    "decision list --tag ci",
    "decision done wait --outcome dry",
    "task add parser --priority 1 --label ci",
    "task list --state open --label ci",
    "task claim --for 30m --json",
    "task done parser --result 1",
    "task note parser hello",
    "task snooze parser --for 1h",
    "task sweep lint --seen parser",
    "state set mode 1 --namespace fleet",
    "state get mode --namespace fleet",
    "state swap mode 2 --version 1",
    "state list",
    "event append s said --data 1",
    "event list s --limit 3",
    "event consume reader s",
    "mail send bob hello --key m1 --priority 1",
    "mail list bob",
    "mail read --json",
    "mail done m1",
    "loop add nightly --every 15m -- true",
    "loop list",
    "loop runs nightly --since 1d",
    "loop pause nightly --reason rain",
    "agent list",
    "agent set ada --status idle",
    "lock deploy --for 30m",
    "webhook receive shop --event-id e1 --payload 1",
    "webhook list --source shop",
    "webhook claim --source shop",
    "budget set team --tokens 1000 --per day",
    "budget reserve team --tokens 10 --key call:1",
    "budget holds team",
    "credit grant ada 5 --key monthly:invoice_1",
    "credit spend ada 3 --key use:1",
    "credit balance ada",
    "approval request k1 --why now",
    "approval list",
    "gate add git --need approval",
    "gate list",
    "gate test git",
    "timeline --at now --window 1h",
    "search parser --since 1d --limit 3",
    "artifact list",
    "artifact show art_1",
    "verify 1:h1:00",
    "sql SELECT",
    "doctor",
    "apply fleet.toml --key k --dry-run",
    "completion bash",
    "help task",
)

REQUESTS: tuple[dict[str, Any], ...] = tuple(
    {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    for method, params in (
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/read", {"uri": "standfast://brief"}),
        *(
            ("tools/call", {"name": name, "arguments": arguments})
            for name, arguments in (
                ("brief", {"max_tokens": 300}),
                ("search", {"words": "parser", "limit": 3}),
                ("decide", {"what": "wait", "why": "rain", "key": "d1"}),
                ("effect_begin", {"tool": "pay", "intent": {"amount": 5}, "key": "k1"}),
                ("effect_done", {"effect": "k1", "outcome": "done", "result": 1}),
                ("approval_request", {"effect": "k1", "why": "large"}),
                ("task_add", {"title": "parser", "key": "t1"}),
                ("task_claim", {"key": "c1"}),
                ("task_done", {"task": "parser", "key": "c2"}),
                ("mail_send", {"to": "bob", "body": "hello", "key": "m1"}),
                ("mail_read", {"done": []}),
            )
        ),
    )
)
