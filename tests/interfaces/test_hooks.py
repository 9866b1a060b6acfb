"""Hooks store sessions, prompts, tool calls and their outcomes, with the evidence `seen`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.db.contract import Caller
from standfast.interchange.hooks import payloads
from standfast.interchange.hooks.payloads import Heard
from standfast.interchange.hooks.record import Hooks, keep_late
from tests.hooks import CAPTURED, PATIENT, bash, enter, heard, payload

SECRET = "ghp_" + "a1B2" * 10


def keep(sf: standfast.Standfast, given: dict[str, Any], at_us: int, agent: str = "claude-code") -> str:
    """Store a record in the agent's name, as the entry point does."""
    store = sf._store
    found = heard(given, agent=agent, at_us=at_us)
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
    try:
        return Hooks(store).keep(found).session_id
    finally:
        store.caller = old


def events(sf: standfast.Standfast) -> list[tuple[str, str]]:
    return [(event.type, event.source) for event in sf.journal.tail(limit=100).events]


def calls(sf: standfast.Standfast) -> list[dict[str, Any]]:
    return list(sf.rows("SELECT call_id, tool, status, input, output, exit_code, source FROM tool_call ORDER BY seq"))


def test_a_turn_of_an_agent_is_a_session_a_prompt_and_its_tool_calls(sf: standfast.Standfast) -> None:
    """000-18: standfast writes the rows during the turn, with the evidence `seen`, not `said`."""
    keep(sf, payload("SessionStart", source="startup"), 1)
    keep(sf, payload("UserPromptSubmit", prompt="list the files"), 2)
    keep(sf, bash("PreToolUse", "ls"), 3)
    keep(sf, bash("PostToolUse", "ls", tool_response={"stdout": "a.txt", "stderr": ""}), 4)
    session = sf.sessions.get("claude-code:s1")
    assert (session.state, session.agent, session.preview) == ("active", "claude-code", "list the files")
    assert session.holder == "a:claude-code:s1"
    keep(sf, payload("Stop"), 5)
    assert sf.sessions.get("claude-code:s1").state == "completed"
    assert sf.recovery.report().items == []  # no person has to act
    keep(sf, payload("SessionEnd", reason="clear"), 6)
    seen = [type for type, source in events(sf) if source == "seen" and not type.startswith("session.")]
    assert seen == ["agent.started", "prompt.submitted", "tool.called", "tool.answered", "turn.ended", "agent.ended"]
    (call,) = calls(sf)
    assert (call["status"], call["output"], call["source"]) == ("ok", "a.txt", "hook")


def test_the_same_record_twice_is_one(sf: standfast.Standfast) -> None:
    """000-18: a record that was stored and is drained again from a spool adds no row."""
    for _ in range(2):
        keep(sf, payload("UserPromptSubmit", prompt="once"), 1)
        keep(sf, bash("PreToolUse", "ls"), 2)
        keep(sf, bash("PostToolUse", "ls", tool_response="x"), 3)
    store = sf._store
    again = heard(payload("UserPromptSubmit", prompt="once"), at_us=1)
    assert keep_late(store, again.key, store.caller.scope, [(again, True)]) == 0
    types = [type for type, _ in events(sf)]
    assert [types.count(type) for type in ("prompt.submitted", "tool.called", "tool.answered")] == [1, 1, 1]
    assert len(calls(sf)) == 1


def test_a_call_without_an_answer_is_pending_and_never_failed(sf: standfast.Standfast) -> None:
    keep(sf, bash("PreToolUse", "sleep 100"), 1)
    assert calls(sf)[0]["status"] == "pending"


