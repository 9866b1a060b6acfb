"""Restore a copy into an empty place: `restore --to DIR`, or `--to postgresql://…` for copies by rows.

`meta.copy_of` of the restored store names the copy, and makes the store read only: it has no record of the effects that
were sent after the copy was taken. The database gets its name last. If the process dies before that, there is no store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from standfast import crash
from standfast.admin.copies import compression
from standfast.admin.copies.manifest import Manifest, damaged, failed
from standfast.admin.copies.places import CopyPlace, reason, sync
from standfast.admin.copies.take import ARTIFACTS, artifact_name
from standfast.clock import SYSTEM
from standfast.config.target import Target
from standfast.core import artifact_files
from standfast.core.progress import Progress
from standfast.db import tables
from standfast.db.migrations import LATEST
from standfast.db.sqlite.location import make_private
from standfast.errors import Conflict, Corrupt, InvalidInput, SchemaTooNew, StorageError
from standfast.models import Model

Carried = Callable[[int | None], dict[str, str]]
DATABASE = "standfast.db"


class Restored(Model):
    """A restored copy, which is read only."""

    copy: str
    to: str
    """The directory, or the address of the server without its password."""
    seq: int
    taken_us: int
    artifacts: int


def restore(manifest: Manifest, place: CopyPlace, to: Target, progress: Progress) -> Restored:
    """Restore, read only, into a directory without a store or a database without one. Every hash is compared."""
    restoring = Restoring(manifest, place, progress)
    if to.engine == "postgres":
        restoring.into_server(to.location)
    else:
        restoring.into_directory(to.location)
    return Restored(manifest.id, to.shown, manifest.seq, manifest.taken_us, len(manifest.artifacts))


class Restoring(NamedTuple):
    """One restore. `meta` are rows of the table `meta` for the restored store."""

    manifest: Manifest
    place: CopyPlace
    progress: Progress

    def into_directory(self, directory: str, meta: Mapping[str, str] = {}) -> None:
        """Make the file `DATABASE` and the artifacts in this directory."""
        from standfast.db.sqlite import copies

        final = os.path.join(directory, DATABASE)
        with self._named():
            if os.path.lexists(final):
                raise Conflict(f"there is a store in {directory}", "restore into an empty directory: --to DIR")
            make_private(directory)
            incoming = f"{final}.incoming"
            if os.path.lexists(incoming):
                os.unlink(incoming)  # a killed restore left it
            os.close(os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            if self.manifest.by_rows:
                copies.load(incoming, self.manifest.schema, self._rows())
            else:
                with open(incoming, "wb") as file:
                    file.writelines(self._raw())
            copies.put_meta(incoming, {**meta, "copy_of": self.manifest.id})
            for digest, blocks in self._artifacts():
                artifact_files.keep(os.path.join(directory, ARTIFACTS), digest, blocks, SYSTEM.now_us())
            crash.point("restore.before_rename")
            sync(incoming)
            os.rename(incoming, final)
            sync(directory)

    def into_server(
        self, url: str, meta: Mapping[str, str] = {}, aside: str = "", carried: Carried | None = None
    ) -> None:
        """Make the store in this database, in one transaction.

        `aside` is the new name of the old schema. `carried` gets the last sequence number of the old store, or None if
        its ledger could not be carried over. It returns more rows of `meta`.
        """
        from standfast.db.postgres import copies

        manifest = self.manifest
        if not manifest.by_rows:
            fact = f"the copy {manifest.id} is a SQLite file and does not restore into a server"
            raise InvalidInput(fact, "--to DIR")
        with (
            self._named(),
            copies.loading(url, manifest.schema, self._rows(), manifest.id, aside) as connection,
        ):
            copies.put_meta(connection, meta)
            for digest, blocks in self._artifacts():
                copies.put_chunks(connection, digest, _checked(blocks, digest))
            if aside and carried is not None:
                texts = tables.carrying_over(manifest.schema, aside, manifest.seq)
                lacking = tables.lacking(aside, manifest.seq)
                copies.put_meta(connection, carried(copies.carry_over(connection, aside, lacking, texts)))
            crash.point("restore.before_rename")

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Refuse a newer schema, and add the name of the copy to other errors."""
        copy_id, place = self.manifest.id, self.place.shown
        if self.manifest.schema > LATEST:
            raise SchemaTooNew(
                f"the copy {copy_id} has schema {self.manifest.schema}; this standfast knows schemas up to {LATEST}",
                "restore it with the standfast that took it",
                code="copy_too_new",
            )
        try:
            yield
        except Corrupt as error:
            raise damaged(copy_id, place, error.message) from error
        except FileNotFoundError as error:
            missing = os.path.basename(str(error.filename))
            raise damaged(copy_id, place, f"a file is missing: {missing}") from error
        except OSError as error:
            raise failed(copy_id, place, "restored from", reason(error)) from error
        except StorageError as error:
            if error.code not in ("disk_full", "not_stored"):
                raise
            raise failed(copy_id, place, "restored from", error.message) from error

    def _artifacts(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        for done, digest in enumerate(self.manifest.artifacts):
            self.progress("restoring artifacts", done, len(self.manifest.artifacts))
            yield digest, self.place.read(artifact_name(digest))

    def _rows(self) -> Iterator[tuple[tables.Table, Iterator[Any]]]:
        return tables.by_table(self._lines(), self.manifest.schema)

    def _raw(self) -> Iterator[bytes]:
        done = 0
        for block in compression.unpacked(self.place.read(self.manifest.file.name), self.manifest.file):
            done += len(block)
            self.progress("restoring", done, self.manifest.file.raw_bytes)
            yield block

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for block in self._raw():
            *whole, rest = (rest + block).split(b"\n")
            yield from whole
        if rest:
            raise Corrupt("the last row has no end")


def _checked(blocks: Iterator[bytes], digest: str) -> Iterator[bytes]:
    """Yield the bytes in chunks of `BLOCK_BYTES`. Raises Corrupt at the end if they have another digest."""
    from hashlib import sha256

    hashed, waiting = sha256(), b""
    for block in blocks:
        hashed.update(block)
        waiting += block
        while len(waiting) > artifact_files.BLOCK_BYTES:
            yield waiting[: artifact_files.BLOCK_BYTES]
            waiting = waiting[artifact_files.BLOCK_BYTES :]
    yield waiting
    if artifact_files.PREFIX + hashed.hexdigest() != digest:
        raise artifact_files.damaged(digest)
