"""All features in use together under random kills: a sample of `make soak`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns import soak


def test_everything_at_once_under_kills_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """002-34: sessions, effects, state, events, tasks, mail, artifacts, leases and loops on one store."""
    outcome = soak.run(tmp_path, seconds=4, seed=3)
    assert not outcome.bad, outcome.bad
    assert outcome.seen["kills"] + outcome.seen.get("pauses", 0) > 0
    assert outcome.seen["slots"] > 0
