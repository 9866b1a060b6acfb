"""Claims of tasks: which task is ready, and the rows that a claim writes. `core/claims.py` has the rest."""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, hints
from standfast.core import leases
from standfast.core.claims import found
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, IllegalTransition, InProgress
from standfast.ids import short
from standfast.record.tasks import changes
from standfast.record.tasks.changes import CLAIMS
from standfast.record.tasks.models import Task, task

SQL = load(__name__)

PAGES_MAX = 20
SHOWN_MAX = 5


class ClaimFilter(NamedTuple):
    """Which tasks a worker wants, and the duration of its lease."""

    label: str
    kind: str
    source: str
    assignee: str
    for_us: int | None

    def filters(self, tx: Tx) -> Row:
        chosen = {name: getattr(self, name) for name in ("label", "kind", "source", "assignee")}
        return chosen | {"now_us": tx.now_us(), **tx.caller.keyspace._asdict()} | tx.lease_clock()


def next_ready(tx: Tx, asked: ClaimFilter, limit: int) -> list[Task]:
    """The first `limit` tasks that can be claimed now, in the order of claims."""
    listed: list[Task] = []
    at: Row = {"priority": -1, "created_us": 0, "id": ""}
    for _ in range(PAGES_MAX):
        rows = tx.all(SQL.ready_page, limit=limit, **at, **asked.filters(tx))
        listed += [one for row in rows if (one := task(tx, row)).standing != "live"]
        if len(rows) < limit or len(listed) >= limit:
            break
        at = {name: rows[-1][name] for name in ("priority", "created_us", "id")}
    return listed[:limit]


def claim_next(tx: Tx, asked: ClaimFilter) -> Task | None:
    """Claim the most urgent task that is ready; None if there is none."""
    crash.point("task.before_claim")
    CLAIMS.expire_dead(tx)
    row = tx.maybe(SQL.ready, **asked.filters(tx))
    return None if row is None else _taken(tx, row, asked)


def claim(tx: Tx, which: changes.Which, asked: ClaimFilter) -> Task:
    """Claim this task. Raises InProgress if a live holder has it, Conflict, IllegalTransition."""
    crash.point("task.before_claim")
    row = changes.locked(tx, which)
    _refuse_unready(tx, row)
    term = leases.new_lease(tx, asked.for_us)
    if not leases.judge(tx, row).live:
        return _taken(tx, row, asked)
    if row["holder"] == term["holder"] and row["holder"].startswith("a:"):
        return task(tx, CLAIMS.extend(tx, row, term))
    raise _in_progress(tx, row, ours=row["holder"] == term["holder"])


def release(tx: Tx, which: changes.Which, *, force: bool) -> Task:
    """Clear the caller's claim; with `force`, the claim of any holder."""
    row = changes.locked(tx, which) if force else CLAIMS.own(tx, which)
    if row["holder"] is None:
        return task(tx, row)
    crash.point("task.before_release")
    free = changes.let_go(tx, row, grow=changes.outsider(tx, row))
    data = {"fence": row["fence"], **changes.fenced_off(tx, row)}
    return task(tx, free, changes.journal_change(tx, free, "task.released", data=data))


# -- private functions -------------------------------------------------------------------------------


def _taken(tx: Tx, row: Row, asked: ClaimFilter) -> Task:
    standing = leases.judge(tx, row)
    term = leases.new_lease(tx, asked.for_us)
    written = term | {"actor": tx.caller.actor}
    if row["state"] == "snoozed":
        tx.defer(SQL.wake, found, id=row["id"])
    tx.defer(SQL.take, found, id=row["id"], fence=row["fence"], now_us=tx.now_us(), **written)
    taken = row | written | {"state": "open", "snoozed_until_us": None}
    taken |= {"fence": row["fence"] + 1, "updated_us": tx.now_us()}
    if standing.free:
        told = changes.journal_change(tx, taken, "task.claimed", data={"fence": taken["fence"], "by": term["holder"]})
    else:
        data = {"fence": taken["fence"], "by": term["holder"], "from": row["holder"], "was": standing.state}
        told = changes.journal_change(tx, taken, "task.taken_over", data=data)
    return task(tx, taken, told)


def _refuse_unready(tx: Tx, row: Row) -> None:
    if row["state"] in ("closed", "accepted"):
        raise IllegalTransition(
            f"{changes.named(row)} is {row['state']} and cannot be claimed",
            hints.command("task", "reopen", short(row["id"])),
        )
    blockers = tx.all(SQL.blockers, id=row["id"], limit=SHOWN_MAX)
    if blockers:
        needed = ", ".join(f"{short(one['id'])} ({one['state']})" for one in blockers)
        raise Conflict(f"{changes.named(row)} needs {needed} first", "standfast task next", code="blocked")


def _in_progress(tx: Tx, row: Row, *, ours: bool) -> InProgress:
    refusal = leases.in_progress(tx, changes.named(row), row)
    if not ours:
        return InProgress(refusal.message, "see free tasks: standfast task next")
    # A claim that raised CommitUnknown may be stored: then its caller holds a task without knowing it.
    name = short(row["id"])
    hint = f'you hold it, also if the answer to a claim was lost: tasks.get("{name}"), or tasks.release("{name}")'
    return InProgress(f"{refusal.message} (this process)", hint)
