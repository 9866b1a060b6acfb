"""Gates, where an agent's commands pass by: held until a person or an effect says so."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.db.contract import Caller
from standfast.interchange.hooks import gating, hearing
from standfast.interchange.hooks.keeping import Hooks
from tests.hooks import bash, enter, heard, payload

PUSH = "cd app && git push origin main"


class Agent:
    """An agent whose calls pass the hook, in this process."""

    def __init__(self, sf: standfast.Standfast) -> None:
        self.sf = sf
        self.at_us = 0

    def call(self, given: dict[str, Any], agent: str = "claude-code") -> str:
        """What it is refused with; empty if it may go on."""
        self.at_us += 1
        store = self.sf._store
        found = heard(given, agent=agent, at_us=self.at_us)
        old, store.caller = (
            store.caller,
            Caller(actor=found.key, holder=f"a:{found.key}", scope=store.caller.scope, clock=store.caller.clock),
        )
        hooks = Hooks(store)
        try:
            kept = hooks.keep(found)
            if found.kind == "answer":
                asked = hearing.Asked(found.tool or "", given["tool_input"], hearing.command_of(given["tool_input"]))
                gating.settle(store, hooks.gates(), found, asked, kept.session_id)
                return ""
            asked_now = hearing.asked(given)
            assert asked_now is not None
            gating.judge(store, kept.gates, asked_now, kept.session_id)
        except gating.Refusal as refusal:
            hooks.hold(found, refusal.gate.id, refusal.gate.pattern)
            return str(refusal)
        finally:
            store.caller = old
        return ""


def test_a_push_is_held_until_a_person_says_yes_and_then_goes_through_once(sf: standfast.Standfast) -> None:
    """The yes is bound to these bytes, used up by the call that passes, and the outcome is the effect's."""
    sf.gates.add("git push*", why="main is protected")
    agent = Agent(sf)
    refused = agent.call(bash("PreToolUse", PUSH, id="t1"))
    assert "main is protected" in refused
    assert "standfast approve" in refused
    assert agent.call(bash("PreToolUse", PUSH, id="t2"))
    (asked,) = sf.approvals.list()
    _grant(sf, asked.id)
    assert agent.call(bash("PreToolUse", PUSH + " --force", id="t3"))  # other bytes, another yes
    assert agent.call(bash("PreToolUse", PUSH, id="t4")) == ""
    agent.call(bash("PostToolUse", PUSH, id="t4", tool_response={"stdout": "done"}))
    effect = sf.effects.get(asked.effect_id)
    assert (effect.state, effect.result) == ("acknowledged", {"status": "ok", "exit_code": None, "output": "done"})
    assert agent.call(bash("PreToolUse", PUSH, id="t5"))  # once more is another yes
    statuses = {row["call_id"]: row["status"] for row in sf.rows("SELECT call_id, status FROM tool_call")}
    assert statuses == {"t1": "cancelled", "t2": "cancelled", "t3": "cancelled", "t4": "ok", "t5": "cancelled"}
    agent.call(bash("PostToolUse", "ls", id="t6", tool_response="x"))
    held = [event for event in sf.journal.tail(limit=200).events if event.type == "gate.held"]
    assert len(held) == 4


def _grant(sf: standfast.Standfast, id: str) -> None:
    sf.approvals.grant(id, approver="ada")


