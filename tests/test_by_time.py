"""The journal by when things happened: in whatever order it was told, nothing is missing or out of place."""

from __future__ import annotations

import random
import shutil
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import standfast
from standfast.clock import MINUTE_US, ManualClock
from standfast.db.contract import Tx
from standfast.db.sqlite import migrate
from standfast.footings import by_time, journal
from standfast.record.events import reading
from tests.test_migrations import FIXTURES

Told = list[tuple[int, int]]
"""(occurred_us, seq) of all that was told."""


def tell(sf: standfast.Standfast, clock: ManualClock, draw: random.Random, count: int) -> Told:
    """Mostly in order; now and then of the past, of the future, many at once, or by a clock that was set back."""
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
    seq = sf._store.write(lambda tx: journal.append(tx, "x.told", "x", occurred_us=occurred_us, stream=None)).seq
    assert seq is not None
    return seq


@pytest.fixture(params=range(6), ids=lambda seed: f"seed {seed}")
def told(request: pytest.FixtureRequest, engine_url: str, tmp_path: Path) -> Iterator[tuple[standfast.Standfast, Told]]:
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        yield sf, tell(sf, clock, random.Random(request.param), 500)


def test_every_window_holds_what_happened_in_it_in_order(told: tuple[standfast.Standfast, Told]) -> None:
    """001-43: events by time range, however they were told."""
    sf, all_told = told
    draw = random.Random(7)
    for _ in range(60):
        since, until = sorted(_moment(all_told, draw) for _ in range(2))
        meant = [seq for us, seq in all_told if since <= us < until]
        assert _paged(sf, since, until, draw.choice([20, 50, 1000])) == meant
        last = draw.choice([1, 3, 50])
        newest = sf.events.list(since_us=since, until_us=until, newest=True, limit=last).events
        assert [event.seq for event in newest] == meant[-last:]
    assert _paged(sf, None, None, 50) == [seq for _, seq in all_told]


def _moment(all_told: Told, draw: random.Random) -> int:
    return draw.choice(all_told)[0] + draw.choice([-1, 0, 0, 1, MINUTE_US])


def _paged(sf: standfast.Standfast, since: int | None, until: int | None, limit: int) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = sf.events.list(since_us=since, until_us=until, limit=limit, after=after)
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
    """000-16: a silence is told from its one end to its other."""
    sf, all_told = told
    moments = [us for us, _ in all_told]
    for us in {us + near for us in moments[::5] for near in (-1, 0, 1)} | {0, moments[-1] + 1}:
        place = bisect_left(moments, us)
        assert sf.read(partial(by_time.last_before, us=us)) == (moments[place - 1] if place else None)
        assert sf.read(partial(by_time.first_from, us=us)) == (moments[place] if place < len(moments) else None)


def test_what_was_told_in_order_is_in_no_index_but_every_64th(tmp_path: Path) -> None:
    """What is not, is found by one; and what is told of the future delays nobody behind it."""
    clock = ManualClock()
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data", clock=clock) as sf:
        for n in range(200):
            clock.jump(1)
            _told(sf, clock.now_us() + 10**12 if n == 50 else clock.now_us() - 10**7 if n == 100 else None)
        rows = list(sf.rows("SELECT seq, occurred_us, late_us FROM event ORDER BY seq"))
        assert [row["seq"] for row in rows if row["late_us"]] == [51, 101]
        sums = [row["occurred_us"] + row["late_us"] for row in rows]
        assert sums == sorted(sums)
        path = sf.engine.path  # type: ignore[attr-defined]
    assert _entries(path) == {"event_late": 2, "event_mark": 3, "event_by_subject": 200}


def _entries(path: str) -> dict[str, int]:
    """How many rows each index of the journal holds."""
    connection = apsw.Connection(path)
    try:
        asked = "SELECT name, sum(ncell) FROM dbstat WHERE name LIKE 'event!_%' ESCAPE '!' GROUP BY name"
        return {name: count for name, count in connection.execute(asked) if count}
    finally:
        connection.close()


def test_a_window_in_a_long_journal_is_read_from_where_it_begins_to_where_it_ends(tmp_path: Path) -> None:
    """One of a hundred rows, in the middle of fifty thousand: its pages, and a few more."""
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data") as sf:

        def fill(tx: Tx) -> None:
            for us in range(50_000):
                journal.append(tx, "x.told", "x", occurred_us=us)

        def read(tx: Tx, since: int, until: int) -> tuple[int, int]:
            connection = tx._cursor.connection  # type: ignore[attr-defined]
            kinds = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
            before = sum(connection.status(kind)[0] for kind in kinds)
            rows = by_time.between(tx, reading.SQL.between, from_us=since, until_us=until, **asked)
            edges = by_time.last_before(tx, since), by_time.first_from(tx, until)
            assert edges == (since - 1, until)
            return len(rows), sum(connection.status(kind)[0] for kind in kinds) - before

        asked = {"seq": 0, "everywhere": 1, "scope": "", "stream": None, "type": None, "limit": 1000}
        sf._store.write(fill)
        rows, pages = sf.read(partial(read, since=25_000, until=25_100))
        assert rows == 100
        assert pages < 60


def test_a_journal_of_before_is_brought_into_order(tmp_path: Path) -> None:
    """003-36: the rows of an older schema are found as those of today."""
    path = tmp_path / "standfast.db"
    shutil.copy(FIXTURES / "0009.db", path)
    draw = random.Random(3)
    times = [1000 + n - draw.choice([0] * 9 + [draw.randrange(900), -(10**6)]) for n in range(700)]
    connection = apsw.Connection(str(path))
    migrate.define_guard(connection)
    connection.execute("DELETE FROM event")
    connection.executemany(
        "INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
        " VALUES (10000, ?, '', 'old', 'p:old', 'seen', 'x.told', 'x')",
        [(us,) for us in times],
    )
    first = connection.execute("SELECT min(seq) FROM event").get
    connection.close()
    meant = [first + n for _, n in sorted((us, n) for n, us in enumerate(times))]
    with standfast.open(path, data_dir=tmp_path / "data") as sf:
        page = sf.events.list(everywhere=True, limit=1000)
        assert [event.seq for event in page.events] == meant
        assert sf.read(partial(by_time.first_from, us=0)) == min(times)
        assert sf.read(partial(by_time.last_before, us=10**15)) == max(times)
        rows = list(sf.rows("SELECT occurred_us, late_us, occurred_us + late_us AS us FROM event ORDER BY seq"))
        assert [row["us"] for row in rows] == sorted(row["us"] for row in rows)
        assert {row["late_us"] < 0 for row in rows if row["occurred_us"] > 10**6} == {True}
        assert sum(row["late_us"] == 0 for row in rows) > 500  # what was told of the future delayed nobody


@pytest.mark.parametrize("us", [2**62 + 1, -(2**63), 2**63 - 1, True, 1.5])
def test_a_moment_too_far_to_reckon_with_is_refused_and_nothing_is_said(sf: standfast.Standfast, us: Any) -> None:
    with sf.session("s") as session:
        with pytest.raises(standfast.InvalidInput, match="occurred_us counts microseconds since 1970"):
            sf.sessions.say("s", "user", "hello", occurred_us=us)
        assert session.messages() == []
