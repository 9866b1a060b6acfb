"""What a specification would change, and what was applied."""

from __future__ import annotations

from typing import Any, NamedTuple

from standfast import serial
from standfast.core.receipts import Receipt
from standfast.models import Model

MODES = ("dry-run", "preflight", "commit")


class Item(NamedTuple):
    """One entry of a specification, checked."""

    section: str
    """tasks, loops, state or gates."""
    place: str
    """Its position in the file: tasks[2]."""
    name: str
    """By which people know it: a title, a name, a key, a pattern."""
    wanted: Any
    """As its resource wants it."""
    given: dict[str, Any]
    """What the file says, field by field."""


class Change(Model):
    """What becomes of one entry."""

    section: str
    place: str
    name: str
    action: str
    """new, changed, same, or closed: a task that was done stays done."""
    ref: str | None
    """Its durable reference: an id, or state:NAMESPACE:KEY; None for an object that does not exist yet."""
    fields: dict[str, serial.Json]
    """What differs: field → {"was", "is"}."""


class Applied(Model):
    """A specification against a store: the difference, or what was made of it."""

    mode: str
    key: str | None
    spec_hash: str
    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    """Every check that fails; a specification with any is not committed."""
    replayed: bool = False
    """Applied before, with this very key and specification: nothing was done now."""
    receipt: Receipt | None = None

    @property
    def refs(self) -> dict[str, str | None]:
        """Where each entry of the file is now: tasks[0] → tsk_…"""
        return {change.place: change.ref for change in self.changes}
