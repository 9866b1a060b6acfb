"""The MCP server, driven by the official client: in memory and over stdio, in both protocol modes."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle

mcp = pytest.importorskip("mcp", reason="mcp is not installed")

MODES = ["auto", "legacy"]
TOOLS = [
    "approval_request",
    "approval_wait",
    "brief",
    "decide",
    "effect_begin",
    "effect_done",
    "knowledge_add",
    "knowledge_search",
    "mail_read",
    "mail_send",
    "search",
    "task_add",
    "task_claim",
    "task_done",
]


class Agent:
    """An MCP client."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        answer = await self.client.call_tool(tool, arguments)
        assert not answer.is_error, answer.content[0].text
        structured: dict[str, Any] = answer.structured_content
        return structured

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error
        return str(answer.content[0].text)


@asynccontextmanager
async def agent(sf: standfast.Standfast, mode: str = "auto") -> AsyncIterator[Agent]:
    from standfast.mcp.server import build

    async with mcp.Client(build(sf), mode=mode) as client:
        yield Agent(client)


@pytest.fixture
def shared(engine_url: str, tmp_path: Path) -> Any:
    """The store, opened as the command opens it: claims belong to the actor."""
    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", actor="coder"), as_actor=True) as sf:
        yield sf


def talk(sf: standfast.Standfast, story: Callable[[Agent], Coroutine[Any, Any, None]], mode: str = "auto") -> None:
    async def run() -> None:
        async with agent(sf, mode) as ask:
            await story(ask)

    asyncio.run(run())


@pytest.mark.parametrize("mode", MODES)
def test_there_are_fourteen_tools_and_they_cost_little(tmp_path: Path, mode: str) -> None:
    async def story(ask: Agent) -> None:
        tools = (await ask.client.list_tools()).tools
        assert sorted(tool.name for tool in tools) == TOOLS
        schemas = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        assert len(json.dumps(schemas)) <= 8_000
        for tool in tools:
            assert tool.annotations.read_only_hint in (True, False)
            written = not tool.annotations.read_only_hint
            assert written == ("key" in tool.input_schema["properties"]), tool.name
            assert written == bool(tool.annotations.idempotent_hint), tool.name
        resource = await ask.client.read_resource("standfast://brief")
        assert resource.contents[0].text.startswith("# Brief for coder")

    with handle.connect(config.load(data_dir=tmp_path / "data", actor="coder"), as_actor=True) as sf:
        talk(sf, story, mode)


def test_a_day_of_an_agent(shared: standfast.Standfast) -> None:
    """000-19: an agent decides, acts once, takes a task, sends mail, searches and reads the brief."""

    async def story(ask: Agent) -> None:
        decided = await ask("decide", what="edit the parser", why="the test names it", then="patch")
        begun = await ask("effect_begin", tool="gh.open_pr", intent={"branch": "fix", "body": "one"}, by=["branch"])
        assert (begun["act"], begun["state"]) == (True, "dispatched")
        assert (await ask("effect_done", id=begun["id"], result={"number": 7}))["state"] == "acknowledged"
        again = await ask("effect_begin", tool="gh.open_pr", intent={"branch": "fix", "body": "two"}, by=["branch"])
        assert (again["act"], again["result"], again["id"]) == (False, {"number": 7}, begun["id"])
        closed = await ask("decide", id=decided["id"], outcome="pull request 7")
        assert (closed["state"], closed["outcome"]) == ("done", "pull request 7")
        added = await ask("task_add", title="flaky test", labels=["ci"])
        taken = await ask("task_claim", label="ci")
        assert taken["id"] == added["id"]
        assert (await ask("task_claim"))["id"] is None
        assert (await ask("task_done", id=added["id"], result="green", note="it was the clock"))["state"] == "closed"
        await ask("mail_send", to="coder", body={"please": "review"}, subject="pull request 7")
        inbox = await ask("mail_read")
        assert [mail["subject"] for mail in inbox["mail"]] == ["pull request 7"]
        assert await ask("mail_read", done=[inbox["mail"][0]["id"]]) == {"done": [inbox["mail"][0]["id"]], "mail": []}
        found = await ask("search", query="flaky")
        assert [hit["kind"] for hit in found["hits"]] == ["task"]
        assert "edit the parser" in (await ask("brief"))["text"]

    talk(shared, story)


def test_the_same_key_gives_the_same_answer_and_does_nothing(shared: standfast.Standfast) -> None:
    async def story(ask: Agent) -> None:
        first = await ask("task_add", title="flaky test", key="a")
        again = await ask("task_add", title="flaky test", key="a")
        assert again == {**first, "replayed": True}
        taken = await ask("task_claim", key="b")
        assert (await ask("task_claim", key="b"))["id"] == taken["id"]
        assert "another call" in await ask.refused("task_add", title="something else", key="a")
        sent = await ask("mail_send", to="reviewer", body="hello", key="c")
        assert (await ask("mail_send", to="reviewer", body="hello", key="c"))["id"] == sent["id"]
        decided = await ask("decide", what="once", key="d")
        assert (await ask("decide", what="once", key="d"))["id"] == decided["id"]

    talk(shared, story)
    assert shared.tasks.list()[0].occurrences == 1
    assert len(shared.mail.list("reviewer")) == 1


