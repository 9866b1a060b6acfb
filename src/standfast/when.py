"""Times as callers give them: a datetime, or a text such as `tue 03:00`, `3h ago`, `2026-11-10 03:00 UTC`.

`past` and `future_us` read either. For `parse`, a weekday, a time without a day and a day without a year mean the
latest such time that is not in the future. A text or a datetime without a zone is local time. A `Moment` has the zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from standfast.clock import DAY_US, iso, parse_duration
from standfast.errors import InvalidInput
from standfast.models import Model

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Texts: `re` compiles them on first use.
_CLOCK = r"^(\d{1,2})(?::(\d{2}))?(?::(\d{2})(?:\.(\d{1,6}))?)?\s*(am|pm)?$"
_DATE = r"^(\d{4})-(\d{1,2})-(\d{1,2})$"
_OFFSET = r"^(?:utc|gmt)?([+-])(\d{1,2}):?(\d{2})?$"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HINT = 'for example: "tue 03:00", "yesterday 14:30", "3h ago", "2026-11-10 03:00 UTC"'


class Moment(Model):
    """A point in time and how it was understood."""

    us: int
    zone: str
    """The zone it was read in, with its offset at that moment: `CET (+01:00)`."""
    local: str
    """`Tue 2026-11-10 03:00:00`"""

    def __str__(self) -> str:
        return f"{self.local} {self.zone}"


def parse(text: str, now_us: int, zone: tzinfo | None = None) -> Moment:
    """Understand `text`, or raise InvalidInput that shows the accepted forms."""
    plain = " ".join(text.replace("T", " ", 1).split() if re.match(r"\d{4}-\d\d?-\d\d?T", text) else text.split())
    words = plain.lower().replace(",", " ").split()
    if not words:
        raise InvalidInput("no moment was given", _HINT)
    words, named = _take_zone(words, plain, text)
    if not words:
        raise InvalidInput(f"{text!r} names a zone and no time", _HINT)
    zone = named or zone
    now = _local(now_us, zone)
    return _moment(_resolve(words, now, zone, text), zone)


def past(value: object, now_us: int, what: str) -> Moment:
    """A time. A text means the past: "7d" is 7 days ago, "tue 03:00" the latest such time."""
    if not isinstance(value, str):
        return shown(_datetime_us(value, what))
    try:
        return shown(now_us - parse_duration(value))
    except InvalidInput:
        return parse(value, now_us)


def future_us(value: object, now_us: int, what: str) -> int:
    """Microseconds of a time. A text means the future: "2d" is in 2 days, "fri 17:00" the next such time.

    Raises InvalidInput for a text that names a time in the past.
    """
    if not isinstance(value, str):
        return _datetime_us(value, what)
    try:
        return now_us + parse_duration(value.removeprefix("in "))
    except InvalidInput:
        pass
    # `parse` returns the latest time that matches. Seen from a day, a week or a year ahead, it is the next one.
    us = now_us
    for days in (0, 1, 7, 366):
        us = parse(value, now_us + days * DAY_US).us
        if us > now_us:
            return us
    raise InvalidInput(f"{what}: {value!r} is in the past: {iso(us)}", 'for example: "fri 17:00", "2026-11-20", "2d"')


def _datetime_us(value: object, what: str) -> int:
    if not isinstance(value, datetime):
        raise InvalidInput(
            f'{what} is a datetime or a text such as "tue 03:00", not {value!r:.40}',
            "of a Unix time: datetime.fromtimestamp(seconds, UTC)",
        )
    try:
        return (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (OverflowError, ValueError, OSError):
        raise InvalidInput(f"{what}: {value!r} is outside the years 1 to 9999 of UTC") from None


def utc(us: int) -> datetime:
    """The datetime of stored microseconds."""
    return _EPOCH + timedelta(microseconds=us)


def span(text: str) -> timedelta:
    """A window as people type it: `1h`, `30m`."""
    return timedelta(microseconds=parse_duration(text))


def shown(us: int, zone: tzinfo | None = None) -> Moment:
    """How a known moment reads in a zone."""
    return _moment(_local(us, zone), zone)


def _resolve(words: list[str], now: datetime, zone: tzinfo | None, text: str) -> datetime:
    if words == ["now"]:
        return now
    if words[0].startswith("@") and words[0][1:].isdigit() and len(words) == 1:
        return _local(int(words[0][1:]) * 1_000_000, zone)
    if words[-1] == "ago":
        return now - timedelta(microseconds=parse_duration(_short_units("".join(words[:-1]))))
    words = [word for word in words if word not in ("at", "on", "last", "this", "the", "of")]
    day, rest, fixed = _take_day(words, now, text)
    hour, minute, second, micro = _clock_of(rest, text)
    # Built from its parts, not added to midnight: a day with a change of clocks has other hours.
    moment = _at(day, hour, minute, second, micro, zone)
    while moment > now and fixed:
        day = _step_back(day, fixed)
        moment = _at(day, hour, minute, second, micro, zone)
    return moment


def _take_zone(words: list[str], plain: str, text: str) -> tuple[list[str], tzinfo | None]:
    last = words[-1]
    glued = re.match(r"^(.*\d)(z|[+-]\d{2}:?\d{2})$", last)
    if glued and ":" in glued.group(1):
        words, last = [*words[:-1], glued.group(1), glued.group(2)], glued.group(2)
    if last in ("z", "utc", "gmt"):
        return words[:-1], UTC
    offset = re.match(_OFFSET, last)
    if offset:
        sign = -1 if offset.group(1) == "-" else 1
        minutes = int(offset.group(2)) * 60 + int(offset.group(3) or 0)
        from datetime import timezone

        return words[:-1], timezone(sign * timedelta(minutes=minutes))
    if "/" in last:
        return words[:-1], _named_zone(plain.split()[-1], text)
    return words, None


def _named_zone(name: str, text: str) -> tzinfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInput(f"{name!r} in {text!r} is not a time zone", 'for example: "Europe/Berlin"') from error


def _take_day(words: list[str], now: datetime, text: str) -> tuple[datetime, list[str], str]:
    """The day, the rest of the text, and by which step to go back if the time is in the future."""
    first = words[0] if words else ""
    if first in ("today", "yesterday", "tonight"):
        return now - timedelta(days=first == "yesterday"), words[1:], ""
    weekday = _weekday(first)
    if weekday is not None:
        return now - timedelta(days=(now.weekday() - weekday) % 7), words[1:], "week"
    date = re.match(_DATE, first)
    if date:
        return _day(now, int(date.group(1)), int(date.group(2)), int(date.group(3)), text), words[1:], ""
    return _take_month(words, now, text) or (now, words, "day")


def _take_month(words: list[str], now: datetime, text: str) -> tuple[datetime, list[str], str] | None:
    """`nov 10 [2026]` or `10 nov [2026]`."""
    if len(words) < 2:
        return None
    one, two = words[0], words[1]
    month, day = (one, two) if one[:3] in _MONTHS else (two, one)
    digits = re.sub(r"(st|nd|rd|th)$", "", day)
    if month[:3] not in _MONTHS or not digits.isdigit():
        return None
    rest, year = words[2:], ""
    if rest and re.fullmatch(r"\d{4}", rest[0]):
        year, rest = rest[0], rest[1:]
    number = _MONTHS.index(month[:3]) + 1
    return _day(now, int(year or now.year), number, int(digits), text), rest, "" if year else "year"


def _weekday(word: str) -> int | None:
    if len(word) < 3:
        return None
    return next((n for n, name in enumerate(_DAYS) if name.startswith(word)), None)


def _day(now: datetime, year: int, month: int, day: int, text: str) -> datetime:
    try:
        return now.replace(year=year, month=month, day=day)
    except ValueError as error:
        raise InvalidInput(f"{text!r} names a day that does not exist", _HINT) from error


def _step_back(day: datetime, by: str) -> datetime:
    if by == "year":
        return day.replace(year=day.year - 1)
    return day - timedelta(days=7 if by == "week" else 1)


def _clock_of(words: list[str], text: str) -> tuple[int, int, int, int]:
    if not words:
        return 0, 0, 0, 0
    joined = "".join(words)
    named = {"midnight": (0, 0, 0, 0), "noon": (12, 0, 0, 0)}.get(joined)
    if named:
        return named
    match = re.match(_CLOCK, joined)
    if not match:
        raise InvalidInput(f"{text!r} is not a time", _HINT)
    hour, minute, second = int(match.group(1)), int(match.group(2) or 0), int(match.group(3) or 0)
    micro = int((match.group(4) or "").ljust(6, "0") or 0)
    if match.group(5):
        if not 1 <= hour <= 12:
            raise InvalidInput(f"{text!r}: {hour} {match.group(5)} is not an hour", _HINT)
        hour = hour % 12 + (12 if match.group(5) == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidInput(f"{text!r} names a time that does not exist", _HINT)
    return hour, minute, second, micro


def _at(day: datetime, hour: int, minute: int, second: int, micro: int, zone: tzinfo | None) -> datetime:
    naive = datetime(day.year, day.month, day.day, hour, minute, second, micro)  # noqa: DTZ001  # the zone comes next
    # A local time that the clocks skipped or repeated is read as the offset before the change.
    return naive.replace(tzinfo=zone) if zone is not None else naive.astimezone()


def _local(us: int, zone: tzinfo | None) -> datetime:
    return utc(us).astimezone(zone)


def _moment(moment: datetime, zone: tzinfo | None) -> Moment:
    us = round((moment - _EPOCH) / timedelta(microseconds=1))
    seen = _local(us, zone)
    name, offset = seen.tzname() or "", seen.strftime("%z")
    offset = f"{offset[:3]}:{offset[3:5]}"
    label = name if name == "UTC" else f"{name} ({offset})" if name and not name.startswith("UTC") else f"UTC{offset}"
    return Moment(us, label, seen.strftime("%a %Y-%m-%d %H:%M:%S"))


def _short_units(text: str) -> str:
    """`3hours`, `2days`, `90minutes` as the durations the clock reads."""
    return re.sub(r"(\d)\s*(weeks?|days?|hours?|hrs?|minutes?|mins?|seconds?|secs?)", _unit, text)


def _unit(match: re.Match[str]) -> str:
    return match.group(1) + match.group(2)[0]
