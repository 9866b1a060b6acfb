"""The command to type next, as text that can be pasted: a list of words, quoted in one place."""

from __future__ import annotations


def command(*words: str) -> str:
    """`standfast` and these words, each quoted for the shell where it needs it."""
    return " ".join(("standfast", *map(word, words)))


def word(text: str) -> str:
    """One word of a command, quoted where the shell would read it as anything else."""
    if text and text.isascii() and all(c.isalnum() or c in "@%+=:,./-_" for c in text):
        return text
    from shlex import quote

    return quote(text)
