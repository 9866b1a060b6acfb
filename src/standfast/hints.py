"""Commands in hints, quoted so that a person can paste them."""

from __future__ import annotations


def command(*words: str) -> str:
    """`standfast` and these words, quoted for the shell."""
    return " ".join(("standfast", *map(word, words)))


def word(text: str) -> str:
    """One word of a command, quoted if the shell would change it."""
    if text and text.isascii() and all(c.isalnum() or c in "@%+=:,./-_" for c in text):
        return text
    from shlex import quote

    return quote(text)
