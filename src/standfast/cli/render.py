"""Tables and text for a terminal.

A table prints times, ids, keys, names and repositories completely. Free text wraps inside its column. A column that
does not fit is printed below its row, with its heading. In a pipe a table is tab-separated, so that `cut` and `awk`
work.

LLMs and other programs write text into the store, and a terminal must not obey it. `clean` writes control characters,
escape sequences, direction marks and invisible characters as JSON escapes. `Out` passes all output through `printed`,
which lets only the colours of standfast through.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, NamedTuple, TextIO

MEASURED_ROWS = 200
"""How many rows are read to find the widths. Further rows are streamed in these widths."""
FREE = frozenset(
    (
        *("about", "body", "command", "description", "error", "evidence", "found", "message", "meaning"),
        *("note", "now", "outcome", "question", "reason", "remedy", "runs", "said", "snippet", "summary"),
        *("text", "then", "title", "value", "was", "what", "why"),
    )
)
"""Fields and headings of columns with free text."""
FREE_MIN = 20
"""The smallest width of free text. With less space it is printed below its row."""
WORD_MAX = 40
"""A word up to this length is not broken."""
CELL_LINES_MAX = 6
"""How many lines of a free text a table shows. The `show` commands print all lines."""
LINES_MAX = 1000
BELOW = "    "
GAP = "  "

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
# Marks a colour of standfast. Stored text cannot contain the mark, because it is random.
_COLOUR = f"\x1b<{os.urandom(8).hex()}>"
# Characters that are invisible although Python counts them as printable.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


class Column(NamedTuple):
    """One column: the field, its heading, and the format of its values."""

    field: str
    heading: str = ""
    show: Callable[[Any], str] | None = None
    wraps: bool | None = None
    """Whether the text of the column may wrap. None: only if its field or heading is in FREE."""

    @property
    def free(self) -> bool:
        return self.wraps if self.wraps is not None else not FREE.isdisjoint((self.field, self.heading))

    @property
    def title(self) -> str:
        return self.heading or self.field

    def text(self, row: Mapping[str, Any]) -> str:
        value = row.get(self.field)
        if value is None:
            return ""
        return clean(self.show(value) if self.show else str(value))


def clean(text: str, *, exact: bool = False) -> str:
    """One line. Write control characters as JSON escapes and white space as spaces.

    With `exact`, white space is escaped too: a JSON text stays the same value.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _seen(c) else " " if not exact and c.isspace() else _escape(c) for c in text)


def clean_lines(text: str) -> str:
    """As `clean`, for a text of several lines."""
    return "\n".join(clean(line) for line in text.splitlines())


def markdown(text: str) -> str:
    """One line of Markdown that shows the text, with tags, images, links and emphasis escaped."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = "".join(f"\\{c}" if c in "\\`*_[]()!|#~" else c for c in plain)
    return escaped.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def printed(text: str) -> str:
    """The text for the terminal: as `clean`, but with line breaks, tabs and the colours of standfast."""
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
    """The columns that a text fills on a terminal. A wide character fills two columns, and a combining character
    none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def fit(text: str, width: int) -> str:
    """The text cut to `width` columns, with an ellipsis if it was cut."""
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
    """The text with marks that `printed` turns into escape sequences."""
    return f"{_COLOUR}{_STYLES[style]}m{text}{_COLOUR}0m" if color and text else text


