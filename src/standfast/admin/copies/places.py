"""Places for copies: a directory, or a bucket of S3 or a compatible service.

A file appears in a place as a whole or not at all, and is durable when `put` returns. Every failure is an OSError.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from standfast.config.target import COPIES_VARIABLE, copies_dir, expand_home, home
from standfast.core import file_lock
from standfast.core.buckets import BLOCK_BYTES, Bucket, Entry
from standfast.db.sqlite.location import make_private
from standfast.errors import InvalidInput, StorageError

LOCK_WAIT_S = 30.0
LEFT_AFTER_S = 24 * 3600
"""After this time, temporary directories of killed processes are removed."""
_WORK = "incoming-"


def opened(text: str | None) -> CopyPlace:
    """The place with this name: a directory, or s3://BUCKET/PREFIX."""
    if text is None:
        return Directory(os.path.abspath(copies_dir(os.environ)))
    if text.startswith("s3://"):
        return Bucket.named(text)
    if "://" in text:
        raise InvalidInput(
            f"{text.partition('://')[0]}:// is not a place for copies", "a directory, or s3://BUCKET/NAME"
        )
    return Directory(os.path.abspath(expand_home(text, {"HOME": home(os.environ)})))


def configured(to: str | None) -> CopyPlace:
    """The default place of copies: STANDFAST_COPIES_DIR, else `[copies] to`, else beside the memory of stores."""
    return opened(None if os.environ.get(COPIES_VARIABLE, "").strip() else to)


class Directory:
    """A directory that only its owner may read."""

    def __init__(self, path: str) -> None:
        self.path = self.shown = path

    def of(self, store_id: str) -> Directory:
        return Directory(os.path.join(self.path, store_id))

    def stores(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.path) if name.startswith("sto_"))
        except FileNotFoundError:
            return []

    def put(self, name: str, path: str) -> None:
        """Move a finished file into the place. The file is in `working`, so it is on the same file system."""
        final = os.path.join(self.path, name)
        make_private(os.path.dirname(final))
        sync(path)
        os.replace(path, final)
        while final != self.path:  # a directory on the way may be new itself
            final = os.path.dirname(final)
            sync(final)

    def put_bytes(self, name: str, data: bytes) -> None:
        with self.working() as work:
            path = os.path.join(work, "file")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            self.put(name, path)

    def read(self, name: str) -> Iterator[bytes]:
        fd = os.open(os.path.join(self.path, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(fd, "rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                yield block

    def entries(self, under: str = "") -> Iterator[Entry]:
        """The files at the top, or all files below the directory `under`."""
        top = os.path.join(self.path, under)
        for directory, inner, names in os.walk(top):
            if not under:
                inner.clear()
            for name in names:
                path = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    found = os.stat(path, follow_symlinks=False)
                    yield Entry(os.path.relpath(path, self.path), found.st_size, found.st_mtime_ns // 1000)

    def remove(self, name: str) -> None:
        path = os.path.join(self.path, name)
        with suppress(FileNotFoundError):
            os.unlink(path)
        sync(os.path.dirname(path))

    @contextmanager
    def working(self) -> Iterator[str]:
        """A private directory for unfinished files, removed afterwards."""
        make_private(self.path)
        work = tempfile.mkdtemp(prefix=_WORK, dir=self.path)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def locked(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock of the place: shared to take a copy, exclusive (`alone`) to remove files."""
        make_private(self.path)
        busy = f"another process has taken or removed copies in {self.path} for {LOCK_WAIT_S:.0f} s"
        path = os.path.join(self.path, "lock")
        with file_lock.locked(
            file_lock.opened(path), busy, "try again when it is finished", wait_s=LOCK_WAIT_S, shared=not alone
        ):
            if alone:
                self._tidy()
            yield

    def _tidy(self) -> None:
        """Remove what killed processes left unfinished."""
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            if name.startswith(_WORK) and os.stat(path).st_mtime < time.time() - LEFT_AFTER_S:
                shutil.rmtree(path, ignore_errors=True)

    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


CopyPlace: TypeAlias = Directory | Bucket
"""A place that belongs to one store, or the `root` above the stores."""


def sync(path: str) -> None:
    """Return once a file or a directory is on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def reason(error: OSError) -> str:
    """The answer of a storage location, in one line."""
    return error.strerror or str(error).strip().partition("\n")[0]


def joined(blocks: Iterable[bytes], limit_bytes: int) -> bytes:
    """A small file as a whole. Raises StorageError past the limit."""
    found = bytearray()
    for block in blocks:
        found += block
        if len(found) > limit_bytes:
            raise StorageError(f"a file is larger than {limit_bytes} bytes")
    return bytes(found)
