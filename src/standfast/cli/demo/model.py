"""A scripted model. It needs no key and no network, and like a real one it never words anything twice."""

from __future__ import annotations

import os

_WORDS = (
    "Fix the parser: an empty line no longer ends the file early.",
    "This makes the parser read on after an empty line, as issue 42 asks.",
    "Issue 42: blank lines are content, not an ending. The parser now agrees.",
)


def plan(issue: str) -> dict[str, str]:
    """Called once per session, however often the agent starts."""
    return {"branch": "fix-42", "title": f"Parser: {issue}"}


def describe(title: str) -> str:
    """The body of the pull request: other words in every life of the agent."""
    return _WORDS[(int(os.environ.get("DEMO_LIFE", "1")) - 1) % len(_WORDS)]
