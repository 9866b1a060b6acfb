"""The table catalogue: every table of a store with its role, columns, key and row hash.

Columns and keys are read from the text of the migrations; a role is a line in ROLES. Moves and copies of PostgreSQL
read rows by this list. A copy restores into either engine, because the list has only columns that both engines have. A
row is a JSON array in the order of the columns. Its hash is the SHA-256 of that line. The hash of a table is the sum of
its row hashes, so the order of the rows does not count.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from standfast.db.catalogue import parts, wanted
from standfast.db.migrations import MIGRATIONS, ddl
from standfast.db.migrations.migration import Migration
from standfast.errors import Corrupt

ROLES = {
    "record": """
        meta migration repository lease session node message step artifact artifact_chunk task task_need task_note sweep
        agent state stream consumer application mail mail_attempt mail_box loop run tool_call usage thread
        thread_checkpoint thread_value thread_write item item_vector knowledge""",
    "ledger": "event effect decision approval gate webhook_event dead_letter credit_entry budget hold removed digest",
    "checkpoint": "checkpoint snapshot search_entry search_mark",
    "interchange": "import_source import_batch import_thread copy",
}
"""The purpose of each table. docs/reference/tables.md explains the roles."""
NOT_CARRIED = frozenset(("artifact_chunk", "search_entry", "search_mark"))
"""The bytes of artifacts travel as files. The search index is rebuilt, because each engine has its own form."""
OWN_META = frozenset(("schema_version", "settled_seq", "cluster"))
"""Keys of `meta` that only a store on PostgreSQL has."""
_HASH_MODULUS = 1 << 256


class Table(NamedTuple):
    """One table of the catalogue."""

    name: str
    role: str
    columns: tuple[str, ...]
    """The columns that both engines have, in the order of the schema."""
    key: tuple[str, ...]
    """The primary key: the order in which rows are read."""
    carried: bool
    """True if a copy by rows contains the table's rows."""


class Sum:
    """Rows of one table, counted and hashed in any order."""

    __slots__ = ("_sha256", "_sum", "rows")

    def __init__(self) -> None:
        from hashlib import sha256  # OpenSSL's: four times as fast as CPython's own

        self.rows = self._sum = 0
        self._sha256 = sha256

    def add(self, line: bytes) -> None:
        self.rows += 1
        self._sum = (self._sum + int.from_bytes(self._sha256(line).digest())) % _HASH_MODULUS

    @property
    def hash(self) -> str:
        return f"{self._sum:064x}"


class Column(NamedTuple):
    """The definition of a column in the schema."""

    type: str
    """TEXT, BIGINT or BYTEA."""
    required: bool
    choices: tuple[str, ...]
    """The texts that the column accepts; empty if it accepts any text."""


def rules(table: str) -> dict[str, Column]:
    """The columns of a table with their constraints, for checking rows of a bundle."""
    found = {}
    for text in _definitions(MIGRATIONS)[table]:
        name, type, *_ = text.split()
        chosen = re.search(rf"{name} IN \(([^)]*)\)", text)
        choices = tuple(re.findall(r"'(\w+)'", chosen[1])) if chosen else ()
        found[name] = Column(type.upper(), "NOT NULL" in text or "PRIMARY KEY" in text, choices)
    return found


@cache
def tables(migrations: Sequence[Migration] = MIGRATIONS) -> tuple[Table, ...]:
    """Every table after these migrations. A table comes before the tables that refer to it."""
    made = _definitions(migrations)
    roles = {table: role for role, names in ROLES.items() for table in names.split()}
    on_sqlite = {one.name for one in wanted("sqlite", tuple(migrations)) if one.kind == "column"}
    found = []
    for name, definitions in made.items():
        columns = [text.split()[0] for text in definitions]
        both = tuple(column for column in columns if f"{name}.{column}" in on_sqlite)
        found.append(Table(name, roles.get(name, ""), both, _key(definitions), name not in NOT_CARRIED))
    return tuple(found)


@cache
def _definitions(migrations: Sequence[Migration]) -> dict[str, list[str]]:
    made: dict[str, list[str]] = {}
    for migration in migrations:
        plain = "\n".join(line.partition("--")[0] for line in ddl(migration, "postgres").splitlines())
        for text in plain.split(";"):
            words = text.split(None, 3)
            if words[:2] == ["CREATE", "TABLE"]:
                made[words[2]] = list(parts(text))
            elif words[:2] == ["ALTER", "TABLE"]:
                made[words[2]].append(text.partition("ADD COLUMN")[2])
    return made


def carried(schema: int) -> tuple[Table, ...]:
    """The tables of a copy by rows that has this schema."""
    return tuple(one for one in tables(up_to(schema)) if one.carried)


