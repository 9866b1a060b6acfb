"""The bytes of artifacts as files, on SQLite: `artifacts/ab/cdef…` beside the database.

A file's name is the digest of its bytes, so nothing a caller says becomes part of a path. The
order is what makes it safe: a temporary file is written and synced, renamed to its digest, the
directories are synced, and only then is the row written that speaks of it. Killed or cut off
anywhere, the store never names bytes that are not there; leftover bytes are garbage.

Garbage is a file no row speaks of. Between its rename and its row a file looks just like that, so
a writer holds the lock file shared over that stretch, and the collector holds it alone.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from standfast import crash
from standfast.errors import Busy, Corrupt, StorageError

BLOCK_BYTES = 256 * 1024
PREFIX = "sha256:"
COLLECTOR_WAIT_S = 10.0
PUT_WAIT_S = 30.0
"""How long a put waits for the collector, as long as any write waits for its turn."""

_INCOMING = "incoming-"
_LOCK = "lock"
_HEX = frozenset("0123456789abcdef")
_DIRECTORY_MODE = 0o700
_FILE_MODE = 0o600


class Found(NamedTuple):
    """One file of the directory: an artifact's bytes, or what an interrupted put left behind."""

    path: str
    digest: str | None
    size_bytes: int
    written_us: int


class Incoming:
    """Bytes on their way in: written, synced, and not yet under their own name."""

    __slots__ = ("_root", "_temporary", "digest", "size_bytes")

    def __init__(self, root: str, temporary: str, digest: str, size_bytes: int) -> None:
        self._root = root
        self._temporary = temporary
        self.digest = digest
        self.size_bytes = size_bytes

    def settle(self) -> None:
        """Give the bytes their name, durably. A file of that name is replaced: it says the same, or is damaged."""
        final = path_of(self._root, self.digest)
        shard = os.path.dirname(final)
        with _storing(self._root):
            with suppress(FileExistsError):
                os.mkdir(shard, _DIRECTORY_MODE)
            crash.point("artifact.before_rename")
            os.replace(self._temporary, final)
            crash.point("artifact.after_rename")
            # The rename left one directory and entered another, and the other may be new itself.
            _sync_directory(shard)
            _sync_directory(self._root)
        self._temporary = ""

    def discard(self) -> None:
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary)


def directory(database: str) -> str:
    """Where the bytes of this database's artifacts are.

    Two databases in one directory share no files: the collector of one knows nothing of the other.
    """
    parent, name = os.path.split(database)
    return os.path.join(parent, "artifacts" if name == "standfast.db" else f"{name}.artifacts")


def path_of(root: str, digest: str) -> str:
    """The file of a digest. For any value of a row, only a digest becomes a path."""
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
    for block in blocks:  # foreign code: what a caller's stream raises passes unchanged
        hashed.update(block)
        incoming.size_bytes += len(block)
        with _storing(root):
            _write_all(fd, block)
    with _storing(root):
        # Its age is counted by the store's clock, the one the collector asks.
        os.utime(fd, ns=(now_us * 1000, now_us * 1000))
        _sync(fd)
    incoming.digest = PREFIX + hashed.hexdigest()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read(root: str, digest: str, size_bytes: int) -> Iterator[bytes]:
    """The bytes, block by block; what follows the last one is the check that they were the right ones.

    Raises Corrupt, with code "artifact_missing" where there is no file. No more than
    `size_bytes` and one block are read, even if the file has grown.
    """
    with _opened(path_of(root, digest)) as file:
        yield from compared(iter(lambda: file.read(BLOCK_BYTES), b""), digest, size_bytes)


def compared(blocks: Iterable[bytes], digest: str, size_bytes: int) -> Iterator[bytes]:
    """The blocks, no more than `size_bytes`; after the last one the digest has been compared. Raises Corrupt."""
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
        f"the stored bytes of {digest} are not the ones that were put: they were changed or damaged",
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


# -- the collector's side ------------------------------------------------------------------------------


def scan(root: str, before_us: int) -> Iterator[Found]:
    """Files written before a moment, in no order; other files are skipped."""
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
    """Remove a file the caller knows to be garbage, if it is still the old one. The lock is held alone."""
    try:
        if os.stat(found.path, follow_symlinks=False).st_mtime_ns // 1000 >= before_us:
            return False
        os.unlink(found.path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def putting(root: str) -> Iterator[None]:
    """From a file's rename to its row's commit: the collector stays out. Any number may put at once. Raises Busy."""
    with _locked(root, fcntl.LOCK_SH, PUT_WAIT_S, "artifacts are being collected", "put it again later"):
        yield


@contextmanager
def collecting(root: str) -> Iterator[None]:
    """Alone: no file is between its rename and its row. Raises Busy if that moment does not come."""
    words = "artifacts are being put without a pause"
    with _locked(root, fcntl.LOCK_EX, COLLECTOR_WAIT_S, words, "collect again later"):
        yield


@contextmanager
def _locked(root: str, kind: int, wait_s: float, words: str, hint: str) -> Iterator[None]:
    fd = _lock_file(root)
    try:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise Busy(words, hint) from None
                time.sleep(0.01)
        yield
    finally:
        _unlock(fd)


def _lock_file(root: str) -> int:
    with _storing(root):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(os.path.join(_made(root), _LOCK), flags, _FILE_MODE)


def _unlock(fd: int) -> None:
    # Explicitly: a child forked meanwhile has a copy of the descriptor, and closing ours alone
    # would leave the lock with it.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


# -- small parts -----------------------------------------------------------------------------------------


def _made(root: str) -> str:
    """The directory's real path; made private, and durably, if it was not there."""
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
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # there, fsync stops at the drive's own cache
    else:
        os.fsync(fd)


@contextmanager
def _storing(root: str) -> Iterator[None]:
    """A full or broken disk, in our words: the row was not written, so nothing was stored."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the artifact was not stored in {root}: {error.strerror}", "standfast doctor", code="not_stored"
        ) from error
