"""Retention of artifacts, and removal of bytes without a reference."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import crash
from standfast.clock import SYSTEM, ManualClock
from standfast.core import artifact_files, artifacts
from standfast.core.artifacts import Collected
from standfast.db.contract import Tx
from standfast.db.sql import statement
from standfast.errors import Busy, Conflict, NotFound
from tests.features.test_artifacts import BIG, chunk_count


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    """A store whose time passes only on request."""
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as store:
        yield store


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[standfast.Standfast]:
    """A store on SQLite, for tests about files."""
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data") as store:
        yield store


def test_scratch_is_removed_after_a_day_and_the_rest_stays(timed: standfast.Standfast, clock: ManualClock) -> None:
    """002-14: large bytes have their own retention."""
    timed.artifacts.put(BIG, name="scratch", retention="scratch")
    timed.artifacts.put(b"kept", name="kept")
    timed.artifacts.put(b"both", name="a", retention="scratch")
    timed.artifacts.put(b"both", name="b", retention="keep")
    assert timed.artifacts.collect() == Collected(0, 0, 0, [])
    clock.advance("25h")
    assert timed.artifacts.collect() == Collected(2, 1, len(BIG), [])
    assert {found.name for found in timed.artifacts.list()} == {"kept", "b"}
    assert timed.artifacts.verify() == []
    assert timed.artifacts.collect() == Collected(0, 0, 0, [])
    removed = [event.summary for event in timed.journal.tail(limit=100).events if event.type == "artifact.removed"]
    assert removed == [f"scratch (file, {len(BIG)} bytes)", "a (file, 4 bytes)"]


def add_session(sf: standfast.Standfast, id: str, key: str) -> None:
    added = statement(
        "INSERT INTO session (id, scope, key, state, openings, fence, created_us, updated_us)"
        " VALUES (:id, :scope, :key, 'active', 1, 1, 0, 0)"
    )
    sf._store.write(lambda tx: tx.run(added, id=id, scope=sf.scope, key=key))


def drop_session(sf: standfast.Standfast, id: str) -> None:
    sf._store.write(lambda tx: tx.run(statement("DELETE FROM session WHERE id = :id"), id=id))


def test_artifacts_of_a_session_are_removed_with_it(timed: standfast.Standfast, clock: ManualClock) -> None:
    add_session(timed, "ses_1", "one")
    made = timed.artifacts.put(b"x", name="x", session="one", retention="session")
    assert made.session_id == "ses_1"
    assert [found.id for found in timed.artifacts.list(session="one")] == [made.id]
    clock.advance("25h")
    assert timed.artifacts.collect().removed == 0
    drop_session(timed, "ses_1")
    done = timed.artifacts.collect()
    assert (done.removed, done.garbage) == (1, 1)


def test_the_longest_wish_counts(timed: standfast.Standfast, clock: ManualClock) -> None:
    for n in (1, 2):
        add_session(timed, f"ses_{n}", f"key {n}")
    put = timed.artifacts.put
    put(b"1", name="two sessions", session="ses_1", retention="session")
    assert put(b"1", name="two sessions", session="ses_2", retention="session").retention == "keep"
    put(b"2", name="kept later", retention="scratch")
    again = put(b"2", name="kept later", retention="keep")
    assert again.retention == "keep"
    assert again.receipt is not None
    assert put(b"2", name="kept later", retention="scratch").retention == "keep"
    put(b"3", name="of no session", retention="scratch")
    assert put(b"3", name="of no session", session="ses_1", retention="session").retention == "keep"
    for n in (1, 2):
        drop_session(timed, f"ses_{n}")
    clock.advance("25h")
    assert timed.artifacts.collect().removed == 0


def test_a_result_that_a_step_or_an_effect_keeps_is_never_removed(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    step, effect = (timed.artifacts.put(name.encode(), name=name, retention="scratch") for name in ("step", "effect"))

    def use(tx: Tx) -> None:
        tx.run(
            statement(
                "INSERT INTO step (id, session_id, name, arguments_hash, n, artifact_id, duration_us, created_us)"
                " VALUES ('stp_1', 's', 'n', 'h', 1, :id, 0, 0)"
            ),
            id=step.id,
        )
        tx.run(
            statement(
                "INSERT INTO effect (id, scope, tool, key, n, by_hash, intent_hash, state, attempt, artifact_id,"
                " planned_us, updated_us) VALUES ('eff_1', '', 't', 'k', 1, 'h', 'h', 'acknowledged', 1, :id, 0, 0)"
            ),
            id=effect.id,
        )

    timed._store.write(use)
    clock.advance("25h")
    assert timed.artifacts.collect() == Collected(0, 0, 0, [])
    for held, by in ((step, "stp_1"), (effect, "eff_1")):
        with pytest.raises(Conflict, match=f"holds the result of {by}"):
            timed.artifacts.remove(held.id)


def test_removed_bytes_go_once_nothing_speaks_of_them(timed: standfast.Standfast, clock: ManualClock) -> None:
    one, two = (timed.artifacts.put(BIG, name=name) for name in ("one", "two"))
    clock.advance("25h")
    timed.artifacts.remove("one")
    assert timed.artifacts.collect().garbage == 0
    assert timed.artifacts.get(two.id) == BIG
    assert timed.artifacts.remove(two.id).receipt is not None
    assert timed.artifacts.collect() == Collected(0, 1, len(BIG), [])
    with pytest.raises(NotFound):
        timed.artifacts.get(one.id)


def leave_garbage(sf: standfast.Standfast, at: str) -> None:
    """Raise at a crash point without cleaning up, as a kill would."""
    code = """
