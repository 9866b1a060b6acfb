"""Forks: a session that shares the past of another one up to a cut, by a pointer. Nothing is copied.

The cut is a position in the root conversation. Of steps, effects, values, the cursor and sub-agents, a fork sees the
state that the journal has before the first message after the cut. The journal's order is used, not the wall clock,
which may be set back.
"""

from __future__ import annotations

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, KeyConflict
from standfast.ids import new_id
from standfast.ledger.openings import lineage_of
from standfast.record import nodes
from standfast.record.nodes import Node
from standfast.record.sessions import queries
from standfast.record.sessions.models import SessionRecord
from standfast.record.sessions.ownership import journal_change
from standfast.record.sessions.queries import record

SQL = load(__name__)


def fork(tx: Tx, parent: Row, new_key: str | None, at: int | None) -> SessionRecord:
    root = nodes.root(tx, parent["id"])
    position = root.next_position - 1 if at is None else at
    if not 0 <= position < root.next_position:
        raise InvalidInput(
            f"session {parent['key']!r} has no position {position}: it has {root.next_position - 1} messages",
            "at is the last message the fork shares; 0 shares none",
        )
    new_key = f"{parent['key']}@{position}" if new_key is None else new_key
    cut_seq = _cut_seq(tx, root, position, parent)
    made = tx.maybe(
        SQL.fork,
        id=new_id("ses"),
        scope=parent["scope"],
        key=new_key,
        reason=f"forked from {parent['key']} at {position}",
        agent=parent["agent"],
        preview=parent["preview"],
        cursor=parent["cursor"] if at is None else _cursor_at(tx, parent["id"], cut_seq),
        parent_id=parent["id"],
        cut_node_id=root.id,
        cut_position=position,
        cut_seq=cut_seq,
        actor=tx.caller.actor,
        now_us=tx.now_us(),
        git_dir=parent["git_dir"],
        origin=parent["origin"],
    )
    if made is None:
        return _forked_before(tx, parent, new_key, position if at is not None else None)
    nodes.add_root(tx, made["id"], first_position=position + 1)
    return record(
        tx, made, journal_change(tx, made, "session.forked", data={"parent": parent["id"], "position": position})
    )


def _cut_seq(tx: Tx, root: Node, position: int, parent: Row) -> int:
    """The journal's last row before the cut, which is before the first message that is not shared."""
    after = tx.one(SQL.seq_of_message, node_id=root.id, position=position + 1)["seq"]
    if after is not None:
        return int(after) - 1
    if position + 1 < root.first_position:  # the cut lies before the parent's own cut
        return min(int(parent["cut_seq"]), _cut_in_ancestors(tx, parent, position))
    return int(tx.one(SQL.last_seq)["seq"])


def _cut_in_ancestors(tx: Tx, parent: Row, position: int) -> int:
    for session_id, cut_seq in lineage_of(tx, parent["id"]):
        root = nodes.root(tx, session_id)
        after = tx.one(SQL.seq_of_message, node_id=root.id, position=position + 1)["seq"]
        if after is not None:
            return min(int(after) - 1, cut_seq)
    return int(parent["cut_seq"])


def _cursor_at(tx: Tx, session_id: str, cut_seq: int) -> str | None:
    row = tx.maybe(SQL.cursor_at, id=session_id, cut_seq=cut_seq)
    return None if row is None else serial.canonical(serial.read(row["data"])["cursor"])


def _forked_before(tx: Tx, parent: Row, new_key: str, position: int | None) -> SessionRecord:
    there = tx.one(queries.SQL.by_key, scope=parent["scope"], key=new_key)
    if there["parent_id"] == parent["id"] and position in (None, there["cut_position"]):
        return record(tx, there)
    raise KeyConflict(f"session {new_key!r} exists already, and it is no fork of this one", "fork to a new key")
