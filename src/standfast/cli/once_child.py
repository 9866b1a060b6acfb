"""The command of `standfast once`: a process that waits to become it, and what it says, kept at both ends.

On a terminal it gets one of its own (a pty), so that it behaves as if we were not there; otherwise
stdout and stderr are two pipes and are kept apart.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any, NoReturn

from standfast.daemon.keeper import Ends

LINGER_S = 1.0
"""After the command has ended: another process with its output open may still be writing."""
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
    """A stream as it will be stored: all of it, or its two ends."""

    def value(self, *, redact: bool) -> str | dict[str, str]:
        """Text; or, where it is none, its bytes in base64."""
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


class Child:
    """The process that becomes the command on a signal of ours, and ends if none comes."""

    def __init__(self, argv: tuple[str, ...], mask: Any, *, shown: bool) -> None:
        self.stdout, self.stderr = Capture(), Capture()
        self.failure: str | None = None
        self._name = argv[0]
        self._shown = shown
        self._ended: int | None = None
        self._pumps: list[threading.Thread] = []
        self._terminal = _Terminal() if shown and os.isatty(1) else None
        told, self._tell = os.pipe()
        self._failed, failing = os.pipe()
        self._ours, theirs = self._plumb()
        sys.stdout.flush()  # or the child would print our buffer again
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            _become(argv, mask, told, failing, theirs, self._terminal is not None)
        for fd in {told, failing, *theirs.values()}:
            os.close(fd)

    def _plumb(self) -> tuple[dict[int, int], dict[int, int]]:
        """Where we read the streams, and what the child puts in the place of 0, 1 and 2."""
        ours, theirs = {}, {}
        if self._terminal is not None:
            ours[1] = self._terminal.master
            theirs = {fd: self._terminal.slave for fd in (0, 1, 2) if os.isatty(fd)}
        for fd in (1, 2):
            if fd not in theirs:
                ours[fd], theirs[fd] = os.pipe()
        return ours, theirs

    def go(self, variables: dict[str, str]) -> None:
        """Become the command. `failure` says why it could not."""
        for fd, capture in ((1, self.stdout), (2, self.stderr)):
            if fd in self._ours:
                pump = threading.Thread(target=self._pump, args=(self._ours[fd], fd, capture), daemon=True)
                pump.start()
                self._pumps.append(pump)
        if self._terminal is not None:
            self._terminal.enter()
        os.write(self._tell, json.dumps(variables).encode())
        self._close()
        said = os.read(self._failed, 1000)  # closed by a successful exec
        if said:
            self.failure = f"{self._name}: {os.strerror(int(said))}"

    def wait(self) -> int:
        """Pass signals on until it ends; its exit code, negative for a signal."""
        while self._ended is None:
            number, from_terminal = next_signal(SIGNALS)
            if number == signal.SIGCHLD:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._ended = os.waitstatus_to_exitcode(status) if pid else None
            elif number == signal.SIGWINCH and self._terminal is not None:
                self._terminal.resize()
            elif self._terminal is not None:
                os.killpg(self.pid, number)
            elif not from_terminal:  # a terminal tells everybody in front of it, the command too
                os.kill(self.pid, number)
        for pump in self._pumps:
            pump.join(LINGER_S)
        if self._terminal is not None:
            self._terminal.leave()
        return self._ended

    def never(self) -> None:
        """It never started the command, or it has ended: either way it is reaped."""
        self._close()
        if self._terminal is not None:
            self._terminal.leave()
        if self._ended is None:
            self._ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _close(self) -> None:
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1

    def _pump(self, source: int, to: int, capture: Capture) -> None:
        passing = self._shown
        from_terminal = self._terminal is not None and source == self._terminal.master
        while True:
            try:
                data = os.read(source, 65536)
            except OSError:  # a terminal that no other process has open answers with an error
                return
            if not data:
                return
            # A terminal ends lines with CR LF; a replay prints what the command wrote.
            capture.feed(data.replace(b"\r\n", b"\n") if from_terminal else data)
            try:
                if passing:
                    _write(to, data)
            except OSError:  # our reader has gone; the command's answer is recorded all the same
                passing = False


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


class _Terminal:
    """A terminal of its own for the command, and ours out of the way meanwhile."""

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
        # Every key is the command's, Ctrl-C too: its own terminal turns it into a signal. Keep the input that was
        # typed ahead, because it belongs to the command.
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
    """The next of `wanted`, which this thread blocks, and whether the terminal sent it to the whole group."""
    if not hasattr(signal, "sigtimedwait"):
        number = int(signal.sigwait(wanted))
        return number, number in _FROM_THE_TERMINAL
    info = signal.sigtimedwait(wanted, LOOK_S)
    if info is None:  # the kernel may give SIGCHLD to a thread that does not block it: look at the child anyway
        return signal.SIGCHLD, False
    return info.si_signo, info.si_signo in _FROM_THE_TERMINAL and info.si_code == _SI_KERNEL


def _become(
    argv: tuple[str, ...], mask: Any, told: int, failing: int, streams: dict[int, int], terminal: bool
) -> NoReturn:
    """In the child. It must never continue as a second parent."""
    try:
        variables = os.read(told, 10_000)
        if not variables:
            os._exit(0)
        if terminal:
            _take_terminal(streams)
        for fd, source in streams.items():
            os.dup2(source, fd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # Python's own ways are not the command's
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
