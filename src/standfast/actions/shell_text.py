"""Find the known actions in a shell command of an agent.

Only unambiguous text is read: plain words, quotes, `&&`, `2>&1`, and a pipe into a program that shows lines. Text with
variables, globs, substitutions or redirections is not read, because their values at the time of the call are unknown.
"""

from __future__ import annotations

import os
import re
import shlex

from standfast.actions import table
from standfast.actions.table import Known

TEXT_MAX = 4_000
_SHOWING = frozenset({"cat", "head", "tail", "grep", "less"})
_CHANGES_NOTHING = (("git", "add"), ("git", "status"), ("git", "diff"), ("git", "fetch"), ("git", "log"))
_UNREADABLE = re.compile(r"[$`*?~{}\[\]!#\\\n\r;]")


def known_actions(text: str, cwd: str) -> list[Known]:
    """The actions of a command, in order. Empty if it has none or if a part of the text is ambiguous."""
    if len(text) > TEXT_MAX or _UNREADABLE.search(text):
        return []
    try:
        lexer = shlex.shlex(re.sub(r"\s2>&1(?=\s|$)", "", text), posix=True, punctuation_chars="&|<>();")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return []
    found: list[Known] = []
    for command in _split(words, "&&"):
        first, *shown = _split(command, "|")
        if any(set(word) <= set("&|<>();") for part in (first, *shown) for word in part if word):
            return []
        if any(not part or part[0] not in _SHOWING for part in shown) or not first:
            return []
        if first[0] == "cd" and len(first) == 2:
            cwd = os.path.normpath(os.path.join(cwd, first[1]))
        elif (known := table.recognised(first, cwd)) is not None:
            found.append(known)
        elif tuple(first[:2]) not in _CHANGES_NOTHING:
            return []
    return found


def _split(words: list[str], at: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == at:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
