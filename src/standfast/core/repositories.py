"""The repository of a label, and whether a key belongs to it.

A label is a git directory and an origin (config/scope.py). Table `repository` has an id for every label that was used.
A new label gets the id of a label with which it shares a part. So worktrees, clones, a moved directory and a remote
that is added later stay one repository. If it shares parts with two ids, the older one counts. Rows are only added, so
the id of a label never changes.

Rows of task, sweep, decision, state and gate have that id in their column `repository`. Keys of sessions, effects and
loops are unique in the store; `refused` stops a program that uses one from another repository. All other keys never
depend on it.
"""

from __future__ import annotations

from standfast import serial
from standfast.clock import iso
from standfast.config.scope import Keyspace, Label
from standfast.db.contract import Caller, Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import Conflict, StorageError

SQL = load(__name__)

SEPARATE = "if both are meant, separate them: open(scope=…), standfast --scope NAME, or STANDFAST_SCOPE=NAME"


def known(store: Store, caller: Caller) -> str | None:
    """The id of the caller's repository, which is inserted if it is new. None outside any repository."""
    label = caller.label
    if label.outside:
        return None
    engine = store.engine
    row = engine.read(lambda tx: _exact(tx, label), caller)
    if row is not None:
        return str(row["id"])
    try:
        return engine.write(lambda tx: registered(tx, label), caller)
    except StorageError:  # the disk is full, or the store was locked for too long: reads still work
        return engine.read(lambda tx: id_of(tx, label), caller)


def join(tx: Tx) -> None:
    """Look up the caller's repository in a transaction that writes anyway, and insert it if it is new."""
    caller = tx.caller
    if not caller.label.outside:
        caller.repository = registered(tx, caller.label)


def _exact(tx: Tx, label: Label) -> Row | None:
    return tx.maybe(SQL.exact, git_dir=label.git_dir or "", origin=label.origin or "")


def registered(tx: Tx, label: Label) -> str:
    """The id of a label, which is inserted if it is new; empty outside any repository."""
    row = None if label.outside else _exact(tx, label)
    if label.outside or row is not None:
        return str(row["id"]) if row is not None else ""
    tx.run(SQL.alone)
    id = id_of(tx, label)
    tx.run(SQL.add, git_dir=label.git_dir or "", origin=label.origin or "", id=id, now_us=tx.now_us())
    return id


def id_of(tx: Tx, label: Label) -> str:
    """The id that a label has or would get; empty outside any repository."""
    if label.outside:
        return ""
    row = tx.maybe(SQL.nearest, git_dir=label.git_dir or "", origin=label.origin or "")
    return str(row["id"]) if row is not None else label.name


def keyspace(tx: Tx, scope: str, label: Label) -> Keyspace:
    """The keyspace of a session's repository, wherever the program runs."""
    caller = tx.caller
    if label == caller.label and scope == caller.scope:
        return caller.keyspace
    return Keyspace(scope, id_of(tx, label))


def labelled(row: Row) -> Label:
    return Label(row["git_dir"], row["origin"])


def same(tx: Tx, one: Label, other: Label) -> bool:
    """Whether a key of one label may be used from the other: they are one repository, or one is outside any.

    Labels that share no part are one repository if other labels that were used connect them.
    """
    if one.outside or other.outside or one.meets(other):
        return True
    asked = {"git_dir": one.git_dir or "", "origin": one.origin or ""}
    return tx.maybe(SQL.leads_to, to_git_dir=other.git_dir or "", to_origin=other.origin or "", **asked) is not None


def refuse(tx: Tx, row: Row, what: str) -> None:
    """Raises Conflict if another repository uses the key of this row."""
    refusal = refused(tx, row, what)
    if refusal is not None:
        raise refusal


def refused(tx: Tx, row: Row, what: str, label: Label | None = None) -> Conflict | None:
    """The refusal of a key that another repository uses; None if it may be used here.

    `row` has git_dir, origin, id and actor. `label` is given for a session of another repository than the program's.
    """
    here = tx.caller.label if label is None else label
    there = other(tx, row, here)
    if not there:
        return None
    return Conflict(
        f"{what} belongs to another repository: {there}. This is {serial.clean(here.shown, 300)}",
        f"use another key; {SEPARATE}",
        code="other_repository",
    )


def other(tx: Tx, row: Row, here: Label) -> str:
    """The repository of a row, and who wrote the row; empty if that is the repository `here`."""
    there = labelled(row)
    return "" if same(tx, there, here) else f"{serial.clean(there.shown, 300)}{_written(tx, row)}"


def _written(tx: Tx, row: Row) -> str:
    """The actor and the database account that wrote the row, and when. On a shared server that may be a colleague."""
    first = tx.maybe(SQL.first_event, subject=row["id"])
    names = [row["actor"], first["db_user"] if first is not None else None]
    said = " as ".join(serial.clean(name, 80) for name in names if name)
    when = f" at {iso(first['time_us'])}" if first is not None else ""
    return f", written{f' by {said}' if said else ''}{when}" if said or when else ""


def listed(tx: Tx, label: Label) -> bool:
    """Whether a list here shows rows with this label. `{here}` is the same condition in SQL."""
    wanted = tx.caller.repository
    return wanted is None or label.outside or id_of(tx, label) == wanted


def filtered(tx: Tx, *, everywhere: bool = False) -> Row:
    """Parameters for `{here:t}`: rows of this repository and of none; outside any, all rows."""
    return {"here": None if everywhere else tx.caller.repository}
