"""One agent in each framework, whose first call is in doubt and whose LLM then tries variations.

    python -m tests.doubtful_loops FRAMEWORK DIRECTORY

The tool reaches an outside system that counts and never answers. The LLM is a script: after each error text it calls
the tool again with other arguments. Printed as JSON: what the LLM was told, and how the run ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import standfast

HERE = Path(sys.argv[2] if len(sys.argv) > 2 else "/dev/null")
TRIES = [{"order": "1042"}, {"order": "1042-b"}, {"order": "1042 (retry)"}]
Tool = Callable[..., Any]


@standfast.effect("bank.charge", by=("order",))
def charge(order: str) -> str:
    """Charge an order."""
    with (HERE / "world").open("a") as world:
        world.write(order + "\n")
    raise ConnectionError("the answer was lost")


def langgraph(tool: Tool) -> list[str]:
    """`handle_tool_errors=True`: each error becomes a message for the LLM."""
    return _langgraph(tool, handle_tool_errors=True)


def langgraph_default(tool: Tool) -> list[str]:
    return _langgraph(tool)


def _langgraph(tool: Tool, **options: Any) -> list[str]:
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def model(state: MessagesState) -> dict[str, Any]:
        told = [one for one in state["messages"] if isinstance(one, ToolMessage)]
        if len(told) == len(TRIES):
            return {"messages": [AIMessage("done")]}
        call = {"name": tool.__name__, "args": TRIES[len(told)], "id": f"call-{len(told)}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([tool], **options))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    asked: Any = {"messages": [("user", "charge it")]}
    return [str(one.content) for one in graph.compile().invoke(asked)["messages"] if isinstance(one, ToolMessage)]


def openai_agents_default(tool: Tool) -> list[str]:
    """The default of the SDK: the LLM is told to try again, and not why."""
    return asyncio.run(_openai_agents(tool))


def openai_agents(tool: Tool) -> list[str]:
    from standfast.adapters.openai_agents import error_text

    return asyncio.run(_openai_agents(tool, failure_error_function=error_text))


async def _openai_agents(tool: Tool, **options: Any) -> list[str]:
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

    set_tracing_disabled(True)
    told: list[str] = []

    class Script(Model):  # type: ignore[misc,unused-ignore]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:
            items = [] if isinstance(input, str) else input
            told[:] = [one["output"] for one in items if one.get("type") == "function_call_output"]
            output: list[Any]
            if len(told) == len(TRIES):
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                output = [
                    ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[text])
                ]
            else:
                said = json.dumps(TRIES[len(told)])
                name, number = tool.__name__, len(told)
                output = [
                    ResponseFunctionToolCall(type="function_call", call_id=f"call-{number}", name=name, arguments=said)
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    await Runner.run(Agent(name="worker", model=Script(), tools=[function_tool(tool, **options)]), "charge it")
    return told


def pydantic_ai(tool: Tool) -> list[str]:
    """A tool that makes text of every error, as the framework asks of one that wants the LLM to go on."""
    from pydantic_ai import ModelRetry  # type: ignore[import-not-found,unused-ignore]

    def charge(order: str) -> str:
        try:
            return str(tool(order))
        except Exception as error:
            raise ModelRetry(str(error)) from error

    return _pydantic_ai(charge)


def pydantic_ai_default(tool: Tool) -> list[str]:
    return _pydantic_ai(tool)


def _pydantic_ai(tool: Tool) -> list[str]:
    from pydantic_ai import Agent, Tool  # type: ignore[import-not-found,unused-ignore]
    from pydantic_ai.messages import (  # type: ignore[import-not-found,unused-ignore]
        ModelResponse,
        TextPart,
        ToolCallPart,
    )
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found,unused-ignore]

    def told(said: list[Any]) -> list[str]:
        parts = [part for message in said if message.kind == "request" for part in message.parts]
        return [str(part.content) for part in parts if getattr(part, "tool_call_id", None)]

    def model(said: list[Any], info: Any) -> Any:
        number = len(told(said))
        if number == len(TRIES):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(tool.__name__, TRIES[number], f"call-{number}")])

    done = Agent(FunctionModel(model), tools=[Tool(tool, max_retries=10)]).run_sync("charge it")
    return told(done.all_messages())


LOOPS = {
    "langgraph": langgraph,
    "langgraph_default": langgraph_default,
    "openai_agents": openai_agents,
    "openai_agents_default": openai_agents_default,
    "pydantic_ai": pydantic_ai,
    "pydantic_ai_default": pydantic_ai_default,
}


def main() -> None:
    answer: dict[str, Any] = {"told": [], "error": None}
    try:
        with standfast.open(HERE / "store.db", data_dir=HERE / "data") as sf, sf.session("work") as s:
            answer["told"] = LOOPS[sys.argv[1]](s.tools(charge)[0])
    except Exception as error:  # noqa: BLE001  # how the run ended is what the test reads
        answer["error"] = type(error).__name__
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
