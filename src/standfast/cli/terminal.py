"""The terminal of a person. Questions and answers use it directly, even if stdin and stdout are redirected.

Without a terminal, or in the background, a question is refused. A program that runs under the same account can open a
terminal too, so this prevents mistakes, not attacks: see docs/concepts/approvals.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from standfast.errors import ApprovalRequired

TERMINAL = "/dev/tty"
ANSWER_MAX_BYTES = 1000


class Terminal:
    """The controlling terminal of this process."""

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
        """The line that is typed after the prompt; empty at the end of the input."""
        import termios

        termios.tcflush(self._fd, termios.TCIFLUSH)  # discard input that was typed before the question
        self.write(prompt)
        return os.read(self._fd, ANSWER_MAX_BYTES).decode(errors="replace").strip()


@contextmanager
def terminal_of_a_person(what: str, hint: str = "a person types it in a terminal") -> Iterator[Terminal]:
    """The terminal where `what` was typed. Raises ApprovalRequired if there is none."""
    try:
        fd = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise _no_terminal(what, "there is no terminal here", hint) from None
    try:
        if os.tcgetpgrp(fd) != os.getpgrp():  # the kernel stops a background process that reads from its terminal
            raise _no_terminal(what, "this runs in the background of its terminal", hint)
        yield Terminal(fd)
    finally:
        os.close(fd)


def _no_terminal(what: str, fact: str, hint: str) -> ApprovalRequired:
    return ApprovalRequired(
        f"{what} asks a person, and {fact}",
        f"{hint}; no option replaces the terminal",
        code="no_terminal",
    )
