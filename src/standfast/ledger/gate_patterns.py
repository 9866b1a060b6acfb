"""Which gates a call meets: a pure function, usable by a hook that cannot reach the store.

A gate's pattern is a line of words, each a glob (`*`, `?`, `[…]`), case-sensitive. A call meets the gate if

    the pattern matches the name of the tool, or the whole command line, or
    its words occur in this order in the text, quotes and escapes removed

Between two words of a gate may stand options, each with one value (`git -C . push`), redirections and variables.
The first word is also compared with the last part of a path (`/usr/bin/git`). So `sh -c "git push"`, `eval`, `xargs`,
`find -exec`, here-documents and `standfast once KEY -- git push` meet `git push*`.

`gate_release` knows shell syntax, and only takes out what is plainly text: the message of a commit, an argument of
`echo`, the body of a here-document for `cat`. A text that is too long, or that cannot be read, meets every gate of
which one literal word occurs in it.

The work grows linearly with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from shlex import join
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from standfast.footings.journal import Receipt

TEXT_MAX = 256 << 10
"""Characters of a call that are compared; a longer one meets every gate of which a word occurs in it."""

BREAK = "\n"
"""The token between two commands: a gate's words do not reach across it."""

_REMOVED = {ord(mark): None for mark in "'\"\\"}
_SPACES = {ord(mark): " " for mark in "(){}[],`=!@"}
_IFS = re.compile(r"\$\{?IFS\}?")
_NOTHING = re.compile(r"``|\$\(\)|\$[@*]|\$(?=['\"])")
_FLAT = re.compile(r"[;&|\n]+|[<>]+[&|]?|[^\s;&|<>]+")
_LITERAL = re.compile(r"\[[^\]]*\]|[*?\s]+")
_VARIABLE = re.compile(r"\$\w*|\$[^\w\s]")


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
    document: dict[str, Any],
    command: str | Sequence[str],
    *,
    tool: str | None = None,
    texts: Sequence[str] = (),
    scope: str | tuple[str, ...] | None = None,
) -> list[Gate]:
    """The gates of a `gates.json`, as read, that this command meets; those that need a yes first.

    Gates of `scope`, or of any of several, and those that hold everywhere; without one, all of them.
    `config.load().homes` are those of the current directory.
    """
    return met(standing(document, scope), command, tool=tool, texts=texts)


def standing(document: dict[str, Any], scope: str | tuple[str, ...] | None = None) -> list[Gate]:
    """The gates of a `gates.json` that hold in `scope`, or in any of several; without one, all of them."""
    rows = [row for gates in document["stores"].values() for row in gates]
    gates = [Gate(*(row.get(name) for name in Gate._fields[:-1])) for row in rows]
    wanted = scope if isinstance(scope, tuple) else (scope,)
    return [gate for gate in gates if scope is None or gate.scope in ("", *wanted)]


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
    return sorted(found, key=lambda gate: (gate.need != "approval", gate.pattern))


def may_meet(gates: Sequence[Gate], text: str) -> list[Gate]:
    """Those of `gates` of which one literal word occurs in `text`: for a call that could not be judged."""
    flat = flattened(text)
    return [gate for gate in gates if _some_literal(gate.pattern, text) or _some_literal(gate.pattern, flat)]


def flattened(text: str) -> str:
    """The text without quotes, escapes and what always expands to nothing.

    A line that ends in a backslash goes on in the next, without a space between: `gi\\` and `t` are one word.
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
        # Read twice where something expands to nothing: what that hides or releases in one reading counts in the other.
        joined = [_NOTHING.sub("", text.replace("\\\n", "")) for text in self._texts]
        both = (self._texts,) if joined == self._texts else (self._texts, joined)
        self._reads = self._reads or [_Read.of(texts) for texts in both]
        return any(read.meets(pattern, whole) for read in self._reads)

    def _is_line(self, pattern: str) -> bool:
        return any(fnmatchcase(line, pattern) for line in self._lines)


class _Read(NamedTuple):
    """The tokens of a call without what is plainly text: once without quotes, once as a shell reads its words."""

    flat: list[str]
    words: list[str]
    unread: list[str]
    """Texts inside that could not be read, without quotes: one meets a gate if all its literal words occur in it."""
    failed: bool

    def meets(self, pattern: str, whole: str) -> bool:
        if self.failed:
            return True
        parts = list(literals(pattern))
        if not all(part in whole for part in parts):
            return False
        if any(all(part in text for part in parts) for text in self.unread):
            return True
        words = pattern.split()
        return occurs(words, self.flat) or occurs(words, self.words)

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
        words = [token for one in released for token in one.words] * times
        return cls(flat, words, [flattened(text) for one in released for text in one.unread], failed=False)


def tokens(text: str) -> list[str]:
    """The words of a text without quotes, breaks and redirections among them."""
    found = _FLAT.findall(flattened(text).translate(_SPACES))
    return [BREAK if token[0] in ";&|\n" else token for token in found]


def occurs(words: list[str], tokens: Sequence[str]) -> bool:
    """Whether the words of a gate occur in order: one pass, whatever the tokens are."""
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