CARRIED_OVER = ("effect", "approval", "webhook_event", "dead_letter", "credit_entry", "budget", "hold")
"""Tables of the ledger whose rows a restore takes from the replaced store, because they record effects that have
happened."""


CONTINUES_ROWS = 1000
"""How many journal rows are compared. PostgreSQL commits sequence numbers out of order, but never this many numbers
apart."""


def lacking(old: str, seq: int) -> str:
    """A query that counts rows of a copy that the store in the schema `old` lacks: the last rows up to `seq`. If rows
    are missing, that store was put back in time or is another store, and its ledger is not newer than the copy."""
    return (
        f"SELECT count(*) FROM event AS own WHERE own.seq > {seq - CONTINUES_ROWS} AND own.seq <= {seq} AND NOT EXISTS"
        f" (SELECT 1 FROM {old}.event AS other WHERE other.seq = own.seq AND other.time_us = own.time_us"
        " AND other.type = own.type)"
    )


def carrying_over(schema: int, old: str, seq: int) -> Iterator[str]:
    """Statements that copy the ledger from the store in the schema `old`, with its journal rows after `seq`."""
    found = {one.name: (one.name, ", ".join(one.columns)) for one in carried(schema)}
    for name, columns in (found[table] for table in CARRIED_OVER if table in found):
        yield f"DELETE FROM {name}"
        yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {old}.{name}"
    name, columns = found["artifact"]
    missing = "id IN (SELECT artifact_id FROM effect) AND id NOT IN (SELECT id FROM artifact)"
    yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {old}.{name} WHERE {missing}"
    name, columns = found["event"]
    kinds = " OR ".join(
        f"type LIKE '{kind}.%'" for kind in ("effect", "approval", "webhook", "credit", "budget", "hold")
    )
    yield f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {old}.{name} WHERE seq > {seq} AND ({kinds})"


def up_to(schema: int) -> tuple[Migration, ...]:
    return tuple(migration for migration in MIGRATIONS if migration.version <= schema)


def _key(definitions: Iterable[str]) -> tuple[str, ...]:
    for text in definitions:
        if text.startswith("PRIMARY KEY"):
            return tuple(name.strip() for name in text.partition("(")[2].rstrip(")").split(","))
        if "PRIMARY KEY" in text:
            return (text.split()[0],)
    raise AssertionError("a table has a primary key")


# -- rows ---------------------------------------------------------------------------------------------


def line(row: Sequence[object]) -> bytes:
    """One row as JSON; bytes are `{"bytes": base64}`. Both engines give the same line for the same row."""
    return _encode(row).encode()


def plain(value: object) -> object:
    """A value of a column in JSON: bytes become `{"bytes": base64}`."""
    return _bytes(value) if isinstance(value, bytes | memoryview) else value


def _bytes(value: bytes | memoryview) -> dict[str, str]:
    return {"bytes": b64encode(value).decode()}


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_bytes).encode


def from_plain(value: Any) -> Any:
    """The opposite. Raises ValueError, KeyError or TypeError for any other value."""
    return b64decode(value["bytes"], validate=True) if isinstance(value, dict) else value


def header(table: Table) -> bytes:
    """The line before the rows of a table."""
    return json.dumps({"table": table.name, "columns": table.columns}).encode() + b"\n"


def by_table(lines: Iterable[bytes], schema: int) -> Iterator[tuple[Table, Iterator[list[Any]]]]:
    """The rows of a copy, table by table, in the order of the catalogue. Raises Corrupt for anything else."""
    waiting = iter(lines)
    first = next(waiting, b"")
    for table in carried(schema):
        if first.rstrip(b"\n") != header(table).rstrip(b"\n"):
            raise Corrupt(f"the rows of {table.name} are missing, or have other columns")
        after: list[bytes] = []

        def rows(table: Table = table, after: list[bytes] = after) -> Iterator[list[Any]]:
            for text in waiting:
                if text.startswith(b"{"):
                    after.append(text)
                    return
                yield values(text, table)

        own = rows()
        yield table, own
        for _ in own:  # a reader that stopped early must not shift the next table
            pass
        first = after[0] if after else b""
    if first:
        raise Corrupt("there are rows of an unknown table")


def values(line: bytes, table: Table) -> list[Any]:
    """The row of a line. Raises Corrupt if it is not a row of this table."""
    try:
        found = json.loads(line)
        row = [from_plain(value) for value in found]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"a row of {table.name} is not readable: {error}") from None
    if len(row) != len(table.columns):
        raise Corrupt(f"a row of {table.name} has {len(row)} values; the table has {len(table.columns)} columns")
    return row
