"""The journal sorted by event time: no event is missing or out of order."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import when
from standfast.clock import MINUTE_US, ManualClock
from standfast.core import journal
from standfast.views import timeline

EDGES = (timeline.SQL.before, timeline.SQL.after)
Told = list[tuple[int, int]]
"""(occurred_us, seq) of all rows."""


def tell(sf: standfast.Standfast, clock: ManualClock, draw: random.Random, count: int) -> Told:
    """Append events: most in order, some in the past or the future, some in bulk, some after the clock was set back."""
    told: Told = []
    while len(told) < count:
        clock.jump(draw.choice([0, 0.5, 1, 30, 300, 30, 1, -20 if draw.random() < 0.3 else 2]))
        now = clock.now_us()
        past = now - draw.randrange(100 * MINUTE_US)
        kinds: list[list[int | None]] = [[None], [now - 1], [past], [past] * 3, [now + draw.randrange(10**9)]]
        for occurred in draw.choices(kinds, weights=[12, 2, 2, 1, 1])[0] * draw.choice([1, 1, 1, 7, 70]):
            told.append((now if occurred is None else occurred, _told(sf, occurred)))
    return sorted(told)


def _told(sf: standfast.Standfast, occurred_us: int | None) -> int:
    seq = sf._store.write(lambda tx: journal.append(tx, "x.added", "x", occurred_us=occurred_us, stream=None)).seq
    assert seq is not None
    return seq


@pytest.fixture(params=range(6), ids=lambda seed: f"seed {seed}")
def told(request: pytest.FixtureRequest, engine_url: str, tmp_path: Path) -> Iterator[tuple[standfast.Standfast, Told]]:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        yield sf, tell(sf, clock, random.Random(request.param), 500)


def test_every_window_holds_what_happened_in_it_in_order(told: tuple[standfast.Standfast, Told]) -> None:
    """001-43: events by time range, in any order of writing."""
    sf, all_told = told
    draw = random.Random(7)
    for _ in range(60):
        since, until = sorted(_moment(all_told, draw) for _ in range(2))
        meant = [seq for us, seq in all_told if since <= us < until]
        assert _paged(sf, since, until, draw.choice([20, 50, 1000])) == meant
        last = draw.choice([1, 3, 50])
        newest = sf.events.list(since=when.utc(since), until=when.utc(until), newest=True, limit=last).events
        assert [event.seq for event in newest] == meant[-last:]
    assert _paged(sf, None, None, 50) == [seq for _, seq in all_told]


def _moment(all_told: Told, draw: random.Random) -> int:
    return draw.choice(all_told)[0] + draw.choice([-1, 0, 0, 1, MINUTE_US])


def _time(us: int | None) -> datetime | None:
    return None if us is None else when.utc(us)


def _paged(sf: standfast.Standfast, since: int | None, until: int | None, limit: int) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = sf.events.list(since=_time(since), until=_time(until), limit=limit, after=after)
        found += [event.seq for event in page.events]
        after = page.next
        if after is None:
            return found


def test_the_timeline_shows_the_same(told: tuple[standfast.Standfast, Told]) -> None:
    sf, all_told = told
    moments = [us for us, _ in all_told]
    for us in moments[:: len(moments) // 12]:
        found = sf.timeline(at=str(_iso(us)), window="20m", limit=2000)
        meant = all_told[bisect_left(moments, found.from_us) : bisect_left(moments, found.until_us)]
        assert [entry.seq for entry in found.entries] == [seq for _, seq in meant]
        assert len(meant) > 0


def _iso(us: int) -> datetime:
    return datetime.fromtimestamp(us // 10**6, UTC)


def test_the_nearest_before_and_after_any_moment_are_found(told: tuple[standfast.Standfast, Told]) -> None:
    """000-16: the start and the end of a gap are shown."""
    sf, all_told = told
    moments = [us for us, _ in all_told]
    for us in {us + near for us in moments[::5] for near in (-1, 0, 1)} | {0, moments[-1] + 1}:
        place = bisect_left(moments, us)
        before, after = (sf.read(lambda tx, asked=asked, us=us: tx.one(asked, us=us)) for asked in EDGES)  # type: ignore[misc]
        assert before["event_us"] == (moments[place - 1] if place else None)
        assert after["event_us"] == (moments[place] if place < len(moments) else None)


@pytest.mark.parametrize("occurred", [2**62 + 1, 0, True, 1.5, timedelta(hours=1), "soon"])
def test_an_invalid_time_is_refused_and_no_event_is_written(sf: standfast.Standfast, occurred: Any) -> None:
    with sf.session("s") as session:
        with pytest.raises(standfast.InvalidInput, match=r"occurred is a datetime or a text|not a time"):
            sf.sessions.say("s", "user", "hello", occurred=occurred)
        assert session.messages() == []
