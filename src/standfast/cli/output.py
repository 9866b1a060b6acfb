"""Print the answer of a command: data to stdout, messages to stderr.

The default is a table or a few lines. `--json` prints one document `{"schema_version": 1, "data": …}`, with `"next"`
beside `data` for a list. `--jsonl` prints one record per line. With both, an error is
`{"error": {"code", "message", "hint"}}` on stderr. Rows are streamed, so that a list may be larger than memory. All
lines pass `render.printed`, which escapes control characters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, TextIO

from standfast.cli import render
from standfast.cli.render import Column

SCHEMA_VERSION = 1

Format = Literal["text", "json", "jsonl"]


class Out:
    """The two streams of a command and its format."""

    __slots__ = ("_drawn", "chosen", "debug", "format")

    def __init__(self, format: Format = "text", *, debug: bool = False) -> None:
        self.format: Format = format
        self.debug = debug
        self._drawn = False
        self.chosen = ""
        """The given `--store` and `--scope`, which the next command needs too."""

    @property
    def for_people(self) -> bool:
        return self.format == "text"

    # Data.

    def record(self, data: Mapping[str, Any], text: Iterable[str] | None = None, *, exact: bool = False) -> None:
        """Print one record: as `text` or its fields, or as JSON. With `exact`, a pipe gets `text` byte for byte."""
        if self.format == "json":
            self._line(dumps({"schema_version": SCHEMA_VERSION, "data": data}))
        elif self.format == "jsonl":
            self._line(dumps(data))
        else:
            for line in text if text is not None else self.pairs(data.items()):
                self._line(line, exact=exact and not sys.stdout.isatty())

    def rows(
        self,
        rows: Iterable[Mapping[str, Any]],
        columns: Sequence[Column | str],
        *,
        next: Callable[[], str | None] | str | None = None,
        then: str = "",
        empty: str = "",
    ) -> int:
        """Print a list. `next` is the cursor of the next page, `then` the next command. Returns the number of rows."""
        counted = _Counted(rows)
        if self.format == "json":
            self._document(counted, next)
        elif self.format == "jsonl":
            for row in counted:
                self._line(dumps(row))
        else:
            self._table(counted, columns, empty)
        if self.format != "json" and (cursor := next() if callable(next) else next) is not None:
            from standfast import hints

            self.say(f"more: --after {hints.word(str(cursor))}")
        if then:
            self.then(then)
        return counted.count

    def text(self, text: str) -> None:
        """Print text as data: a script, or a page of help."""
        self._line(text)

    # Messages.

    def say(self, *lines: str) -> None:
        """Print messages to stderr, so that they do not mix with data."""
        self._clear()
        with suppress(OSError, ValueError):  # the flush at the end reports a closed pipe or a full disk
            sys.stdout.flush()  # keep the order if both streams go to the same file
        for line in lines:
            print(render.printed(line), file=sys.stderr)

    def draw(self, line: str) -> None:
        """Draw a line on the terminal that the next output replaces (`progress`)."""
        sys.stderr.write(f"\r\x1b[K{render.printed(line)}")
        sys.stderr.flush()
        self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def then(self, command: str, *others: str) -> None:
        """Print the next command and its alternatives, one per line. JSON output does not have them."""
        if self.for_people:
            lines = (f"next: {self._chosen(command)}", *(f"  or: {self._chosen(other)}" for other in others))
            color = render.wants_color(sys.stderr)
            self.say(*(render.styled(line, "dim", color=color) for line in lines))

    def _chosen(self, command: str) -> str:
        return re.sub(r"\bstandfast (?=[a-z])", f"standfast {self.chosen}", command) if self.chosen else command

    def error(self, code: str, message: str, hint: str = "") -> None:
        hint = self._chosen(hint)
        if self.format != "text":
            self.say(dumps({"error": {"code": code, "message": message, "hint": hint}}))
            return
        label = render.styled("standfast:", "red", color=render.wants_color(sys.stderr))
        self.say(f"{label} {render.clean_lines(message)}")
        if hint:
            self.say(*(f"  {line}" for line in render.clean_lines(hint).splitlines()))

    # Parts of text output.

    @property
    def color(self) -> bool:
        return render.wants_color(sys.stdout)

    def styled(self, text: str, style: str) -> str:
        return render.styled(text, style, color=self.color)

    def pairs(self, items: Iterable[tuple[str, object]]) -> Iterable[str]:
        """Lines of `label  value`, without the items that have no value."""
        shown = ((label, value) for label, value in items if value is not None and value != "")
        return render.pairs(shown, color=self.color, width=render.terminal_width(sys.stdout))

    def wrapped(self, text: str, indent: int = 0) -> list[str]:
        """The text in lines that fit the terminal behind `indent` columns; in a pipe, one line."""
        width = render.terminal_width(sys.stdout)
        clean = render.clean(text)
        return [clean] if width is None else render.wrapped(clean, max(width - indent, render.FREE_MIN), 100)

    def flush(self) -> None:
        sys.stdout.flush()

    def table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column | str]) -> Iterator[str]:
        """The lines of a table in the width of the terminal."""
        listed = [column if isinstance(column, Column) else Column(column) for column in columns]
        return render.table(rows, listed, width=render.terminal_width(sys.stdout), color=self.color)

    def _table(self, rows: Iterable[Mapping[str, Any]], columns: Sequence[Column | str], empty: str) -> None:
        iterator = iter(rows)
        first = next(iterator, None)
        if first is None:
            self.say(empty or "none")
            return
        for line in self.table(chain([first], iterator), columns):
            self._line(line)

    def _document(self, rows: Iterable[Mapping[str, Any]], cursor: Callable[[], str | None] | str | None) -> None:
        sys.stdout.write(f'{{"schema_version": {SCHEMA_VERSION}, "data": [')
        separator = ""
        for row in rows:
            sys.stdout.write(f"{separator}\n{dumps(row)}")
            separator = ","
        after = cursor() if callable(cursor) else cursor
        sys.stdout.write(f'{chr(10) if separator else ""}], "next": {dumps(after)}}}\n')

    def _line(self, text: str, *, exact: bool = False) -> None:
        self._clear()
        sys.stdout.write((text if exact else render.printed(text)) + "\n")


class _Counted:
    __slots__ = ("_rows", "count")

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for row in self._rows:
            self.count += 1
            yield row


def dumps(value: object) -> str:
    """JSON on one line, for any value of a row. Control characters are escaped."""
    import json

    try:
        text = json.dumps(value, ensure_ascii=_ascii_only(sys.stdout), default=_plain, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_finite(value), ensure_ascii=_ascii_only(sys.stdout), default=_plain)
    return render.clean(text, exact=True)


def _ascii_only(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().replace("-", "") != "utf8"


def _plain(value: object) -> object:
    """A value that JSON does not have: bytes as hexadecimal digits, a whole Decimal as an integer, others as text."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if hasattr(value, "as_integer_ratio"):  # a Decimal, which PostgreSQL's sum() is
        return int(value) if value == int(value) else float(value)  # type: ignore[call-overload, arg-type]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _finite(value: object) -> object:
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
