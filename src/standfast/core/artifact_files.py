"""The bytes of artifacts as files, on SQLite: `artifacts/ab/cdef…` beside the database.

The name of a file is the digest of its bytes, so no text of a caller becomes part of a path. A put writes and syncs a
temporary file, renames it to its digest, syncs the directories, and then writes the row that names it. So after a kill
or a power loss at any point, no row names bytes that are not there.

Garbage is a file that no row names. A file looks like that between its rename and its row. So a put holds a shared lock
on the lock file from the rename to the commit of the row, and the collector holds it exclusively.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from standfast import crash
from standfast.core import file_lock
from standfast.errors import Corrupt, StorageError

BLOCK_BYTES = 256 * 1024
PREFIX = "sha256:"
COLLECTOR_WAIT_S = 10.0
PUT_WAIT_S = 30.0
"""How long a put waits for the collector. It is as long as a write waits for its turn."""

_INCOMING = "incoming-"
_LOCK = "lock"
_HEX = frozenset("0123456789abcdef")
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class Found(NamedTuple):
    """One file of the directory: the bytes of an artifact, or the temporary file of an interrupted put."""

    path: str
    digest: str | None
    size_bytes: int
    written_us: int


class Incoming:
    """A temporary file that is written and synced, and does not have its final name yet."""

    __slots__ = ("_root", "_temporary", "digest", "size_bytes")

    def __init__(self, root: str, temporary: str, digest: str, size_bytes: int) -> None:
        self._root = root
        self._temporary = temporary
        self.digest = digest
        self.size_bytes = size_bytes

    def settle(self) -> None:
        """Rename the file, durably. A file of that name is replaced: it has the same content, or is damaged."""
        final = path_of(self._root, self.digest)
        shard = os.path.dirname(final)
        with _storing(self._root):
            with suppress(FileExistsError):
                os.mkdir(shard, _DIRECTORY_MODE)
            crash.point("artifact.before_rename")
            os.replace(self._temporary, final)
            crash.point("artifact.after_rename")
            # The rename changed two directories, and the shard may be new.
            _sync_directory(shard)
            _sync_directory(self._root)
        self._temporary = ""

    def discard(self) -> None:
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary)


def directory(database: str) -> str:
    """The directory with the artifacts of this database.

    Two databases in one directory share no files, because the collector of one does not know the rows of the other.
    """
    parent, name = os.path.split(database)
    return os.path.join(parent, "artifacts" if name == "standfast.db" else f"{name}.artifacts")


def path_of(root: str, digest: str) -> str:
    """The path of a digest. Raises Corrupt for any other text, so that a changed row never becomes a path."""
    name = digest.removeprefix(PREFIX)
    if len(name) != 64 or not _HEX.issuperset(name):
        raise Corrupt(f"{digest[:80]!r} is not a digest: the row was changed", "standfast doctor")
    return os.path.join(root, name[:2], name[2:])


@contextmanager
def received(root: str, blocks: Iterable[bytes], now_us: int) -> Iterator[Incoming]:
    """Write `blocks` to a temporary file and sync it. Removed at the end unless it was settled."""
    with _storing(root):
        root = _made(root)
        temporary = os.path.join(root, f"{_INCOMING}{os.getpid()}-{os.urandom(8).hex()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
    incoming = Incoming(root, temporary, "", 0)
    try:
        try:
            _write(incoming, fd, blocks, now_us)
        finally:
            os.close(fd)
        yield incoming
    finally:
        incoming.discard()


def keep(root: str, digest: str, blocks: Iterable[bytes], now_us: int) -> None:
    """Store bytes from elsewhere under their digest, durably. Raises Corrupt if they have another one."""
    with received(root, blocks, now_us) as incoming:
        if incoming.digest != digest:
            raise damaged(digest)
        incoming.settle()


def is_sound(root: str, digest: str, size_bytes: int) -> bool:
    """Whether the bytes are there and have this digest. Reads all of them."""
    try:
        for _ in read(root, digest, size_bytes):
            pass
    except Corrupt:
        return False
    return True


def _write(incoming: Incoming, fd: int, blocks: Iterable[bytes], now_us: int) -> None:
    from hashlib import sha256

    root, hashed = incoming._root, sha256()
    for block in blocks:  # foreign code: an exception of the caller's stream passes unchanged
        hashed.update(block)
        incoming.size_bytes += len(block)
        with _storing(root):
            _write_all(fd, block)
    with _storing(root):
        # The collector compares the age of files with the store's clock.
        os.utime(fd, ns=(now_us * 1000, now_us * 1000))
        _sync(fd)
    incoming.digest = PREFIX + hashed.hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read(root: str, digest: str, size_bytes: int) -> Iterator[bytes]:
    """The bytes, block by block. After the last one the digest is compared.

    Raises Corrupt, with code "artifact_missing" if there is no file. It reads at most `size_bytes` and one block, also
    if the file has grown.
    """
    with _opened(path_of(root, digest)) as file:
        yield from compared(iter(lambda: file.read(BLOCK_BYTES), b""), digest, size_bytes)


def compared(blocks: Iterable[bytes], digest: str, size_bytes: int) -> Iterator[bytes]:
    """The blocks, at most `size_bytes`. After the last one the digest is compared. Raises Corrupt."""
    from hashlib import sha256

    hashed, left = sha256(), size_bytes
    for block in blocks:
        left -= len(block)
        hashed.update(block)
        if left < 0:
            break
        yield block
    if left != 0 or PREFIX + hashed.hexdigest() != digest:
        raise damaged(digest)


def damaged(digest: str) -> Corrupt:
    return Corrupt(
        f"the stored bytes of {digest} were changed or damaged: they have another digest",
        "put the same bytes again, or restore a backup: standfast artifact verify lists the affected artifacts",
        code="artifact_damaged",
    )


def missing(digest: str) -> Corrupt:
    return Corrupt(
        f"the bytes of {digest} are missing from the store",
        "put the same bytes again, or restore a backup: standfast artifact verify lists the affected artifacts",
        code="artifact_missing",
    )


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise missing(PREFIX + "".join(path.split(os.sep)[-2:])) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}", "standfast doctor") from error
    with open(fd, "rb", buffering=0) as file:
        try:
            yield file
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}", "standfast doctor") from error


def size_of(root: str, digest: str) -> int | None:
    """The size of a digest's file without reading it; None if there is none."""
    try:
        return os.stat(path_of(root, digest), follow_symlinks=False).st_size
    except OSError:
        return None


