"""Run a program for a probe.

No shell reads the arguments. A foreign argument that begins with `-` is refused, because a program would read it as an
option. The program gets no stdin and cannot prompt.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from standfast.actions.action import CannotTell

OUTPUT_MAX = 4 << 20
QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_OPTIONAL_LOCKS": "0",
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "NO_COLOR": "1",
    "LC_ALL": "C.UTF-8",
}
"""These variables turn off prompts, transports that run other commands (`ext::`) and colours."""
NO_ASKPASS = {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true"}
"""Defaults for callers without a program that answers password prompts."""


class Ended(NamedTuple):
    """The exit code and output of a program."""

    code: int
    stdout: str
    stderr: str

    @property
    def why(self) -> str:
        """The last line on stderr, for people."""
        lines = self.stderr.strip().splitlines()
        return lines[-1][:200] if lines else f"exit {self.code}"


def word(text: object) -> str:
    """Check a foreign argument. Raises CannotTell if it is empty, looks like an option, or has a NUL or line break."""
    if not isinstance(text, str) or not text or text.startswith("-") or "\0" in text or "\n" in text:
        raise CannotTell(f"{str(text)[:60]!r} cannot be an argument of a probe")
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group, so that programs such as ssh and git-remote-https end with it."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def run(argv: Sequence[str], *, cwd: str, within_s: float) -> Ended:
    """Run a program. Raises CannotTell if it is not installed, exceeds the time, or prints over OUTPUT_MAX bytes."""
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**NO_ASKPASS, **os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotTell(f"{argv[0]}: {error.strerror}") from None
    try:
        stdout, stderr = process.communicate(timeout=max(within_s, 0.0))
    except subprocess.TimeoutExpired:
        raise CannotTell(f"{argv[0]} did not answer within {within_s:.0f} s") from None
    finally:
        _end(process)
    if len(stdout) > OUTPUT_MAX:
        raise CannotTell(f"{argv[0]} answered with more than {OUTPUT_MAX >> 20} MB")
    return Ended(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