def wants_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Whether to use colours: NO_COLOR decides first, then FORCE_COLOR, then the terminal."""
    env = os.environ if environ is None else environ
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return stream.isatty() and env.get("TERM", "") not in ("", "dumb")


def terminal_width(stream: TextIO, environ: Mapping[str, str] | None = None) -> int | None:
    """The columns of the terminal; None if the stream is no terminal."""
    env = os.environ if environ is None else environ
    if not stream.isatty():
        return None
    if env.get("COLUMNS", "").isdigit():
        return max(int(env["COLUMNS"]), 20)
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 80
    return max(columns, 20) if columns else 80  # a new pseudo-terminal has no size


def wrapped(text: str, width: int, lines_max: int = CELL_LINES_MAX) -> list[str]:
    """The text in lines of at most `width` columns, broken at spaces; a longer word is broken anywhere.

    A text of more than `lines_max` lines ends with an ellipsis.
    """
    lines: list[str] = []
    line = ""
    words = text.split(" ")
    while words and len(lines) <= lines_max:
        word = words.pop(0)
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
        elif line:
            lines.append(line)
            line, words = "", [word, *words]
        else:
            head = _head(word, width)
            lines.append(head)
            words = [word[len(head) :], *words]
    lines += [line] if line or not lines else []
    return lines if len(lines) <= lines_max else [*lines[: lines_max - 1], fit(f"{lines[lines_max - 1]} …", width)]


def _head(word: str, width: int) -> str:
    """The part of a word that fits, at least one character."""
    used = 0
    for n, c in enumerate(word):
        used += width_of(c)
        if used > width and n:
            return word[:n]
    return word


def table(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], *, width: int | None, color: bool = False
) -> Iterator[str]:
    """Lines of a table: aligned, free text wrapped to `width`, or tab-separated without one."""
    if width is None:
        yield "\t".join(clean(column.title) for column in columns)
        for row in rows:
            yield "\t".join(column.text(row) for column in columns)
        return
    source = iter(rows)
    first = list(islice(source, MEASURED_ROWS))
    if first and len(first) < MEASURED_ROWS:  # all rows are known: leave out empty columns
        columns = [c for c in columns if any(c.text(row) for row in first)] or columns
    counted = [c for c in columns if c.show is None]  # formatted values are text, which is aligned to the left
    numeric = {c.field for c in counted if first and all(_is_number(row.get(c.field)) for row in first)}
    beside, below = _layout([[c.text(row) for row in first] for c in columns], columns, width)

    def lines(texts: Iterable[str]) -> Iterator[str]:
        cells = [
            [pad(line, w, right=columns[n].field in numeric) for line in _cell(text, columns[n], w)]
            for (n, w), text in zip(beside, texts, strict=True)
        ]
        for parts in zip_longest(*cells):
            padded = (part if part is not None else " " * w for part, (_, w) in zip(parts, beside, strict=True))
            yield GAP.join(padded).rstrip()

    yield from (styled(line, "bold", color=color) for line in lines(clean(columns[n].title) for n, _ in beside))
    for row in chain(first, source):
        texts = [columns[n].text(row) for n, _ in beside]
        remark = not any(texts)  # a line without cells: a day, or a gap in a timeline
        yield from () if remark else lines(texts)
        for column in (columns[n] for n in below):
            if text := column.text(row):
                labelled = text if remark else f"{clean(column.title)}: {text}"
                yield from (BELOW + line for line in _cell(labelled, column, max(width - len(BELOW), FREE_MIN)))


def _cell(text: str, column: Column, width: int) -> list[str]:
    return wrapped(text, width) if column.free else [text]


def pairs(items: Iterable[tuple[str, object]], *, color: bool = False, width: int | None = None) -> Iterator[str]:
    """Lines of `label  value`. A value that does not fit wraps at its spaces."""
    listed = [(clean(label), clean(str(value))) for label, value in items]
    margin = max((width_of(label) for label, _ in listed), default=0)
    for label, value in listed:
        fits = width is None or " " not in value
        first, *more = [value] if fits else wrapped(value, max((width or 0) - margin - len(GAP), FREE_MIN), LINES_MAX)
        yield f"{styled(pad(label, margin), 'dim', color=color)}{GAP}{first}".rstrip()
        yield from (f"{'':{margin}}{GAP}{line}" for line in more)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _layout(
    cells: Sequence[Sequence[str]], columns: Sequence[Column], total: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """The columns that are printed side by side, each with its width, and those that are printed below the row.

    `cells` are the texts of each column. The last free column goes below first, then the last of the others.
    """
    texts = [[clean(column.title), *found] for column, found in zip(columns, cells, strict=True)]
    natural = [max(map(width_of, found)) for found in texts]
    least = [_least(found) if c.free else n for found, c, n in zip(texts, columns, natural, strict=True)]
    beside, below = list(range(len(columns))), list[int]()
    while len(beside) > 1 and (over := sum(least[n] for n in beside) + len(GAP) * (len(beside) - 1) - total) > 0:
        free = [n for n in beside if columns[n].free]
        if len(free) == 1 and least[free[0]] - over >= FREE_MIN:  # break long words of the last one, to keep it
            least[free[0]] -= over
            break
        gone = (free or beside)[-1]
        beside.remove(gone)
        below.insert(0, gone)
    widths = {n: natural[n] if not columns[n].free else min(natural[n], total) for n in beside}
    excess = sum(widths.values()) + len(GAP) * (len(beside) - 1) - total
    for _ in range(max(excess, 0)):
        widest = max(beside, key=lambda n: widths[n] - least[n])
        widths[widest] -= widths[widest] > least[widest]
    return [(n, widths[n]) for n in beside], sorted(below)


def _least(texts: Iterable[str]) -> int:
    """The width that free text needs: its longest word, within limits."""
    longest = max((width_of(word) for text in texts for word in text.split(" ")), default=0)
    widest = max(map(width_of, texts), default=0)
    return min(max(longest, FREE_MIN), WORD_MAX, widest)
