"""Short samples of the campaign `vandal`: the pin and the memory of stores protect without other checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import vandal
from standfast_prove.campaigns.vandal import ACTS, MOUNTS
from tests.sampling import sampled
from tests.skipping import or_skip

KINDS = ["rm", "mv directory", "mv and back", "unlink wal", "unlink bell", "replace", "chmod db", "drop table", "fork"]


@pytest.mark.parametrize("kind", sampled(KINDS, "rm", "replace"))
def test_nothing_is_lost_without_an_error_and_nothing_is_sent_twice(tmp_path: Path, kind: str) -> None:
    """000-1, 002-11: with four writers, a late writer, a new process afterwards, and a writer on another store."""
    outcome = vandal.run(tmp_path, seed=1, acts=2, kinds=(kind,))
    assert outcome.bad == []
    assert outcome.seen["acts"] == 2
    assert outcome.seen["rows acknowledged"] > 0
    assert outcome.seen["effects sent"] > 0
    named = ("receipts verified", "receipts named as lost", "receipts of a store that refused to open")
    assert sum(outcome.seen[name] for name in named) > 0


def test_on_a_full_disk_nothing_is_acknowledged_that_is_not_there(tmp_path: Path) -> None:
    """000-1: writers get errors while the disk is full, and every receipt verifies afterwards."""
    with or_skip():
        outcome = vandal.run(tmp_path, seed=1, acts=1, kinds=(vandal.FULL,))
    assert outcome.bad == []
    assert outcome.seen["errors"] > 0
    assert outcome.seen["receipts verified"] > 0
    assert outcome.seen["receipts named as lost"] == 0
    assert outcome.seen["receipts of a store that refused to open"] == 0


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
    assert outcome.seen["rows acknowledged"] > 0
    assert outcome.seen["false alarms"] == 0


def test_an_act_has_one_name_and_every_class_names_acts() -> None:
    assert set(ACTS) & set(MOUNTS) == set()
    assert {*ACTS, *MOUNTS} >= vandal.HARMLESS
