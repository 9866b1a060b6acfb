"""Checks of arguments: durations, times, numbers, page sizes and cursors. `keys.py` checks names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from standfast import serial
from standfast.clock import DURATION_MAX_US, Time, format_duration
from standfast.errors import InvalidInput
from standfast.ids import is_id

PAGE_MAX = 1000
"""Rows of one page; a larger `limit` gets this many."""
NAME_MAX = 200
"""Characters of a name."""
REASON_MAX = 500
"""Characters of a reason."""
PRIORITY_DEFAULT = 2
PRIORITY_MAX = 99
"""The least urgent; 0 is the most urgent."""
FAR_FUTURE_US = 2**62
"""A timestamp later than every stored one."""


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"  # help() shows a default with this text


NOT_GIVEN: Any = _NotGiven()
"""The default of a parameter whose None has a meaning."""


def page_size(limit: int, most: int = PAGE_MAX) -> int:
    """The rows of a page: at least 1, at most `most`."""
    return max(1, min(limit, most))


def bounded_us(us: object, what: str, *, least_us: int = 1, most_us: int = DURATION_MAX_US, hint: str = "") -> int:
    """A duration in microseconds. Raises InvalidInput with both limits and the value."""
    if not isinstance(us, int) or isinstance(us, bool) or not least_us <= us <= most_us:
        least = f"{least_us} µs" if least_us else "0 s"
        raise InvalidInput(f"{what} must be between {least} and {_longest(most_us)} (got {_shown(us)})", hint)
    return us


def past_us(value: Time | None, now_us: int, what: str) -> int | None:
    """Microseconds of a time; a text means the past: "7d" is 7 days ago."""
    if value is None:
        return None
    from standfast import when  # on use: it imports datetime

    return when.past(value, now_us, what).us


def future_us(value: Time | None, now_us: int, what: str) -> int | None:
    """Microseconds of a time; a text means the future: "2d" is in 2 days."""
    if value is None:
        return None
    from standfast import when  # on use: it imports datetime

    return when.future_us(value, now_us, what)


def whole(number: object, what: str, *, least: int, most: int, hint: str = "") -> int:
    """A whole number. Raises InvalidInput with both limits and the value."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise InvalidInput(f"{what} is a whole number from {least} to {most:,}, not {_shown(number)}", hint)
    return number


def one_of(value: object, known: Collection[str], what: str, hint: str = "") -> None:
    """Raises InvalidInput unless `value` is one of `known`."""
    if value not in known:
        raise InvalidInput(f"{what} is one of {', '.join(known)}, not {_shown(value)!r}", hint)


def like(text: str) -> str:
    """The text for `LIKE … ESCAPE '!'`, without wildcards."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def time_and_id(after: str | None) -> tuple[int, str]:
    """The parts of a cursor `TIME:ID` of a list with the newest first; without a cursor, those of its beginning."""
    if after is None:
        return FAR_FUTURE_US, ""
    time_us, _, id = after.partition(":")
    if not (time_us.isascii() and time_us.isdigit() and len(time_us) < 19 and is_id(id)):
        raise no_cursor(after)
    return int(time_us), id


def no_cursor(after: object) -> InvalidInput:
    """The error for an `after` that is not a cursor of this list."""
    return InvalidInput(f"{_shown(after)!r} is not a cursor of this list", "use the `next` of the last page")


def _longest(us: int) -> str:
    return "a hundred years" if us == DURATION_MAX_US else format_duration(us, parts=1)


def _shown(value: object) -> str:
    return serial.clean(str(value), 60)
