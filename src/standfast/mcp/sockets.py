"""`standfast mcp --socket PATH`: the same tools over a Unix socket, for a container or a program in another language.

A connection speaks MCP as over stdio: one JSON-RPC message a line. Mount the directory of the socket into a container,
and the agent in it works on the host's store. The socket has mode 0600: only this account and root may connect, and
nothing listens on a port.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp.server.stdio import stdio_server

from standfast.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from mcp.server import MCPServer

PATH_MAX_BYTES = 107
"""The kernel's limit for the path of a socket."""
LINE_MAX_BYTES = 16 << 20
CONNECTIONS_MAX = 64
"""Further connections wait until one is closed."""
PROBE_MAX_S = 5.0


def serve(server: MCPServer, path: str, ready: Callable[[], None]) -> None:
    """Serve every connection until SIGTERM or SIGINT, then remove the socket. `ready` is called once it listens."""
    with listening(path) as listener:
        anyio.run(_serve, server, listener, ready)


@contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """The bound socket. Raises Conflict if another process serves it, InvalidInput for a path that cannot be one."""
    if len(os.fsencode(path)) > PATH_MAX_BYTES:
        raise InvalidInput(f"the path of a socket has at most {PATH_MAX_BYTES} bytes, and {path} is longer")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        mask = os.umask(0o177)  # no other account can connect before a `chmod`
        try:
            listener.bind(path)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be made: {error.strerror}", "mkdir -p DIRECTORY") from error
        finally:
            os.umask(mask)
        own = os.stat(path).st_ino
        listener.listen()
        listener.setblocking(False)
        try:
            yield listener
        finally:
            with suppress(OSError):
                if os.stat(path).st_ino == own:
                    os.unlink(path)
    finally:
        listener.close()


def _remove_stale(path: str) -> None:
    """Remove the socket of a killed server. Raises if anything else is at the path."""
    try:
        found = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found):
        raise InvalidInput(f"{path} exists and is no socket, so it is left alone", "choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(PROBE_MAX_S)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except (TimeoutError, BlockingIOError):
            pass  # another process listens and its queue is full
        except OSError as error:
            raise InvalidInput(f"{path} cannot be reached: {error.strerror}", "choose another path") from None
    raise Conflict(f"another process serves {path}", "choose another path, or end that process", code="socket_in_use")


async def _serve(server: MCPServer, listener: socket.socket, ready: Callable[[], None]) -> None:
    free = anyio.Semaphore(CONNECTIONS_MAX)

    async def connections(group: TaskGroup) -> None:
        async with await SocketListener.from_socket(listener.dup()) as accepted:
            await accepted.serve(lambda stream: _answer(server, free, stream), group)

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(connections, group)
            ready()
            await anext(signals)
            group.cancel_scope.cancel()


async def _answer(server: MCPServer, free: anyio.Semaphore, stream: Any) -> None:
    """Serve one connection until its client closes it. An error of a client ends its own connection only."""
    async with free, stream:
        lines: Any = Lines(stream)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            async with stdio_server(lines, lines) as (read, write):
                low = server._lowlevel_server
                await low.run(read, write, low.create_initialization_options())


class Lines:
    """A connection in the form that `stdio_server` needs: lines to read, text to write."""

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            try:
                line = await self._received.receive_until(b"\n", LINE_MAX_BYTES)
            except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream):
                return
            yield line.decode("utf-8", "replace")

    async def write(self, text: str) -> None:
        await self._stream.send(text.encode())

    async def flush(self) -> None:
        """Nothing is buffered here."""
