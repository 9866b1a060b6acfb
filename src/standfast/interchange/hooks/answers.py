"""The answer of a hook, in the format of each agent. Nothing to say is no output at all."""

from __future__ import annotations

import json
from typing import Any

CONTEXT_MAX = 40_000
"""Characters of context at most: Claude Code puts longer text into a file."""


def denied(agent: str, event: str, reason: str) -> str:
    """Refuse a tool call, with the words the agent is to read."""
    if agent in ("claude-code", "codex"):
        return _specific(event, {"permissionDecision": "deny", "permissionDecisionReason": reason})
    return json.dumps({"decision": "deny", "reason": reason})


def prompt_refused(agent: str, reason: str) -> str:
    """Refuse a prompt, with the words its user is to read."""
    return json.dumps({"decision": "block" if agent in ("claude-code", "codex") else "deny", "reason": reason})


def ask(event: str, question: str) -> str:
    """Let the agent ask its user, in its own prompt. Only Claude Code can: `payloads.can_ask`."""
    return _specific(event, {"permissionDecision": "ask", "permissionDecisionReason": question})


def context(agent: str, event: str, text: str) -> str:
    """Give the agent something to know. All of them read it in the same place."""
    return _specific(event, {"additionalContext": text[:CONTEXT_MAX]})


def _specific(event: str, words: dict[str, Any]) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **words}})
