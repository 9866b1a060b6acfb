"""Amounts in the four units of a budget, and the windows of time in which a budget counts: pure arithmetic."""

from __future__ import annotations

from calendar import timegm
from time import gmtime
from typing import TYPE_CHECKING, Final, TypeAlias

from standfast.clock import HOUR_US, SECOND_US, Duration, duration_us, format_duration
from standfast.core.checks import whole
from standfast.db.contract import Row
from standfast.errors import InvalidInput
from standfast.models import Model

if TYPE_CHECKING:
    from decimal import Decimal

Usd: TypeAlias = "str | float | Decimal"
"""US dollars as callers give them: `"2.50"`, `0.5` or a Decimal."""

UNITS: Final = ("tokens", "microusd", "calls", "duration_us")
AMOUNT_MAX: Final = 10**15
"""The largest amount of one unit: a billion dollars, or 31 years."""
PERIODS: Final = ("hour", "day", "week", "month")
_MICROUSD: Final = 1_000_000
_OPTIONS: Final = {"tokens": "tokens", "microusd": "usd", "calls": "calls", "duration_us": "time"}


class Amounts(Model):
    """An amount of each unit. None: the unit is not limited, or its amount is not known."""

    tokens: int | None = None
    microusd: int | None = None
    calls: int | None = None
    duration_us: int | None = None

    def __str__(self) -> str:
        """The known amounts for people: `3,000 tokens, $0.25`."""
        known = [shown(unit, value) for unit, value in self.as_dict().items() if value is not None]
        return ", ".join(known) or "nothing"

    @property
    def used(self) -> str:
        """The amounts above 0 for people; `nothing` if there are none."""
        return str(Amounts(**{unit: value for unit, value in self.known.items() if value}))

    @property
    def known(self) -> dict[str, int]:
        return {unit: value for unit, value in self.as_dict().items() if value is not None}


def given(tokens: int | None, usd: Usd | None, calls: int | None, time: Duration | None, *, least: int = 0) -> Amounts:
    """The amounts that a caller gave. Raises InvalidInput for a bad one."""
    return Amounts(
        None if tokens is None else whole(tokens, "tokens", least=least, most=AMOUNT_MAX),
        None if usd is None else microusd(usd),
        None if calls is None else whole(calls, "calls", least=least, most=AMOUNT_MAX),
        duration_us(time, "time"),
    )


def microusd(usd: Usd) -> int:
    """Millionths of a dollar, rounded up. Raises InvalidInput for anything but a finite amount of 0 or more."""
    from decimal import ROUND_CEILING, Decimal, InvalidOperation

    try:
        if isinstance(usd, bool):
            raise ValueError
        amount = Decimal(str(usd).strip().removeprefix("$"))
        if not amount.is_finite() or amount < 0 or amount * _MICROUSD > AMOUNT_MAX:
            raise ValueError
    except (InvalidOperation, ValueError):
        most = AMOUNT_MAX // _MICROUSD
        raise InvalidInput(
            f"usd is an amount of dollars from 0 to {most:,}, not {str(usd)[:40]!r}", 'write it like "2.50"'
        ) from None
    return int((amount * _MICROUSD).to_integral_value(ROUND_CEILING))


def of_row(row: Row, kind: str) -> Amounts:
    """The columns `max_…`, `held_…`, `spent_…` or `most_…` of a row."""
    return Amounts(*(row[f"{kind}_{unit}"] for unit in UNITS))


def columns(kind: str, amounts: Amounts, *, unknown: int | None = 0) -> Row:
    """The opposite of `of_row`: parameters of a statement."""
    return {f"{kind}_{unit}": unknown if value is None else value for unit, value in amounts.as_dict().items()}


def shown(unit: str, value: int) -> str:
    """An amount with its unit, for people."""
    if unit == "microusd":
        sign = "-" if value < 0 else ""
        whole_part, part = divmod(abs(value), _MICROUSD)
        return f"{sign}${whole_part:,}.{f'{part:06d}'.rstrip('0'):0<2}"
    if unit == "duration_us":
        return format_duration(value, parts=2) if abs(value) >= SECOND_US else format_duration(value)
    return f"{value:,} {unit if value != 1 else unit.removesuffix('s')}"


def option(unit: str) -> str:
    """The parameter in which callers give this unit."""
    return _OPTIONS[unit]


def window_us(per: str | None, now_us: int) -> int:
    """When the window that holds `now_us` began, by UTC; 0 for a budget without windows. A week begins on Monday."""
    if per is None:
        return 0
    if per == "hour":
        return now_us // HOUR_US * HOUR_US
    t = gmtime(now_us // SECOND_US)
    day = {"day": t.tm_mday, "week": t.tm_mday - t.tm_wday, "month": 1}[per]
    return timegm((t.tm_year, t.tm_mon, day, 0, 0, 0)) * SECOND_US
