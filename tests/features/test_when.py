"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from standfast import when
from standfast.errors import InvalidInput

NOW = datetime(2026, 11, 15, 19, 30, tzinfo=UTC)  # a Sunday
NOW_US = int(NOW.timestamp()) * 1_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def iso(text: str) -> str:
    moment = when.parse(text, NOW_US, UTC)
    return datetime.fromtimestamp(moment.us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", "2026-11-15 19:30:00"),
        ("tue 03:00", "2026-11-10 03:00:00"),
        ("Tuesday 3am", "2026-11-10 03:00:00"),
        ("last tuesday at 3 am", "2026-11-10 03:00:00"),
        ("sun 20:00", "2026-11-08 20:00:00"),
        ("sunday 19:00", "2026-11-15 19:00:00"),
        ("03:00", "2026-11-15 03:00:00"),
        ("23:00", "2026-11-14 23:00:00"),
        ("yesterday 14:30", "2026-11-14 14:30:00"),
        ("today", "2026-11-15 00:00:00"),
        ("yesterday noon", "2026-11-14 12:00:00"),
        ("3h ago", "2026-11-15 16:30:00"),
        ("2 days ago", "2026-11-13 19:30:00"),
        ("90 minutes ago", "2026-11-15 18:00:00"),
        ("2026-11-10", "2026-11-10 00:00:00"),
        ("2026-11-10 03:00", "2026-11-10 03:00:00"),
        ("2026-11-10T03:00:00Z", "2026-11-10 03:00:00"),
        ("2026-11-10T03:00:00.5+02:00", "2026-11-10 01:00:00"),
        ("2026-11-10 03:00 Europe/Berlin", "2026-11-10 02:00:00"),
        ("2026-11-10 03:00 UTC+2", "2026-11-10 01:00:00"),
        ("nov 10 03:00", "2026-11-10 03:00:00"),
        ("10 nov 3:15pm", "2026-11-10 15:15:00"),
        ("dec 24", "2025-12-24 00:00:00"),
        ("1st december 2024 12am", "2024-12-01 00:00:00"),
        ("@1700000000", "2023-11-14 22:13:20"),
    ],
)
def test_people_are_understood(typed: str, meant: str) -> None:
    """000-17: texts that people type for a time are parsed."""
    assert iso(typed) == meant


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "  ",
        "soon",
        "25:00",
        "13pm",
        "2026-13-01",
        "feb 30",
        "tue 3:99",
        "3 ago",
        "03:00 Mars/Base",
        "Europe/Berlin",
        "-1",
    ],
)
def test_nonsense_is_refused_with_what_would_be_understood(typed: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        when.parse(typed, NOW_US, UTC)
    assert caught.value.hint


def test_the_answer_names_the_zone_and_its_offset() -> None:
    assert str(when.parse("tue 03:00", NOW_US, BERLIN)) == "Tue 2026-11-10 03:00:00 CET (+01:00)"
    assert str(when.parse("2026-07-01 03:00", NOW_US, BERLIN)) == "Wed 2026-07-01 03:00:00 CEST (+02:00)"


def test_an_hour_the_clocks_skipped_or_repeated_is_still_a_moment() -> None:
    skipped = when.parse("2026-03-29 02:30", NOW_US, BERLIN)
    assert skipped.local == "Sun 2026-03-29 03:30:00"
    repeated = when.parse("2026-10-25 02:30", NOW_US, BERLIN)
    assert repeated.zone == "CEST (+02:00)"
