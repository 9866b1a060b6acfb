"""Import whole threads of LangGraph's SqliteSaver and PostgresSaver.

The source is only read. Values keep their encoding and are never decoded into objects, so no class must be importable.
A checkpoint that is stored already does not change, and a thread that was deleted here stays deleted. An interrupted
import continues at its next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from standfast import crash, modules
from standfast.db.contract import Row
from standfast.errors import InvalidInput, NotFound
from standfast.record.threads import Threads, Write
from standfast.record.threads.models import Value

Rows = Callable[..., Iterator[Row]]

SQLITE_CHECKPOINTS = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata"
    " FROM checkpoints ORDER BY thread_id, checkpoint_ns, checkpoint_id"
)
SQLITE_WRITES = (
    "SELECT task_id, {path} AS task_path, idx, channel, type, value AS blob FROM writes"
    " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
PG_CHECKPOINTS = (
    "SELECT thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata"
    " FROM checkpoints ORDER BY thread_id, checkpoint_ns, checkpoint_id"
)
PG_BLOBS = (
    "SELECT channel, version, type, blob FROM checkpoint_blobs"
    " WHERE thread_id = %(thread)s AND checkpoint_ns = %(namespace)s AND channel = %(channel)s"
    " AND version = %(version)s"
)
PG_WRITES = (
    "SELECT task_id, {path} AS task_path, idx, channel, type, blob FROM checkpoint_writes"
    " WHERE thread_id = %(thread)s AND checkpoint_ns = %(namespace)s AND checkpoint_id = %(id)s"
)


class Taken(NamedTuple):
    """The result of one import."""

    source: str
    dry_run: bool
    threads: int
    checkpoints: int
    known: int
    writes: int
    encrypted: int
    deleted: int
    bad: int


class Found(NamedTuple):
    """One checkpoint of the source."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    header: bytes | None
    """None if the checkpoint is encrypted; empty if it cannot be read."""
    metadata: bytes
    values: dict[str, Value]
    writes: list[Write]


def run(threads: Threads | None, source: str, *, own: str | None = None, dry_run: bool = False) -> Taken:
    """Import the threads at a path or postgresql:// URL. `own` is the database file that this process has open.

    Raises NotFound if the file is missing, and InvalidInput if no LangGraph saver wrote it.
    """
    counts = dict.fromkeys(("checkpoints", "known", "writes", "encrypted", "deleted", "bad"), 0)
    seen: set[str] = set()
    there: set[tuple[str, str]] = set()
    skipped: set[str] = set()
    last = None
    for found in _found(source, own):
        if found.thread != last:
            last, there = found.thread, set() if threads is None else threads.ids(found.thread)
            seen.add(found.thread)
            if threads is not None and threads.is_deleted(found.thread):
                skipped.add(found.thread)
        if found.thread in skipped:
            counts["deleted"] += 1
        elif not found.header:
            counts["encrypted" if found.header is None else "bad"] += 1
        elif (found.namespace, found.id) in there:
            counts["known"] += 1
        else:
            try:
                if threads is not None and not dry_run:
                    _take(threads, found, found.header)
            except InvalidInput:  # the store does not accept a name in it
                counts["bad"] += 1
                continue
            counts["checkpoints"] += 1
            counts["writes"] += len(found.writes)
    return Taken(source.rpartition("@")[2], dry_run, len(seen), **counts)


def _take(threads: Threads, found: Found, header: bytes) -> None:
    """Store the writes of a checkpoint before the checkpoint, so that every stored checkpoint is complete."""
    crash.point("import.before_batch")
    threads.put_writes(found.thread, found.id, found.writes, namespace=found.namespace)
    threads.put(
        found.thread,
        found.id,
        header=header,
        metadata=found.metadata,
        namespace=found.namespace,
        parent_id=found.parent_id,
        values=dict.fromkeys(found.values, True),
        value_of=found.values.__getitem__,
        run_id=_run_id(found.metadata),
    )
    crash.point("import.after_batch")


def summary(taken: Taken) -> list[str]:
    done = "would import" if taken.dry_run else "imported"
    lines = [f"{done} {taken.checkpoints:,} checkpoints and {taken.writes:,} writes of {taken.threads:,} threads"]
    if taken.known:
        lines.append(f"{taken.known:,} were here already")
    if taken.deleted:
        lines.append(f"{taken.deleted:,} belong to threads that were deleted here, and stay deleted")
    if taken.encrypted:
        lines.append(f"{taken.encrypted:,} are encrypted and were left: copy them with a Saver that has their key")
    if taken.bad:
        lines.append(f"{taken.bad:,} could not be read and were left")
    return lines


# -- the sources -------------------------------------------------------------------------------------


def _found(source: str, own: str | None) -> Iterator[Found]:
    if source.startswith(("postgresql://", "postgres://")):
        yield from _postgres(source)
        return
    if not os.path.isfile(source):
        raise NotFound(
            f"there is no file at {source}", "name a file or a postgresql:// URL: standfast import langgraph PATH"
        )
    if own is not None and os.path.exists(own) and os.path.samefile(source, own):
        # Closing a second connection to it would drop the locks of the first.
        raise InvalidInput(f"{source} is this store itself", "name the file that SqliteSaver wrote")
    yield from _sqlite(source)


