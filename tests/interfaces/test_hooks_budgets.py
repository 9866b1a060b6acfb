"""Hooks count the usage of Claude Code and Codex after the fact: they warn, or block when asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.cli import hook
from standfast.interchange.hooks import limits
from standfast.interchange.hooks.payloads import Asked
from tests.hooks import bash, payload


class Agent:
    """Claude Code or Codex with a transcript. Its hooks run in this process, without a deadline."""

    def __init__(self, kind: str, url: str, tmp_path: Path) -> None:
        self.kind, self.url, self.data = kind, url, tmp_path / "data"
        self.transcript, self.lines = tmp_path / f"rollout-{SESSION}.jsonl", 0
        if kind == "codex":
            self._write({"type": "session_meta", "payload": {"id": SESSION, "cwd": "/"}})
        with self.store() as sf:
            sf.budgets.set(f"agent:{kind}", tokens=1000, per="day")

    def store(self) -> standfast.Standfast:
        return standfast.open(self.url, data_dir=self.data)

    def uses(self, tokens: int) -> None:
        """The LLM answers, and the agent writes the usage into its transcript."""
        self.lines += 1
        if self.kind == "codex":
            total = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": tokens, "reasoning_output_tokens": 0}
            info = {"total_token_usage": total, "last_token_usage": total}
            self._write({"type": "event_msg", "payload": {"type": "token_count", "info": info}})
            return
        usage = {"input_tokens": tokens - 10, "output_tokens": 10}
        message = {"id": f"m{self.lines}", "role": "assistant", "model": "m", "usage": usage, "content": []}
        self._write({"type": "assistant", "uuid": f"u{self.lines}", "sessionId": SESSION, "message": message})

    def _write(self, record: dict[str, Any]) -> None:
        with self.transcript.open("a") as file:
            file.write(json.dumps({"timestamp": f"2026-11-18T10:00:{self.lines:02}.000Z", **record}) + "\n")

    def tell(self, given: dict[str, Any]) -> dict[str, Any]:
        """Run a hook and return its answer."""
        given = {**given, "session_id": SESSION, "transcript_path": str(self.transcript)}
        said = hook.Hearing(self.kind, given, hook.Watch(self.kind)).said()
        return json.loads(said) if said else {}

    def prompt(self) -> dict[str, Any]:
        return self.tell(payload("UserPromptSubmit", prompt="go on"))

    def call(self, command: str, id: str) -> str:
        """The reason why the call is refused, or "" if it passes."""
        said = self.tell(bash("PreToolUse", command, id=id)).get("hookSpecificOutput", {})
        return str(said.get("permissionDecisionReason", ""))

    def waits(self) -> list[str]:
        found: list[str] = json.loads((self.data / "attention.json").read_text())["agents"][f"{self.kind}:{SESSION}"][
            "waits"
        ]
        return found

    def spent(self) -> int | None:
        with self.store() as sf:
            return sf.budgets.get(f"agent:{self.kind}").spent.tokens


SESSION = "0199f2a4-0000-7000-8000-000000000001"


@pytest.fixture(autouse=True)
def _patient(engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(hook, "WAIT_S", 50.0)
    monkeypatch.setattr(hook, "DEADLINE_S", 1e6)


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_usage_is_counted_after_the_fact_and_an_exhausted_budget_warns_once(
    kind: str, engine_url: str, tmp_path: Path
) -> None:
    agent = Agent(kind, engine_url, tmp_path)
    agent.uses(700)
    assert agent.prompt() == {}
    assert (agent.spent(), agent.waits()) == (700, [])
    agent.uses(1300 if kind == "codex" else 600)
    said = agent.prompt()["hookSpecificOutput"]["additionalContext"]
    assert said == (
        f"standfast: The budget 'agent:{kind}' is exhausted: 1,300 tokens of 1,000 tokens per day spent, counted after "
        f"the fact. A person raises it: standfast budget set agent:{kind} --tokens N"
    )
    assert agent.prompt() == {}
    assert agent.call("make", "t1") == ""
    assert (agent.spent(), agent.waits()) == (1300, [])


def test_block_allows_reading_committing_and_one_turn_to_hand_back(engine_url: str, tmp_path: Path) -> None:
    agent = Agent("claude-code", engine_url, tmp_path)
    with agent.store() as sf:
        sf.budgets.set("agent:claude-code", action="block")
    agent.uses(1200)
    assert "in this turn, your last" in agent.prompt()["hookSpecificOutput"]["additionalContext"]
    assert agent.waits() == ["budgets"]  # the next report opens the store, although it only reports
    assert agent.call("make deploy", "t1").startswith("The budget 'agent:claude-code' is exhausted")
    assert agent.call("git add -A && git commit -m 'parser; half > done'", "t2") == ""
    assert agent.tell(payload("PreToolUse", tool_name="Read", tool_input={"file_path": "/a"}, tool_use_id="t3")) == {}
    agent.tell(payload("Stop"))
    refused = agent.prompt()
    assert refused["decision"] == "block"
    assert "The last turn is over" in refused["reason"]
    with agent.store() as sf:
        found = sf.rows("SELECT call_id, status FROM tool_call ORDER BY call_id")
        assert [tuple(row.values()) for row in found] == [("t1", "cancelled"), ("t2", "pending"), ("t3", "pending")]
        sf.budgets.set("agent:claude-code", tokens=9000)
    assert agent.prompt() == {}
    assert agent.call("make deploy", "t4") == ""


@pytest.mark.parametrize("engine_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("command", "passes"),
    [
        ("git status", True),
        ("cd /a && git diff | head -5", True),
        ("git add . ; git commit -m \"$(cat <<'EOF'\nhalf done; rm -rf x\nEOF\n)\"", True),
        ("standfast mail send lead 'half done'", True),
        ("git push", False),
        ("git commit -m x && make", False),
        ("cat a > b", False),
        ("python x.py", False),
        ("echo 'not closed", False),
        ("", False),
    ],
)
def test_which_commands_read_or_commit(command: str, passes: bool) -> None:
    assert limits.passes(Asked("Bash", {"command": command}, command)) is passes
