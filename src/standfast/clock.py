"""Time: one protocol, the real clock, and one that tests move by hand.

Inside, every time and duration is an integer of microseconds. Callers give a `Duration` or a `Time`. `now_us` is UTC
wall time. It may jump, also backwards, so nothing is ordered by it. `mono_us` counts the time this machine was awake
since it started, so two values are comparable only under the same `boot_id`. A closed lid ends no lease, and a reboot
ends all of them. Durations are written as people say them: `90s`, `15m`, `1h30m`.
"""

from __future__ import annotations

import re
import time
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, overload

from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from datetime import datetime, timedelta

Duration: TypeAlias = "str | float | timedelta"
"""How long, as callers give it: `"2h"`, `90` seconds or `timedelta(hours=2)`."""
Time: TypeAlias = "str | datetime"
"""When, as callers give it: `"tue 03:00"` or a datetime. Without a zone it is local time."""

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
DURATION_MAX_US: Final = 36_500 * DAY_US

_UNITS: dict[str, int] = {
    "w": 7 * DAY_US,
    "d": DAY_US,
    "h": HOUR_US,
    "m": MINUTE_US,
    "s": SECOND_US,
    "ms": 1000,
    "us": 1,
}
_PARTS = r"([0-9]{1,18})(?:\.([0-9]{1,18}))?(ms|us|[wdhms]) *"  # compiled on first use


class Clock(Protocol):
    """The only source of time of a store."""

    def now_us(self) -> int:
        """UTC wall time in microseconds since 1970."""

    def mono_us(self) -> int:
        """Microseconds awake since boot. The value never decreases under one boot id."""

    def boot_id(self) -> str:
        """An id that changes with every start of the machine."""


def checked_us(us: object, what: str) -> int | None:
    """The time that the caller names, or None. Raises InvalidInput for other values, and outside the supported
    range."""
    if us is None:
        return None
    if not isinstance(us, int) or isinstance(us, bool) or not -(2**62) <= us <= 2**62:
        raise InvalidInput(f"{what} counts microseconds since 1970", "int(moment.timestamp() * 1_000_000)")
    return us


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ("_boot_id",)

    def __init__(self) -> None:
        self._boot_id = ""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def mono_us(self) -> int:
        # CLOCK_MONOTONIC on Linux, mach_absolute_time on macOS: both stop while the machine sleeps. (macOS's own
        # CLOCK_MONOTONIC continues, so we do not call it by name.)
        return time.monotonic_ns() // 1000

    def boot_id(self) -> str:
        if not self._boot_id:
            self._boot_id = _read_boot_id()
        return self._boot_id


def _read_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return _ask_sysctl("kern.bootsessionuuid") or _ask_sysctl("kern.boottime") or "unknown"


def _ask_sysctl(name: str) -> str:
    import subprocess

    try:
        return subprocess.check_output(["/usr/sbin/sysctl", "-n", name], text=True, timeout=5).strip()
    except (OSError, subprocess.SubprocessError):
        return ""


SYSTEM: Final = SystemClock()


class ManualClock:
    """A clock that moves only on request. It starts at midnight UTC, 1 January 2026."""

    __slots__ = ("_boots", "_lock", "_mono_us", "_now_us")

    def __init__(self, start_us: int = 1_767_225_600_000_000) -> None:
        self._lock = Lock()
        self._now_us = start_us
        self._mono_us = 0
        self._boots = 1

    def now_us(self) -> int:
        return self._now_us

    def mono_us(self) -> int:
        return self._mono_us

    def boot_id(self) -> str:
        return f"manual-boot-{self._boots}"

    def advance(self, delta: Duration) -> None:
        """Let time pass: wall and monotonic together. `delta` is "3h", a timedelta, or seconds."""
        passed_us = _delta_us(delta)
        if passed_us < 0:
            raise InvalidInput(f"advance({delta!r}): time does not pass backwards", "jump() sets the wall clock back")
        with self._lock:
            self._now_us += passed_us
            self._mono_us += passed_us

    def wait_us(self, us: int) -> None:
        """A call that waits on this clock returns at once."""
        self.advance(max(us, 0) / SECOND_US)

    def jump(self, delta: Duration) -> None:
        """Set the wall clock forward or back ("-3h") while no time passes."""
        with self._lock:
            self._now_us += _delta_us(delta)

    def sleep(self, delta: Duration) -> None:
        """Suspend the machine: the wall clock moves, and the time awake does not."""
        if (passed_us := _delta_us(delta)) < 0:
            raise InvalidInput(f"sleep({delta!r}): time does not pass backwards", "jump() sets the wall clock back")
        with self._lock:
            self._now_us += passed_us

    def reboot(self) -> None:
        """Restart the machine: another boot id, and time awake begins at 0."""
        with self._lock:
            self._boots += 1
            self._mono_us = 0