# -- collector -----------------------------------------------------------------------------------------


def scan(root: str, before_us: int) -> Iterator[Found]:
    """The files that were written before `before_us`, in no order. Other files are skipped."""
    for entry in _listed(root):
        if entry.name.startswith(_INCOMING):
            yield from _old(entry, None, before_us)
        elif len(entry.name) == 2 and _HEX.issuperset(entry.name) and entry.is_dir(follow_symlinks=False):
            for inner in _listed(entry.path):
                name = entry.name + inner.name
                if len(name) == 64 and _HEX.issuperset(name):
                    yield from _old(inner, PREFIX + name, before_us)


def _listed(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _old(entry: os.DirEntry[str], digest: str | None, before_us: int) -> Iterator[Found]:
    with suppress(FileNotFoundError):  # settled or removed meanwhile
        seen = os.stat(entry.path, follow_symlinks=False)
        if seen.st_mtime_ns // 1000 < before_us:
            yield Found(entry.path, digest, seen.st_size, seen.st_mtime_ns // 1000)


def remove(found: Found, before_us: int) -> bool:
    """Remove a garbage file, unless it was written again. The caller holds the exclusive lock."""
    try:
        if os.stat(found.path, follow_symlinks=False).st_mtime_ns // 1000 >= before_us:
            return False
        os.unlink(found.path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def putting(root: str) -> Iterator[None]:
    """Keep the collector out from the rename of a file to the commit of its row. Puts share the lock. Raises Busy."""
    words = "artifacts are being collected"
    with file_lock.locked(_lock_file(root), words, "put it again later", wait_s=PUT_WAIT_S, shared=True):
        yield


@contextmanager
def collecting(root: str) -> Iterator[None]:
    """Hold the lock exclusively: no file is between its rename and its row. Raises Busy."""
    words = "artifacts are being put without a pause"
    with file_lock.locked(_lock_file(root), words, "collect again later", wait_s=COLLECTOR_WAIT_S):
        yield


def _lock_file(root: str) -> int:
    with _storing(root):
        return file_lock.opened(os.path.join(_made(root), _LOCK))


# -- private functions -----------------------------------------------------------------------------------


def _made(root: str) -> str:
    """The real path of the directory. If it was not there, it is made, private and durable."""
    if not os.path.isdir(root):
        with suppress(FileExistsError):
            os.mkdir(root, _DIRECTORY_MODE)
        _sync_directory(os.path.dirname(root))
    return os.path.realpath(root)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # on macOS fsync does not empty the cache of the drive
    else:
        os.fsync(fd)


@contextmanager
def _storing(root: str) -> Iterator[None]:
    """Turn an error of the disk into StorageError. The row was not written, so no artifact was stored."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the artifact was not stored in {root}: {error.strerror}", "standfast doctor", code="not_stored"
        ) from error
