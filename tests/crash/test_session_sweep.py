"""A session killed at every crash point it passes, and its recovery too: same end, nothing lost, nothing twice.

The world outside is a file: a step writes a line when it runs. What was acknowledged is another:
the program notes what it was told, right after it was told. The oracle compares both with the store.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import standfast
from standfast import crash
from standfast.crash import Schedule

STEPS = ("plan", "patch")
REACHED = {
    "session.before_open",
    "session.after_open",
    "session.before_end",
    "session.after_end",
    "message.before_say",
    "message.after_say",
    "step.before_run",
    "step.before_record",
    "step.after_record",
    "state.before_set",
    "state.after_set",
    "commit.after_commit",
    "commit.after_sync",
}


class Program:
    """An agent that runs from the top each time. Each schedule has a session and notes of its own."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.number = 0

    def reset(self) -> None:
        self.number += 1

    @property
    def key(self) -> str:
        return f"fix-{self.number}"

    def note(self, file: str, line: str) -> None:
        # A killed process loses nothing that it has written, synced or not.
        with open(self.directory / f"{file}-{self.number}", "a") as notes:
            notes.write(line + "\n")

    def noted(self, file: str) -> list[str]:
        path = self.directory / f"{file}-{self.number}"
        return path.read_text().splitlines() if path.exists() else []

    def warm(self) -> None:
        """One whole life makes the store and tells which modules lives need: then a child is a mere fork."""
        names = self.directory / "modules"

        def life() -> None:
            self.run()
            self.check(Schedule())
            names.write_text("\n".join(sys.modules))

        crash._live(life, 0, Schedule(), 60.0)
        for name in names.read_text().splitlines():
            if name not in sys.modules:
                with suppress(ImportError):
                    importlib.import_module(name)

    def work(self, name: str, life: int) -> dict[str, str]:
        self.note("world", name)
        return {"made": f"{name} in life {life}"}

    def run(self) -> None:
        life = len(self.noted("lives"))
        self.note("lives", str(life))
        with standfast.open(self.url, data_dir=self.directory / "data") as sf:
            with sf.session(self.key) as s:
                s.say("user", "please", key="asked")
                self.note("told", "message asked")
                for name in STEPS:
                    made = s.step(name, lambda name=name: self.work(name, life), returns=dict)
                    self.note("told", f"step {name} {made['made']}")
                reviewer = s.subagent("reviewer")
                reviewer.say("assistant", made, key="reviewed")
                s.state["branch"] = "fix-42"
                self.note("told", "state branch")
                s.cursor = "done"
            self.note("told", "session completed")

    def check(self, schedule: Schedule) -> None:
        told = self.noted("told")
        with standfast.open(self.url, data_dir=self.directory / "data") as sf:
            record = sf.sessions.get(self.key)
            assert (record.state, record.holder, record.cursor) == ("completed", None, "done"), record
            assert [m.content for m in sf.sessions.messages(self.key)] == ["please"]
            reviewed = sf.sessions.messages(self.key, node="reviewer")
            recorded = sf.rows("SELECT name, result FROM step WHERE session_id = :id", {"id": record.id})
            results = {row["name"]: row["result"] for row in recorded}
            assert len(reviewed) == 1
            assert sf.state.get("branch", namespace=record.id).value == "fix-42"
            taken = [event.type for event in sf.journal.about(record.id)].count("session.taken_over")
        assert sorted(results) == sorted(STEPS)
        # Told once is told for ever: every life that heard a result heard the recorded one.
        for line in told:
            kind, _, rest = line.partition(" ")
            if kind == "step":
                name, _, made = rest.partition(" ")
                assert made in results[name], (line, results)
        # A step may run again only if a life ended between its running and its recording.
        ran = Counter(self.noted("world"))
        assert set(ran) == set(STEPS)
        assert sum(ran.values()) <= len(STEPS) + len(schedule)
        assert taken <= len(schedule)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: the kill is of a process, not of a disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="standfast-sweep-") as place:
        yield Path(place)


def sweep(url: str, directory: Path, schedules: int, seed: int = 0) -> int:
    program = Program(url, directory)
    program.warm()
    return crash.sweep(program.run, program.run, program.check, reset=program.reset, max_schedules=schedules, seed=seed)


def test_every_window_of_a_session_is_passed(directory: Path) -> None:
    program = Program(str(directory / "standfast.db"), directory)
    with crash.record() as passed:
        program.run()
    assert set(passed) >= REACHED


def test_a_session_killed_anywhere_comes_to_the_same_end(directory: Path) -> None:
    """002-33, 001-78: interrupted at any boundary it resumes at the right place, to the same end."""
    assert sweep(str(directory / "standfast.db"), directory, 250) == 250


def test_the_same_on_postgresql(pg_database: str, tmp_path: Path) -> None:
    assert sweep(pg_database, tmp_path, 40) == 40
