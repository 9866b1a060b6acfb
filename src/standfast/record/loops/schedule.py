"""The slots of a schedule: pure arithmetic, without a store and without a clock.

A schedule is a set of times, its *slots*, each a whole second. Its methods return the next slot after a time, the
newest slots up to a time, and the number of slots between two times. They depend only on the schedule, so slots never
drift.

    every   anchor + n · period in elapsed time: a clock change (DST) moves no slot
    once    one time
    cron    five fields in a time zone; cronsim parses and matches them

On a clock change (DST), a cron expression has the same meaning as in Debian's cron:

    fixed times ("30 2 * * *")       a skipped local time is due right after the change; a repeated one is due
                                     only the first time: always once a day
    with a star ("*/15 * * * *",     due whenever the local clock shows such a time: never in a skipped hour,
     "0 * * * *")                    twice in a repeated one
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from standfast.clock import DAY_US, MINUTE_US, SECOND_US, Duration, duration_us, format_duration, iso
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

EVERY_MIN_US = SECOND_US
EVERY_MAX_US = 3660 * DAY_US
DAYS_MAX = 366 * 50
"""How many days are searched for the next slot of a cron expression: 50 years."""
DAYS_KEPT = 4
LAST_US = 253_370_764_800_000_000
"""The latest slot, in the year 9999."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Schedule(Protocol):
    """A set of slots."""

    def after(self, us: int) -> int | None:
        """The first slot later than `us`."""

    def newest(self, from_us: int, until_us: int, limit: int) -> list[int]:
        """The last `limit` slots from `from_us` to `until_us`, both included, in their order."""

    def count(self, from_us: int, until_us: int) -> int:
        """How many slots there are from `from_us` to `until_us`, both included."""


class Spec(NamedTuple):
    """A schedule as it is stored: its kind, its text, and its time zone."""

    kind: str
    text: str
    zone: str


