"""Messages: the conversation of a session or sub-agent. A message is never changed.

A message has a position in its node. The node's row counts positions, so any number of processes may add messages at
the same time. With a `key` a message is stored once, no matter how often the program runs. The last N messages are read
without the others. In a fork, the parent's messages before the cut come first.

Secrets of known formats are removed from the content before it is stored (`redaction`). A repeated key compares the
hash of the original text, not of the redacted text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from standfast import crash, serial
from standfast.clock import checked_us
from standfast.core import journal, keys
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, KeyConflict
from standfast.ids import new_id
from standfast.models import Model
from standfast.record import message_parts
from standfast.record.nodes import POSITION_MAX, Segment

SQL = load(__name__)

LAST_MAX = 1000
"""The most messages of one page; `after=` continues."""
ROLE_MAX = 50
PREVIEW_MAX = 200


class Message(Model):
    """One message. `content` is text or a JSON value."""

    id: str
    session_id: str
    node_id: str
    position: int
    role: str
    format: str
    content: serial.Json
    key: str | None
    agent: str
    created_us: int
    occurred_us: int
    retracted_us: int | None = None
    """The time when the message was retracted. It stays stored."""
    receipt: Receipt | None = None


class Utterance(NamedTuple):
    """A message before it is stored: checked, redacted and hashed outside any transaction."""

    role: str
    format: str
    content: str
    hash: str
    key: str | None
    occurred_us: int | None
    preview: str
    """The beginning of its text, for lists and the timeline."""


def utterance(
    role: str, content: serial.Json, *, key: str | None = None, occurred_us: int | None = None, redact: bool = True
) -> Utterance:
    """Check and encode a message. Raises InvalidInput that names the wrong argument."""
    role = keys.checked(role, "role", limit=ROLE_MAX)
    if key is not None:
        keys.checked(key, "key")
    checked_us(occurred_us, "occurred_us")
    text = serial.dumps(content, what="content")
    spoken = isinstance(content, str)
    stored = content if spoken else text
    if redact:
        from standfast.serial.redaction import redacted

        stored = redacted(stored)
    words = serial.clean(stored if spoken else message_parts.preview(stored), PREVIEW_MAX)
    hash = serial.hash_text(f"{role}\n{text}")
    return Utterance(role, "text" if spoken else "json", stored, hash, key, occurred_us, words)


def say(tx: Tx, session_id: str, segments: Sequence[Segment], said: Utterance) -> Message:
    """Add one message at the end of a node; once per key, also if the parent of a fork has the key."""
    node_id = segments[0].node_id
    if said.key is not None:
        tx.maybe(SQL.lock_node, node_id=node_id)
        before = by_key(tx, segments, said.key)
        if before is not None:
            if before["hash"] != said.hash:
                raise _conflict(said.key, before)
            return _message(before)
    crash.point("message.before_say")
    position = tx.one(SQL.next_position, node_id=node_id)["position"]
    now_us = tx.now_us()
    row: Row = {
        "id": new_id("msg"),
        "session_id": session_id,
        "node_id": node_id,
        "position": position,
        "role": said.role,
        "format": said.format,
        "content": said.content,
        "hash": said.hash,
        "key": said.key,
        "actor": tx.caller.actor,
        "created_us": now_us,
        "occurred_us": now_us if said.occurred_us is None else said.occurred_us,
    }
    tx.run(SQL.say, **row)
    row["retracted_us"] = None
    if said.role == "user":
        tx.run(SQL.preview, session_id=session_id, preview=said.preview)
    receipt = journal.append(
        tx,
        "message.said",
        row["id"],
        session_id=session_id,
        summary=f"{said.role}: {said.preview}",
        source="said",
        occurred_us=row["occurred_us"],
    )
    return _message(row).replace(receipt=receipt)


def page(tx: Tx, segments: Sequence[Segment], *, last: int = 50, after: int | None = None) -> list[Message]:
    """The newest `last` messages in order; with `after`, the next `last` ones after that position."""
    if not 1 <= last <= LAST_MAX:
        raise InvalidInput(f"last is a number from 1 to {LAST_MAX}", "continue with after=, the last position you have")
    rows = _newest(tx, segments, last) if after is None else _behind(tx, segments, after, last)
    return [_message(row) for row in rows]


def by_key(tx: Tx, segments: Sequence[Segment], key: str) -> Row | None:
    for segment in segments:
        row = tx.maybe(SQL.by_key, node_id=segment.node_id, key=key, before=segment.before)
        if row is not None:
            return row
    return None


def _newest(tx: Tx, segments: Sequence[Segment], last: int) -> list[Row]:
    rows: list[Row] = []
    for node_id, _, before in segments:
        if len(rows) < last:
            rows += tx.all(SQL.last, node_id=node_id, before=before, limit=last - len(rows))
    return rows[::-1]


def _behind(tx: Tx, segments: Sequence[Segment], after: int, limit: int) -> list[Row]:
    rows: list[Row] = []
    for node_id, _, before in reversed(segments):
        if len(rows) < limit and after < before - 1:
            rows += tx.all(SQL.after, node_id=node_id, after=after, before=before, limit=limit - len(rows))
    return rows


def _message(row: Row) -> Message:
    value = row["content"] if row["format"] == "text" else serial.read(row["content"])
    return Message(*(value if name == "content" else row[name] for name in Message.column_names()[:-1]))


def _conflict(key: str, before: Row) -> KeyConflict:
    return KeyConflict(
        f"the key {key!r} was used for another message: {before['role']} at position {before['position']}",
        "use another key; without a key the message is added each time",
    )


__all__ = ["POSITION_MAX", "Message", "Utterance", "page", "say", "utterance"]
