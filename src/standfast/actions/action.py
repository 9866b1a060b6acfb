"""The form of one known action: its commands, its facts, its probe and its reversal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from standfast.ledger.effects.call import Applied, NotApplied, Unknown

Facts = dict[str, Any]
"""The identity of one action as plain JSON: its arguments, and facts that were read before it was sent."""


class CannotTell(Exception):
    """The outcome is unknown: the outside system did not answer, or its answer is ambiguous."""


class Answer(NamedTuple):
    """The answer of a probe."""

    happened: bool | None
    """None if the outcome is unknown."""
    evidence: str
    """The observed fact, such as `3f2a91c is on origin/fix-42`."""
    result: Any = None

    def as_probe(self) -> Applied | NotApplied | Unknown:
        """This answer as the return value of an effect's probe."""
        if self.happened is None:
            return Unknown(self.evidence)
        return Applied(self.result) if self.happened else NotApplied(self.evidence)


def arrived(evidence: str, result: Any = None) -> Answer:
    return Answer(True, evidence, result)


def absent(evidence: str) -> Answer:
    return Answer(False, evidence)


def unknown(why: str) -> Answer:
    return Answer(None, why)


class Place(NamedTuple):
    """The directory and time of an action, and the time limit of its probe."""

    cwd: str
    sent_us: int | None = None
    """The time at which the action was sent; None before that."""
    within_s: float = 20.0


class Action(NamedTuple):
    """One entry of the table."""

    name: str
    """The name for people, such as `git push`."""
    commands: tuple[str, ...]
    """The first words of its command lines."""
    tools: tuple[str, ...]
    """The Python effects of the same action, such as `git.push`."""
    by: str
    """The facts that two calls of the same action share."""
    compensate: str
    cannot: str
    """Facts that the probe cannot know."""
    settle: str
    """The time after the last attempt in which "not there" does not count."""
    settle_why: str
    parse: Callable[[Sequence[str]], Facts | None]
    """Read the facts from a command line; None if it has unknown parts."""
    before: Callable[[Facts, Place], Facts] | None = None
    """Read the facts for the probe before the action is sent. With `sent_us`, read them afterwards, and only those that
    cannot have changed since then. Raises CannotTell."""
    find: Callable[[Facts, Place], Answer] | None = None
    """The probe. None if the outcome cannot be known or sending again is safe."""
    looks: Callable[[Facts], str] | None = None
    """The command or URL that `find` reads, in one line."""
    idempotent_s: float | None = None
    """The time in which the server recognises a repeated request, so that a doubtful one can be sent again."""
