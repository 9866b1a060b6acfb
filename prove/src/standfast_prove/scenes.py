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
    """A remote that keeps its own count: a file that is only appended to."""

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
    """A holder that is known to be dead: our own pid, started at another time."""
    return str(leases.process(os.getpid(), sf._store.caller.clock)._replace(start="1"))


def elsewhere(sf: Standfast) -> str:
    """A holder that this process cannot judge: a process in another namespace."""
    return str(leases.process(os.getpid(), sf._store.caller.clock)._replace(namespace="1"))


def orphan(sf: Standfast, effect: str, holder: str | None = None) -> None:
    """What a crash of its holder leaves behind."""

    id = sf.effects.get(effect).id

    def body(tx: Tx) -> None:
        tx.one(HOLD, id=id, holder=holder or gone(sf))

    sf._store.write(body)


def outside(function: Callable[[], T]) -> T:
    """Call it as another process would: not inside the effect whose function is running."""
    return contextvars.Context().run(function)


def prune(sf: Standfast, effect: str) -> None:
    """The tombstone of its key, which pruning keeps."""
    id = sf.effects.get(effect).id
    sf._store.write(lambda tx: tx.one(PRUNE, id=id, now_us=tx.now_us()) and None)


def told(sf: Standfast, effect: str) -> list[str]:
    """What the journal says about an effect, without the noun."""
    events = sf.journal.about(sf.effects.get(effect).id)
    return [event.type.removeprefix("effect.") for event in events]


def only(sf: Standfast) -> Effect:
    """The one effect there is."""
    (effect,) = sf.effects.list()
    return effect
