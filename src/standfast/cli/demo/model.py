"""A scripted LLM. It needs no key and no network. Like a real LLM, it returns other words for each call."""

from __future__ import annotations

import os

_WORDS = (
    "Fix the parser: an empty line no longer ends the file early.",
    "This makes the parser read on after an empty line, as issue 42 asks.",
    "Issue 42: blank lines are content, not an ending. The parser now agrees.",
)


def plan(issue: str) -> dict[str, str]:
    """The plan. It is called once per session, even if the agent starts several times."""
    return {"branch": "fix-42", "title": f"Parser: {issue}"}


def describe(title: str) -> str:
    """The body of the pull request. It differs in each process of the agent."""
    return _WORDS[(int(os.environ.get("DEMO_LIFE", "1")) - 1) % len(_WORDS)]
