"""A child process that starts blocked and becomes a command later: for `session run`, `lock`, `once` and `webhook`.

The process exists, and can hold a lease, before the command does anything. It becomes the command when it receives its
environment, and exits if none comes. Its output can be captured: on a terminal the command gets its own pty, so that it
behaves as without a capture; otherwise stdout and stderr are two pipes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from standfast.daemon.keeper import Ends

LINGER_S = 1.0
"""How long to read output after the command has ended: a background process of it may still write."""
LOOK_S = 1.0
NOT_FOUND = 127
NOT_EXECUTABLE = 126

_PASSED_ON = {
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT", "SIGCONT", "SIGWINCH")
}
_FROM_THE_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH}
_SI_KERNEL = 0x80
SIGNALS = {*_PASSED_ON, signal.SIGCHLD}


class Capture(Ends):
    """A captured stream: all of it, or its beginning and its end."""

    def value(self, *, redact: bool) -> str | dict[str, str]:
        """The stream as text, or as base64 if it is not text."""
        data = self.joined()
        if self.left_out:
            return _redacted(data.decode(errors="replace").replace("\0", "\ufffd"), redact)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            return _redacted(text, redact)
        from base64 import b64encode

        return {"base64": b64encode(data).decode()}


def bytes_of(value: Any) -> bytes:
    """The text of a stored stream."""
    if isinstance(value, dict):
        from base64 import b64decode

        return b64decode(value.get("base64", ""))
    return value.encode() if isinstance(value, str) else b""


def _redacted(text: str, redact: bool) -> str:
    if not redact:
        return text
    from standfast.serial.redaction import redacted

    return redacted(text)


@contextmanager
def blocked_child(
    argv: tuple[str, ...], *, cwd: str | None = None, capture: bool = False, shown: bool = True
) -> Iterator[Child]:
    """A child that waits for `go`. Until the end of the block, `Child.wait` takes the signals of this process."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        child = Child(argv, mask, cwd=cwd, capture=capture, shown=shown)
        try:
            yield child
        finally:
            child.never()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Child:
    """A process that becomes the command after `go`. With `capture` its output is stored, and passed on if `shown`."""

    def __init__(self, argv: tuple[str, ...], mask: Any, *, cwd: str | None, capture: bool, shown: bool) -> None:
        self.mask = mask
        """The signals that were blocked before."""
        self.stdout, self.stderr = Capture(), Capture()
        self.failure: str | None = None
        """Why the command could not be started."""
        self._name = argv[0]
        self._shown = shown
        self._ended: int | None = None
        self._pumps: list[threading.Thread] = []
        self._terminal = _Terminal() if capture and shown and os.isatty(1) else None
        start, self._start = os.pipe()
        self._failed, failing = os.pipe()
        self._ours, theirs = self._plumb() if capture else ({}, {})
        sys.stdout.flush()  # otherwise the child would print the buffered output again
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._start)
            _become(argv, mask, cwd, start, failing, theirs, self._terminal is not None)
        for fd in {start, failing, *theirs.values()}:
            os.close(fd)

    def _plumb(self) -> tuple[dict[int, int], dict[int, int]]:
        """The descriptors that this process reads, and those that replace 0, 1 and 2 in the child."""
        ours, theirs = {}, {}
        if self._terminal is not None:
            ours[1] = self._terminal.master
            theirs = {fd: self._terminal.slave for fd in (0, 1, 2) if os.isatty(fd)}
        for fd in (1, 2):
            if fd not in theirs:
                ours[fd], theirs[fd] = os.pipe()
        return ours, theirs

    def go(self, variables: Mapping[str, str]) -> None:
        """Start the command with these variables in its environment, or set `failure`."""
        for fd, capture in ((1, self.stdout), (2, self.stderr)):
            if fd in self._ours:
                pump = threading.Thread(target=self._pump, args=(self._ours[fd], fd, capture), daemon=True)
                pump.start()
                self._pumps.append(pump)
        if self._terminal is not None:
            self._terminal.enter()
        os.write(self._start, json.dumps(dict(variables)).encode())
        self._close()
        error = os.read(self._failed, 1000)  # a successful exec closes it
        if error:
            self.failure = f"{self._name}: {os.strerror(int(error))}"

    def wait(self) -> int:
        """Forward signals until the command ends. Returns its exit code, negative for a signal."""
        while self._ended is None:
            number, from_terminal = next_signal(SIGNALS)
            if number == signal.SIGCHLD:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._ended = os.waitstatus_to_exitcode(status) if pid else None
            elif number == signal.SIGWINCH and self._terminal is not None:
                self._terminal.resize()
            elif self._terminal is not None:
                os.killpg(self.pid, number)
            elif not from_terminal:  # a terminal sends the signal to the command too
                os.kill(self.pid, number)
        for pump in self._pumps:
            pump.join(LINGER_S)
        if self._terminal is not None:
            self._terminal.leave()
        return self._ended

    def never(self) -> None:
        """Reap the child. If `go` was not called, it exits without running the command."""
        self._close()
        if self._terminal is not None:
            self._terminal.leave()
        if self._ended is None:
            self._ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _close(self) -> None:
        if self._start >= 0:
            os.close(self._start)
            self._start = -1

    def _pump(self, source: int, to: int, capture: Capture) -> None:
        passing = self._shown
        from_terminal = self._terminal is not None and source == self._terminal.master
        while True:
            try:
                data = os.read(source, 65536)
            except OSError:  # reading a pty that no other process has open is an error
                return
            if not data:
                return
            # A terminal ends lines with CR LF; store the LF that the command wrote.
            capture.feed(data.replace(b"\r\n", b"\n") if from_terminal else data)
            try:
                if passing:
                    _write(to, data)
            except OSError:  # the reader has exited; the output is still captured
                passing = False


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class _Terminal:
    """The pty of the command. The terminal of this process is in raw mode meanwhile."""

    def __init__(self) -> None:
        self.master, self.slave = os.openpty()
        self._before: Any = None
        self._keys: threading.Thread | None = None
        self._stop: int | None = None
        self.resize()

    def resize(self) -> None:
        import fcntl
        import termios

        size = fcntl.ioctl(1, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def enter(self) -> None:
        if not os.isatty(0):
            return
        import termios
        import tty

        self._before = termios.tcgetattr(0)
        # Pass all keys to the command; its pty turns Ctrl-C into a signal. TCSANOW keeps input that was typed ahead.
        tty.setraw(0, termios.TCSANOW)
        waiting, self._stop = os.pipe()
        self._keys = threading.Thread(target=self._pass_keys, args=(waiting,), daemon=True)
        self._keys.start()

    def leave(self) -> None:
        if self._before is not None:
            import termios

            termios.tcsetattr(0, termios.TCSADRAIN, self._before)
            self._before = None
        if self._stop is not None:
            os.close(self._stop)
            self._stop = None

    def _pass_keys(self, stop: int) -> None:
        import select

        while True:
            ready, _, _ = select.select([0, stop], [], [])
            if stop in ready:
                return
            try:
                data = os.read(0, 4096)
                _write(self.master, data)
            except OSError:
                return
            if not data:
                return


def next_signal(wanted: set[signal.Signals]) -> tuple[int, bool]:
    """The next signal of `wanted`, which this thread blocks, and whether the terminal sent it to the whole group."""
    if not hasattr(signal, "sigtimedwait"):
        number = int(signal.sigwait(wanted))
        return number, number in _FROM_THE_TERMINAL
    info = signal.sigtimedwait(wanted, LOOK_S)
    if info is None:  # another thread may have taken SIGCHLD: look at the child anyway
        return signal.SIGCHLD, False
    return info.si_signo, info.si_signo in _FROM_THE_TERMINAL and info.si_code == _SI_KERNEL


def _become(
    argv: tuple[str, ...],
    mask: Any,
    cwd: str | None,
    start: int,
    failing: int,
    streams: dict[int, int],
    terminal: bool,
) -> NoReturn:
    """Wait for the variables, then become the command. Runs in the child, and never returns."""
    try:
        with os.fdopen(start, "rb") as pipe:
            variables = pipe.read()
        if not variables:
            os._exit(0)
        if cwd is not None:
            os.chdir(cwd)
        if terminal:
            _take_terminal(streams)
        for fd, source in streams.items():
            os.dup2(source, fd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # undo the settings of Python
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(argv[0], list(argv), {**os.environ, **json.loads(variables)})
    except OSError as error:
        os.write(failing, str(error.errno or 0).encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
    finally:
        os._exit(NOT_EXECUTABLE)


def _take_terminal(streams: dict[int, int]) -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(next(iter(streams.values())), termios.TIOCSCTTY, 0)
