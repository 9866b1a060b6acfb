"""The agent continues after any input to its hook: the hook exits with 0, prints nothing and damages nothing."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.interchange.hooks import payloads
from standfast_prove.faults.rows import integrity
from tests.hooks import PATIENT, PROGRAM, bash, enter, environment, payload

DEEP = b'{"hook_event_name":"Stop","session_id":"s1","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"
LARGE = json.dumps(bash("PostToolUse", "ls", tool_response="x" * 1_000_000)).encode()
HUGE = json.dumps(bash("PostToolUse", "ls", tool_response="x" * 6_000_000)).encode()

PAYLOADS: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"\x00\xff\xfe{{{",
    "a list": b"[1, 2, 3]",
    "null": b"null",
    "cut off": LARGE[:2000],
    "1 MB": LARGE,
    "6 MB": HUGE,
    "deep": DEEP,
    "no session": b'{"hook_event_name": "PreToolUse"}',
    "wrong types": b'{"hook_event_name": ["x"], "session_id": 1, "cwd": {}, "tool_name": 7, "tool_input": 9}',
    "a session that is a path": json.dumps(payload("Stop", session="../../etc/passwd")).encode(),
    "a session with a line break": json.dumps(payload("Stop", session="a\nb")).encode(),
    "SQL": json.dumps(bash("PreToolUse", "'; DROP TABLE session; --", session="' OR 1=1")).encode(),
    "lone surrogates and NUL": b'{"hook_event_name":"UserPromptSubmit","session_id":"s1","prompt":"\\ud800\\u0000x"}',
    "a directory that is not there": json.dumps(payload("Stop", cwd="/nowhere/at/all")).encode(),
    "an event of the future": json.dumps(payload("QuantumCompact", session="s1")).encode(),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_agent_continues_after_any_input(name: str, tmp_path: Path) -> None:
    """The hook exits with 0, its stdout is empty, and the store is intact."""
    ran = enter("claude-code", PAYLOADS[name], tmp_path / "data", program=("-c", PATIENT))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b""), name
    if (tmp_path / "data" / "standfast.db").exists():
        assert integrity(tmp_path / "data" / "standfast.db") == "ok"


def test_the_event_of_a_payload_that_is_too_large_is_recorded() -> None:
    given = payloads.parsed(HUGE)
    assert given is not None
    found = payloads.heard("claude-code", given, 1)
    assert found is not None
    assert (found.native, found.kind, found.tool) == ("s1", "other", None)


def test_an_unknown_agent_or_none_is_no_failure(tmp_path: Path) -> None:
    assert enter("emacs", payload("Stop"), tmp_path / "data").returncode == 0
    env = environment(tmp_path / "data")
    alone = subprocess.run([PROGRAM, "hook"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert alone.returncode == 0
    assert "standfast install" in alone.stdout


def test_a_broken_configuration_is_not_the_agents_problem(tmp_path: Path) -> None:
    """The record waits in the workspace's spool until a person repairs it."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "config.toml").write_text("db_url = [this is not TOML")
    ran = enter("claude-code", payload("UserPromptSubmit", prompt="hi", cwd=tmp_path), data)
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert (data / "spool" / "open.ndjson").exists()


def test_a_closed_stdout_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    reading, writing = os.pipe()
    os.close(reading)
    text = json.dumps(payload("SessionStart")).encode()
    env = environment(tmp_path / "data")
    ran = subprocess.run([PROGRAM, "hook", "codex"], input=text, stdout=writing, stderr=subprocess.PIPE, env=env)
    os.close(writing)
    assert ran.returncode == 0


ANYTHING: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    *("session_id", "cwd", "tool_name", "tool_input", "tool_use_id", "tool_response", "error", "prompt", "reason"),
    *("source", "duration_ms", "agent_id", "is_interrupt", "message"),
)


@settings(max_examples=60, deadline=None)
@given(
    event=st.sampled_from([*payloads.KINDS, "Odd"]),
    fields=st.dictionaries(st.sampled_from(FIELDS), ANYTHING),
    agent=st.sampled_from(payloads.AGENTS),
)
def test_no_payload_makes_a_record_that_does_not_fit(event: str, fields: dict[str, Any], agent: str) -> None:
    """For any fields, the result is None or a record that fits into the store and a spool."""
    found = payloads.heard(agent, {**fields, "hook_event_name": event}, 1)
    if found is None:
        return
    text = json.dumps(found.as_dict())
    assert "\\u0000" not in text
    text.encode()
    for value in (found.input, found.output, found.summary):
        assert value is None or value.encode() is not None


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=200), seed=st.integers(0, 1000))
def test_a_payload_cut_or_mixed_up_never_raises(data: bytes, seed: int) -> None:
    cut = LARGE[: random.Random(seed).randrange(400)]
    for text in (data, cut, cut + data, data + cut):
        found = payloads.parsed(text)
        assert found is None or isinstance(found, dict)
        if found is not None:
            payloads.heard("codex", found, 1)
            payloads.asked(found)
