"""The bytes of artifacts as rows, on PostgreSQL: another host must be able to resume.

Store a few chunks per transaction, under the id of the new artifact. This bounds memory and keeps transactions short.
One last transaction gives them their digest and writes
the row: chunks under a digest are always all of them. An interrupted put leaves chunks under an id, and the id
contains its time.
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
    """Bytes on their way in: all there, and not yet under their digest."""

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

    Those that are there are replaced: they say the same, or are damaged.
    """
    for _ in range(_TRIES):
        claimed = tx.maybe(SQL.claim, digest=incoming.digest, bytes=b"")
        if claimed is not None or tx.maybe(SQL.hold, digest=incoming.digest) is not None:
            tx.run(SQL.drop, digest=incoming.digest)
            tx.run(SQL.move, digest=incoming.digest, incoming=incoming.id)
            return
        # They were removed between the two looks: then the next claim is ours.
    raise AssertionError(f"{incoming.digest} comes and goes")


def discard(store: Store, id: str) -> None:
    """Best effort: what stays is collected a day later."""
    with suppress(StandfastError):
        store.write(lambda tx: tx.run(SQL.drop, digest=id), durable=False)


def read(store: Store, digest: str, size_bytes: int) -> Iterator[bytes]:
    """The bytes, chunk by chunk; what follows the last one is the check that they were the right ones."""
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
    """Drop what no artifact speaks of, and what old interrupted puts left; how many pieces and bytes."""

    def candidates(tx: Tx) -> list[str]:
        before_us = tx.now_us() - garbage_after_us
        unfinished = [row["digest"] for row in tx.all(SQL.unfinished, limit=_PAGE)]
        old = [digest for digest in unfinished if is_id(digest) and time_us(digest) < before_us]
        return old + [row["digest"] for row in tx.all(SQL.unreferenced, limit=_PAGE)]

    def drop(tx: Tx, digest: str) -> int | None:
        # The first chunk is held, so no caller can refer to them between the check and the removal.
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
