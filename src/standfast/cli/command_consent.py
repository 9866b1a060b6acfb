"""Ask a person before a command that another actor stored runs here for the first time.

A command that this person stored runs without a question. A command that an agent, another person or another host
stored is shown on the terminal. `confirmed.json` in the data directory keeps the hashes of confirmed commands. If the
command, its directory or its author changes, the person is asked again.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from standfast import serial
from standfast.cli.terminal import terminal_of_a_person
from standfast.config import files, people
from standfast.errors import ApprovalRequired

FILE = "confirmed.json"
CONFIRMED_MAX = 10_000


class Stored(NamedTuple):
    """A command, its directory, and all actors that may have stored it."""

    command: str
    cwd: str
    by: tuple[str, ...]

    @property
    def hash(self) -> str:
        return serial.hash([self.command, self.cwd, list(self.by)])


def is_mine(stored: Stored, actor: str) -> bool:
    """Whether this person stored the command, on any terminal. An unknown author counts as another person."""
    return is_by(stored.by, actor)


def is_by(authors: tuple[str, ...], actor: str) -> bool:
    return bool(authors) and all(_person(one) == _person(actor) for one in authors)


def is_confirmed(stored: Stored, data_dir: str) -> bool:
    return stored.hash in _confirmed(data_dir)


def confirm(stored: Stored, data_dir: str, again: str) -> None:
    """Show the command and ask. Raises ApprovalRequired unless a person types yes; its hint is the command `again`."""
    from standfast.cli.approval_question import broken, visible

    people.refuse("runs stored commands")
    by = ", ".join(stored.by) or "an unknown author"
    hint = f"a person types it in a terminal: {again}"
    with terminal_of_a_person(again, hint) as terminal:
        for label, text in (("stored by", by), ("runs in", stored.cwd)):
            terminal.write(f"{label:<10}  {visible(text)}\n")
        for piece in broken(visible(stored.command), terminal.width):
            terminal.write(f"│ {piece}\n")
        if terminal.ask("\nType yes to run it: ").lower() != "yes":
            raise ApprovalRequired("the stored command was not run", hint, code="unconfirmed_command")
    _remember(stored, data_dir)


def _person(actor: str) -> str:
    """The actor without the terminal: `ada@host:pts/0` is `ada@host`. Names of agents have no @ before the colon."""
    name, _, _ = actor.partition(":")
    return name if "@" in name else actor


def _confirmed(data_dir: str) -> list[str]:
    path = os.path.join(data_dir, FILE)
    if not os.path.exists(path):
        return []
    found = serial.read(files.read(path).content.decode(errors="replace"))
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _remember(stored: Stored, data_dir: str) -> None:
    files.private_directory(data_dir)
    kept = [*_confirmed(data_dir), stored.hash][-CONFIRMED_MAX:]
    files.write(os.path.join(data_dir, FILE), serial.canonical(kept) + "\n")
