"""State written by many processes at the same time: a sample of the campaign in `standfast_prove.campaigns.state`."""

from __future__ import annotations

from pathlib import Path

from standfast_prove.campaigns.state import Value, run, step
from standfast_prove.linearizability import Call, linearizable


def test_compare_and_set_is_linearizable_through_kills_pauses_and_jumping_clocks(
    engine_url: str, tmp_path: Path
) -> None:
    """001-68, 001-70: of two writers with one version, exactly one succeeds and the other gets an error."""
    place = tmp_path / "storm"
    place.mkdir()
    url = engine_url if engine_url.startswith("postgres") else None
    outcome = run(place, seed=1, calls=30, kills=5, url=url)
    assert outcome.bad == []
    assert outcome.seen["calls"] > 150


def test_the_model_sees_two_winners_over_one_version() -> None:
    """The control: the model rejects a history with two winners."""
    both = [Call(0, 1, ("set", "a", 0), 1), Call(2, 4, ("swap", "b", 1), 2), Call(2, 4, ("swap", "c", 1), 2)]
    assert not linearizable(both, Value(), step)
    one = [*both[:2], Call(2, 4, ("swap", "c", 1), 0), Call(5, 6, ("get", "", 0), [2, "b"])]
    assert linearizable(one, Value(), step)
    lost = [*both[:2], Call(5, 6, ("get", "", 0), [1, "a"])]
    assert not linearizable(lost, Value(), step)
