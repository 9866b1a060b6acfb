"""Which gates a command line meets: a pure function, usable by a hook that cannot reach the store.

A pattern is a glob as in `fnmatch` (`*`, `?`, `[…]`), case-sensitive, over the whole text. It is
compared with

    the tool's name, where one is given
    the whole command line, its white space made single spaces
    each simple command in it, quotes removed, its words joined by single spaces

Simple commands are what stands between `;`, `&`, `|`, parentheses, backticks and line ends, without
redirections and comments; also inside `$(…)`, `sh -c "…"` and `eval`. Leading assignments,
shell keywords and the directory of the program are taken off, and behind a program that only starts
another (`sudo`, `env`, `xargs` …) every word is tried as the beginning of a command.

`standfast once …` passes: it asks for what its own command needs.

This is a seat belt. It sees text, not what a shell will make of it: variables, aliases, scripts and
other spellings (`git -C . push`) go by; text in a here-document is taken for commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from standfast.footings.journal import Receipt

NESTED_MAX = 4
CANDIDATES_MAX = 10_000
STARTS_MAX = 12
"""Words behind `sudo` and its like that are tried as the beginning of a command."""

_STARTERS = "sudo doas env command builtin exec nohup nice ionice time timeout stdbuf setsid xargs watch parallel"
_SHELLS = "sh bash dash zsh ksh ash fish"
_KEYWORDS = "{ } ! if then elif else fi while until for do done case esac in coproc function"
STARTERS, SHELLS, KEYWORDS = (frozenset(words.split()) for words in (_STARTERS, _SHELLS, _KEYWORDS))

_TOKEN = re.compile(
    r"""
      (?P<joined> \\\n )
    | \\(?P<escaped> .)
    | \$?'(?P<single> [^']* )'
    | "(?P<double> (?: [^"\\] | \\. )* )"
    | (?P<redirect> <<<|<<-?|<>|>>|>\||[<>] ) &?
    | (?P<end> [;&|()`\n] )
    | (?P<space> [\ \t\r\f\v]+ )
    | (?P<comment> \# )
    | (?P<plain> [^\s;&|()<>`'"\\\#]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")


class Gate(NamedTuple):
    """A pattern of commands that need a person's yes, or to be an effect."""

    id: str
    scope: str
    pattern: str
    need: str
    why: str | None
    actor: str
    created_us: int
    removed_us: int | None = None
    receipt: Receipt | None = None


def match(
    document: dict[str, Any], command: str | Sequence[str], *, tool: str | None = None, scope: str | None = None
) -> list[Gate]:
    """The gates of a `gates.json`, as read, that this command meets; those that need a yes first.

    Gates of `scope` and those that hold everywhere; without a scope, all of them.
    """
    rows = [row for gates in document["stores"].values() for row in gates]
    gates = [Gate(*(row.get(name) for name in Gate._fields[:-1])) for row in rows]
    return met([gate for gate in gates if scope is None or gate.scope in ("", scope)], command, tool=tool)


def met(gates: Sequence[Gate], command: str | Sequence[str], *, tool: str | None = None) -> list[Gate]:
    """Those of `gates` that a command line, or a list of words, meets."""
    if not gates:
        return []
    from fnmatch import fnmatchcase

    texts = [*([tool] if tool else []), *candidates(command)]
    found = [gate for gate in gates if any(fnmatchcase(text, gate.pattern) for text in texts)]
    return sorted(found, key=lambda gate: (gate.need != "approval", gate.pattern))


def candidates(command: str | Sequence[str]) -> list[str]:
    """Every text a pattern is compared with."""
    if isinstance(command, str):
        simple = list(simple_commands(command))
        line = " ".join(command.split())
    else:
        simple = [list(command)]
        line = " ".join(" ".join(command).split())
    texts = list(islice((text for words in simple for text in _spellings(words, 0)), CANDIDATES_MAX))
    # A line of which every command asks for itself passes as a whole; any other line counts.
    if line and not (simple and all(_asks_itself(words) for words in simple)):
        texts.insert(0, line)
    return list(dict.fromkeys(texts))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each simple command, quotes removed; commands in substitutions come as well."""
    return _read(line, 0)


def _read(line: str, depth: int) -> Iterator[list[str]]:
    words: list[str] = []
    word: str | None = None
    target = False  # the next word is where a redirection goes, not part of the command
    position = 0
    while position < len(line):
        token = _TOKEN.match(line, position)
        assert token is not None
        position = token.end()
        kind = token.lastgroup
        if kind in ("plain", "single", "double", "escaped"):
            text = token[kind]
            if kind == "double" and depth < NESTED_MAX and ("`" in text or "$(" in text):
                yield from _read(text, depth + 1)
            word = (word or "") + (text if kind != "double" else _unescaped(text))
            continue
        if kind == "joined":
            continue
        if kind == "comment":
            if word is None:  # only at the beginning of a word
                position = (line + "\n").index("\n", position)
            else:
                word += "#"
            continue
        if kind == "redirect" and word is not None and word.isdigit():
            word = None  # the 2 of `2>log`
        if word is not None and not target:
            words.append(word)
        if word is not None or kind == "end":
            target = False
        word = None
        target = target or kind == "redirect"
        if kind == "end" and words:
            yield words
            words = []
    if word is not None and not target:
        words.append(word)
    if words:
        yield words


def _unescaped(text: str) -> str:
    return re.sub(r"\\([$`\"\\\n])", lambda found: "" if found[1] == "\n" else found[1], text)


def _spellings(words: list[str], depth: int, *, started: bool = False) -> Iterator[str]:
    """The ways one simple command may be written in a pattern."""
    words = _without_prefix(words)
    if not words or _asks_itself(words):
        return
    program = words[0].rpartition("/")[2] or words[0]
    yield " ".join(" ".join(words).split())
    if program != words[0]:
        yield " ".join(" ".join([program, *words[1:]]).split())
    if depth >= NESTED_MAX:
        return
    # What `sudo env git push` starts in the end is among the words behind `sudo` already.
    for inner in () if started else _started(program, words):
        yield from _spellings(inner, depth + 1, started=True)
    for text in _scripts(program, words):
        for simple in _read(text, depth + 1):
            yield from _spellings(simple, depth + 1)


def _started(program: str, words: list[str]) -> Iterator[list[str]]:
    """Commands that `program` would start from its own words."""
    if program in STARTERS:
        for at in range(1, min(len(words), STARTS_MAX + 1)):
            yield words[at:]
    elif "--" in words[1:] and program == "standfast":
        yield words[words.index("--") + 1 :]


def _scripts(program: str, words: list[str]) -> Iterator[str]:
    """Words that `program` would read as a command line."""
    if program == "eval":
        yield " ".join(words[1:])
    elif program in SHELLS:
        for option, text in pairwise(words[1:]):
            if option.startswith("-") and "c" in option:
                yield text
                return


def _without_prefix(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and (words[at] in KEYWORDS or _ASSIGNMENT.match(words[at])):
        at += 1
    return words[at:]


def _asks_itself(words: list[str]) -> bool:
    words = _without_prefix(words)
    return len(words) > 1 and words[0].rpartition("/")[2] == "standfast" and words[1] == "once"
