"""Gates for the commands of an agent: refused until a person approves or an effect is recorded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.cli import hook
from standfast.db.contract import Caller
from standfast.interchange.hooks import judge, payloads
from standfast.interchange.hooks.record import Hooks
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment, heard, payload

PUSH = "cd app && git push origin main"


class Agent:
    """An agent whose calls go through the hook, in this process."""

    def __init__(self, sf: standfast.Standfast) -> None:
        self.sf = sf
        self.at_us = 0

    def call(self, given: dict[str, Any], agent: str = "claude-code", decision: judge.Decision | None = None) -> str:
        """The text of the refusal; empty if the call may continue."""
        self.at_us += 1
        store = self.sf._store
        found = heard(given, agent=agent, at_us=self.at_us)
        old, store.caller = (
            store.caller,
            Caller(
                actor=found.key,
                holder=f"a:{found.key}",
                scope=store.caller.scope,
                clock=store.caller.clock,
                label=store.caller.label,
                repository=store.caller.repository,
            ),
        )
        hooks = Hooks(store)
        try:
            kept = hooks.keep(found)
            if found.kind == "answer":
                asked = payloads.answered(given)
                judge.settle(store, hooks.gates(), found, asked, kept.session_id)
                return ""
            asked_now = payloads.asked(given)
            assert asked_now is not None
            judge.judge(store, kept.gates, asked_now, kept.session_id, decision or judge.Decision())
        except judge.Refusal as refusal:
            hooks.hold(found, refusal.gate.id, refusal.gate.pattern)
            return str(refusal)
        finally:
            store.caller = old
        return ""


def test_a_push_is_held_until_a_person_approves_and_passes_once(sf: standfast.Standfast) -> None:
    """The approval is bound to these bytes and consumed by the call that passes. Its effect has the outcome."""
    sf.gates.add("git push*", why="main is protected")
    agent = Agent(sf)
    refused = agent.call(bash("PreToolUse", PUSH, id="t1"))
    assert "main is protected" in refused
    assert "standfast approve" in refused
    assert "; then make exactly the same call again" in refused
    assert agent.call(bash("PreToolUse", PUSH, id="t2"))
    (asked,) = sf.approvals.list()
    _grant(sf, asked.id)
    assert agent.call(bash("PreToolUse", PUSH + " --force", id="t3"))  # a call with other bytes needs another approval
    assert agent.call(bash("PreToolUse", PUSH, id="t4")) == ""
    agent.call(bash("PostToolUse", PUSH, id="t4", tool_response={"stdout": "done"}))
    effect = sf.effects.get(asked.effect_id)
    assert (effect.state, effect.result) == ("acknowledged", {"status": "ok", "exit_code": None, "output": "done"})
    assert agent.call(bash("PreToolUse", PUSH, id="t5"))  # a repeat needs another approval
    statuses = {row["call_id"]: row["status"] for row in sf.rows("SELECT call_id, status FROM tool_call")}
    assert statuses == {"t1": "cancelled", "t2": "cancelled", "t3": "cancelled", "t4": "ok", "t5": "cancelled"}
    agent.call(bash("PostToolUse", "ls", id="t6", tool_response="x"))
    held = [event for event in sf.journal.tail(limit=200).events if event.type == "gate.held"]
    assert len(held) == 4


def _grant(sf: standfast.Standfast, id: str) -> None:
    sf.approvals.grant(id, approver="ada")


def test_a_denial_is_returned_to_the_agent_with_its_reason(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    (asked,) = sf.approvals.list()
    sf.approvals.deny(asked.id, approver="ada", rationale="not on a Friday")
    assert "not on a Friday" in agent.call(bash("PreToolUse", PUSH, id="t2"))


def test_an_allowed_call_without_an_answer_is_in_doubt(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    _grant(sf, sf.approvals.list()[0].id)
    assert agent.call(bash("PreToolUse", PUSH, id="t2")) == ""
    assert agent.call(bash("PreToolUse", PUSH, id="t3"))


def test_a_reworded_description_needs_no_second_grant(sf: standfast.Standfast) -> None:
    """R13: an LLM rewords `description` on every call. The approver reads the first one."""
    sf.gates.add("git push*")
    agent = Agent(sf)

    def push(description: str, id: str) -> dict[str, Any]:
        given = bash("PreToolUse", PUSH, id=id, cwd="/srv/app")
        return {**given, "tool_input": {**given["tool_input"], "description": description}}

    assert agent.call(push("Push the fix", "t1"))
    (asked,) = sf.approvals.list()
    question = sf.approvals.pose(asked.id)
    assert (question.intent, question.directory) == (json.dumps({"command": PUSH}, separators=(",", ":")), "/srv/app")
    assert question.description == "Push the fix"
    _grant(sf, asked.id)
    assert agent.call(push("Push the corrected fix", "t2")) == ""
    agent.call({**push("Pushing", "t2"), "hook_event_name": "PostToolUse", "tool_response": "done"})
    assert sf.effects.get(asked.effect_id).state == "acknowledged"


def test_a_grant_for_one_directory_is_none_for_another(sf: standfast.Standfast) -> None:
    """R13: in another directory `./run.sh` is another program."""
    sf.gates.add("./run.sh*")
    agent = Agent(sf)
    assert agent.call(bash("PreToolUse", "./run.sh", cwd="/srv/one"))
    _grant(sf, sf.approvals.list()[0].id)
    assert agent.call(bash("PreToolUse", "./run.sh", id="t2", cwd="/srv/two"))


def test_an_effect_that_failed_does_not_let_the_call_pass_again(sf: standfast.Standfast) -> None:
    """R14: `effect fail` after a gated call does not give the grant back."""
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    (asked,) = sf.approvals.list()
    _grant(sf, asked.id)
    assert agent.call(bash("PreToolUse", PUSH, id="t2")) == ""
    sf.effects.fail(asked.effect_id, "said the agent", attempt=1)
    assert agent.call(bash("PreToolUse", PUSH, id="t3"))


def test_a_hook_that_refuses_uses_up_no_grant(sf: standfast.Standfast) -> None:
    """R19: once the hook has decided to refuse, its transaction does not consume the grant."""
    sf.gates.add("git push*")
    agent = Agent(sf)
    agent.call(bash("PreToolUse", PUSH))
    (asked,) = sf.approvals.list()
    _grant(sf, asked.id)
    late = judge.Decision()
    assert late.refuse()
    assert agent.call(bash("PreToolUse", PUSH, id="t2"), decision=late)
    assert (sf.approvals.get(asked.id).state, sf.effects.get(asked.effect_id).state) == ("granted", "planned")
    first = judge.Decision()
    assert agent.call(bash("PreToolUse", PUSH, id="t3"), decision=first) == ""
    assert not first.refuse(), "the grant is being consumed: the hook has to wait for it"
    assert sf.approvals.get(asked.id).state == "consumed"


def test_of_eight_hooks_at_once_the_answers_and_the_record_agree(tmp_path: Path) -> None:
    """R19: one grant, eight equal calls: as many pass as grants are consumed, however fast each hook is."""
    from concurrent.futures import ThreadPoolExecutor

    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
        Agent(sf).call(bash("PreToolUse", "git push"))
        (asked,) = sf.approvals.list(everywhere=True)
        _grant(sf, asked.id)
    with ThreadPoolExecutor(8) as pool:
        calls = [bash("PreToolUse", "git push", id=f"t{n}") for n in range(8)]
        answers = [ran.stdout for ran in pool.map(lambda given: enter("claude-code", given, data), calls)]
    with standfast.open(data_dir=data) as sf:
        used = sf.approvals.get(asked.id)
    assert sum(answer == b"" for answer in answers) == used.attempts_used


def test_what_must_be_an_effect_passes_once_for_one_that_is_dispatched(sf: standfast.Standfast) -> None:
    """R22: a planned effect is not enough, and one dispatched effect meets the gate once."""
    sf.gates.add("terraform apply*", need="effect")
    sf.gates.add("mcp__github__merge*", need="effect")
    agent = Agent(sf)
    assert "standfast once" in agent.call(bash("PreToolUse", "terraform apply"))
    merge = {**bash("PreToolUse", ""), "tool_name": "mcp__github__merge_pr", "tool_input": {"pr": 7}}
    assert "standfast effect begin" in agent.call(merge)
    session = sf.sessions.get("claude-code:s1")
    planned = sf.effects.plan("terraform", {"command": "terraform  apply"}, session=session.id)
    assert agent.call(bash("PreToolUse", "terraform apply", id="t2"))
    sf.effects.dispatch(planned.id)
    sf.effects.begin("mcp__github__merge_pr", {"pr": 7}, session=session.id)
    assert agent.call(bash("PreToolUse", "terraform apply", id="t3")) == ""
    assert agent.call(bash("PreToolUse", "terraform apply", id="t4"))
    assert agent.call({**merge, "tool_use_id": "t5"}) == ""
    assert agent.call({**merge, "tool_use_id": "t6"})
    assert agent.call({**merge, "tool_input": {"pr": 8}, "tool_use_id": "t7"})
    passed = [event for event in sf.journal.tail(limit=200).events if event.type == "gate.passed"]
    assert len(passed) == 2


def test_shell_words_are_compared_and_everything_else_passes(sf: standfast.Standfast) -> None:
    sf.gates.add("git push*")
    agent = Agent(sf)
    assert agent.call(bash("PreToolUse", "git status", id="t2")) == ""
    words = {**bash("PreToolUse", "", id="t3"), "tool_input": {"command": ["bash", "-lc", "git push"]}}
    assert agent.call(words, "codex")


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("mcp__shell__run", {"argv": ["make", "deploy"]}),
        ("mcp__shell__run", {"program": "make", "args": ["deploy"]}),
        ("mcp__shell__run", {"args": ["deploy"], "program": "make"}),
        ("mcp__tools__call", {"options": {"shell": {"line": "make deploy"}}}),
        ("mcp__tools__call", {"steps": [{"cmd": "ls"}, {"cmd": "make deploy"}]}),
        ("Bash", {"command": "ls", "stdin": "make deploy"}),
        ("exec_command", {"input": ["ls", "make -C app deploy"]}),
        ("run_in_terminal", {"text": "make deploy"}),
        ("write_stdin", {"session_id": 1, "chars": "make deploy\n"}),
        ("mcp__tmux__send_keys", {"text": "make deploy"}),
        ("Bash", "make deploy"),
        ("Bash", ["make", "deploy"]),
    ],
)
def test_every_text_of_a_call_that_may_run_a_command_is_compared(
    sf: standfast.Standfast, tool: str, given: Any
) -> None:
    """R23: texts in lists, in nested fields and under any name are compared with the gates."""
    sf.gates.add("make deploy*")
    call = {**bash("PreToolUse", ""), "tool_name": tool, "tool_input": given}
    assert Agent(sf).call(call)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Write", {"file_path": "/x.md", "content": "then make deploy"}),
        ("Edit", {"file_path": "/x.md", "old_string": "a", "new_string": "make deploy"}),
        ("Bash", {"command": "ls", "description": "List before make deploy"}),
        ("Bash", {"command": "git commit -m 'make deploy'"}),
        ("mcp__github__create_issue", {"title": "make deploy fails", "body": "It's red."}),
        ("mcp__shell__run", {"argv": ["git", "commit", "-m", "don't make deploy"]}),
    ],
)
def test_texts_of_calls_that_run_nothing_are_not(sf: standfast.Standfast, tool: str, given: Any) -> None:
    sf.gates.add("make deploy*")
    call = {**bash("PreToolUse", ""), "tool_name": tool, "tool_input": given}
    assert Agent(sf).call(call) == ""


ONCE = f"{PROGRAM} once deploy"


@pytest.mark.parametrize(
    ("need", "line", "passes"),
    [
        ("effect", f"{ONCE} -- touch DEPLOYED", True),
        ("effect", f"{ONCE} --why 'say; so' --until-ok --probe 'test -e x' -- sh -c 'touch x && touch y'", True),
        ("approval", f"{ONCE} -- touch DEPLOYED", False),
        ("effect", f"{ONCE} -- touch x; touch y", False),
        ("effect", f"{ONCE} -- true && touch y", False),
        ("effect", f"{ONCE} -- touch $(touch y)", False),
        ("effect", f"{ONCE} --probe 'touch y' -- touch x", False),
        ("effect", f"{ONCE} --session s2 -- touch x", False),
        ("effect", f"STANDFAST_DB_URL=:memory: {ONCE} -- touch x", False),
        ("effect", f"env HOME=/tmp {ONCE} -- touch x", False),
        ("effect", f"cd /tmp && {ONCE} -- touch x", False),
        ("effect", "./standfast once deploy -- touch x", False),
        ("effect", "/opt/other/standfast once deploy -- touch x", False),
        ("effect", f"{PROGRAM} session run s -- touch x", False),
        ("effect", f"{PROGRAM} loop add n --every 1h touch x", False),
    ],
)
def test_once_passes_only_a_gate_that_needs_an_effect_and_only_as_it_is(
    sf: standfast.Standfast, need: str, line: str, passes: bool
) -> None:
    """R17: the hook judges the command after `once`, `session run` and `loop add`, with any prefix."""
    sf.gates.add("touch *", need=need)
    refused = Agent(sf).call(bash("PreToolUse", line))
    assert (refused == "") == passes, refused


@pytest.mark.parametrize(
    ("agent", "event", "tool"),
    [("claude-code", "PreToolUse", "Bash"), ("codex", "PreToolUse", "Bash"), ("gemini-cli", "BeforeTool", "run")],
)
def test_each_agent_is_refused_in_its_own_format(agent: str, event: str, tool: str, tmp_path: Path) -> None:
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
    """The store is damaged, but `gates.json` is readable."""
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
    """Gates may be added on another host. This host has to know them even without the store."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    (data / "gates.json").unlink()
    enter("claude-code", payload("SessionStart"), data)
    assert "git push*" in (data / "gates.json").read_text()


