"""Loops with one bug each: the soak has to find every one of them.

no row            a slot passes without a row
wrong row         skipped, missed or run against the rules
wrong moment      slots that drift, or that occur twice or never when summer time begins or ends
wrong worker      dead workers keep their runs, live workers lose them, or a late result is accepted
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standfast.record.loops import edit, fire, runs, schedule
from standfast_prove.loops_soak import soak
from standfast_prove.mutants.patching import Mutant, Patch, Setter


def _plan_with(**changed: Any) -> Patch:
    """Plan slots with these arguments replaced, instead of those of the loop."""
    plan = fire.plan
    return lambda patch: patch.setattr(fire, "plan", lambda *args, **given: plan(*args, **{**given, **changed}))


def _no_rows(patch: Setter) -> None:
    patch.setattr(fire, "_write_passed", lambda *args: [])


def _forgets_at_a_pause(patch: Setter) -> None:
    def skip(tx: Any, row: Any, then: str) -> None:
        made = fire.passed_over(fire._schedule(row), row["next_slot_us"], tx.now_us())
        if row["next_slot_us"] is not None and row["next_slot_us"] <= tx.now_us():
            fire._advance(tx, row, made)

    patch.setattr(edit, "_settle", skip)


def _overlaps(patch: Setter) -> None:
    patch.setattr(fire, "_why_skipped", lambda row, *, waits: None)


def _drifts(patch: Setter) -> None:
    patch.setattr(schedule.Every, "after", lambda self, us: us + self._period_us)


def _skipped_hours_are_lost(patch: Setter) -> None:
    change = schedule.Cron._in_a_change

    def lost(self: Any, day: Any, minute: int) -> Any:
        return [
            us
            for us in change(self, day, minute)
            if self._offset(us // 1_000_000) == self._offset(us // 1_000_000 - 60)
        ]

    patch.setattr(schedule.Cron, "_in_a_change", lost)


def _the_dead_are_alive(patch: Setter) -> None:
    patch.setattr(runs, "_left", lambda *args: [])


def _the_living_are_dead(patch: Setter) -> None:
    def everybody(tx: Any, over: Any, of_holder: Any, limit: int) -> Any:
        holders = [row["holder"] for row in tx.all(runs.SQL.holders, limit=limit)]
        return [row for holder in holders for row in tx.all(of_holder, holder=holder, limit=limit)]

    patch.setattr(runs, "_left", everybody)
    patch.setattr(runs, "_lives_here", lambda tx, row: False)


def _no_fence(patch: Setter) -> None:
    patch.setattr(runs, "_held", lambda tx, run_id, attempt: runs._locked(tx, run_id))


def _no_retries(patch: Setter) -> None:
    patch.setattr(runs, "_again", lambda row, outcome: False)


def _never_pauses(patch: Setter) -> None:
    patch.setattr(runs, "_counted", lambda tx, row: None)


def _the_oldest_is_kept(patch: Setter) -> None:
    planned = fire._planned

    def swapped(*args: Any, **given: Any) -> Any:
        made = planned(*args, **given)
        if len(made.chosen) == 1 and made.passed and made.older is None:
            return made._replace(chosen=made.passed[:1], passed=[*made.passed[1:], *made.chosen])
        return made

    patch.setattr(fire, "_planned", swapped)


MUTANTS: dict[str, Mutant] = {
    "a missed slot leaves no row": Mutant(
        "the daemon was down, and the slots of that time have no row", "soak", _no_rows
    ),
    "a pause drops due slots": Mutant(
        "slots that were due at the pause are never recorded", "soak", _forgets_at_a_pause
    ),
    "catch-up none runs the newest slot": Mutant(
        "late slots run although catch-up is off", "soak", _plan_with(catch_up="latest")
    ),
    "catch-up has no limit": Mutant("every slot of a long outage runs", "soak", _plan_with(catch_up_max=1000)),
    "the oldest missed slot is run": Mutant("catch-up `latest` runs the oldest slot", "soak", _the_oldest_is_kept),
    "overlap is ignored": Mutant("two runs of one loop at the same time", "soak", _overlaps),
    "an interval drifts": Mutant("the next slot is counted from the run, not from the last slot", "soak", _drifts),
    "a skipped hour loses its slot": Mutant(
        "the slot in the hour that summer time skips does not run", "soak", _skipped_hours_are_lost
    ),
    "runs of a dead worker stay running": Mutant(
        "a run of a killed worker is never ended", "soak", _the_dead_are_alive
    ),
    "a live worker loses its run": Mutant("its run is ended because it is old", "soak", _the_living_are_dead),
    "a late worker ends a run": Mutant("the fencing token is not compared", "soak", _no_fence),
    "a failed run is not retried": Mutant("`--retries` is ignored", "soak", _no_retries),
    "failures are not counted": Mutant("a loop that always fails is never paused", "soak", _never_pauses),
}


SEEDS = (1, 2, 5, 3, 4, 6, 7, 8)


def soaked(place: Path) -> Iterator[int]:
    """Yields the number of each soak that passed. Raises at the first that failed."""
    for seed in SEEDS:
        schedule.of.cache_clear()
        (place / str(seed)).mkdir()
        try:
            # Begin in the week before summer time begins or ends.
            soak(place / str(seed), seed=seed, days=20, faults_per_day=6, compare_days=2, start_days=81)
        finally:
            schedule.of.cache_clear()
        yield seed
