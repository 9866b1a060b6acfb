"""The tasks that a task waits for: the tasks it needs and, for a goal, the tasks below it.

A task with tasks below it is a goal. It is ready when they are closed or accepted, and each read counts its progress
from them. Both relations form one graph. A change that would make a cycle is refused inside its transaction.
"""

from __future__ import annotations

from standfast import hints
from standfast.core import removed
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, InvalidInput
from standfast.ids import short
from standfast.record.tasks import changes
from standfast.record.tasks.models import Other, Progress, Task, task

SQL = load(__name__)

NEEDS_MAX = 100
DEPTH_MAX = 64
SHOWN_MAX = 100


def need(tx: Tx, which: changes.Which, on: changes.Which) -> Task:
    row, other = changes.find(tx, which), changes.find(tx, on)
    changes.lock_fingerprint(tx, changes.keyspace_of(row), "graph")
    refuse_circle(tx, row["id"], other)
    if tx.one(SQL.count_needs, id=row["id"])["count"] >= NEEDS_MAX:
        raise InvalidInput(f"{changes.named(row)} needs {NEEDS_MAX} others already", "make a goal of some of them")
    if tx.maybe(SQL.need, task_id=row["id"], needs_id=other["id"]) is None:
        return task(tx, row)
    told = changes.journal_change(tx, row, "task.needs", summary=other["title"], data={"needs": other["id"]})
    removed.keep(tx, "task_need", None, {"task_id": row["id"], "needs_id": other["id"]})
    return task(tx, row, told)


def unneed(tx: Tx, which: changes.Which, on: changes.Which) -> Task:
    row, other = changes.find(tx, which), changes.find(tx, on)
    if tx.maybe(SQL.unneed, task_id=row["id"], needs_id=other["id"]) is None:
        return task(tx, row)
    told = changes.journal_change(tx, row, "task.needs_no_more", summary=other["title"], data={"needs": other["id"]})
    removed.keep(tx, "task_need", {"task_id": row["id"], "needs_id": other["id"]}, None)
    return task(tx, row, told)


def refuse_circle(tx: Tx, waiting: str, on: Row) -> None:
    """Raises Conflict if `on` already waits for the task `waiting`. The caller holds the lock of the graph."""
    if waiting != on["id"] and tx.maybe(SQL.waits_for, id=waiting, other=on["id"]) is None:
        return
    raise Conflict(
        f"{changes.named(on)} waits for {short(waiting)} already: each would wait for the other",
        f"see its needs: {hints.command('task', 'show', short(on['id']))}",
        code="circle",
    )


def needs(tx: Tx, id: str) -> tuple[Other, ...]:
    return _others(tx.all(SQL.needs, id=id, limit=SHOWN_MAX))


def needed_by(tx: Tx, id: str) -> tuple[Other, ...]:
    return _others(tx.all(SQL.needed_by, id=id, limit=SHOWN_MAX))


def children(tx: Tx, id: str) -> tuple[Other, ...]:
    return _others(tx.all(SQL.children, id=id, limit=SHOWN_MAX))


def progress(tx: Tx, id: str) -> Progress:
    return Progress(**tx.one(SQL.progress, id=id, depth_max=DEPTH_MAX))


def _others(rows: list[Row]) -> tuple[Other, ...]:
    return tuple(Other(**row) for row in rows)
