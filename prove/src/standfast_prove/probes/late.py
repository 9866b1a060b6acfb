"""A proxy of ours before a real server: it passes bytes on unchanged, each request and each answer a random time late.

A request that has reached the proxy is passed on, even if its client has exited, as in a network.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 1 << 16
CONNECT_S = 10.0


class _Connection:
    """One client and the server. After each change of direction, the next bytes are delayed."""

    def __init__(self, client: socket.socket, server: socket.socket, draw: random.Random, late_s: float) -> None:
        self.draw, self.late_s = draw, late_s
        self.last: socket.socket | None = None
        self.sockets = (client, server)
        ways = ((client, server), (server, client))
        self.threads = [threading.Thread(target=self.pass_on, args=way, daemon=True) for way in ways]
        for thread in self.threads:
            thread.start()

    def pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(PIECE_BYTES):
                if self.last is not source:
                    self.last = source
                    time.sleep(self.draw.uniform(0, self.late_s))
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # this ends the threads, which wait in recv
        for thread in self.threads:
            thread.join()
        for one in self.sockets:
            one.close()


@contextmanager
def late(port: int, late_s: float, seed: int) -> Iterator[int]:
    """A port of the loopback device that leads to `port`."""
    listener = socket.create_server(("127.0.0.1", 0))
    draw = random.Random(seed)
    connections: list[_Connection] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", port), timeout=CONNECT_S)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                connections.append(_Connection(client, server, draw, late_s))

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)  # this ends the thread, which waits in accept
        accepting.join()
        listener.close()
        for connection in connections:
            connection.close()