def test_an_approval_can_be_requested_and_awaited_but_not_granted(shared: standfast.Standfast) -> None:
    async def story(ask: Agent) -> None:
        asked = await ask("approval_request", tool="deploy", intent={"to": "production"}, why="the fix is in")
        assert (await ask("approval_wait", id=asked["id"], timeout_s=0))["state"] == "requested"
        refusal = await ask.refused("effect_begin", tool="deploy", intent={"to": "production"}, approve=True)
        assert "needs approval" in refusal
        shared.approvals.grant(asked["id"], approver="ada")
        assert (await ask("approval_wait", id=asked["id"]))["state"] == "granted"
        begun = await ask("effect_begin", tool="deploy", intent={"to": "production"}, approve=True)
        assert (begun["act"], begun["id"]) == (True, asked["effect_id"])
        names = [tool.name for tool in (await ask.client.list_tools()).tools]
        assert not any("grant" in name or "approve" in name or "deny" in name for name in names)

    talk(shared, story)


def test_a_grant_is_used_once(shared: standfast.Standfast) -> None:
    """R14: one grant, one dispatch; after a failed attempt the agent asks again."""
    given = {"tool": "deploy", "intent": {"to": "production"}}

    async def story(ask: Agent) -> None:
        asked = await ask("approval_request", **given)
        shared.approvals.grant(asked["id"], approver="ada")
        begun = await ask("effect_begin", **given, approve=True)
        assert begun["act"]
        assert "in_progress" in await ask.refused("effect_begin", **given, approve=True)
        await ask("effect_done", id=begun["id"], outcome="failed", why="the server refused it")
        assert "needs approval" in await ask.refused("effect_begin", **given, approve=True)
        assert (await ask("approval_wait", id=asked["id"], timeout_s=0))["state"] == "consumed"

    talk(shared, story)
    (effect,) = shared.effects.list()
    assert (effect.state, effect.attempt) == ("failed", 1)


def test_refusals_name_the_fix_and_change_nothing(shared: standfast.Standfast) -> None:
    async def story(ask: Agent) -> None:
        assert "there is no task 'nope'" in await ask.refused("task_done", id="nope")
        assert "title" in await ask.refused("task_add")
        assert "no word to look for" in await ask.refused("search", query="--")
        assert "at least 100" in await ask.refused("brief", max_tokens=3)
        assert await ask.refused("decide") != ""
        assert await ask.refused("effect_begin", tool="x", intent={"a": "\ud800"}) != ""
        assert await ask.refused("mail_send", to="", body="x") != ""
        assert await ask.refused("approval_wait", id="nope", timeout_s=10**9) != ""

    before = list(shared.rows("SELECT count(*) AS n FROM event"))
    talk(shared, story)
    assert list(shared.rows("SELECT count(*) AS n FROM event")) == before


def server(data_dir: Path) -> Any:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**kept, "STANDFAST_DATA_DIR": str(data_dir), "STANDFAST_ACTOR": "coder"}
    command = ["-c", "from standfast.cli import main; main()", "mcp"]
    return mcp.StdioServerParameters(command=sys.executable, args=command, env=environment)


@pytest.mark.parametrize("mode", MODES)
def test_it_serves_over_stdio(tmp_path: Path, mode: str) -> None:
    async def run() -> None:
        async with mcp.Client(server(tmp_path / "data"), mode=mode) as client:
            ask = Agent(client)
            added = await ask("task_add", title="flaky test")
            assert (await ask("task_claim"))["id"] == added["id"]

    asyncio.run(run())
    with handle.connect(config.load(data_dir=tmp_path / "data", actor="coder"), as_actor=True) as sf:
        assert sf.tasks.list(held=True)[0].agent == "coder"


def test_a_client_that_vanishes_leaves_nothing_open(tmp_path: Path) -> None:
    """The client disconnects during a waiting call. The server process exits, and the next writer does not wait."""

    async def run() -> None:
        async with mcp.Client(server(tmp_path / "data")) as client:
            ask = Agent(client)
            asked = await ask("approval_request", tool="deploy", intent={"to": "production"})
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask("approval_wait", id=asked["id"], timeout_s=300), 0.5)

    asyncio.run(run())
    with standfast.open(data_dir=tmp_path / "data") as sf:
        sf.tasks.add("written at once")
        assert [one.state for one in sf.approvals.list()] == ["requested"]


def test_schemas_are_closed_and_an_unknown_argument_is_refused_by_name(shared: standfast.Standfast) -> None:
    """A misspelt argument is refused, not ignored."""

    async def story(ask: Agent) -> None:
        for tool in (await ask.client.list_tools()).tools:
            assert tool.input_schema["additionalProperties"] is False, tool.name
        said = await ask.refused("approval_request", tool="deploy", intent={"env": "prod"}, input={"env": "prod"})
        assert "approval_request takes no argument 'input'; did you mean 'intent'?" in said
        assert "priority" in await ask.refused("task_add", title="x", urgency=1)
        assert "'everything'" in await ask.refused("search", query="x", everything=True)

    before = list(shared.rows("SELECT count(*) AS n FROM event"))
    talk(shared, story)
    assert list(shared.rows("SELECT count(*) AS n FROM event")) == before


