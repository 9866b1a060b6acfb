"""Readers of a box: live sessions of the agent or role, and agents that were active lately.

This is only a hint for the sender. Mail to a box without a reader waits.
"""

from __future__ import annotations

from standfast.core import leases
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.record.mail.addresses import Place

SQL = load(__name__)

LOOKED_MAX = 50
HEARD_US = leases.ACTOR_US
"""An agent without a session counts as a reader for this time after its last command."""


def any_live(tx: Tx, place: Place) -> bool:
    """Whether a live session or process reads the box."""
    role = place.box.removeprefix("role:")
    at: Row = {"scope": place.scope, "limit": LOOKED_MAX}
    sessions = tx.all(SQL.sessions, role=role, box=place.box, **at)
    if any(leases.judge(tx, row).live for row in sessions):
        return True
    kind = role if role != place.box else ""
    return any(_is_there(tx, row, at) for row in tx.all(SQL.agents, name=role, kind=kind, **at))


def _is_there(tx: Tx, row: Row, at: Row) -> bool:
    if row["holder"] is None:
        return False
    if leases.parse_process(row["holder"]) is not None:
        return leases.is_here(row["holder"], tx.caller.clock)
    held = tx.all(SQL.held, holder=row["holder"], **at)
    return tx.now_us() - row["last_seen_us"] < HEARD_US or any(leases.judge(tx, one).live for one in held)
