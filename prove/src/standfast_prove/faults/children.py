"""Child processes that tests talk to, stop and kill.

`Child` is one process: it writes lines and reads lines. It is forked from a process that has imported standfast. It
gets its own interpreter if its environment or a command prefix must apply from the start. `Nursery` is a process that
has imported standfast and opened nothing. It forks a child in milliseconds, so that tests can make hundreds of kills.
Both run a function named "module:function" with keyword arguments that JSON can represent.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn, Self

from standfast_prove.faults import forks

PATIENCE_S = 60.0
READ_AT_THE_START = {"STANDFAST_CRASH_AT", "STANDFAST_CRASH_TRACE", "STANDFAST_PROVE_MUTANT", "LD_PRELOAD"}
"""Variables that act while an interpreter starts and imports standfast."""


class Child:
    """One process that runs `target`. Its stdout is read line by line."""

    def __init__(
        self,
        target: str,
        *,
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        forked: bool = True,
        **arguments: object,
    ) -> None:
        """With `forked` false, the child gets its own interpreter, and its parent is this process."""
        self.process: subprocess.Popen[bytes] | forks.Forked
        if not forked or env or prefix or READ_AT_THE_START & os.environ.keys():
            self.process = self._interpreter(target, arguments, env, prefix)
        else:
            start = forks.Start(environment=_environment(None), directory=os.getcwd())
            self.process = forks.fork(target, arguments, start)
        self.pid = self.process.pid
        self._lines = Lines(self.process.stdout)

    def _interpreter(
        self, target: str, arguments: dict[str, object], env: dict[str, str] | None, prefix: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        module = "standfast_prove.faults.children"
        return subprocess.Popen(
            [*prefix, sys.executable, "-P", "-m", module, "run", target, json.dumps(arguments)],
            env=_environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # only the parent process handles Ctrl-C, and it ends this process
        )

    def hear(self, timeout_s: float = PATIENCE_S) -> str:
        """The next line of its output."""
        line = self._lines.next(timeout_s)
        if line is None:
            raise AssertionError(f"the child ended without a word: {self._last_words()}")
        return line

    def expect(self, word: str) -> None:
        heard = self.hear()
        assert heard == word, f"the child said {heard!r} instead of {word!r}"

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self, timeout_s: float = PATIENCE_S) -> list[str]:
        """Wait until it exits, and return the rest of its output. Raises if its exit code is not 0."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        rest = []
        while (line := self._lines.next(timeout_s)) is not None:
            rest.append(line)
        code = self.process.wait(timeout_s)
        assert code == 0, f"the child ended with {code}: {self._last_words()}"
        self._close()
        return rest

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _last_words(self) -> str:
        self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode(errors="replace")[-3000:]

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # a stopped process dies of SIGKILL too; its output may wait
        self.kill()


class Lines:
    """Lines from a pipe, with a deadline."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._rest = b""

    def next(self, timeout_s: float) -> str | None:
        """The next line, or None at the end of the stream."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"nothing was said within {timeout_s} s; so far: {self._rest!r}")
            part = os.read(self._pipe.fileno(), 65536)
            if not part:
                return None
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


