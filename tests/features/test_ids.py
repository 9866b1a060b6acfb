"""Ids are sortable, unambiguous and unique."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standfast import ids
from standfast.errors import InvalidInput

TABLES_WITH_IDS = """
    session node message tool_call usage step effect decision approval gate checkpoint artifact task state event
    agent lease webhook_event credit_entry mail mail_attempt dead_letter loop run
"""


def made_in_a_child(count: int) -> list[str]:
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writer, " ".join(ids.new_id("eff") for _ in range(count)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="ascii") as pipe:
        made = pipe.read().split()
    assert os.waitpid(pid, 0)[1] == 0
    return made


def test_every_table_has_one_prefix_of_three_letters() -> None:
    assert set(TABLES_WITH_IDS.split()) <= set(ids.PREFIXES.values())
    assert len(set(ids.PREFIXES.values())) == len(ids.PREFIXES)
    assert all(len(prefix) == 3 and prefix.isalpha() and prefix.islower() for prefix in ids.PREFIXES)


def test_an_id_is_made_by_us_from_the_clock_we_are_given() -> None:
    """003-31: standfast makes the ids, not the database. The time is a parameter."""
    now_us = 1_767_225_600_123_456
    id = ids.IdMaker().new_id("ses", now_us=now_us)
    assert ids.is_id(id)
    assert ids.prefix_of(id) == "ses"
    assert ids.time_us(id) == 1_767_225_600_123_000


def test_an_id_is_a_uuid_version_7() -> None:
    digits = ids.new_id("eff")[4:].translate(str.maketrans(ids.ALPHABET, "0123456789abcdefghijklmnopqrstuv"))
    number = int(digits, 32)
    assert number < 1 << 128
    assert (number >> 76) & 0xF == 7
    assert (number >> 62) & 0b11 == 0b10
    assert abs((number >> 80) - time.time_ns() // 1_000_000) < 60_000


def test_the_same_entropy_and_clock_make_the_same_ids() -> None:
    """000-48: with the same clock and random source, the ids are the same."""

    def three() -> list[str]:
        maker = ids.IdMaker(entropy=lambda size: b"\x5a" * size)
        return [maker.new_id("tsk", now_us=now_us) for now_us in (5_000, 5_000, 4_000)]

    assert three() == three()


@given(st.lists(st.integers(min_value=-1, max_value=(1 << 48) * 1000 - 1), min_size=1, max_size=60))
def test_ids_grow_even_if_the_clock_goes_back(times_us: list[int]) -> None:
    maker = ids.IdMaker()
    made = [maker.new_id("msg", now_us=now_us) for now_us in times_us]
    assert made == sorted(set(made))
    assert all(ids.is_id(id) for id in made)


def test_the_time_of_an_id_is_read_to_the_last_year_it_can_hold() -> None:
    maker = ids.IdMaker()
    for ms in (0, 1, 1 << 40, (1 << 48) - 1):
        assert ids.time_us(maker.new_id("msg", now_us=ms * 1000)) == ms * 1000


def test_a_full_counter_continues_in_the_next_millisecond() -> None:
    maker = ids.IdMaker(entropy=lambda size: b"\xff" * size)
    maker._count = (1 << 42) - 3
    made = [maker.new_id("msg", now_us=1_000_000) for _ in range(4)]
    assert made == sorted(set(made))
    assert all(map(ids.is_id, made))


def test_threads_never_share_an_id_and_each_sees_its_own_grow() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(len(made))

    def make(mine: list[str]) -> None:
        start.wait()
        mine.extend(ids.new_id("eff") for _ in range(2000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made)
    assert len({id for mine in made for id in mine}) == 16_000


def test_forked_children_continue_above_their_parent_with_different_ids() -> None:
    before = ids.new_id("eff")
    lives = [made_in_a_child(300) for _ in range(4)]
    lives.append([ids.new_id("eff") for _ in range(300)])
    assert len({id for life in lives for id in life}) == 1500
    assert all(life == sorted(life) and life[0] > before for life in lives)


def test_a_child_begins_above_its_parent_even_in_the_same_millisecond() -> None:
    fill = [b"\xff"]
    maker = ids.IdMaker(entropy=lambda size: fill[0] * size)
    parents = maker.new_id("eff", now_us=9_000)
    fill[0] = b"\x00"
    maker.forked()
    assert maker.new_id("eff", now_us=9_000) > parents


def test_a_child_is_not_blocked_by_a_lock_its_parent_held_at_the_fork() -> None:
    with ids._MAKER._lock:
        assert len(made_in_a_child(2)) == 2


def test_short_names_of_one_moment_differ() -> None:
    maker = ids.IdMaker()
    made = {ids.short(maker.new_id("eff", now_us=7_000)) for _ in range(200)}
    assert len(made) >= 199
    assert all(len(one) == ids.SHORT_CHARS for one in made)


def test_an_unknown_prefix_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="'xyz' is unknown"):
        ids.new_id("xyz")


def test_a_time_past_what_an_id_can_hold_is_refused() -> None:
    with pytest.raises(InvalidInput, match="past the year 10889"):
        ids.new_id("eff", now_us=(1 << 48) * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "eff_",
        "eff-" + "0" * 26,
        "xyz_" + "0" * 26,
        "eff_" + "0" * 25,
        "eff_" + "0" * 27,
        "eff_8" + "0" * 25,  # 129 bits, one too many
        "eff_!" + "0" * 25,
        "eff_" + "0" * 25 + "u",
        "EFF_" + "0" * 26,
        "eff_" + "A" * 26,
        "eff_" + "٣" * 26,
        None,
        7,
    ],
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    assert not ids.is_id(text)
    with pytest.raises(InvalidInput, match="is not an id"):
        ids.prefix_of(text)
    with pytest.raises(InvalidInput, match="is not an id"):
        ids.time_us(text)


def test_what_a_person_typed_is_found_by_its_end() -> None:
    id = ids.new_id("eff")
    assert ids.like_suffix(ids.short(id)) == id[-6:]
    assert ids.like_suffix(f"  {id.upper()} ") == id[4:]
    assert ids.like_suffix("EFF_" + id[-8:].upper()) == id[-8:]
    assert ids.like_suffix(id, prefix="eff") == id[4:]
    assert ids.like_suffix(id, prefix="tsk") is None


@pytest.mark.parametrize(
    "text", ["", "abc12", "fix-42x", "with_underscore", "zzz_abc123", "eff_abc", "0" * 27, "ab%c12"]
)
def test_a_text_that_cannot_end_an_id_is_no_suffix(text: str) -> None:
    assert ids.like_suffix(text) is None


def test_every_prefix_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/values.md").read_text(encoding="utf-8")
    assert [prefix for prefix, noun in ids.PREFIXES.items() if f"| `{prefix}` | {noun} |" not in page] == []