def test_a_call_too_large_to_judge_is_refused_where_a_gate_is_set(tmp_path: Path) -> None:
    """A gate cannot be avoided by making the call longer."""
    data = tmp_path / "data"
    padded = json.dumps({**bash("PreToolUse", "git push"), "padding": "x" * 5_000_000}).encode()
    patient = ("-c", PATIENT)
    assert enter("claude-code", padded, data, program=patient).stdout == b""
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    assert b'"deny"' in enter("claude-code", padded, data, program=patient).stdout


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_busy_store_does_not_block_the_agent_and_its_gates_apply(tmp_path: Path) -> None:
    """Another process holds the lock permanently. The hook exits in time, refuses matching calls and spools all."""
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
    answer = bash("PostToolUse", "git status", id="t2", tool_response="x")
    enter("claude-code", answer, data, program=("-c", PATIENT))
    with standfast.open(data_dir=data) as sf:
        found = {row["call_id"]: row["status"] for row in sf.rows("SELECT call_id, status FROM tool_call")}
    assert found == {"t1": "pending", "t2": "ok"}


IMPATIENT = "import sys; from standfast.cli import hook; hook.DEADLINE_S = 0.5; hook.main(sys.argv[1:])"


def _unfinished(data: Path, command: str) -> bytes:
    """The answer of a hook whose agent never closes stdin."""
    import select
    import subprocess
    import sys

    words = [sys.executable, "-c", IMPATIENT, "claude-code"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment(data), **pipes) as asked:  # type: ignore[call-overload]
        asked.stdin.write(json.dumps(bash("PreToolUse", command)).encode())
        asked.stdin.flush()
        assert select.select([asked.stdout], [], [], 60)[0]
        return asked.stdout.read()


