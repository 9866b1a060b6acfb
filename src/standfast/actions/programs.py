"""Run a program that only reads, for a probe.

Each argument is one word of the program's command line; no shell reads it. An argument from outside that begins with
`-` would be an option, so it is refused. The program gets no stdin and may not prompt.
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
"""No question to a person, no transport that runs a command of its own (`ext::`), plain output."""
NO_ASKPASS = {"GIT_ASKPASS": "true", "SSH_ASKPASS": "true"}
"""Unless the caller has a program that answers for a password: then that is the caller's credential."""


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def why(self) -> str:
        """Its last line on stderr, for a person."""
        lines = self.stderr.strip().splitlines()
        return lines[-1][:200] if lines else f"exit {self.code}"


def word(text: object) -> str:
    """An argument from outside. Raises CannotTell for what a program could read as an option, or not at all."""
    if not isinstance(text, str) or not text or text.startswith("-") or "\0" in text or "\n" in text:
        raise CannotTell(f"{str(text)[:60]!r} cannot be an argument of a probe")
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with all that it has started (ssh, git-remote-https): none of them outlives the deadline."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def run(argv: Sequence[str], *, cwd: str, within_s: float) -> Ended:
    """Run it and wait for its end. Raises CannotTell if it is not installed, is too slow or says too much."""
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
