"""How callers name a thing: by its id, by a key of their own, or by the end of its id, as tables print it.

`unknown` is the answer to a name that no session, loop or task has: it names the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable

from standfast import hints, serial
from standfast.core import repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.errors import InvalidInput, NotFound, close_matches
from standfast.ids import is_id, like_suffix, short

SQL = load(__name__)

COMPARED_MAX = 2_000
"""A mistyped name is compared with this many names."""


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
    """Find the row that `name` means: by its id, by its key (`by_key`) or by the end of its id. None if nothing is."""
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


def unknown(tx: Tx, noun: str, name: object, hint: str = "") -> NotFound:
    """The refusal of a name that nothing has here. Of a session, loop or task it shows the nearest one."""
    message = f"there is no {noun} {serial.clean(str(name), 80)!r} in this scope"
    for near, word in _nearest(tx, noun, str(name)):
        if near == name:  # the title or fingerprint of a task
            message = f"a {noun} is named by its id, and {serial.clean(near, 80)!r} has the id {word}"
            return NotFound(message, hints.command(noun, "show", word))
        return NotFound(f"{message}; did you mean {serial.clean(near, 80)!r}?", hints.command(noun, "show", word))
    return NotFound(message, hint or f"standfast {noun} list --all")


def _nearest(tx: Tx, noun: str, name: str) -> list[tuple[str, str]]:
    """The name that is nearest to `name` as written, and what a command takes for it; empty if none is near."""
    names = {"session": SQL.session_names, "loop": SQL.loop_names, "task": SQL.task_names}.get(noun)
    if names is None or is_id(name):
        return []
    rows = tx.all(names, scope=tx.caller.scope, limit=COMPARED_MAX, **repositories.filtered(tx))
    known = {str(row["name"]).casefold(): row for row in rows}
    return [(known[one]["name"], _word(known[one]["word"])) for one in close_matches(name.casefold(), known)]


def _word(word: str) -> str:
    return short(word) if is_id(word) else word
