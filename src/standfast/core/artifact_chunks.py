"""The bytes of artifacts as rows, on PostgreSQL, where another host must be able to resume.

Each transaction stores a few chunks under the id of the new artifact, which bounds memory and keeps transactions short.
The last transaction gives the chunks their digest and writes the row. So the chunks under a digest are always complete.
An interrupted put leaves chunks under an id, and the id contains its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

from standfast import crash
from standfast.core.artifact_files import PREFIX, compared, missing
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import StandfastError
from standfast.ids import is_id, time_us

SQL = load(__name__)

TOGETHER = 8
"""Chunks written or read in one transaction: 2 MiB."""
_TRIES = 5
_PAGE = 200


class Incoming(NamedTuple):
    """Stored chunks that are complete and not yet under their digest."""

    id: str
    digest: str
    size_bytes: int


def receive(store: Store, id: str, blocks: Iterable[bytes]) -> Incoming:
    """Write `blocks` under `id`. They become durable with the row's own commit."""
    from hashlib import sha256

    hashed, size_bytes, n = sha256(), 0, 0
    waiting: list[bytes] = []
    try:
        for block in blocks:
            hashed.update(block)
            size_bytes += len(block)
            waiting.append(block)
            if len(waiting) == TOGETHER:
                n, waiting = _add(store, id, n, waiting), []
        if waiting or n == 0:
            _add(store, id, n, waiting or [b""])
    except BaseException:
        discard(store, id)
        raise
    return Incoming(id, PREFIX + hashed.hexdigest(), size_bytes)


def _add(store: Store, id: str, n: int, blocks: list[bytes]) -> int:
    def body(tx: Tx) -> None:
        for place, block in enumerate(blocks, n):
            tx.run(SQL.add, digest=id, n=place, bytes=block)

    store.write(body, durable=False)
    crash.point("artifact.after_chunks")
    return n + len(blocks)


def adopt(tx: Tx, incoming: Incoming) -> None:
    """Give the chunks their digest, in the transaction that writes the row.

    Chunks that are there under it are replaced: they have the same content, or are damaged.
    """
    for _ in range(_TRIES):
        claimed = tx.maybe(SQL.claim, digest=incoming.digest, bytes=b"")
        if claimed is not None or tx.maybe(SQL.hold, digest=incoming.digest) is not None:
            tx.run(SQL.drop, digest=incoming.digest)
            tx.run(SQL.move, digest=incoming.digest, incoming=incoming.id)
            return
        # The collector removed them between the two statements, so the next claim succeeds.
    raise AssertionError(f"{incoming.digest} was inserted and removed {_TRIES} times")


def discard(store: Store, id: str) -> None:
    """Remove the chunks. If that fails, a later collection removes them."""
    with suppress(StandfastError):
        store.write(lambda tx: tx.run(SQL.drop, digest=id), durable=False)


def read(store: Store, digest: str, size_bytes: int) -> Iterator[bytes]:
    """The bytes, chunk by chunk. After the last one the digest is compared. Raises Corrupt."""
    chunks = _chunks(store, digest)
    first = next(chunks, None)
    if first is None:
        raise missing(digest)
    yield from compared(chain((first,), chunks), digest, size_bytes)


def _chunks(store: Store, digest: str) -> Iterator[bytes]:
    n = 0
    while rows := store.read(lambda tx, n=n: tx.all(SQL.page, digest=digest, n=n, limit=TOGETHER)):  # type: ignore[misc]
        yield from (row["bytes"] for row in rows)
        n = rows[-1]["n"] + 1


def size_of(tx: Tx, digest: str) -> int | None:
    row = tx.one(SQL.size, digest=digest)
    return int(row["size_bytes"]) if row["chunks"] else None


def collect(store: Store, garbage_after_us: int, spoken_of: Callable[[Tx, str], bool]) -> tuple[int, int]:
    """Drop the chunks that no artifact names, and those of old interrupted puts. Returns their count and size."""

    def candidates(tx: Tx) -> list[str]:
        before_us = tx.now_us() - garbage_after_us
        unfinished = [row["digest"] for row in tx.all(SQL.unfinished, limit=_PAGE)]
        old = [digest for digest in unfinished if is_id(digest) and time_us(digest) < before_us]
        return old + [row["digest"] for row in tx.all(SQL.unreferenced, limit=_PAGE)]

    def drop(tx: Tx, digest: str) -> int | None:
        # The first chunk is locked, so no put can adopt the chunks between the check and the removal.
        if tx.maybe(SQL.hold, digest=digest) is None or spoken_of(tx, digest):
            return None
        crash.point("artifact.before_remove")
        size = size_of(tx, digest)
        tx.run(SQL.drop, digest=digest)
        return size

    count = size = 0
    while digests := store.read(candidates):
        sizes = [store.write(lambda tx, digest=digest: drop(tx, digest)) for digest in digests]  # type: ignore[misc]
        dropped = [each for each in sizes if each is not None]
        count, size = count + len(dropped), size + sum(dropped)
        if not dropped:
            break
    return count, size
