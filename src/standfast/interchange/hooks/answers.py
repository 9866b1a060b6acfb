"""The answer of a hook, in the format of each agent."""

from __future__ import annotations

import json
from typing import Any

CONTEXT_MAX = 40_000
"""The most characters of context. Claude Code moves longer text into a file."""


def denied(agent: str, event: str, reason: str) -> str:
    """Refuse a tool call. The agent reads the reason."""
    if agent in ("claude-code", "codex"):
        return _specific(event, {"permissionDecision": "deny", "permissionDecisionReason": reason})
    # Gemini CLI shows its user only `systemMessage`: it hides a call that a hook refused.
    shown = {"systemMessage": reason} if agent == "gemini-cli" else {}
    return json.dumps({"decision": "deny", "reason": reason, **shown})


def prompt_refused(agent: str, reason: str) -> str:
    """Refuse a prompt. The user reads the reason."""
    return json.dumps({"decision": "block" if agent in ("claude-code", "codex") else "deny", "reason": reason})


def ask(event: str, question: str) -> str:
    """Make the agent ask its user. Only Claude Code can do this, see `payloads.can_ask`."""
    return _specific(event, {"permissionDecision": "ask", "permissionDecisionReason": question})


def context(agent: str, event: str, text: str) -> str:
    """Add text to the agent's context. All agents read the same field."""
    return _specific(event, {"additionalContext": text[:CONTEXT_MAX]})


def _specific(event: str, words: dict[str, Any]) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, **words}})