def test_past_the_deadline_a_call_is_refused_if_a_gate_may_apply(tmp_path: Path) -> None:
    """R15: the agent would kill a hook that is silent for 10 s, and make the call."""
    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    assert hook.DEADLINE_S + hook.GRACE_S < 9
    assert b'"deny"' in _unfinished(data, "git status")
    assert _unfinished(data, "ls") == b""
    (data / "gates.json").unlink()
    assert b'"deny"' in _unfinished(data, "ls"), "what cannot be judged is refused"


def test_without_the_copy_of_the_gates_a_hook_that_cannot_read_the_store_refuses(tmp_path: Path) -> None:
    """R21: while another process holds the lock and gates.json is missing, no call passes."""
    import fcntl

    data = tmp_path / "data"
    with standfast.open(data_dir=data) as sf:
        sf.gates.add("git push*", scope="")
    (data / "gates.json").unlink()
    with open(data / "standfast.db.lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert b'"deny"' in enter("claude-code", bash("PreToolUse", "ls"), data).stdout


@pytest.mark.parametrize("busy", [False, True])
def test_a_gate_follows_the_repository_when_it_gets_a_remote(tmp_path: Path, busy: bool) -> None:
    """R21: the git directory or the remote identifies the repository, in the store and in the copy."""
    import contextlib
    import fcntl
    import subprocess

    shop, data = tmp_path / "shop", tmp_path / "data"
    subprocess.run(["git", "init", "-q", str(shop)], check=True)
    add = [PROGRAM, "gate", "add", "git push*"]
    subprocess.run(add, check=True, cwd=shop, env=environment(data), capture_output=True)
    subprocess.run(["git", "-C", str(shop), "remote", "add", "origin", "https://example.org/x/y"], check=True)
    with contextlib.ExitStack() as stack:
        if busy:
            fcntl.flock(stack.enter_context(open(data / "standfast.db.lock", "rb+")), fcntl.LOCK_EX)
        assert b'"deny"' in enter("claude-code", bash("PreToolUse", "git push", cwd=str(shop)), data).stdout
        elsewhere = bash("PreToolUse", "git push", session="s2", cwd=str(tmp_path))
        assert enter("claude-code", elsewhere, data).stdout == b""


def test_a_store_known_to_have_no_gates_holds_no_call_up_while_it_is_busy() -> None:
    """R21: without gates.json the memory of stores decides; it is outside the data directory."""
    import fcntl

    from tests import remembering

    call = json.dumps(bash("PreToolUse", "ls"))
    with remembering.home() as home:
        remembering.run(home, "task", "add", "x")
        with open(home / ".standfast" / "standfast.db.lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert remembering.run(home, "hook", "claude-code", input=call).stdout == ""
        remembering.run(home, "gate", "add", "git push*", "--global")
        (home / ".standfast" / "gates.json").unlink()
        with open(home / ".standfast" / "standfast.db.lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert '"deny"' in remembering.run(home, "hook", "claude-code", input=call).stdout


def test_a_damaged_copy_of_the_gates_refuses_also_a_call_that_cannot_be_read(tmp_path: Path) -> None:
    """Without the store and its copy no gate is known, so nothing passes."""
    from standfast.interchange.hooks import judge

    (tmp_path / "gates.json").write_text("{")
    with pytest.raises(judge.Refusal, match="can be read"):
        judge.judge_blindly(str(tmp_path), None, None)
