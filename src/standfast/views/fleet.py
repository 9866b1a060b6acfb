"""The fleet: the sessions that work now, wait for a person, or have crashed. Read only.

    waits     the session waits, or it asked for an approval that is not answered
    crashed   its process is gone, or its lease ran out
    works     a live process or agent has it

For a crashed session it has the line that continues it. `standfast top` refreshes this page.
"""

from __future__ import annotations

import os
import shlex

from standfast import hints, serial
from standfast.config.scope import Label
from standfast.core import leases
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query
from standfast.ids import short
from standfast.models import Model
from standfast.views import coverage, subjects
from standfast.views.coverage import Places
from standfast.views.recovery import why_it_waits
from standfast.views.resume_lines import resume_line

SQL = load(__name__)

SESSIONS_MAX = 500
ORDER = ("waits", "crashed", "works")
DOING_MAX = 300


class Member(Model):
    """One session of the fleet."""

    id: str
    key: str
    state: str
    """waits, crashed or works."""
    agent: str
    where: str
    """The short name of the repository, or of the directory, and the scope."""
    since_us: int
    """The time of the session's last update. If it needs an approval, the time of the request."""
    about: str
    """The session's title, its first prompt, or the key that its caller chose."""
    doing: str
    """The reason why the session waits, its last tool call, or the command that runs in it."""
    command: str
    """The next command for a person."""


class Fleet(Model):
    """The sessions: those that wait first, and in each state the oldest first, so that rows keep their places."""

    members: list[Member]
    elsewhere: int
    """The number of members in other repositories."""
    now_us: int


class Fleets(Resource):
    __slots__ = ()

    @query
    def look(self, tx: Tx, *, everywhere: bool | None = None) -> Fleet:
        """The sessions of this repository. Outside a repository, or with `everywhere`, those of the whole store."""
        whole = coverage.covers_all(tx.caller, everywhere)
        places = Places(tx)
        rows = tx.all(SQL.sessions, limit=SESSIONS_MAX)
        shown = [row for row in rows if whole or places.of(row).here]
        members = sorted((_member(tx, row, places) for row in shown), key=_place)
        return Fleet(members, len(rows) - len(shown), tx.now_us())


def _place(member: Member) -> tuple[int, str]:
    return ORDER.index(member.state), member.id  # ids sort by the time they were made


def _member(tx: Tx, row: Row, places: Places) -> Member:
    asked = tx.maybe(SQL.requested, session_id=row["id"], now_us=tx.now_us())
    live = leases.judge(tx, row).live
    state = "waits" if asked is not None or row["state"] == "waiting" else "works" if live else "crashed"
    doing, command, since_us = _doing(tx, row, state, asked)
    return Member(
        id=row["id"],
        key=row["key"],
        state=state,
        agent=row["agent"] or row["actor"] or "",
        where=_where(places.label(row), row),
        since_us=since_us,
        about=serial.clean(_about(row), DOING_MAX),
        doing=serial.clean(doing, DOING_MAX),
        command=command,
    )


def _where(label: Label, row: Row) -> str:
    """The short name of the repository: `ada/shop` of an origin, else the name of its directory."""
    path = os.path.dirname(label.git_dir) if label.git_dir else row["cwd"] or ""
    name = "/".join(label.origin.split("/")[-2:]) if label.origin else os.path.basename(path)
    return f"{name} in scope {row['scope']}" if row["scope"] else name


def _about(row: Row) -> str:
    return row["title"] or row["preview"] or ("" if _made_by_hook(row) else row["key"])


def _made_by_hook(row: Row) -> bool:
    """Whether a hook made the session: its key has the agent's own id."""
    return str(row["key"]).startswith(f"{row['agent']}:")


def _doing(tx: Tx, row: Row, state: str, asked: Row | None) -> tuple[str, str, int]:
    show = hints.command("session", "show", short(row["id"]))
    if asked is not None:
        action = subjects.of(tx, asked["id"])
        assert action is not None
        return f"needs approval: {action.about}", hints.command("approve", short(asked["id"])), asked["requested_us"]
    last = _last_call(tx, row)
    if state == "waits":
        return why_it_waits(tx, row["id"], said=str) or "waits", show, row["updated_us"]
    if state == "works":
        run = shlex.join(serial.read(row["command"])) if row["command"] else ""
        return last or run, show, row["updated_us"]
    resume = resume_line(row["agent"], row["key"], row["cwd"])
    if not resume and row["command"]:
        resume = hints.command("session", "resume", row["key"])
    return f"last: {last}" if last else "", resume or show, row["updated_us"]


def _last_call(tx: Tx, row: Row) -> str:
    """The last tool call of a session. Calls without an id of the agent (Gemini CLI) are only in the journal."""
    call = tx.maybe(SQL.last_call, session_id=row["id"])
    if call is None and _made_by_hook(row):
        call = tx.maybe(SQL.last_reported, session_id=row["id"])
    return (call["summary"] or "") if call is not None else ""
