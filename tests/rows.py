"""Reads all rows of a store, table by table, so that a test can compare them before and after.

    before = snapshot(sf)
    …
    assert snapshot(sf)["task", ("tsk_…",)] == before["task", ("tsk_…",)]

`fixtures/constraints.txt` lists the tables and their keys; test_schema_constraints.py compares it with the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast.db.sql import statement

LIST = Path(__file__).parent / "fixtures" / "constraints.txt"
UNOWNED = frozenset({"meta", "migration", "search_entry", "search_mark"})
"""Tables about the store itself: no caller owns a row of them."""

Row = dict[str, Any]
Name = tuple[str, tuple[Any, ...]]
"""A row by its table and the values of its primary key."""


class Table(NamedTuple):
    not_null: tuple[str, ...]
    unique: tuple[tuple[tuple[str, ...], str], ...]
    """The columns, and the condition of a partial index; the primary key first."""
    checks: tuple[str, ...]
    foreign: tuple[tuple[str, str, str], ...]
    """The column, the table and the column it names; every one of them cascades."""


def _listed() -> dict[str, Table]:
    tables: dict[str, dict[str, list[Any]]] = {}
    for line in LIST.read_text().splitlines():
        kind, _, rest = line.strip().partition(": ")
        if kind == "table":
            found = tables[rest] = {"not null": [], "unique": [], "check": [], "foreign": []}
        elif kind == "not null":
            found[kind] += rest.split()
        elif kind == "unique":
            columns, _, where = rest.partition(" WHERE ")
            found[kind].append((tuple(columns.split(", ")), where))
        elif kind == "check":
            found[kind].append(rest)
        elif kind == "foreign":
            found[kind].append(tuple(rest.split()))
    return {name: Table(*(tuple(parts) for parts in found.values())) for name, found in tables.items()}


TABLES = _listed()


OWNED = [name for name in TABLES if name not in UNOWNED]
_EACH = {name: statement(f"SELECT * FROM {name}", name=f"every_{name}") for name in OWNED}
IN_ONE_TRIP = " UNION ALL ".join(
    f"SELECT '{name}' AS name, CAST(to_jsonb({name}) AS text) AS row FROM {name}" for name in OWNED
)
_IN_ONE_TRIP = statement(IN_ONE_TRIP, name="every")


def snapshot(sf: standfast.Standfast) -> dict[Name, Row]:
    """Every row that belongs to a caller, with all columns."""
    if sf.engine.name == "postgres":
        rows = [(found["name"], json.loads(found["row"])) for found in sf.read(lambda tx: tx.all(_IN_ONE_TRIP))]
    else:
        rows = sf.read(lambda tx: [(name, row) for name in OWNED for row in tx.all(_EACH[name])])
    return by_name(rows)


def by_name(rows: Iterable[tuple[str, Row]]) -> dict[Name, Row]:
    return {(name, tuple(row[column] for column in TABLES[name].unique[0][0])): row for name, row in rows}


def differing(before: Row, after: Row | None) -> str:
    """The changed columns, for a failure message."""
    if after is None:
        return "removed"
    return ", ".join(f"{name}: {before[name]!r} → {after[name]!r}" for name in before if before[name] != after[name])
