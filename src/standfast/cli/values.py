"""The types of options, and the formats of the fields of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from standfast.models import DURATIONS, YEAR_10000_US

if TYPE_CHECKING:
    from standfast.cli.render import Column

    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # generic only in later versions of click

DIGEST_SHOWN = 19
TEXT_SHOWN = 200


class _Parsed(_Type):
    """A type with the name that help shows and the function that parses a text."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(value)

    def parse(self, value: Any) -> Any:
        return self._parse(value) if isinstance(value, str) else value


def _stdin(text: str) -> str:
    if text != "-":
        return text
    import sys

    return sys.stdin.read()


def parsed_json(text: str) -> Any:
    """JSON, or the text itself. Text that starts like a JSON object, list or string must be valid JSON."""
    from standfast import serial
    from standfast.errors import InvalidInput

    try:
        return serial.loads(text, what="value")
    except InvalidInput:
        if text.lstrip().startswith(("{", "[", '"')):
            raise
        return text


def _json_or_stdin(text: str) -> Any:
    from standfast import serial

    return serial.loads(_stdin(text), what="body")


def _field(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise click.UsageError(f"{text!r} is not NAME=VALUE")
    return name, parsed_json(value)


def _variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not name or not sign:
        from standfast.errors import InvalidInput

        raise InvalidInput(f"{text[:60]!r} has no value", "--env NAME=VALUE")
    return name, value


def _pair(text: str) -> tuple[str, str] | None:
    from standfast.cli.frame import pair

    return pair(text)


def _seconds(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


DURATION = _Parsed("DURATION", str)
SECONDS = _Parsed("DURATION", _seconds)
"""A duration; a number without a unit is seconds."""
TIME = _Parsed("TIME", str)
"""Durations and times are passed to the method as typed: `2h`, `tue 03:00`."""
JSON = _Parsed("JSON", parsed_json)
FIELD = _Parsed("NAME=VALUE", _field)
VARIABLE = _Parsed("NAME=VALUE", _variable)
"""As FIELD, but the value is always text."""
PAIR = _Parsed("CURSOR", _pair)
JSON_STDIN = _Parsed("JSON", _json_or_stdin)
VALUE = _Parsed("JSON", lambda text: parsed_json(_stdin(text).rstrip("\n")))
"""JSON or text; - reads it from stdin."""
STDIN = _Parsed("TEXT", _stdin)
"""Text; - reads it from stdin."""


# -- text of values ----------------------------------------------------------------------------------


def moment(us: int | None) -> str:
    from time import localtime, strftime

    return "" if us is None else strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


def second(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M:%S", localtime(us // 1_000_000))


def short(id: object) -> str:
    """The end of an id of standfast; an id of another system unchanged."""
    from standfast.ids import is_id

    text = str(id)
    return text[-6:] if is_id(text) else text


def home_short(path: str) -> str:
    """The path with `~` for the home directory."""
    import os

    home = os.path.expanduser("~").rstrip("/")
    return f"~{path[len(home) :]}" if home and (path == home or path.startswith(f"{home}/")) else path


def repository_name(path: str) -> str:
    """A repository without `/.git`: ~/shop, github.com/acme/shop."""
    return home_short(path.removesuffix("/.git"))


def repository(model: Any) -> str:
    """The repository and the scope of a model; empty if it belongs to none."""
    from standfast.config.scope import Label
    from standfast.views.coverage import named

    return named(Label(model.git_dir, model.origin), model.scope)


def ago(us: int, now_us: int | None = None) -> str:
    """The time since `us`: "2h 5m ago"."""
    import time

    from standfast.clock import SECOND_US, format_duration

    past_us = max((time.time_ns() // 1000 if now_us is None else now_us) - us, 0) // SECOND_US * SECOND_US
    return f"{format_duration(past_us, parts=2)} ago"


def counted(n: int, name: str) -> str:
    """`1 session`, `2,000 sessions`."""
    return f"{n:,} {name}{'s' * (n != 1)}"


def text_of(value: Any) -> str:
    """A value as text: text unchanged, a tuple with commas, other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    from standfast import serial

    return serial.canonical(value)


def plain(model: Any) -> dict[str, Any]:
    """The model as JSON, including models inside it."""
    if isinstance(model, Mapping):
        return dict(model)
    fields: dict[str, Any] = model.as_json() if hasattr(model, "as_json") else model.as_dict()
    return with_times({name: _plain(value) for name, value in fields.items()})


def with_times(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with an ISO time after each time in microseconds: `created_us`, `created_iso`."""
    made: dict[str, Any] = {}
    for name, value in fields.items():
        made[name] = value
        if name.endswith("_us") and name not in DURATIONS:
            made[f"{name.removesuffix('_us')}_iso"] = iso_time(value)
    return made


def iso_time(us: Any) -> str | None:
    """The time in UTC in ISO form; None if there is none, or if it is outside the years 1970 to 9999."""
    if not isinstance(us, int) or not 0 < us < YEAR_10000_US:
        return None
    from standfast.clock import iso

    return iso(us)


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict") or hasattr(value, "as_json"):
        return plain(value)
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def column(spec: str) -> Column:
    """The column of "field" or "field heading", with the format of its field."""
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
    "repository": repository_name,
    "stale": lambda stale: "stale" if stale else "",
    "tags": ",".join,
    "undone": lambda undone: "yes" if undone else "",
    "value": lambda value: text_of(value)[:TEXT_SHOWN],
}
