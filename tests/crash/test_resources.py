"""Kills a program of every resource at each crash point, and again in its recovery. An oracle outside the store judges.

The worlds are in `standfast_prove.crashes`; `standfast prove --only crashes` plays many more of their schedules.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import crash
from standfast.cli import state_check
from standfast.record.state import Entry
from standfast_prove.campaigns.crashes import run
from standfast_prove.crashes.core import TooEarly, Writes
from standfast_prove.crashes.resources import RESOURCES, world
from standfast_prove.crashes.state import Values
from standfast_prove.crashes.sweeping import sweep
from standfast_prove.faults.daemons import Running, noted, noting, opened, until

SAMPLE, NEARLY_ALL = {"firsts": 3, "seconds": 3}, {"firsts": 40, "seconds": 5}
"""First and second crashes of each world: in `make test`, and in `make slow`."""
SLOW = {"daemon": {"firsts": 12, "at": "daemon."}, "copies": {"firsts": 8, "at": "copy."}}
"""Programs that start processes of their own: they are killed only at their own crash points here."""
ONLY_AFTER_A_CRASH: dict[str, str | tuple[str, ...]] = {
    "effects:OnlyProbed": "effect.before_done",
    "daemon:Scheduled": ("daemon.after_claim", "daemon.after_go"),
}
"""What looks at the outside system, or takes over: the crashes that make it."""
ELSEWHERE = {
    "daemon.before_drain": "a whole service gets SIGTERM: below",
    "export.after_hand_over": "a file beside the store: test_bundles.py",
    "export.before_file": "files beside the store, killed between two of them: test_text.py",
    "push.after_batch": "another store or a bucket is the target: test_push.py",
    **dict.fromkeys(
        ("move.before_mark", "move.after_mark", "move.before_commit", "move.after_commit", "move.after_seal"),
        "a person's command on two stores: test_move.py",
    ),
    "restore.before_finish": "a person's command on a restored store: test_restore_here.py",
    "restore.before_gap": "only a store that went back in time: test_gone_back.py",
    "restore.before_promote": "a person's command on a restored store: test_restore_here.py",
    "restore.before_swap": "a person's command beside the store: test_restore_here.py",
    "state.before_verify": "the command line alone runs stored commands: below",
}


@pytest.mark.parametrize(
    "asked", [pytest.param(SAMPLE, id="sample"), pytest.param(NEARLY_ALL, id="nearly all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("resource", RESOURCES)
def test_killed_anywhere_a_feature_ends_correctly(resource: str, asked: dict[str, int], tmp_path: Path) -> None:
    """000-1, 002-33, 001-78, 002-11: a sample of the first crashes (nearly all of a feature) and of the second ones.

    000-9 imports, 000-11, 000-36 and 000-37 loops, 000-20 and 000-22 webhooks and credits, 000-40 mail.
    """
    options: dict[str, Any] = asked | SLOW.get(resource, {})
    options["firsts"] = min(asked["firsts"], options["firsts"])
    played = run(tmp_path, resource=resource, **options)
    assert played.bad == []
    assert played.seen["killed twice"] >= (asked["seconds"] - 1) * len(RESOURCES[resource])


@pytest.mark.parametrize("resource", RESOURCES)
def test_the_same_on_postgresql(resource: str, pg_database: str, tmp_path: Path) -> None:
    """000-1, 002-33: a sample of first and second crashes, without the crash points of SQLite files."""
    few = 1 if len(RESOURCES[resource]) > 2 else 2
    played = run(tmp_path, resource=resource, firsts=few, seconds=few, url=pg_database)
    assert played.bad == []
    assert played.seen["killed twice"] >= 1


@pytest.mark.slow
def test_some_program_passes_every_crash_point(pg_database: str, tmp_path: Path) -> None:
    """A crash point that no sweep passes would have no test."""
    found = set[str]()
    for name in [name for resource in RESOURCES.values() for name in resource]:
        at = ONLY_AFTER_A_CRASH.get(name)
        found |= sweep(world(name, tmp_path), firsts=0 if at is None else 4, at=at or "").passed
    found |= sweep(world("artifacts:Artifacts", tmp_path / "server", pg_database), firsts=0).passed
    assert set(crash.POINTS) - found == ELSEWHERE.keys()


class Verified(Values):
    """Verifies a state value as a person does, by its stored command."""

    def verify(self, sf: standfast.Standfast, branch: Entry) -> None:
        state_check.run(sf, [branch], 60.0)


def test_killed_while_values_are_verified(tmp_path: Path) -> None:
    swept = sweep(Verified(tmp_path / "place"), firsts=10, seconds=4)
    assert "state.before_verify" in swept.passed


def test_a_program_that_acknowledges_too_early_is_found_out(tmp_path: Path) -> None:
    """The control: the sweep notices a loss, and prints the schedule."""
    with pytest.raises(AssertionError, match=r"killed at commit\.(before_begin|after_begin|before_commit):1"):
        sweep(TooEarly(tmp_path / "place"))


def test_the_next_seed_plays_other_schedules(tmp_path: Path) -> None:
    """A seed repeats its schedules, and another seed gives other schedules."""
    played: list[set[crash.Schedule]] = []

    class Noting(Writes):
        def check(self, schedule: crash.Schedule) -> None:
            with (self.place / "played").open("a") as notes:
                notes.write(",".join(schedule) + "\n")

    for n, seed in enumerate((1, 1, 2)):
        made = Noting(tmp_path / str(n))
        sweep(made, firsts=4, seconds=8, seed=seed)
        played.append({crash.Schedule(line.split(",")) for line in (made.place / "played").read_text().splitlines()})
    assert played[0] == played[1]
    assert len(played[0]) == 13
    assert {one for one in played[0] & played[2] if one != ("",)} == set()


def test_a_daemon_killed_while_it_stops_leaves_its_command_to_the_next_daemon(tmp_path: Path) -> None:
    """000-37: the command continues under its keeper, and is neither lost nor run again."""
    url, data, go = str(tmp_path / "standfast.db"), tmp_path / "data", tmp_path / "go"
    os.mkfifo(go)
    with opened(url, data) as sf:
        sf.loops.add("slow", noting(tmp_path / "witness", f"read line < {go}; echo done"), every="1d", cwd="/")
        run_id = sf.runs.ask("slow").id
        with Running(data, STANDFAST_DB_URL=url, STANDFAST_CRASH_AT="daemon.before_drain") as killed:
            until(lambda: noted(tmp_path / "witness"))
            assert killed.stop() == -signal.SIGKILL
        with Running(data, STANDFAST_DB_URL=url) as running:
            running.wait()
            go.write_text("on\n")
            until(lambda: sf.runs.get(run_id).ended_us)
            assert running.stop() == 0
        ended = sf.runs.get(run_id)
        assert (ended.state, ended.attempt) == ("done", 1)
        assert set(noted(tmp_path / "witness").values()) == {1}