@overload
def duration_us(value: Duration, what: str) -> int: ...
@overload
def duration_us(value: Duration | None, what: str) -> int | None: ...
def duration_us(value: object, what: str) -> int | None:
    """Microseconds of a duration: `"2h"`, a timedelta or a number of seconds. Raises InvalidInput for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not (isinstance(value, (str, int, float)) or hasattr(value, "total_seconds")):
        raise InvalidInput(
            f"{what} is a duration, not {value!r:.40}", 'write it like "90s", 90 or timedelta(seconds=90)'
        )
    try:
        us = _delta_us(value)  # type: ignore[arg-type]
    except (OverflowError, ValueError) as error:
        raise (
            error if isinstance(error, InvalidInput) else InvalidInput(f"{what}: {value!r} is not a duration")
        ) from None
    if not 0 <= us <= DURATION_MAX_US:
        raise InvalidInput(f"{what} must be between 0 s and a hundred years (got {value!r:.40})")
    return us


def duration_s(value: Duration | None, what: str) -> float | None:
    """Seconds of a duration: `"2h"`, a timedelta or a number of seconds. Raises InvalidInput for anything else."""
    us = duration_us(value, what)
    return None if us is None else us / SECOND_US


def wait(clock: Clock, us: int) -> None:
    """Wait `us` microseconds. A ManualClock moves forward and returns at once."""
    passes = getattr(clock, "wait_us", None)
    if passes is not None:
        passes(us)
    elif us > 0:
        time.sleep(us / SECOND_US)


class Deadline:
    """The end of a wait. It ends by real time, or earlier if the store's clock reaches the end first, as with a
    ManualClock."""

    def __init__(self, clock: Clock, us: int) -> None:
        self._clock, self._end_us, self._end_s = clock, clock.mono_us() + us, time.monotonic() + us / SECOND_US

    @property
    def left_s(self) -> float:
        return min(self._end_s - time.monotonic(), (self._end_us - self._clock.mono_us()) / SECOND_US)


def _delta_us(delta: Duration) -> int:
    if isinstance(delta, str):
        sign = -1 if delta.startswith("-") else 1
        return sign * parse_duration(delta.removeprefix("-"))
    if isinstance(delta, (int, float)):
        return round(delta * SECOND_US)
    return (delta.days * 86_400 + delta.seconds) * SECOND_US + delta.microseconds


def parse_duration(text: str) -> int:
    """Microseconds of `500ms`, `90s`, `15m`, `2h`, `3d`, `1w`, or joined: `1h30m`.

    Raises InvalidInput for anything else, and for more than a hundred years.
    """
    total_us, position, seen, written = 0, 0, set[str](), text.strip()
    pattern = re.compile(_PARTS)
    while position < len(written):
        part = pattern.match(written, position)
        if part is None or part[3] in seen:
            raise _not_a_duration(text)
        seen.add(part[3])
        total_us += _part_us(part[1], part[2] or "", _UNITS[part[3]])
        position = part.end()
    if not seen:
        raise _not_a_duration(text)
    if total_us > DURATION_MAX_US:
        raise InvalidInput(f"duration {written!r} is longer than a hundred years")
    return total_us


def _part_us(whole: str, fraction: str, unit_us: int) -> int:
    scale = int("1" + "0" * len(fraction))  # computed in integers, so that 0.1s is exactly 100,000
    return int(whole + fraction) * unit_us // scale


def _not_a_duration(text: str) -> InvalidInput:
    return InvalidInput(f"{text[:40]!r} is not a duration", "write it like 500ms, 90s, 15m, 2h, 3d, 1w or 1h30m")


def format_duration(us: int, *, parts: int | None = None) -> str:
    """As `parse_duration` reads it: `1h30m`. With `parts`, only that many of the largest units."""
    if us < 0:
        return "-" + format_duration(-us, parts=parts)
    written: list[str] = []
    for unit, unit_us in _UNITS.items():
        if unit != "w" and us >= unit_us and (parts is None or len(written) < parts):
            count, us = divmod(us, unit_us)
            written.append(f"{count}{unit}")
    return "".join(written) or "0s"


def readable(us: int) -> str:
    """UTC for messages: `2026-11-15 03:00:00 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(us // SECOND_US))


def iso(us: int) -> str:
    """UTC, sortable: `2026-11-15T03:00:00.123456Z`."""
    seconds, rest_us = divmod(us, SECOND_US)
    t = time.gmtime(seconds)
    return f"{t[0]:04d}-{t[1]:02d}-{t[2]:02d}T{t[3]:02d}:{t[4]:02d}:{t[5]:02d}.{rest_us:06d}Z"
