"""Show a session as a conversation; messages may have the form of OpenAI, Anthropic or LangChain.

user: fix the parser
assistant: I run the tests first.
  → Bash: git status
  ← On branch main
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from standfast.cli.render import clean, clean_lines
from standfast.record.message_parts import parts

if TYPE_CHECKING:
    from standfast.record.messages import Message

ROLES = {"human": "user", "ai": "assistant"}
"""LangChain's names for roles."""
RESULT_LINES_MAX = 5


def lines(message: Message) -> Iterator[str]:
    """The lines of one message: its role and text, `→` before each tool call, `←` before each result."""
    found = list(parts(message.content))
    role = ROLES.get(message.role, message.role)
    if role in ("tool", "function"):
        found = [("←", text) for _, text in found]
    texts = [text for mark, text in found if not mark]
    taken_back = " (retracted)" if message.retracted_us is not None else ""
    if texts or not found:
        yield from _indented(f"{clean(role)}{taken_back}: ", "\n".join(texts) or "(empty)", "  ")
    for mark, text in found:
        if mark:
            yield from _indented(f"  {mark} ", _shortened(text) if mark == "←" else text, "    ")


def _indented(first: str, text: str, rest: str) -> Iterator[str]:
    head, *more = clean_lines(text).split("\n")
    yield f"{first}{head}".rstrip()
    yield from (f"{rest}{line}".rstrip() for line in more)


def _shortened(text: str) -> str:
    found = text.strip("\n").splitlines()
    left = len(found) - RESULT_LINES_MAX
    return "\n".join([*found[:RESULT_LINES_MAX], f"… {left} more line{'s' * (left != 1)}"] if left > 0 else found)