def _environment(changed: dict[str, str] | None) -> dict[str, str]:
    """Our environment, with our module path, so that a child can import the same modules."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | (changed or {})


def say(line: object) -> None:
    """In a child: send one line to the parent in one write, because a forked child may write too."""
    sys.stdout.flush()
    os.write(1, f"{line}\n".encode())


def heard() -> str:
    """In a child: wait for a line from the parent. Returns "" if the parent has exited."""
    return sys.stdin.readline().rstrip("\n")


class Nursery:
    """Forks child processes from a process that has imported all modules and opened no store."""

    def __init__(self, *, env: dict[str, str] | None = None, words: Path | None = None, postgres: bool = False) -> None:
        """With `postgres`, the driver is imported before the fork."""
        self._words = open(words, "ab") if words else None  # noqa: SIM115  closed with the nursery
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "standfast_prove.faults.children",
                "serve",
                *(["postgres"] if postgres else []),
            ],
            env=_environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            process_group=0,
        )
        self._lines = Lines(self._process.stdout)

    def _ask(self, **order: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._lines.next(PATIENCE_S * 10)
        assert answer is not None, "the nursery has died"
        return json.loads(answer)

    def start(self, target: str, **arguments: object) -> int:
        """Fork one child and return its pid. It stays a zombie until `wait` or `kill`."""
        pid: int = self._ask(do="start", target=target, arguments=arguments, gate=False)
        return pid

    def race(self, target: str, starters: Sequence[dict[str, object]]) -> list[int]:
        """Fork one child per starter, let all start at the same moment, and return their pids."""
        pids = [self._ask(do="start", target=target, arguments=arguments, gate=True) for arguments in starters]
        self._ask(do="go")
        return pids

    def load(self, modules: Sequence[str]) -> None:
        """Modules that a child needed. They are imported before the next fork."""
        self._ask(do="load", modules=list(modules))

    def wait(self, pid: int, timeout_s: float = PATIENCE_S) -> int | None:
        """The exit code (negative for a signal), or None if it is still running."""
        code: int | None = self._ask(do="wait", pid=pid, timeout_s=timeout_s)
        return code

    def kill(self, pid: int) -> int | None:
        """Kill it with SIGKILL and reap it. Returns its exit code, because it may have exited before."""
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        return self.wait(pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        if self._words is not None:
            self._words.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# -- the other side ----------------------------------------------------------------------------------


def find(target: str) -> Callable[..., object]:
    module, _, name = target.partition(":")
    function: Callable[..., object] = getattr(import_module(module), name)
    return function


class _Server:
    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._gate = os.pipe()

    def serve(self) -> None:
        for line in sys.stdin:
            order = json.loads(line)
            answer = getattr(self, "_" + order.pop("do"))(**order)
            print(json.dumps(answer), flush=True)
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _start(self, target: str, arguments: dict[str, object], gate: bool) -> int:
        function = find(target)
        pid = os.fork()
        if pid == 0:
            self._live(function, arguments, gate)
        self._pids.add(pid)
        return pid

    def _live(self, function: Callable[..., object], arguments: dict[str, object], gate: bool) -> NoReturn:
        code = 1
        try:
            die_with_parent()
            os.dup2(2, 1)  # our stdout carries the protocol with the parent
            os.close(self._gate[1])
            if gate:
                os.read(self._gate[0], 1)  # returns when the last writer closes the pipe: all start together
            function(**arguments)
            code = 0
        except BaseException:  # noqa: BLE001  the parent reads stderr
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _load(self, modules: list[str]) -> bool:
        for name in modules:
            if name not in sys.modules and not name.startswith("__"):
                with suppress(ImportError):
                    import_module(name)
        return True

    def _go(self) -> bool:
        reader, writer = self._gate
        self._gate = os.pipe()
        os.close(writer)
        os.close(reader)
        return True

    def _wait(self, pid: int, timeout_s: float) -> int | None:
        handle = os.pidfd_open(pid)
        try:
            if not select.select([handle], [], [], timeout_s)[0]:
                return None
        finally:
            os.close(handle)
        _, status = os.waitpid(pid, 0)
        self._pids.discard(pid)
        return os.waitstatus_to_exitcode(status)


def die_with_parent() -> None:
    """In a child: the kernel kills it when its parent ends. A child that it forks has to call this again."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def import_everything(*, postgres: bool = False) -> None:
    """Imported here, before the fork."""
    modules = ["config", "crash", "db.sqlite.registry", "core.journal", "core.leases", "handle"]
    for module in modules + (["db.postgres.engine"] if postgres else []):
        import_module(f"standfast.{module}")


def main(argv: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes its background jobs ignore this signal
    from standfast_prove.mutants.registry import become_what_was_asked

    become_what_was_asked()
    if argv[0] == "serve":
        import_everything(postgres="postgres" in argv)
        _Server().serve()
    elif argv[0] == "fork":
        import_everything(postgres="psycopg" in argv)
        for name in ("standfast.cli.app", "standfast.cli.generate", "standfast.cli.open_store", *argv[1:]):
            import_module(name)
        if (asked := forks.serve()) is not None:
            find(asked[0])(**asked[1])
    else:
        find(argv[1])(**json.loads(argv[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
