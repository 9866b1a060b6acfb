"""Messages in the formats of OpenAI and Anthropic, tool calls without a result, and a custom loop that is killed."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import standfast
from standfast.record.chat import INTERRUPTED
from standfast.record.conversations import Conversations
from standfast.record.messages import Message
from standfast.testing import Crash
from tests import frameworks

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent_loop_of_your_own.py"
GUIDE = EXAMPLE.parent.parent / "docs" / "guides" / "tool-loop.md"


def openai_reply(*calls: tuple[str, str], text: str | None = None) -> dict[str, Any]:
    """A reply in the form of `completion.choices[0].message.model_dump()`, with its empty fields."""
    asked = [{"id": id, "type": "function", "function": {"name": "open_pr", "arguments": a}} for id, a in calls]
    return {"content": text, "refusal": None, "role": "assistant", "annotations": [], "tool_calls": asked or None}


THOUGHT = {"type": "thinking", "thinking": "one more", "signature": "sig"}
USED = {"type": "tool_use", "id": "toolu_1", "name": "open_pr", "input": {"branch": "c"}}
SAID: list[tuple[str, Any]] = [
    ("system", "Be brief."),
    ("user", "Open them."),
    ("assistant", openai_reply(("call_1", '{"branch": "a"}'), ("call_2", "{broken"), text="Two first.")),
    ("tool", {"call_id": "call_2", "error": "no such branch"}),
    ("user", [{"type": "text", "text": "And c."}]),  # written during the first call
    ("tool", {"call_id": "call_1", "result": {"url": "pull/1"}}),
    ("assistant", [THOUGHT, {"type": "text", "text": "Now c."}, USED]),
    ("tool", {"tool_call_id": "toolu_1", "role": "tool", "content": "pull/3"}),
    ("assistant", "Done."),
]
OPENAI = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Open them."},
    {
        "role": "assistant",
        "content": "Two first.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "open_pr", "arguments": '{"branch": "a"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "open_pr", "arguments": "{broken"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": '{"url":"pull/1"}'},
    {"role": "tool", "tool_call_id": "call_2", "content": "no such branch"},
    {"role": "user", "content": [{"type": "text", "text": "And c."}]},
    {
        "role": "assistant",
        "content": "Now c.",
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "open_pr", "arguments": '{"branch": "c"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "toolu_1", "content": "pull/3"},
    {"role": "assistant", "content": "Done."},
]
ANTHROPIC = [
    {"role": "user", "content": [{"type": "text", "text": "Open them."}]},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Two first."},
            {"type": "tool_use", "id": "call_1", "name": "open_pr", "input": {"branch": "a"}},
            {"type": "tool_use", "id": "call_2", "name": "open_pr", "input": {"arguments": "{broken"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": '{"url":"pull/1"}', "is_error": False},
            {"type": "tool_result", "tool_use_id": "call_2", "content": "no such branch", "is_error": True},
            {"type": "text", "text": "And c."},
        ],
    },
    {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Now c."}, USED]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "pull/3", "is_error": False}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
]


def test_messages_are_sent_in_the_form_of_either_provider(sf: standfast.Standfast) -> None:
    """001-6: each result directly follows its call, in the format of either provider and in any order of arrival."""
    with sf.session("talk") as s:
        for role, content in SAID:
            s.say(role, content)
        messages = s.messages()
    assert standfast.to_openai(messages) == {"messages": OPENAI}
    assert standfast.to_anthropic(messages) == {"system": "Be brief.", "messages": ANTHROPIC}
    assert standfast.orphans(messages) == []


@pytest.mark.slow
def test_both_forms_are_those_that_the_providers_publish() -> None:
    """001-6: the types of the providers' own libraries accept them."""
    frameworks.importable(frameworks.OPENAI_AGENTS, frameworks.ANTHROPIC)
    messages = [said(*one) for one in SAID[:-2]]
    assert_published("openai", standfast.to_openai(messages)["messages"])
    assert_published("anthropic", standfast.to_anthropic(messages)["messages"])


