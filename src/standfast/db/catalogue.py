"""The catalogue: every table, column, index and view of ours, read from the text of the migrations.

`doctor` compares it with the objects of a store. Guard triggers are on these tables and on no others. An object that is
not in the catalogue (Litestream's tables, an index that a user made) is never touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from standfast.db.migrations import MIGRATIONS, ddl
from standfast.db.migrations.migration import Migration

CHANGES = ("insert", "update", "delete")
_COMMENT = re.compile(r"--[^\n]*")
_STATEMENT = re.compile(
    r"CREATE\s+(?:(?P<virtual>VIRTUAL)\s+)?TABLE\s+(?P<table>\w+)"
    r"|CREATE\s+(?:(?P<unique>UNIQUE)\s+)?INDEX\s+(?P<index>\w+)\s+ON\s+(?P<of>\w+)"
    r"|CREATE\s+VIEW\s+(?P<view>\w+)"
    r"|CREATE\s+TRIGGER\s+(?P<trigger>\w+)\s.*?\sON\s+(?P<on>\w+)"
    r"|ALTER\s+TABLE\s+(?P<altered>\w+)\s+ADD\s+COLUMN\s+(?P<column>\w+)"
    r"|DROP\s+(?:INDEX|TABLE|VIEW|TRIGGER)\s+(?P<dropped>\w+)",
    re.IGNORECASE | re.DOTALL,
)
_CONSTRAINTS = {"PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT"}


class Item(NamedTuple):
    """One object of a schema."""

    kind: str
    """table, virtual table, column, index, unique index, view or trigger."""
    name: str
    """A column is named with its table: `task.title`."""
    table: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@cache
def wanted(dialect: str, migrations: Sequence[Migration] = MIGRATIONS) -> frozenset[Item]:
    """The tables, columns and indexes of a store after these migrations.

    Guard triggers are not included: see `guard`.
    """
    items: set[Item] = set()
    for migration in migrations:
        for statement in _COMMENT.sub("", ddl(migration, dialect)).split(";"):
            found = _STATEMENT.match(statement.strip())
            if found is None:
                continue
            if dropped := found["dropped"]:
                items = {one for one in items if dropped not in (one.name, one.table)}
            items |= set(_made(found, statement.strip()))
    return frozenset(items)


def _made(found: re.Match[str], statement: str) -> Iterator[Item]:
    if table := found["table"]:
        yield Item("virtual table" if found["virtual"] else "table", table)
        if not found["virtual"]:
            yield from (Item("column", f"{table}.{name}", table) for name in _columns(statement[found.end() :]))
    elif found["index"]:
        yield Item("unique index" if found["unique"] else "index", found["index"], found["of"])
    elif found["view"]:
        yield Item("view", found["view"])
    elif found["trigger"]:
        yield Item("trigger", found["trigger"], found["on"])
    elif found["altered"]:
        yield Item("column", f"{found['altered']}.{found['column']}", found["altered"])


def _columns(text: str) -> Iterator[str]:
    """The first words of the parts between the outermost brackets."""
    for part in parts(text):
        word = part.split()[0]
        if word.upper() not in _CONSTRAINTS:
            yield word


def parts(text: str) -> Iterator[str]:
    """The columns and constraints, which commas separate between the outermost brackets."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            if part.strip():
                yield part.strip()
            part = ""
            if depth == 0:
                return
        elif depth > 1 or (depth == 1 and (letter != "(" or part.strip())):
            part += letter


def tables(migrations: Sequence[Migration] = MIGRATIONS) -> list[str]:
    """Our tables that take guard triggers. A virtual table takes none."""
    return sorted(one.name for one in wanted("sqlite", tuple(migrations)) if one.kind == "table")


def guard(table: str, change: str) -> str:
    """The name of the trigger that refuses other programs' changes of this kind."""
    return f"guard_{table}_{change}"


def fingerprint(items: Iterable[Item]) -> str:
    """A short hash of a schema: two stores with the same one have the same objects."""
    import hashlib

    return hashlib.sha256("\n".join(sorted(map(repr, items))).encode()).hexdigest()[:12]


# -- contents of a store ---------------------------------------------------------------------------------

FOUND = {
    "sqlite": """
SELECT CASE type WHEN 'virtual' THEN 'virtual table' ELSE type END AS kind, name, '' AS of
FROM pragma_table_list
WHERE schema = 'main' AND type IN ('table', 'virtual', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
UNION ALL
SELECT 'column', listed.name || '.' || own.name, listed.name
FROM pragma_table_list AS listed, pragma_table_xinfo(listed.name) AS own
WHERE listed.schema = 'main' AND listed.type = 'table' AND listed.name NOT LIKE 'sqlite!_%' ESCAPE '!'
UNION ALL
SELECT CASE WHEN sql LIKE 'CREATE UNIQUE INDEX%' THEN 'unique index' ELSE type END, name, tbl_name FROM sqlite_schema
WHERE type IN ('index', 'trigger') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'
""",
    "postgres": """
SELECT CASE WHEN owner.indisunique THEN 'unique index' WHEN relkind = 'i' THEN 'index' WHEN relkind = 'v' THEN 'view'
       ELSE 'table' END AS kind,
       CAST(relname AS text) AS name, CAST(COALESCE(owner.name, '') AS text) AS of
FROM pg_catalog.pg_class
LEFT JOIN (
    SELECT indexrelid, CAST(CAST(indrelid AS regclass) AS text) AS name, indisvalid, indisunique,
           constraints.oid AS made_by
    FROM pg_catalog.pg_index
    LEFT JOIN pg_catalog.pg_constraint AS constraints ON constraints.conindid = indexrelid
) AS owner ON owner.indexrelid = pg_class.oid
WHERE relnamespace = CAST('standfast' AS regnamespace) AND relkind IN ('r', 'p', 'v', 'i')
  AND (relkind <> 'i' OR (owner.made_by IS NULL AND owner.indisvalid))
UNION ALL
SELECT 'column', CAST(relname || '.' || attname AS text), CAST(relname AS text)
FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class ON pg_class.oid = attrelid
WHERE relnamespace = CAST('standfast' AS regnamespace) AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'trigger', CAST(tgname AS text), CAST(relname AS text)
FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_class ON pg_class.oid = tgrelid
WHERE relnamespace = CAST('standfast' AS regnamespace) AND NOT tgisinternal
""",
}
"""The objects of a store, for each engine. Indexes that the engine created for a key are left out."""
TRIGGERS = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
"""The triggers of a SQLite file with their text."""
