"""Compare gates with a call: pure functions, which also serve a hook that cannot read the store.

A gate's pattern is a line of words. Each word is a case-sensitive glob (`*`, `?`, `[…]`). A call meets the gate if

    the pattern matches the name of the tool, or the whole command line, or
    its words occur in this order in the text without quotes and escapes

Between two words of a gate there may be options, each with one value (`git -C . push`), redirections and variables.
The first word is also compared with the last part of a path (`/usr/bin/git`). So `sh -c "git push"`, `eval`, `xargs`,
`find -exec`, here-documents and `standfast once KEY -- git push` meet `git push*`.

`gate_release` knows shell syntax. It only removes plain text: the message of a commit, an argument of `echo`, the body
of a here-document for `cat`. A text that is too long or cannot be parsed meets every gate of which it contains one
literal word.

The work grows linearly with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from shlex import join
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.config.scope import Keyspace
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.core.receipts import Receipt

TEXT_MAX = 256 << 10
"""Characters of a call that are compared. A longer call meets every gate of which it contains one literal word."""

BREAK = "\n"
"""The token between two commands. The words of a gate must occur in one command."""

_STRICTEST = ("approval", "ask", "effect")
_REMOVED = {ord(mark): None for mark in "'\"\\"}
_QUOTES_APART = {ord(mark): " " for mark in "'\""}
_SPACES = {ord(mark): " " for mark in "(){}[],`=!@"}
_IFS = re.compile(r"\$\{?IFS\}?")
_NOTHING = re.compile(r"``|\$\(\)|\$[@*]|\$(?=['\"])")
_EXPANSION = r"(?:\$\{[^{}]*\}|\$\([^()]*\)|`[^`]*`|\$[0-9@*#?!-]|\$[A-Za-z_]\w*)"
_IN_A_WORD = re.compile(rf"(?<=\w)(\"?){_EXPANSION}\1|(\"?){_EXPANSION}\2(?=\w)")
_FLAT = re.compile(r"[;&|\n]+|[<>]+[&|]?|[^\s;&|<>]+")
_LITERAL = re.compile(r"\[[^\]]*\]|[*?\s]+")
_VARIABLE = re.compile(r"\$\w*|\$[^\w\s]")


class Gate(Model):
    """A pattern of commands that need a person's approval or must be effects."""

    id: str
    scope: str
    repository: str
    pattern: str
    need: str
    """approval, effect or ask. With ask, Claude Code asks its user in its own prompt."""
    why: str | None
    agent: str
    created_us: int
    removed_us: int | None = None
    paused_until_us: int | None = None
    """The end of the pause that a person set. A paused gate stops nothing."""
    receipt: Receipt | None = None

    @property
    def needs_person(self) -> bool:
        return self.need != "effect"


def gate_of(row: Mapping[str, Any]) -> Gate:
    """The gate of a row of the store or of `gates.json`. An older version may have written that file."""
    fields: dict[str, Any] = {name: row.get(name) for name in Gate.field_names()[:-1]}
    return Gate(**{**fields, "need": row.get("via") or row["need"], "agent": row.get("actor") or row.get("agent")})


def match(
    document: dict[str, Any],
    command: str | Sequence[str],
    *,
    tool: str | None = None,
    texts: Sequence[str] = (),
    keyspaces: Sequence[Keyspace] | None = None,
) -> list[Gate]:
    """The gates in the content of `gates.json` that this command meets; those that need approval come first.

    Only gates of `keyspaces` count: `config.load().keyspaces` are those of the current directory. Without it, all do.
    """
    return met(standing(document, keyspaces), command, tool=tool, texts=texts)


def standing(document: dict[str, Any], keyspaces: Sequence[Keyspace] | None = None) -> list[Gate]:
    """The gates in the content of `gates.json` that apply in any of `keyspaces`; without `keyspaces`, all gates."""
    rows = [row for gates in document["stores"].values() for row in gates]
    gates = [gate_of(row) for row in rows]
    if keyspaces is None:
        return gates
    return [gate for gate in gates if any(one.within(Keyspace(gate.scope, gate.repository)) for one in keyspaces)]


def met(
    gates: Sequence[Gate],
    command: str | Sequence[str],
    *,
    tool: str | None = None,
    texts: Sequence[str] = (),
    late: Callable[[], bool] = lambda: False,
) -> list[Gate]:
    """The gates that match a command (a line or a list of words), or one of the other `texts` of the call.

    `late` returns True after the deadline. From then on a gate matches if one of its literal words occurs.
    """
    if not gates:
        return []
    line = command if isinstance(command, str) else join(command)
    call = _Call([text for text in (line, *texts) if text.strip()], late)
    found = [gate for gate in gates if (tool and fnmatchcase(tool, gate.pattern)) or call.meets(gate.pattern)]
    return sorted(found, key=lambda gate: (_STRICTEST.index(gate.need), gate.pattern))


def may_meet(gates: Sequence[Gate], text: str) -> list[Gate]:
    """The gates of which one literal word occurs in `text`: for a call that could not be judged."""
    flat = flattened(text)
    return [gate for gate in gates if _some_literal(gate.pattern, text) or _some_literal(gate.pattern, flat)]


def flattened(text: str) -> str:
    """The text without quotes, escapes and expressions that always expand to nothing.

    A line that ends in a backslash continues in the next one without a space: `gi\\` and `t` are one word.
    """
    text = text.replace("\\\n", "")
    if "IFS" in text:
        text = _IFS.sub(" ", text)
    if "$" in text or "``" in text:
        text = _NOTHING.sub("", text)
    return text.translate(_REMOVED)