def assert_published(provider: str, sent: list[Any]) -> None:
    """Assert that each field has the published type, and that no other field exists."""
    from pydantic import TypeAdapter

    if provider == "openai":
        kind = importlib.import_module("openai.types.chat").ChatCompletionMessageParam
    else:
        kind = importlib.import_module("anthropic.types").MessageParam
    adapter: TypeAdapter[Any] = TypeAdapter(list[kind])  # type: ignore[valid-type]  # known when it runs
    assert whole(adapter.validate_python(sent, strict=True)) == sent


def whole(value: Any) -> Any:
    """The values of a validated TypedDict; iterables are checked while they are read."""
    if isinstance(value, dict):
        return {name: whole(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [whole(one) for one in value]
    return value


def said(role: str, content: Any, retracted_us: int | None = None) -> Message:
    kind = "text" if isinstance(content, str) else "json"
    return Message("msg_1", "ses_1", "nod_1", 1, role, kind, content, None, "me", 1, 1, retracted_us)


def test_calls_without_a_result_are_found_and_sent_with_a_substitute(sf: standfast.Standfast) -> None:
    """002-11: an LLM may use an id twice. Messages that were taken back do not count."""
    with sf.session("talk") as s:
        s.say("user", "go")
        s.say("assistant", openai_reply(("call_1", '{"branch": "a"}')))
        s.say("tool", {"call_id": "call_1", "result": None})
        s.say("assistant", openai_reply(("call_1", '{"branch": "b"}'), ("call_2", "")))
        assert [(one.call_id, one.name, one.arguments) for one in standfast.orphans(s.messages())] == [
            ("call_1", "open_pr", {"branch": "b"}),
            ("call_2", "open_pr", {}),
        ]
        s.say("user", "stop")
        sent = standfast.to_openai(s.messages())["messages"]
        assert [one.get("content") for one in sent] == ["go", None, "null", None, INTERRUPTED, INTERRUPTED, "stop"]
        s.say("assistant", openai_reply(("call_9", "{}")))
        Conversations(sf._store).take_back("talk")
        assert len(standfast.orphans(s.messages())) == 2
        assert standfast.to_openai(s.messages(last=1))["messages"] == []  # the newest message was taken back
        behind = standfast.to_openai(s.messages(after=2))["messages"]
        assert behind[0]["role"] == "assistant", "a result whose call is not among the messages is left out"


def test_whole_messages_and_other_json_values_are_accepted() -> None:
    """001-6: Anthropic's response is accepted as it is dumped. Another JSON value of the user becomes text."""
    whole_reply = {"id": "msg_1", "type": "message", "role": "assistant", "content": [USED], "stop_reason": "tool_use"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "pull/3"}]}
    messages = [said("user", {"n": 1}), said("assistant", whole_reply), said("user", [result])]
    assert standfast.orphans(messages[:2]) == [standfast.ToolCall("toolu_1", "open_pr", {"branch": "c"})]
    assert standfast.orphans(messages) == []
    assert [one["content"] for one in standfast.to_openai(messages)["messages"]] == ['{"n":1}', None, "pull/3"]
    assert standfast.to_anthropic(messages)["messages"][2]["content"] == [{**result, "is_error": False}]


@pytest.mark.parametrize(
    ("role", "content", "match"),
    [
        ("note", "x", "message 1 has the role 'note', which no LLM takes"),
        ("tool", "pull/1", "message 1 has the role 'tool' and no call_id"),
        ("tool", {"call_id": "call_1"}, "no call_id"),
        ("assistant", "hello", "the first message is from the assistant"),
    ],
)
def test_what_no_provider_takes_is_refused(role: str, content: Any, match: str) -> None:
    """001-6: messages that no provider accepts are refused, not left out."""
    with pytest.raises(standfast.InvalidInput, match=match):
        standfast.to_anthropic([said(role, content)])


