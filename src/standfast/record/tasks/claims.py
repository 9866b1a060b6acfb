"""Claims: one of those who ask gets the most urgent task that is ready, with a lease and a fence.

A process that is known to be dead holds nothing: what it held is ready at once. An actor's claim
ends by time. Whoever takes over gets the next fence, and the old holder is refused from then on.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import Conflict, IllegalTransition, InProgress, LeaseLost, StandfastError
from standfast.footings import leases
from standfast.ids import short
from standfast.record.tasks import changes
from standfast.record.tasks.nouns import Task, task

SQL = load(__name__)

leases.renewed("task")

HOLDERS_MAX = 1000
"""Processes that hold tasks, judged at each claim."""
PAGES_MAX = 20
SHOWN_MAX = 5


class Asked(NamedTuple):
    """Which tasks a worker wants, and how it will hold what it gets."""

    label: str
    kind: str
    source: str
    assignee: str
    for_us: int | None

    def filters(self, tx: Tx) -> Row:
        chosen = {name: getattr(self, name) for name in ("label", "kind", "source", "assignee")}
        return chosen | {"scope": tx.caller.home, "now_us": tx.now_us()} | tx.lease_clock()


def next_ready(tx: Tx, asked: Asked, limit: int) -> list[Task]:
    """The first `limit` that could be claimed now, in the order in which they would be."""
    found: list[Task] = []
    at: Row = {"priority": -1, "created_us": 0, "id": ""}
    for _ in range(PAGES_MAX):
        rows = tx.all(SQL.ready_page, limit=limit, **at, **asked.filters(tx))
        found += [one for row in rows if (one := task(tx, row)).standing != "live"]
        if len(rows) < limit or len(found) >= limit:
            break
        at = {name: rows[-1][name] for name in ("priority", "created_us", "id")}
    return found[:limit]


def claim_next(tx: Tx, asked: Asked) -> Task | None:
    """The most urgent one that is ready, or None."""
    crash.point("task.before_claim")
    _expire_the_dead(tx)
    row = tx.maybe(SQL.ready, **asked.filters(tx))
    return None if row is None else _taken(tx, row, asked)


def claim(tx: Tx, which: changes.Which, asked: Asked) -> Task | StandfastError:
    """This very one, if nobody alive has it."""
    crash.point("task.before_claim")
    row = changes.locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    refused = _not_to_be_claimed(tx, row)
    if refused is not None:
        return refused
    term = leases.term_of(tx, asked.for_us)
    if not leases.stand(tx, row).live:
        return _taken(tx, row, asked)
    if row["holder"] == term["holder"] and row["holder"].startswith("a:"):
        return _extended(tx, row, term)
    return _in_progress(tx, row, ours=row["holder"] == term["holder"])


def renew(tx: Tx, which: changes.Which, for_us: int | None) -> Task | StandfastError:
    """Hold on to it for another term. Not journalled."""
    row = changes.locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    refused = changes.refusal(tx, row, which) or _not_held(tx, row)
    if refused is not None:
        return refused
    return _extended(tx, row, leases.term_of(tx, for_us or row["lease_for_us"], row["holder"]))


def release(tx: Tx, which: changes.Which, *, force: bool) -> Task | StandfastError:
    """Give it back; with `force`, take it from whoever holds it."""
    row = changes.locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    refused = None if force else changes.refusal(tx, row, which)
    if refused is not None or row["holder"] is None:
        return refused or task(tx, row)
    crash.point("task.before_release")
    free = changes.let_go(tx, row, grow=changes.outsider(tx, row))
    data = {"fence": row["fence"], **changes.fenced_off(tx, row)}
    return task(tx, free, changes.told(tx, free, "task.released", data=data))


def at_work(store: Store, tx: Tx | None, claimed: Task) -> None:
    """A process keeps what it claimed for as long as it lives."""
    if claimed.holder != store.caller.holder or not claimed.holder.startswith("p:"):
        return
    start = leases.renewer(store).start
    if tx is None:
        start()
    else:
        tx.after = [*(tx.after or ()), start]


# -- small parts -------------------------------------------------------------------------------------


def _expire_the_dead(tx: Tx) -> None:
    for row in tx.all(SQL.processes, limit=HOLDERS_MAX):
        if leases.is_gone(row["holder"], tx.caller.clock):
            tx.run(SQL.expire, holder=row["holder"])


def _taken(tx: Tx, row: Row, asked: Asked) -> Task:
    standing = leases.stand(tx, row)
    term = leases.term_of(tx, asked.for_us)
    written = term | {"actor": tx.caller.actor}
    if row["state"] == "snoozed":
        tx.defer(SQL.wake, _there, id=row["id"])
    tx.defer(SQL.take, _there, id=row["id"], fence=row["fence"], now_us=tx.now_us(), **written)
    taken = row | written | {"state": "open", "snoozed_until_us": None}
    taken |= {"fence": row["fence"] + 1, "updated_us": tx.now_us()}
    if standing.free:
        told = changes.told(tx, taken, "task.claimed", data={"fence": taken["fence"], "by": term["holder"]})
    else:
        data = {"fence": taken["fence"], "by": term["holder"], "from": row["holder"], "was": standing.state}
        told = changes.told(tx, taken, "task.taken_over", data=data)
    return task(tx, taken, told)


def _extended(tx: Tx, row: Row, term: Row) -> Task:
    tx.defer(SQL.extend, _there, id=row["id"], fence=row["fence"], **term)
    return task(tx, row | term)


def _not_to_be_claimed(tx: Tx, row: Row) -> StandfastError | None:
    if row["state"] in ("closed", "accepted"):
        return IllegalTransition(
            f"{changes.named(row)} is {row['state']} and not to be claimed", f"standfast task reopen {short(row['id'])}"
        )
    blockers = tx.all(SQL.blockers, id=row["id"], limit=SHOWN_MAX)
    if not blockers:
        return None
    needed = ", ".join(f"{short(one['id'])} ({one['state']})" for one in blockers)
    return Conflict(f"{changes.named(row)} needs {needed} first", "standfast task next", code="blocked")


def _not_held(tx: Tx, row: Row) -> LeaseLost | None:
    if leases.acts_for(tx, row):
        return None
    return LeaseLost(
        f"{changes.named(row)} is not held by {tx.caller.actor}", f"standfast task claim {short(row['id'])}"
    )


def _in_progress(tx: Tx, row: Row, *, ours: bool) -> InProgress:
    refusal = leases.in_progress(tx, changes.named(row), row)
    if not ours:
        return InProgress(refusal.message, "standfast task next shows what is free")
    # A claim that ended in CommitUnknown may have been written: its caller holds a task it was never given.
    name = short(row["id"])
    hint = f'yours, also if the answer to a claim was lost: go on with tasks.get("{name}"), or tasks.release("{name}")'
    return InProgress(f"{refusal.message} (this very process)", hint)


def _there(row: Row) -> None:
    """The row was locked, so the compare-and-set has found it; `defer` asserts that."""
