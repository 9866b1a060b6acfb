"""`standfast session run`: run a command in a session.

The child process starts blocked, and runs the command after it receives one message. Therefore the child exists and
can hold the session before the command does anything. If another process holds the session, the command never starts.
The process of the command is the holder: if it is killed, the hold ends. This process renews the lease, forwards
signals, and ends the session by the exit code.

    fork ── waits ─────────────── execs ─────── ends
       └── open the session ──▶ go ── renew ──┴─▶ end the session, exit as it did
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import NoReturn

from standfast.cli.output import Out
from standfast.config import load
from standfast.errors import InvalidInput, StandfastError

VARIABLE = "STANDFAST_SESSION"
NOT_FOUND = 127
NOT_EXECUTABLE = 126

PASSED_ON = {
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT", "SIGCONT", "SIGWINCH")
}


def run_in_session(out: Out, key: str, command: tuple[str, ...], *, agent: str | None, cwd: str) -> int:
    """Run the command. Returns its exit code, or 128 + n if signal n ended it."""
    from standfast.config.scope import carried
    from standfast.handle import connect

    if not os.path.isdir(cwd):
        raise InvalidInput(f"the directory of this session is gone: {cwd}", "run it elsewhere: session run KEY -- …")
    settings = load(cwd=cwd)
    # Block signals here until `Child.wait` takes them, and in the child until it becomes the command.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    try:
        child = Child(command, cwd, before)
        try:
            with connect(settings, pid=child.pid) as sf:
                opened = sf.sessions.open(key, agent=agent, command=command, cwd=cwd)
                sf.sessions.keep()
                record = opened.record
                assert record.holder is not None
                child.go(record.id, carried(record.scope, record.label))
                code = child.wait()
                _end(out, lambda: sf.sessions.exited(record.id, holder=record.holder or "", code=code))
        finally:
            child.never()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code


def _end(out: Out, exited: Callable[[], object]) -> None:
    """End the session. An error of the store must not change the exit code of the command."""
    try:
        exited()
    except StandfastError as error:
        out.error(error.code, f"the command ended, but its session could not be ended: {error.message}", error.hint)


class Child:
    """A process that becomes the command when it receives its environment, and ends if none comes.

    The received value is in its environment under `variable`.
    """

    def __init__(
        self, command: tuple[str, ...], cwd: str, mask: set[signal.Signals] | set[int], *, variable: str = VARIABLE
    ) -> None:
        self._variable = variable
        told, self._tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            _become(command, cwd, mask, told)
        os.close(told)
        self._ended: int | None = None

    def go(self, name: str, more: Mapping[str, str] | None = None) -> None:
        """Become the command, with `name` and `more` in its environment."""
        os.write(self._tell, json.dumps({self._variable: name, **(more or {})}).encode())
        self._close()

    def never(self) -> None:
        """It never started the command, or it has ended: either way it is reaped."""
        self._close()
        if self._ended is None:
            self._ended = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def wait(self) -> int:
        """Pass signals on until it ends; its exit code, negative for a signal."""
        from standfast.cli.once_child import next_signal

        wanted = {*PASSED_ON, signal.SIGCHLD}
        while self._ended is None:
            number, from_terminal = next_signal(wanted)
            if number == signal.SIGCHLD:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self._ended = os.waitstatus_to_exitcode(status) if pid else None
            elif not from_terminal:  # a terminal tells everybody in front of it, the command too
                os.kill(self.pid, number)
        return self._ended

    def _close(self) -> None:
        if self._tell >= 0:
            os.close(self._tell)
            self._tell = -1


def _become(command: tuple[str, ...], cwd: str, mask: set[signal.Signals] | set[int], told: int) -> NoReturn:
    """In the child. It must never continue as a second parent."""
    code = NOT_FOUND
    try:
        with os.fdopen(told, "rb") as pipe:
            variables = pipe.read()
        if not variables:
            os._exit(0)
        os.chdir(cwd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; the command must not
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], list(command), {**os.environ, **json.loads(variables)})
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        os.write(2, f"standfast: {command[0]}: {error.strerror}\n".encode(errors="replace"))
    finally:
        os._exit(code)
