"""Copies are taken under load and killed at random moments, into a directory or bucket that fails at its n-th call.

A copy is absent or complete: each one with a manifest verifies, restores, and has every row that was acknowledged
before the copy began. The control writes the manifest first.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import standfast
from standfast.admin.copies import check
from standfast.admin.copies import take as taking
from standfast.admin.copies.manifest import Manifest, name_of
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import listed, read
from standfast.admin.copies.restore import restore
from standfast.admin.copies.take import Order, Source, take
from standfast.clock import SYSTEM
from standfast.config.target import Target
from standfast.core.buckets import Entry
from standfast.core.progress import quiet
from standfast.errors import StandfastError, StorageError
from standfast_prove.crashes.copies import _tasks
from standfast_prove.faults.children import Nursery
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.copies"
WRITERS = 2
CALLS_MAX = 14
"""One copy makes fewer calls to its destination than this."""
PATIENCE_S = 120.0


def run(
    place: Path,
    *,
    url: str | None = None,
    seed: int = 0,
    kills: int = 10,
    faults: int = 15,
    manifest_first: bool = False,
) -> Outcome:
    outcome, chance = Outcome("copies"), random.Random(seed)
    where = url or str(place / "standfast.db")
    asked: dict[str, Any] = {"url": where, "data": str(place / "data"), "books": str(place / "books")}
    with standfast.open(where, data_dir=asked["data"]) as sf:
        sf.artifacts.put(b"x" * 300_000, name="log")
        store_id = sf.engine.store_id
    copies = {**asked, "to": str(place / "copies"), "store_id": store_id, "manifest_first": manifest_first}
    with Nursery(words=place / "words") as nursery:
        writing = [nursery.start(f"{SELF}:write", name=f"{place.name}-{n}", **asked) for n in range(WRITERS)]
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(asked["books"]) or not os.path.getsize(asked["books"]):
            assert time.monotonic() < end, (place / "words").read_text()[-1500:]
            time.sleep(0.01)
        for _ in range(kills):
            pid = nursery.start(f"{SELF}:copy", calls=[], **copies)
            time.sleep(chance.uniform(0.3, 1.5))
            nursery.kill(pid)
            outcome.count("kills")
        calls = [chance.randint(1, CALLS_MAX) for _ in range(faults)]
        code = nursery.wait(nursery.start(f"{SELF}:copy", calls=calls, **copies), 600)
        outcome.count("faults", faults)
        for pid in writing:
            nursery.kill(pid)
    outcome.refuse(code, "the copying process failed: " + (place / "words").read_text()[-1500:])
    _judge(outcome, place, Directory(str(place / "copies")).of(store_id))
    return outcome


def _judge(outcome: Outcome, place: Path, there: Directory) -> None:
    acknowledged = [line.split() for line in (place / "books").read_text().splitlines()]
    outcome.count("rows acknowledged", len(acknowledged))
    for copy in listed(there):
        outcome.count("copies")
        try:
            manifest = read(there, copy.id)
            check.verify(manifest, there, quiet)
            restore(manifest, there, Target("sqlite", str(place / "look")), quiet)
            wanted = {task for time_us, task in acknowledged if int(time_us) < manifest.taken_us}
            outcome.refuse(sorted(wanted - _tasks(place / "look"))[:3], f"{copy.id} lacks rows acknowledged before")
        except StandfastError as error:
            outcome.refuse(error.message, "a copy is not whole")
        shutil.rmtree(place / "look", ignore_errors=True)


# -- in the children -----------------------------------------------------------------------------------


def write(url: str, data: str, books: str, name: str) -> None:
    """Write rows until the process is killed. Note each row once it is acknowledged."""
    notes = os.open(books, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with standfast.open(url, data_dir=data) as sf:
        for n in range(1_000_000):
            task = sf.tasks.add(f"{name} {n}")
            os.write(notes, f"{SYSTEM.now_us()} {task.id}\n".encode())


def copy(url: str, data: str, books: str, to: str, store_id: str, calls: list[int], manifest_first: bool) -> None:
    """Take one copy for each of `calls`; its destination fails at that call. Without `calls`, copy until the process is
    killed.
    """
    if manifest_first:
        taking._Taking._finish = _manifest_first  # type: ignore[method-assign]
    source = Source("postgres" if "://" in url else "sqlite", url, store_id)
    for fails_at in calls or [0] * 1_000_000:
        try:
            take(source, Failing(to, fails_at), Order("asked", None, SYSTEM.now_us(), quiet))
        except StorageError as error:
            if not fails_at or "the copy cpy_" not in error.message:
                raise


class Failing(Directory):
    """A directory whose n-th call fails: the disk is full, or the device reports an error."""

    def __init__(self, path: str, fails_at: int, counted: list[int] | None = None) -> None:
        super().__init__(path)
        self._fails_at = fails_at
        self._counted = counted if counted is not None else []

    def of(self, store_id: str) -> Directory:
        return Failing(os.path.join(self.path, store_id), self._fails_at, self._counted)

    def _call(self) -> None:
        self._counted.append(1)
        if len(self._counted) == self._fails_at:
            code = (errno.ENOSPC, errno.EIO, errno.EACCES)[self._fails_at % 3]
            raise OSError(code, os.strerror(code))

    def put(self, name: str, path: str) -> None:
        self._call()
        super().put(name, path)
        self._call()  # the file was written, but the caller gets an error

    def put_bytes(self, name: str, data: bytes) -> None:
        self._call()
        super().put_bytes(name, data)

    def entries(self, under: str = "") -> Iterator[Entry]:
        self._call()
        return super().entries(under)


def _manifest_first(self: Any, made: Manifest, blocks: Any) -> Manifest:
    """The wrong order: a copy that is killed after its manifest looks whole."""
    self.place.put_bytes(name_of(self.id), made.dumps())
    self.place.put(made.file.name, os.path.join(self.work, made.file.name))
    self._put_artifacts(made.artifacts, blocks)
    return made
