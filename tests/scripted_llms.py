"""One agent in each framework whose LLM is a script.

A script is a function. Its argument is the number of tool answers so far; it returns the next calls, or none to end.
Each loop returns the answers of the tools as the LLM read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Tool = Callable[..., Any]
Script = Callable[[int], list[tuple[str, dict[str, str]]]]


def langgraph(tools: list[Tool], script: Script, saver: Any = None, **options: Any) -> list[str]:
    """`options` are options of the tool node. With a saver, an earlier thread is continued."""
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    def answers(messages: list[Any]) -> list[str]:
        return [str(one.content) for one in messages if isinstance(one, ToolMessage)]

    def model(state: MessagesState) -> dict[str, Any]:
        count = len(answers(state["messages"]))
        calls = [
            {"name": name, "args": args, "id": f"call-{count + n}"} for n, (name, args) in enumerate(script(count))
        ]
        return {"messages": [AIMessage("" if calls else "done", tool_calls=calls)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "work"}}
    begun = saver is not None and compiled.get_state(config).values
    asked: Any = None if begun else {"messages": [("user", "do it")]}
    return answers(compiled.invoke(asked, config)["messages"])


async def openai_agents(
    tools: list[Tool], script: Script, session: Any = None, *, continued: bool = False, **options: Any
) -> list[str]:
    """`options` are those of the tools. Of a session that has a history, only the answers after its last prompt count.

    With `continued`, a session that has begun is continued without another prompt, and all its answers count.
    """
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
    answers: list[str] = []

    class Scripted(Model):  # type: ignore[misc,unused-ignore]
        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:
            items = [] if isinstance(input, str) else input
            asked = max((n for n, one in enumerate(items) if one.get("role") == "user"), default=-1)
            answers[:] = [one["output"] for one in items[asked + 1 :] if one.get("type") == "function_call_output"]
            count = len(answers)
            output: list[Any] = [
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"call-{count + n}", name=name, arguments=json.dumps(args)
                )
                for n, (name, args) in enumerate(script(count))
            ]
            if not output:
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                output = [
                    ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[text])
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    agent = Agent(name="worker", model=Scripted(), tools=[function_tool(tool, **options) for tool in tools])
    items = await session.get_items() if continued else []
    if not items or items[-1].get("role") != "assistant":  # otherwise the earlier run has ended
        await Runner.run(agent, [] if items else "do it", session=session)
    if continued:
        return [one["output"] for one in await session.get_items() if one.get("type") == "function_call_output"]
    return answers


def pydantic_ai(tools: list[Tool], script: Script) -> list[Any]:
    """The framework retries a tool up to ten times."""
    from pydantic_ai import Agent, Tool  # type: ignore[import-not-found,unused-ignore]
    from pydantic_ai.messages import (  # type: ignore[import-not-found,unused-ignore]
        ModelResponse,
        TextPart,
        ToolCallPart,
    )
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found,unused-ignore]

    def answers(messages: list[Any]) -> list[Any]:
        parts = [part for message in messages if message.kind == "request" for part in message.parts]
        return [part.content for part in parts if getattr(part, "tool_call_id", None)]

    def model(messages: list[Any], info: Any) -> Any:
        count = len(answers(messages))
        calls = [ToolCallPart(name, args, f"call-{count + n}") for n, (name, args) in enumerate(script(count))]
        return ModelResponse(parts=calls or [TextPart("done")])

    made = [Tool(tool, max_retries=10) for tool in tools]
    return answers(Agent(FunctionModel(model), tools=made).run_sync("do it").all_messages())
