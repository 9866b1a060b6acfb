"""Durations in three forms and times in two, accepted by every method."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import standfast
from standfast import when
from standfast.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US, ManualClock
from standfast.errors import InvalidInput
from tests.public import methods

UNITS = ("_us", "_s", "_ms", "_seconds")


def test_no_public_parameter_carries_a_unit() -> None:
    """A duration and a time have one form in every method."""
    functions = {name: getattr(standfast, name) for name in standfast.__all__ if name in ("open", "aopen", "effect")}
    named = {name: list(inspect.signature(one).parameters) for name, one in {**methods(), **functions}.items()}
    assert len(named) > 150
    assert [f"{name}({one})" for name, given in named.items() for one in given if one.endswith(UNITS)] == []


@pytest.mark.parametrize("for_", ["1h30m", 5400, 5400.0, timedelta(hours=1, minutes=30)])
def test_a_duration_is_a_text_a_timedelta_or_seconds(sf: standfast.Standfast, for_: Any) -> None:
    entry = sf.state.set("build", "green", for_=for_)
    assert entry.expires_us is not None
    assert entry.expires_us - entry.updated_us == 90 * MINUTE_US


@pytest.mark.parametrize("for_", ["soon", "", True, -1, float("nan"), 10**20, b"1h", datetime(2026, 1, 1, tzinfo=UTC)])
def test_an_invalid_duration_is_refused_by_its_parameter(sf: standfast.Standfast, for_: Any) -> None:
    with pytest.raises(InvalidInput, match=r"for_|not a duration"):
        sf.state.set("build", "green", for_=for_)


NOW = datetime(2026, 11, 15, 19, 30, tzinfo=UTC)  # a Sunday
NOW_US = int(NOW.timestamp()) * SECOND_US


@pytest.mark.parametrize(
    ("given", "away_us"),
    [
        ("7d", -7 * DAY_US),
        ("1h30m", -90 * MINUTE_US),
        ("now", 0),
        ("tue 19:30 UTC", -5 * DAY_US),
        ("2026-11-16 19:30 UTC", DAY_US),
        (NOW + timedelta(microseconds=1), 1),
        (NOW.astimezone(timezone(timedelta(hours=5))), 0),
    ],
)
def test_a_time_in_the_past(given: Any, away_us: int) -> None:
    """The text "7d" means 7 days ago, and a weekday means the last one."""
    assert when.past(given, NOW_US, "since").us - NOW_US == away_us


@pytest.mark.parametrize(
    ("given", "away_us"),
    [
        ("2d", 2 * DAY_US),
        ("in 2h", 2 * HOUR_US),
        ("tue 19:30 UTC", 2 * DAY_US),
        ("19:31 UTC", MINUTE_US),
        ("19:29 UTC", DAY_US - MINUTE_US),
        ("nov 15 19:29 UTC", 365 * DAY_US - MINUTE_US),
        ("2026-11-16 19:30 UTC", DAY_US),
        (NOW - timedelta(hours=1), -HOUR_US),
    ],
)
def test_a_time_in_the_future(given: Any, away_us: int) -> None:
    """The text "2d" means in 2 days, and a weekday means the next one."""
    assert when.future_us(given, NOW_US, "due") - NOW_US == away_us


def test_a_text_for_the_future_that_is_over_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"due: '2026-11-14 UTC' is in the past: 2026-11-14T00:00"):
        when.future_us("2026-11-14 UTC", NOW_US, "due")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC-5")  # in POSIX notation, UTC-5 is five hours ahead of UTC
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_a_datetime_without_a_zone_is_local_time(sf: standfast.Standfast) -> None:
    local, aware = datetime(2030, 1, 1, 5), datetime(2030, 1, 1, tzinfo=UTC)  # noqa: DTZ001  # the subject of this test
    assert sf.tasks.add("a", due=local).due_us == sf.tasks.add("b", due=aware).due_us
    assert sf.tasks.add("c", due="2030-01-01 05:00").due_us == sf.tasks.add("d", due="2030-01-01 00:00 UTC").due_us
    version = sf.events.append("s", "x", occurred=local).version
    assert sf.events.get("s", version).occurred_us == round(aware.timestamp()) * SECOND_US


TIMES: dict[str, Callable[[standfast.Standfast, Any], object]] = {
    "at": lambda sf, value: sf.credits.balance("ada", at=value),
    "occurred": lambda sf, value: sf.events.append("s", "x", occurred=value),
    "since": lambda sf, value: sf.events.list(since=value),
    "until": lambda sf, value: sf.decisions.list(until=value),
    "due": lambda sf, value: sf.tasks.add("x", due=value),
    "expires": lambda sf, value: sf.mail.send("bob", "x", expires=value),
    "before": lambda sf, value: sf.threads.threads(before=value),
    "timeline": lambda sf, value: sf.timeline(at=value),
    "search": lambda sf, value: sf.search("x", since=value),
}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", [1_700_000_000_000_000, 0, 1.5, True, timedelta(days=1)])
def test_a_number_is_refused_as_a_time(sf: standfast.Standfast, name: str, value: Any) -> None:
    """A number could mean seconds or microseconds, so it is refused."""
    with pytest.raises(InvalidInput, match=r"is a datetime or a text such as") as refused:
        TIMES[name](sf, value)
    assert "datetime.fromtimestamp" in str(refused.value)


def test_a_time_beyond_the_calendar_is_refused(sf: standfast.Standfast) -> None:
    first = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
    with pytest.raises(InvalidInput, match="outside the years 1 to 9999"):
        sf.events.list(since=first)


def test_the_store_reads_texts_by_its_own_clock(tmp_path: Any) -> None:
    """The clock of the handle decides what "2d" means."""
    clock = ManualClock()
    with standfast.open(tmp_path / "own.db", data_dir=tmp_path / "data", clock=clock) as sf:
        assert sf.tasks.add("a", due="2d").due_us == clock.now_us() + 2 * DAY_US
        assert sf.mail.send("bob", "x", expires="2d").expires_us == clock.now_us() + 2 * DAY_US
