"""Sessions of agents: the session and node that hold an agent's conversation. Hooks and imports share them.

An agent's own id identifies a conversation. So a hook and an import of the transcript fill the same session, from any
directory.
"""

from __future__ import annotations

from standfast.config.scope import Label
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.ids import new_id

SQL = load(__name__)


def find(tx: Tx, agent: str, native_id: str) -> Row | None:
    """The ids of the session and node of a conversation; None if it is unknown."""
    return tx.maybe(SQL.find, agent=agent, native_id=native_id)


def bind(
    tx: Tx,
    agent: str,
    native_id: str,
    session_id: str,
    node_id: str,
    *,
    forked_from: str | None = None,
    facts: str | None = None,
) -> None:
    """Store the session and node of a conversation, unless they are stored already."""
    where: Row = {"agent": agent, "native_id": native_id, "session_id": session_id, "node_id": node_id}
    tx.run(SQL.bind, forked_from=forked_from, facts=facts, now_us=tx.now_us(), **where)


def by_key(tx: Tx, key: str) -> str | None:
    """The id of the session with this key in the caller's scope."""
    row = tx.maybe(SQL.by_key, scope=tx.caller.scope, key=key)
    return None if row is None else str(row["id"])


def add(tx: Tx, key: str, agent: str, *, cwd: str | None, reason: str | None, created_us: int, label: Label) -> str:
    """Add a completed session, unless one has this key. No process owned it, so it never counts as crashed."""
    made: Row = {"id": new_id("ses"), "scope": tx.caller.scope, "key": key, "agent": agent, "actor": tx.caller.actor}
    tx.run(SQL.add, cwd=cwd, reason=reason, created_us=created_us, **made, **label.as_dict())
    return str(tx.one(SQL.by_key, scope=tx.caller.scope, key=key)["id"])


def place(tx: Tx, session_id: str) -> Row | None:
    """The scope and repository of a session."""
    return tx.maybe(SQL.place, id=session_id)
