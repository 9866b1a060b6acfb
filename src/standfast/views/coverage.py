"""The coverage of a view: one repository or the whole store, and the known stores that it did not read.

Views judge every open row of the store, and use this module to divide the rows by repository. A view lists those of one
repository, and counts those of other repositories and scopes, so that nothing that waits is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from standfast.config.scope import Label
from standfast.core import repositories
from standfast.db.contract import Caller, Row, Tx

if TYPE_CHECKING:
    from standfast.config import Settings


def covers_all(caller: Caller, everywhere: bool | None) -> bool:
    """Whether a view shows the whole store. By default it does if the caller has no repository and no scope."""
    return caller.repository is None and not caller.scope if everywhere is None else everywhere


class Place(NamedTuple):
    """The repository and the scope of a row."""

    here: bool
    """True if the repository and the scope are the caller's. Outside any repository only the scope counts."""
    name: str
    """The repository and the scope for people; empty if they are the caller's own."""


class Places:
    """The places of rows. Each label is looked up once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._inside = tx.caller.repository is not None
        self._listed: dict[Label, bool] = {}

    def of(self, row: Row) -> Place:
        """The place of a row with a scope and, if its kind depends on the repository, a label."""
        label = self.label(row)
        if label not in self._listed:
            self._listed[label] = repositories.listed(self._tx, label)
        here = row["scope"] == self._tx.caller.scope and self._listed[label]
        return Place(here, "" if here and self._inside else named(label, row["scope"]))

    @staticmethod
    def label(row: Row) -> Label:
        return Label(row.get("git_dir"), row.get("origin"))

    def of_keyspace(self, row: Row) -> Place:
        """The place of a task, a decision or a state value, which belong to a repository."""
        label = Label(row["git_dir"], row["origin"])
        here = (row["scope"], row["repository"]) == self._tx.caller.keyspace
        return Place(here, "" if here and self._inside else named(label, row["scope"]))


def named(label: Label, scope: str) -> str:
    """A repository and a scope, for people."""
    name = label.name.removesuffix("/.git")
    return " in scope ".join(part for part in (name, scope) if part)


def choice(scope_choice: str | None) -> bool | None:
    """`--all` and `--global` as `everywhere`; None lets the directory decide."""
    return {"all": True, "global": False, None: None}[scope_choice]


def unread_stores(settings: Settings) -> list[str]:
    """The stores that this host remembers and this answer did not read."""
    from standfast.db import store_memory

    here = store_memory.place_of(settings.target)
    others = [known for known in store_memory.stores() if here not in known.places and not known.given_up]
    return [known.places[0].shown for known in others if known.places]


def not_read(unread: list[str]) -> str:
    """The sentence about stores that an answer did not read; empty without any."""
    return f"Not read: {', '.join(unread)} (standfast store list)" if unread else ""


def waiting_elsewhere(elsewhere: Mapping[str, int]) -> str:
    """The sentence that counts the items of other repositories and scopes; empty if there are none."""
    if not elsewhere:
        return ""
    items, places = sum(elsewhere.values()), len(elsewhere)
    one = "1 item waits" if items == 1 else f"{items:,} items wait"
    where = "1 other repository or scope" if places == 1 else f"{places:,} other repositories or scopes"
    return f"{one} in {where}"
