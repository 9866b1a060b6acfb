"""Every crash around intent, dispatch and acknowledgement, and a second crash at every point of the recovery.

002-33: crashes before and after intent logging, dispatch and acknowledgement. An oracle outside the
store counts: nothing lost, nothing silently repeated, nothing falsely said to be done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import crash
from tests.crash import effects as stories
from tests.crash.effects import Agent

STORIES: dict[str, tuple[Callable[[Agent, Any], None], int]] = {
    "three_kinds": (stories.three_kinds, 440),
    "only_plain": (stories.only_plain, 260),
    "only_probed": (stories.only_probed, 260),
    "only_idempotent": (stories.only_idempotent, 180),
    "failing": (stories.failing, 260),
    "shrugging": (stories.shrugging, 100),
    "approved": (stories.approved, 100),
}


def sweep(directory: Path, story: str, schedules: int, *, url: str | None = None, seed: int = 0) -> int:
    """How many schedules were played; AssertionError for the first that ends wrong."""
    agent = Agent(url, directory, STORIES[story][0])
    agent.warm()
    copies: dict[str, Any] = {} if url else {"keep": agent.keep, "restore": agent.restore}
    return crash.sweep(
        agent.run,
        agent.recover,
        agent.check,
        reset=agent.reset,
        check_in_parent=True,
        max_schedules=schedules,
        seed=seed,
        **copies,
    )


def test_there_are_enough_schedules() -> None:
    assert sum(schedules for _, schedules in STORIES.values()) >= 1500


@pytest.mark.parametrize("story", STORIES)
def test_no_crash_loses_repeats_or_invents_an_effect(story: str, tmp_path: Path) -> None:
    schedules = STORIES[story][1]
    assert sweep(tmp_path, story, schedules) == schedules


@pytest.mark.parametrize("story", ["three_kinds", "failing"])
def test_the_same_on_postgresql(story: str, pg_database: str, tmp_path: Path) -> None:
    assert sweep(tmp_path, story, 40, url=pg_database) == 40
