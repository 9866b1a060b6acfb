"""Conversations: the items of an agent framework, stored as the messages of a session.

The items are the root conversation of a session. Each item is a message with a position, so any number of processes may
add items at the same time, and no batch is split. `take_back` and `clear` retract items: they stay stored and are not
returned any more. The last N items are read without the others.

Items are returned as they were given, except secrets of known formats (`redaction`). Values that standfast's JSON
cannot store (NUL, a lone surrogate, NaN) are stored as JSON text inside a field, and returned unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from standfast import crash, serial
from standfast.config.scope import Keyspace, Label
from standfast.core import journal, keys, lookup, removed
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, load
from standfast.db.store import Resource, query, transactional
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.ids import is_id, new_id
from standfast.ledger.openings import lineage_of
from standfast.models import Model
from standfast.record import nodes
from standfast.record.messages import PREVIEW_MAX, ROLE_MAX
from standfast.record.nodes import POSITION_MAX
from standfast.record.sessions import queries
from standfast.record.state import values
from standfast.record.state.models import Place
from standfast.serial.redaction import redacted

SQL = load(__name__)

ITEM_MAX_BYTES = 64 * 1024 * 1024
"""The most bytes of one item: items contain images."""
BATCH_MAX = 100_000
ALL = 2**62
CLEARED = "conversation.cleared"
"""The state value of a session with the first position that is read after `clear`."""
RAW = "standfast:json"
"""The only field of an item that is stored as text."""

Item = serial.Json


class Line(NamedTuple):
    """One item to add: encoded, redacted and hashed outside any transaction."""

    role: str
    content: str
    hash: str
    summary: str
    native: str | None = None


class Home(Model):
    """The session and the root node of a conversation."""

    session_id: str
    scope: str
    git_dir: str | None
    origin: str | None
    key: str
    parent_id: str | None
    created_us: int
    node_id: str
    first_position: int
    unnamed: int
    """1 while the session has no preview."""


class _Stretch(NamedTuple):
    """Positions of one node. Items that were retracted after `kept_us` count as not retracted."""

    node_id: str
    first: int
    before: int
    kept_us: int


def line(item: Item, *, role: str, summary: str, redact: bool, native: str | None = None) -> Line:
    """Encode an item. Raises InvalidInput for a value that is no JSON, or too large."""
    try:
        text = serial.dumps(item, what="item", limit_bytes=ITEM_MAX_BYTES)
    except InvalidInput:
        text = serial.dumps({RAW: _escaped(item)}, what="item", limit_bytes=ITEM_MAX_BYTES)
    stored = text
    if redact:
        stored = redacted(text)
        if stored != text:
            summary = redacted(summary)
    if not role.isidentifier() or len(role) > ROLE_MAX:
        role = keys.checked(serial.clean(role, ROLE_MAX) or "item", "role", limit=ROLE_MAX)
    # The journal and the preview clean the summary. Here it is only shortened.
    return Line(role, stored, serial.hash_text(f"{role}\n{text}"), summary[: 2 * PREVIEW_MAX], native)


def _escaped(item: Item) -> str:
    try:
        return json.dumps(item)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an item must be JSON: {error}") from None


def item_of(content: str) -> Item:
    return items_of([content])[0]


def items_of(contents: Sequence[str]) -> list[Item]:
    """The items of stored texts, decoded together."""
    items = json.loads(f"[{','.join(contents)}]")
    return [_unwrapped(item) if type(item) is dict and len(item) == 1 else item for item in items]


def _text(row: Row) -> str:
    """The JSON of a message. A message of plain text becomes an item with its role."""
    if row["format"] == "json":
        return str(row["content"])
    return json.dumps({"role": row["role"], "content": row["content"]})


def _unwrapped(item: dict[str, Item]) -> Item:
    text = item.get(RAW)
    return json.loads(text) if isinstance(text, str) else item


class Conversations(Resource):
    """The conversation of a session, by key or id: add, read, retract and clear items."""

    __slots__ = ()

    @transactional
    def add(self, tx: Tx, session: str, lines: Sequence[Line], *, agent: str | None = None) -> list[int]:
        """Add all items at the end with no other item between them, or none. Returns their positions.

        A session that does not exist is created.
        """
        return append(tx, find(tx, session) or made(tx, session, agent), lines)

    @query
    def items(self, tx: Tx, session: str, *, last: int | None = None) -> list[Item]:
        """The newest `last` items that are not retracted, in order; older ones are not read. Without `last`, all."""
        home = find(tx, session)
        if home is None:
            return []
        rows = _newest(tx, _stretches(tx, home), ALL if last is None else max(0, last), SQL.contents)
        return items_of([_text(row) for row in reversed(rows)])

    @transactional
    def take_back(self, tx: Tx, session: str) -> tuple[Item] | None:
        """Retract the newest item and return it in a tuple; None if there is none. It stays stored."""
        home = find(tx, session)
        if home is None:
            return None
        tx.maybe(SQL.lock_node, node_id=home.node_id)
        rows = _newest(tx, _stretches(tx, home)[:1], 1)
        if not rows:
            if standing(tx, home, 1):
                raise _inherited(home)
            return None
        crash.point("conversation.before_take_back")
        gone = tx.all(SQL.retract, node_id=home.node_id, position=rows[0]["position"], now_us=tx.now_us())
        _journal_change(tx, home, "message.retracted", rows[0]["id"], rows[0]["role"])
        _keep(tx, gone)
        return (item_of(_text(rows[0])),)

    @transactional
    def clear(self, tx: Tx, session: str) -> None:
        """Retract all items. Later items begin a new conversation."""
        home = find(tx, session)
        if home is None:
            return
        node = tx.one(SQL.lock_node, node_id=home.node_id)
        if not standing(tx, home, 1):
            return
        crash.point("conversation.before_clear")
        first = _stretches(tx, home)[0].first
        values.put(tx, place(home), CLEARED, node["next_position"])
        gone = tx.all(SQL.retract, node_id=home.node_id, position=first, now_us=tx.now_us())
        _journal_change(tx, home, "session.cleared", home.session_id, home.key)
        _keep(tx, gone)


def find(tx: Tx, session: str) -> Home | None:
    key = keys.checked(session, "a session's key")
    row = tx.maybe(SQL.home, scope=tx.caller.scope, key=key)
    if row is None and is_id(key):
        row = tx.maybe(SQL.home_by_id, id=key)
    return None if row is None else Home(**row)


def made(tx: Tx, session: str, agent: str | None) -> Home:
    """Create the session of a key and its conversation."""
    if is_id(session):
        raise lookup.unknown(tx, "session", session)
    caller = tx.caller
    new = {"scope": caller.scope, "key": session, "agent": agent, "actor": caller.actor, "now_us": tx.now_us()}
    new |= caller.labelled()
    tx.run(SQL.add_session, id=new_id("ses"), **new)
    row = tx.one(queries.SQL.by_key, scope=caller.scope, key=session)
    if nodes.find(tx, row["id"], ()) is None:
        nodes.add_root(tx, row["id"])
        journal.append(tx, "session.opened", row["id"], session_id=row["id"], state=row["state"], summary=session)
    found = find(tx, session)
    assert found is not None
    return found


def append(tx: Tx, home: Home, lines: Sequence[Line]) -> list[int]:
    if len(lines) > BATCH_MAX:
        raise InvalidInput(f"{len(lines):,} items at once, and the limit is {BATCH_MAX:,}", "add them in parts")
    crash.point("conversation.before_add")
    reserved = tx.maybe(SQL.reserve, node_id=home.node_id, count=len(lines))
    if reserved is None:
        raise NotFound(f"session {home.key!r} is gone", "standfast session list")
    first = reserved["position"]
    now_us, actor = tx.now_us(), tx.caller.actor
    for position, said in enumerate(lines, first):
        id = new_id("msg")
        tx.run(
            SQL.add,
            id=id,
            session_id=home.session_id,
            node_id=home.node_id,
            position=position,
            role=said.role,
            content=said.content,
            hash=said.hash,
            native=said.native,
            actor=actor,
            now_us=now_us,
        )
        _journal_change(tx, home, "message.said", id, f"{said.role}: {said.summary}", source="said")
    asked = next((said.summary for said in lines if said.role == "user"), None) if home.unnamed else None
    tx.run(SQL.touch, id=home.session_id, preview=asked and serial.clean(asked, PREVIEW_MAX), now_us=now_us)
    return list(range(first, first + len(lines)))


def standing(tx: Tx, home: Home, last: int | None) -> list[Row]:
    """The newest `last` rows that are not retracted, in order. In a fork the parent's come first."""
    return _newest(tx, _stretches(tx, home), ALL if last is None else max(0, last))[::-1]


