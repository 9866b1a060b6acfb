"""Wake waiting callers: directly in this process, by NOTIFY in other processes. Every waiter also polls.

A NOTIFY inside a writing transaction would make all commits of the server queue up behind one lock. So a thread sends
it after the commit, in a transaction that does not wait for the disk, at most once per 20 ms in each process. If it
fails, no caller gets an error. It is only a hint: each waiter polls after 0.25 s at first and then every 2 s, because
notifications do not pass a transaction pooler.

Callers request notifications in their own thread, where an exception may hit them. So they touch only locks and queues
that are C code: a lock that Python code takes, such as that of `threading.Event`, could stay locked and block all other
callers.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from standfast.db.contract import Watch
from standfast.db.postgres.faults import Fault
from standfast.db.postgres.retry import uniform
from standfast.errors import StandfastError

if TYPE_CHECKING:
    from standfast.db.postgres.driver import psycopg

CHANNEL = "standfast"
APART_S = 0.02
LOOK_FIRST_S = 0.25
LOOK_LAST_S = 2.0
RECONNECT_MAX_S = 30.0


class Ear(Protocol):
    """A thread that receives the notifications of other processes."""

    ready: threading.Event

    def stop(self) -> None: ...


class Bell:
    """The sender of notifications, and the waiters of this process."""

    def __init__(self, send: Callable[[], None], listen: Callable[[Bell], Ear] | None) -> None:
        self._send = send
        self._listen = listen
        self._mutex = threading.Lock()
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: send a notification; False: end."""
        self._closed = threading.Event()
        self._sender: threading.Thread | None = None
        self._watches: set[PostgresWatch] = set()
        self._listener: Ear | None = None
        self.tag = os.urandom(8).hex()
        """The payload of our own notifications: waiters in this process were woken before it was sent."""

    def ring(self) -> None:
        """A write was committed. Returns at once."""
        self.wake()
        if self._closed.is_set() or not self._asked.empty():
            return  # the pending notification covers this commit too
        self._asked.put(True)
        if self._sender is None:
            self._start_sender()

    def _start_sender(self) -> None:
        with self._mutex:
            if self._sender is None:
                sender = threading.Thread(target=self._run, name="standfast-bell", daemon=True)
                sender.start()
                self._sender = sender

    def wake(self) -> None:
        with self._mutex:
            watches = list(self._watches)
        for watch in watches:
            watch.woken.set()

    def _run(self) -> None:
        while self._asked.get():
            self._send_quietly()
            self._closed.wait(APART_S)

    def _send_quietly(self) -> None:
        # The write is committed, and waiters poll, so a lost notification only costs time.
        with suppress(Fault, StandfastError):
            self._send()

    # -- waiting callers --------------------------------------------------------------------------

    def watch(self) -> Watch:
        watch = PostgresWatch(self)
        with self._mutex:
            self._watches.add(watch)
            if self._listener is None and self._listen is not None:
                self._listener = self._listen(self)
        return watch

    def leave(self, watch: PostgresWatch) -> None:
        with self._mutex:
            self._watches.discard(watch)
            listener = None if self._watches else self._listener
            if listener is not None:
                self._listener = None
        if listener is not None:
            listener.stop()

    def heard(self, tag: str) -> None:
        """A notification came. Ignore our own, because the waiters of this process were woken before it was sent."""
        if tag != self.tag:
            self.wake()

    @property
    def listening(self) -> bool:
        listener = self._listener
        return listener is not None and listener.ready.is_set()

    def close(self, timeout_s: float = 1.0) -> None:
        """Send pending notifications, and stop."""
        self._closed.set()
        self._asked.put(False)
        with self._mutex:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
        if self._sender is not None:
            self._sender.join(timeout_s)
        self.wake()


class Signal:
    """An event for one waiting thread. `set` takes no lock that an exception could leave locked."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        if self._queue.empty():
            self._queue.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the signal and clear it. Returns True if it was set, False after `timeout_s`."""
        try:
            self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return False
        return True


class PostgresWatch(Watch):
    """Wait for a notification. Without one, wake the caller after 0.25 s to 2 s to poll."""

    def __init__(self, bell: Bell) -> None:
        self.woken = Signal()
        self._bell = bell
        self._look_s = LOOK_FIRST_S

    def wait(self, timeout_s: float) -> bool:
        look_s = self._look_s * uniform(0.75, 1.0)
        if self.woken.wait(max(0.0, min(timeout_s, look_s))):
            self._look_s = LOOK_FIRST_S
            return True
        if look_s < timeout_s:
            self._look_s = min(2 * self._look_s, LOOK_LAST_S)
            return True  # no notification came; check anyway
        return False

    def close(self) -> None:
        self._bell.leave(self)


class Listener:
    """A connection that listens for notifications of other processes."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], bell: Bell) -> None:
        self._connect = connect
        self._bell = bell
        self._stop_read, self._stop_write = os.pipe()
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standfast-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        os.write(self._stop_write, b"!")
        self._thread.join(5.0)
        os.close(self._stop_write)

    def _run(self) -> None:
        from standfast.db.postgres.driver import psycopg  # a process that only sends does not need it

        pause_s = 0.1
        stopped = False
        while not stopped:
            began = time.monotonic()
            try:
                with self._connect() as connection:
                    stopped = self._hear(connection)
            except (psycopg.Error, Fault):
                pass  # Until the connection is open again, waiters poll.
            self.ready.clear()
            pause_s = 0.1 if time.monotonic() - began > RECONNECT_MAX_S else min(2 * pause_s, RECONNECT_MAX_S)
            stopped = stopped or self._stopped_within(pause_s)
        os.close(self._stop_read)

    def _hear(self, connection: psycopg.Connection[Any]) -> bool:
        """Returns True after a stop request; raises when the connection is gone."""
        connection.execute(f"LISTEN {CHANNEL}".encode())
        self.ready.set()
        self._bell.wake()  # commits before LISTEN sent no notification here
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while True:
            if any(fd == self._stop_read for fd, _ in poll.poll()):
                return True
            connection.pgconn.consume_input()
            foreign = False
            while (notification := connection.pgconn.notifies()) is not None:
                foreign = foreign or notification.extra.decode() != self._bell.tag
            if foreign:
                self._bell.wake()

    def _stopped_within(self, pause_s: float) -> bool:
        return bool(select.select([self._stop_read], [], [], pause_s)[0])
