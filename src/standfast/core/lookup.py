"""Find a row by the name that a caller gives: its id, its key, or the end of its id as tables print it.

`unknown` makes the error for a name that no row has. For a session, a loop or a task it suggests the nearest name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from standfast import hints, serial
from standfast.core import repositories
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load, statement
from standfast.errors import InvalidInput, NotFound, close_matches
from standfast.ids import PREFIXES, is_id, like_suffix, short

SQL = load(__name__)

COMPARED_MAX = 2_000
"""A mistyped name is compared with this many names."""


class _Table(NamedTuple):
    """The table that holds the ids of one prefix."""

    noun: str
    by_id: Statement
    ends: Statement


@cache
def _table(prefix: str) -> _Table:
    table = PREFIXES[prefix]
    return _Table(
        table.replace("_", " "),
        statement(f"SELECT {{columns:{table}}} FROM {table} WHERE id = :id", name=f"{table}_by_id"),
        statement(f"SELECT id FROM {table} WHERE id LIKE :pattern ORDER BY id DESC LIMIT 2", name=f"{table}_ends"),
    )


def row_of(
    tx: Tx,
    name: object,
    prefix: str,
    *,
    by_key: Callable[[str], Row | None] = lambda name: None,
    by_id: Statement | None = None,
) -> Row | None:
    """Find the row that `name` means: by its id, then by its key (`by_key`), then by the end of its id.

    `prefix` is that of the ids. Give `by_id` if the row needs other columns than those of its table. Returns None if
    no row has the name. Raises InvalidInput if several ids end with it.
    """
    by_id = by_id or _table(prefix).by_id
    if not isinstance(name, str):
        raise InvalidInput(f"a {_table(prefix).noun} is named by text, not by {type(name).__name__}")
    row = tx.maybe(by_id, id=name) if is_id(name) else None
    row = row or (by_key(name) if "\0" not in name else None)  # no stored text contains NUL
    if row is None and (id := _by_end(tx, name, prefix)) is not None:
        row = tx.maybe(by_id, id=id)
    return row


def _by_end(tx: Tx, text: str, prefix: str) -> str | None:
    suffix = like_suffix(text, prefix=prefix)
    if suffix is None:
        return None
    found = tx.all(_table(prefix).ends, pattern=f"{prefix}_%{suffix}")
    if len(found) > 1:
        raise InvalidInput(f"{text!r} is the end of more than one {_table(prefix).noun}'s id", "give more of it")
    return str(found[0]["id"]) if found else None


def session_id(tx: Tx, scope: str, session: object) -> str | None:
    """The id of a session given as an object, an id or a key; None for None. Raises NotFound."""
    if session is None:
        return None
    named = str(getattr(session, "id", session))
    row = tx.maybe(SQL.session, scope=scope, session=named)
    if row is None:
        raise unknown(tx, "session", named)
    return str(row["id"])


def unknown(tx: Tx, noun: str, name: object, hint: str = "") -> NotFound:
    """The error for a name that no row in this scope has. It suggests the nearest session, loop or task."""
    message = f"there is no {noun} {serial.clean(str(name), 80)!r} in this scope"
    for near, word in _nearest(tx, noun, str(name)):
        if near == name:  # the title or fingerprint of a task
            message = f"a {noun} is named by its id, and {serial.clean(near, 80)!r} has the id {word}"
            return NotFound(message, hints.command(noun, "show", word))
        return NotFound(f"{message}; did you mean {serial.clean(near, 80)!r}?", hints.command(noun, "show", word))
    return NotFound(message, hint or f"standfast {noun} list --all")


def _nearest(tx: Tx, noun: str, name: str) -> list[tuple[str, str]]:
    """The nearest name, and the word by which a command finds its row; empty if no name is near."""
    names = {"session": SQL.session_names, "loop": SQL.loop_names, "task": SQL.task_names}.get(noun)
    if names is None or is_id(name):
        return []
    rows = tx.all(names, scope=tx.caller.scope, limit=COMPARED_MAX, **repositories.filtered(tx))
    known = {str(row["name"]).casefold(): row for row in rows}
    return [(known[one]["name"], _word(known[one]["word"])) for one in close_matches(name.casefold(), known)]


def _word(word: str) -> str:
    return short(word) if is_id(word) else word
