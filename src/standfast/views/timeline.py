"""The timeline: what really happened around a moment, in order, from the journal and imported transcripts.

An import is one row of the journal however much it brings: what it brought is found by when it
happened, in the messages and tool calls themselves. Each row says whether standfast itself saw it or
an agent said it: self-reports are trusted least. A long stretch without any row is said as a gap,
because silence is an answer too. No payload is read: the summaries were written for this.

It covers the caller's repository, and outside one the whole store.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from standfast.clock import MINUTE_US, parse_duration
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query
from standfast.errors import InvalidInput, NotFound
from standfast.footings import repositories
from standfast.footings.checks import page_size
from standfast.ids import is_id, like_suffix
from standfast.record.loops import firing
from standfast.serial import clean
from standfast.views import coverage, when
from standfast.views.when import Moment

SQL = load(__name__)

ROWS_MAX = 2000
GAP_MIN_US = 10 * MINUTE_US
ANSWERS = frozenset(("granted", "denied", "resolved"))
"""What somebody else says about an agent's work: not the agent, but the actor who answered, did it."""


class Entry(NamedTuple):
    """One thing that happened."""

    seq: int
    """Its row in the journal; 0 for what an import brought."""
    occurred_us: int
    time_us: int
    source: str
    actor: str
    agent: str | None
    type: str
    subject: str
    state: str | None
    session_id: str | None
    session_key: str | None
    scope: str
    summary: str | None

    @property
    def who(self) -> str:
        """Who did it: the actor who answered, else the agent whose session it is, else the actor."""
        answered = self.type.rpartition(".")[2] in ANSWERS
        return self.actor if answered else self.agent or self.actor


class Gap(NamedTuple):
    """A stretch in which nothing was recorded at all."""

    from_us: int
    until_us: int
    open_start: bool = False
    """Nothing was ever recorded before it."""
    open_end: bool = False
    """Nothing has been recorded since."""


class Timeline(NamedTuple):
    """A window of time, what was recorded in it, and where nothing was."""

    at: Moment
    from_us: int
    until_us: int
    entries: list[Entry]
    gaps: list[Gap]
    truncated: bool


class Timelines(Room):
    """Asking the journal about a moment."""

    __slots__ = ()

    @query
    def around(
        self,
        tx: Tx,
        at: str = "now",
        *,
        window: str = "1h",
        session: str | None = None,
        agent: str | None = None,
        subject: str | None = None,
        type: str | None = None,
        everywhere: bool | None = None,
        limit: int = 500,
    ) -> Timeline:
        """What was recorded in the `window` around `at`: in this repository, and outside one in the whole store.

        `subject` is an id, its last six characters or more, or a name such as `lock:deploy`. Raises InvalidInput
        for a moment it does not understand and for the end of more than one id, NotFound for an unknown session.
        """
        moment = when.parse(at, tx.now_us())
        half_us = _window_us(window) // 2
        start_us, until_us = moment.us - half_us, moment.us + half_us
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
        }
        rows = tx.all(SQL.between, type=type, type_prefix=f"{type or ''}.%", **asked)
        for imported, own in ((SQL.messages_between, "message.said"), (SQL.calls_between, "tool.called")):
            if type is None or type in (own, own.partition(".")[0]):
                rows += tx.all(imported, **asked)
        rows.sort(key=lambda row: row["occurred_us"])  # stable: of one moment, the journal's rows come first
        narrowed = session or agent or subject or type
        recorded = [_entry(row) for row in rows[:limit]]
        # Behind the last row that was looked at, nobody knows.
        looked_until_us = recorded[-1].occurred_us if len(rows) > limit else min(until_us, tx.now_us())
        gaps = [] if narrowed else self._gaps(tx, recorded, start_us, looked_until_us)
        if session is None and agent is None:
            rows += _not_run(tx, asked, type, {(row["type"], row["subject"], row["occurred_us"]) for row in rows})
            rows.sort(key=lambda row: row["occurred_us"])
        entries = [_entry(row) for row in rows[:limit]]
        if len(about := {entry.subject for entry in entries}) > 1 and subject is not None:
            raise InvalidInput(f"{subject!r} is the end of more than one id", f"one of: {', '.join(sorted(about))}")
        return Timeline(moment, start_us, until_us, entries, gaps, len(rows) > limit)

    def _gaps(self, tx: Tx, entries: list[Entry], from_us: int, until_us: int) -> list[Gap]:
        """Stretches of silence. Those at the edges are followed to the row that ends them."""
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
        raise NotFound(f"no session {session!r} in this scope", "standfast session list    (--all: every scope)")
    if len(own) > 1:
        ids = ", ".join(row["id"] for row in own)
        raise InvalidInput(f"more than one session is named {session!r}", f"one of: {ids}")
    return str(own[0]["id"])


def _ending(text: str | None) -> str | None:
    """The end of an id, as tables print it, as a pattern; None for everything else."""
    suffix = like_suffix(text) if text is not None and not is_id(text) else None
    if text is None or suffix is None:
        return None
    prefix = text.strip().lower()[:3] if text.strip()[3:4] == "_" else "___"
    return f"{prefix}!_%{suffix}"


def _is_about(asked: Row, id: str) -> bool:
    if asked["subject"] in (None, id):
        return True
    return asked["ending"] is not None and id.endswith(str(like_suffix(asked["subject"])))


def _not_run(tx: Tx, asked: Row, type: str | None, told: set[tuple[str, str, int]]) -> list[Row]:
    """What did not happen: slots that were missed or skipped, and slots that nobody has fired to this day."""
    if type is not None and type.partition(".")[0] != "run":
        return []
    rows = tx.all(SQL.slots_between, **asked) + tx.all(SQL.ranges_into, **asked)
    for row in rows:
        many = f" (one of {row['slots']} slots)" if row["slots"] > 1 else ""
        row |= {"type": f"run.{row['state']}", "summary": clean(f"{row['name']}: {row['reason']}{many}", 200)}
    rows += _absent(tx, asked) if tx.now_us() > asked["from_us"] else []
    wanted = [row for row in rows if type in (None, "run", row["type"])]
    return [row for row in wanted if (row["type"], row["subject"], row["occurred_us"]) not in told]


def _absent(tx: Tx, asked: Row) -> list[Row]:
    """Derived from the schedules: no process had to be alive to notice."""
    found = firing.absent(tx, asked["scope"], everywhere=bool(asked["everywhere"]), limit=asked["limit"])
    rows = []
    for late in found:
        slots = firing.absent_between(tx, late, asked["from_us"], asked["until_us"])
        if not slots or not _is_about(asked, late.loop_id):
            continue
        many = f", and {len(slots) - 1} more" if len(slots) > 1 else ""
        summary = f"{late.name}: it should have run{many}, and nobody fired it; standfast daemon status"
        rows.append(
            dict.fromkeys(Entry._fields)
            | {"seq": 0, "time_us": tx.now_us(), "occurred_us": slots[0], "scope": late.scope, "actor": "standfast"}
            | {"source": "seen", "type": "run.absent", "state": "absent", "subject": late.loop_id, "summary": summary}
        )
    return rows


def _window_us(text: str) -> int:
    us = parse_duration(text)
    if us <= 0:
        raise InvalidInput("the window must be longer than nothing", "for example: --window 1h")
    return us


def _entry(row: Row) -> Entry:
    return Entry(*(row[name] for name in Entry._fields))
