"""Protections that SQLite does not have: locks that no other close can release, and a check that the files still belong
to the store.

*Locks.* POSIX locks belong to the process. If any library opens and closes the database file in it, SQLite's locks are
dropped without an error. Then the next other process that closes the file deletes the WAL that we still use, and
acknowledged rows are lost. So we hold locks on the same bytes through open file descriptions, which no other close can
release: the shared range of the database, and one byte of the `-shm`.

*Marks.* Each engine also locks one byte, which SQLite never uses, of database, WAL and `-shm`. An engine that
opens the store compares them. If another process has one of the three files open and not the others, a file was
removed or replaced under that process: two WAL indexes for one WAL would damage the store.

*Identity check.* After the fsync of a group commit, the files we wrote to must be the files at their names. `readlink`
of our own descriptors shows this; a `stat` of the WAL would make the next fsync 1.5 times as slow on current kernels.
The contents are checked too, because a file that is truncated or overwritten in place keeps its name. We read the
header of the database through our descriptor, and compare the WAL with the WAL index. Each page of the database must be
in one of the two files. Before a commit only the name of the WAL index is compared: another program that found no index
may have truncated the WAL.

*Checkpoints.* The writer thread checkpoints, under the lock between processes and after an identity check. It notes the
change counter that the checkpoint left in the `.lock` file. So a process that did not see the checkpoint still detects
an older copy of the database.

*The WAL at open.* SQLite applies any WAL that it finds beside a database. If the database alone was replaced, the pages
of both would be mixed. So the `.lock` file also has the salt of the WAL, and the change counter when that WAL began. A
database with a lower change counter is not opened with that WAL.

This module never opens and closes the database file while SQLite has it open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import time
from collections.abc import Iterator

from standfast.db.sqlite.file_headers import Header, WalIndex
from standfast.db.sqlite.lock import ALARM, FileLock, noted
from standfast.db.store_memory import OVERWRITTEN
from standfast.errors import CommitUnknown, StorageError

_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_F_FULLFSYNC = 51
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_SHM_DEADMAN = 128
_MARK = 0x40000200
"""The first byte past the range that SQLite locks."""
_LINUX = sys.platform == "linux"
_TRIES = 100
"""How many times to read a file that another process may be changing, 1 ms apart."""
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
SIDE_FILES = ("-wal", "-shm")


class Descriptor:
    """An open file. It is closed with its last reference, also after an exception at any bytecode."""

    __slots__ = ("fd",)

    def __init__(self, path: str, flags: int = os.O_RDWR) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


# -- checks at open --------------------------------------------------------------------------------------


class Probe:
    """The files as they are found at open, before SQLite opens them. The caller holds the lock between processes."""

    def __init__(self, database: str, *, create: bool = True) -> None:
        self.path = database
        self.database = Descriptor(database, os.O_RDWR | (os.O_CREAT if create else 0))
        self.shared = False
        """Whether another engine has the store open."""
        self._found = [self.database]
        """Kept open as long as the store, because closing a `-shm` would drop the locks that SQLite holds on it."""
        if not _LINUX:
            return
        marked = [_is_marked(self.database.fd)]
        for suffix in SIDE_FILES:
            try:
                found = Descriptor(database + suffix)
            except FileNotFoundError:
                marked.append(False)
                continue
            self._found.append(found)
            marked.append(_is_marked(found.fd))
        if len(set(marked)) > 1:
            pairs = zip(("", *SIDE_FILES), marked, strict=True)
            raise Replaced([database + suffix for suffix, there in pairs if not there])
        self.shared = marked[0]

    def refuse_foreign_log(self, lock: FileLock) -> None:
        """Check the WAL before SQLite opens the files. Raises StorageError if the database was replaced and its WAL
        was not."""
        wal = self.path + SIDE_FILES[0]
        if _LINUX and not self.shared and is_foreign(self.database.fd, wal, lock.noted()):
            raise foreign_log(self.path)

    def close(self) -> None:
        for descriptor in reversed(self._found):
            descriptor.close()


def foreign(path: str) -> bool:
    """`is_foreign` for a process that does not have the file open."""
    with open(path, "rb", buffering=0) as database, open(path + ".lock", "rb", buffering=0) as lock:
        return _LINUX and is_foreign(database.fileno(), path + SIDE_FILES[0], noted(lock.fileno()))


def is_foreign(database: int, wal: str, note: tuple[int, int, int]) -> bool:
    """Whether the WAL began when the database had a later state than it has now. No process has the store open."""
    changes, salt, base = note
    try:
        with open(wal, "rb", buffering=0) as file:  # no SQLite lock lives on the WAL
            found = file.read(_WAL_HEADER_BYTES + 1)
    except FileNotFoundError:
        return False
    if len(found) <= _WAL_HEADER_BYTES:
        return False
    now = int.from_bytes(found[16:20], "big")
    least = base if now == salt else changes if now == _next(salt) else 0
    return 0 <= Header.read(database).changes < least  # a torn header is read from the WAL


def foreign_log(path: str) -> StorageError:
    return StorageError(
        f"{path} was replaced and {path}-wal was not: that log has pages of another database",
        f"standfast restore --here; or, to open the replaced file alone: mv {path}-wal {path}-wal.old",
        code="files_replaced",
    )


def _next(salt: int) -> int:
    """SQLite adds 1 to the salt when it begins the WAL again."""
    return (salt + 1) & 0xFFFFFFFF


class Replaced(BlockingIOError):
    """Another process has a file of the store open that is no longer at its name."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(errno.EAGAIN, "a file of the store was removed or replaced")
        self.names = names

    def refusal(self) -> StorageError:
        return StorageError(
            f"{' and '.join(self.names)} was removed or replaced while another process has the store open",
            "end the processes that use the store, or wait for their next write; then: standfast doctor",
            code="files_replaced",
        )