def test_a_denial_is_told_with_its_reason(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    (asked,) = sf.approvals.list()
    sf.approvals.deny(asked.id, approver="ada", rationale="not on a Friday")
    assert "not on a Friday" in agent.call(bash("PreToolUse", PUSH, id="t2"))


def test_a_call_that_was_let_through_and_never_came_back_is_in_doubt_not_free(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    _grant(sf, sf.approvals.list()[0].id)
    assert agent.call(bash("PreToolUse", PUSH, id="t2")) == ""
    assert agent.call(bash("PreToolUse", PUSH, id="t3"))


def test_what_must_be_an_effect_passes_once_it_is_begun(sf: standfast.Standfast) -> None:
    sf.gates.add("terraform apply*", need="effect")
    sf.gates.add("mcp__github__merge*", need="effect")
    agent = Agent(sf)
    assert "standfast once" in agent.call(bash("PreToolUse", "terraform apply"))
    merge = {**bash("PreToolUse", ""), "tool_name": "mcp__github__merge_pr", "tool_input": {"pr": 7}}
    assert "standfast effect begin" in agent.call(merge)
    session = sf.sessions.get("claude-code:s1")
    sf.effects.begin("terraform", {"command": "terraform  apply"}, session=session.id)
    sf.effects.begin("mcp__github__merge_pr", {"pr": 7}, session=session.id)
    assert agent.call(bash("PreToolUse", "terraform apply", id="t2")) == ""
    assert agent.call({**merge, "tool_use_id": "t3"}) == ""
    assert agent.call({**merge, "tool_input": {"pr": 8}, "tool_use_id": "t4"})


def test_once_and_everything_else_pass(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    assert agent.call(bash("PreToolUse", "standfast once push --approve -- git push")) == ""
    assert agent.call(bash("PreToolUse", "git status", id="t2")) == ""
    words = {**bash("PreToolUse", "", id="t3"), "tool_input": {"command": ["bash", "-lc", "git push"]}}
    assert agent.call(words, "codex")


@pytest.mark.parametrize(
    ("agent", "event", "tool"),
    [("claude-code", "PreToolUse", "Bash"), ("codex", "PreToolUse", "Bash"), ("gemini-cli", "BeforeTool", "run")],
)
def test_each_agent_is_refused_in_its_own_words(agent: str, event: str, tool: str, tmp_path: Path) -> None:
    with standfast.open(data_dir=tmp_path / "data") as sf:
        sf.gates.add("git push*", scope="")
    ran = enter(agent, {**bash(event, "git push"), "tool_name": tool}, tmp_path / "data")
    said = json.loads(ran.stdout)
    assert ran.returncode == 0
    if agent == "gemini-cli":
        assert said["decision"] == "deny"
    else:
        assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert said["hookSpecificOutput"]["hookEventName"] == event


def test_without_the_store_what_matches_the_copy_is_refused_and_the_rest_passes(tmp_path: Path) -> None:
    """The store is damaged; `gates.json` is not."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="", why="main is protected")
    for name in ("standfast.db", "standfast.db-wal", "standfast.db-shm"):
        (data / name).unlink(missing_ok=True)
    (data / "standfast.db").write_bytes(b"this is no database" * 1000)
    refused = enter("claude-code", bash("PreToolUse", "git push"), data)
    assert "main is protected" in json.loads(refused.stdout)["hookSpecificOutput"]["permissionDecisionReason"]
    assert enter("claude-code", bash("PreToolUse", "git status"), data).stdout == b""
    assert (data / "spool" / "open.ndjson").read_bytes().count(b"PreToolUse") == 2


def test_the_copy_of_the_gates_is_brought_up_when_an_agent_starts(tmp_path: Path) -> None:
    """They may have been added on another host: without the store, this one has to know them too."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    (data / "gates.json").unlink()
    enter("claude-code", payload("SessionStart"), data)
    assert "git push*" in (data / "gates.json").read_text()


def test_a_call_too_large_to_be_judged_is_refused_where_a_gate_stands(tmp_path: Path) -> None:
    """Nobody gets past a gate by padding the call."""
    data = tmp_path / "data"
    padded = json.dumps({**bash("PreToolUse", "git push"), "padding": "x" * 5_000_000}).encode()
    assert enter("claude-code", padded, data).stdout == b""
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    assert b'"deny"' in enter("claude-code", padded, data).stdout


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_store_that_is_busy_does_not_hold_the_agent_and_its_gates_stand(tmp_path: Path) -> None:
    """Somebody holds the lock for ever: the hook ends by itself, refuses what matches, spools both."""
    import fcntl

    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    with open(data / "standfast.db.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert b'"deny"' in enter("claude-code", bash("PreToolUse", "git push"), data).stdout
        assert enter("claude-code", bash("PreToolUse", "git status", id="t2"), data).stdout == b""
    with standfast.open(data_dir=data) as sf:
        assert list(sf.rows("SELECT call_id FROM tool_call")) == []
    enter("claude-code", bash("PostToolUse", "git status", id="t2", tool_response="x"), data)
    with standfast.open(data_dir=data) as sf:
        found = {row["call_id"]: row["status"] for row in sf.rows("SELECT call_id, status FROM tool_call")}
    assert found == {"t1": "pending", "t2": "ok"}
