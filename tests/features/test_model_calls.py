"""Calls of an LLM: prompt, context length, response and tokens, stored together and settled with their hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import standfast
from standfast.errors import Conflict, InvalidInput, KeyConflict
from standfast.record.model_calls import LONG_BYTES, ModelUsage, usage_of

USED = {"input_tokens": 800, "output_tokens": 12}


def test_a_call_stores_its_prompt_context_response_and_tokens(sf: standfast.Standfast) -> None:
    """001-26: inputs and outputs are stored when the call ends. Nothing of a running call is stored."""
    with sf.session("fix-42", agent="coder") as s:
        made = s.model_call("opus", prompt="plan the parser", response="split it", usage=USED, context_tokens=9_000)
        assert (made.model, made.context_tokens, made.input_tokens, made.output_tokens) == ("opus", 9_000, 800, 12)
        assert s.model_calls() == [made.replace(receipt=None)]
        assert s.messages() == [], "the conversation is the program's own"
        said = {one.id: (one.role, one.content) for one in s.subagent("model calls").messages()}
    assert said == {made.prompt_id: ("prompt", "plan the parser"), made.response_id: ("response", "split it")}
    (total,) = sf.usage.list(by="model")
    assert (total.name, total.responses, total.input_tokens, total.output_tokens) == ("opus", 1, 800, 12)
    assert [hit.id for hit in sf.search("parser").hits] == [made.prompt_id]
    assert [event.type for event in sf.journal.about(made.id)] == ["usage.recorded"]


def test_a_long_prompt_is_stored_by_reference(sf: standfast.Standfast) -> None:
    prompt = "line\n" * (LONG_BYTES // 5 + 1)
    with sf.session("fix-42") as s:
        s.model_call("opus", prompt=prompt, response="short", usage=USED)
        stored, _ = s.subagent("model calls").messages()
        assert isinstance(stored.content, dict)
        assert stored.content["size_bytes"] == len(prompt)
        assert s.artifacts.get(str(stored.content["artifact"])).decode() == prompt


def test_a_key_records_once(sf: standfast.Standfast) -> None:
    sf.budgets.set("all", tokens=10_000)
    for _ in range(3):
        with sf.session("fix-42") as s:
            s.model_call("opus", prompt="p", response="r", usage=USED, key="plan")
            with pytest.raises(KeyConflict, match="800 tokens in and 12 out of opus"):
                s.model_call("opus", prompt="p", response="r", usage=USED | {"output_tokens": 13}, key="plan")
    with sf.session("fix-43") as s:
        s.model_call("opus", prompt="p", response="r", usage=USED, key="plan")
    assert sf.budgets.get("all").spent.tokens == 2 * 812


def test_without_a_hold_the_usage_is_counted_afterwards(sf: standfast.Standfast) -> None:
    """The usage is booked even if it exceeds the limit. The next reservation is refused."""
    sf.budgets.set("agent:coder", tokens=1_000, usd=1)
    with sf.session("fix-42", agent="coder") as s:
        for _ in range(2):
            s.model_call("opus", prompt="p", response="r", usage=USED | {"cost_usd": "0.25"})
        with pytest.raises(Conflict, match="has -624 tokens left"), s.budget(tokens=1, usd=0):
            pass
    now = sf.budgets.get("agent:coder")
    assert (now.spent.tokens, now.spent.microusd, now.spent.calls) == (1_624, 500_000, 2)


def test_a_wrapped_function_reserves_records_and_settles(sf: standfast.Standfast) -> None:
    sf.budgets.set("all", tokens=2_000)
    answers: list[Any] = [
        SimpleNamespace(text="first", usage=SimpleNamespace(prompt_tokens=300, completion_tokens=20)),
        {"text": "second", "usage": {"input_tokens": 100, "output_tokens": 5}},
        TimeoutError("no answer"),
        standfast.NotApplied("no network"),
    ]

    def provider(prompt: str) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with sf.session("fix-42") as s:
        ask: Callable[[str], Any] = s.wrap_model(provider, "opus", tokens=600)
        assert (ask("one").text, ask("two")["text"]) == ("first", "second")
        for error in (TimeoutError, standfast.NotApplied):
            with pytest.raises(error):
                ask("three")
        with pytest.raises(InvalidInput, match="usage has no input_tokens"):
            s.wrap_model(lambda prompt: "text only", "opus", tokens=600)("four")
        calls = s.model_calls()
        with pytest.raises(Conflict, match="budget 'all' has 375 tokens left"):
            ask("five")
    assert [(one.input_tokens, one.hold_id is not None) for one in calls] == [(300, True), (100, True)]
    assert [one.state for one in sf.budgets.holds("all", ended=True)] == [
        "held",
        "released",
        "held",
        "settled",
        "settled",
    ]
    assert [one.in_doubt for one in sf.budgets.holds("all")] == [True, True]
    assert sf.budgets.get("all").spent.tokens == 425


GARBAGE: list[dict[str, Any]] = [
    {"model": ""},
    {"model": None},
    {"usage": None},
    {"usage": {}},
    {"usage": {"input_tokens": 1}},
    {"usage": {"input_tokens": -1, "output_tokens": 1}},
    {"usage": {"input_tokens": 1.5, "output_tokens": 1}},
    {"usage": USED | {"cost_usd": "dear"}},
    {"context_tokens": -1},
    {"prompt": {1, 2}},
    {"response": float("nan")},
    {"key": ""},
]


@pytest.mark.parametrize("more", GARBAGE, ids=str)
def test_garbage_is_refused_and_nothing_is_written(sf: standfast.Standfast, more: dict[str, Any]) -> None:
    with sf.session("fix-42") as s:
        given: dict[str, Any] = {"model": "opus", "prompt": "p", "response": "r", "usage": USED} | more
        with pytest.raises(InvalidInput):
            s.model_call(given.pop("model"), **given)
        assert s.model_calls() == []
    assert sf.usage.list() == []


def test_providers_names_of_the_counts_are_known() -> None:
    openai = {"prompt_tokens": 7, "completion_tokens": 3}
    anthropic = {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1}
    assert usage_of(openai) == ModelUsage(7, 3)
    assert usage_of(SimpleNamespace(**anthropic)) == ModelUsage(7, 3, cached_input_tokens=2, cache_write_tokens=1)


def test_imported_usage_counts_in_the_budgets_of_its_agent_once(sf: standfast.Standfast, tmp_path: Path) -> None:
    """A transcript has the usage of past calls. A record that repeats or corrects a response is not added."""
    sf.budgets.set("agent:claude-code", tokens=100)
    transcript = tmp_path / "11111111-1111-4111-8111-111111111111.jsonl"

    def grow(id: str, tokens: int) -> None:
        usage = {"input_tokens": tokens, "output_tokens": 5}
        message = {"id": id, "role": "assistant", "model": "opus", "content": [], "usage": usage}
        record = {
            "type": "assistant",
            "uuid": f"{id}-{tokens}",
            "sessionId": transcript.stem,
            "timestamp": "2026-11-18T10:00:00Z",
            "requestId": id,
            "cwd": str(tmp_path),
            "message": message,
        }
        with transcript.open("a") as file:
            file.write(json.dumps(record) + "\n")
        sf.imports.run("claude-code", transcript)

    grow("msg_1", 10)
    assert sf.budgets.get("agent:claude-code").spent.tokens == 15
    grow("msg_1", 30)
    grow("msg_2", 70)
    now = sf.budgets.get("agent:claude-code")
    assert (now.spent.tokens, now.spent.calls, now.exhausted) == (110, 2, True)