import sys
import standfast
from standfast.clock import ManualClock
with standfast.open(sys.argv[1], clock=ManualClock()) as sf:
    sf.artifacts.put(b"garbage" * 500_000, name="never")
"""
    target = sf.settings.target.location
    environment = {**os.environ, "STANDFAST_CRASH_AT": at}
    assert subprocess.run([sys.executable, "-c", code, target], env=environment).returncode == -9


@pytest.mark.parametrize("at", ["artifact.before_rename", "artifact.after_rename", "artifact.before_row"])
def test_what_a_killed_put_leaves_is_collected_a_day_later(tmp_path: Path, at: str) -> None:
    clock = ManualClock()
    with standfast.open(tmp_path / "standfast.db", clock=clock) as sf:
        leave_garbage(sf, at)
        assert chunk_count(sf) == 1
        clock.advance("23h")
        assert sf.artifacts.collect() == Collected(0, 0, 0, [])
        clock.advance("2h")
        assert sf.artifacts.collect() == Collected(0, 1, 3_500_000, [])
        assert chunk_count(sf) == 0


def test_what_a_killed_put_leaves_in_rows_is_collected_a_day_later(pg_database: str, tmp_path: Path) -> None:
    clock = ManualClock(SYSTEM.now_us())  # an id contains the real time
    with standfast.open(pg_database, data_dir=tmp_path, clock=clock) as sf:
        leave_garbage(sf, "artifact.before_row")
        leave_garbage(sf, "artifact.after_chunks")
        assert chunk_count(sf) == 2
        assert sf.artifacts.collect() == Collected(0, 0, 0, [])
        clock.advance("25h")
        done = sf.artifacts.collect()
        assert (done.removed, done.garbage) == (0, 2)
        assert next(sf.rows("SELECT count(*) AS n FROM artifact_chunk"))["n"] == 0


def test_files_of_other_programs_are_not_touched(on_files: standfast.Standfast, tmp_path: Path) -> None:
    on_files.artifacts.put(b"x", name="x")
    root = tmp_path / "artifacts"
    strangers = [root / "README", root / "ab" / "short", root / "zz" / ("c" * 62), root / "deep" / "er" / "file"]
    for path in strangers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not ours")
        os.utime(path, (0, 0))
    assert on_files.artifacts.collect().garbage == 0
    assert all(path.exists() for path in strangers)


def test_the_collector_waits_for_a_put_that_has_not_reached_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old bytes are stored again: the collector must not remove them between the rename and the insert of the row."""
    clock = ManualClock()
    with standfast.open(tmp_path / "standfast.db", clock=clock) as sf:
        at_the_row, go_on = threading.Event(), threading.Event()

        def hook(name: str) -> None:
            if name == "artifact.before_row":
                at_the_row.set()
                assert go_on.wait(30)

        crash.arm(hook)
        putting = threading.Thread(target=lambda: sf.artifacts.put(b"again", name="x"))
        try:
            putting.start()
            assert at_the_row.wait(30)
            clock.advance("1000h")  # the clock jumps: the age alone would remove the file
            monkeypatch.setattr(artifact_files, "COLLECTOR_WAIT_S", 0.05)
            with pytest.raises(Busy, match="being put without a pause"):
                sf.artifacts.collect()
        finally:
            go_on.set()
            putting.join()
            crash.disarm()
        assert sf.artifacts.collect() == Collected(0, 0, 0, [])
        assert sf.artifacts.get("x") == b"again"


def test_a_put_does_not_wait_for_a_collector_that_never_ends(
    on_files: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-1: every wait has a deadline."""
    monkeypatch.setattr(artifact_files, "PUT_WAIT_S", 0.05)
    with (
        artifact_files.collecting(str(artifacts.directory(on_files._store))),
        pytest.raises(Busy, match="being collected"),
    ):
        on_files.artifacts.put(b"bytes", name="x")
    assert on_files.artifacts.put(b"bytes", name="x").name == "x"


def test_a_forked_child_does_not_keep_the_collector_out(on_files: standfast.Standfast) -> None:
    with artifact_files.putting(str(artifacts.directory(on_files._store))):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(reader, 1)  # this child keeps a copy of every descriptor
            os._exit(0)
    try:
        assert on_files.artifacts.collect() == Collected(0, 0, 0, [])
    finally:
        os.write(writer, b"x")
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(writer)
