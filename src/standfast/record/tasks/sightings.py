"""Sightings: a thousand reports of one problem are one task with a count of 1,000.

    never seen, or closed and cooled down   the next episode is opened          new, returned
    open, snoozed or accepted               the episode is counted              again
    closed, still cooling down              the closed episode is counted       cooling

A sweep reports all problems that a source sees. It counts them and closes tasks that were absent for long enough, in
one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from standfast import crash, serial
from standfast.core import journal, keys, leases
from standfast.core.checks import NAME_MAX, PRIORITY_DEFAULT, bounded_us
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput
from standfast.ids import new_id
from standfast.record.sessions import queries as sessions
from standfast.record.tasks import changes, graph
from standfast.record.tasks.fingerprint import fingerprint as fingerprint_of
from standfast.record.tasks.models import (
    Swept,
    Task,
    checked_name,
    checked_priority,
    checked_text,
    checked_title,
    joined_labels,
    task,
)

SQL = load(__name__)

KIND = "task"
SEEN_MAX = 2_000
"""One sweep may report at most this many problems."""
CLOSED_MAX = 1_000
"""One sweep closes at most this many tasks. The next sweep closes the rest."""
ABSENT_DEFAULT = 3

_REPORTABLE = frozenset(["title", "body", "kind", "fingerprint", "priority", "labels", "branch", "assignee", "parent"])


class Report(NamedTuple):
    """One report, checked."""

    title: str
    body: str | None
    kind: str
    source: str
    fingerprint: str
    priority: int
    labels: str
    branch: str | None
    assignee: str | None
    parent: str | None
    cool_down_us: int | None
    due_us: int | None = None


def report(
    title: str,
    *,
    source: str,
    body: str | None = None,
    kind: str = KIND,
    fingerprint: str | None = None,
    priority: int = PRIORITY_DEFAULT,
    labels: Iterable[str] = (),
    branch: str | None = None,
    assignee: str | None = None,
    parent: str | None = None,
    cool_down_us: int | None = None,
    due_us: int | None = None,
) -> Report:
    title = checked_title(title)
    kind = keys.checked(kind, "a task's kind", limit=NAME_MAX)
    source = keys.checked(source, "a task's source", limit=NAME_MAX) if source else ""
    return Report(
        title=title,
        body=None if body is None else checked_text(body, "a task's body"),
        kind=kind,
        source=source,
        fingerprint=fingerprint_of(title, kind=kind, source=source)
        if fingerprint is None
        else keys.checked(fingerprint, "a fingerprint"),
        priority=checked_priority(priority),
        labels=joined_labels(labels),
        branch=checked_name(branch, "a branch"),
        assignee=checked_name(assignee, "an assignee"),
        parent=parent,
        cool_down_us=checked_cool_down(cool_down_us),
        due_us=due_us,
    )


def checked_cool_down(cool_down_us: int | None) -> int | None:
    if cool_down_us is None:
        return None
    return bounded_us(cool_down_us, "a cool-down", least_us=0, hint="for example: --cool-down 30m")


def add(
    tx: Tx, seen: Report, *, needs: Iterable[changes.Which] = (), session: str | None = None, id: str | None = None
) -> Task:
    """Open a task or count the report. `needs` are written with a new episode only. `id` is for an imported task."""
    crash.point("task.before_add")
    session_id = None if session is None else sessions.named(tx, session)["id"]
    parent = None if seen.parent is None else changes.find(tx, seen.parent)
    counted = _counted(tx, seen, parent, session_id, id or new_id("tsk"))
    if counted.sighting not in ("new", "returned"):
        return counted
    for other in needs:
        graph.need(tx, counted, other)  # if it raises, the transaction is rolled back
    return counted


def _counted(tx: Tx, seen: Report, parent: Row | None, session_id: str | None, id: str) -> Task:
    keyspace = tx.caller.keyspace
    changes.lock_fingerprint(tx, keyspace, seen.fingerprint)
    wanted = seen._asdict() | {"id": id, "now_us": tx.now_us(), "session_id": session_id}
    wanted |= keyspace._asdict() | tx.caller.labelled()
    row = tx.maybe(SQL.add, parent_id=parent["id"] if parent is not None else None, **wanted)
    if row is None:
        row = tx.one(SQL.count_cooling, **wanted)
        return task(tx, row, _journal_change(tx, row, "task.seen", cooling=True), sighting="cooling")
    if row["id"] != wanted["id"]:
        return task(tx, row, _journal_change(tx, row, "task.seen"), sighting="again")
    opened = _journal_change(tx, row, "task.opened", episode=row["episode"])
    return task(tx, row, opened, sighting="new" if row["episode"] == 1 else "returned")


def _journal_change(tx: Tx, row: Row, type: str, **more: serial.Json) -> Receipt:
    # The event is `seen`: standfast recorded that the report was made. Whether the report is true is not known.
    return changes.journal_change(tx, row, type, data={"occurrences": row["occurrences"], **more})


# -- sweep ---------------------------------------------------------------------------------------------


def sweep(tx: Tx, source: str, reports: list[Report], *, absent_max: int | None) -> Swept:
    crash.point("task.before_sweep")
    whose: Row = {**tx.caller.keyspace._asdict(), **tx.caller.labelled()}
    n = tx.one(SQL.next_sweep, source=source, now_us=tx.now_us(), **whose)["n"]
    for name in sorted(one.fingerprint for one in reports):
        changes.lock_fingerprint(
            tx, tx.caller.keyspace, name
        )  # always in the same order, so that sweeps cannot deadlock
    opened: list[str] = []
    for one in reports:
        counted = add(tx, one)  # if it raises, the whole sweep is rolled back
        opened += [counted.id] if counted.sighting in ("new", "returned") else []
    closed = [] if absent_max is None else _close_absent(tx, source, n, absent_max)
    data = {"n": n, "seen": len(reports), "opened": len(opened), "closed": len(closed)}
    words = f"{source}: {len(reports)} seen, {len(opened)} opened, {len(closed)} closed"
    receipt = journal.append(tx, "task.swept", f"sweep:{source}", summary=words, data=data)
    return Swept(source, n, len(reports), tuple(opened), tuple(closed), receipt)


def reports(source: str, seen: Iterable[str | Mapping[str, Any]], cool_down_us: int | None) -> list[Report]:
    """The reports of a sweep, each problem once, in order."""
    source = keys.checked(source, "a source", limit=NAME_MAX)
    if isinstance(seen, str):
        raise InvalidInput("seen is a list of titles, not one text", "seen=[…]")
    found: dict[str, Report] = {}
    for one in seen:
        fields = {"title": one} if isinstance(one, str) else dict(one)
        if unknown := set(fields) - _REPORTABLE:
            raise InvalidInput(
                f"a sighting has no {serial.clean(str(min(unknown)), 40)!r}",
                f"one of: {', '.join(sorted(_REPORTABLE))}",
            )
        if "title" not in fields:
            raise InvalidInput("a sighting needs a title", '"title" says what was seen')
        made = report(source=source, cool_down_us=cool_down_us, **fields)
        found[made.fingerprint] = made
    if len(found) > SEEN_MAX:
        raise InvalidInput(f"{len(found):,} problems in one sweep, and the limit is {SEEN_MAX:,}", "split the source")
    return list(found.values())


def _close_absent(tx: Tx, source: str, n: int, absent_max: int) -> list[str]:
    asked: Row = {"source": source, "seen_before": n - absent_max, "limit": CLOSED_MAX, **tx.caller.keyspace._asdict()}
    reason = f"absent from {absent_max} sweep{'s' * (absent_max > 1)} of {source}"
    closed = []
    for found in tx.all(SQL.absent, **asked, **tx.lease_clock()):
        changes.lock_fingerprint(tx, tx.caller.keyspace, found["fingerprint"])
        row = tx.maybe(SQL.still_absent, id=found["id"], seen_before=n - absent_max)
        if row is not None and not leases.judge(tx, row).live:
            closed.append(changes.close(tx, row, reason, data={"sweep": n}).id)
    return closed