def _sqlite(path: str) -> Iterator[Found]:
    from standfast.db.sqlite import foreign

    with foreign.opened(path) as other:
        if not (other.has("checkpoints") and other.has("writes")):
            raise _no_saver(path)
        columns = {row["name"] for row in other.rows("SELECT name FROM pragma_table_info('writes')")}
        writes = SQLITE_WRITES.format(path="task_path" if "task_path" in columns else "''")
        for row in other.rows(SQLITE_CHECKPOINTS):
            place = (row["thread_id"], row["checkpoint_ns"], row["checkpoint_id"])
            sealed = "+" in (row["type"] or "")
            header, values = (None, {}) if sealed else _apart(row["type"], row["checkpoint"])
            yield _one(row, header, values, row["metadata"] or b"{}", list(other.rows(writes, place)))


def _postgres(url: str) -> Iterator[Found]:
    from standfast.db.postgres import foreign

    with foreign.reading(url) as other:
        if not {"checkpoints", "checkpoint_blobs", "checkpoint_writes"} <= other.tables():
            raise _no_saver(url.rpartition("@")[2])
        text = "SELECT column_name AS name FROM information_schema.columns WHERE table_name = 'checkpoint_writes'"
        path = "task_path" if "task_path" in {row["name"] for row in other.rows(text)} else "''"
        for row in other.rows(PG_CHECKPOINTS):
            place: Row = {"thread": row["thread_id"], "namespace": row["checkpoint_ns"], "id": row["checkpoint_id"]}
            header: dict[str, Any] = row["checkpoint"]
            values = {name: _packed(value) for name, value in (header.pop("channel_values", None) or {}).items()}
            sealed = False
            for channel, version in header.get("channel_versions", {}).items():
                for blob in other.rows(PG_BLOBS, place | {"channel": channel, "version": str(version)}):
                    sealed = sealed or "+" in blob["type"]
                    if blob["type"] != "empty":
                        values[channel] = (blob["type"], bytes(blob["blob"]))
            small = None if sealed else _typed(_packed(header))
            writes = list(other.rows(PG_WRITES.format(path=path), place))
            yield _one(row, small, values, json.dumps(row["metadata"]).encode(), writes)


def _one(row: Row, header: bytes | None, values: dict[str, Value], metadata: Any, writes: list[Row]) -> Found:
    return Found(
        str(row["thread_id"]),
        str(row["checkpoint_ns"] or ""),
        str(row["checkpoint_id"]),
        None if row["parent_checkpoint_id"] is None else str(row["parent_checkpoint_id"]),
        header,
        _json(metadata),
        values,
        [
            Write(
                w["task_id"],
                w["task_path"] or "",
                w["idx"],
                w["channel"],
                (w["type"] or "null", bytes(w["blob"] or b"")),
            )
            for w in writes
        ],
    )


# -- encodings ---------------------------------------------------------------------------------------


def _apart(type: str, data: bytes) -> tuple[bytes, dict[str, Value]]:
    """The header and the values of a checkpoint, still encoded. Both are empty if it cannot be read."""
    try:
        if type == "json":
            found = json.loads(data)
            values = found.pop("channel_values", None) or {}
            kept = {str(name): ("json", json.dumps(value).encode()) for name, value in values.items()}
            return _typed(("json", json.dumps(found).encode())), kept
        if type == "msgpack":
            msgpack = _msgpack()
            found = msgpack.unpackb(data, ext_hook=msgpack.Ext, option=msgpack.OPT_NON_STR_KEYS)
            values = found.pop("channel_values", None) or {}
            return _typed(_packed(found)), {str(name): _packed(value) for name, value in values.items()}
    except InvalidInput:  # the encoding itself is not installed
        raise
    except (ValueError, TypeError, AttributeError):
        pass
    return b"", {}


def _packed(value: Any) -> Value:
    """The value in the encoding of LangGraph's default serializer."""
    if value is None:
        return "null", b""
    if isinstance(value, bytes):
        return "bytes", value
    msgpack = _msgpack()
    return "msgpack", msgpack.packb(value, option=msgpack.OPT_NON_STR_KEYS)


def _typed(value: Value) -> bytes:
    return value[0].encode() + b"\0" + value[1]


def _json(metadata: Any) -> bytes:
    text = metadata.encode() if isinstance(metadata, str) else bytes(metadata)
    try:
        return text if isinstance(json.loads(text), dict) else b"{}"
    except ValueError:
        return b"{}"


def _run_id(metadata: bytes) -> str | None:
    found = json.loads(metadata).get("run_id")
    return None if found is None else str(found)


def _msgpack() -> Any:
    try:
        import ormsgpack
    except ImportError:
        raise InvalidInput(
            "reading checkpoints of LangGraph needs ormsgpack, which is not installed",
            modules.install("langgraph"),
        ) from None
    return ormsgpack


def _no_saver(where: str) -> InvalidInput:
    return InvalidInput(
        f"{where} holds no checkpoints of LangGraph", "name a file of SqliteSaver or a postgresql:// URL"
    )
