"""The process beside each command of a loop: it keeps what the command says and how it ends.

    python -I -S keeper.py PLACE        then one JSON object on stdin, up to its end

Nobody's death may change the answer of a command that runs. The daemon can be killed at any
moment; the keeper goes on, enforces the timeout, and leaves the answer in PLACE, where the next daemon
finds it. It opens no store. Told nothing (stdin ends empty), it never begins.

    PLACE/begun     the command has been started, or is about to be: from here on it may have acted
    PLACE/stdout    both ends of what it said, the middle counted and left out
    PLACE/stderr
    PLACE/result    JSON, written last and whole: how it ended

The command is the leader of a process group in the keeper's session. Its end by time or by
order is SIGTERM to that group, and SIGKILL after a while. With a `lease` file the keeper also
watches the moment written there: past it another machine may take over, so the command is ended. That
moment is on a clock that goes on while the machine sleeps.

This file is run by itself, with the standard library only: it starts in milliseconds.
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
"""Of each end of each stream; what lies between is counted and left out."""
LINGER_S = 1.0
"""After the command has ended: whoever else holds its output may still be writing."""
LOOK_S = 1.0
NOT_FOUND = 127
NOT_EXECUTABLE = 126


class Ends:
    """A stream as it will be stored: all of it, or its two ends."""

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
        """Why it was ended: timed_out, cancelled or lost. None if it ended by itself."""
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
        _signal(self.pid, signal.SIGCONT)  # a stopped one could not hear it


def now() -> float:
    """Seconds since this machine was started, asleep or not; where that is not known, awake."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _now_past(spec: dict[str, Any]) -> bool:
    """Whether the daemon's word is over: its first one, and whatever it has written since."""
    moment = float(spec.get("lease_until") or 0)
    with suppress(OSError, ValueError), open(spec["lease"]) as file:
        moment = max(moment, float(file.read()))
    return now() >= moment


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _become(spec: dict[str, Any], streams: dict[int, int], failing: int) -> None:
    """In the child. Whatever happens, it must not go on as a second keeper."""
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
        for name in ("PIPE", "XFSZ", "INT", "TERM", "HUP", "CHLD", "USR1"):  # our own ways are not the command's
            signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
        os.execvpe(what, spec["argv"], spec["environment"])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        os.write(failing, f"{what}: {reason}"[:900].encode(errors="replace"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def write(place: str, ends: dict[str, Ends], result: dict[str, Any]) -> None:
    """The result, whole or not at all. A full disk is waited for: first without the output, then again."""
    while True:
        try:
            for name, stream in ends.items():
                if stream.total:
                    _put(os.path.join(place, name), stream.joined())
            _put(os.path.join(place, "result"), json.dumps(result).encode())
            return
        except FileNotFoundError:
            return  # nobody wants it any more
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
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal's, meant for the daemon
        signal.signal(number, signal.SIG_IGN)
    words = sys.stdin.buffer.read()
    if not words.endswith(b"\n"):
        return 0  # the daemon died before it had said everything: nothing begins
    spec = json.loads(words)
    try:
        os.close(os.open(os.path.join(place, "begun"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return 1
    except OSError as error:  # without the mark nobody could tell later whether it began
        write(place, {}, {"code": None, "why": None, "failure": f"{place}: {error.strerror}", "duration_us": 0})
        return 1
    keeper = Keeper(place, spec, woken)
    write(place, keeper.ends, keeper.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