def test_an_approval_needs_an_intent(shared: standfast.Standfast) -> None:
    """000-17: a person approves an intent, so production and staging need two approvals."""

    async def story(ask: Agent) -> None:
        for tool in (await ask.client.list_tools()).tools:
            if tool.name in ("approval_request", "effect_begin"):
                assert "intent" in tool.input_schema["required"]
        assert "intent" in await ask.refused("approval_request", tool="deploy")
        assert "intent" in await ask.refused("approval_request", tool="deploy", intent={})
        assert "intent" in await ask.refused("effect_begin", tool="deploy")
        assert "intent" in await ask.refused("effect_begin", tool="deploy", intent=None, approve=True)
        staging = await ask("approval_request", tool="deploy", intent={"env": "staging"})
        prod = await ask("approval_request", tool="deploy", intent={"env": "prod"})
        assert staging["id"] != prod["id"]

    talk(shared, story)
    assert len(shared.approvals.list()) == 2


def test_waiting_calls_do_not_block_others(shared: standfast.Standfast) -> None:
    """002-11: 50 calls wait for an answer; every other call is answered, and each waiting one when it is granted."""

    async def story(ask: Agent) -> None:
        asked = await ask("approval_request", tool="deploy", intent={"to": "production"})
        waiting = [asyncio.create_task(ask("approval_wait", id=asked["id"], timeout_s=60)) for _ in range(50)]
        for n in range(3):
            added = await asyncio.wait_for(ask("task_add", title=f"meanwhile {n}"), 20)
            assert added["state"] == "open"
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(shared.approvals.grant, asked["id"], approver="ada")
        answers = await asyncio.wait_for(asyncio.gather(*waiting), 30)
        assert {answer["state"] for answer in answers} == {"granted"}

    talk(shared, story)


def test_the_end_of_stdin_ends_the_server_while_calls_wait(tmp_path: Path) -> None:
    """002-11: over stdio, 50 calls wait and one is answered. Then the client closes the connection."""
    parameters = server(tmp_path / "data")
    running = subprocess.Popen(
        [parameters.command, *parameters.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=parameters.env,
        text=True,
    )
    assert running.stdin is not None
    assert running.stdout is not None

    def tell(id: int | None, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if id is None else {"id": id})
        running.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
        running.stdin.flush()  # type: ignore[union-attr]

    def hear(id: int) -> dict[str, Any]:
        for line in running.stdout:  # type: ignore[union-attr]
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == id:
                return answer["result"]
        raise AssertionError("the server ended")

    client = {"name": "test", "version": "1"}
    tell(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    hear(1)
    tell(None, "notifications/initialized")
    tell(2, "tools/call", name="approval_request", arguments={"tool": "deploy", "intent": {"to": "production"}})
    asked = hear(2)["structuredContent"]
    for n in range(50):
        tell(100 + n, "tools/call", name="approval_wait", arguments={"id": asked["id"], "timeout_s": 300})
    tell(3, "tools/call", name="task_add", arguments={"title": "at once"})
    assert hear(3)["structuredContent"]["state"] == "open"
    running.stdin.close()
    assert running.wait(15) == 0
    running.stdout.close()


@pytest.mark.parametrize(
    "meta",
    [
        {"x-codex-turn-metadata": {"session_id": "s-1", "thread_id": "t-1"}},
        {"x-codex-turn-metadata": '{"session_id": "s-1"}'},
        {"threadId": "s-1"},
    ],
)
def test_the_actor_of_a_call_is_the_session_its_client_names(shared: standfast.Standfast, meta: dict[str, Any]) -> None:
    """000-18: two sessions of one Codex are two actors; one cannot close the task of the other."""

    async def story(ask: Agent) -> None:
        added = await ask("task_add", title="mine")
        taken = await ask.client.call_tool("task_claim", {"id": added["id"]}, meta=meta)
        assert not taken.is_error, taken.content[0].text
        other = {"x-codex-turn-metadata": {"session_id": "s-2"}}
        refused = await ask.client.call_tool("task_done", {"id": added["id"]}, meta=other)
        assert refused.is_error
        assert [task.agent for task in shared.tasks.list(held=True)] == ["codex:s-1"]
        closed = await ask.client.call_tool("task_done", {"id": added["id"]}, meta=meta)
        assert not closed.is_error, closed.content[0].text

    talk(shared, story)


def test_a_named_actor_is_not_replaced_by_what_a_client_says(
    shared: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STANDFAST_ACTOR decides the actor."""
    monkeypatch.setenv("STANDFAST_ACTOR", "coder")

    async def story(ask: Agent) -> None:
        await ask("task_add", title="mine")
        await ask.client.call_tool("task_claim", {}, meta={"threadId": "s-1"})

    talk(shared, story)
    assert [task.agent for task in shared.tasks.list(held=True)] == ["coder"]
