"""`standfast sql`: run a read-only query."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Any

from standfast.cli.frame import argument, command, option
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.cli.values import FIELD, iso_time
from standfast.errors import InvalidInput
from standfast.models import DURATIONS

QUERY_MAX_CHARACTERS = 1_000_000

# Refused here with a clear message; the engine would refuse them too.
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
@option(
    "--param",
    "params",
    multiple=True,
    type=FIELD,
    help="Set :NAME in the query to this value; may be given several times.",
)
@option("--times", is_flag=True, help="Print columns that end in _us as times.")
def sql(out: Out, query: tuple[str, ...], params: tuple[tuple[str, Any], ...], times: bool) -> None:
    """Run one read-only QUERY and print all rows; - reads it from stdin.

    With --json and --jsonl a row is an object by column name. Writes are refused: use the commands.
    """
    text = checked(_text(query))
    with opened(create=False) as sf, ExitStack() as stack:
        rows = sf.rows(text, _params(text, dict(params)) or None)
        stack.callback(rows.close)  # type: ignore[attr-defined]  # close the query if the reader of the output exits
        first = next(rows, None)
        everything: Iterator[dict[str, Any]] = chain([first], rows) if first is not None else iter(())
        columns = [Column(name, wraps=True) for name in first or ()]
        out.rows(map(_timed, everything) if times else everything, columns, empty="no rows")


def _params(text: str, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the query. Raises InvalidInput if one is missing or not in the query."""
    outside_quotes = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|::", " ", text)
    wanted = set(re.findall(r"(?<![:\w]):([A-Za-z_]\w*)", outside_quotes))
    if missing := sorted(wanted - given.keys()):
        raise InvalidInput(f"the query has the parameter :{missing[0]}", f"--param {missing[0]}=VALUE")
    if unknown := sorted(given.keys() - wanted):
        raise InvalidInput(f"the query has no parameter :{unknown[0]}", "write it as :NAME in the query")
    return given


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: iso_time(value) or value if _is_time(name) else value for name, value in row.items()}


def _is_time(name: str) -> bool:
    return name.endswith("_us") and name not in DURATIONS


def _text(query: tuple[str, ...]) -> str:
    if query == ("-",) or (not query and not sys.stdin.isatty()):
        return sys.stdin.read(QUERY_MAX_CHARACTERS + 1)
    return " ".join(query)


def checked(text: str) -> str:
    """The query. Raises InvalidInput if it is empty, too long, or begins with a word that writes."""
    if len(text) > QUERY_MAX_CHARACTERS:
        raise InvalidInput(f"the query is longer than {QUERY_MAX_CHARACTERS} characters")
    leading = re.match(r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", text, re.DOTALL)
    word = leading.group(1).upper() if leading else ""
    if not text.strip():
        raise InvalidInput("there is no query", 'standfast sql "SELECT * FROM event"')
    if re.fullmatch(WRITING, word):
        raise InvalidInput(f"{word} is refused: sql only reads", "the commands make changes: standfast help all")
    return text
