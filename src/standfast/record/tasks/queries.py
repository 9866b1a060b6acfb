"""Reading tasks: pages, goals, and one task in full. Pages are ordered by columns that rarely change."""

from __future__ import annotations

from standfast import serial
from standfast.core import journal
from standfast.core.checks import no_cursor, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput
from standfast.ids import is_id
from standfast.record.sessions import queries as sessions
from standfast.record.tasks import changes, graph
from standfast.record.tasks.models import STATES, Goal, Note, Other, Shown, Task, like_label, task

SQL = load(__name__)

SHOWN_MAX = 100

_LAST_ID = "\x7f"  # behind every id


def page(
    tx: Tx,
    state: str | None,
    named: Row,
    *,
    label: str | None,
    session: str | None,
    held: bool,
    everywhere: bool,
    limit: int,
    after: str | None,
) -> list[Task]:
    """A page of tasks. `named` has the columns to filter by; None means any value."""
    if state is not None and state not in (*STATES, "any"):
        raise InvalidInput(f"{serial.clean(state, 40)!r} is not a state of a task", f"one of: {', '.join(STATES)}, any")
    session_id = None if session is None else sessions.named(tx, session)["id"]
    asked: Row = {name: value or "" for name, value in named.items()} | {
        **tx.caller.keyspace._asdict(),
        "everywhere": int(everywhere),
        "state": "" if state in (None, "any") else state,
        "label": like_label(label),
        "session_id": session_id or "",
        "held": int(held),
        "now_us": tx.now_us(),
        "limit": page_size(limit),
    }
    return [task(tx, row) for row in _rows(tx, state, asked, after)]


def _rows(tx: Tx, state: str | None, asked: Row, after: str | None) -> list[Row]:
    if state in (None, "open", "snoozed"):
        at = _place(after, first="")
        if asked["everywhere"]:
            return tx.all(SQL.live_everywhere, **(asked | at))
        return tx.all(SQL.live, **(at | asked))
    at = _place(after, first=_LAST_ID)
    if state == "any" or asked["everywhere"]:
        return tx.all(SQL.any, **asked, id=at["id"])
    return tx.all(SQL.settled, **asked, id=at["id"])


def _place(after: str | None, *, first: str) -> Row:
    if after is None:
        return {"priority": -1, "created_us": 0, "id": first, "scope": "", "repository": ""}
    priority, _, rest = after.partition(":")
    created_us, _, rest = rest.partition(":")
    id, _, rest = rest.partition(":")
    length, _, rest = rest.partition(":")
    if not (priority.isdigit() and created_us.isdigit() and is_id(id) and length.isdigit()):
        raise no_cursor(after)
    at: Row = {"priority": int(priority), "created_us": int(created_us), "id": id}
    return at | {"scope": rest[: int(length)], "repository": rest[int(length) :]}


def goals(tx: Tx, *, limit: int, after: str | None) -> list[Goal]:
    at = _place(after, first="") | tx.caller.keyspace._asdict()
    rows = tx.all(SQL.goals, limit=page_size(limit), **at)
    return [Goal(task(tx, row), graph.progress(tx, row["id"])) for row in rows]


def show(tx: Tx, which: changes.Which) -> Shown:
    row = changes.find(tx, which)
    notes = tx.all(SQL.notes, id=row["id"], limit=SHOWN_MAX)
    episodes = tx.all(SQL.episodes, limit=SHOWN_MAX, **row)
    events = tx.all(SQL.latest_events, id=row["id"], limit=SHOWN_MAX)
    below = graph.children(tx, row["id"])
    return Shown(
        task=task(tx, row),
        notes=tuple(Note.from_row(one) for one in reversed(notes)),
        needs=graph.needs(tx, row["id"]),
        needed_by=graph.needed_by(tx, row["id"]),
        children=below,
        progress=graph.progress(tx, row["id"]) if below else None,
        episodes=tuple(Other(**one) for one in reversed(episodes)),
        history=tuple(journal.event(one) for one in reversed(events)),
    )
