"""How callers name a thing: by its id, by a key of their own, or by the end of its id, as tables print it."""

from __future__ import annotations

from standfast.db.contract import Tx
from standfast.db.sql import Statement
from standfast.errors import InvalidInput
from standfast.ids import like_suffix


def by_end(tx: Tx, ends: Statement, text: str, *, prefix: str, noun: str) -> str | InvalidInput | None:
    """The id that ends with `text`; None if none does, InvalidInput if more than one. `ends` takes a :pattern."""
    suffix = like_suffix(text, prefix=prefix)
    if suffix is None:
        return None
    found = tx.all(ends, pattern=f"{prefix}_%{suffix}")
    if len(found) > 1:
        return InvalidInput(f"{text!r} is the end of more than one {noun}'s id", "give more of it")
    return str(found[0]["id"]) if found else None
