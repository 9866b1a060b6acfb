"""The changes of a specification, planned or applied."""

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
    """The entry's position in the file: tasks[2]."""
    name: str
    """The entry's title, name, key or pattern, for people."""
    wanted: Any
    """The checked values of the entry, for the resource."""
    given: dict[str, Any]
    """The entry's fields in the file."""


class Change(Model):
    """The planned or applied change of one entry."""

    section: str
    place: str
    name: str
    action: str
    """new, changed, same, or closed: a task that was done stays done."""
    ref: str | None
    """The object's durable reference: an id, or state:NAMESPACE:KEY; None for an object that does not exist yet."""
    fields: dict[str, serial.Json]
    """The fields that differ: field → {"was", "is"}."""


class Applied(Model):
    """The changes of a specification, planned or applied."""

    mode: str
    key: str | None
    spec_hash: str
    changes: tuple[Change, ...]
    problems: tuple[str, ...]
    """Every check that failed. A specification with a problem is not committed."""
    replayed: bool = False
    """True if this key and specification were applied before: this call changed nothing."""
    receipt: Receipt | None = None

    @property
    def refs(self) -> dict[str, str | None]:
        """The reference of each entry of the file: tasks[0] → tsk_…"""
        return {change.place: change.ref for change in self.changes}
