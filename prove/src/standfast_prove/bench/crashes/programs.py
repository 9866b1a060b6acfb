"""One agent with three effects, written once for each framework. Each `live` begins at the top, as a restarted
process does.

`act(n)` sends request n to the outside system. The programs ask the framework for its state and store none themselves.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

Act = Callable[[int], str]
EFFECTS = (1, 2, 3)


class InDoubt(Exception):
    """The framework reports that it does not know whether a request arrived."""


class Program(NamedTuple):
    """How one contestant runs, and how a person settles a doubt that it reports."""

    label: str
    live: Callable[[Path, str | None, str, Act], None]
    """(place, url of a server, name of the run, act)"""
    modules: tuple[str, ...] = ()
    requirement: str | None = None
    """The package on PyPI, see `standfast_prove.bench.peers`. None if it is in the environment."""
    version_of: str | None = None
    server: bool = False
    settle: Callable[[Path, str | None, str, Callable[[int], bool]], None] | None = None


# -- standfast ------------------------------------------------------------------------------------------------


def standfast_live(place: Path, url: str | None, name: str, act: Act) -> None:
    import standfast

    with standfast.open(url or str(place / "standfast.db"), data_dir=place) as sf:
        try:
            with sf.session(name) as s:
                for n in EFFECTS:
                    s.effect("world.post", {"n": n}, do=lambda call: act(call.intent["n"]))
        except standfast.EffectInDoubt as error:
            raise InDoubt(str(error)) from None


def standfast_settle(place: Path, url: str | None, name: str, arrived: Callable[[int], bool]) -> None:
    """`standfast effect resolve`: a person looks at the outside system and answers."""
    import standfast

    with standfast.open(url or str(place / "standfast.db"), data_dir=place) as sf:
        for effect in sf.effects.list(session=name):
            if effect.in_doubt:
                there = arrived(effect.intent["n"])
                answer = "applied" if there else "not_applied"
                sf.effects.resolve(effect.id, answer, evidence="the world's books", result="ok" if there else None)


# -- a JSON file ------------------------------------------------------------------------------------------------


def json_live(place: Path, url: str | None, name: str, act: Act) -> None:
    file = place / f"{name}.json"
    done = json.loads(file.read_text()) if file.exists() else []
    for n in EFFECTS:
        if n not in done:
            act(n)
            done.append(n)
            spare = file.with_suffix(".tmp")
            spare.write_text(json.dumps(done))
            os.replace(spare, file)


# -- LangGraph ----------------------------------------------------------------------------------------------------


def langgraph_live(place: Path, url: str | None, name: str, act: Act) -> None:
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        done: Annotated[list[int], operator.add]

    def node(n: int) -> Callable[[State], State]:
        def run(state: State) -> State:
            act(n)
            return {"done": [n]}

        return run

    graph = StateGraph(State)
    for n in EFFECTS:
        graph.add_node(f"effect {n}", node(n))  # type: ignore[call-overload]
    for here, there in zip(
        (START, "effect 1", "effect 2", "effect 3"), ("effect 1", "effect 2", "effect 3", END), strict=True
    ):
        graph.add_edge(here, there)
    with _saver(place, url) as saver:
        compiled: Any = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": name}}
        state = compiled.get_state(config)
        if len(state.values.get("done", ())) < len(EFFECTS):
            # continues at the place where it stopped, or begins
            compiled.invoke(None if state.next else {"done": []}, config)


@contextmanager
def _saver(place: Path, url: str | None) -> Iterator[Any]:
    if url:
        from langgraph.checkpoint.postgres import PostgresSaver

        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
            yield saver
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        with SqliteSaver.from_conn_string(str(place / "langgraph.db")) as saver:
            yield saver


# -- DBOS ---------------------------------------------------------------------------------------------------------


def dbos_live(place: Path, url: str | None, name: str, act: Act) -> None:
    from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found,unused-ignore]

    os.chdir(place)
    DBOS(
        config={
            "name": "agent",
            "system_database_url": url or f"sqlite:///{place}/dbos.sqlite",
            "log_level": "CRITICAL",
        }
    )

    @DBOS.step()  # type: ignore[untyped-decorator,unused-ignore]
    def step(n: int) -> str:
        return act(n)

    @DBOS.workflow()  # type: ignore[untyped-decorator,unused-ignore]
    def agent() -> None:
        for n in EFFECTS:
            step(n)

    DBOS.launch()  # continues with the pending nodes
    with SetWorkflowID(name):
        handle = DBOS.start_workflow(agent)
    handle.get_result()
    DBOS.destroy()


# -- OpenAI Agents ------------------------------------------------------------------------------------------------


def openai_live(place: Path, url: str | None, name: str, act: Act) -> None:
    asyncio.run(_openai(place, name, act))


async def _openai(place: Path, name: str, act: Act) -> None:
    from agents import (  # type: ignore[import-not-found,unused-ignore]
        Agent,
        Model,
        ModelResponse,
        Runner,
        SQLiteSession,
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

    class Script(Model):  # type: ignore[misc,unused-ignore]
        """A model that calls the tool with 1, 2 and 3, unless the conversation already has the answer."""

        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:
            answered = {one["call_id"] for one in input if one.get("type") == "function_call_output"}
            missing = [n for n in EFFECTS if f"call-{n}" not in answered]
            output: list[Any]
            if missing:
                arguments = json.dumps({"n": missing[0]})
                output = [
                    ResponseFunctionToolCall(
                        type="function_call", call_id=f"call-{missing[0]}", name="post", arguments=arguments
                    )
                ]
            else:
                text = ResponseOutputText(type="output_text", text="done", annotations=[])
                output = [
                    ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[text])
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **options: Any) -> Any:
            raise NotImplementedError

    def post(n: int) -> str:
        """Post n to the outside system."""
        return act(n)

    agent = Agent(name="worker", model=Script(), tools=[function_tool(post, failure_error_function=None)])
    await Runner.run(agent, "post them all", session=SQLiteSession(name, str(place / "openai.db")))


DBOS = "dbos==3.3.0"
OPENAI = "openai-agents[sqlalchemy]==0.24.0"
_OURS = ("standfast.handle", "standfast.db.sqlite.registry", "standfast.ledger.effects")
_GRAPH = ("langgraph.graph", "langgraph.checkpoint.sqlite", "langgraph.checkpoint.postgres")

PROGRAMS = {
    "standfast": Program("standfast, SQLite", standfast_live, _OURS, settle=standfast_settle, version_of="standfast"),
    "standfast-postgres": Program(
        "standfast, PostgreSQL",
        standfast_live,
        (*_OURS, "standfast.db.postgres.engine"),
        server=True,
        settle=standfast_settle,
        version_of="standfast",
    ),
    "json": Program("a JSON file, replaced after each effect", json_live),
    "langgraph": Program("LangGraph, SqliteSaver", langgraph_live, _GRAPH, version_of="langgraph"),
    "langgraph-postgres": Program(
        "LangGraph, PostgresSaver", langgraph_live, _GRAPH, version_of="langgraph", server=True
    ),
    "dbos": Program("DBOS, SQLite", dbos_live, ("dbos",), DBOS),
    "dbos-postgres": Program("DBOS, PostgreSQL", dbos_live, ("dbos",), DBOS, server=True),
    "openai": Program("OpenAI Agents, SQLiteSession", openai_live, ("agents",), OPENAI),
}
