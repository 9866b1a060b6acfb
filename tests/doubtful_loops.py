"""One agent in each framework, whose first call is in doubt and whose LLM then tries variations.

    python -m tests.doubtful_loops FRAMEWORK DIRECTORY STORE

The tool calls an outside system that counts requests and never answers. The LLM is a script: after each error it calls
the tool again with other arguments. The program prints the answers to the LLM and the end of the run as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import standfast
from tests import scripted_llms
from tests.scripted_llms import Tool

HERE = Path(sys.argv[2] if len(sys.argv) > 2 else "/dev/null")
TRIES = [{"order": "1042"}, {"order": "1042-b"}, {"order": "1042 (retry)"}]


@standfast.effect("bank.charge", by=("order",))
def charge(order: str) -> str:
    """Charge an order."""
    with (HERE / "world").open("a") as world:
        world.write(order + "\n")
    raise ConnectionError("the answer was lost")


def script(answered: int) -> list[tuple[str, dict[str, str]]]:
    return [("charge", args) for args in TRIES[answered : answered + 1]]


def langgraph(tool: Tool) -> list[str]:
    """With `handle_tool_errors=True` each error becomes a message for the LLM."""
    return scripted_llms.langgraph([tool], script, handle_tool_errors=True)


def langgraph_default(tool: Tool) -> list[str]:
    return scripted_llms.langgraph([tool], script)


def openai_agents_default(tool: Tool) -> list[str]:
    """By default the SDK asks the LLM to try again, without the text of the error."""
    return asyncio.run(scripted_llms.openai_agents([tool], script))


def openai_agents(tool: Tool) -> list[str]:
    from standfast.adapters.openai_agents import error_text

    return asyncio.run(scripted_llms.openai_agents([tool], script, failure_error_function=error_text))


def pydantic_ai(tool: Tool) -> list[str]:
    """The tool raises `ModelRetry` with the text of each error, so that the LLM continues."""
    from pydantic_ai import ModelRetry  # type: ignore[import-not-found,unused-ignore]

    def charge(order: str) -> str:
        try:
            return str(tool(order))
        except Exception as error:
            raise ModelRetry(str(error)) from error

    return scripted_llms.pydantic_ai([charge], script)


def pydantic_ai_default(tool: Tool) -> list[str]:
    return scripted_llms.pydantic_ai([tool], script)


LOOPS = {
    "langgraph": langgraph,
    "langgraph_default": langgraph_default,
    "openai_agents": openai_agents,
    "openai_agents_default": openai_agents_default,
    "pydantic_ai": pydantic_ai,
    "pydantic_ai_default": pydantic_ai_default,
}


def main() -> None:
    answer: dict[str, Any] = {"answers": [], "error": None}
    try:
        with standfast.open(sys.argv[3], data_dir=HERE / "data") as sf, sf.session("work") as s:
            answer["answers"] = LOOPS[sys.argv[1]](s.tools(charge)[0])
    except Exception as error:  # noqa: BLE001  # how the run ended is what the test reads
        answer["error"] = type(error).__name__
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
