"""`standfast store push TO`: copy the journal upward, to PostgreSQL, S3 or a directory.

The events are durable here before they are sent, and nothing here waits for the other side. The target
knows the last number it has, so any process can continue an interrupted push. A row is there once, by store id and
sequence number. Payloads go only with `payloads`, without known secrets. Nothing flows back, and nothing is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from standfast import crash, files
from standfast.admin.copies import places
from standfast.clock import MINUTE_US
from standfast.config.files import private_directory
from standfast.core import digests, journal
from standfast.core.progress import Progress, quiet
from standfast.db.contract import Row, Tx
from standfast.db.store import Store, refused_inside
from standfast.errors import StorageError
from standfast.interchange.bundle_export import cloud_event
from standfast.interchange.bundles import line
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.db.postgres.pushed import Server

BATCH = 1000
SETTLED_US = MINUTE_US
"""On PostgreSQL a row is not pushed before this time, because a lower number may still be committed."""


class Pushed(Model):
    """The rows that one push sent."""

    to: str
    store: str
    sent: int
    upto_seq: int
    """Rows up to here are at the target."""


class Files:
    """A directory or a bucket: `STORE/journal/FROM-UPTO.jsonl`, CloudEvents 1.0."""

    def __init__(self, to: str) -> None:
        self._place = places.opened(to)
        self.shown = self._place.shown

    def upto(self, store_id: str) -> int:
        try:
            names = [one.name for one in self._place.of(store_id).entries("journal")]
        except OSError as error:
            raise _unreachable(self.shown, places.reason(error)) from None
        ends = [name.rpartition("-")[2].removesuffix(".jsonl") for name in names if name.endswith(".jsonl")]
        return max((int(end) for end in ends if end.isdigit()), default=0)

    def put(self, store_id: str, rows: list[tuple[int, str]]) -> None:
        name = f"journal/{rows[0][0]:015d}-{rows[-1][0]:015d}.jsonl"
        try:
            self._place.of(store_id).put_bytes(name, "".join(text for _, text in rows).encode())
        except OSError as error:
            raise _unreachable(self.shown, places.reason(error)) from None

    def close(self) -> None:
        pass


def _unreachable(shown: str, reason: str) -> StorageError:
    fact = f"{shown} cannot be reached: {reason}. Nothing is lost here"
    return StorageError(fact, "push again later: standfast store push TO", code="push_failed")


def push(store: Store, to: str, *, payloads: bool = False, progress: Progress = quiet) -> Pushed:
    """Send what the target does not have. Raises Busy while another process pushes, StorageError in an outage."""
    refused_inside(store.held, "push")
    target = _opened(to)
    sent = 0
    try:
        with _alone(store):
            first = upto = target.upto(store.pin[0])
            last = store.read(journal.last_seq)
            for rows in _pages(store, upto):
                target.put(store.pin[0], [(row["seq"], _line(store, row, payloads)) for row in rows])
                crash.point("push.after_batch")
                sent, upto = sent + len(rows), rows[-1]["seq"]
                progress("pushing events", upto - first, last - first)
    finally:
        target.close()
    return Pushed(target.shown, store.pin[0], sent, upto)


@contextmanager
def _alone(store: Store) -> Iterator[None]:
    """One push at a time on this host. Not a lease: its rows in the journal would have to be pushed too."""
    if store.data_dir is None:
        yield
        return
    private_directory(store.data_dir)
    with files.locked(os.path.join(store.data_dir, "push.json")):
        yield


def _opened(to: str) -> Files | Server:
    if to.partition("://")[0] not in ("postgresql", "postgres"):
        return Files(to)
    from standfast.db.postgres.pushed import Server

    return Server(to)


def _pages(store: Store, after: int) -> Iterator[list[Row]]:
    """The settled rows, in their order."""

    def page(tx: Tx) -> list[Row]:
        return digests.settled(tx, after, BATCH, SETTLED_US)

    while rows := store.read(page):
        yield rows
        after = rows[-1]["seq"]


def _line(store: Store, row: Row, payloads: bool) -> str:
    return line(cloud_event(store.pin[0], row if payloads else row | {"data": None}))
