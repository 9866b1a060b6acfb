"""Methods that only a person may call: one list, refused to agents in every command.

A command belongs to an agent if the agent's variables are set where it was typed. The methods themselves refuse, so no
other command can avoid the check. This prevents accidents. It does not stop an agent that unsets its variables or calls
the library (docs/operating/security.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from standfast.config.actor import agent_sign
from standfast.errors import ApprovalRequired

P = ParamSpec("P")
T = TypeVar("T")

REFUSED = frozenset(
    (
        "adds or starts a loop whose command a gate stops",
        "answers an approval",
        "changes gates by an import of text",
        "changes roles",
        "forgets copies",
        "gives up a missing store",
        "moves the store",
        "pauses a gate",
        "raises or removes a budget",
        "redirects the store",
        "removes a gate",
        "removes the installed hooks",
        "resets the store",
        "resolves an effect that needed approval",
        "restores the store",
        "runs stored commands",
        "settles a hold in doubt",
        "trusts a project's configuration",
        "undoes a change of a gate",
    )
)
"""The actions that standfast refuses to agents. A new action must be in this list before a method uses it."""

_commands = [False]


def entered() -> None:
    """Note that this process runs a command. Afterwards the methods check for an agent's variables."""
    _commands[0] = True


def for_people(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a method that commands refuse to agents. `what` is its action, one of REFUSED."""
    assert what in REFUSED, what

    def mark(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            refuse(what)
            return method(*args, **kwargs)

        return guarded

    return mark


def refuse(what: str) -> None:
    """Raise if this process runs a command of an agent."""
    error = refusal(what)
    if error is not None:
        raise error


def refusal(what: str) -> ApprovalRequired | None:
    """The error that `refuse` raises, or None. For the body of a transaction, which returns it."""
    assert what in REFUSED, what
    found = agent_sign() if _commands[0] else None
    if found is None:
        return None
    agent, variable = found
    return ApprovalRequired(
        f"only a person {what}: {variable} is set, so this is the environment of {agent}",
        "a person types the command in a terminal of their own",
        code="agent_present",
    )