def spec(*, every: Duration | None, cron: str | None, at_us: int | None, zone: str | None) -> Spec:
    """The schedule from exactly one of `every`, `cron` and `at_us`, in normal form. Raises InvalidInput."""
    given = [name for name, value in (("every", every), ("cron", cron), ("at", at_us)) if value is not None]
    if len(given) != 1:
        named = " and ".join(given) if given else "none"
        raise InvalidInput(f"a loop needs one schedule of every, cron and at (got {named})", "for example: --every 15m")
    read_in = checked_zone("UTC" if zone is None else zone)
    if every is not None:
        return Spec("every", str(_period_us(every)), read_in)
    if cron is not None:
        return Spec("cron", _spelled(cron), read_in)
    assert at_us is not None
    if not 0 < at_us < LAST_US:
        raise InvalidInput(f"at must be between 1970 and {iso(LAST_US)[:4]} (got {iso(at_us)})")
    return Spec("once", str(at_us // SECOND_US * SECOND_US), read_in)


@lru_cache(maxsize=4096)
def of(kind: str, text: str, zone: str, anchor_us: int) -> Schedule:
    """The schedule of a stored loop."""
    if kind == "every":
        return Every(int(text), anchor_us)
    if kind == "once":
        return Once(int(text))
    return Cron(text, zone)


def said(kind: str, text: str, zone: str) -> str:
    """A schedule as text: `every 15m`, `cron 0 3 * * * (Europe/Berlin)`."""
    if kind == "every":
        return f"every {format_duration(int(text))}"
    if kind == "once":
        return f"once {shown(int(text), zone)}"
    return f"cron {text} ({zone})"


def shown(us: int, zone: str = "UTC") -> str:
    """A time in the loop's time zone, with the offset, because a local hour may be repeated."""
    try:
        local = (_EPOCH + timedelta(microseconds=us)).astimezone(_zone(zone))
    except (KeyError, ValueError, OSError, OverflowError):
        local = datetime.fromtimestamp(us // SECOND_US, UTC)
    offset = local.strftime("%z")
    return local.strftime("%a %Y-%m-%d %H:%M:%S ") + ("UTC" if offset == "+0000" else f"{offset[:3]}:{offset[3:5]}")


def checked_zone(name: str) -> str:
    """The name, if the time zone database has it. Raises InvalidInput."""
    if not isinstance(name, str):
        raise InvalidInput(f"a time zone is named by text, not by {type(name).__name__}")
    try:
        _zone(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInput(f"{name[:60]!r} is not a time zone", "for example: Europe/Berlin, or UTC") from error
    return name


# -- the three kinds ---------------------------------------------------------------------------------


class Every:
    """One slot per period, counted from the anchor, which is not a slot itself."""

    __slots__ = ("_anchor_us", "_period_us")

    def __init__(self, period_us: int, anchor_us: int) -> None:
        self._period_us = period_us
        self._anchor_us = anchor_us

    def after(self, us: int) -> int | None:
        return self._at(max(1, (us - self._anchor_us) // self._period_us + 1))

    def newest(self, from_us: int, until_us: int, limit: int) -> list[int]:
        last = (until_us - self._anchor_us) // self._period_us
        first = max(self._first(from_us), last - limit + 1)
        return [self._at(n) for n in range(first, last + 1)]

    def count(self, from_us: int, until_us: int) -> int:
        return max(0, (until_us - self._anchor_us) // self._period_us - self._first(from_us) + 1)

    def _first(self, from_us: int) -> int:
        return max(1, -((self._anchor_us - from_us) // self._period_us))

    def _at(self, n: int) -> int:
        return self._anchor_us + n * self._period_us


class Once:
    """One slot."""

    __slots__ = ("_at_us",)

    def __init__(self, at_us: int) -> None:
        self._at_us = at_us

    def after(self, us: int) -> int | None:
        return self._at_us if self._at_us > us else None

    def newest(self, from_us: int, until_us: int, limit: int) -> list[int]:
        return [self._at_us] if limit > 0 and from_us <= self._at_us <= until_us else []

    def count(self, from_us: int, until_us: int) -> int:
        return len(self.newest(from_us, until_us, 1))


class Cron:
    """Five cron fields in a time zone. Slots are computed per local day; cronsim parses the fields and matches days."""

    __slots__ = ("_days", "_fixed", "_minutes", "_months", "_sim", "_zone")

    def __init__(self, text: str, zone: str) -> None:
        self._sim = _parsed(text)
        self._zone = _zone(zone)
        # As in Debian's cron: a job at fixed times runs once a day, also on a clock change.
        self._fixed = not self._sim.parts[1].startswith("*") and not self._sim.parts[2].startswith("*")
        self._months = self._sim.months
        self._days: dict[date, list[int]] = {}
        self._minutes = [h * 60 + m for h in sorted(self._sim.hours) for m in sorted(self._sim.minutes)]

    def after(self, us: int) -> int | None:
        day = self._day_of(us)
        for _ in range(DAYS_MAX):
            slots = self._slots(day)
            if slots and slots[-1] > us:
                return slots[bisect_right(slots, us)]
            following = self._next_day(day)
            if following is None:
                return None
            day = following
        return None

    def newest(self, from_us: int, until_us: int, limit: int) -> list[int]:
        found: list[int] = []
        first, day = self._day_of(from_us), self._day_of(until_us) + timedelta(days=1)
        while day >= first and len(found) < limit:
            fits = [slot for slot in self._slots(day) if from_us <= slot <= until_us]
            found = [slot for slot in fits if not found or slot < found[0]] + found
            day -= timedelta(days=1)
        return found[-limit:] if limit > 0 else []

    def count(self, from_us: int, until_us: int) -> int:
        if until_us < from_us:
            return 0
        first, last = self._day_of(from_us), self._day_of(until_us) + timedelta(days=1)
        total, day, before = 0, first, -1
        while day <= last:
            if first + timedelta(days=1) < day < last - timedelta(days=2) and self._is_plain(day):
                total += len(self._minutes) if self._matches(day) else 0
            else:
                for slot in self._slots(day):
                    total += before < slot and from_us <= slot <= until_us
                    before = max(before, slot)
            day += timedelta(days=1)
        return total

    def _day_of(self, us: int) -> date:
        """The local day before the day of this time: on a clock change a slot may move over midnight."""
        moment = _EPOCH + timedelta(microseconds=max(0, min(us, LAST_US)))
        return moment.astimezone(self._zone).date() - timedelta(days=1)

    def _next_day(self, day: date) -> date | None:
        """The next day that may have slots. Months without slots are skipped as a whole."""
        day += timedelta(days=1)
        for _ in range(DAYS_MAX // 28):
            if day.year >= 9998:
                return None
            if day.month in self._months:
                return day
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        return None

    def _matches(self, day: date) -> bool:
        return day.month in self._months and self._sim.match_day(day)

    def _is_plain(self, day: date) -> bool:
        return self._midnight(day).utcoffset() == self._midnight(day + timedelta(days=1)).utcoffset()

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone)

    def _slots(self, day: date) -> list[int]:
        """The slots of a local day, in order. The last few days are cached."""
        found = self._days.get(day)
        if found is None:
            if len(self._days) >= DAYS_KEPT:
                self._days = {}
            found = self._days[day] = self._work_out(day)
        return found

    def _work_out(self, day: date) -> list[int]:
        if not self._matches(day):
            return []
        if self._is_plain(day):
            start_us = _us(self._midnight(day))
            return [start_us + minute * MINUTE_US for minute in self._minutes]
        return sorted({slot for minute in self._minutes for slot in self._in_a_change(day, minute)})

    def _in_a_change(self, day: date, minute: int) -> Iterator[int]:
        """The times at which a local time is due on a day with a clock change."""
        local = self._midnight(day).replace(hour=minute // 60, minute=minute % 60)
        first_us, second_us = _us(local), _us(local.replace(fold=1))
        if first_us > second_us:  # a skipped local time: fold 0 and 1 are on both sides of the change
            if self._fixed:
                yield self._change(second_us, first_us)
            return
        yield first_us
        if first_us != second_us and not self._fixed:
            yield second_us

    def _change(self, low_us: int, high_us: int) -> int:
        """The time of the clock change in (low, high], by binary search."""
        low, high, after = low_us // SECOND_US, high_us // SECOND_US, self._offset(high_us // SECOND_US)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._offset(middle) == after else (middle, high)
        return high * SECOND_US

    def _offset(self, seconds: int) -> timedelta | None:
        return datetime.fromtimestamp(seconds, self._zone).utcoffset()


# -- private functions -------------------------------------------------------------------------------


def _us(moment: datetime) -> int:
    passed = moment.astimezone(UTC) - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * SECOND_US + passed.microseconds


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    if not name or name.startswith("/") or ".." in name:
        raise ValueError(name)
    return ZoneInfo(name)


def _period_us(every: Duration) -> int:
    us = duration_us(every.removeprefix("every ") if isinstance(every, str) else every, "every")
    if not EVERY_MIN_US <= us <= EVERY_MAX_US or us % SECOND_US:
        raise InvalidInput(
            f"{every!r} is not an interval: whole seconds, at least one, at most ten years",
            "for example: --every 15m, --every 1h30m",
        )
    return us


def _spelled(cron: str) -> str:
    """The normal form of an expression, so that equal schedules compare as equal."""
    if not isinstance(cron, str):
        raise InvalidInput(f"a cron expression is text, not {type(cron).__name__}")
    text = " ".join(cron.split())
    text = _NAMED.get(text.lower(), text).upper()
    if text.lower() == "@reboot":
        raise InvalidInput("@reboot is not a schedule", "start it from your init system")
    if len(text) > 500 or len(text.split()) != 5:
        raise InvalidInput(
            f"{cron[:60]!r} is not a cron expression of five fields",
            'minute hour day month weekday: --cron "0 3 * * *"; for seconds: --every 10s',
        )
    _parsed(text)
    if Cron(text, "UTC").after(0) is None:
        raise InvalidInput(f"{cron[:60]!r} names a day that no month has", "check the day of the month")
    return text


@lru_cache(maxsize=1024)
def _parsed(text: str) -> CronSim:
    from cronsim import CronSim, CronSimError

    try:
        return CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001  # only its fields are used
    except CronSimError as error:
        raise InvalidInput(
            f"{text[:60]!r} is not a cron expression: {error}", 'minute hour day month weekday: --cron "0 3 * * *"'
        ) from error


def local_zone() -> str:
    """The time zone of this machine by its name in the time zone database; UTC if it is unknown."""
    import os

    candidates = [os.environ.get("TZ", "").removeprefix(":")]
    try:
        candidates.append(os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2])
        with open("/etc/timezone", encoding="ascii", errors="replace") as file:
            candidates.append(file.readline().strip())
    except OSError:
        pass
    for name in candidates:
        try:
            found = _zone(name).key
            return (
                "UTC"
                if found in ("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu", "Universal", "Etc/Universal")
                else found
            )
        except (KeyError, ValueError, OSError):
            continue
    return "UTC"
