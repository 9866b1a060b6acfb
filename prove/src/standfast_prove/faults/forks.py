"""Processes forked from one that has imported standfast and opened nothing, in place of new interpreters.

An interpreter that imports standfast and pytest takes 250 ms of CPU time to start, a fork of one 15 ms. The forking
process starts at the first call of `fork` in a process and ends with it. It has one thread and has no store open.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The order to start a process. Its stdin is a pipe or /dev/null."""

    environment: Mapping[str, str]
    directory: str
    stdin: bool = True


class Forked:
    """A forked process with pipes: the attributes and methods of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, end: int, stdin: IO[bytes] | None, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._end = end
        """A pipe: the forking process writes the exit code into it."""

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def communicate(self, given: bytes, timeout: float) -> tuple[bytes, bytes]:
        """Write `given` to stdin, and read both streams to their ends. `timeout` is for each wait."""
        read = {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as waiting:
            for stream in read:
                waiting.register(stream, selectors.EVENT_READ, stream)
            if self.stdin is not None:
                waiting.register(self.stdin, selectors.EVENT_WRITE, self.stdin)
            while waiting.get_map():
                ready = waiting.select(timeout)
                if not ready:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
                for stream in (key.data for key, _ in ready):
                    if stream is self.stdin:
                        given = _written(self.stdin, given)
                        ended = not given
                    else:
                        part = os.read(stream.fileno(), 65536)
                        read[stream] += part
                        ended = not part
                    if ended:
                        waiting.unregister(stream)
                        stream.close()
        return read[self.stdout], read[self.stderr]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], timeout)[0]:
            written = os.read(self._end, 64)
            self.returncode = int(written) if written else -signal.SIGKILL  # the forking process was killed
            os.close(self._end)
        return self.returncode


def _written(stream: IO[bytes], data: bytes) -> bytes:
    """The rest of `data` after one write; nothing if the reader has ended."""
    try:
        return data[
            os.write(stream.fileno(), data[:4096]) :
        ]  # a write of this size never blocks on a pipe that is ready
    except BrokenPipeError:
        return b""


class _Forking:
    """The forking process, from the caller's side."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.owner = os.getpid()
        self._turn = threading.Lock()
        self._orders, theirs = socket.socketpair()
        path = os.pathsep.join(path for path in sys.path if path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "standfast_prove.faults.children", "fork", *modules],
                env=os.environ | {"PYTHONPATH": path},
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,  # not a file, as in its children: Python checks once whether it can seek
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        atexit.register(self.close)

    def fork(self, target: str, arguments: Mapping[str, object], start: Start) -> Forked:
        given, stdin = os.pipe() if start.stdin else (os.open(os.devnull, os.O_RDONLY), None)
        stdout, taken = os.pipe()
        stderr, shown = os.pipe()
        end, ended = os.pipe()
        order = {"target": target, "arguments": arguments, "environment": dict(start.environment)}
        written = json.dumps(order | {"directory": start.directory, "path": sys.path}).encode()
        try:
            with self._turn:
                socket.send_fds(self._orders, [LENGTH.pack(len(written))], [given, taken, shown, ended])
                self._orders.sendall(written)
                (pid,) = LENGTH.unpack(self._orders.recv(LENGTH.size, socket.MSG_WAITALL))
        finally:
            for descriptor in (given, taken, shown, ended):
                os.close(descriptor)
        return Forked(pid, end, None if stdin is None else open(stdin, "wb"), open(stdout, "rb"), open(stderr, "rb"))

    def close(self) -> None:
        if os.getpid() == self.owner:
            self._orders.close()
            self._process.communicate()


_forking: _Forking | None = None


def fork(target: str, arguments: Mapping[str, object], start: Start) -> Forked:
    """Start a process that calls `target` ("module:function"). It has its own session, and so no terminal."""
    global _forking
    if _forking is None or _forking.owner != os.getpid():
        _forking = _Forking([name for name in ("pytest", "psycopg") if name in sys.modules])
    return _forking.fork(target, arguments, start)


# -- in the forking process --------------------------------------------------------------------------------


def serve() -> tuple[str, dict[str, Any]] | None:
    """Fork for each order. Returns the function to call in each child, and None in the forking process when the caller
    has ended.
    """
    gc.collect()
    gc.freeze()  # otherwise the garbage collector of a child copies these pages
    orders, ends = socket.socket(fileno=os.dup(0)), dict[int, int]()
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    usual = signal.signal(signal.SIGCHLD, lambda *_: None)

    def after_fork() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, usual)
        for one in (orders, woken, waker):
            one.close()
        for end in ends.values():
            os.close(end)

    while True:
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            woken.recv(4096)
            _reap(ends)
        if orders in ready:
            length, descriptors, _, _ = socket.recv_fds(orders, LENGTH.size, 4)
            if not length:
                return None
            order = json.loads(orders.recv(LENGTH.unpack(length)[0], socket.MSG_WAITALL))
            *standard, ended = descriptors
            pid = os.fork()
            if pid == 0:
                _become(order, standard, ended, after_fork)
                return order["target"], order["arguments"]
            ends[pid] = ended
            for descriptor in standard:
                os.close(descriptor)
            orders.sendall(LENGTH.pack(pid))


def _reap(ends: dict[int, int]) -> None:
    for pid in list(ends):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            end = ends.pop(pid)
            with suppress(BrokenPipeError):  # the caller does not wait for the exit code
                os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(end)


def _become(order: dict[str, Any], standard: list[int], ended: int, after_fork: Callable[[], None]) -> None:
    """In the child: set the streams, directory, environment and modules of the order."""
    after_fork()
    os.setsid()  # only the caller handles Ctrl-C
    os.close(ended)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = filter(None, order["path"])
