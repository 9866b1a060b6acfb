"""Split a command line by lists of its known options. A command line with other options is not understood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Words(NamedTuple):
    """The options and the other words of a command line."""

    options: dict[str, str | None]
    """Each option with its value; None for a flag."""
    rest: list[str]

    def value(self, *names: str) -> str | None:
        """The value of the first of these options that is present."""
        return next((self.options[name] for name in names if name in self.options), None)

    def has(self, *names: str) -> bool:
        return any(name in self.options for name in names)


def split(args: Sequence[str], *, flags: str, values: str = "") -> Words | None:
    """The parts of `args`. None if an option is neither among `flags` nor among `values`, or has no value."""
    known, valued = frozenset(flags.split()), frozenset(values.split())
    options: dict[str, str | None] = {}
    rest: list[str] = []
    left = list(args)
    while left:
        word = left.pop(0)
        if word == "--":
            return Words(options, rest + left)
        if word == "-" or not word.startswith("-"):
            rest.append(word)
        elif not (_long if word.startswith("--") else _short)(word, left, options, known, valued):
            return None
    return Words(options, rest)


def _long(
    word: str, left: list[str], options: dict[str, str | None], flags: frozenset[str], valued: frozenset[str]
) -> bool:
    name, equals, value = word.partition("=")
    if equals:
        options[name] = value
        return name in valued or name in flags
    if name in flags:
        options[name] = None
        return True
    if name not in valued or not left:
        return False
    options[name] = left.pop(0)
    return True


def _short(
    word: str, left: list[str], options: dict[str, str | None], flags: frozenset[str], valued: frozenset[str]
) -> bool:
    """`-q`, `-am text` and `-mtext`."""
    for at in range(1, len(word)):
        name = f"-{word[at]}"
        if name in valued:
            value = word[at + 1 :] or (left.pop(0) if left else None)
            options[name] = value
            return value is not None
        if name not in flags:
            return False
        options[name] = None
    return True
