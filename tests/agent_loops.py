"""One agent in four frameworks: its LLM is a script, its tool appends to a file outside the store.

    python -m tests.agent_loops FRAMEWORK DIRECTORY TOOL

Each run of the agent is a new process, which starts from the beginning. The first process kills itself right after
its tool has appended a line, before the framework gets the result. Each process prints its output and its exit
status as a line of JSON. The framework is loaded once.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import standfast
from standfast import Applied, Call, NotApplied
from tests import scripted_llms

ASKED = {"repo": "a/b", "branch": "fix-42"}
HERE = Path(sys.argv[2] if len(sys.argv) > 2 else os.devnull)
WORLD, DATA = HERE / "world", str(HERE / "data")
STORE = os.environ.get("STANDFAST_TEST_STORE", str(HERE / "store.db"))
LIVES = 3 if "continued" in "".join(sys.argv[1:2]) else 2
life = 0


@standfast.effect("github.open_pr", by=("repo", "branch"))
def open_pr(call: Call, repo: str, branch: str) -> dict[str, str]:
    """Open a pull request."""
    return act(call)


@open_pr.probe
def look(call: Call) -> Applied | NotApplied:
    lines = WORLD.read_text().splitlines() if WORLD.exists() else []
    return Applied({"url": f"pull/{lines.index(call.key) + 1}"}) if call.key in lines else NotApplied()


@standfast.effect("git.push", by=("repo", "branch"))
def push(call: Call, repo: str, branch: str) -> dict[str, str]:
    """Push a branch. No probe can check whether it arrived."""
    return act(call)


def act(call: Call) -> dict[str, str]:
    with open(WORLD, "a") as world:
        world.write(call.key + "\n")
    if life == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"url": f"pull/{len(WORLD.read_text().splitlines())}"}


# -- the loops: each gives the tools to its framework, and returns what the LLM read ------------------------------


def once(tools: list[scripted_llms.Tool]) -> scripted_llms.Script:
    """The LLM calls all tools in one turn, then ends the run."""
    return lambda answered: [] if answered else [(tool.__name__, ASKED) for tool in tools]


def plain(tools: list[scripted_llms.Tool]) -> str:
    by_name = {tool.__name__: tool for tool in tools}
    return json.dumps([by_name[name](**ASKED) for name in by_name])


def langgraph(tools: list[scripted_llms.Tool]) -> str:
    return json.dumps([json.loads(one) for one in scripted_llms.langgraph(tools, once(tools))])


def langgraph_continued(tools: list[scripted_llms.Tool]) -> str:
    """Continue the graph of an earlier process from its last checkpoint."""
    from standfast.adapters.langgraph import Saver

    with Saver.from_conn_string(STORE) as saver:
        return json.dumps([json.loads(one) for one in scripted_llms.langgraph(tools, once(tools), saver)])


def openai_agents(tools: list[scripted_llms.Tool]) -> str:
    return asyncio.run(_openai_agents(tools))


def openai_agents_continued(tools: list[scripted_llms.Tool]) -> str:
    """Continue the conversation of an earlier process, without a second prompt."""
    return asyncio.run(_openai_agents(tools, continued=True))


async def _openai_agents(tools: list[scripted_llms.Tool], *, continued: bool = False) -> str:
    from standfast.adapters.openai_agents import Session

    async with Session("talk", STORE, repair=True) as session:
        # Without this a refusal would become text for the LLM, and the run would continue.
        said = await scripted_llms.openai_agents(
            tools, once(tools), session, continued=continued, failure_error_function=None
        )
    return json.dumps([_value(one) for one in said])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text.replace("'", '"'))


def pydantic_ai(tools: list[scripted_llms.Tool]) -> str:
    return json.dumps(scripted_llms.pydantic_ai(tools, once(tools)))


MODULES = {
    "plain": (),
    "langgraph": ("langchain_core.messages", "langgraph.graph", "langgraph.prebuilt"),
    "langgraph_continued": ("langgraph.graph", "langgraph.prebuilt", "standfast.adapters.langgraph"),
    "openai_agents": ("agents", "standfast.adapters.openai_agents"),
    "openai_agents_continued": ("agents", "standfast.adapters.openai_agents"),
    "openai_agents_awaited": ("agents", "standfast.adapters.openai_agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic_ai.models.function"),
}
LOOPS: dict[str, Callable[[list[scripted_llms.Tool]], str]] = {
    "plain": plain,
    "langgraph": langgraph,
    "langgraph_continued": langgraph_continued,
    "openai_agents": openai_agents,
    "openai_agents_continued": openai_agents_continued,
    "pydantic_ai": pydantic_ai,
}


async def _openai_agents_awaited(*functions: Any) -> str:
    """Run the same agent with asynchronous tools."""
    async with standfast.aopen(STORE, data_dir=DATA) as sf, sf.session("work") as s:
        return await _openai_agents(s.tools(*functions))


def live(framework: str, function: Any) -> str:
    if framework == "openai_agents_awaited":
        return asyncio.run(_openai_agents_awaited(function))
    with standfast.open(STORE, data_dir=DATA) as sf, sf.session("work") as s:
        return LOOPS[framework](s.tools(function))


def main() -> None:
    global life
    framework, function = sys.argv[1], {"open_pr": open_pr, "push": push}[sys.argv[3]]
    for name in MODULES[framework]:
        importlib.import_module(name)
    for life in range(1, LIVES + 1):
        said = HERE / f"life-{life}"
        pid = os.fork()
        if pid == 0:
            try:
                said.write_text(live(framework, function))
            except BaseException:  # noqa: BLE001  # any error ends this life, and the test reads it
                said.write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code, "said": said.read_text() if said.exists() else ""}))


if __name__ == "__main__":
    main()
