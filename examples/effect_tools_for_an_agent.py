"""An agent's tools: the same signatures, and every call an effect of its session.

Frameworks read names, annotations and docstrings; they find them unchanged. Branch and head identify a push. So push,
fix, push is two pushes, also when the program runs again from the top.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import standfast

REMOTE = Path("pushes.log")


@standfast.effect("git.push", by=("branch", "head"))
def push(call: standfast.Call, branch: str, head: str, force: bool = False) -> int:
    """Push a branch. Returns how many pushes the remote has seen."""
    with REMOTE.open("a") as remote:
        remote.write(f"{branch} {head} {call.key}\n")
    return len(REMOTE.read_text().splitlines())


def model(tools: dict[str, inspect.Signature]) -> list[dict[str, str]]:
    """A scripted LLM that gets the tools and asks for two pushes."""
    assert list(tools["push"].parameters) == ["branch", "head", "force"]
    return [{"branch": "fix-42", "head": "1a2b"}, {"branch": "fix-42", "head": "3c4d"}]


with standfast.open() as sf, sf.session("fix-42") as s:
    tools = {tool.__name__: tool for tool in s.tools(push)}
    for arguments in model({name: inspect.signature(tool) for name, tool in tools.items()}):
        print(tools["push"](**arguments))
print(f"{len(REMOTE.read_text().splitlines())} pushes")