# -- checks while open -------------------------------------------------------------------------------------


class Files:
    """Database, WAL and `-shm` of an open store: their locks, their fsync, their identity."""

    def __init__(self, probe: Probe, lock: FileLock) -> None:
        """SQLite has the database open in WAL mode; the probe opened it first. The caller holds the lock."""
        path = probe.path
        self._probe = probe
        self._lock = lock
        self._database = probe.database.fd
        # No SQLite lock lives on the WAL: opening and closing it is harmless.
        self._wal = Descriptor(path + "-wal")
        self._shm = Descriptor(path + "-shm")
        self.path = path + "-wal"
        self._directory = os.path.dirname(path)
        if not _LINUX:
            return
        _share(self._database, _SHARED_FIRST, _SHARED_SIZE)
        _share(self._shm.fd, _SHM_DEADMAN, 1)
        for fd in (self._database, self._wal.fd, self._shm.fd):
            _share(fd, _MARK, 1)
        self._proc = Descriptor("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
        self._links = tuple(b"%d" % fd for fd in (self._database, self._wal.fd, self._shm.fd))
        self._names = self._current_path()
        self._place = _place(self._directory)
        checkpoint, header = WalIndex.read(self._shm.fd).checkpoint, Header.read(self._database)
        self._seen = header, os.lseek(self._database, 0, os.SEEK_END), checkpoint
        """The values of the last check. One object, because the thread that truncates the WAL checks too."""
        if probe.shared and self.changes < lock.changes():
            raise Replaced([path])
        if not probe.shared:  # the file may have been restored while no process used it
            self._note(restored=True)

    @property
    def changes(self) -> int:
        """The change counter of the database at the last check."""
        return self._seen[0].changes if _LINUX else 0

    def settle(self, *, durable: bool) -> None:
        """Everything committed before this call is on disk when it returns, in the files at their names.

        Raises OSError if the disk refuses, and CommitUnknown if a file was removed, replaced or overwritten.
        """
        if durable:
            _sync(self._wal.fd)
        self.check()

    def check(self) -> None:
        """The identity check. Raises CommitUnknown if a file was removed, replaced or overwritten."""
        self._check_names()
        if _LINUX:
            self._check_contents()

    def check_index(self) -> None:
        """Before a commit: the WAL index still has its name."""
        if _LINUX and _readlink(self._links[2], dir_fd=self._proc.fd) != self._names[2]:
            raise _alarm(os.fsdecode(self._names[2]), "was removed or replaced")

    def removed(self) -> bool:
        """Whether the database or the WAL has no name any more: only processes that have it open can read it."""
        return any(os.fstat(fd).st_nlink == 0 for fd in (self._database, self._wal.fd))

    def _check_names(self) -> None:
        if self._current_path() != self._names:
            raise _alarm(self._changed_name(), "was removed or replaced")

    def _current_path(self) -> tuple[bytes, ...]:
        if _LINUX:
            first, second, third = self._links
            proc = self._proc.fd
            return _readlink(first, dir_fd=proc), _readlink(second, dir_fd=proc), _readlink(third, dir_fd=proc)
        return (b"linked" if os.fstat(self._wal.fd).st_nlink else b"gone",)

    def _changed_name(self) -> str:
        now = self._current_path()
        changed = [before for before, after in zip(self._names, now, strict=True) if before != after]
        return os.fsdecode(changed[0]) if changed and _LINUX else self.path

    def _check_directory(self) -> None:
        try:
            there = _place(self._directory)
        except OSError:
            raise _alarm(self._directory, "was removed or replaced") from None
        if there != self._place:
            raise _alarm(self._directory, "was removed or replaced")

    def _check_contents(self) -> None:
        """Check that directory, database, WAL and WAL index agree with each other and with the last check.

        The header changes when any process checkpoints; a checkpoint after VACUUM makes the file smaller. A wrong
        header raises the alarm without a second look, because a checkpoint could write a valid header meanwhile.
        """
        self._check_directory()
        whole = False
        for _ in _tries():
            # Read these and the size before the header, because a checkpoint truncates the file last.
            (last, last_size, last_checkpoint), noted = self._seen, self._lock.changes()
            index = WalIndex.read(self._shm.fd)
            size = os.lseek(self._database, 0, os.SEEK_END)
            header = last
            if os.pread(self._database, 100, 0) != header.bytes:
                header = Header.read(self._database)
                if not (header.follows(last) and self._was_checkpointed(last_checkpoint)):
                    raise self._overwritten()
            if max(header.changes, 0) < noted:
                raise self._overwritten()
            whole = index.frames == 0 or self._is_whole(index)
            # A page is in the database file if it is not in the WAL.
            least = max((index.pages - index.frames) * index.page_size, min(last_size, header.pages * header.page_size))
            if whole and size >= least:
                self._seen = header, size, index.checkpoint
                return
        raise self._overwritten() if whole else _alarm(self.path, "was overwritten or truncated")

    def _was_checkpointed(self, last: tuple[bytes, int, int]) -> bool:
        """Whether the WAL index shows a checkpoint since `last`. If not, the new header is from another program's copy.

        A checkpoint notes its goal in the index before it writes, and its end afterwards. Goal and end also differ
        after a checkpoint that was killed, and after the WAL was recovered.
        """
        index = WalIndex.read(self._shm.fd)
        return index.checkpoint != last or index.goal != index.end

    def note_checkpoint(self) -> None:
        """After a checkpoint, under the lock: note the change counter, with which every engine compares the
        database."""
        if _LINUX:
            self._check_contents()
            self._note()

    def _note(self, *, restored: bool = False) -> None:
        """Note the change counter and the WAL.

        With `restored`, both files may have been replaced since the last note.
        """
        changes, salt, base = self._lock.noted()
        now = int.from_bytes(WalIndex.read(self._shm.fd).salt[:4], "big")
        if now != salt:  # this WAL began after the last note
            base = changes if changes != ALARM and (not restored or now == _next(salt)) else 0
        self._lock.note(max(self.changes, 0), now, base)

    def _overwritten(self) -> CommitUnknown:
        """Note a change counter that no header reaches, so that the other processes raise the alarm too."""
        self._lock.note_alarm()
        return _alarm(os.fsdecode(self._names[0]), "was overwritten or truncated", code=OVERWRITTEN)

    def _is_whole(self, index: WalIndex) -> bool:
        """Whether all frames that the WAL index counts are in the WAL, with the salt of the index."""
        size = _WAL_HEADER_BYTES + index.frames * (_FRAME_HEADER_BYTES + index.page_size)
        return os.pread(self._wal.fd, 8, 16) == index.salt and self.size_bytes() >= size

    def frames(self) -> int:
        """The frames in the WAL, as the WAL index counts them."""
        return WalIndex.read(self._shm.fd).frames

    def size_bytes(self) -> int:
        return os.lseek(self._wal.fd, 0, os.SEEK_END)

    def close(self) -> None:
        """After SQLite has closed. The mark on the database goes first: an opener then finds none of them missing."""
        self._probe.close()
        self._wal.close()
        self._shm.close()
        if _LINUX:
            self._proc.close()


_readlink = os.readlink


def _tries() -> Iterator[None]:
    """Try again after short pauses, because another process may checkpoint between two reads."""
    yield
    for _ in range(_TRIES):
        time.sleep(0.001)
        yield


def _place(directory: str) -> tuple[int, int]:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _alarm(path: str, what: str, *, code: str | None = None) -> CommitUnknown:
    return CommitUnknown(
        f"{path} {what} while this process was writing to it",
        "look the write up by its key before repeating it; then: standfast doctor",
        code=code,
    )


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, _F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _share(fd: int, start: int, length: int) -> None:
    try:
        fcntl.fcntl(fd, _F_OFD_SETLK, _range(fcntl.F_RDLCK, start, length))
    except OSError as error:
        # A foreign process may hold the whole file exclusively for a moment (recovery); the
        # caller retries its open.
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise BlockingIOError(error.errno, "the database is locked by another program") from error


def _is_marked(fd: int) -> bool:
    """Whether another engine has this very file open."""
    answer = fcntl.fcntl(fd, _F_OFD_GETLK, _range(fcntl.F_WRLCK, _MARK, 1))
    return bool(struct.unpack("@hhqqi4x", answer)[0] != fcntl.F_UNLCK)


def _range(kind: int, start: int, length: int) -> bytes:
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, start, length, 0)
