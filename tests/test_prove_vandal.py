"""Short samples of the vandal: what the pin and the memory of stores hold by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import vandal
from standfast_prove.campaigns.vandal import ACTS, MOUNTS
from tests.slow import sampled

KINDS = ["rm", "mv directory", "mv and back", "unlink wal", "unlink bell", "replace", "fork"]


@pytest.mark.parametrize("kind", sampled(KINDS, "rm", "replace"))
def test_nothing_is_lost_without_an_error_and_nothing_is_sent_twice(tmp_path: Path, kind: str) -> None:
    """000-1, 002-11: four writers, a late one, a new one, and one on another store."""
    outcome = vandal.run(tmp_path, seed=1, acts=2, kinds=(kind,))
    assert outcome.bad == []
    assert outcome.seen["acts"] == 2
    assert outcome.seen["rows acknowledged"] > 20
    assert outcome.seen["effects sent"] > 0


@pytest.mark.slow
def test_without_the_pin_and_the_memory_effects_are_sent_twice(tmp_path: Path) -> None:
    """The control."""
    outcome = vandal.run(tmp_path, seed=1, acts=3, kinds=("rm",), careless=True)
    assert outcome.seen["effects sent twice"] > 0
    assert outcome.bad != []


@pytest.mark.slow
def test_ordinary_work_causes_no_false_alarm(tmp_path: Path) -> None:
    outcome = vandal.ordinary(tmp_path, seed=1, seconds=5)
    assert outcome.bad == []
    assert outcome.seen["rows acknowledged"] > 20
    assert outcome.seen["false alarms"] == 0


def test_an_act_has_one_name_and_every_class_names_acts() -> None:
    assert set(ACTS) & set(MOUNTS) == set()
    assert {*ACTS, *MOUNTS} >= vandal.HARMLESS | vandal.ANOTHER_STATE
