"""Short samples of campaigns that `standfast prove` runs for minutes: actors, migrations, audits, growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast_prove.campaigns import actors, audit, growth, migration
from standfast_prove.campaigns.pending import SCENES


def server(url: str) -> str | None:
    return url if "://" in url else None


def test_actors_of_every_kind_do_everything_once_while_they_are_killed(engine_url: str, tmp_path: Path) -> None:
    """002-16, 002-29, 002-34: scheduler, worker, approver and auditor on one family of sessions."""
    others = 2 if server(engine_url) is None else 1
    outcome = actors.run(tmp_path, seed=3, url=server(engine_url), jobs=6, workers=3, others=others, kills=5)
    assert outcome.bad == []
    assert outcome.seen["jobs"] == 6
    assert outcome.seen["kills"] >= 1
    assert outcome.seen["effects"] == 10


@pytest.mark.slow
def test_actors_that_do_not_check_who_is_alive_act_twice(tmp_path: Path) -> None:
    """The control."""

    def goes_wrong(seed: int) -> bool:
        place = tmp_path / str(seed)
        place.mkdir()
        return bool(actors.run(place, seed=seed, jobs=9, kills=1, careless=True, patience_s=15).bad)

    assert any(goes_wrong(seed) for seed in range(5))


def test_what_was_pending_in_an_old_store_is_ended_after_a_killed_migration(engine_url: str, tmp_path: Path) -> None:
    """002-17, 002-35, 003-15: interrupted, migrated, resumed. PostgreSQL starts with the previous schema."""
    outcome = migration.run(tmp_path, seed=0 if server(engine_url) is None else 2, url=server(engine_url), schedules=2)
    assert outcome.bad == []
    assert outcome.seen["kills"] >= 1
    assert outcome.seen["pending things ended"] == 2 * len(SCENES)


@pytest.mark.slow
def test_a_migration_without_its_one_transaction_is_found_half_done(tmp_path: Path) -> None:
    """The control."""
    assert migration.run(tmp_path, seed=4, schedules=8, torn=True).bad


def test_a_history_is_answered_without_a_single_payload(engine_url: str, tmp_path: Path) -> None:
    """002-18, 002-36: the answers have actor, action, time, order, outcome and approver."""
    outcome = audit.run(tmp_path, seed=1, url=server(engine_url), histories=1, things=60)
    assert outcome.bad == []
    assert outcome.seen["facts"] >= 60


@pytest.mark.slow
def test_a_journal_that_forgets_is_found_out(tmp_path: Path) -> None:
    """The control."""
    assert audit.run(tmp_path, seed=1, histories=1, things=60, forgetful=True).bad


def test_folds_that_are_killed_and_thrown_away_lose_nothing(tmp_path: Path) -> None:
    """002-37: receipts still verify after the history has grown."""
    outcome = growth.run(tmp_path, seed=1, sizes=(1_000,), samples=3, kills=3)
    assert outcome.bad == []
    assert outcome.seen["receipts verified"] > 0
    assert outcome.seen["bytes per event at 1,000 (sum over stores)"] > 100
