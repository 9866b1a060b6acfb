"""The timeline: the events around a time, in order, from the journal and from imported transcripts.

An import is one row of the journal, so the messages and tool calls that it brought are read from their own tables, by
the time when they happened. Each row says whether standfast saw the event (`seen`) or an agent reported it (`said`). A
long time without any row is shown as a gap. No payload is read: rows have summaries.

It covers the caller's repository, and outside one the whole store.
"""

from __future__ import annotations

from itertools import pairwise

from standfast import when
from standfast.clock import MINUTE_US, Duration, Time, duration_us
from standfast.config.scope import Label
from standfast.core import lookup, repositories
from standfast.core.checks import page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.errors import InvalidInput
from standfast.ids import is_id, like_suffix
from standfast.models import Model
from standfast.record.loops import fire, schedule
from standfast.serial import clean
from standfast.views import coverage
from standfast.when import Moment

SQL = load(__name__)

ROWS_MAX = 2000
GAP_MIN_US = 10 * MINUTE_US
STARTED = frozenset(("effect.dispatched", "effect.gave_up", "session.opened", "session.resumed", "session.taken_over"))
"""Events that are a problem only while their effect or session is unsettled."""
ANSWERS = frozenset(("granted", "denied", "resolved"))
"""Events of an actor that answers about the work of an agent. The timeline names that actor, not the agent."""


class Entry(Model):
    """One event."""

    seq: int
    """The event's sequence number in the journal. 0 for an imported message or tool call."""
    occurred_us: int
    time_us: int
    source: str
    agent: str
    """The agent of the session if the actor of the event has the session now; else, and for answers, that actor."""
    type: str
    subject: str
    state: str | None
    session_id: str | None
    session_key: str | None
    scope: str
    summary: str | None
    repository: str = ""
    """The repository and the scope it belongs to; empty outside any."""


class Gap(Model):
    """A time in which nothing was recorded."""

    from_us: int
    until_us: int
    open_start: bool = False
    """Nothing was ever recorded before it."""
    open_end: bool = False
    """Nothing has been recorded since."""


class Timeline(Model):
    """The events in a window of time, and the gaps in it."""

    at: Moment | None
    """The time in the middle of the window; None if the caller gave a start or an end."""
    from_us: int
    until_us: int
    entries: list[Entry]
    gaps: list[Gap]
    truncated: bool


class Timelines(Resource):
    """List events around a time."""

    __slots__ = ()

    @query
    def around(
        self,
        tx: Tx,
        at: Time = "now",
        *,
        window: Duration = "1h",
        start: Time | None = None,
        end: Time | None = None,
        session: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        type: str | None = None,
        problems: bool = False,
        everywhere: bool | None = None,
        limit: int = 500,
    ) -> Timeline:
        """The events in the `window` around `at`: of this repository, and outside one of the whole store.

        With `start`, from then until `end` (default: now). `problems`: only what failed, crashed, is in doubt or did
        not run. `subject` is an id, its last six characters or more, or a name such as `lock:deploy`. Raises
        InvalidInput for a time it cannot parse and for the end of more than one id, NotFound for an unknown session.
        """
        moment, start_us, until_us = _span(tx, at, window, start, end)
        whole = coverage.covers_all(tx.caller, everywhere)
        session_id = None if session is None else _session(tx, session, whole)
        limit = page_size(limit, ROWS_MAX)
        asked: Row = {
            "from_us": start_us,
            "until_us": until_us,
            "everywhere": int(whole),
            "scope": self.scope,
            **repositories.filtered(tx, everywhere=whole or session is not None),
            "session_id": session_id,
            "agent": agent,
            "subject": subject,
            "ending": _ending(subject),
            "limit": limit + 1,
            "problems": int(problems),
            "slots": int(session is None and agent is None),
        }
        rows = tx.all(SQL.between, type=type, type_prefix=f"{type or ''}.%", **asked)
        for imported, own in ((SQL.messages_between, "message.said"), (SQL.calls_between, "tool.called")):
            if not problems and (type is None or type in (own, own.partition(".")[0])):
                rows += tx.all(imported, **asked)
        if problems:
            rows = _still_problems(tx, rows)
        if asked["slots"]:
            rows += _not_run(tx, asked, type)
        rows.sort(key=lambda row: row["occurred_us"])  # stable: at the same time, journal rows come first
        entries = [_entry(row) for row in rows[:limit]]
        # Nothing is known about the time after the last row that was read.
        read_until_us = entries[-1].occurred_us if len(rows) > limit else min(until_us, tx.now_us())
        narrowed = session or agent or subject or type or problems
        gaps = [] if narrowed else self._gaps(tx, entries, start_us, read_until_us)
        if len(about := {entry.subject for entry in entries}) > 1 and subject is not None:
            raise InvalidInput(f"{subject!r} is the end of more than one id", f"one of: {', '.join(sorted(about))}")
        return Timeline(moment, start_us, until_us, entries, gaps, len(rows) > limit)

    def _gaps(self, tx: Tx, entries: list[Entry], from_us: int, until_us: int) -> list[Gap]:
        """The gaps. A gap at an edge of the window extends to the next row outside."""
        if until_us <= from_us:
            return []
        earlier, later = tx.one(SQL.before, us=from_us).values(), tx.one(SQL.after, us=until_us).values()
        before = max((us for us in earlier if us is not None), default=None)
        after = min((us for us in later if us is not None), default=None)
        points = [entry.occurred_us for entry in entries]
        edges = [from_us if before is None else before, *points, until_us if after is None else after]
        gaps = []
        for n, (one, two) in enumerate(pairwise(edges)):
            if two - one >= GAP_MIN_US:
                first, last = n == 0, n == len(edges) - 2
                gaps.append(Gap(one, two, first and before is None, last and after is None))
        return gaps


