"""Time: the system clock, the manual clock of tests, and times as people write them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast.clock import DAY_US, DURATION_MAX_US, SYSTEM, Clock, ManualClock, format_duration, iso, parse_duration
from standfast.errors import InvalidInput

SECOND_US = 1_000_000


def reading(clock: Clock) -> tuple[int, int, str]:
    return clock.now_us(), clock.mono_us(), clock.boot_id()


def test_the_system_clock_is_utc_and_never_goes_back_awake() -> None:
    before_us, mono_us, boot_id = reading(SYSTEM)
    assert abs(before_us - time.time() * SECOND_US) < 10 * SECOND_US
    assert SYSTEM.mono_us() >= mono_us
    assert SYSTEM.boot_id() == boot_id != ""


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="Linux says it in /proc")
def test_the_boot_id_is_the_kernels_own() -> None:
    assert SYSTEM.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_manual_clock_moves_only_when_it_is_advanced() -> None:
    """000-48: code that uses an injected clock behaves the same in every run."""
    clock = ManualClock()
    assert reading(clock) == reading(clock) == reading(ManualClock())
    assert iso(clock.now_us()) == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("three_hours", ["3h", "2h60m", timedelta(hours=3), 10_800, 10_800.0])
def test_advancing_moves_wall_and_awake_time_together(three_hours: str | float | timedelta) -> None:
    clock = ManualClock(start_us=0)
    clock.advance(three_hours)
    assert reading(clock) == (10_800 * SECOND_US, 10_800 * SECOND_US, "manual-boot-1")


@pytest.mark.parametrize("back", ["-3h", timedelta(hours=-3), -10_800])
def test_a_jump_moves_only_the_wall_clock_also_backwards(back: str | float | timedelta) -> None:
    clock = ManualClock(start_us=10_800 * SECOND_US)
    clock.advance("1s")
    clock.jump(back)
    assert reading(clock) == (SECOND_US, SECOND_US, "manual-boot-1")


def test_a_closed_lid_stops_the_time_awake() -> None:
    clock = ManualClock(start_us=0)
    clock.sleep("8h")
    assert reading(clock) == (28_800 * SECOND_US, 0, "manual-boot-1")


def test_a_reboot_changes_the_boot_id_and_restarts_awake_time() -> None:
    clock = ManualClock(start_us=0)
    clock.advance("5m")
    clock.reboot()
    assert reading(clock) == (300 * SECOND_US, 0, "manual-boot-2")


def test_time_does_not_pass_backwards() -> None:
    clock = ManualClock()
    for move in (clock.advance, clock.sleep):
        with pytest.raises(InvalidInput, match="does not pass backwards"):
            move("-1s")


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("500ms", 500_000),
        ("7us", 7),
        ("90s", 90 * SECOND_US),
        ("15m", 900 * SECOND_US),
        ("2h", 7_200 * SECOND_US),
        ("3d", 3 * DAY_US),
        ("1w", 7 * DAY_US),
        ("1h30m", 5_400 * SECOND_US),
        (" 1h 30m ", 5_400 * SECOND_US),
        ("1.5h", 5_400 * SECOND_US),
        ("0.1s", 100_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str, us: int) -> None:
    assert parse_duration(text) == us


@pytest.mark.parametrize("text", ["", " ", "90", "h", "-5m", "1h1h", "5 m", "15M", "1h30", "1e3s", "٣s", "1.s", "soon"])
def test_an_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a duration") as refusal:
        parse_duration(text)
    assert "1h30m" in refusal.value.hint


def test_a_duration_has_a_bound() -> None:
    assert parse_duration("36500d") == DURATION_MAX_US
    with pytest.raises(InvalidInput, match="longer than a hundred years"):
        parse_duration("36501d")


@given(st.integers(min_value=0, max_value=DURATION_MAX_US))
def test_a_formatted_duration_reads_back_exactly(us: int) -> None:
    assert parse_duration(format_duration(us)) == us


@pytest.mark.parametrize(
    ("us", "parts", "text"),
    [
        (0, None, "0s"),
        (5_400 * SECOND_US, None, "1h30m"),
        (-90 * SECOND_US, None, "-1m30s"),
        (7 * DAY_US, None, "7d"),
        (7_261_000_001, 2, "2h1m"),
        (1_500, 1, "1ms"),
    ],
)
def test_a_duration_is_shown_in_its_largest_units(us: int, parts: int | None, text: str) -> None:
    assert format_duration(us, parts=parts) == text


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001 - UTC below
def test_times_are_printed_as_iso(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert datetime.fromisoformat(iso(us)) == moment
    assert iso(us) == moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
