"""Restore a copy into an empty place: `restore --to DIR`, or `--to postgresql://…` for copies by rows.

`meta.copy_of` of the restored store names the copy, and makes the store read only: it has no record of the effects that
were sent after the copy was taken. The database gets its name last. If the process dies before that, there is no store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from standfast import crash
from standfast.admin.copies import packing
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


def restore(
    manifest: Manifest,
    place: CopyPlace,
    to: Target,
    progress: Progress,
    *,
    meta: dict[str, str] | None = None,
    aside: str = "",
    carried: Carried | None = None,
) -> Restored:
    """Restore into a directory without a store, or into a database without one. Every hash is compared.

    `meta` are rows of the table `meta` for the restored store. On a server, `aside` is the new name of the old schema.
    `carried` gets the last sequence number of the old store, or None if its ledger could not be carried over. It
    returns more rows of `meta`.
    """
    if manifest.schema > LATEST:
        raise SchemaTooNew(
            f"the copy {manifest.id} has schema {manifest.schema}; this standfast knows schemas up to {LATEST}",
            "restore it with the standfast that took it",
            code="copy_too_new",
        )
    with _named(manifest, place):
        if to.engine == "postgres":
            _into_server(manifest, place, to.location, progress, meta or {}, aside, carried)
        else:
            _into_directory(manifest, place, to.location, progress, meta or {})
    return Restored(manifest.id, to.shown, manifest.seq, manifest.taken_us, len(manifest.artifacts))


@contextmanager
def _named(manifest: Manifest, place: CopyPlace) -> Iterator[None]:
    """Add the name of the copy to its errors."""
    try:
        yield
    except Corrupt as error:
        raise damaged(manifest.id, place.shown, error.message) from error
    except FileNotFoundError as error:
        raise damaged(
            manifest.id, place.shown, f"a file is missing: {os.path.basename(str(error.filename))}"
        ) from error
    except OSError as error:
        raise failed(manifest.id, place.shown, "restored from", reason(error)) from error
    except StorageError as error:
        if error.code not in ("disk_full", "not_stored"):
            raise
        raise failed(manifest.id, place.shown, "restored from", error.message) from error


def _into_directory(
    manifest: Manifest, place: CopyPlace, directory: str, progress: Progress, meta: dict[str, str]
) -> None:
    from standfast.db.sqlite import copying

    final = os.path.join(directory, DATABASE)
    if os.path.lexists(final):
        raise Conflict(f"there is a store in {directory}", "restore into an empty directory: --to DIR")
    make_private(directory)
    incoming = f"{final}.incoming"
    if os.path.lexists(incoming):
        os.unlink(incoming)  # a killed restore left it
    os.close(os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    if manifest.by_rows:
        copying.load(incoming, manifest.schema, tables.by_table(_lines(manifest, place, progress), manifest.schema))
    else:
        with open(incoming, "wb") as file:
            file.writelines(_raw(manifest, place, progress))
    copying.put_meta(incoming, {**meta, "copy_of": manifest.id})
    for done, digest in enumerate(manifest.artifacts):
        progress("restoring artifacts", done, len(manifest.artifacts))
        blocks = place.read(artifact_name(digest))
        artifact_files.keep(os.path.join(directory, ARTIFACTS), digest, blocks, SYSTEM.now_us())
    crash.point("restore.before_rename")
    sync(incoming)
    os.rename(incoming, final)
    sync(directory)


def _into_server(
    manifest: Manifest,
    place: CopyPlace,
    url: str,
    progress: Progress,
    meta: dict[str, str],
    aside: str,
    carried: Carried | None,
) -> None:
    from standfast.db.postgres import copying

    if not manifest.by_rows:
        raise InvalidInput(f"the copy {manifest.id} is a SQLite file and does not restore into a server", "--to DIR")
    rows = tables.by_table(_lines(manifest, place, progress), manifest.schema)
    with copying.loading(url, manifest.schema, rows, manifest.id, aside) as connection:
        copying.put_meta(connection, meta)
        for done, digest in enumerate(manifest.artifacts):
            progress("restoring artifacts", done, len(manifest.artifacts))
            copying.put_chunks(connection, digest, _checked(place.read(artifact_name(digest)), digest))
        if aside and carried is not None:
            texts = tables.carrying_over(manifest.schema, aside, manifest.seq)
            lacking = tables.lacking(aside, manifest.seq)
            copying.put_meta(connection, carried(copying.carry_over(connection, aside, lacking, texts)))
        crash.point("restore.before_rename")


def _raw(manifest: Manifest, place: CopyPlace, progress: Progress) -> Iterator[bytes]:
    done = 0
    for block in packing.unpacked(place.read(manifest.file.name), manifest.file):
        done += len(block)
        progress("restoring", done, manifest.file.raw_bytes)
        yield block


def _lines(manifest: Manifest, place: CopyPlace, progress: Progress) -> Iterator[bytes]:
    rest = b""
    for block in _raw(manifest, place, progress):
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