IDS = st.sampled_from(["a", "b", "c"])
RESULTS = st.builds(lambda id: ("tool", {"call_id": id, "result": 1}), IDS)
ASKED = st.lists(IDS, max_size=3, unique=True)
REPLIES = ASKED.map(lambda ids: ("assistant", openai_reply(*((id, "{}") for id in ids), text="x")))
BLOCKS = ASKED.map(lambda ids: ("assistant", [{**USED, "id": id} for id in ids]))


@given(st.lists(st.one_of(RESULTS, REPLIES, BLOCKS, st.just(("user", "go on")))))
def test_any_history_is_one_that_the_providers_accept(history: list[tuple[str, Any]]) -> None:
    """002-11: killed and continued anywhere, each call is directly followed by its results, and no others."""
    messages = [said("user", "go"), *(said(*one) for one in history)]
    sent = standfast.to_openai(messages)["messages"]
    while sent:
        first, *sent = sent
        assert first["role"] in ("user", "assistant")
        asked = [call["id"] for call in first.get("tool_calls", ())]
        assert [one.get("tool_call_id") for one in sent[: len(asked)]] == asked
        sent = sent[len(asked) :]
    blocks = standfast.to_anthropic(messages)["messages"]
    assert [one["role"] for one in blocks] == ["user", "assistant"] * (len(blocks) // 2) + ["user"] * (len(blocks) % 2)
    for before, after in zip(blocks[::2], blocks[1::2], strict=False):
        assert before["content"]
        assert after["content"]
    for asked_in, answered_in in zip(blocks[1::2], [*blocks[2::2], {"content": []}], strict=False):
        used = [one["id"] for one in asked_in["content"] if one["type"] == "tool_use"]
        results = [one.get("tool_use_id") for one in answered_in["content"][: len(used)]]
        assert results == used
        assert "tool_result" not in [one["type"] for one in answered_in["content"][len(used) :]]


# -- a custom loop ------------------------------------------------------------------------------------------------


def example() -> Any:
    spec = importlib.util.spec_from_file_location("agent_loop_of_your_own", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():  # another example in this process may have an effect of the same name
        warnings.filterwarnings("ignore", message="effect 'github.open_pr' is declared twice")
        spec.loader.exec_module(module)
    return module


def test_the_loop_has_at_most_60_lines_and_the_guide_has_the_number() -> None:
    count = len(EXAMPLE.read_text().splitlines())
    assert count <= 60
    assert f"in {count} lines" in GUIDE.read_text()


@pytest.mark.parametrize(
    "branches",
    [pytest.param([["fix-42"], []], id="one"), pytest.param(None, id="three", marks=pytest.mark.slow)],
)
def test_a_loop_killed_at_every_crash_point_opens_each_pull_request_once(
    sf_crash: Crash, monkeypatch: pytest.MonkeyPatch, branches: list[list[str]] | None
) -> None:
    """002-11, 002-20, 000-1: the server has each request once, the loop ends, and every call has a result."""
    module = example()
    if branches is not None:
        monkeypatch.setattr(module, "SCRIPT", branches)
    wanted = [branch for turn in module.SCRIPT for branch in turn]
    ends = list(sf_crash(module.agent, "Open a pull request for each fix."))
    assert len(ends) > 20
    for end in ends:
        assert (end.directory / "server.log").read_text().split() == wanted, end
        assert (end.result, end.error) == ("Three are open.", None), end
        with end.open() as store:
            messages = store.sessions.messages("three-fixes")
        assert [one.role for one in messages].count("tool") == len(wanted), end
        assert [one.role for one in messages].count("user") == 1, end
        assert standfast.orphans(messages) == [], end
    places = " ".join(end.at for end in ends)
    assert all(point in places for point in ("effect.before_done", "effect.after_done", "message.before_say"))


@pytest.mark.slow
def test_the_same_loop_without_effects_opens_a_pull_request_twice(
    sf_crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-10: the control: plain functions as tools, the same kills, the same oracle."""
    module = example()
    monkeypatch.setattr(module, "SCRIPT", [["fix-42"], []])
    monkeypatch.setattr(module, "TOOLS", {"open_pr": module.open_pr.plain})
    ends = list(sf_crash(module.agent, "Open it."))
    assert any((end.directory / "server.log").read_text().split() == ["fix-42"] * 2 for end in ends)


@pytest.mark.parametrize("point", ["effect.before_done:2", "effect.after_done:1", "message.after_say:2"])
def test_a_killed_loop_continues_from_its_messages_on_either_engine(
    engine_url: str, tmp_path: Path, point: str
) -> None:
    """002-11, 002-20: a separate program is killed once and run again."""
    environment = {**os.environ, "STANDFAST_DB_URL": engine_url, "STANDFAST_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, str(EXAMPLE)]

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True)

    killed = run(STANDFAST_CRASH_AT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run()
    assert (done.returncode, done.stdout) == (0, "Three are open. fix-42 fix-43 fix-44\n"), done.stderr


def test_an_awaited_loop_uses_the_same_functions(engine_url: str, tmp_path: Path) -> None:
    """001-6: the functions accept the result of `await s.messages()`."""

    async def work() -> list[str]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("talk") as s:
            await s.say("assistant", openai_reply(("call_1", json.dumps({"branch": "a"}))))
            return [call.call_id for call in standfast.orphans(await s.messages())]

    assert asyncio.run(work()) == ["call_1"]


# -- the guide, with the providers' own clients -------------------------------------------------------------------


def openai_client(seen: list[Any]) -> Any:
    import httpx
    from openai import OpenAI  # type: ignore[import-not-found,unused-ignore]

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content)["messages"])
        branch = {1: "a", 3: "b"}.get(len(seen[-1]))
        message = (
            openai_reply((f"call_{branch}", json.dumps({"branch": branch}))) if branch else openai_reply(text="ok")
        )
        message["annotations"] = [{"type": "url_citation"}]  # responses have it, requests do not
        choice = {"index": 0, "finish_reason": "stop", "message": {k: v for k, v in message.items() if v is not None}}
        return httpx.Response(
            200, json={"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        )

    return OpenAI(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(reply)))


def anthropic_client(seen: list[Any]) -> Any:
    import httpx2 as httpx  # type: ignore[import-not-found,unused-ignore]
    from anthropic import Anthropic  # type: ignore[import-not-found,unused-ignore]

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content)["messages"])
        branch = {1: "a", 3: "b"}.get(len(seen[-1]))
        used = {"type": "tool_use", "id": f"toolu_{branch}", "name": "open_pr", "input": {"branch": branch}}
        content = [THOUGHT, used] if branch else [{"type": "text", "text": "ok"}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
        return httpx.Response(200, json={**made, "stop_reason": "end_turn", "stop_sequence": None})

    return Anthropic(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(reply)))


def guide_loop(provider: str) -> str:
    """The first block of the guide; for Anthropic its last two lines are those of the second block."""
    first, second, *_ = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return first if provider == "openai" else "\n".join([*first.splitlines()[:-2], *second.splitlines()])


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.slow
def test_the_loop_of_the_guide_runs_with_the_client_of_the_provider(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-6, 002-20: the client's response is stored, read and sent again. Nothing leaves this process."""
    frameworks.importable(frameworks.OPENAI_AGENTS, frameworks.ANTHROPIC)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path))
    opened: list[str] = []

    @standfast.effect(f"test.guide_{provider}", by="branch")
    def open_pr(branch: str) -> str:
        opened.append(branch)
        return f"pull of {branch}"

    seen: list[Any] = []
    client = openai_client(seen) if provider == "openai" else anthropic_client(seen)
    names = {"standfast": standfast, "client": client, "TOOLS": {"open_pr": open_pr}, "MODEL": "m", "SCHEMAS": []}
    for _ in range(2):  # the second run finds all work done
        exec(guide_loop(provider), {**names, "prompt": "Open them."})
    assert opened == ["a", "b"]
    assert [len(messages) for messages in seen] == [1, 3, 5]
    assert "pull of b" in json.dumps(seen[-1][-1])
    assert provider == "openai" or seen[-1][1]["content"][0] == THOUGHT
    assert_published(provider, seen[-1])