class _Call:
    """The texts of one call, read once for all gates."""

    def __init__(self, texts: list[str], late: Callable[[], bool]) -> None:
        self._texts = texts = [text.replace("\0", "") for text in texts]  # a shell ignores NUL too
        self._late = late
        self._size = sum(map(len, texts))
        self._flat = [flattened(text) for text in texts] if self._size <= TEXT_MAX else []
        self._lines = [" ".join(text.split()) for text in (*texts, *self._flat)] if self._flat else []
        self._reads: list[_Read] = []
        self._joined: tuple[_Read, str] | None = None

    def meets(self, pattern: str) -> bool:
        if not self._texts:
            return False
        if self._size > TEXT_MAX or self._late():
            return any(_some_literal(pattern, text) or _some_literal(pattern, flattened(text)) for text in self._texts)
        # Cheap checks first: a text without any literal part of the gate cannot meet it.
        whole = "\n".join(self._flat)
        if self._is_line(pattern):
            return True
        if not _some_literal(pattern, whole):
            return False
        self._reads = self._reads or self._readings()
        return any(read.meets(pattern, whole) for read in self._reads) or self._meets_joined(pattern)

    def _readings(self) -> list[_Read]:
        """The texts as tokens; and again without expressions that expand to nothing, if there are any."""
        joined = [_NOTHING.sub("", text.replace("\\\n", "")) for text in self._texts]
        both = (self._texts,) if joined == self._texts else (self._texts, joined)
        return [_Read.of(texts) for texts in both]

    def _meets_joined(self, pattern: str) -> bool:
        """Whether the call meets the gate if every expansion inside a word is empty: `git pu${x}sh`.

        If the text cannot be parsed in this form, the result is False; `meets` has already checked the original text.
        """
        if self._joined is None:
            joined = [_IN_A_WORD.sub("", text) for text in self._texts]
            read = _Read([], [], [], failed=True) if joined == self._texts else _Read.of(joined)
            self._joined = read, "\n".join(map(flattened, joined))
        read, whole = self._joined
        return not read.failed and read.meets(pattern, whole)

    def _is_line(self, pattern: str) -> bool:
        return any(fnmatchcase(line, pattern) for line in self._lines)


class _Read(NamedTuple):
    """The tokens of a call without plain text: split without regard to quotes, and as a shell splits words."""

    flat: list[str]
    words: list[str]
    unread: list[str]
    """Inner texts that could not be parsed, without quotes. One meets a gate if it contains all its literal words."""
    failed: bool
    apart: Sequence[str] = ()
    """The tokens with a space for each quote: programs split an option from its value, as in `env -S"git push"`."""

    def meets(self, pattern: str, whole: str) -> bool:
        if self.failed:
            return True
        parts = list(literals(pattern))
        if not all(part in whole for part in parts):
            return False
        if any(all(part in text for part in parts) for text in self.unread):
            return True
        words = pattern.split()
        return any(occurs(words, tokens) for tokens in (self.flat, self.words, self.apart))

    @classmethod
    def of(cls, texts: list[str]) -> _Read:
        from standfast.ledger import gate_release

        released = []
        for at, text in enumerate(texts):
            try:
                released.append(gate_release.read(text))
            except gate_release.Unreadable:
                if at == 0:  # the command; the other fields of a call may not be shell
                    return cls([], [], [], failed=True)
                released.append(gate_release.Released(text, [], [text]))
        # The fields of a call have no order: `{"args": ["push"], "program": "git"}`. So repeat them all once.
        times = 1 if len(texts) == 1 else 2
        flat = [token for one in released for token in tokens(one.rest)] * times
        apart = [token for one in released for token in tokens(one.rest.translate(_QUOTES_APART))] * times
        words = [token for one in released for token in one.words] * times
        unread = [flattened(text) for one in released for text in one.unread]
        return cls(flat, words, unread, apart=apart, failed=False)


def tokens(text: str) -> list[str]:
    """The words of a text without quotes, with tokens for breaks and redirections."""
    found = _FLAT.findall(flattened(text).translate(_SPACES))
    return [BREAK if token[0] in ";&|\n" else token for token in found]


def occurs(words: list[str], tokens: Sequence[str]) -> bool:
    """Whether the words of a gate occur in order among the tokens. It takes one pass."""
    globs = [re.compile(translate(word)).match for word in words if word.strip("*")]
    if not globs:
        return True
    first, last = globs[0], len(globs)
    path = "/" in words[0]
    options = [word.startswith("-") for word in words if word.strip("*")]
    # reached[n]: the first n words were found, and every token after them can be skipped. The value says whether the
    # last token was an option or a redirection, so that its value, one more word, can be skipped too.
    reached: dict[int, bool] = {}
    for token in tokens:
        if token == BREAK:
            reached = {}
            continue
        after: dict[int, bool] = {}
        for n, may_skip in reached.items():
            if globs[n](token):
                if n + 1 == last:
                    return True
                after[n + 1] = False
            if token[0] == "-" or token[0] in "<>":
                after[n] = True
            elif may_skip or _VARIABLE.match(token) or "\0" in token or (options[n] and n > 0) or token.isdigit():
                after[n] = after.get(n, False)
        if first(token) or (not path and "/" in token and first(token.rpartition("/")[2])):
            if last == 1:
                return True
            after[1] = after.get(1, False)
        reached = after
    return False


def literals(pattern: str) -> Iterator[str]:
    """The parts of a pattern without wildcards, as they occur in a flattened text."""
    return (part for part in _LITERAL.split(flattened(pattern)) if part)


def _some_literal(pattern: str, text: str) -> bool:
    found = [part for part in literals(pattern) if any(mark.isalnum() for mark in part)]
    return not found or any(part in text for part in found)
