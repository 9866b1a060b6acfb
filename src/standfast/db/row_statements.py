"""Statements on one row of any table, generated from the table catalogue: for `undo` and bundles."""

from __future__ import annotations

from functools import cache

from standfast.db.sql import Statement, statement
from standfast.db.tables import tables

Names = tuple[str, ...]


@cache
def _columns(table: str) -> Names:
    return next(one.columns for one in tables() if one.name == table)


@cache
def get(table: str, key: Names) -> Statement:
    """The whole row, locked until the transaction ends."""
    text = f"SELECT {', '.join(_columns(table))} FROM {table} WHERE {_where(key)} {{for_update}}"
    return statement(text, name=f"get_{table}")


@cache
def of_session(table: str, names: Names, by: str) -> Statement:
    """Select these columns of one session's rows; `by` is the column with the id of the session."""
    return statement(f"SELECT {', '.join(names)} FROM {table} WHERE {by} = :session", name=f"of_session_{table}")


@cache
def insert(table: str, names: Names) -> Statement:
    values = ", ".join(f":{name}" for name in names)
    return statement(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})", name=f"insert_{table}")


@cache
def update(table: str, names: Names, key: Names) -> Statement:
    """Update the columns `names` of one row. The parameters `key_…` identify the row."""
    sets = ", ".join(f"{name} = :{name}" for name in names)
    where = " AND ".join(f"{name} = :key_{name}" for name in key)
    return statement(f"UPDATE {table} SET {sets} WHERE {where}", name=f"update_{table}")


@cache
def delete(table: str, key: Names) -> Statement:
    return statement(f"DELETE FROM {table} WHERE {_where(key)}", name=f"delete_{table}")


@cache
def next_seq(table: str) -> Statement:
    """A number that no row has.

    Only SQLite may assign a number twice, and there only one transaction writes at a time.
    """
    return statement(f"SELECT COALESCE(max(seq), 0) + 1 AS seq FROM {table}", name=f"next_{table}")


def _where(key: Names) -> str:
    return " AND ".join(f"{name} = :{name}" for name in key)
