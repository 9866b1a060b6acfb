"""The keeper: one process for each command of a loop. It starts the command, and stores its output and its end.

    python -I -S keeper.py PLACE        then one JSON object on stdin, until its end

The daemon can be killed at any time. The keeper continues, enforces the timeout, and writes the result to PLACE, where
the next daemon finds it. It opens no store. If stdin ends before the object is complete, the keeper never starts the
command.

    PLACE/begun     the command was started or is about to start: it may have acted
    PLACE/stdout    the first and last part of the output; the middle is counted and left out
    PLACE/stderr
    PLACE/result    JSON: how the command ended; written last, by one rename

The command is the leader of a process group in the keeper's session. At its timeout, or on
request, the group gets SIGTERM, and SIGKILL after a grace period. A `lease` file has the
time after which another machine may take over. The keeper ends the command then, by a clock that also counts while
the machine sleeps.

This file runs as a script and imports only the standard library, so it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any

KEPT_BYTES = 64 * 1024
"""The size of the first and of the last part; the bytes between them are counted and left out."""
LINGER_S = 1.0
"""How long to read output after the command has ended, because another process may still write to it."""
LOOK_S = 1.0
NOT_FOUND = 127
NOT_EXECUTABLE = 126


class Ends:
    """The stored part of an output stream: all of it, or its first and last part."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = max(KEPT_BYTES - len(self.head), 0)
        self.head += data[:room]
        self.tail += data[room:]
        del self.tail[: max(len(self.tail) - KEPT_BYTES, 0)]

    @property
    def left_out(self) -> int:
        return self.total - len(self.head) - len(self.tail)

    def joined(self) -> bytes:
        between = f"\n[… {self.left_out:,} bytes left out …]\n".encode() if self.left_out else b""
        return bytes(self.head) + between + bytes(self.tail)


class Keeper:
    """One command from its start to its result."""

    def __init__(self, place: str, spec: dict[str, Any], wake: int) -> None:
        self.place = place
        self.spec = spec
        self.wake = wake
        self.streams: dict[int, Ends] = {}
        self.ends = {"stdout": Ends(), "stderr": Ends()}
        self.why: str | None = None
        """Why the keeper ended the command: timed_out, cancelled or lost. None if it ended by itself."""
        self.failure: str | None = None
        self.pid = 0
        self.code: int | None = None
        self.kill_at: float | None = None

    def run(self) -> dict[str, Any]:
        started = time.monotonic()
        timeout_us = self.spec.get("timeout_us")
        self.deadline = started + timeout_us / 1e6 if timeout_us else None
        self._start()
        while self.code is None:
            self._listen(self._patience())
            self._look()
        ended = time.monotonic()
        end = ended + LINGER_S
        while self.streams and time.monotonic() < end:
            self._listen(end - time.monotonic())
        return {
            "code": self.code,
            "why": self.why,
            "failure": self.failure,
            "duration_us": round((ended - started) * 1e6),
            "stdout_bytes": self.ends["stdout"].total,
            "stderr_bytes": self.ends["stderr"].total,
        }

    def _start(self) -> None:
        pipes = {name: os.pipe() for name in self.ends}
        failed, failing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.spec, {1: pipes["stdout"][1], 2: pipes["stderr"][1]}, failing)
        os.close(failing)
        for name, (reader, writer) in pipes.items():
            os.close(writer)
            os.set_blocking(reader, False)
            self.streams[reader] = self.ends[name]
        said = os.read(failed, 1000).decode(errors="replace")  # closed by a successful exec
        os.close(failed)
        self.failure = said or None

    def _patience(self) -> float:
        moments = [moment for moment in (self.deadline, self.kill_at) if moment is not None]
        left = min(moments) - time.monotonic() if moments else 60.0
        return max(0.0, min(left, LOOK_S if self.spec.get("lease") else 60.0))

    def _listen(self, timeout_s: float) -> None:
        poll = select.poll()
        for fd in (*self.streams, self.wake):
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll(timeout_s * 1000):
            if fd == self.wake:
                numbers = os.read(fd, 4096)
                for number in numbers:
                    if number in (signal.SIGTERM, signal.SIGUSR1):
                        self._end("cancelled", now=number == signal.SIGUSR1)
                continue
            data = os.read(fd, 65536)
            if data:
                self.streams[fd].feed(data)
            else:
                os.close(fd)
                del self.streams[fd]

    def _look(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            return
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self.deadline = None
            self._end("timed_out")
        if self.spec.get("lease") and self.why is None and _now_past(self.spec):
            self._end("lost")
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = now + 60.0
            _signal(self.pid, signal.SIGKILL)

    def _end(self, why: str, *, now: bool = False) -> None:
        if now:
            self.kill_at = time.monotonic()
        if self.why is not None:
            return
        self.why = why
        self.kill_at = time.monotonic() + (0.0 if now else self.spec.get("grace_s", 5.0))
        _signal(self.pid, signal.SIGTERM)
        _signal(self.pid, signal.SIGCONT)  # a stopped process does not handle SIGTERM


def now() -> float:
    """Seconds since the boot, including sleep; without CLOCK_BOOTTIME only the time awake."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _now_past(spec: dict[str, Any]) -> bool:
    """Whether the lease has ended. The first message has its end, and the file has a later end after each renewal."""
    moment = float(spec.get("lease_until") or 0)
    with suppress(OSError, ValueError), open(spec["lease"]) as file:
        moment = max(moment, float(file.read()))
    return now() >= moment


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _become(spec: dict[str, Any], streams: dict[int, int], failing: int) -> None:
    """Run the command in the forked child. This never returns, because a second keeper must not run."""
    what = spec["cwd"]
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for fd, source in streams.items():
            os.dup2(source, fd)
        os.chdir(spec["cwd"])
        what = spec["argv"][0]
        signal.set_wakeup_fd(-1)
        for name in ("PIPE", "XFSZ", "INT", "TERM", "HUP", "CHLD", "USR1"):  # the command gets default signal handlers
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
        os.execvpe(what, spec["argv"], spec["environment"])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(failing, f"{what}: {reason}"[:900].encode(errors="replace"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def write(place: str, ends: dict[str, Ends], result: dict[str, Any]) -> None:
    """Write the result, whole or not at all. On a full disk, write it without the output, and retry until there is
    space."""
    while True:
        try:
            for name, stream in ends.items():
                if stream.total:
                    _put(os.path.join(place, name), stream.joined())
            _put(os.path.join(place, "result"), json.dumps(result).encode())
            return
        except FileNotFoundError:
            return  # the daemon removed the directory
        except OSError as error:
            ends, result["output_lost"] = {}, error.strerror
            time.sleep(LOOK_S)


def _put(path: str, data: bytes) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def main() -> int:
    place = sys.argv[1]
    woken, waking = os.pipe()
    for fd in (woken, waking):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to the whole group
        signal.signal(number, signal.SIG_IGN)
    words = sys.stdin.buffer.read()
    if not words.endswith(b"\n"):
        return 0  # the daemon died before it sent the whole command: start nothing
    spec = json.loads(words)
    try:
        os.close(os.open(os.path.join(place, "begun"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return 1
    except OSError as error:  # after a crash only this mark shows whether the command started
        write(place, {}, {"code": None, "why": None, "failure": f"{place}: {error.strerror}", "duration_us": 0})
        return 1
    keeper = Keeper(place, spec, woken)
    write(place, keeper.ends, keeper.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
