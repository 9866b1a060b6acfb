"""The timeline: what really happened around a moment, in order, from the journal and imported transcripts.

An import is one row of the journal however much it brings: what it brought is found by when it
happened, in the messages and tool calls themselves. Each row says whether standfast itself saw it or
an agent said it: self-reports are trusted least. A long stretch without any row is said as a gap,
because silence is an answer too. No payload is read: the summaries were written for this.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from standfast.clock import MINUTE_US, parse_duration
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query
from standfast.errors import InvalidInput, NotFound, StandfastError
from standfast.views import when
from standfast.views.when import Moment

SQL = load(__name__)

ROWS_MAX = 2000
GAP_MIN_US = 10 * MINUTE_US


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
        everywhere: bool = False,
        limit: int = 500,
    ) -> Timeline | StandfastError:
        """What was recorded in the `window` around `at`; of this scope, or `everywhere`.

        Raises InvalidInput for a moment it does not understand, NotFound for an unknown session.
        """
        moment = when.parse(at, tx.now_us())
        half_us = _window_us(window) // 2
        start_us, until_us = moment.us - half_us, moment.us + half_us
        session_id = None
        if session is not None:
            found = tx.maybe(SQL.session_by_key, text=session, scope=self.scope)
            if found is None:
                return NotFound(f"no session {session!r} in this scope", "standfast session list")
            session_id = found["id"]
        limit = max(1, min(limit, ROWS_MAX))
        asked: Row = {
            "from_us": start_us,
            "until_us": until_us,
            "everywhere": int(everywhere),
            "scope": self.scope,
            "session_id": session_id,
            "agent": agent,
            "subject": subject,
            "limit": limit + 1,
        }
        rows = tx.all(SQL.between, type=type, type_prefix=f"{type or ''}.%", **asked)
        for imported, own in ((SQL.messages_between, "message.said"), (SQL.calls_between, "tool.called")):
            if type is None or type in (own, own.partition(".")[0]):
                rows += tx.all(imported, **asked)
        rows.sort(key=lambda row: row["occurred_us"])  # stable: of one moment, the journal's rows come first
        entries = [_entry(row) for row in rows[:limit]]
        narrowed = session or agent or subject or type
        gaps = [] if narrowed else self._gaps(tx, entries, start_us, min(until_us, tx.now_us()))
        return Timeline(moment, start_us, until_us, entries, gaps, len(rows) > limit)

    def _gaps(self, tx: Tx, entries: list[Entry], from_us: int, until_us: int) -> list[Gap]:
        """Stretches of silence. Those at the edges are followed to the row that ends them."""
        if until_us <= from_us:
            return []
        before = max((us for us in tx.one(SQL.before, us=from_us).values() if us is not None), default=None)
        after = min((us for us in tx.one(SQL.after, us=until_us).values() if us is not None), default=None)
        points = [entry.occurred_us for entry in entries]
        edges = [from_us if before is None else before, *points, until_us if after is None else after]
        gaps = []
        for n, (one, two) in enumerate(pairwise(edges)):
            if two - one >= GAP_MIN_US:
                first, last = n == 0, n == len(edges) - 2
                gaps.append(Gap(one, two, first and before is None, last and after is None))
        return gaps


def _window_us(text: str) -> int:
    us = parse_duration(text)
    if us <= 0:
        raise InvalidInput("the window must be longer than nothing", "for example: --window 1h")
    return us


def _entry(row: Row) -> Entry:
    return Entry(*(row[name] for name in Entry._fields))