def _newest(tx: Tx, stretches: Iterable[_Stretch], limit: int, statement: Statement = SQL.newest) -> list[Row]:
    rows: list[Row] = []
    for stretch in stretches:
        if len(rows) < limit:
            rows += tx.all(statement, **stretch._asdict(), limit=limit - len(rows))
    return rows


def _stretches(tx: Tx, home: Home) -> list[_Stretch]:
    """The positions of the conversation, by node, the newest first."""
    cleared = _cleared(tx, home)
    found = [_Stretch(home.node_id, cleared or home.first_position, POSITION_MAX, ALL)]
    if home.parent_id is None or cleared is not None:
        return found
    cut_us = home.created_us
    lineage = lineage_of(tx, home.session_id)
    past = {one.node_id: one for one in nodes.segments(tx, nodes.root(tx, home.session_id), (), lineage)[1:]}
    for session_id, _ in lineage:
        segment = past.get(nodes.root(tx, session_id).id)
        if segment is not None:
            found.append(_Stretch(*segment, cut_us))
        if tx.maybe(SQL.cleared_before, session_id=session_id, time_us=cut_us) is not None:
            break  # the parent had been cleared before the fork was made
        cut_us = tx.one(SQL.created, id=session_id)["created_us"]
    return found


def _cleared(tx: Tx, home: Home) -> int | None:
    """The first position that is read, if the conversation was cleared. Cleared rows are not scanned."""
    row = tx.maybe(SQL.cleared, scope=home.scope, session_id=home.session_id, key=CLEARED)
    return int(row["value"]) if row is not None and row["value"].isdigit() else None


def place(home: Home) -> Place:
    return Place(Keyspace(home.scope), home.session_id, home.session_id, Label(home.git_dir, home.origin))


def _journal_change(tx: Tx, home: Home, type: str, subject: str, summary: str, *, source: str = "seen") -> None:
    journal.append(
        tx,
        type,
        subject,
        session_id=home.session_id,
        summary=summary,
        source=source,
        scope=home.scope,
        label=Label(home.git_dir, home.origin),
    )


def _keep(tx: Tx, gone: Sequence[Row]) -> None:
    for row in gone:
        removed.keep(tx, "message", {**row, "retracted_us": None}, {**row, "retracted_us": tx.now_us()})


def _inherited(home: Home) -> Conflict:
    return Conflict(
        f"the newest item of {home.key!r} belongs to its parent, and a fork cannot change its parent",
        "fork the parent at an earlier position: standfast session fork KEY NEW --at N",
    )
