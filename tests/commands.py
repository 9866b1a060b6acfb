"""Run `standfast` commands in tests. One process imports standfast; each command runs in a fork of that process."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from standfast_prove.faults import forks
from standfast_prove.faults.children import READ_AT_THE_START

MAIN = "import sys; from standfast.cli import main; sys.exit(main())"


def run(
    *words: str,
    environment: Mapping[str, str],
    cwd: Path,
    input: str | None = None,
    answer: str = "",
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run `standfast words…` in a new process and a new session, without a terminal.

    With `answer` it has a terminal, where a person answers each question with this text.
    """
    changed = {name for name, value in environment.items() if value != os.environ.get(name)}
    if READ_AT_THE_START & environment.keys() or any(name.startswith("PYTHON") for name in changed):
        return subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            env=environment,
            cwd=cwd,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            start_new_session=True,
        )
    start = forks.Start(environment=environment, directory=str(cwd), stdin=input is not None)
    with person(answer) if answer else nullcontext() as terminal:
        process = forks.fork("tests.commands:command", {"words": words, "terminal": terminal}, start)
        try:
            out, err = process.communicate((input or "").encode(), timeout)
            return subprocess.CompletedProcess(words, process.wait(timeout), out.decode(), err.decode())
        except subprocess.TimeoutExpired:
            process.kill()
            raise


@contextmanager
def person(answer: str) -> Iterator[str]:
    """The path of a terminal where a person answers each question with `answer`."""
    theirs, terminal = os.openpty()
    typing = threading.Thread(target=_answer, args=(theirs, f"{answer}\n".encode()))
    typing.start()
    try:
        yield os.ttyname(terminal)
    finally:
        os.close(terminal)
        typing.join()
        os.close(theirs)


def _answer(terminal: int, answer: bytes) -> None:
    with suppress(OSError):  # no other process has the terminal open any more
        while shown := os.read(terminal, 65536):
            if shown.endswith(b": "):
                os.write(terminal, answer)


def command(words: list[str], terminal: str | None = None) -> None:
    """Run `python -c MAIN words…` in this process, without the destructors of modules, which take 20 ms."""
    if terminal is not None:
        os.open(terminal, os.O_RDWR)  # the leader of a session gets the first terminal that it opens
    sys.argv = ["-c", *words]
    from standfast.cli import main

    code = main()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
