"""An outside system for tests of effects, and ways to kill a holder without ending the test."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from standfast.core import leases
from standfast.db.contract import Tx
from standfast.db.sql import statement

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.ledger.effects.models import Effect

T = TypeVar("T")

HOLD = statement("UPDATE effect SET holder = :holder WHERE id = :id RETURNING id")
PRUNE = statement(
    "UPDATE effect SET intent = NULL, context = NULL, result = NULL, pruned_us = :now_us WHERE id = :id RETURNING id"
)


@dataclass(frozen=True)
class PullRequest:
    number: int
    url: str


class Github:
    """A remote that counts its requests in a file, to which it only appends."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "github.log"

    def post(self, line: str) -> PullRequest:
        with self.file.open("a") as file:
            file.write(line.replace("\n", " ") + "\n")
        number = len(self.lines)
        return PullRequest(number, f"https://example.org/pull/{number}")

    @property
    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


def gone(sf: Standfast) -> str:
    """A holder that is known to be dead: the pid of this process, with another start time."""
    return str(leases.process(os.getpid(), sf._store.caller.clock)._replace(start="1"))


def elsewhere(sf: Standfast) -> str:
    """A holder that this process cannot judge: a process in another namespace."""
    return str(leases.process(os.getpid(), sf._store.caller.clock)._replace(namespace="1"))


def orphan(sf: Standfast, effect: str, holder: str | None = None) -> None:
    """Leave the effect as a crash of its holder does."""

    id = sf.effects.get(effect).id

    def body(tx: Tx) -> None:
        tx.one(HOLD, id=id, holder=holder or gone(sf))

    sf._store.write(body)


def outside(function: Callable[[], T]) -> T:
    """Call it as another process would: not inside the effect whose function is running."""
    return contextvars.Context().run(function)


def prune(sf: Standfast, effect: str) -> None:
    """Prune the effect: only the tombstone of its key remains."""
    id = sf.effects.get(effect).id
    sf._store.write(lambda tx: tx.one(PRUNE, id=id, now_us=tx.now_us()) and None)


def told(sf: Standfast, effect: str) -> list[str]:
    """The types of the journal's events about an effect, without the prefix "effect."."""
    events = sf.journal.about(sf.effects.get(effect).id)
    return [event.type.removeprefix("effect.") for event in events]


def only(sf: Standfast) -> Effect:
    """The only effect of the store."""
    (effect,) = sf.effects.list()
    return effect
