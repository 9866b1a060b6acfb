"""The rows of a thread: locked, added, deleted, encoded; and the refusals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from standfast import serial
from standfast.core import journal
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, InvalidInput
from standfast.ids import new_id
from standfast.record.threads.encryption import Seal, opened, shut
from standfast.record.threads.models import Write
from standfast.record.threads.values import Part, split

SQL = load(__name__)


class Put(NamedTuple):
    """A checkpoint as it will be written, and the conditions for it."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    header: bytes
    metadata: bytes
    parts: str
    rows: list[Part]
    kept_from: str | None
    """The parent's parts when they were read. The transaction compares them again."""
    expect_head: bool


class MovedOn(Exception):
    """Raised to roll back a put whose parent or value has changed since it was read. The put is tried again."""


def hold_thread(tx: Tx, scope: str, key: str, *, deleted: bool = False) -> Row:
    """The thread's row, locked until the end of the transaction. It is created if it does not exist."""
    now_us = tx.now_us()
    found = tx.maybe(SQL.touch, scope=scope, key=key, now_us=now_us)
    if found is None:
        new: Row = {"id": new_id("thr"), "deleted_us": now_us if deleted else None, **tx.caller.labelled()}
        found = tx.maybe(SQL.begin, scope=scope, key=key, now_us=now_us, **new)
    # Another process created it between the two statements.
    return found or tx.one(SQL.touch, scope=scope, key=key, now_us=now_us)


def add_part(tx: Tx, thread_seq: int, row: Part) -> None:
    fields: Row = {"thread_seq": thread_seq, "segment": row.segment, "type": row.type, "data": row.data}
    if row.n == 0:
        tx.run(SQL.put_value, **fields)
    elif tx.maybe(SQL.put_piece, after=row.n - 1, **fields) is None:
        raise MovedOn


def take_away(tx: Tx, found: Row, gone: Sequence[Row]) -> None:
    """Delete these checkpoints, the writes at them, and the values that no other checkpoint refers to."""
    if not gone:
        return
    seq = found["seq"]
    for row in gone:
        tx.run(SQL.drop_checkpoint, seq=row["seq"])
        tx.run(SQL.drop_writes, thread_seq=seq, namespace=row["namespace"], checkpoint_id=row["checkpoint_id"])
    needed: dict[str, int] = {}
    for row in tx.all(SQL.headers, thread_seq=seq):
        for ref in json.loads(row["parts"]).values():
            segment, n = split(ref)
            needed[segment] = max(n, needed.get(segment, 0))
    for row in tx.all(SQL.segments, thread_seq=seq):
        upto = needed.get(row["segment"], -1)
        if row["n"] > upto:
            tx.run(SQL.drop_pieces, thread_seq=seq, segment=row["segment"], n=upto)
            if upto >= 0:
                tx.run(SQL.close, thread_seq=seq, segment=row["segment"], n=upto + 1, nothing=b"")
    words = f"{len(gone)} checkpoint{'s' * (len(gone) != 1)} taken away"
    journal.append(tx, "thread.pruned", found["id"], summary=words, data={"checkpoints": len(gone)})


def empty(tx: Tx, thread_seq: int) -> dict[str, list[Row]]:
    """Delete all rows of a thread; returns them by table."""
    gone = {
        "thread_checkpoint": tx.all(SQL.checkpoint_images, thread_seq=thread_seq),
        "thread_value": tx.all(SQL.value_images, thread_seq=thread_seq),
        "thread_write": tx.all(SQL.write_images, thread_seq=thread_seq),
    }
    tx.run(SQL.drop_all_checkpoints, thread_seq=thread_seq)
    tx.run(SQL.drop_all_values, thread_seq=thread_seq)
    tx.run(SQL.drop_all_writes, thread_seq=thread_seq)
    return gone


def upto_seed(chain: Sequence[Row], channel: str) -> tuple[list[Row], Row | None]:
    """The ancestors up to the one that stores the channel's value, and that one; None if no ancestor has it."""
    path: list[Row] = []
    for row in chain:
        path.append(row)
        if channel in json.loads(row["parts"]):
            return path, row
    return path, None


def write_of(namespace: str, checkpoint_id: str, row: Row, seal: Seal | None) -> Write:
    place = ("write", namespace, checkpoint_id, row["task_id"], row["idx"], row["channel"], row["type"])
    value = (row["type"], opened(seal, place, row["data"]))
    return Write(row["task_id"], row["task_path"], row["idx"], row["channel"], value)


def write_row(namespace: str, checkpoint_id: str, write: Write, seal: Seal | None) -> Row:
    type, data = write.value
    place = ("write", namespace, checkpoint_id, write.task_id, write.idx, write.channel, type)
    return {
        "namespace": namespace,
        "checkpoint_id": checkpoint_id,
        "task_id": write.task_id,
        "task_path": write.task_path,
        "idx": write.idx,
        "channel": write.channel,
        "type": type,
        "data": shut(seal, place, data),
    }


def metadata_of(row: Row, seal: Seal | None) -> bytes:
    return opened(seal, ("metadata", row["namespace"], row["checkpoint_id"]), row["metadata"])


def check_names(*texts: str) -> None:
    for text in texts:
        if "\0" in text or len(text) > 2000:
            raise InvalidInput(
                f"{serial.clean(text, 60)!r} cannot be a name: it holds NUL, or is over 2,000 characters"
            )


def deleted_thread(thread: str) -> Conflict:
    return Conflict(
        f"thread {thread!r} was deleted; this checkpoint was not stored",
        "start it again: run the graph on it from its first input",
        code="thread_deleted",
    )


def overtaken(ask: Put, head: str) -> Conflict:
    since = f"since {ask.parent_id}" if ask.parent_id else "meanwhile"
    return Conflict(
        f"another process wrote to thread {ask.thread!r} {since}: its newest checkpoint is {head}",
        "run the graph again: it continues from there",
        code="thread_overtaken",
    )


def fields_match(metadata: bytes, wanted: Mapping[str, Any]) -> bool:
    """Whether a JSON object has each of these fields with this value. A dot in a name has no meaning."""
    found = json.loads(metadata)
    return all(name in found and found[name] == value for name, value in wanted.items())
