"""Ways to write one row so that it survives power loss: ours and the usual ones.

A way is opened once in each process, then asked for one writer per caller. Writers of threads are
functions, writers of tasks are coroutines. The usual ways write one small row and nothing else. Ours
writes the same row by a method, as a feature would: with its journal row, in one transaction.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

Write = Callable[[], object]
AsyncWrite = Callable[[], Awaitable[object]]

BUSY_TIMEOUT_MS = 10_000
TABLE = "CREATE TABLE IF NOT EXISTS row (n INTEGER PRIMARY KEY, body TEXT NOT NULL)"
INSERT = "INSERT INTO row (body) VALUES (?)"
BODY = "x" * 200
PAGE = b"\0" * 4096
PAGES = 1000
PASSED_OVER_S = 0.05
_sync = getattr(os, "fdatasync", os.fsync)


class Way(ABC):
    """One way to write, opened in this process."""

    def __init__(self, place: str) -> None:
        """`place` is a directory, or the URL of a server."""
        self.place = place

    def _file(self) -> str:
        return os.path.join(self.place, "rows.sqlite")

    @abstractmethod
    def writers(self, count: int) -> list[Write]:
        """One function for each thread; each call writes one durable row."""

    async def async_writers(self, count: int) -> list[AsyncWrite]:
        raise NotImplementedError

    def close(self) -> None:
        return None

    async def aclose(self) -> None:
        self.close()


class RawSync(Way):
    """No database: overwrite a page in place, sync, again. The highest rate that the disk allows a single caller."""

    def writers(self, count: int) -> list[Write]:
        return [self._writer(number) for number in range(count)]

    def _writer(self, number: int) -> Write:
        fd = os.open(os.path.join(self.place, f"pages-{os.getpid()}-{number}"), os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(fd, PAGE * PAGES, 0)
        os.fsync(fd)
        place = 0

        def write() -> None:
            nonlocal place
            place = (place + 1) % PAGES
            os.pwrite(fd, PAGE, place * len(PAGE))
            _sync(fd)

        return write


class ConnectionEach(Way):
    """A connection for each caller: WAL, synchronous=FULL, a busy timeout. With one caller, the raw insert and sync."""

    def writers(self, count: int) -> list[Write]:
        import apsw

        self._connections = [apsw.Connection(self._file()) for _ in range(count)]
        return [self._writer(connection) for connection in self._connections]

    def _writer(self, connection: Any) -> Write:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
        connection.execute(TABLE)

        def write() -> None:
            connection.execute(INSERT, (BODY,))

        return write

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


class BothRows(Way):
    """Only apsw and our two statements, with synchronous=FULL. No engine with these statements can be faster."""

    def writers(self, count: int) -> list[Write]:
        return [self._writer() for _ in range(count)]

    def _writer(self) -> Write:
        connection, both = self._opened()

        def write() -> None:
            fields = acked()
            connection.execute("BEGIN IMMEDIATE")
            both(fields)
            connection.execute("COMMIT")

        return write

    def _beside(self, name: str) -> int:
        return os.open(os.path.join(self.place, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _opened(self) -> tuple[Any, Callable[[dict[str, object]], None]]:
        """A connection of its own, and the two inserts on it."""
        import apsw

        from standfast.core import journal
        from standfast.db.migrations import MIGRATIONS, ddl

        connection = apsw.Connection(self._file())
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN IMMEDIATE").fetchall()
        if not connection.execute("PRAGMA table_list(meta)").fetchall():  # this process is the first one
            for migration in MIGRATIONS:
                connection.execute(ddl(migration, "sqlite")).fetchall()
        connection.execute(TABLE)
        connection.execute("COMMIT")
        event = journal.SQL.append.sqlite

        def both(fields: dict[str, object]) -> None:
            connection.execute(INSERT, (BODY,))
            connection.execute(event, fields).fetchall()

        return connection, both


class Protected(BothRows):
    """The two rows and the protection of our records, written by hand. The difference to ours is the cost of the
    engine.

    The protection is a lock file against other processes, the guard's trigger on the journal, the identity check of the
    three files, and the notification of waiting readers. There is one caller, in the main thread, without a writer
    thread.
    """

    def _writer(self) -> Write:
        from standfast.db.sqlite import migrate

        connection, both = self._opened()
        migrate.define_guard(connection)
        migrate.protect(connection)
        connection.execute("PRAGMA synchronous=NORMAL")
        lock, bell = self._beside("lock"), self._beside("bell")
        os.pwrite(bell, b"!", 0)
        log = os.open(f"{self._file()}-wal", os.O_RDWR | os.O_CLOEXEC)
        files = [os.open(f"{self._file()}{suffix}", os.O_RDWR | os.O_CLOEXEC) for suffix in ("", "-wal", "-shm")]
        links = [f"/proc/self/fd/{fd}" for fd in files]
        directory = os.path.dirname(self._file())
        flock, pread, sync = fcntl.flock, os.pread, _sync

        def write() -> None:
            fields = acked()
            flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = [os.readlink(link) for link in links]
            connection.execute("BEGIN IMMEDIATE")
            both(fields)
            connection.execute("COMMIT")
            flock(lock, fcntl.LOCK_UN)
            sync(log)
            assert names == [os.readlink(link) for link in links]
            os.stat(directory)
            for fd, count in zip(files, (100, 32, 48), strict=True):
                pread(fd, count, 0)
            pread(bell, 1, 0)

        return write


class Together(BothRows):
    """One commit and one sync for all threads, written by hand: the fastest group commit in one interpreter.

    The last thread to arrive writes the two rows of all threads. Then each thread wakes the next one. It assumes that
    no write fails and that no other process writes.
    """

    def writers(self, count: int) -> list[Write]:
        self._connection, self._both = self._opened()
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._log = os.open(f"{self._file()}-wal", os.O_RDWR | os.O_CLOEXEC)
        self._mutex = threading.Lock()
        self._waiting: dict[int, dict[str, object]] = {}
        self._following: dict[int, int] = {}
        self._turns = [threading.Lock() for _ in range(count)]
        for turn in self._turns:
            turn.acquire()
        return [partial(self._write, place) for place in range(count)]

    def _write(self, place: int) -> None:
        fields = acked()
        with self._mutex:
            self._waiting[place] = fields
            last = len(self._waiting) == len(self._turns)
        if last or not self._turns[place].acquire(timeout=PASSED_OVER_S):
            self._write_for_all(place)
        following = self._following.pop(place, None)
        if following is not None:
            self._turns[following].release()

    def _write_for_all(self, place: int) -> None:
        with self._mutex:
            taken = self._waiting if place in self._waiting else {}
            if taken:
                self._waiting = {}
        if not taken:  # another process was faster
            self._turns[place].acquire()
            return
        self._connection.execute("BEGIN IMMEDIATE")
        for fields in taken.values():
            self._both(fields)
        self._connection.execute("COMMIT")
        _sync(self._log)
        self._following.update(pairwise([place, *(other for other in taken if other != place)]))


class BehindLock(BothRows):
    """The two rows, written by hand under a lock file. Each caller waits for the lock without a timeout and syncs
    outside it.

    This is the write path of an engine for many processes, with only the parts that make the rows durable: no deadline,
    no identity check, no writer thread. The remaining time is the cost of processes, disk and processors.
    """

    def _writer(self) -> Write:
        connection, both = self._opened()
        connection.execute("PRAGMA synchronous=NORMAL")
        lock = self._beside("lock")
        log = os.open(f"{self._file()}-wal", os.O_RDWR | os.O_CLOEXEC)

        def write() -> None:
            fields = acked()
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                connection.execute("BEGIN IMMEDIATE")
                both(fields)
                connection.execute("COMMIT")
            finally:
                fcntl.flock(lock, fcntl.LOCK_UN)
            _sync(log)

        return write


class ExecutorEach(Way):
    """The pattern of aiosqlite: an executor of one thread, one commit per write."""

    def writers(self, count: int) -> list[Write]:
        raise NotImplementedError

    async def async_writers(self, count: int) -> list[AsyncWrite]:
        import sqlite3
        from concurrent.futures import ThreadPoolExecutor

        self._executor = ThreadPoolExecutor(1)
        connection = sqlite3.connect(self._file(), check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(TABLE)
        self._connection = connection
        loop = asyncio.get_running_loop()

        def insert_and_commit() -> None:
            connection.execute(INSERT, (BODY,))
            connection.commit()

        async def write() -> None:
            await loop.run_in_executor(self._executor, insert_and_commit)

        return [write] * count

    def close(self) -> None:
        self._executor.shutdown()
        self._connection.close()


class Ours(Way):
    """The same row and its journal row, by a method."""

    def writers(self, count: int) -> list[Write]:
        import standfast
        from standfast.ids import new_id
        from standfast_prove.bench.rows import Rows, create

        self._store = standfast.open(self._url(), data_dir=self._data_dir())
        create(self._store)
        rows = Rows(self._store._store)
        return [lambda: rows.add(new_id("msg"), BODY)] * count

    async def async_writers(self, count: int) -> list[AsyncWrite]:
        import standfast
        from standfast.aio import AsyncObject
        from standfast.ids import new_id
        from standfast_prove.bench.rows import Rows, create

        self._async_store = await standfast.aopen(self._url(), data_dir=self._data_dir()).__aenter__()
        store: Any = self._async_store.sync
        create(store)
        rows = AsyncObject(self._async_store, Rows(store._store))

        async def write() -> None:
            await rows.add(new_id("msg"), BODY)

        return [write] * count

    def _url(self) -> str:
        return self.place if "://" in self.place else os.path.join(self.place, "standfast.db")

    def _data_dir(self) -> str | None:
        return None if "://" in self.place else self.place

    def close(self) -> None:
        self._store.close()

    async def aclose(self) -> None:
        await self._async_store.close()


class Lease(Ours):
    """A record of a real feature: take a named lock, which writes two rows into six B-trees."""

    def writers(self, count: int) -> list[Write]:
        import standfast
        from standfast.ids import new_id

        self._store = standfast.open(self._url(), data_dir=self._data_dir())
        leases = self._store.leases
        return [lambda: leases.acquire(new_id("lea"))] * count


class BarePsycopg(Way):
    """PostgreSQL without standfast: one connection per caller, BEGIN, the same two statements, COMMIT."""

    def writers(self, count: int) -> list[Write]:
        return [self._writer() for _ in range(count)]

    def _writer(self) -> Write:
        import psycopg

        from standfast.core import journal
        from standfast_prove.bench.rows import ADD

        connection = psycopg.connect(self.place, autocommit=True, options="-c search_path=standfast")
        row, event = ADD.postgres.encode(), journal.SQL.append.postgres.encode()

        def write() -> None:
            fields = acked()
            connection.execute(b"BEGIN")
            connection.execute(row, {"body": BODY})
            connection.execute(event, fields).fetchone()
            connection.execute(b"COMMIT")

        return write


def acked() -> dict[str, object]:
    """The fields of a journal row, for code that writes it without our engine."""
    from standfast.ids import new_id

    now_us = time.time_ns() // 1000
    said = {"scope": "", "actor": "worker", "holder": "p:host:12345678:4026531836:4711:471147"}
    kind = {
        "source": "seen",
        "type": "row.added",
        "subject": new_id("msg"),
        "time_us": now_us,
        "occurred_us": now_us,
        "salt": os.urandom(16),
    }
    nothing = ("session_id", "state", "stream", "version", "summary", "data", "git_dir", "origin")
    return {**said, **kind, **dict.fromkeys(nothing)}


WAYS: dict[str, type[Way]] = {
    "raw sync": RawSync,
    "connection each": ConnectionEach,
    "both rows": BothRows,
    "protected": Protected,
    "together": Together,
    "behind a lock": BehindLock,
    "executor each": ExecutorEach,
    "bare psycopg": BarePsycopg,
    "ours": Ours,
    "lease": Lease,
}
