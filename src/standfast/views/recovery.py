"""Recovery: what a crash left behind, and the command that settles each piece.

There is no recovery mode. Opening a session again resumes it; this report only lists what needs
a person, or will be picked up by whoever comes next. It reads and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from standfast.clock import MINUTE_US
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query
from standfast.footings import leases
from standfast.ids import short

SQL = load(__name__)

EACH_MAX = 100
UNREAD_US = 15 * MINUTE_US
"""Mail that nobody has taken for so long is told."""

LATE_US = MINUTE_US
"""A slot is absent when it is this late."""
RUN_LATE_US = 5 * MINUTE_US
"""A queued run that nobody has begun for so long is told."""

DAEMON = "daemon"
"""The lock that whoever fires loops holds."""


class Item(NamedTuple):
    """One thing to settle."""

    kind: str
    """effect_in_doubt · approval_waiting · dead_letter · session_crashed · session_waiting · decision_open ·
    mail_waiting · loop_absent · loop_stopped · run_waiting · lock_expired"""
    id: str
    what: str
    since_us: int
    who: str
    scope: str
    session_id: str | None
    command: str


class Report(NamedTuple):
    """Everything that is not settled, the most urgent first."""

    items: list[Item]
    truncated: bool
    """More than the report lists of at least one kind."""

    def __bool__(self) -> bool:
        return bool(self.items)

    def of(self, kind: str) -> list[Item]:
        return [item for item in self.items if item.kind == kind]


class Recovery(Room):
    __slots__ = ()

    @query
    def report(self, tx: Tx, *, everywhere: bool = False) -> Report:
        """What is in doubt, waiting, crashed, open or expired now."""
        scope = {"scope": self.scope, "everywhere": int(everywhere), "limit": EACH_MAX + 1}
        found = {
            "effects": tx.all(SQL.dispatched_effects, **scope),
            "approvals": tx.all(SQL.waiting_approvals, now_us=tx.now_us(), **scope),
            "dead": tx.all(SQL.dead_letters, **scope),
            "sessions": tx.all(SQL.active_sessions, **scope),
            "waiting": tx.all(SQL.waiting_sessions, **scope),
            "decisions": tx.all(SQL.open_decisions, **scope),
            "boxes": tx.all(SQL.waiting_boxes, **scope),
            "late": tx.all(SQL.late_loops, late_us=tx.now_us() - LATE_US, **scope),
            "stopped": tx.all(SQL.stopped_loops, **scope),
            "runs": tx.all(SQL.waiting_runs, late_us=tx.now_us() - RUN_LATE_US, **scope),
            "locks": tx.all(SQL.held_locks, **scope),
        }
        items = [
            *_in_doubt(tx, found["effects"]),
            *_approvals(found["approvals"]),
            *_dead(found["dead"]),
            *_crashed(tx, found["sessions"]),
            *_waiting(found["waiting"]),
            *_decisions(found["decisions"]),
            *_boxes(tx, found["boxes"]),
            *(_absent(tx, self.scope, everywhere) if found["late"] else ()),
            *_stopped(found["stopped"]),
            *_waiting_runs(found["runs"]),
            *_locks(tx, found["locks"]),
        ]
        return Report(items, any(len(rows) > EACH_MAX for rows in found.values()))


def _in_doubt(tx: Tx, rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        standing = leases.stand(tx, row)
        if row["gave_up_us"] is None and standing.live:
            continue
        why = f": {row['error']}" if row["error"] else ""
        yield Item(
            "effect_in_doubt",
            row["id"],
            f"{row['tool']} was sent and nobody knows whether it arrived{why}",
            row["dispatched_us"] or row["updated_us"],
            row["actor"] or leases.who(row["holder"]),
            row["scope"],
            row["session_id"],
            f"standfast effect resolve {short(row['id'])} --applied --evidence TEXT    (or --not-applied)",
        )


def _approvals(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        why = f": {row['why']}" if row["why"] else ""
        command = f"standfast approve {short(row['id'])}"
        what = f"{row['tool']} waits for a yes{why}"
        yield Item(
            "approval_waiting",
            row["id"],
            what,
            row["requested_us"],
            row["requester"],
            row["scope"],
            row["session_id"],
            command,
        )


def _dead(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        times = f"{row['attempts']} attempt{'s' * (row['attempts'] != 1)}"
        yield Item(
            "dead_letter",
            row["id"],
            f"{row['kind']} {short(row['subject'])} was given up after {times}: {row['reason']}",
            row["created_us"],
            row["kind"],
            row["scope"],
            None,
            f"standfast {row['kind']} retry {short(row['subject'])}",
        )


def _crashed(tx: Tx, rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        standing = leases.stand(tx, row)
        if standing.live or standing.free:
            continue
        ended = "its process is gone" if standing.gone else "its lease ran out"
        yield _session(row, "session_crashed", f"session {row['key']!r} crashed: {ended}")


def _waiting(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        why = f": {row['reason']}" if row["reason"] else ""
        yield _session(row, "session_waiting", f"session {row['key']!r} waits{why}")


def _session(row: Row, kind: str, what: str) -> Item:
    command = f"standfast session show {_quoted(row['key'])}"
    who = row["agent"] or row["actor"] or leases.who(row["holder"])
    return Item(kind, row["id"], what, row["updated_us"], who, row["scope"], row["id"], command)


def _decisions(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        what = f"decided and not finished: {row['what']}"
        command = f"standfast decision done {short(row['id'])} --outcome TEXT"
        yield Item(
            "decision_open", row["id"], what, row["created_us"], row["actor"], row["scope"], row["session_id"], command
        )


def _boxes(tx: Tx, rows: list[Row]) -> Iterator[Item]:
    """Mail for whoever asks, and mail that nobody seems to read. What just came is on its way."""
    if not rows:
        return
    from standfast.record.mail.nouns import BOUND_DEFAULT

    for row in rows[:EACH_MAX]:
        full = row["waiting"] >= (row["bound"] or BOUND_DEFAULT)
        yours = row["box"] == tx.caller.actor
        old = row["oldest_us"] <= tx.now_us() - UNREAD_US
        if not (full or yours or old or row["seen_us"] is None):
            continue
        words = f"{row['waiting']} mail{'s' * (row['waiting'] != 1)} for {row['box']}"
        words += ", which is full" if full else ""
        if not yours:
            words += "; nobody has ever looked into that box" if row["seen_us"] is None else ""
        command = f"standfast mail list {_quoted(row['box'])}"
        yield Item(
            "mail_waiting", f"box:{row['box']}", words, row["oldest_us"], row["box"], row["scope"], None, command
        )


def _locks(tx: Tx, rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        if leases.stand(tx, row).live:
            continue
        what = f"the lock {row['name']!r} was never given back"
        who = row["actor"] or leases.who(row["holder"])
        command = f"standfast lock {_quoted(row['name'])} --release"
        if (row["scope"], row["name"]) == ("", DAEMON):
            what, command = "the daemon was killed: no loop is fired until one runs again", "standfast daemon start"
        yield Item("lock_expired", f"lock:{row['name']}", what, row["acquired_us"], who, row["scope"], None, command)


def _absent(tx: Tx, scope: str, everywhere: bool) -> Iterator[Item]:
    """Worked out from the schedules: it is known also while nothing runs that could have noticed."""
    from standfast.record.loops import firing, schedule

    for late in firing.absent(tx, scope, everywhere=everywhere, limit=EACH_MAX):
        since = schedule.shown(late.slot_us, late.zone)
        span = f"{late.slots} slots are absent" if late.slots > 1 else "a slot is absent"
        what = f"the loop {late.name!r} has stopped firing: {span} since {since}"
        yield Item("loop_absent", late.loop_id, what, late.slot_us, "", late.scope, None, "standfast daemon status")


def _stopped(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        what = f"the loop {row['name']!r} paused itself: {row['reason']}"
        command = f"standfast loop runs {_quoted(row['name'])}"
        yield Item("loop_stopped", row["id"], what, row["updated_us"], row["actor"], row["scope"], None, command)


def _waiting_runs(rows: list[Row]) -> Iterator[Item]:
    for row in rows[:EACH_MAX]:
        what = f"a run of {row['name']!r} is queued and nobody performs it"
        yield Item("run_waiting", row["id"], what, row["ready_us"], "", row["scope"], None, "standfast daemon status")


def _quoted(text: str) -> str:
    import shlex  # only where something is to be said

    return shlex.quote(text)
