"""The open files of a store: the database with its connection, the WAL with our locks, and the notification file.

Opening runs under the lock between processes:

    finish a restore ─▶ compare the files ─▶ repair a failed fsync ─▶ connect ─▶ migrate ─▶ lock our own bytes

Another program may close or recover the file at that moment, so opening is retried up to a deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import apsw

from standfast.db.contract import DEADLINE_S, Caller, OnMigrate
from standfast.db.migrations.migration import Migration
from standfast.db.sqlite import forks, library, location, migrate, notify
from standfast.db.sqlite.lock import FileLock, busy, cannot_open
from standfast.db.sqlite.wal import Files, Probe, Replaced
from standfast.errors import StorageError

REPLACED_S = 2.0
"""How long an open waits for a process that closes or reopens a store whose files were replaced."""
_PRAGMAS = """
PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864;
PRAGMA foreign_keys=ON; PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0;
PRAGMA trusted_schema=OFF; PRAGMA secure_delete=ON
"""


class OpenStore:
    """One open store. Only the writer thread uses `connection`, `files` and `bell`."""

    def __init__(
        self,
        path: str,
        caller: Caller,
        migrations: Sequence[Migration],
        *,
        on_create: Callable[[], None],
        on_migrate: OnMigrate,
    ) -> None:
        self.path = path
        self._caller = caller
        self._migrations = migrations
        self._on_create = on_create
        self._on_migrate = on_migrate
        self._forks = forks.count()
        self._open_now = False
        with _translated(path):
            self.lock = FileLock(path + ".lock")
            try:
                self._open_under_lock()
            except BaseException:
                self.lock.close()
                raise

    def _open_under_lock(self) -> None:
        start = time.monotonic()
        while True:
            self.lock.acquire(start + DEADLINE_S - time.monotonic())
            try:
                return self._open()
            except Replaced as error:
                if time.monotonic() > start + min(REPLACED_S, DEADLINE_S):
                    raise error.refusal() from None
            except (*library.RETRYABLE, BlockingIOError):
                if time.monotonic() > start + DEADLINE_S:
                    raise
            finally:
                self.lock.release()
            library.pause(0.05)

    def _open(self) -> None:
        """Open the store. Our descriptors are opened before SQLite's and closed after them."""
        location.complete_restore(self.path)
        empty = location.is_empty(self.path)
        if empty:
            self._on_create()
        probe = Probe(self.path, create=empty)
        connection = files = None
        try:
            probe.refuse_foreign_log(self.lock)
            self._heal()  # before any write
            self.connection = connection = self.connect()
            self.cursor = connection.cursor()
            self._bring_up(connection, empty=empty)
            self.store_id, self.epoch, _, self.copy_of, self.moved = migrate.identity(connection)
            self.files = files = Files(probe, self.lock)
            self._heal()  # the kernel reports a failed fsync only to descriptors that were open then
            self.bell = notify.Bell(self.path + ".bell")
        except BaseException:
            if connection is not None:
                connection.close()
            (files or probe).close()
            raise
        self._open_now = True

    def _bring_up(self, connection: apsw.Connection, *, empty: bool) -> None:
        """Make the store, or upgrade its schema. A database of another program is refused before anything changes."""
        migrate.refuse_foreign(connection, migrate.version(connection))
        if not empty and migrate.version(connection) == 0:
            self._on_create()
        mode = connection.execute("PRAGMA journal_mode=WAL").get
        if mode != "wal":
            raise StorageError(f"{self.path} cannot use a write-ahead log (it answers {mode})", "standfast doctor")
        found, latest = migrate.version(connection), self._migrations[-1].version
        if 0 < found < latest:
            self._on_migrate(migrate.identity(connection)[0], found, latest)
        migrate.migrate(connection, self._caller, self._migrations)

    def _heal(self) -> None:
        """Rewrite the WAL byte for byte after a failed fsync of some process.

        The WAL may not be on disk, although the kernel has marked its pages clean. Rewriting makes the pages dirty,
        and the next fsync really writes them. A checkpoint does not help: no page of the WAL may reach the database
        before the whole WAL is on disk.
        """
        healing = self._wound + ".healing"
        with suppress(FileNotFoundError):
            os.replace(self._wound, healing)  # a sync that fails after this line leaves a new mark
        if not os.path.exists(healing):
            return
        with suppress(FileNotFoundError):
            fd = os.open(self.path + "-wal", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                at = 0
                while part := os.pread(fd, 1 << 20, at):
                    at += os.pwrite(fd, part, at)
                os.fdatasync(fd)
            finally:
                os.close(fd)
        os.unlink(healing)

    @property
    def _wound(self) -> str:
        return self.path + ".unsynced"

    def mark_unsynced(self) -> None:
        """After a failed fsync: leave a mark for the next process that opens the store."""
        with suppress(OSError):
            os.close(os.open(self._wound, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def connect(self) -> apsw.Connection:
        """A new connection with our settings."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(self.path, flags=flags, statementcachesize=256)
        connection.set_busy_timeout(200)  # foreign programs only; ours wait at the file lock
        migrate.define_guard(connection)
        connection.execute(_PRAGMAS).fetchall()
        return connection

    def is_open(self) -> bool:
        return self._open_now

    @property
    def inherited(self) -> bool:
        """Whether this process is a forked child, and the parent opened the store."""
        return self._forks != forks.count()

    def refuse_in_child(self) -> None:
        """A body that forked also returns in the child, which must not touch the transaction of its parent."""
        if self.inherited:
            raise forks.refused()

    def close(self) -> None:
        """In the writer thread. No reader is open."""
        try:
            # The next opener reads the WAL again. A WAL that was replaced under us must not reach the database.
            self.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self.connection.close()
        finally:
            self.files.close()
            self.bell.close()
            self.lock.close()
            self._open_now = False


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Translate the errors of opening a file."""
    end = time.monotonic() + DEADLINE_S
    try:
        yield
    except apsw.Error as error:
        raise library.translated(error, path) from error
    except BlockingIOError as error:
        raise busy(path + ".lock", end - time.monotonic()) from error
    except OSError as error:
        raise cannot_open(path, error) from error
