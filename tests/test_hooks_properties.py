"""Any order of what an agent may tell, some of it twice or late, against a model of ten lines."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import standfast
from tests.hooks import bash, payload
from tests.test_hooks import calls, events, keep

KINDS = ("start", "prompt", "call", "answer", "stop", "end")
GIVEN = {
    "start": payload("SessionStart"),
    "prompt": payload("UserPromptSubmit", prompt="x"),
    "stop": payload("Stop"),
    "end": payload("SessionEnd"),
}
TYPES = {
    "start": "agent.started",
    "prompt": "prompt.submitted",
    "call": "tool.called",
    "answer": "tool.answered",
    "stop": "turn.ended",
    "end": "agent.ended",
}


class Model:
    """What a session and its calls must be after all that was told."""

    def __init__(self) -> None:
        self.state: str | None = None
        self.told: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.calls: dict[str, str] = {}

    def tell(self, kind: str, call: str) -> None:
        self.told[kind] += 1
        if kind in ("start", "prompt", "call") or self.state is None:
            self.state = "active"
        if kind in ("stop", "end"):
            self.state = "completed"
        if kind == "call":
            self.calls.setdefault(call, "pending")
        if kind == "answer":
            self.calls[call] = "ok"


numbers = itertools.count()


@settings(max_examples=15, deadline=None)
@given(told=st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=10))
def test_whatever_is_told_in_whatever_order(told: list[tuple[str, str, bool]], tmp_path_factory: object) -> None:
    place = Path(str(tmp_path_factory.mktemp("model")))  # type: ignore[attr-defined]
    model = Model()
    with standfast.open(place / "s.db", data_dir=place) as sf:
        for at_us, (kind, call, twice) in enumerate(told, 1):
            given = GIVEN.get(kind) or bash(
                "PreToolUse" if kind == "call" else "PostToolUse", "ls", id=call, tool_response="x"
            )
            for _ in range(1 + twice):  # the same record again changes nothing
                keep(sf, given, at_us)
            model.tell(kind, call)
        assert sf.sessions.get("claude-code:s1").state == model.state
        assert {row["call_id"]: row["status"] for row in calls(sf)} == model.calls
        seen = [type for type, _ in events(sf)]
        assert {kind: seen.count(TYPES[kind]) for kind in KINDS} == model.told
