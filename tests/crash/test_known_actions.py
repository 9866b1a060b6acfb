"""A short sample of the campaign `probes`, with what every machine has: git over files, and a POST with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import probes


@pytest.mark.parametrize("scene", ["git-push-file", "keyed-post"])
def test_a_killed_action_is_settled_without_a_person_and_happens_once(scene: str, tmp_path: Path) -> None:
    """001-34, 002-15, 002-20: killed at random, with a remote that answers late; counted at the remote."""
    outcome = probes.run(tmp_path / "place", seed=1, scenes=(scene,), tries=2)
    assert not outcome.bad, outcome
    assert outcome.seen["tries"] == 2, outcome
    assert outcome.seen["settled"] == outcome.seen["doubts"], outcome
