"""The campaign `probes` with a few tries of each scene. A scene whose server is not installed is skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import probes
from standfast_prove.probes.scenes import SAMPLE, SCENES
from tests.sampling import sampled
from tests.skipping import or_skip

GATE = ("git-push-file", "keyed-post")
"""What every machine has, git over files and a POST with its key: settled without a person."""


@pytest.mark.parametrize("scene", sampled(SCENES, *GATE))
def test_a_killed_action_is_settled_and_happens_once(scene: str, tmp_path: Path) -> None:
    """001-34, 002-15, 002-20: the process is killed at random. The remote answers late and counts the actions."""
    outcome = probes.run(tmp_path / "place", seed=7, scenes=(scene,), tries=3)
    missing = [what for what in outcome.seen if what.startswith("scenes not run")]
    if missing and scene not in SAMPLE:
        with or_skip():
            raise probes.Unavailable(missing[0])
    assert not missing
    assert not outcome.bad, outcome
    assert outcome.seen["settled"] == outcome.seen["doubts"] or scene not in GATE, outcome
    assert outcome.seen["tries"] == 3