@pytest.mark.parametrize(
    ("agent", "given", "status", "code"),
    [
        ("claude-code", bash("PostToolUse", "x", tool_response={"stdout": "", "interrupted": True}), "cancelled", None),
        ("claude-code", bash("PostToolUseFailure", "x", error="Exit code 3\nboom"), "error", 3),
        ("claude-code", bash("PostToolUseFailure", "x", error="gone", is_interrupt=True), "cancelled", None),
        ("codex", bash("PostToolUse", "x", tool_response="cat: no such file"), "unknown", None),
        ("codex", {**bash("PostToolUse", "x", tool_response="ok"), "tool_name": "apply_patch"}, "ok", None),
        ("gemini-cli", {**bash("AfterTool", "x", tool_response={"llmContent": "", "error": "no"})}, "error", None),
        (
            "gemini-cli",
            {**bash("AfterTool", "x", tool_response={"llmContent": "Output: x\nExit Code: 2\n"})}
            | {"tool_name": "run_shell_command"},
            "error",
            2,
        ),
        ("claude-code", bash("PermissionDenied", "x", denial_reason="no"), "cancelled", None),
    ],
)
def test_an_outcome_is_the_one_that_the_agent_reported(
    agent: str, given: dict[str, Any], status: str, code: int | None
) -> None:
    """000-18: Codex reports the output of a shell command without its exit code, so the outcome is unknown."""
    found = heard(given, agent=agent)
    assert (found.status, found.exit_code) == (status, code)


def test_secrets_are_taken_out_before_anything_is_stored(sf: standfast.Standfast) -> None:
    """003-24: secrets in prompts, inputs, outputs and summaries. Texts are redacted before they are cut."""
    keep(sf, payload("UserPromptSubmit", prompt="x" * 19_990 + SECRET), 1)
    keep(sf, bash("PreToolUse", f"curl -H {SECRET}"), 2)
    keep(sf, bash("PostToolUse", f"curl -H {SECRET}", tool_response={"stdout": "y" * 19_990 + SECRET}), 3)
    told = json.dumps([*calls(sf), *(event.as_dict() for event in sf.journal.tail(limit=50).events)])
    assert "ghp_" not in told
    assert told.count("[redacted:github]") >= 3


def test_hook_and_importer_fill_one_session_and_one_row(sf: standfast.Standfast) -> None:
    """000-9: hook and import agree on the key and the call id in either order, also after a change of directory."""
    first = keep(sf, bash("PreToolUse", "ls"), 1)
    store = sf._store
    old, store.caller = (
        store.caller,
        Caller(actor="claude-code:s1", holder="a:claude-code:s1", scope="elsewhere", clock=store.caller.clock),
    )
    try:
        second = Hooks(store).keep(heard(bash("PostToolUse", "ls", tool_response="x"), at_us=2)).session_id
    finally:
        store.caller = old
    assert first == second
    (thread,) = sf.rows("SELECT agent, native_id, session_id FROM import_thread")
    assert dict(thread) == {"agent": "claude-code", "native_id": "s1", "session_id": first}


def test_an_agent_without_ids_of_calls_leaves_the_row_to_its_transcript(sf: standfast.Standfast) -> None:
    given = {**bash("BeforeTool", "ls", id=None), "tool_name": "run_shell_command"}
    keep(sf, given, 1, "gemini-cli")
    keep(sf, {**given, "hook_event_name": "AfterTool", "tool_response": {"llmContent": "a"}}, 2, "gemini-cli")
    assert calls(sf) == []
    assert [type for type, _ in events(sf) if type.startswith("tool.")] == ["tool.called", "tool.answered"]


def test_a_late_record_neither_opens_nor_ends_a_session(sf: standfast.Standfast) -> None:
    """A spool may be drained days later, and yesterday's end record must not end today's session."""
    keep(sf, payload("UserPromptSubmit", prompt="go on"), 100)
    ended = heard(payload("SessionEnd", reason="exit"), at_us=1)
    assert keep_late(sf._store, ended.key, sf.scope, [(ended, True)]) == 1
    assert sf.sessions.get("claude-code:s1").state == "active"
    other = heard(payload("UserPromptSubmit", session="s2", prompt="from the sandbox"), at_us=2)
    keep_late(sf._store, other.key, sf.scope, [(other, False)])
    found = sf.sessions.get("claude-code:s2")
    assert (found.state, found.holder, found.preview) == ("completed", None, "from the sandbox")
    assert [source for type, source in events(sf) if type == "prompt.submitted"] == ["seen", "said"]


