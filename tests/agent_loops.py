"""One agent in four frameworks: its model is a script, its tool acts on the world outside.

    python -m tests.agent_loops FRAMEWORK DIRECTORY TOOL

The world is a file that is only appended to. Each of the agent's lives is a process of its own, which begins at
the top as if it had never run; the first kills itself the moment the world has changed, before anybody has
heard of it. What each life printed and how it ended comes out as a line of JSON. The framework is loaded once.
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

ASKED = {"repo": "a/b", "branch": "fix-42"}
Tool = Callable[..., Any]
HERE = Path(sys.argv[2] if len(sys.argv) > 2 else os.devnull)
WORLD, STORE, DATA = HERE / "world", str(HERE / "store.db"), str(HERE / "data")
LIVES = 2
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
    """Push a branch. Nobody can be asked whether it arrived."""
    return act(call)


def act(call: Call) -> dict[str, str]:
    with open(WORLD, "a") as world:
        world.write(call.key + "\n")
    if life == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"url": f"pull/{len(WORLD.read_text().splitlines())}"}


# -- the loops: each gives the tools to its framework, and returns what the model was told ----------------------


def plain(tools: list[Tool]) -> str:
    by_name = {tool.__name__: tool for tool in tools}
    return json.dumps([by_name[name](**ASKED) for name in by_name])


def langgraph(tools: list[Tool]) -> str:
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def model(state: MessagesState) -> dict[str, Any]:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done")]}
        calls = [{"name": tool.__name__, "args": ASKED, "id": f"call-{n}"} for n, tool in enumerate(tools)]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    asked: Any = {"messages": [("user", "open it")]}
    said = graph.compile().invoke(asked)["messages"]
    return json.dumps([json.loads(str(one.content)) for one in said if isinstance(one, ToolMessage)])


def openai_agents(tools: list[Tool]) -> str:
    return asyncio.run(_openai_agents(tools))


async def _openai_agents(tools: list[Tool]) -> str:
    from agents import (  # type: ignore[import-not-found,unused-ignore]
        Agent,
        Model,
        ModelResponse,
        Runner,
        Usage,
        function_tool,
        set_tracing_disabled,
    )
    from openai.types.responses import (  # type: ignore[import-not-found,unused-ignore]
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from standfast.adapters.openai_agents import Session

    set_tracing_disabled(True)
    told: list[str] = []

    class Script(Model):  # type: ignore[misc,unused-ignore]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:
            told[:] = [one["output"] for one in input if one.get("type") == "function_call_output"]
            output: list[Any] = [
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"call-{n}", name=tool.__name__, arguments=json.dumps(ASKED)
                )
                for n, tool in enumerate(tools)
            ]
            if input[-1].get("type") == "function_call_output":
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                output = [
                    ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[text])
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    # Without this a refusal would become words for the model, and the run would go on.
    made = [function_tool(tool, failure_error_function=None) for tool in tools]
    agent = Agent(name="worker", model=Script(), tools=made)
    async with Session("talk", STORE, repair=True) as session:
        await Runner.run(agent, "open it", session=session)
    return json.dumps([_value(one) for one in told[-len(tools) :]])


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text.replace("'", '"'))


def pydantic_ai(tools: list[Tool]) -> str:
    from pydantic_ai import Agent  # type: ignore[import-not-found,unused-ignore]
    from pydantic_ai.messages import (  # type: ignore[import-not-found,unused-ignore]
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found,unused-ignore]

    def model(said: list[Any], info: Any) -> Any:
        if any(isinstance(part, ToolReturnPart) for part in said[-1].parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(tool.__name__, ASKED, f"call-{n}") for n, tool in enumerate(tools)])

    done = Agent(FunctionModel(model), tools=tools).run_sync("open it")
    parts = [part for message in done.all_messages() for part in message.parts]
    return json.dumps([part.content for part in parts if isinstance(part, ToolReturnPart)])


MODULES = {
    "plain": (),
    "langgraph": ("langchain_core.messages", "langgraph.graph", "langgraph.prebuilt"),
    "openai_agents": ("agents", "standfast.adapters.openai_agents"),
    "openai_agents_awaited": ("agents", "standfast.adapters.openai_agents"),
    "pydantic_ai": ("pydantic_ai", "pydantic_ai.models.function"),
}
LOOPS: dict[str, Callable[[list[Tool]], str]] = {
    "plain": plain,
    "langgraph": langgraph,
    "openai_agents": openai_agents,
    "pydantic_ai": pydantic_ai,
}


async def _openai_agents_awaited(*functions: Any) -> str:
    """The same with tools that are awaited."""
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
            except BaseException:  # noqa: BLE001  # whatever it was, it ends this life, and the test reads it
                said.write_text(traceback.format_exc())
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"code": code, "said": said.read_text() if said.exists() else ""}))


if __name__ == "__main__":
    main()
