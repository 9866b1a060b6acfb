"""Encode parameters for PostgreSQL and decode its rows for Python.

Whole numbers always travel as 64-bit integers, and a NULL with the type its parameter had before, so that a statement
keeps one signature and one prepared plan. Numbers are decoded as `int` or `float`, never as `Decimal`, so that a method
returns the same objects on both engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.db.contract import Row
    from standfast.db.postgres.driver import PGresult
    from standfast.db.sql import Statement

_PERCENT = re.compile(r"%%|%\((\w+)\)s")
# First skip text that may have a colon and is no parameter: strings, quoted names, comments, bodies, casts.
_COLON = r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|\$(\w*)\$.*?\$\1\$|::|:([a-z_][a-z0-9_]*)"""
_ESCAPED = rb"\\([0-3][0-7]{2}|\\)"
_INT8, _FLOAT8, _BYTEA, _UNKNOWN = 20, 701, 17, 0
_TEXT_FORMAT, _BINARY_FORMAT = 0, 1


class Query:
    """One statement with numbered parameters, and the last type of each."""

    __slots__ = ("names", "text", "types")

    def __init__(self, text: str, names: list[str]) -> None:
        self.text = text.encode()
        self.names = tuple(names)
        self.types = [_UNKNOWN] * len(names)


class Bound:
    """The values of one execution, ready to be sent."""

    __slots__ = ("formats", "types", "values")

    def __init__(self, values: list[bytes | None], types: list[int], formats: list[int]) -> None:
        self.values = values
        self.types = types
        self.formats = formats


def query_of(statement: Statement) -> Query:
    """The statement as this engine sends it."""
    return _numbered(statement.postgres)


@lru_cache(maxsize=1024)
def _numbered(text: str) -> Query:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        return f"${_place(names, match[1])}" if match[1] else "%"

    return Query(_PERCENT.sub(number, text), names)


def persons_query(text: str, params: Mapping[str, object]) -> Query:
    """A person's SQL: only names for which the caller gave a value are parameters."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        return f"${_place(names, match[2])}" if match[2] in params else match[0]

    return Query(re.sub(_COLON, number, text, flags=re.DOTALL), names)


def _place(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name) + 1


def bind(query: Query, params: Mapping[str, object]) -> Bound:
    """The values of the parameters of a query, as text or bytes. `params` may have more values."""
    values: list[bytes | None] = []
    types: list[int] = []
    formats: list[int] = []
    for place, name in enumerate(query.names):
        value, kind = _sent(name, params[name])
        if value is None:
            kind = query.types[place]
        elif kind != _UNKNOWN:
            query.types[place] = kind
        values.append(value)
        types.append(kind)
        formats.append(_BINARY_FORMAT if kind == _BYTEA else _TEXT_FORMAT)
    return Bound(values, types, formats)


def _sent(name: str, value: object) -> tuple[bytes | None, int]:
    match value:
        case str():
            return _text(name, value), _UNKNOWN
        case None:
            return None, _UNKNOWN
        case int():  # bool too: our schema has whole numbers, as SQLite has
            return b"%d" % value, _INT8
        case float():
            return repr(float(value)).encode(), _FLOAT8
        case bytes() | bytearray() | memoryview():
            return bytes(value), _BYTEA
        case _:
            raise InvalidInput(f"{name} is a {type(value).__name__}: a store holds text, numbers and bytes")


def _text(name: str, value: str) -> bytes:
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} holds a lone surrogate, which is not Unicode text") from None
    if b"\0" in encoded:  # libpq would cut the text there without an error
        raise InvalidInput(f"{name} holds a NUL character, which PostgreSQL cannot store")
    return encoded


# -- rows ---------------------------------------------------------------------------------------------


def number(text: bytes) -> int | float:
    """A `numeric`, the type of sums and averages: an int if its text has no fraction."""
    return int(text) if text.lstrip(b"-").isdigit() else float(text)


def _bytes(text: bytes) -> bytes:
    if text.startswith(b"\\x"):
        return bytes.fromhex(text[2:].decode())
    return re.sub(_ESCAPED, _unescaped, text)  # a server with bytea_output = escape


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return b"\\" if code == b"\\" else bytes([int(code, 8)])


_LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda text: text == b"t",
    17: _bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1700: number,
}


def rows_of(result: PGresult, limit: int | None = None) -> list[Row]:
    """The rows of an answer, or its first `limit`."""
    columns = [
        (place, (result.fname(place) or b"").decode(), _LOADERS.get(result.ftype(place), bytes.decode))
        for place in range(result.nfields)
    ]
    value = result.get_value
    count = result.ntuples if limit is None else min(limit, result.ntuples)
    return [
        {name: None if (text := value(row, place)) is None else load(text) for place, name, load in columns}
        for row in range(count)
    ]
