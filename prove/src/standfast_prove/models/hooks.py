"""Hook records of an agent compared with a model of ten lines. They come in any order, some of them twice or late."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from standfast.interchange.hooks import payloads
from standfast.interchange.hooks.record import Hooks
from standfast_prove.models.opening import opened

STEPS = 10

KINDS = ("start", "prompt", "call", "answer", "stop", "end")
TYPES = {
    "start": "agent.started",
    "prompt": "prompt.submitted",
    "call": "tool.called",
    "answer": "tool.answered",
    "stop": "turn.ended",
    "end": "agent.ended",
}


class Model:
    """The expected session and calls after all acknowledged records."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.acked: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.calls: dict[str, str] = {}

    def tell(self, kind: str, call: str) -> None:
        self.acked[kind] += 1
        if kind in ("prompt", "call") or self.state is None:
            self.state = "active"
        if kind in ("start", "stop", "end"):
            self.state = "completed"
        if kind == "call":
            self.calls.setdefault(call, "pending")
        if kind == "answer":
            self.calls[call] = "ok"


def payload(event: str, **more: object) -> dict[str, object]:
    return {"cwd": "/", "hook_event_name": event, **more}


GIVEN = {
    "start": payload("SessionStart"),
    "prompt": payload("UserPromptSubmit", prompt="x"),
    "stop": payload("Stop"),
    "end": payload("SessionEnd"),
}


def given_for(kind: str, call: str) -> dict[str, object]:
    if kind in GIVEN:
        return GIVEN[kind]
    event = "PreToolUse" if kind == "call" else "PostToolUse"
    tool = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": call, "tool_response": "x"}
    return payload(event, **tool)


def program_on(url: str, data: Path) -> Callable[..., None]:
    numbers = count(1)
    one = st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.booleans())

    @given(acked=st.lists(one, min_size=1, max_size=10))
    def heard(acked: list[tuple[str, str, bool]]) -> None:
        model, session_id = Model(), f"s{next(numbers)}"
        key = f"claude-code:{session_id}"
        with opened(url, data, "hooks", actor=key, as_actor=True) as sf:
            for at_us, (kind, call, twice) in enumerate(acked, 1):
                found = payloads.heard("claude-code", given_for(kind, call) | {"session_id": session_id}, at_us)
                assert found is not None
                for _ in range(1 + twice):  # the same record again changes nothing
                    Hooks(sf._store).keep(found)
                model.tell(kind, call)
            session = sf.sessions.get(key)
            assert session.state == model.state
            mine: dict[str, object] = {"id": session.id}
            calls = sf.rows("SELECT call_id, status FROM tool_call WHERE session_id = :id", mine)
            assert {row["call_id"]: row["status"] for row in calls} == model.calls
            seen = [row["type"] for row in sf.rows("SELECT type FROM event WHERE session_id = :id", mine)]
            assert {kind: seen.count(TYPES[kind]) for kind in KINDS} == model.acked

    return heard