def _session(tx: Tx, session: str, whole: bool) -> str:
    """The id of a session, named by its key, its id or the end of one."""
    found = tx.all(
        SQL.session_by_key, text=session, scope=tx.caller.scope, everywhere=int(whole), ending=_ending(session)
    )
    own = [row for row in found if row["scope"] == tx.caller.scope] or found
    if not own:
        raise lookup.unknown(tx, "session", session)
    if len(own) > 1:
        ids = ", ".join(row["id"] for row in own)
        raise InvalidInput(f"more than one session is named {session!r}", f"one of: {ids}")
    return str(own[0]["id"])


def _ending(text: str | None) -> str | None:
    """A LIKE pattern for the end of an id, as tables print it; None for any other text."""
    suffix = like_suffix(text) if text is not None and not is_id(text) else None
    if text is None or suffix is None:
        return None
    prefix = text.strip().lower()[:3] if text.strip()[3:4] == "_" else "___"
    return f"{prefix}!_%{suffix}"


def _is_about(asked: Row, id: str) -> bool:
    if asked["subject"] in (None, id):
        return True
    return asked["ending"] is not None and id.endswith(str(like_suffix(asked["subject"])))


def _span(tx: Tx, at: Time, window: Duration, start: Time | None, end: Time | None) -> tuple[Moment | None, int, int]:
    """The time that the caller asked about, if any, and the start and the end of the window."""
    now_us = tx.now_us()
    if start is None and end is None:
        moment, half_us = when.past(at, now_us, "at"), _window_us(window) // 2
        return moment, moment.us - half_us, moment.us + half_us
    until_us = now_us if end is None else when.past(end, now_us, "end").us
    start_us = until_us - _window_us(window) if start is None else when.past(start, now_us, "start").us
    if start_us >= until_us:
        raise InvalidInput(
            f"the timeline would end before it starts: {when.shown(start_us)} to {when.shown(until_us)}",
            'for example: standfast timeline --from "tue 02:00" --to "tue 04:00"',
        )
    return None, start_us, until_us


def _still_problems(tx: Tx, rows: list[Row]) -> list[Row]:
    """Drop start rows of effects and sessions that were settled later."""
    from standfast.views.recovery import unsettled

    now = {item.id for item in unsettled(tx) if item.kind in ("effect_in_doubt", "session_crashed")}
    gave_up = {row["subject"] for row in rows if row["type"] == "effect.gave_up"}  # the row of that event has the error
    return [
        row
        for row in rows
        if row["type"] not in STARTED
        or (row["subject"] in now and (row["type"] != "effect.dispatched" or row["subject"] not in gave_up))
    ]


def _not_run(tx: Tx, asked: Row, type: str | None) -> list[Row]:
    """One row for each slot that was missed, skipped or never fired."""
    if type is not None and type.partition(".")[0] != "run":
        return []
    rows = tx.all(SQL.slots_between, **asked) + tx.all(SQL.ranges_into, **asked)
    for row in rows:
        many = f" (one of {row['slots']} slots)" if row["slots"] > 1 else ""
        row |= {"type": f"run.{row['state']}", "summary": clean(f"{row['name']}: {row['reason']}{many}", 200)}
    rows += _absent(tx, asked) if tx.now_us() > asked["from_us"] else []
    return [row for row in rows if type in (None, "run", row["type"])]


def _absent(tx: Tx, asked: Row) -> list[Row]:
    """Slots that were never fired, computed from the schedules."""
    found = fire.absent(tx, asked["scope"], everywhere=bool(asked["everywhere"]), limit=asked["limit"])
    rows = []
    for late in found:
        slots = fire.absent_between(tx, late, asked["from_us"], asked["until_us"])
        if not slots or not _is_about(asked, late.loop_id):
            continue
        summary = f"{late.name} did not run: {fire.ABSENT}"
        if len(slots) > 1:
            summary += f"; {len(slots)} slots, the last {schedule.shown(slots[-1], late.zone)}"
        rows.append(
            dict.fromkeys((*Entry.field_names(), "git_dir", "origin"))
            | {"seq": 0, "time_us": tx.now_us(), "occurred_us": slots[0], "scope": late.scope, "actor": "standfast"}
            | {"source": "seen", "type": "run.absent", "state": "absent", "subject": late.loop_id, "summary": summary}
            | {"git_dir": late.git_dir, "origin": late.origin}
        )
    return rows


def _window_us(window: Duration) -> int:
    us = duration_us(window, "window")
    if us <= 0:
        raise InvalidInput(f"window must be over 0 (got {window})", "for example: --window 1h")
    return us


def _entry(row: Row) -> Entry:
    answered = row["type"].rpartition(".")[2] in ANSWERS
    repository = coverage.named(Label(row["git_dir"], row["origin"]), row["scope"])
    who = row["actor"] if answered else row["agent"] or row["actor"]
    return Entry.from_row(row, agent=who, repository=repository)
