"""An agent loop of your own that survives kill -9 at any line. It continues from the messages of its session.

The LLM is a script here; yours is `client.chat.completions.create(model=…, tools=…, **standfast.to_openai(messages))`,
or `client.messages.create(…, **standfast.to_anthropic(messages))`. Its return value is stored unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import standfast

SERVER = Path("server.log")  # in place of GitHub


def find_pr(branch: str) -> str | None:
    lines = SERVER.read_text().splitlines() if SERVER.exists() else []
    return f"pull/{lines.index(branch) + 1}" if branch in lines else None


@standfast.effect("github.open_pr", by="branch", find=find_pr)
def open_pr(branch: str) -> str:
    """Open a pull request."""
    with SERVER.open("a") as server:
        server.write(branch + "\n")
    return f"pull/{len(SERVER.read_text().splitlines())}"


TOOLS = {"open_pr": open_pr}
SCRIPT: list[list[str]] = [["fix-42", "fix-43"], ["fix-44"], []]  # the branches that each answer asks for


def llm(messages: list[dict[str, Any]]) -> dict[str, Any]:
    turn = sum(message["role"] == "assistant" for message in messages)
    asked = [{"name": "open_pr", "arguments": json.dumps({"branch": branch})} for branch in SCRIPT[turn]]
    calls = [{"id": f"call_{turn}_{n}", "type": "function", "function": one} for n, one in enumerate(asked)]
    return {"role": "assistant", "content": None, "tool_calls": calls} if calls else {"content": "Three are open."}


def agent(prompt: str) -> str:
    with standfast.session("three-fixes", agent="coder") as s:
        s.say("user", prompt, key="prompt")
        while True:
            messages = s.messages(last=1000)
            if calls := standfast.orphans(messages):  # calls without a result, also those of a killed process
                for call in calls:
                    s.say("tool", {"call_id": call.call_id, "result": TOOLS[call.name](**call.arguments)})
            elif messages[-1].role == "assistant":
                return str(standfast.to_openai(messages)["messages"][-1]["content"])
            else:
                s.say("assistant", llm(**standfast.to_openai(messages)))


if __name__ == "__main__":
    print(agent("Open a pull request for each fix."), *SERVER.read_text().split())
