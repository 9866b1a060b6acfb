"""Find the plain text in a command line. Gates do not check it: it is *released*.

    read(text).rest      the text, with a mark in place of each released part
    read(text).words     the words of its commands as a shell splits them, and those of texts inside them

Released are comments, messages of `git commit` and similar commands, search words of `git log --grep` and
`gh --search`, arguments of `echo`, `printf`, `grep` and `jq`, here-documents for `cat`, and texts of standfast's own
commands. A substitution (`$(…)`) inside them is not released, because the shell runs it.

The output of `echo` and `cat` is text only if nothing can run it: it ends the line, a program that only reads takes it,
or it goes to a file that the other programs of the line only read.

For a line that this module cannot parse, `read` raises Unreadable or releases nothing. It never hides a command: a gate
also sees the rest without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

DEPTH_MAX = 20
NESTED_MAX = 6
FILES_MAX = 20
"""Files that one text may write and release. Output to further files is not released."""
EXPANDED = "\0"
"""The mark in a word for the value of `$x`, `${x}` or `$(…)`."""
RELEASED = "\1"

_PLAIN = re.compile(r"[^\s\\'\"$`#;&|()<>]+")
_IN_QUOTES = re.compile(r'[^\\$`"]+')
_IN_BRACES = re.compile(r"[^\\$`\"}']+")
_REDIRECT = re.compile(r"&>>?|<<<|<<-?|<>|>>|>\||[<>]&|[<>]")
_ARITHMETIC = re.compile(r"\$\(\([\w\s+*/%<>=!&|^~?:,.$#\[\]{}-]*\)\)")
_ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NAME = re.compile(r"\$(?:\w+|[^\w\s'\"])")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_VALUE = re.compile(r"[^\s;&|='\"]+=")
_LIVE = re.compile(r"\$\(|`|\$\{")
_LAST_WORD = re.compile(r"\$\{?_\b")
"""`$_`, the last word of the command before."""
_BLANK = re.compile(r"[\s;&|]")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KEYWORDS = _set("{ } ! if then elif else fi while until do done time")
_ODD = _set("case select function coproc alias trap enable exec")
"""Nothing is released on a line with one of these words, because this module does not parse their syntax."""
_SHELLS = _set("sh bash dash zsh ksh ash fish eval")
_READERS = _set("grep egrep fgrep rg head tail wc cat less more sort uniq cut tr jq column nl fold")
_SEARCHERS = _set("grep egrep fgrep rg jq")
_RUNNING_NOTHING = _READERS | _set("ls cd mkdir echo printf touch pwd true test [ git gh rm date diff")
"""The content of a file that the line writes is text only if the line has no other programs than these."""
_GLOBAL_VALUES = _set("-C -c --git-dir --work-tree --namespace")
_MESSAGES = {
    "git": _set("-m -am --message --grep"),
    "gh": _set("-t --title -b --body -n --notes -c --comment -S --search"),
}
_COMMITTING = _set("commit tag merge stash notes revert log")
_DISCUSSING = _set("pr issue release")
_OWN_TEXTS = _set("gate task mail decide search approve deny approval")


class Unreadable(Exception):
    """A quote, a substitution or a here-document has no end, or too many are nested."""


class Released(NamedTuple):
    rest: str
    words: list[str]
    """A line break separates two commands."""
    unread: list[str]
    """Texts inside words that could not be parsed."""


class _Word:
    __slots__ = ("_parts", "end", "frames", "start")

    def __init__(self, start: int) -> None:
        self.start, self.end = start, start
        self._parts: list[str] = []
        self.frames: list[_Frame] = []

    def add(self, part: str) -> None:
        self._parts.append(part)

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


class _Command:
    __slots__ = ("bodies", "frame", "redirects", "words")

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame
        self.words: list[_Word] = []
        self.redirects: list[tuple[str, _Word]] = []
        self.bodies: list[tuple[int, int, bool]] = []

    def plain(self) -> list[_Word]:
        """The words from the program on."""
        at = 0
        while at < len(self.words) and (self.words[at].text in _KEYWORDS or _ASSIGNMENT.match(self.words[at].text)):
            at += 1
        return self.words[at:]


class _Frame:
    """A part of the text up to `closer`: commands (all of it, `(…)`, `$(…)`, backticks), or a text (`"…"`, `${…}`)."""

    __slots__ = ("closer", "command", "end", "holder", "operator", "start", "word")

    def __init__(self, closer: str, start: int, holder: _Word | None = None) -> None:
        self.closer, self.start, self.end, self.holder = closer, start, start, holder
        self.command = _Command(self)
        self.word: _Word | None = None
        self.operator = ""

    @property
    def is_text(self) -> bool:
        return self.closer in ('"', "}")


def read(text: str, depth: int = 0) -> Released:
    """Raises Unreadable."""
    line = _Line(text)
    line.read()
    hidden = bytearray(len(text))
    for start, end in line.comments:
        hidden[start:end] = b"\1" * (end - start)
    kept: set[int] = set()
    for command in line.commands if not line.odd else ():
        for start, end, word in _released(command, line, kept):
            hidden[start:end] = b"\1" * (end - start)
            if word is not None:
                kept.add(id(word))
                for frame in word.frames:
                    hidden[frame.start : frame.end] = bytes(frame.end - frame.start)
    words: list[str] = []
    unread: list[str] = [text] if line.unsure else []
    nested: list[str] = []
    for command in line.commands:
        for word in command.words:
            words.append(RELEASED if hidden[word.start] and id(word) in kept else word.text or EXPANDED)
            if id(word) not in kept:
                nested += _texts_in(word.text)
        for operator, word in command.redirects:
            words += (operator, word.text or EXPANDED) if command.words else ()
            nested += _texts_in(word.text)
        words.append("\n")
        nested += [text[start:end] for start, end, _ in command.bodies if end > start and not hidden[start]]
    for inner in nested:
        if depth >= NESTED_MAX:
            unread.append(inner)
            continue
        try:
            found = read(inner, depth + 1)
        except Unreadable:
            unread.append(inner)
        else:
            words += found.words
            unread += found.unread
    return Released(_rest(text, hidden), words, unread)


def _texts_in(word: str) -> list[str]:
    """The texts in a word that may be command lines: the word, and its part after `NAME=` or `--exec=`."""
    if not _BLANK.search(word):
        return []
    value = _VALUE.match(word)
    return [word] if value is None else [word, word[value.end() :]]


def only_command(text: str) -> list[str] | None:
    """The words of a text that is one simple command without expansions and redirections; None for any other."""
    line = _Line(text)
    try:
        line.read()
    except Unreadable:
        return None
    if len(line.commands) != 1 or line.commands[0].redirects or line.unsure:
        return None
    words = [word.text for word in line.commands[0].words]
    return None if any(EXPANDED in word for word in words) else words


def _rest(text: str, hidden: bytearray) -> str:
    parts, at = [], 0
    for found in re.finditer(rb"\x01+", hidden):
        parts += [text[at : found.start()], f" {RELEASED} "]
        at = found.end()
    return "".join([*parts, text[at:]])


# -- parser ------------------------------------------------------------------------------------------


class _Line:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.stack = [_Frame("", 0)]
        self.commands: list[_Command] = []
        """In the order in which they begin: a command comes before the commands in its substitutions."""
        self.comments: list[tuple[int, int]] = []
        self.waiting: list[tuple[_Command, str, str]] = []
        self.odd = False
        self.unsure = False
        """Whether the shell may split other words: a `)` may end a pattern of `case` and not a substitution."""
        self.runs_output = False
        """Whether some output goes to a program that may run it."""
        self.piped = False
        self.files = 0
        self.writes_groups = False
        """Whether a group writes a file: in `{ …; } > file` the output of its commands goes there."""

    def read(self) -> None:
        text, size = self.text, len(self.text)
        while self.at < size:
            frame = self.stack[-1]
            if frame.is_text:
                self._in_quotes(frame, text[self.at])
            else:
                self._in_commands(frame, text[self.at])
        if len(self.stack) > 1 or self.waiting:
            raise Unreadable
        self._end_command(self.stack[0])
        self.odd = self.odd or _LAST_WORD.search(text) is not None or any(map(_runs_text, self.commands))
        groups = (command for command in self.commands if command.redirects and not command.plain())
        self.writes_groups = any(not _is_shown(*redirect) for command in groups for redirect in command.redirects)

    def _in_quotes(self, frame: _Frame, char: str) -> None:
        holder = frame.holder
        assert holder is not None
        if char == frame.closer:
            self.stack.pop()
            frame.end = self.at
            self.at += 1
            holder.end = self.at
        elif char == "\\":
            holder.add(self.text[self.at + 1 : self.at + 2])
            self.at += 2
        elif char == "$" or char == "`":
            self._expansion(holder, char)
        elif char in "'\"" and frame.closer == "}":
            self._quoted(holder, char)
        else:
            if char == "\n" and self.waiting:
                raise Unreadable
            found = (_IN_BRACES if frame.closer == "}" else _IN_QUOTES).match(self.text, self.at)
            part = found[0] if found else char
            if "\n" in part and self.waiting:
                raise Unreadable
            holder.add(part if frame.closer == '"' else "")
            self.at += len(part)

    def _in_commands(self, frame: _Frame, char: str) -> None:
        text, at = self.text, self.at
        redirect = _REDIRECT.match(text, at)
        if char == frame.closer:
            self._end_command(frame)
            frame.end = at
            self.stack.pop()
            self.at += 1
            if frame.holder is not None:
                frame.holder.end = self.at
        elif char == "\n":
            self._end_command(frame)
            self.at += 1
            self._bodies()
        elif char.isspace():
            self._end_word(frame)
            self.at += 1
        elif redirect is not None:
            self._redirect(frame, redirect[0])
        elif char in ";&|()":
            self._separator(frame, char)
        elif char == "#" and frame.word is None:
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            if frame.closer in ("`", ")") and frame.closer in text[at:end]:
                raise Unreadable
            self.comments.append((at, end))
            self.at = end
        else:
            self._word(frame, char)

    def _word(self, frame: _Frame, char: str) -> None:
        text, at = self.text, self.at
        word = frame.word = frame.word or _Word(at)
        if char == "\\":
            word.add(text[at + 1 : at + 2].replace("\n", ""))
            self.at += 2
        elif char in "'\"":
            self._quoted(word, char)
        elif char in "$`":
            self._expansion(word, char)
        else:
            found = _PLAIN.match(text, at)
            part = found[0] if found else char
            word.add(part)
            self.at += len(part)
        word.end = self.at

    def _quoted(self, word: _Word, char: str) -> None:
        if char == '"':
            self.at += 1
            self._push(_Frame('"', self.at, word))
            return
        end = self.text.find("'", self.at + 1)
        if end < 0 or (self.waiting and "\n" in self.text[self.at : end]):
            raise Unreadable
        word.add(self.text[self.at + 1 : end])
        self.at = end + 1

    def _expansion(self, word: _Word, char: str) -> None:
        text, at = self.text, self.at
        ansi = _ANSI_QUOTED.match(text, at) if not self.stack[-1].is_text else None
        if char == "`":
            self._substitution(word, 1, "`")
        elif ansi is not None:
            word.add(ansi[1])
            self.at = ansi.end()
        elif (found := _ARITHMETIC.match(text, at)) is not None:
            word.add(EXPANDED)
            self.at = found.end()
        elif text.startswith("$(", at):
            self._substitution(word, 2, ")")
        elif text.startswith("${", at):
            word.add(EXPANDED)
            self.at += 2
            self._push(_Frame("}", self.at, word))
        elif (found := _NAME.match(text, at)) is not None:
            word.add(EXPANDED)
            self.at = found.end()
        else:
            word.add(char)
            self.at += 1

    def _substitution(self, word: _Word, size: int, closer: str) -> None:
        word.add(EXPANDED)
        self.at += size
        frame = _Frame(closer, self.at, word)
        word.frames.append(frame)
        self._push(frame)

    def _push(self, frame: _Frame) -> None:
        if len(self.stack) >= DEPTH_MAX:
            raise Unreadable
        self.stack.append(frame)

    def _separator(self, frame: _Frame, char: str) -> None:
        text, at = self.text, self.at
        touching = frame.word is not None
        self._end_command(frame)
        self.at += 1
        if char == "(":
            self.odd = self.odd or touching or text.startswith(")", self.at)
            self.runs_output = self.runs_output or self.piped
            self._push(_Frame(")", self.at))
        elif char == ")":
            self.odd = self.unsure = True
        elif char == "|" and not text.startswith("|", self.at) and not text.startswith("||", at - 1):
            self.piped = True
            self.at += text.startswith("&", self.at)

    def _redirect(self, frame: _Frame, operator: str) -> None:
        if frame.word is not None and frame.word.text.isdigit() and frame.word.end == self.at:
            frame.word = None  # the 2 of `2>log`
        self._end_word(frame)
        self.at += len(operator)
        if self.text.startswith("(", self.at):
            self.runs_output = self.odd = True
        frame.operator = operator

    def _end_word(self, frame: _Frame) -> None:
        word, command = frame.word, frame.command
        if word is None:
            return
        frame.word = None
        if not command.words and not command.redirects:
            self.commands.append(command)
        if frame.operator:
            command.redirects.append((frame.operator, word))
            if frame.operator in ("<<", "<<-"):
                self.waiting.append((command, self.text[word.start : word.end], frame.operator))
            frame.operator = ""
            return
        command.words.append(word)
        if word.text in _ODD:
            self.odd = True
            self.unsure = self.unsure or word.text == "case"
        if self.piped and word.text not in _KEYWORDS:
            self.piped = False
            self.runs_output = self.runs_output or word.text not in _READERS
        elif self.piped:
            self.runs_output = True

    def _end_command(self, frame: _Frame) -> None:
        self._end_word(frame)
        frame.operator = ""
        if frame.command.words or frame.command.redirects:
            frame.command = _Command(frame)

    def _bodies(self) -> None:
        """Read the here-documents that the line before has announced."""
        for command, written, operator in self.waiting:
            delimiter = re.sub(r"[\\'\"]", "", written)
            tabs = "\t*" if operator == "<<-" else ""
            found = re.compile(rf"^{tabs}{re.escape(delimiter)}$", re.MULTILINE).search(self.text, self.at)
            if found is None:
                raise Unreadable
            command.bodies.append((self.at, found.start(), written != delimiter))
            self.at = found.end()
        self.waiting.clear()


# -- release of a line -------------------------------------------------------------------------------


def _released(command: _Command, line: _Line, kept: set[int]) -> Iterator[tuple[int, int, _Word | None]]:
    """The spans of a command that are plain text."""
    words = command.plain()
    if not words or line.runs_output:
        return
    program = re.sub(r"^(?:/usr)?/bin/", "", words[0].text)
    rest = words[1:]
    texts = [word.text for word in rest]
    if program in ("echo", "printf") and not any(text.startswith("-v") for text in texts):
        yield from _spans(rest) if _only_shown(command, line, kept) else ()
    elif program == "cat":
        yield from _documents(command, line) if _only_shown(command, line, kept) else ()
    elif program in _SEARCHERS and not any(text.startswith("--pre") for text in texts):
        shown = _only_shown(command, line, kept)
        yield from _spans([word for word in rest if not word.text.startswith("-")]) if shown else ()
    elif program == "gh" and texts and texts[0] in _DISCUSSING:
        yield from _spans(list(_messages(rest, _MESSAGES["gh"])))
    elif program == "git" and _subcommand(texts) in _COMMITTING:
        yield from _spans(list(_messages(rest, _MESSAGES["git"])))
        if "commit" in texts and "-" in texts and {"-F", "--file"} & set(texts):
            yield from _documents(command, line)
    elif program == "standfast" and texts and texts[0] in _OWN_TEXTS and not any(map(_is_command, texts)):
        yield from _spans(rest[1:])


def _subcommand(texts: list[str]) -> str:
    before = ""
    for text in texts:
        if not text.startswith("-") and before not in _GLOBAL_VALUES:
            return text
        before = text
    return ""


def _is_command(text: str) -> bool:
    return text == "--" or text.startswith(("--verify", "--probe", "--command"))


def _messages(words: list[_Word], options: frozenset[str]) -> Iterator[_Word]:
    for before, word in pairwise(words):
        if before.text in options:
            yield word
    for word in words:
        if word.text.startswith("--") and word.text.partition("=")[0] in options and "=" in word.text:
            yield word


def _spans(words: list[_Word]) -> Iterator[tuple[int, int, _Word | None]]:
    return ((word.start, word.end, word) for word in words)


def _documents(command: _Command, line: _Line) -> Iterator[tuple[int, int, _Word | None]]:
    for start, end, quoted in command.bodies:
        if quoted or not _LIVE.search(line.text[start:end]):
            yield start, end, None


def _only_shown(command: _Command, line: _Line, kept: set[int]) -> bool:
    """Whether nothing can run the output of this command."""
    holder = command.frame.holder
    if holder is not None and id(holder) not in kept:
        return False
    return not line.writes_groups and all(_is_safe(operator, word, line) for operator, word in command.redirects)


def _runs_text(command: _Command) -> bool:
    """Whether a command can run the output of another one on the line."""
    words = command.plain()
    return any(word.text.rpartition("/")[2] in _SHELLS for word in command.words) or (
        bool(words) and words[0].text in (".", "source")
    )


def _is_shown(operator: str, word: _Word) -> bool:
    return operator.startswith("<") or word.text in ("/dev/null", "/dev/stderr", "/dev/stdout", "1", "2", "-")


def _is_safe(operator: str, word: _Word, line: _Line) -> bool:
    if _is_shown(operator, word):
        return True
    name = word.text.rpartition("/")[2]
    line.files += 1
    if not name or EXPANDED in word.text or ".git" in word.text or name.isdigit() or line.files > FILES_MAX:
        return False
    programs = (command.plain()[0].text for command in line.commands if command.plain())
    if not all(program in _RUNNING_NOTHING for program in programs):
        return False
    return line.text.count(name) == 1 + sum(_reads(command, name) for command in line.commands)


def _reads(command: _Command, name: str) -> int:
    """How often this command names the file, if it only reads files; else 0."""
    texts = [word.text for word in command.plain()]
    if not texts or not (texts[0] in _READERS or texts[0] == "ls" or texts[:2] == ["git", "add"]):
        return 0
    return sum(text.count(name) for text in texts[1:])
