"""Arguments of callers: one rule each, refused with the value and both limits."""

from __future__ import annotations

import re

import pytest

import standfast
from standfast.clock import DAY_US, DURATION_MAX_US
from standfast.core import checks
from standfast.ids import new_id


@pytest.mark.parametrize(("limit", "rows"), [(-5, 1), (0, 1), (1, 1), (50, 50), (1000, 1000), (10**9, 1000)])
def test_a_page_has_at_least_one_row_and_at_most_a_thousand(limit: int, rows: int) -> None:
    assert checks.page_size(limit) == rows
    assert checks.page_size(limit, 7) == min(rows, 7)


@pytest.mark.parametrize("us", [1, DAY_US, 7 * DAY_US])
def test_a_duration_within_its_limits_is_returned(us: int) -> None:
    assert checks.bounded_us(us, "lease duration", most_us=7 * DAY_US) == us


@pytest.mark.parametrize("us", [0, -1, 7 * DAY_US + 1, True, 1.5, "1h", None])
def test_a_duration_outside_its_limits_is_refused_with_both_and_the_value(us: object) -> None:
    words = re.escape(f"lease duration must be between 1 µs and 7d (got {us})")
    with pytest.raises(standfast.InvalidInput, match=words):
        checks.bounded_us(us, "lease duration", most_us=7 * DAY_US)


def test_a_duration_may_be_nothing_where_that_has_a_meaning() -> None:
    assert checks.bounded_us(0, "a cool-down", least_us=0) == 0
    with pytest.raises(standfast.InvalidInput, match="between 0 s and a hundred years"):
        checks.bounded_us(DURATION_MAX_US + 1, "a cool-down", least_us=0)


@pytest.mark.parametrize("number", [0, 100, True, 1.0, "5", None])
def test_a_number_outside_its_limits_is_refused_with_both_and_the_value(number: object) -> None:
    with pytest.raises(standfast.InvalidInput, match=f"attempts is a whole number from 1 to 99, not {number}"):
        checks.whole(number, "attempts", least=1, most=99)


def test_a_cursor_of_a_time_and_an_id_is_read_and_anything_else_refused() -> None:
    id = new_id("ses")
    assert checks.time_and_id(None) == (checks.FAR_FUTURE_US, "")
    assert checks.time_and_id(f"17:{id}") == (17, id)
    for after in ("", "17", f"x:{id}", f"-1:{id}", f"{10**19}:{id}", f"\u0661:{id}", "17:not an id"):
        with pytest.raises(standfast.InvalidInput, match="is not a cursor of this list"):
            checks.time_and_id(after)
