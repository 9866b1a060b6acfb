"""Edits of JSON with comments that leave all other bytes unchanged.

A settings file keeps its order, indentation, comments and line ends. So the text is not generated from its values. The
parser finds the position of each value, and an edit inserts or removes text there.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

DEPTH_MAX = 100
TEXT_MAX = 8 << 20

_GAP = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


class Broken(ValueError):
    """The text is not JSON; the message says where."""


class Place(NamedTuple):
    """A value and its position in the text."""

    value: Any
    start: int
    end: int
    members: tuple[Member, ...] = ()
    """The members of an object, or the items of an array with an empty name."""

    def get(self, name: str) -> Place | None:
        return next((member.place for member in self.members if member.name == name), None)


class Member(NamedTuple):
    """One entry of an object or array, from the first character of its name or value."""

    name: str
    start: int
    place: Place

    @property
    def end(self) -> int:
        return self.place.end


def parse(text: str) -> Place:
    """Parse the text into values with their positions. Raises Broken."""
    if len(text) > TEXT_MAX:
        raise Broken("it is too large")
    place = _value(text, _skip(text, 0), 0)
    end = _skip(text, place.end)
    if end != len(text):
        raise _broken(text, end, "there is text after the end")
    return place


def add_member(text: str, object: Place, name: str, value: Any) -> str:
    """Put a member at the end of an object."""
    return _add(text, object, f"{json.dumps(name, ensure_ascii=False)}: ", value)


def add_item(text: str, array: Place, value: Any) -> str:
    """Put an item at the end of an array."""
    return _add(text, array, "", value)


def remove(text: str, container: Place, index: int) -> str:
    """Take out one member or item, with its comma and the space before it."""
    member = container.members[index]
    start, end = member.start, member.end
    while text[start - 1] in " \t":
        start -= 1
    if text[start - 1] == "\n" and not _after_line_comment(text, container, start - 1):
        start -= 1
        if text[start - 1] == "\r":
            start -= 1
    comma = _skip(text, end)
    if text[comma] == ",":
        return _tidy(text[:start] + text[end:comma] + text[comma + 1 :], container, len(container.members))
    if index > 0:  # the last member: remove the comma before it
        comma = _skip(text, container.members[index - 1].end)
        if text[comma] == ",":
            return text[:comma] + text[comma + 1 : start] + text[end:]
    return _tidy(text[:start] + text[end:], container, len(container.members))


def plain(text: str) -> Any:
    """The values without their positions."""
    return parse(text).value


# -- insertion -------------------------------------------------------------------------------------


def _add(text: str, container: Place, before: str, value: Any) -> str:
    unit, newline = style(text)
    outer = _indent_of(text, container.start)
    close = container.end - 1
    if not container.members:
        inner = outer + unit
        written = f"{newline}{inner}{before}{_written(value, inner, unit, newline)}{newline}{outer}"
        if not text[container.start + 1 : close].strip():
            return text[: container.start + 1] + written + text[close:]
        return text[:close].rstrip() + written + text[close:]  # the container has only a comment: keep it
    last = container.members[-1]
    first = container.members[0]
    lines = "\n" in text[container.start : first.start]
    inner = _indent_of(text, first.start) if lines else ""
    written = before + (_written(value, inner, unit, newline) if lines else json.dumps(value, ensure_ascii=False))
    space = f"{newline}{inner}" if lines else " "
    comma = _skip(text, last.end)
    if text[comma] == ",":  # this file has a comma after the last member
        return f"{text[: comma + 1]}{space}{written},{text[comma + 1 :]}"
    return f"{text[: last.end]},{space}{written}{text[last.end :]}"


def _written(value: Any, indent: str, unit: str, newline: str) -> str:
    lines = json.dumps(value, ensure_ascii=False, indent=unit).split("\n")
    return newline.join([lines[0], *(indent + line for line in lines[1:])])


def style(text: str) -> tuple[str, str]:
    """The indentation and the line end that a text uses; two spaces and "\\n" if it has neither."""
    newline = "\r\n" if "\r\n" in text else "\n"
    found = re.search(r"\n([ \t]+)[\"/\[{]", text)
    return (found[1] if found else "  "), newline


def _indent_of(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


# -- removal ---------------------------------------------------------------------------------------


def _tidy(text: str, container: Place, members: int) -> str:
    """Remove the white space in a container that has become empty."""
    if members > 1:
        return text
    opened = text[container.start]
    close = text.index("}" if opened == "{" else "]", _skip(text, container.start + 1))
    if text[container.start + 1 : close].strip():
        return text
    return text[: container.start + 1] + text[close:]


def _after_line_comment(text: str, container: Place, newline: int) -> bool:
    """Whether a line break ends a comment: then it must not be removed."""
    at = container.start + 1
    for member in container.members:
        at = max(at, member.end) if member.end <= newline else at
    return "//" in text[at:newline].rpartition("\n")[2]


# -- parser ----------------------------------------------------------------------------------------


def _value(text: str, at: int, depth: int) -> Place:
    if depth > DEPTH_MAX:
        raise _broken(text, at, "it is nested too deeply")
    first = text[at : at + 1]
    if first == "{":
        return _container(text, at, depth, "}")
    if first == "[":
        return _container(text, at, depth, "]")
    match = (_STRING if first == '"' else _PLAIN).match(text, at)
    if match is None:
        raise _broken(text, at, "a value is missing")
    try:
        return Place(json.loads(match[0]), at, match.end())
    except ValueError:
        raise _broken(text, at, "a text is not written as JSON writes it") from None


def _container(text: str, start: int, depth: int, close: str) -> Place:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != close:
        begin, name = at, ""
        if close == "}":
            name, at = _name(text, at)
            if any(member.name == name for member in members):
                raise _broken(text, begin, f"{name!r} is there twice")
        place = _value(text, at, depth + 1)
        members.append(Member(name, begin, place))
        at = _skip(text, place.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != close:
            raise _broken(text, at, f"a comma or {close} is missing")
    values = [member.place.value for member in members]
    value: Any = dict(zip((member.name for member in members), values, strict=True)) if close == "}" else values
    return Place(value, start, at + 1, tuple(members))


def _name(text: str, at: int) -> tuple[str, int]:
    key = _STRING.match(text, at)
    colon = _skip(text, key.end()) if key else at
    if key is None or text[colon : colon + 1] != ":":
        raise _broken(text, at, "a name and a colon are missing")
    return str(json.loads(key[0])), _skip(text, colon + 1)


def _skip(text: str, at: int) -> int:
    match = _GAP.match(text, at)
    assert match is not None
    return match.end()


def _broken(text: str, at: int, fact: str) -> Broken:
    line = text.count("\n", 0, at) + 1
    return Broken(f"line {line}: {fact}")
