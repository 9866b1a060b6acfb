"""Take a copy: one snapshot, one compressed file, the artifacts that the snapshot names, and last the manifest.

    snapshot ─▶ file ─▶ artifacts ─▶ manifest

Everything that was acknowledged before the snapshot is in the copy. If the process dies before the manifest is written,
there is no copy, and a later `forget` removes its files. Artifacts that the place already has are not written again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import metadata
from typing import NamedTuple

from standfast import crash
from standfast.admin.copies import child, compression
from standfast.admin.copies.manifest import File, Manifest, Rows, failed, name_of
from standfast.admin.copies.places import CopyPlace, reason
from standfast.core import artifact_files
from standfast.core.progress import Progress
from standfast.db import tables
from standfast.errors import Corrupt, StorageError
from standfast.ids import new_id

ARTIFACTS = "artifacts"


class Source(NamedTuple):
    """The store that is copied."""

    engine: str
    location: str
    """The path of the file, or the URL of the server."""
    store_id: str
    artifacts: str = ""
    """Where the artifacts are, if not beside the file."""


class Order(NamedTuple):
    """The facts about a copy that the caller gives."""

    why: str
    """asked, hourly, or the name of the command or migration that follows."""
    note: str | None
    now_us: int
    progress: Progress
    digest: str | None = None
    """The digest of the journal: core/digests.py."""


def take(source: Source, root: CopyPlace, order: Order) -> Manifest:
    """Take one copy. Raises StorageError naming the copy: then it does not exist, and no other copy has changed."""
    copy_id, place = new_id("cpy"), root.of(source.store_id)
    try:
        with place.locked(alone=False), place.working() as work:
            taking = _Taking(source, place, order, copy_id, work)
            return taking.by_rows() if source.engine == "postgres" else taking.by_file()
    except OSError as error:
        raise failed(copy_id, place.shown, "written to", reason(error)) from error
    except StorageError as error:
        raise failed(copy_id, place.shown, "written to", error.message) from error


class _Taking(NamedTuple):
    source: Source
    place: CopyPlace
    order: Order
    id: str
    work: str

    def by_file(self) -> Manifest:
        path = self.source.location
        root = self.source.artifacts or artifact_files.directory(path)
        with ExitStack() as stack:
            if os.path.isdir(root):
                stack.enter_context(artifact_files.putting(root))  # meanwhile the collector removes no artifact
            file, facts = child.run(path, self.work, f"{self.id}.db.{compression.suffix()}", self.order.progress)
            counted = {table: Rows(rows) for table, rows in facts.rows.items()}
            made = self._manifest(file, counted, facts.artifacts, epoch=facts.epoch, schema=facts.schema, seq=facts.seq)
            return self._finish(made, lambda digest: artifact_files.read(root, digest, facts.artifacts[digest]))

    def by_rows(self) -> Manifest:
        from standfast.db.postgres import copies

        with copies.snapshot(self.source.location) as found:
            name = f"{self.id}.rows.{compression.suffix()}"
            sums = {table.name: tables.Sum() for table in found.tables}

            def lines() -> Iterator[bytes]:
                for done, table in enumerate(found.tables):
                    self.order.progress(f"reading {table.name}", done, len(sums))
                    yield tables.header(table)
                    for row in found.rows(table):
                        line = tables.line(row)
                        sums[table.name].add(line)
                        yield line + b"\n"

            file = compression.packed(_together(lines()), os.path.join(self.work, name), name)
            counted = {table: Rows(sum.rows, sum.hash) for table, sum in sums.items()}
            epoch, schema = int(found.meta.get("epoch", "1")), int(found.meta["schema_version"])
            made = self._manifest(file, counted, found.artifacts, epoch=epoch, schema=schema, seq=found.seq)
            return self._finish(made, found.blocks)

    def _manifest(self, file: File, counted: dict[str, Rows], artifacts: dict[str, int], **numbers: int) -> Manifest:
        return Manifest(
            id=self.id,
            store_id=self.source.store_id,
            engine=self.source.engine,
            digest=self.order.digest,
            taken_us=self.order.now_us,
            host=os.uname().nodename,
            version=metadata.version("standfast"),
            why=self.order.why,
            note=self.order.note,
            file=file,
            tables=counted,
            artifacts=artifacts,
            unreadable=[],
            **numbers,
        )

    def _finish(self, made: Manifest, blocks: Callable[[str], Iterator[bytes]]) -> Manifest:
        crash.point("copy.before_file")
        self.place.put(made.file.name, os.path.join(self.work, made.file.name))
        crash.point("copy.before_artifacts")
        unreadable = self._put_artifacts(made.artifacts, blocks)
        kept = {digest: size for digest, size in made.artifacts.items() if digest not in unreadable}
        made = made.replace(artifacts=kept, unreadable=unreadable)
        crash.point("copy.before_manifest")
        self.place.put_bytes(name_of(self.id), made.dumps())
        crash.point("copy.after_manifest")
        return made

    def _put_artifacts(self, wanted: dict[str, int], blocks: Callable[[str], Iterator[bytes]]) -> list[str]:
        """Write the artifacts that the place lacks. Returns the digests that the store itself cannot read."""
        there = {entry.name: entry.size_bytes for entry in self.place.entries(ARTIFACTS)} if wanted else {}
        unreadable = []
        for done, (digest, size_bytes) in enumerate(wanted.items()):
            self.order.progress("copying artifacts", done, len(wanted))
            name = artifact_name(digest)
            if there.get(name) == size_bytes:
                continue
            path = os.path.join(self.work, "artifact")
            try:
                write(path, blocks(digest), digest)
            except Corrupt:  # a copy of the rest is useful; `artifact verify` reports this artifact too
                unreadable.append(digest)
            else:
                self.place.put(name, path)
        return unreadable


def artifact_name(digest: str) -> str:
    """The name of an artifact in a place."""
    return os.path.relpath(artifact_files.path_of(ARTIFACTS, digest), ".")


def write(path: str, blocks: Iterator[bytes], digest: str) -> None:
    """Write an artifact to a new file. Raises Corrupt if its bytes are not those of the digest."""
    from hashlib import sha256

    hashed = sha256()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        for block in blocks:
            hashed.update(block)
            file.write(block)
    if artifact_files.PREFIX + hashed.hexdigest() != digest:
        raise artifact_files.damaged(digest)


def _together(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Join lines into blocks of 1 MiB, so that the compressor is not called once per row."""
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= compression.BLOCK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)
