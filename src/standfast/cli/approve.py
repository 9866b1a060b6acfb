"""`standfast approve` and `deny`: a person reads what is to be done, and types the answer.

The question is written to the terminal itself and the answer is read from there, wherever stdin and
stdout go. Refused without a terminal, in the background, and where an agent's variables are set. On
one account of one machine that is a seat belt, not a lock: docs/approvals.md says what would be one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from standfast.cli import exits
from standfast.cli.approval import lines, plain, visible
from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out
from standfast.errors import ApprovalRequired

if TYPE_CHECKING:
    from standfast.ledger.approvals import Question

TERMINAL = "/dev/tty"
ANSWER_MAX_BYTES = 1000


@command("approve", examples=("standfast approve 9k2m4x", 'standfast approve 9k2m4x --why "read it all"'))
@argument("approval")
@option("--why", help="Why you say so; it is kept with the answer.")
@option("--yes", is_flag=True, hidden=True, help="Makes no difference: a person types it.")
def approve(out: Out, approval: str, why: str | None, yes: bool) -> None:
    """Read what is to be done and say yes to exactly that: type yes on the terminal."""
    _answer(out, approval, why, "approve")


@command("deny", examples=("standfast deny 9k2m4x", 'standfast deny 9k2m4x --why "not on a Friday"'))
@argument("approval")
@option("--why", help="Why not; whoever asked is told.")
@option("--yes", is_flag=True, hidden=True, help="Makes no difference: a person types it.")
def deny(out: Out, approval: str, why: str | None, yes: bool) -> None:
    """Read what is to be done and refuse it: type yes on the terminal."""
    _answer(out, approval, why, "deny")


def _answer(out: Out, approval: str, why: str | None, what: str) -> None:
    from standfast.cli.store import opened
    from standfast.config import people
    from standfast.config.actor import person

    people.refuse("answers an approval")
    with terminal_of_a_person(f"standfast {what}") as terminal, opened(create=False) as sf:
        question = sf.approvals.pose(approval)
        if not _agreed(terminal, question, what):
            out.say(f"nothing was recorded: {question.approval.id} still waits")
            raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
        verb = sf.approvals.grant if what == "approve" else sf.approvals.deny
        made = verb(question.approval.id, approver=person(os.environ), rationale=why, method="terminal")
    out.record(plain(made), [f"{made.id} {made.state}"])


class Terminal:
    """The terminal of whoever typed the command, whatever was redirected."""

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
        if os.tcgetpgrp(fd) != os.getpgrp():  # reading from there would stop this process for ever
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


def _agreed(terminal: Terminal, question: Question, what: str) -> bool:
    for line in lines(question, width=terminal.width):
        terminal.write(line + "\n")
    return terminal.ask(f"\nType yes to {what} {visible(question.tool)}: ").lower() == "yes"
