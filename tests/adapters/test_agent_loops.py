"""One agent in four frameworks, whose tools are effects. It is killed between an effect and its record."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.testing import Crash
from tests import frameworks, scripted_llms
from tests.sampling import sampled

FRAMEWORKS: dict[str, list[str]] = {
    "plain": [],
    "langgraph": [],
    "openai_agents": [frameworks.OPENAI_AGENTS],
    "openai_agents_awaited": [frameworks.OPENAI_AGENTS],
    "pydantic_ai": [frameworks.PYDANTIC_AI],
}
ROOT = Path(__file__).resolve().parents[2]


def lives(framework: str, tool: str, directory: Path, **more: str) -> list[dict[str, Any]]:
    """Run the agent's processes, each from the beginning. The first one is killed during its effect."""
    if framework.startswith("langgraph"):
        pytest.importorskip("langgraph", reason="pip install '.[dev]' brings LangGraph")
    needed = FRAMEWORKS[framework.removesuffix("_continued")]
    path = os.pathsep.join([str(ROOT), *frameworks.places(*needed)])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent_loops", framework, str(directory), tool],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**environment, "PYTHONPATH": path, **more},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def changed(directory: Path) -> list[str]:
    return (directory / "world").read_text().splitlines()


@pytest.mark.parametrize("framework", sampled(FRAMEWORKS, "plain", "langgraph"))
def test_an_agent_killed_in_the_middle_of_its_effect_resumes_and_there_is_one(framework: str, tmp_path: Path) -> None:
    """000-1, 002-10: the agent starts again from the beginning and does not repeat the effect."""
    first, second = lives(framework, "open_pr", tmp_path)
    assert first["code"] == -signal.SIGKILL
    assert second["code"] == 0, second["said"]
    assert json.loads(second["said"]) == [{"url": "pull/1"}]
    assert len(changed(tmp_path)) == 1


@pytest.mark.parametrize("framework", sampled(["langgraph", "openai_agents", "pydantic_ai"], "langgraph"))
def test_an_effect_without_a_probe_stops_the_run_and_is_not_repeated(framework: str, tmp_path: Path) -> None:
    """002-10: without a probe, the next process gets EffectInDoubt in every framework."""
    first, second = lives(framework, "push", tmp_path)
    assert first["code"] == -signal.SIGKILL
    assert second["code"] == 1
    assert "is in doubt" in second["said"]
    assert len(changed(tmp_path)) == 1
    with standfast.open(tmp_path / "store.db", data_dir=tmp_path / "data") as sf:
        sessions = [one for one in sf.sessions.list(everywhere=True) if one.key == "work"]
        assert [one.state for one in sessions] == ["waiting"], "a caller will come back to it"


# -- continued at the place of the kill ---------------------------------------------------------------------------


def langgraph_roles(sf: standfast.Standfast) -> list[str]:
    from standfast.adapters.langgraph import Saver

    found = Saver(sf).get_tuple({"configurable": {"thread_id": "work"}})
    assert found is not None
    return [one.type for one in found.checkpoint["channel_values"]["messages"]]


def openai_roles(sf: standfast.Standfast, session: str = "talk") -> list[str]:
    return [one.role for one in sf.sessions.messages(session)]


CONTINUED: dict[str, tuple[Callable[[standfast.Standfast], list[str]], list[str]]] = {
    "langgraph_continued": (langgraph_roles, ["human", "ai", "tool", "ai"]),
    "openai_agents_continued": (openai_roles, ["user", "function_call", "function_call_output", "assistant"]),
}


@pytest.mark.parametrize("framework", CONTINUED)
def test_a_killed_run_is_continued_and_its_prompt_is_there_once(
    framework: str, engine_url: str, tmp_path: Path
) -> None:
    """002-11, 002-20: the second run continues without a new prompt. A third run has nothing left to do."""
    first, second, third = lives(framework, "open_pr", tmp_path, STANDFAST_TEST_STORE=engine_url)
    assert first["code"] == -signal.SIGKILL
    assert (second["code"], third) == (0, second), second["said"]
    assert json.loads(second["said"]) == [{"url": "pull/1"}]
    assert len(changed(tmp_path)) == 1
    roles, expected = CONTINUED[framework]
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        assert roles(sf) == expected


BRANCHES = ["fix-42", "fix-43"]


def find_pr(branch: str) -> str | None:
    server = Path("server.log")
    return f"pull of {branch}" if server.exists() and branch in server.read_text().split() else None


@standfast.effect("github.open_pr_of_branch", by="branch", find=find_pr)
def open_pr(branch: str) -> str:
    """Open a pull request."""
    with open("server.log", "a") as server:
        server.write(branch + "\n")
    return f"pull of {branch}"


def script(answered: int) -> list[tuple[str, dict[str, str]]]:
    return [("open_pr", {"branch": branch}) for branch in BRANCHES[answered : answered + 1]]


def in_langgraph() -> list[str]:
    from standfast.adapters.langgraph import Saver

    with standfast.open() as sf, sf.session("work") as s:
        scripted_llms.langgraph(s.tools(open_pr), script, Saver(sf))
        return langgraph_roles(sf)


async def in_openai_agents() -> list[str]:
    from standfast.adapters.openai_agents import Session

    with standfast.open() as sf, sf.session("work") as s:
        session = Session("work", sf, repair=True)
        tools = s.tools(open_pr)
        await scripted_llms.openai_agents(tools, script, session, continued=True, failure_error_function=None)
        return openai_roles(sf, "work")


LOADED = {
    "langgraph": ("langgraph.graph", "langgraph.prebuilt", "standfast.adapters.langgraph"),
    "openai_agents": ("openai.types.responses", "standfast.adapters.openai_agents"),
}
"""Loaded once, and not again in each of a hundred children."""


@pytest.mark.slow
@pytest.mark.parametrize("framework", LOADED)
def test_a_run_killed_at_every_crash_point_is_continued(sf_crash: Crash, framework: str) -> None:
    """002-11, 002-20: the server has each request once, and the conversation has the prompt once."""
    if framework == "langgraph":
        pytest.importorskip("langgraph", reason="pip install '.[dev]' brings LangGraph")
    else:
        frameworks.importable(frameworks.OPENAI_AGENTS)
    for name in LOADED[framework]:
        importlib.import_module(name)
    ends = list(sf_crash(in_langgraph if framework == "langgraph" else in_openai_agents))
    assert len(ends) > 20
    for end in ends:
        assert (end.directory / "server.log").read_text().split() == BRANCHES, end
        assert end.error is None, end
        assert sum(role in ("human", "user") for role in end.result) == 1, end
