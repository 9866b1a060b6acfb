"""Short samples of the campaigns `disasters` and `disasters-servers`."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import disaster_servers, disasters


def test_no_effect_is_sent_again_after_the_store_went_back(engine_url: str, tmp_path: Path) -> None:
    """003-42, 000-37: `restore --here` (with and without the replaced store) or `cp` restores an old state."""
    url = engine_url if "://" in engine_url else None
    outcome = disasters.run(tmp_path, url=url, seed=1, disasters=3)
    assert outcome.bad == []
    assert outcome.seen["disasters"] == 3
    assert outcome.seen["effects sent before"] > 0
    assert outcome.seen["effects in doubt"] > 0
    assert outcome.seen["effects replayed"] > 0


@pytest.mark.slow
def test_without_the_memory_of_stores_effects_are_sent_again(tmp_path: Path) -> None:
    """The control."""
    outcome = disasters.run(tmp_path, seed=1, disasters=3, tools=("cp",), forgetful=True)
    assert any("effects were sent again" in sentence for sentence in outcome.bad)


@pytest.mark.slow
@pytest.mark.parametrize("tool", disaster_servers.TOOLS)
def test_a_recovered_server_and_a_late_standby_are_noticed(tmp_path: Path, tool: str) -> None:
    """003-42: real servers do a point-in-time recovery and an asynchronous failover."""
    outcome = disaster_servers.run(tmp_path, seed=1, disasters=2, tools=(tool,))
    assert outcome.bad == []
    assert outcome.seen["effects of a gap that a person closed"] > 0
