"""Killed at every crash point of a put, and again in the run after it: no row without its bytes, none lost."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import standfast
from standfast import crash
from standfast.clock import SYSTEM, ManualClock

BYTES = {"small": b"small", "again": b"small", "large": os.urandom(700_000), "empty": b""}


class World:
    """A store to be killed, and a log outside of it that says what the caller was told."""

    def __init__(self, url: str, root: Path) -> None:
        self.url = url
        self.root = root
        self.log = root / "told.log"

    def put_all(self) -> None:
        with standfast.open(self.url, data_dir=self.root / "data") as sf:
            for name, data in BYTES.items():
                made = sf.artifacts.put(data, name=name)
                self._tell(f"{made.id} {name}\n")

    def _tell(self, line: str) -> None:
        fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, line.encode())
        os.close(fd)

    def check(self, _: crash.Schedule) -> None:
        told = [line.split() for line in self.log.read_text().splitlines()]
        clock = ManualClock(SYSTEM.now_us())
        with standfast.open(self.url, data_dir=self.root / "data", clock=clock) as sf:
            for id, name in told:
                assert sf.artifacts.get(id) == BYTES[name], f"{name} was acknowledged"
            found = sf.artifacts.list()
            assert sorted(one.name for one in found) == sorted(BYTES), "one artifact for each, after the last run"
            assert {id for id, _ in told} <= {one.id for one in found}
            assert sf.artifacts.verify() == []
            clock.advance("25h")
            collected = sf.artifacts.collect()
            assert (collected.removed, collected.faults) == (0, [])
            assert sf.artifacts.verify() == []
            assert sf.artifacts.collect().garbage == 0


def test_a_put_survives_every_crash_on_files(tmp_path: Path) -> None:
    """Issue 3, shown 1: 0 lost, 0 false "done"."""
    template, place = tmp_path / "template", tmp_path / "place"
    _in_a_child(lambda: standfast.open(template / "standfast.db", data_dir=template / "data").close())
    world = World(str(place / "standfast.db"), place)

    def reset() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)

    count = crash.sweep(world.put_all, world.put_all, world.check, reset=reset, max_schedules=90)
    assert count == 90


def test_a_put_survives_every_crash_on_postgres(pg_database: str, tmp_path: Path) -> None:
    world = World(pg_database, tmp_path)
    _in_a_child(lambda: standfast.open(pg_database, data_dir=tmp_path / "data").close())

    def reset() -> None:
        import psycopg

        world.log.unlink(missing_ok=True)
        with psycopg.connect(pg_database, autocommit=True) as connection:
            connection.execute("TRUNCATE standfast.artifact, standfast.artifact_chunk, standfast.event")

    count = crash.sweep(world.put_all, world.put_all, world.check, reset=reset, max_schedules=36)
    assert count == 36


def test_the_collector_survives_every_crash(tmp_path: Path) -> None:
    template, place = tmp_path / "template", tmp_path / "place"

    def fill() -> None:
        with standfast.open(template / "standfast.db", data_dir=template / "data") as sf:
            for name, data in BYTES.items():
                sf.artifacts.put(data, name=name, retention="scratch" if name in ("again", "large") else "keep")

    _in_a_child(fill)

    def reset() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place)

    def later() -> standfast.Standfast:
        clock = ManualClock(SYSTEM.now_us())
        clock.advance("25h")
        return standfast.open(place / "standfast.db", data_dir=place / "data", clock=clock)

    def collect() -> None:
        with later() as sf:
            sf.artifacts.collect()

    def check(_: crash.Schedule) -> None:
        with later() as sf:
            assert sorted(found.name for found in sf.artifacts.list()) == ["empty", "small"]
            assert sf.artifacts.collect() == (0, 0, 0, [])
            assert sf.artifacts.verify() == []

    assert crash.sweep(collect, collect, check, reset=reset, max_schedules=40) == 40


def _in_a_child(work: Callable[[], object]) -> None:
    """The parent of a sweep never opens the store."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_sweep_passes_every_artifact_point(sf: standfast.Standfast) -> None:
    with crash.record() as names:
        sf.artifacts.put(b"x", name="x")
    own = [name for name in names if name.startswith("artifact.")]
    stored = ["before_rename", "after_rename"] if sf.engine.name == "sqlite" else ["after_chunks"]
    assert own == [f"artifact.{name}" for name in (*stored, "before_row", "after_row")]
