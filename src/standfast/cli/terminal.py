"""The terminal of a person: a question is written to it and the answer is read from it, wherever stdin and stdout go.

Refused without a terminal and in the background. On one account of one machine that is a seat belt, not a lock:
docs/concepts/approvals.md says what would be one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from standfast.errors import ApprovalRequired

TERMINAL = "/dev/tty"
ANSWER_MAX_BYTES = 1000


class Terminal:
    """The terminal of the person at the keyboard, even if the standard streams are redirected."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def width(self) -> int:
        try:
            columns = os.get_terminal_size(self._fd).columns
        except OSError:
            return 80
        return max(columns, 20) if columns else 80

    def write(self, text: str) -> None:
        import locale

        data = text.encode(locale.getpreferredencoding(False), errors="backslashreplace")
        while data:
            data = data[os.write(self._fd, data) :]

    def ask(self, prompt: str) -> str:
        """The line that is typed after the prompt has been seen; empty if there is none."""
        import termios

        termios.tcflush(self._fd, termios.TCIFLUSH)  # what was typed ahead answered something else
        self.write(prompt)
        return os.read(self._fd, ANSWER_MAX_BYTES).decode(errors="replace").strip()


@contextmanager
def terminal_of_a_person(what: str, hint: str = "a person types it in a terminal") -> Iterator[Terminal]:
    """The terminal in front of which `what` was typed. Raises ApprovalRequired where there is none."""
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise _no_terminal(what, "there is no terminal here", hint) from None
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():  # reading from there would stop this process permanently
            raise _no_terminal(what, "this runs in the background of its terminal", hint)
        yield Terminal(fd)
    finally:
        os.close(fd)


def _no_terminal(what: str, fact: str, hint: str) -> ApprovalRequired:
    return ApprovalRequired(
        f"{what} asks a person, and {fact}",
        f"{hint}; no option takes its place",
        code="no_terminal",
    )