def test_a_hook_renews_all_leases_of_its_agent(sf: standfast.Standfast) -> None:
    """001-64: every command and every hook of an actor renews the actor's leases."""
    store = sf._store
    old, store.caller = (
        store.caller,
        Caller(
            actor="claude-code:s1",
            holder="a:claude-code:s1",
            scope=store.caller.scope,
            clock=store.caller.clock,
            label=store.caller.label,
            repository=store.caller.repository,
        ),
    )
    try:
        before = sf.leases.acquire("deploy", for_="30s")
        Hooks(store).keep(heard(payload("UserPromptSubmit", prompt="go on")))
        after = sf.leases.get("deploy")
    finally:
        store.caller = old
    assert (after.fence, after.standing) == (before.fence, "live")
    assert after.lease_until_us is not None
    assert before.lease_until_us is not None
    assert after.lease_until_us > before.lease_until_us


def test_what_an_agent_types_belongs_to_its_session_with_no_flag(tmp_path: Path) -> None:
    """000-18: an agent's commands belong to the session of its hooks; STANDFAST_SESSION overrides this."""
    import subprocess

    from tests.hooks import PROGRAM, environment

    enter("claude-code", payload("SessionStart", session="abc", cwd=tmp_path), tmp_path / "data")
    typed = environment(tmp_path / "data", CLAUDE_CODE_SESSION_ID="abc", CLAUDECODE="1", STANDFAST_ACTOR="reviewer")
    (tmp_path / "notes.txt").write_text("notes")

    def ran(*words: str, **more: str) -> dict[str, Any]:
        made = subprocess.run(
            [PROGRAM, *words, "--json"], capture_output=True, env=typed | more, cwd=tmp_path, text=True
        )
        assert made.returncode == 0, made.stderr
        found: dict[str, Any] = json.loads(made.stdout)["data"]
        return found

    made = [
        ran("decide", "use tabs"),
        ran("task", "add", "a flaky test"),
        ran("mail", "send", "reviewer", "hello"),
        ran("artifact", "put", "notes.txt"),
    ]
    ran("task", "claim", made[1]["id"])
    ran("state", "set", "color", "blue")
    ran("event", "append", "orders", "placed", "1")
    with standfast.open(data_dir=tmp_path / "data") as sf:
        (session,) = sf.sessions.list(everywhere=True)
        assert {one["session_id"] for one in made} == {session.id}
        events = {event.type: event.session_id for event in sf.journal.tail(limit=100).events}
        said = {"decision.made", "task.opened", "task.claimed", "mail.sent", "state.set", "placed"}
        assert {events[type] for type in said} == {session.id}
    other = ran("session", "open", "fix-42", STANDFAST_ACTOR="me")
    named = ran("task", "add", "another", STANDFAST_SESSION="fix-42")
    assert named["session_id"] == other["id"]


def test_the_light_hook_stores_a_record_and_prints_nothing(tmp_path: Path) -> None:
    ran = enter("claude-code", bash("PreToolUse", "ls", cwd=tmp_path), tmp_path / "data", program=("-c", PATIENT))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    with standfast.open(data_dir=tmp_path / "data") as sf:
        assert [call["tool"] for call in calls(sf)] == ["Bash"]


def test_the_light_hook_works_with_a_server_and_without_one_it_blocks_no_agent(
    tmp_path: Path, pg_database: str
) -> None:
    """000-49: the record is first stored on this machine, then sent to the server."""
    data = tmp_path / "data"
    away = "postgresql://127.0.0.1:1/nothing"
    prompt = payload("UserPromptSubmit", prompt="while it was away", cwd=tmp_path)
    assert enter("codex", prompt, data, STANDFAST_DB_URL=away).returncode == 0
    assert (data / "spool" / "open.ndjson").exists()
    with standfast.open(pg_database, data_dir=data):
        pass  # the first process on a server makes its schema, which may exceed the deadline of a hook
    ran = enter("codex", bash("PreToolUse", "ls", cwd=tmp_path), data, STANDFAST_DB_URL=pg_database)
    assert (ran.returncode, ran.stdout) == (0, b"")
    with standfast.open(pg_database, data_dir=data) as sf:
        from standfast.interchange.hooks import spool

        spool.drain(sf._store, [str(data / "spool")], str(data))  # on a busy machine the file may have the call too
        assert [call["tool"] for call in calls(sf)] == ["Bash"]
        assert [type for type, _ in events(sf)].count("prompt.submitted") == 1


def test_the_notify_command_of_codex_reports_the_end_of_a_turn() -> None:
    given = {"type": "agent-turn-complete", "thread-id": "t1", "cwd": "/", "last-assistant-message": "done"}
    assert heard(given, agent="codex").kind == "stop"


