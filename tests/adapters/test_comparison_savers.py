"""docs/comparison.md: a LangGraph node that dies after a request sends it again, unless the request is an effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite", reason="pip install '.[dev]' brings LangGraph")

PROGRAM = """
import os, pathlib, signal, sqlite3, sys, typing
import standfast
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

log = pathlib.Path("requests.log")


def send(line: str) -> str:
    first = not log.exists()
    with log.open("a") as file:
        file.write(line + "\\n")
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"


def found(line: str) -> str | None:
    return "found" if line in log.read_text() else None


recorded = standfast.effect("world.send", by=("line",), find=found, settle=0)(send)


class State(typing.TypedDict, total=False):
    answer: str


def node(state: State) -> State:
    return {"answer": (recorded if sys.argv[1] == "effect" else send)("deploy")}


graph = StateGraph(State)
graph.add_node("deploy", node)
graph.add_edge(START, "deploy")
graph.add_edge("deploy", END)
saver = SqliteSaver(sqlite3.connect("graph.db", check_same_thread=False))
compiled = graph.compile(checkpointer=saver)
with standfast.session("deploy"):
    start = None if log.exists() else {}
    print(compiled.invoke(start, {"configurable": {"thread_id": "1"}}, durability="sync")["answer"])
"""


@pytest.mark.parametrize(("call", "answer", "arrived"), [("plain", "sent", 2), ("effect", "found", 1)])
def test_a_killed_node_runs_again_and_an_effect_in_it_is_sent_once(
    tmp_path: Path, call: str, answer: str, arrived: int
) -> None:
    """002-47: the claims of the comparison page about LangGraph's own saver, with and without an effect."""

    def run() -> subprocess.CompletedProcess[str]:
        home = {"HOME": str(tmp_path), "STANDFAST_DATA_DIR": str(tmp_path / "store")}
        command = [sys.executable, "-c", PROGRAM, call]
        return subprocess.run(command, cwd=tmp_path, env=os.environ | home, capture_output=True, text=True, check=False)

    assert run().returncode == -signal.SIGKILL
    again = run()
    assert (again.returncode, again.stdout.strip()) == (0, answer), again.stderr
    assert len((tmp_path / "requests.log").read_text().splitlines()) == arrived
