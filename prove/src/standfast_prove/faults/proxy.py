"""Proxies between an engine and its PostgreSQL server: a connection that can be cut, and a transaction pooler.

Both understand enough of the protocol to know where a message ends. They listen on
loopback and work with servers that need no password.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

STARTUP_PLAIN = 196608  # protocol 3.0
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102


class _Server:
    """Accepts connections on a free port, with one thread each."""

    def __init__(self, target_port: int, address: str = "127.0.0.1") -> None:
        self._target_port = target_port
        self._address = address
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._mutex = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, server_url: str) -> str:
        """The server's URL through this port."""
        way = server_url.replace(f":{self._target_port}/", f":{self.port}/")
        return way if self._address == "127.0.0.1" else re.sub(r"(127\.0\.0\.1|localhost):", f"{self._address}:", way)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._keep(client)
                threading.Thread(target=self._serve_quietly, args=(client,), daemon=True).start()

    def _serve_quietly(self, client: socket.socket) -> None:
        try:
            self.serve(client)
        except (OSError, EOFError):
            pass  # a closed connection ends the copy
        finally:
            _hang_up(client)

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def dial(self) -> socket.socket:
        return self._keep(socket.create_connection(("127.0.0.1", self._target_port)))

    def _keep(self, line: socket.socket) -> socket.socket:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._mutex:
            self._sockets.add(line)
        return line

    def cut(self) -> None:
        """Close all open connections at once."""
        with self._mutex:
            lines, self._sockets = self._sockets, set()
        for line in lines:
            _hang_up(line)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class CuttableLine(_Server):
    """Forwards everything until the answer that it has to drop. After that it forwards nothing.

    It can also refuse connections or hold packets back, until it is repaired.
    """

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self._swallow: bytes | None = None
        self.cuts = 0
        self._broken = False
        self._flows = threading.Event()
        self._flows.set()

    def break_off(self) -> None:
        """Cut every connection and refuse new ones."""
        self._broken = True
        self.cut()

    def fall_silent(self) -> None:
        """Hold all packets back without an error. They arrive when the line is repaired."""
        self._flows.clear()

    def mend(self) -> None:
        self._swallow = None
        self._broken = False
        self._flows.set()

    def cut_at(self, tag: str) -> None:
        """Cut once, at the server's message that a command with this tag was completed."""
        body = tag.encode() + b"\0"
        self._swallow = b"C" + struct.pack("!I", len(body) + 4) + body

    def serve(self, client: socket.socket) -> None:
        if self._broken:
            return
        server = self.dial()
        threading.Thread(target=self._up, args=(client, server), daemon=True).start()
        tail = b""
        while data := server.recv(65536):
            self._flows.wait()
            swallow = self._swallow
            seen, tail = tail + data, (tail + data)[-20:]
            # An answer may arrive in two pieces. A piece that was passed on is not read again.
            if swallow is not None and swallow in seen[-len(data) - len(swallow) + 1 :]:
                self._swallow = None
                self.cuts += 1
                _hang_up(server)
                return
            client.sendall(data)

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self._flows.wait()
                server.sendall(data)
        _hang_up(server)


class RotatingPooler(_Server):
    """A transaction pooler at its worst: each transaction of a client is served by the next session.

    A client finds the session state that another client left behind. Its own state is in another session.
    """

    SESSIONS = 3

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self._sessions: list[_Session] = []
        self._turn = itertools.count()
        self._pool = threading.Lock()
        self.transactions = 0
        self.impatient = 0
        """The number of times that a client continued before its transaction had ended. Real poolers then mix up
        answers.
        """

    def serve(self, client: socket.socket) -> None:
        startup = _startup(client)
        with self._pool:
            while len(self._sessions) < self.SESSIONS:
                self._sessions.append(_Session(self.dial(), startup))
        greeting = self._sessions[0].greeting
        # The pooler's own process number, because there is no session to cancel.
        client.sendall(_without_key(greeting) + b"K" + struct.pack("!III", 12, 7, 7) + b"Z\0\0\0\5I")
        while True:
            first = _message(client)
            if first[:1] == b"X":
                return
            session = self._sessions[next(self._turn) % self.SESSIONS]
            with session.lock:
                self.transactions += 1
                self._converse(client, session, first)

    def _converse(self, client: socket.socket, session: _Session, message: bytes) -> None:
        """Pass messages on until the server is idle and has answered every Sync."""
        owed = 0
        back = _Pump(session.line, client)
        try:
            while True:
                session.line.sendall(message)
                if message[:1] in (b"S", b"Q"):
                    owed += 1
                    if back.until_ready(owed) == b"I":
                        return
                message = _message(client)
                if message[:1] == b"X":
                    raise EOFError("the client left in the middle of a transaction")
        finally:
            back.stop()
            self.impatient += back.impatient


class _Pump:
    """Passes a session's answers to one client and counts how often the server was ready."""

    def __init__(self, line: socket.socket, client: socket.socket) -> None:
        self._line, self._client = line, client
        self._ready = 0
        self._state = b"I"
        self._change = threading.Condition()
        self._stopped = False
        self.impatient = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Either side may close the connection at any time. Then this thread ends.
        with contextlib.suppress(OSError, ValueError, EOFError):
            self._line.settimeout(0.002)
            while not self._stopped:
                self._carry(_message(self._line, idle=lambda: self._stopped))

    def _carry(self, message: bytes) -> None:
        ready = message[:1] == b"Z"
        with contextlib.suppress(OSError, ValueError):
            if ready and _has_sent_more(self._client):
                self.impatient = True
            self._client.sendall(message)
        if ready:
            with self._change:
                self._ready += 1
                self._state = message[5:6]
                self._change.notify()

    def until_ready(self, times: int) -> bytes:
        with self._change:
            if not self._change.wait_for(lambda: self._ready >= times, 30):
                raise EOFError("the server does not answer")
            return self._state

    def stop(self) -> None:
        self._stopped = True
        self._thread.join()
        self._line.settimeout(None)


class _Session:
    """One connection to the server, shared by all clients in turn."""

    def __init__(self, line: socket.socket, startup: bytes) -> None:
        self.line = line
        self.lock = threading.Lock()
        line.sendall(startup)
        self.greeting = b""
        while (message := _message(line))[:1] != b"Z":
            self.greeting += message


def _startup(client: socket.socket) -> bytes:
    while True:
        size, kind = struct.unpack("!II", _exactly(client, 8))
        rest = _exactly(client, size - 8)
        if kind in (SSL_REQUEST, GSS_REQUEST):
            client.sendall(b"N")
            continue
        if kind == CANCEL_REQUEST:
            raise EOFError("nothing can be cancelled here")
        return struct.pack("!II", size, kind) + rest


def _without_key(greeting: bytes) -> bytes:
    kept, at = b"", 0
    while at < len(greeting):
        size = struct.unpack("!I", greeting[at + 1 : at + 5])[0] + 1
        kept += b"" if greeting[at : at + 1] == b"K" else greeting[at : at + size]
        at += size
    return kept


def _message(line: socket.socket, idle: Callable[[], bool] = lambda: False) -> bytes:
    head = _exactly(line, 5, idle)
    return head + _exactly(line, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(line: socket.socket, size: int, idle: Callable[[], bool] = lambda: False) -> bytes:
    data = b""
    while len(data) < size:
        try:
            part = line.recv(size - len(data))
        except TimeoutError:
            if idle() and not data:
                raise EOFError from None
            continue
        if not part:
            raise EOFError("closed")
        data += part
    return data


def _has_sent_more(line: socket.socket) -> bool:
    try:
        return bool(line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def _hang_up(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()
