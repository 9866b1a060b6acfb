"""Daemons in real processes and real time: killed, disconnected and locked out while loops fire and mail is sent.

These are short samples of campaigns that `make prove` runs for minutes (`standfast_prove.campaigns.daemons`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import daemons
from tests.skipping import or_skip

pytestmark = pytest.mark.without_store


def held(outcome: object) -> None:
    assert not outcome.bad, str(outcome)  # type: ignore[attr-defined]


@pytest.mark.slow
def test_killed_every_second_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """000-11, 000-37, 000-50: kill -9 every second while loops fire and mail is sent."""
    held(daemons.kills(tmp_path, seconds=3, seed=1))


@pytest.mark.slow
def test_a_write_lock_held_for_seconds_loses_no_slot(tmp_path: Path) -> None:
    """000-13: a daemon continues after another process has locked the database for seconds."""
    held(daemons.locked_out(tmp_path, seconds=2.5))


@pytest.mark.slow
def test_two_machines_on_one_server_with_partitions_and_kills_run_each_slot_once(
    tmp_path: Path, pg_database: str
) -> None:
    """000-36, 000-37: each slot has one run, whichever machine fires it."""
    held(daemons.machines(tmp_path, url=pg_database, rounds=1, seed=1, haste=True))


def test_a_server_that_is_away_is_waited_for(tmp_path: Path, pg_database: str) -> None:
    """000-13: the daemon retries a transient fault, also when it starts."""
    held(daemons.server_away(tmp_path, url=pg_database, seconds=1.5))


@pytest.mark.slow
def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    with or_skip():
        held(daemons.full_disk(tmp_path, seconds=1.0))
