"""The schema refuses invalid rows: each NOT NULL, UNIQUE, CHECK and foreign key is tested on both engines.

`fixtures/constraints.txt` lists the constraints of each table. For each line, the test inserts a row that breaks only
this constraint, and the insert must be refused. A second test compares the list with the live schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

import standfast
from standfast.db.contract import Tx
from standfast.db.sql import statement
from tests.rows import TABLES

Values = dict[str, Any]


BROKEN: dict[str, list[Values]] = {
    "held_tokens >= 0": [{"held_tokens": -1}],
    "held_microusd >= 0": [{"held_microusd": -1}],
    "held_calls >= 0": [{"held_calls": -1}],
    "held_duration_us >= 0": [{"held_duration_us": -1}],
    "(stream IS NULL) = (version IS NULL)": [{"stream": "s"}, {"version": 1}],
    "(ended_us IS NULL) = (state IN ('sent', 'leased', 'read'))": [{"ended_us": 1}, {"state": "done"}],
    "(holder IS NULL) = (lease_until_us IS NULL)": [{"holder": "a:x"}, {"lease_until_us": 1}],
    "state NOT IN ('leased', 'read') OR holder IS NOT NULL": [{"state": "leased"}, {"state": "read"}],
    "(ended_us IS NULL) = (outcome IS NULL)": [{"ended_us": 1}, {"outcome": "done"}],
    "state IN ('active', 'paused') OR next_slot_us IS NULL": [
        {"state": "finished", "next_slot_us": 1},
        {"state": "removed", "next_slot_us": 1},
    ],
    "(ended_us IS NULL) = (state IN ('queued', 'running'))": [{"ended_us": 1}, {"state": "done"}],
    "(holder IS NULL) = (state <> 'running')": [{"holder": "a:x"}, {"state": "running"}],
    "slots >= 1 AND (slots = 1) = (until_slot_us IS NULL)": [
        {"slots": 0, "until_slot_us": 1},
        {"slots": 2},
        {"until_slot_us": 1},
    ],
}
"""Rows that break a CHECK of more than one column, by its text: each one breaks no other CHECK."""

ORDINARY: dict[str, Values] = {"run": {"slots": 1}}
"""Values that a CHECK of more than one column asks for."""
ENGINES_OWN = {"search_entry": {"words"}, "event": {"xid"}}
"""Columns that one engine alone has or requires."""
NEEDED: dict[tuple[str, str], Values] = {("run", "running"): {"holder": "a:x"}}
"""What else a row of this table in this state must have."""


# -- the live schema -------------------------------------------------------------------------------------


class Live:
    """Plain SQL on one engine. `refuses` tries a list of statements and rolls them back."""

    def __init__(self, sf: standfast.Standfast, attempt: Callable[[list[tuple[str, Values]]], bool]) -> None:
        self._sf = sf
        self.refuses = attempt
        self.postgres = sf.engine.name == "postgres"
        self._n = count(1000)
        self._types: dict[str, dict[str, str]] = {}

    def types(self, table: str) -> dict[str, str]:
        """Every column that a plain INSERT may name, with its type; columns that the engine counts are left out."""
        if table not in self._types:
            self._types[table] = self._asked_types(table)
        return self._types[table]

    def _asked_types(self, table: str) -> dict[str, str]:
        if self.postgres:
            text = """SELECT column_name AS name, data_type AS type FROM information_schema.columns
                      WHERE table_schema = current_schema() AND table_name = :t AND is_identity = 'NO'"""
        else:
            text = """SELECT name, type FROM pragma_table_info(:t)
                      WHERE NOT (pk = 1 AND type = 'INTEGER'
                                 AND (SELECT max(pk) FROM pragma_table_info(:t)) = 1)"""
        return {row["name"]: row["type"].lower() for row in self._sf.rows(text, {"t": table})}

    def row(self, table: str, **given: Any) -> Values:
        """A row that the schema accepts: its required columns and those in `given`."""
        types, listed, n = self.types(table), TABLES[table], next(self._n)
        made: Values = {name: _value(types[name], n) for name in listed.not_null if name in types}
        for column, allowed in filter(None, map(_one_of, listed.checks)):
            if column in made:
                made[column] = allowed[0]
        for column, _, _ in listed.foreign:
            if column in made and column not in given:
                made[column] = None  # named by `with_parents`
        return made | ORDINARY.get(table, {}) | given

    def with_parents(self, table: str, row: Values) -> list[tuple[str, Values]]:
        """The statements that insert the rows that the row refers to, and then the row."""
        added: list[tuple[str, Values]] = []
        for column, parent, named in TABLES[table].foreign:
            if row.get(column) is None:
                number = next(self._n) + 10**6
                mother = self.row(parent, **{named: number if named == "seq" else f"id{number}"})
                added += self.with_parents(parent, mother)
                row[column] = mother[named]
        return [*added, insert(table, row)]


def insert(table: str, row: Values) -> tuple[str, Values]:
    if "seq" in row and TABLES[table].unique and (("seq",), "") in TABLES[table].unique:
        overriding = " OVERRIDING SYSTEM VALUE"
    else:
        overriding = ""
    names = ", ".join(row)
    return f"INSERT INTO {table} ({names}){overriding} VALUES ({', '.join(f':{name}' for name in row)})", row


def _value(type: str, n: int) -> Any:
    return n if "int" in type else b"x" if type in ("blob", "bytea") else f"x{n}"


def _one_of(check: str) -> tuple[str, list[str]] | None:
    found = re.fullmatch(r"(\w+) IN \((.*)\)", check)
    return (found[1], re.findall(r"'(\w+)'", found[2])) if found else None


@contextmanager
def _sqlite(sf: standfast.Standfast) -> Iterator[Live]:
    class Accepted(Exception):
        pass

    def refuses(statements: list[tuple[str, Values]]) -> bool:
        """The test uses standfast's own connection, because SQLite enforces foreign keys only if a connection
        enables them.
        """
        reached = []

        def body(tx: Tx) -> None:
            for n, (text, row) in enumerate(statements):
                reached.append(n)
                tx.run(statement(text.replace(" OVERRIDING SYSTEM VALUE", ""), name=f"plain_{n}"), **row)
            raise Accepted

        try:
            sf._store.write(body)
        except Accepted:
            return False
        except standfast.StorageError as error:
            if "constraint failed" not in str(error) or reached[-1] != len(statements) - 1:
                raise
        return True

    yield Live(sf, refuses)


@contextmanager
def _postgres(sf: standfast.Standfast, url: str) -> Iterator[Live]:
    import psycopg

    with psycopg.connect(url, options="-c search_path=standfast") as connection:

        def refuses(statements: list[tuple[str, Values]]) -> bool:
            *before, (text, row) = statements
            try:
                for first, values in before:
                    connection.execute(_percent(first), values)
                try:
                    connection.execute(_percent(text), row)
                except psycopg.errors.IntegrityError:
                    return True
                return False
            finally:
                connection.rollback()

        yield Live(sf, refuses)


def _percent(text: str) -> bytes:
    return re.sub(r":(\w+)", r"%(\1)s", text).encode()


@pytest.fixture
def live(sf: standfast.Standfast, engine_url: str) -> Iterator[Live]:
    with _postgres(sf, engine_url) if sf.engine.name == "postgres" else _sqlite(sf) as found:
        yield found


# -- each constraint, tried ------------------------------------------------------------------------------


def test_a_row_with_all_that_is_required_is_accepted(live: Live) -> None:
    """001-41: otherwise the refusals below would prove nothing."""
    refused = [table for table in TABLES if live.refuses(live.with_parents(table, live.row(table)))]
    assert refused == []


def test_every_required_column_is_required(live: Live) -> None:
    """001-41: without a NOT NULL the store would accept a row that no reader expects."""
    accepted = []
    for table, listed in TABLES.items():
        types = live.types(table)
        for column in listed.not_null:
            if column in types and not (live.postgres and column in ENGINES_OWN.get(table, ())):
                *before, _ = live.with_parents(table, row := live.row(table))
                if not live.refuses([*before, insert(table, row | {column: None})]):
                    accepted.append(f"{table}.{column}")
    assert accepted == []


def test_every_check_refuses_what_it_forbids(live: Live) -> None:
    """001-41: states that do not exist, and rows whose columns contradict each other."""
    accepted = []
    for table, listed in TABLES.items():
        for check in listed.checks:
            found = _one_of(check)
            for wrong in BROKEN[check] if found is None else [{found[0]: "no such"}]:
                *before, _ = live.with_parents(table, row := live.row(table))
                if not live.refuses([*before, insert(table, row | wrong)]):
                    accepted.append(f"{table}: {check}: {wrong}")
    assert accepted == []


def test_every_value_a_check_lists_is_accepted(live: Live) -> None:
    """001-41: a state that is missing in the schema would fail at its first use."""
    listed = [(table, one) for table in TABLES for one in map(_one_of, TABLES[table].checks) if one]
    refused = []
    for table, (column, allowed) in listed:
        for value in allowed:
            more: Values = {column: value}
            if (table, column) == ("mail", "state"):
                more |= {"ended_us": 1} if value in ("done", "dead", "expired") else {}
                more |= {"holder": "a:x", "lease_until_us": 1} if value in ("leased", "read") else {}
            elif (table, column) == ("run", "state"):
                more |= {"holder": "a:x"} if value == "running" else {} if value == "queued" else {"ended_us": 1}
            elif (table, column) == ("mail_attempt", "outcome"):
                more |= {"ended_us": 1}
            if live.refuses(live.with_parents(table, live.row(table, **more))):
                refused.append(f"{table}.{column} = {value}")
    assert refused == []


def test_every_unique_key_is_unique_and_by_all_of_its_columns(live: Live) -> None:
    """001-41: a second row with the same key is refused; one that differs in any column of the key is not."""
    wrong = []
    for table, listed in TABLES.items():
        types = live.types(table)
        for columns, where in listed.unique:
            state = re.fullmatch(r"state = '(\w+)'", where)
            fixed: Values = {"state": state[1], **NEEDED.get((table, state[1]), {})} if state else {}
            key: Values = {name: _value(types.get(name, "integer"), 999_999) for name in columns}
            key |= {name: value for name, value in live.row(table).items() if name in columns and value == key[name]}
            key |= fixed if set(fixed) & set(columns) else {}
            for column, allowed in filter(None, map(_one_of, listed.checks)):
                if column in key and column not in fixed:
                    key[column] = allowed[0]
            for column, _, _ in listed.foreign:
                if column in key:
                    key[column] = None
            first = live.row(table, **{**key, **fixed})
            statements = live.with_parents(table, first)
            same = {name: first[name] for name in columns}
            again = live.row(table, **{**same, **fixed})
            *parents, second = live.with_parents(table, again)
            if not live.refuses([*statements, *parents, second]):
                wrong.append(f"{table} {columns} {where}: the same key twice")
            for column in columns:
                if len(columns) > 1 and column not in {name for name, _, _ in listed.foreign}:
                    other = {**same, column: _value(types.get(column, "integer"), 888_888)}
                    *parents, second = live.with_parents(table, live.row(table, **{**other, **fixed}))
                    narrower = any(set(more) <= set(columns) - {column} for more, _ in listed.unique)
                    if not narrower and live.refuses([*statements, *parents, second]):
                        wrong.append(f"{table} {columns} {where}: another {column}")
    assert wrong == []


def test_every_foreign_key_needs_its_row_and_is_deleted_with_it(live: Live) -> None:
    """001-41: a note without a task is refused, and a removed task takes its notes with it."""
    wrong = []
    for table, listed in TABLES.items():
        for column, parent, named in listed.foreign:
            statements = live.with_parents(table, row := live.row(table))
            nowhere = 10**9 if named == "seq" else "nowhere"
            *before, _ = statements
            if not live.refuses([*before, insert(table, row | {column: nowhere})]):
                wrong.append(f"{table}.{column}: a row that is not there")
            # If the delete of the parent left the row behind, inserting the same row again would be refused.
            gone = (f"DELETE FROM {parent} WHERE {named} = :it", {"it": row[column]})
            left = insert(parent, {**_mother(statements, parent, row[column], named)})
            again = insert(table, row)
            if live.refuses([*statements, gone, left, again]):
                wrong.append(f"{table}.{column}: left behind by {parent}")
    assert wrong == []


def _mother(statements: list[tuple[str, Values]], parent: str, it: object, named: str) -> Values:
    return next(row for text, row in statements if text.startswith(f"INSERT INTO {parent} ") and row[named] == it)


# -- the list is complete ----------------------------------------------------------------------------------


def test_the_list_has_every_constraint_of_the_live_schema_and_no_other(live: Live, sf: standfast.Standfast) -> None:
    """001-41: a failure lists the constraints that fixtures/constraints.txt lacks, or the schema has lost."""
    found = _in_postgres(sf) if live.postgres else _in_sqlite(sf)
    assert sorted(found) == sorted(TABLES)
    for table, (not_null, unique, checks, foreign) in found.items():
        listed = TABLES[table]
        counted = {"seq"} if (("seq",), "") in listed.unique else set()  # only one engine reports it as NOT NULL
        counted |= ENGINES_OWN.get(table, set())
        assert not_null - counted == set(listed.not_null) - counted, table
        assert unique == {columns for columns, _ in listed.unique}, table
        assert checks == len(listed.checks), table
        assert foreign == set(listed.foreign), table


Found = dict[str, tuple[set[str], set[tuple[str, ...]], int, set[tuple[str, str, str]]]]


def _in_sqlite(sf: standfast.Standfast) -> Found:
    def ask(text: str, **named: object) -> list[dict[str, Any]]:
        return list(sf.rows(text, named))

    found: Found = {}
    for table in ask(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'search_words%'"
        " AND name NOT LIKE 'knowledge_words%'"
        " AND name NOT LIKE 'sqlite_%'"
    ):
        name = table["name"]
        columns = ask('SELECT name, "notnull" AS needed, pk FROM pragma_table_info(:t)', t=name)
        unique = {
            tuple(row["name"] for row in ask("SELECT name FROM pragma_index_info(:i) ORDER BY seqno", i=index["name"]))
            for index in ask('SELECT name FROM pragma_index_list(:t) WHERE "unique" = 1', t=name)
        }
        unique |= {tuple(row["name"] for row in sorted(columns, key=lambda row: row["pk"]) if row["pk"])} - {()}
        foreign = {
            (row["from"], row["table"], row["to"])
            for row in ask("SELECT * FROM pragma_foreign_key_list(:t) WHERE on_delete = 'CASCADE'", t=name)
        }
        needed = {row["name"] for row in columns if row["needed"]}
        found[name] = needed, unique, len(re.findall(r"\bCHECK\b", table["sql"])), foreign
    return found


def _in_postgres(sf: standfast.Standfast) -> Found:
    def ask(text: str) -> list[dict[str, Any]]:
        return list(sf.rows(text))

    found: Found = {}
    for row in ask("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"):
        found[row["tablename"]] = set(), set(), 0, set()
    for row in ask(
        """SELECT c.relname AS name, a.attname AS column FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
           WHERE a.attnotnull AND a.attnum > 0 AND c.relkind = 'r'
             AND c.relnamespace = current_schema()::regnamespace"""
    ):
        found[row["name"]][0].add(row["column"])
    for row in ask(
        """SELECT t.relname AS name, string_agg(a.attname, ',' ORDER BY k.n) AS columns
           FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
           CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
           JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
           WHERE i.indisunique AND t.relnamespace = current_schema()::regnamespace GROUP BY i.indexrelid, t.relname"""
    ):
        found[row["name"]][1].add(tuple(row["columns"].split(",")))
    for row in ask(
        """SELECT t.relname AS name, c.contype::text AS kind, c.confdeltype::text AS gone, f.relname AS parent,
                  (SELECT attname FROM pg_attribute WHERE attrelid = c.conrelid AND attnum = c.conkey[1]) AS child,
                  (SELECT attname FROM pg_attribute WHERE attrelid = c.confrelid AND attnum = c.confkey[1]) AS named
           FROM pg_constraint c JOIN pg_class t ON t.oid = c.conrelid LEFT JOIN pg_class f ON f.oid = c.confrelid
           WHERE t.relnamespace = current_schema()::regnamespace AND c.contype IN ('c', 'f')"""
    ):
        not_null, unique, checks, foreign = found[row["name"]]
        if row["kind"] == "c":
            found[row["name"]] = not_null, unique, checks + 1, foreign
        elif row["gone"] == "c":
            foreign.add((row["child"], row["parent"], row["named"]))
    return found
