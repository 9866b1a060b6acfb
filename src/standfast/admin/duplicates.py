"""Keys that name two things in one store, because one of them is in a scope named after a repository.

A key is unique in its scope. A program that sets `scope=` to the name of its repository has separate keys, so work
that ran without the scope runs again with it. `doctor` names both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from standfast import hints
from standfast.db.contract import Tx
from standfast.db.sql import load

SQL = load(__name__)

SHOWN_MAX = 20
_BY_KEY = ("session", "effect", "loop", "lock")
"""Kinds with a command that shows one of them by its key; of the others the list is named."""


class Duplicate(NamedTuple):
    kind: str
    key: str
    scope: str

    @property
    def commands(self) -> tuple[str, str]:
        """The commands that show the one without a scope, and the one with it."""
        words = (self.kind, "show", self.key) if self.kind in _BY_KEY else (self.kind, "list")
        return hints.command(*words), hints.command(*words, "--scope", self.scope)


def found(tx: Tx) -> Iterator[Duplicate]:
    """At most 20 of them."""
    for row in tx.all(SQL.twice, limit=SHOWN_MAX):
        yield Duplicate(row["kind"], row["key"], row["scope"])
