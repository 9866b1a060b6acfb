"""Text for people: tables that fit a terminal and cannot harm it.

LLMs and other programs wrote what the store holds, so a terminal must not obey it. `clean` is the one cleaner:
it writes control characters, escape sequences, direction marks and invisible characters as JSON escapes.
`Out` passes everything that it prints through `printed`, which keeps nothing but our own colours.
Into a pipe a table becomes tab-separated and nothing is cut: `cut` and `awk` work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple, TextIO

MEASURED_ROWS = 200
"""Rows read before the first is printed, to find the widths; the rest streams in those widths."""
COLUMN_MIN = 8
GAP = "  "

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
# Our own colours on their way to the terminal. Stored text cannot imitate them: it does not know the random number.
_COLOUR = f"\x1b<{os.urandom(8).hex()}>"
# Characters that print as nothing, or as nothing one would notice, and count as printable all the same.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class Column(NamedTuple):
    """One column: the field, its heading, and how its value is written."""

    field: str
    heading: str = ""
    show: Callable[[Any], str] | None = None

    @property
    def title(self) -> str:
        return self.heading or self.field

    def text(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.field)
        if value is None:
            return ""
        return clean(self.show(value) if self.show else str(value))


def clean(text: str, *, exact: bool = False) -> str:
    """One line. What a terminal would hide or obey is written as a JSON escape; white space as a space.

    With `exact`, white space is escaped too: a JSON text stays the same value.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _seen(c) else " " if not exact and c.isspace() else _escape(c) for c in text)


def clean_lines(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join(clean(line) for line in text.splitlines())


def markdown(text: str) -> str:
    """One line of Markdown that shows the text: no tag, image, link or emphasis of its author is live in it."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = "".join(f"\\{c}" if c in "\\`*_[]()!|#~" else c for c in plain)
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def printed(text: str) -> str:
    """What goes to the terminal: the text through `clean`, line by line, tabs kept, in our own colours."""
    if text.isascii() and text.isprintable():
        return text
    first, *rest = text.split(_COLOUR)
    parts = [_whole(first)]
    for part in rest:
        code, _, after = part.partition("m")
        parts.append(f"\x1b[{code}m{_whole(after)}")
    return "".join(parts)


def _whole(text: str) -> str:
    return "".join(c if c in "\n\t" or _seen(c) else " " if c.isspace() and c > "\x7f" else _escape(c) for c in text)


def _seen(c: str) -> bool:
    code = ord(c)
    return c.isprintable() and c not in _BLANK and not (0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF)


def _escape(c: str) -> str:
    import json

    return json.dumps(c)[1:-1] if c != "\x7f" else "\\u007f"


def width_of(text: str) -> int:
    """Columns on a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """Cut to `width` columns, with an ellipsis where something is missing."""
    if width_of(text) <= width:
        return text
    out, used = [], 0
    for c in text:
        used += width_of(c)
        if used > width - 1:
            break
        out.append(c)
    return "".join(out) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * max(width - width_of(text), 0)
    return space + text if right else text + space


def styled(text: str, style: str, *, color: bool) -> str:
    """The text with marks that `printed` turns into the terminal's own."""
    return f"{_COLOUR}{_STYLES[style]}m{text}{_COLOUR}0m" if color and text else text


def wants_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """NO_COLOR beats FORCE_COLOR beats what the terminal is."""
    env = os.environ if environ is None else environ
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return stream.isatty() and env.get("TERM", "") not in ("", "dumb")


def terminal_width(stream: TextIO, environ: Mapping[str, str] | None = None) -> int | None:
    """Columns of the terminal, None where there is none and nothing needs to be cut."""
    env = os.environ if environ is None else environ
    if not stream.isatty():
        return None
    if env.get("COLUMNS", "").isdigit():
        return max(int(env["COLUMNS"]), 20)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 80
    return max(columns, 20) if columns else 80  # a pseudo-terminal that nobody gave a size has none


def table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, width: int | None, color: bool = False
) -> Iterator[str]:
    """Lines of a table: aligned and cut to `width`, or tab-separated and whole without one."""
    if width is None:
        yield "\t".join(clean(column.title) for column in columns)
        for row in rows:
            yield "\t".join(column.text(row) for column in columns)
        return
    source = iter(rows)
    first = list(islice(source, MEASURED_ROWS))
    counted = [c for c in columns if c.show is None]  # what is shown in words stands left
    numeric = {c.field for c in counted if first and all(_is_number(row.get(c.field)) for row in first)}
    widths = _widths([[c.text(row) for c in columns] for row in first], [clean(c.title) for c in columns], width)

    def line(texts: Iterable[str]) -> str:
        cells = zip(texts, columns, widths, strict=True)
        return GAP.join(pad(fit(t, w), w, right=c.field in numeric) for t, c, w in cells).rstrip()

    yield styled(line(clean(column.title) for column in columns), "bold", color=color)
    for row in chain(first, source):
        yield line(column.text(row) for column in columns)


def pairs(items: Iterable[tuple[str, object]], *, color: bool = False) -> Iterator[str]:
    """Lines of `label  value`."""
    listed = [(clean(label), clean(str(value))) for label, value in items]
    width = max((width_of(label) for label, _ in listed), default=0)
    for label, value in listed:
        yield f"{styled(pad(label, width), 'dim', color=color)}{GAP}{value}".rstrip()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _widths(cells: list[list[str]], titles: list[str], total: int) -> list[int]:
    """Natural widths, the widest shrunk until the line fits; a table of many columns may still not."""
    widths = [max(width_of(text) for text in column) for column in zip(titles, *cells, strict=True)]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - total
    while excess > 0 and max(widths) > COLUMN_MIN:
        at = widths.index(max(widths))
        others = [w for i, w in enumerate(widths) if i != at]
        floor = max([COLUMN_MIN, *(w for w in others if w < widths[at])])
        step = max(1, min(excess, widths[at] - floor))
        widths[at] -= step
        excess -= step
    return widths
