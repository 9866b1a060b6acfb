"""How callers name a thing: by its id, by a key of their own, or by the end of its id, as tables print it."""

from __future__ import annotations

from collections.abc import Callable

from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement
from standfast.errors import InvalidInput
from standfast.ids import is_id, like_suffix


def row_of(
    tx: Tx,
    name: object,
    *,
    by_id: Statement,
    ends: Statement,
    prefix: str,
    noun: str,
    by_key: Callable[[str], Row | None] = lambda name: None,
) -> Row | None:
    """What `name` names: by its id, by a key as `by_key` looks it up, by the end of its id. None if nothing is."""
    if not isinstance(name, str):
        raise InvalidInput(f"a {noun} is named by text, not by {type(name).__name__}")
    row = tx.maybe(by_id, id=name) if is_id(name) else None
    if row is None:
        row = by_key(name)
    if row is None:
        id = by_end(tx, ends, name, prefix=prefix, noun=noun)
        row = tx.maybe(by_id, id=id) if id is not None else None
    return row


def by_end(tx: Tx, ends: Statement, text: str, *, prefix: str, noun: str) -> str | None:
    """The id that ends with `text`, or None. `ends` takes a :pattern. Raises InvalidInput if more than one id does."""
    suffix = like_suffix(text, prefix=prefix)
    if suffix is None:
        return None
    found = tx.all(ends, pattern=f"{prefix}_%{suffix}")
    if len(found) > 1:
        raise InvalidInput(f"{text!r} is the end of more than one {noun}'s id", "give more of it")
    return str(found[0]["id"]) if found else None
