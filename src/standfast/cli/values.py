"""Values of a command line: the types of options, and how the fields of a model are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from standfast.cli.render import Column

    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # generic only in click's later versions

DIGEST_SHOWN = 19
TEXT_SHOWN = 200


class _Parsed(_Type):
    """A type with the name that help shows and the function that reads it."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(value)

    def parse(self, value: Any) -> Any:
        return self._parse(value) if isinstance(value, str) else value


def _duration(text: str) -> int:
    from standfast.clock import parse_duration

    return parse_duration(text)


def _past(text: str) -> int:
    from standfast.clock import SYSTEM
    from standfast.views import when

    return when.parse(text, SYSTEM.now_us()).us


def _ago(text: str) -> int:
    from standfast.clock import SYSTEM
    from standfast.views import when

    return when.since_us(text, SYSTEM.now_us())


def _future(text: str) -> int:
    """A duration from now, or the next time that matches the text."""
    from standfast.clock import DAY_US, SYSTEM, iso, parse_duration
    from standfast.errors import InvalidInput
    from standfast.views import when

    now_us = SYSTEM.now_us()
    try:
        return now_us + parse_duration(text.removeprefix("in "))
    except InvalidInput:
        pass
    # `when` returns the latest time that matches. Seen from a day, a week or a year ahead, it is the next one.
    us = now_us
    for days in (0, 1, 7, 366):
        us = when.parse(text, now_us + days * DAY_US).us
        if us > now_us:
            return us
    raise InvalidInput(f"{text!r} is in the past: {iso(us)}", 'for example: "fri 17:00", "2026-11-20", 2d')


def _stdin(text: str) -> str:
    if text != "-":
        return text
    import sys

    return sys.stdin.read()


def parsed_json(text: str) -> Any:
    """JSON, or the text itself. Text that starts like an object, a list or a string must be JSON."""
    from standfast import serial
    from standfast.errors import InvalidInput

    try:
        return serial.loads(text, what="value")
    except InvalidInput:
        if text.lstrip().startswith(("{", "[", '"')):
            raise
        return text


def _field(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    return name, parsed_json(value)


def _pair(text: str) -> tuple[str, str] | None:
    from standfast.cli.frame import pair

    return pair(text)


DURATION = _Parsed("DURATION", _duration)
PAST = _Parsed("TIME", _past)
"""The latest time that matches: `tue 03:00` is last Tuesday."""
FUTURE = _Parsed("TIME", _future)
"""The next time that matches: `fri 17:00` is next Friday; `2d` is in two days."""
AGO = _Parsed("TIME", _ago)
"""As PAST; `7d` is seven days ago."""
JSON = _Parsed("JSON", parsed_json)
FIELD = _Parsed("NAME=VALUE", _field)
PAIR = _Parsed("CURSOR", _pair)
STDIN = _Parsed("TEXT", _stdin)
"""Text; `-` reads it from stdin."""


# -- printing ----------------------------------------------------------------------------------------


def moment(us: int | None) -> str:
    from time import localtime, strftime

    return "" if us is None else strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


def second(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M:%S", localtime(us // 1_000_000))


def short(id: object) -> str:
    """The end of an id of ours; an id of another system in full."""
    from standfast.ids import is_id

    text = str(id)
    return text[-6:] if is_id(text) else text


def text_of(value: Any) -> str:
    """A value for people: text as it is, a tuple with commas, JSON as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    from standfast import serial

    return serial.canonical(value)


def plain(model: Any) -> dict[str, Any]:
    """The model as JSON: its own fields, and its receipt as commands print it."""
    if isinstance(model, Mapping):
        return dict(model)
    fields: dict[str, Any] = model.as_json() if hasattr(model, "as_json") else model._asdict()
    if fields.get("receipt") is not None:
        fields["receipt"] = fields["receipt"].as_json()
    return fields


def column(spec: str) -> Column:
    """The column of `field`, or of `field heading`; ids are short, times are readable."""
    from standfast.cli.render import Column

    field, _, heading = spec.partition(" ")
    return Column(field, heading or label(field), _format(field))


def label(field: str) -> str:
    return field.removesuffix("_us").removesuffix("_id").replace("_", " ")


def _format(field: str) -> Callable[[Any], str] | None:
    if field.endswith("_us"):
        return second if field in ("received_us", "ready_us") else moment
    if field in ("id", "subject") or field.endswith("_id"):
        return short
    return _FORMATS.get(field)


_FORMATS: dict[str, Callable[[Any], str]] = {
    "amount": "{:+}".format,
    "digest": lambda digest: str(digest)[:DIGEST_SHOWN],
    "labels": ",".join,
    "value": lambda value: text_of(value)[:TEXT_SHOWN],
}