CAPTURES = sorted(CAPTURED.rglob("*.json")) if CAPTURED.is_dir() else []


def _agent(path: Path) -> str:
    name = str(path.relative_to(CAPTURED))
    return "claude-code" if name.startswith("claude-code") else "codex" if "codex" in name else "gemini-cli"


@pytest.mark.skipif(not CAPTURES, reason="NOT SHOWN: ../shared/data/transcripts/hooks is not here")
def test_every_payload_captured_from_a_real_agent_is_handled(sf: standfast.Standfast) -> None:
    """Each payload gives a record or is known to give none. Each tool call of a session has one row."""
    kept = 0
    for at_us, path in enumerate(CAPTURES, 1):
        given = payloads.parsed(path.read_bytes())
        found = payloads.heard(_agent(path), given, at_us) if given is not None else None
        if found is None:
            name, session = (given or {}).get("hook_event_name"), (given or {}).get("session_id")
            assert name is None or not isinstance(session, str) or name in payloads.SILENT, path
            continue
        assert found.summary, path
        keep(sf, given or {}, at_us, found.agent)
        kept += 1
    assert kept > 60
    codex = [call for call in calls(sf) if str(call["call_id"]).startswith("call_")]
    assert sorted((call["call_id"], call["status"]) for call in codex) == [
        ("call_1", "ok"),
        ("call_2", "ok"),
        ("call_4", "unknown"),
    ]
    assert sf.sessions.get("codex:01a1e05d-2606-7f40-a65a-ba12f463ce24").state == "completed"


def test_the_lease_of_a_silent_agent_ends_by_time(tmp_path: Path) -> None:
    """001-64: an agent that sends no further record is shown as suspect."""
    clock = ManualClock()
    with standfast.open(tmp_path / "s.db", data_dir=tmp_path, clock=clock) as sf:
        keep(sf, payload("UserPromptSubmit", prompt="x"), 1)
        assert not sf.sessions.get("claude-code:s1").crashed
        clock.advance(2 * 3600)
        assert sf.sessions.get("claude-code:s1").crashed


def test_a_record_fits_into_a_line_and_back() -> None:
    found = heard(bash("PostToolUse", "ls", tool_response="x"))
    assert Heard(**json.loads(json.dumps(found.as_dict()))) == found


def test_a_failed_turn_or_an_open_question_waits_for_a_person(sf: standfast.Standfast) -> None:
    """A session that ended stays ended. Only a session that needs a person waits."""
    keep(sf, payload("UserPromptSubmit", prompt="x"), 1)
    keep(sf, payload("StopFailure", error="rate_limit"), 2)
    assert sf.sessions.get("claude-code:s1").state == "waiting"
    keep(sf, payload("UserPromptSubmit", prompt="x", session="s2"), 3)
    session = sf.sessions.get("claude-code:s2")
    with pytest.raises(standfast.ApprovalRequired):
        sf.effects.begin("push", {}, session=session.id, approve=True)
    keep(sf, payload("Stop", session="s2"), 4)
    assert sf.sessions.get("claude-code:s2").state == "waiting"
    keep(sf, payload("UserPromptSubmit", prompt="go on", session="s2"), 5)
    assert sf.sessions.get("claude-code:s2").state == "active"


def test_a_starting_agent_reads_only_the_brief(tmp_path: Path) -> None:
    """001-14: at the start and after a compaction, in the agent's format; without news nothing is printed."""
    data = tmp_path / "data"
    start = payload("SessionStart", source="compact", cwd=tmp_path)
    assert enter("claude-code", start, data).stdout == b""
    with standfast.open(data_dir=data) as sf:
        old, sf._store.caller = (
            sf._store.caller,
            Caller(actor="ada", holder="a:ada", scope="", clock=sf._store.caller.clock),
        )
        sf.decisions.record("never force-push", why="it lost work once", standing=True)
        sf._store.caller = old
    for agent in ("claude-code", "codex", "gemini-cli"):
        said = json.loads(enter(agent, start, data, program=("-c", PATIENT)).stdout)["hookSpecificOutput"]
        assert said["hookEventName"] == "SessionStart"
        assert "never force-push" in said["additionalContext"]
    assert enter("claude-code", payload("UserPromptSubmit", prompt="x", cwd=tmp_path), data).stdout == b""
