"""Every crash around intent, dispatch and acknowledgement, and a second crash at every point of the recovery.

002-33: crashes before and after intent logging, dispatch and acknowledgement. An oracle outside the
store counts: nothing lost, nothing silently repeated, nothing falsely said to be done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast.prove.crashes.effects import STORIES
from standfast.prove.faults.children import Child

SCHEDULES = {
    "three_kinds": 420,
    "only_plain": 260,
    "only_probed": 260,
    "only_idempotent": 180,
    "failing": 220,
    "shrugging": 80,
    "approved": 100,
}


def played(story: str, place: Path, schedules: int, url: str | None = None) -> int:
    with Child(
        "standfast.prove.crashes.effects:sweep", story=story, place=str(place), schedules=schedules, url=url
    ) as child:
        (number,) = child.end(900)
    return int(number)


def test_every_story_is_swept_and_there_are_enough_schedules() -> None:
    assert SCHEDULES.keys() == STORIES.keys()
    assert sum(SCHEDULES.values()) >= 1500


@pytest.mark.parametrize("story", SCHEDULES)
def test_no_crash_loses_repeats_or_invents_an_effect(story: str, tmp_path: Path) -> None:
    assert played(story, tmp_path, SCHEDULES[story]) == SCHEDULES[story]


@pytest.mark.parametrize("story", ["three_kinds", "failing"])
def test_the_same_on_postgresql(story: str, pg_database: str, tmp_path: Path) -> None:
    assert played(story, tmp_path, 40, pg_database) == 40
