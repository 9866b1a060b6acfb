"""A week of an unattended loop leaves exactly the episodes that a model of ten lines predicts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from standfast import config, handle
from standfast.clock import MINUTE_US, ManualClock
from tests.sampling import sampled

EVERY_M = 15
SWEEPS = 7 * 24 * 60 // EVERY_M
ABSENT_MAX = 3
COOL_DOWN_M = 60
CONDITIONS = ("disk is full", "queue is long", "cert expires", "job is late", "cache is cold")


class Life(NamedTuple):
    """One episode: how often it was seen, and in which sweep it was closed."""

    seen: int
    closed: int | None
    missed: int = 0


def predicted(week: list[set[str]]) -> dict[str, list[Life]]:
    """The episodes that the model predicts."""
    lives: dict[str, list[Life]] = {name: [] for name in CONDITIONS}
    for n, present in enumerate(week):
        for name, episodes in lives.items():
            last = episodes[-1] if episodes else Life(0, -10_000)
            cooling = last.closed is not None and (n - last.closed) * EVERY_M < COOL_DOWN_M
            if name in present and (last.closed is None or cooling):
                episodes[-1] = last._replace(seen=last.seen + 1, missed=0)
            elif name in present:
                episodes.append(Life(1, None))
            elif last.closed is None:
                gone = last.missed + 1 == ABSENT_MAX
                episodes[-1] = last._replace(missed=last.missed + 1, closed=n if gone else None)
    return lives


def a_week(seed: int) -> list[set[str]]:
    """Each condition appears, lasts for a while, flickers and disappears."""
    draw = random.Random(seed)
    present: set[str] = set()
    week = []
    for _ in range(SWEEPS):
        for number, name in enumerate(CONDITIONS):
            if draw.random() < (0.02, 0.05, 0.1, 0.3, 0.5)[number]:
                present ^= {name}
        week.append(set(present))
    return week


@pytest.mark.parametrize("seed", sampled([1, 2], 1))
def test_a_loop_of_fifteen_minutes_for_a_week_leaves_the_predicted_episodes(
    engine_url: str, tmp_path: Path, seed: int
) -> None:
    """000-25, 000-26: no extra episode, no missing one, and an episode of its own for each return."""
    clock, week = ManualClock(), a_week(seed)
    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data"), clock=clock) as sf:
        for present in week:
            seen = sorted(present)
            sf.tasks.sweep("watch", seen=seen, absent_max=ABSENT_MAX, cool_down=f"{COOL_DOWN_M}m")
            assert len(sf.tasks.list()) <= len(CONDITIONS)
            clock.advance(f"{EVERY_M}m")
        rows = list(sf.rows("SELECT title, episode, occurrences, state, closed_us FROM task ORDER BY title, episode"))
    start_us = ManualClock().now_us()
    found: dict[str, list[Life]] = {name: [] for name in CONDITIONS}
    for row in rows:
        closed = None if row["closed_us"] is None else (row["closed_us"] - start_us) // (EVERY_M * MINUTE_US)
        assert (row["state"] == "closed") == (closed is not None)
        found[row["title"]].append(Life(row["occurrences"], closed))
        assert row["episode"] == len(found[row["title"]])
    expected = {name: [life._replace(missed=0) for life in lives] for name, lives in predicted(week).items()}
    assert found == expected
    assert sum(map(len, found.values())) > 50
