"""Which gates a call meets: a pure function, usable by a hook that cannot reach the store.

A gate's pattern is a line of words, each a glob (`*`, `?`, `[…]`), case-sensitive. A call meets the gate if

    the pattern matches the name of the tool, or the whole command line, or
    its words occur in this order in the text, quotes and escapes removed

Between two words of a gate may stand options, each with one value (`git -C . push`), redirections and variables.
The first word is also compared with the last part of a path (`/usr/bin/git`). So `sh -c "git push"`, `eval`, `xargs`,
`find -exec`, here-documents and `standfast once KEY -- git push` meet `git push*`.

`gate_release` knows shell syntax, and only removes plain text: the message of a commit, an argument of
`echo`, the body of a here-document for `cat`. A text that is too long, or that cannot be read, meets every gate of
which one literal word occurs in it.

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
"""Characters of a call that are compared; a longer one meets every gate of which a word occurs in it."""

BREAK = "\n"
"""The token between two commands: a gate's words do not reach across it."""

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
    """A pattern of commands that need a person's yes, or to be an effect."""

    id: str
    scope: str
    repository: str
    pattern: str
    need: str
    """approval, effect, or ask: an approval that Claude Code gets from its user in its own prompt."""
    why: str | None
    agent: str
    created_us: int
    removed_us: int | None = None
    paused_until_us: int | None = None
    """A person paused the gate: until then it stops nothing."""
    receipt: Receipt | None = None

    @property
    def needs_person(self) -> bool:
        return self.need != "effect"


def gate_of(row: Mapping[str, Any]) -> Gate:
    """The gate of a row of the store or of `gates.json`, which may be of an older version."""
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
    """The gates of a `gates.json`, as read, that this command meets; those that need a yes first.

    `keyspaces` says where: `config.load().keyspaces` are those of the current directory. Without it, all gates count.
    """
    return met(standing(document, keyspaces), command, tool=tool, texts=texts)


def standing(document: dict[str, Any], keyspaces: Sequence[Keyspace] | None = None) -> list[Gate]:
    """The gates of a `gates.json` that hold in any of `keyspaces`; without them, all of them."""
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
    """Those of `gates` that a command line, or a list of words, meets, with the other `texts` of the call.

    `late` says that the time is over: from then on one literal word is enough.
    """
    if not gates:
        return []
    line = command if isinstance(command, str) else join(command)
    call = _Call([text for text in (line, *texts) if text.strip()], late)
    found = [gate for gate in gates if (tool and fnmatchcase(tool, gate.pattern)) or call.meets(gate.pattern)]
    return sorted(found, key=lambda gate: (_STRICTEST.index(gate.need), gate.pattern))


def may_meet(gates: Sequence[Gate], text: str) -> list[Gate]:
    """Those of `gates` of which one literal word occurs in `text`: for a call that could not be judged."""
    flat = flattened(text)
    return [gate for gate in gates if _some_literal(gate.pattern, text) or _some_literal(gate.pattern, flat)]


def flattened(text: str) -> str:
    """The text without quotes, escapes and what always expands to nothing.

    A line that ends in a backslash continues in the next, without a space between: `gi\\` and `t` are one word.
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
        self._texts = texts = [text.replace("\0", "") for text in texts]  # a shell leaves them out too
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
        # The cheap question first: no text can meet a gate of which a literal part does not occur at all.
        whole = "\n".join(self._flat)
        if self._is_line(pattern):
            return True
        if not _some_literal(pattern, whole):
            return False
        self._reads = self._reads or self._readings()
        return any(read.meets(pattern, whole) for read in self._reads) or self._meets_joined(pattern)

    def _readings(self) -> list[_Read]:
        """Two where something expands to nothing: what that hides or releases in one reading counts in the other."""
        joined = [_NOTHING.sub("", text.replace("\\\n", "")) for text in self._texts]
        both = (self._texts,) if joined == self._texts else (self._texts, joined)
        return [_Read.of(texts) for texts in both]

    def _meets_joined(self, pattern: str) -> bool:
        """Whether it meets the gate if every expansion inside a word is empty: `git pu${x}sh`.

        This reading only adds: a text that it cannot read meets nothing here.
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
    """The tokens of a call without plain text: once without quotes, once as a shell reads its words."""

    flat: list[str]
    words: list[str]
    unread: list[str]
    """Texts inside that could not be read, without quotes: one meets a gate if all its literal words occur in it."""
    failed: bool
    apart: Sequence[str] = ()
    """With a space for each quote: programs part an option from its value, as in `env -S"git push"`."""

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
                if at == 0:  # the command; other fields of a call need not be shell
                    return cls([], [], [], failed=True)
                released.append(gate_release.Released(text, [], [text]))
        # `{"args": ["push"], "program": "git"}`: the fields of a call have no order, so the last may come first.
        times = 1 if len(texts) == 1 else 2
        flat = [token for one in released for token in tokens(one.rest)] * times
        apart = [token for one in released for token in tokens(one.rest.translate(_QUOTES_APART))] * times
        words = [token for one in released for token in one.words] * times
        unread = [flattened(text) for one in released for text in one.unread]
        return cls(flat, words, unread, apart=apart, failed=False)


def tokens(text: str) -> list[str]:
    """The words of a text without quotes, breaks and redirections among them."""
    found = _FLAT.findall(flattened(text).translate(_SPACES))
    return [BREAK if token[0] in ";&|\n" else token for token in found]


def occurs(words: list[str], tokens: Sequence[str]) -> bool:
    """Whether the words of a gate occur in order: one pass, for any tokens."""
    globs = [re.compile(translate(word)).match for word in words if word.strip("*")]
    if not globs:
        return True
    first, last = globs[0], len(globs)
    path = "/" in words[0]
    options = [word.startswith("-") for word in words if word.strip("*")]
    # reached[n]: n words were found, and what stood behind the last one can be skipped. The value says whether the
    # token before was an option, or a redirection, so that one more word may be skipped.
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
    """The parts of a pattern that stand for themselves, as they occur in a flattened text."""
    return (part for part in _LITERAL.split(flattened(pattern)) if part)


def _some_literal(pattern: str, text: str) -> bool:
    found = [part for part in literals(pattern) if any(mark.isalnum() for mark in part)]
    return not found or any(part in text for part in found)
