"""`standfast sql`: any question the other commands do not answer. Reading only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

from standfast.cli.frame import argument, command
from standfast.cli.output import Out
from standfast.errors import InvalidInput

QUERY_MAX_CHARACTERS = 1_000_000

# Refused by name before the engine refuses them by what they do.
WRITING = (
    "ALTER|ANALYZE|ATTACH|BEGIN|CALL|COMMIT|COPY|CREATE|DELETE|DETACH|DO|DROP|GRANT|INSERT|LOCK|MERGE|REINDEX|"
    "RELEASE|REPLACE|REVOKE|ROLLBACK|SAVEPOINT|SET|TRUNCATE|UPDATE|UPSERT|VACUUM"
)


@command(
    "sql",
    examples=(
        'standfast sql "SELECT type, count(*) AS n FROM event GROUP BY type"',
        "echo 'SELECT * FROM event' | standfast sql - --jsonl",
    ),
)
@argument("query", nargs=-1)
def sql(out: Out, query: tuple[str, ...]) -> None:
    """Run one read-only QUERY and stream every row; `-` reads it from stdin.

    An object by column name with --json and --jsonl. Writes are refused: every change is a command.
    """
    from standfast.cli.store import opened

    text = checked(_text(query))
    with opened(create=False) as sf:
        rows = sf.rows(text)
        first = next(rows, None)
        everything: Iterator[dict[str, Any]] = chain([first], rows) if first is not None else iter(())
        out.rows(everything, list(first or ()), empty="no rows")


def _text(query: tuple[str, ...]) -> str:
    if query == ("-",) or (not query and not sys.stdin.isatty()):
        return sys.stdin.read(QUERY_MAX_CHARACTERS + 1)
    return " ".join(query)


def checked(text: str) -> str:
    """The query, refused where its first word already says that it writes."""
    import re

    if len(text) > QUERY_MAX_CHARACTERS:
        raise InvalidInput(f"the query is longer than {QUERY_MAX_CHARACTERS} characters")
    leading = re.match(r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", text, re.DOTALL)
    word = leading.group(1).upper() if leading else ""
    if not text.strip():
        raise InvalidInput("there is no query", 'standfast sql "SELECT * FROM event"')
    if re.fullmatch(WRITING, word):
        raise InvalidInput(f"{word} is refused: sql only reads", "every change is a command: standfast help all")
    return text
