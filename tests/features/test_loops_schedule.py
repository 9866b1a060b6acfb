"""When a loop is due: compared with a walk over every minute, also across changes to and from summer time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.clock import HOUR_US, MINUTE_US, SECOND_US
from standfast.errors import InvalidInput
from standfast.record.loops import schedule
from standfast.record.loops.schedule import Cron, Every, Once

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Pacific/Chatham")
EXPRESSIONS = (
    "30 2 * * *",
    "*/15 * * * *",
    "15,45 2 * * *",
    "0 2,3 * * *",
    "*/10 3 * * *",
    "30 1 * * SUN",
    "0 0 * * *",
)


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND_US


def walked(text: str, zone: ZoneInfo, from_s: int, until_s: int) -> list[int]:
    """The reference implementation: look at the wall clock of every minute."""
    fields = CronSim(text, datetime(2026, 1, 1))  # noqa: DTZ001
    fixed = not any(field.startswith("*") for field in text.split()[:2])

    def fits(shown: datetime) -> bool:
        in_day = shown.minute in fields.minutes and shown.hour in fields.hours
        return in_day and shown.month in fields.months and fields.match_day(shown.date())

    found, before = set(), None
    for second in range(from_s // 60 * 60 - 7200, until_s + 1, 60):
        local = datetime.fromtimestamp(second, zone)
        shown = local.replace(tzinfo=None, fold=0)
        if fits(shown) and not (fixed and local.fold):
            found.add(second)
        while fixed and before is not None and before + timedelta(minutes=1) < shown:
            before += timedelta(minutes=1)  # a time that no clock showed
            if fits(before):
                found.add(second)
        before = shown
    return [second * SECOND_US for second in sorted(found) if from_s <= second <= until_s]


@pytest.mark.parametrize("zone", ZONES)
def test_cron_is_right_over_every_change_of_clocks(zone: str) -> None:
    """000-16: where an hour is skipped or repeated, no slot is lost or doubled."""
    draw, there = random.Random(zone), ZoneInfo(zone)
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(366 * 24)]
    offsets = [moment.astimezone(there).utcoffset() for moment in moments]
    changes = [moments[n] for n in range(1, len(moments)) if offsets[n] != offsets[n - 1]]
    assert len(changes) == 2
    for change in changes:
        start_s, end_s = round(change.timestamp()) - 86_400, round(change.timestamp()) + 86_400
        for text in EXPRESSIONS:
            expected, cron = walked(text, there, start_s, end_s), Cron(text, zone)
            found, at_us = [], start_s * SECOND_US - 1
            while (following := cron.after(at_us)) is not None and following <= end_s * SECOND_US:
                found.append(following)
                at_us = following
            assert found == expected, text
            assert cron.count(start_s * SECOND_US, end_s * SECOND_US) == len(expected)
            assert cron.newest(start_s * SECOND_US, end_s * SECOND_US, 3) == expected[-3:]
            asked_us = draw.randrange(start_s, end_s) * SECOND_US
            assert cron.after(asked_us) == next(
                (slot for slot in expected if slot > asked_us), cron.after(expected[-1])
            )


def test_a_nightly_job_in_a_skipped_hour_is_due_when_the_clocks_have_changed() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    assert cron.after(us("2026-03-28T12:00:00+01:00")) == us("2026-03-29T03:00:00+02:00")
    assert cron.after(us("2026-03-29T03:00:00+02:00")) == us("2026-03-30T02:30:00+02:00")


def test_a_nightly_job_in_a_repeated_hour_is_due_the_first_time_only() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    assert cron.after(us("2026-10-24T12:00:00+02:00")) == us("2026-10-25T02:30:00+02:00")
    assert cron.after(us("2026-10-25T02:30:00+02:00")) == us("2026-10-26T02:30:00+01:00")


def test_an_hourly_job_is_due_every_hour_that_passes() -> None:
    cron = Cron("0 * * * *", "Europe/Berlin")
    night_us = us("2026-10-25T00:00:00+02:00")
    assert cron.count(night_us, night_us + 25 * HOUR_US - 1) == 25
    night_us = us("2026-03-29T00:00:00+01:00")
    assert cron.count(night_us, night_us + 23 * HOUR_US - 1) == 23


def test_an_interval_does_not_drift_and_no_change_of_clocks_moves_it() -> None:
    every = Every(15 * MINUTE_US, us("2026-03-29T00:07:00+01:00"))
    assert every.after(us("2026-03-29T03:01:00+02:00")) == us("2026-03-29T03:07:00+02:00")
    slot_us = us("2026-03-29T00:07:00+01:00")
    for n in range(1, 1000):
        slot_us = every.after(slot_us + (n * 7919 % 900) * SECOND_US) or 0  # each call is late by a different time
        assert (slot_us - us("2026-03-29T00:07:00+01:00")) % (15 * MINUTE_US) == 0


@given(
    st.integers(1, 10_000),
    st.integers(0, 10**6),
    st.integers(-(10**6), 10**7),
    st.integers(0, 10**6),
    st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_the_three_questions_to_an_interval_have_one_answer(
    period: int, anchor: int, start: int, length: int, limit: int
) -> None:
    every = Every(period, anchor)
    slots = [anchor + n * period for n in range(1, max(0, start + length - anchor) // period + 2)]
    inside = [slot for slot in slots if start <= slot <= start + length]
    assert every.count(start, start + length) == len(inside)
    assert every.newest(start, start + length, limit) == (inside[-limit:] if limit else [])
    assert every.after(start + length) == next(slot for slot in slots if slot > start + length)


def test_one_moment_is_one_slot() -> None:
    once = Once(100)
    assert (once.after(99), once.after(100), once.count(1, 100), once.newest(101, 200, 5)) == (100, None, 1, [])


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"cron": "0 3 * *"}, "five fields"),
        ({"cron": "0 3 * * * *"}, "five fields"),
        ({"cron": "61 3 * * *"}, "minute"),
        ({"cron": "0 0 30 2 *"}, "cron expression|no month has"),
        ({"cron": "@reboot"}, "reboot"),
        ({"cron": ""}, "five fields"),
        ({"every": "0s"}, "interval"),
        ({"every": "500ms"}, "interval"),
        ({"every": "often"}, "duration"),
        ({"every": 1.5}, "interval"),
        ({"every": "15m", "cron": "0 3 * * *"}, "one schedule"),
        ({}, "one schedule"),
        ({"at_us": -5}, "between 1970"),
        ({"every": "15m", "zone": "Mars/Olympus"}, "time zone"),
        ({"every": "15m", "zone": "../../etc/passwd"}, "time zone"),
        ({"every": "15m", "zone": ""}, "time zone"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_reason(given_: dict[str, object], says: str) -> None:
    wanted: dict[str, object] = {"every": None, "cron": None, "at_us": None, "zone": "UTC"} | given_
    with pytest.raises(InvalidInput, match=says):
        schedule.spec(**wanted)  # type: ignore[arg-type]


def test_one_schedule_has_one_spelling() -> None:
    spelled = {
        schedule.spec(every=None, cron=text, at_us=None, zone="UTC")
        for text in ("@daily", "0 0 * * *", " 0  0 * * * ", "@midnight")
    }
    assert len(spelled) == 1
    assert schedule.spec(every="60m", cron=None, at_us=None, zone="UTC") == schedule.spec(
        every="1h", cron=None, at_us=None, zone="UTC"
    )
