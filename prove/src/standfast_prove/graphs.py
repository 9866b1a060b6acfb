"""Small graphs and a growing thread, for the tests, campaigns and benchmarks of LangGraph's adapter."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START, StateGraph

STAMP = "2026-11-16T00:00:00+00:00"


class Said(TypedDict):
    said: Annotated[list[str], operator.add]


def answering(answer: Callable[[Said], Any], saver: BaseCheckpointSaver[Any]) -> Any:
    """A graph of one node that answers."""
    graph = StateGraph(Said)
    graph.add_node("answer", answer)  # type: ignore[call-overload]
    graph.add_edge(START, "answer")
    return graph.compile(checkpointer=saver)


def on(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def at(thread: str, id: str | None = None) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""} | ({"checkpoint_id": id} if id else {})}


def checkpoint(step: int, values: dict[str, Any], versions: dict[str, Any]) -> Any:
    return {
        "v": 4,
        "ts": STAMP,
        "id": str(uuid6(clock_seq=step)),
        "channel_values": values,
        "channel_versions": dict(versions),
        "versions_seen": {"answer": dict(versions)},
        "updated_channels": list(versions),
    }


def growing(saver: BaseCheckpointSaver[Any], steps: int, *, size: int = 1000, constant: int = 20_000) -> Iterator[Any]:
    """A thread that gets one message per step, as a graph would store it. Yields each checkpoint."""
    draw = random.Random(7)
    config, version, messages = at("growing"), None, list[dict[str, str]]()
    versions: dict[str, Any] = {}
    for step in range(steps):
        messages = [*messages, {"role": "user", "content": f"{draw.getrandbits(size * 4):0{size}x}"}]
        version = saver.get_next_version(version, None)
        new = {"messages": version} if step else {"messages": version, "constant": version}
        versions |= new
        made = checkpoint(step, {"messages": messages, "constant": "c" * constant}, versions)
        config = saver.put(config, made, {"source": "loop", "step": step, "parents": {}}, new)
        saver.put_writes(config, [("messages", messages[-1:])], f"task-{step}", "~__pregel_pull, answer")
        yield made
