"""One known action: how to recognise it, what identifies it, how to look it up, how to reverse it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from standfast.ledger.effects.call import Applied, NotApplied, Unknown

Facts = dict[str, Any]
"""What identifies one action, as plain JSON: its arguments, and what was read before it was sent."""


class CannotTell(Exception):
    """The probe could not find out: the remote did not answer, or what it says is ambiguous."""


class Answer(NamedTuple):
    """What a probe found out."""

    happened: bool | None
    """None: unknown."""
    evidence: str
    """What was seen: `3f2a91c is on origin/fix-42`."""
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
    """Where and when an action was started, and how long a probe may take."""

    cwd: str
    sent_us: int | None = None
    """When it was sent; None before that."""
    within_s: float = 20.0


class Action(NamedTuple):
    """One entry of the table."""

    name: str
    """As people call it: `git push`."""
    commands: tuple[str, ...]
    """The command lines that it begins: `git push`."""
    tools: tuple[str, ...]
    """The Python effects of the same action: `git.push`."""
    by: str
    """What makes two calls the same action."""
    compensate: str
    cannot: str
    """What the probe cannot know."""
    settle: str
    """How long after the last attempt "not there" does not count."""
    settle_why: str
    parse: Callable[[Sequence[str]], Facts | None]
    """From a command line to its facts; None for what it does not understand."""
    before: Callable[[Facts, Place], Facts] | None = None
    """Read, before it is sent, what the probe will need. With `sent_us` it is asked afterwards: only what cannot
    have changed since counts. Raises CannotTell."""
    find: Callable[[Facts, Place], Answer] | None = None
    """None: it cannot be known, or sending it again is safe."""
    looks: Callable[[Facts], str] | None = None
    """What `find` does, in one line: the command or the URL that it reads."""
    idempotent_s: float | None = None
    """The remote recognises the same request for this long: in doubt, it is sent again."""
