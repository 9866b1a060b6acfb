"""Another tool restores an old state of a store: standfast notices it by its memory of stores and opens a gap."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast.admin import doctor, restore_gap
from standfast.cli.status import status
from standfast.ids import new_id
from standfast_prove.faults import mounts
from tests import remembering
from tests.skipping import or_skip

Open = Callable[[], standfast.Standfast]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with remembering.home() as made:
        monkeypatch.setenv("HOME", str(made))
        monkeypatch.delenv("STANDFAST_REMEMBER", raising=False)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        yield made


@pytest.fixture
def url(engine_url: str, home: Path) -> str:
    return engine_url if "://" in engine_url else str(home / "data" / "standfast.db")


@pytest.fixture
def opened(url: str, home: Path) -> Open:
    return lambda: standfast.open(url, data_dir=home / "data")


class Snapshot:
    """The state of a store at one moment, saved and restored with the engine's own tools."""

    def __init__(self, url: str, home: Path) -> None:
        self.url, self.kept = url, home / "kept"
        if "://" in url:
            with psycopg.connect(url, autocommit=True) as connection:
                tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'standfast'").fetchall()
                connection.execute("CREATE SCHEMA kept")
                for (table,) in tables:
                    connection.execute(f"CREATE TABLE kept.{table} AS TABLE standfast.{table}".encode())
        else:
            shutil.copytree(Path(url).parent, self.kept)

    def put_back(self) -> None:
        if "://" not in self.url:
            for file in Path(self.url).parent.glob("standfast.db*"):
                file.unlink()
            shutil.copytree(self.kept, Path(self.url).parent, dirs_exist_ok=True)
            return
        with psycopg.connect(self.url) as connection:
            connection.execute("SET session_replication_role = replica")
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'kept'").fetchall()
            for (table,) in tables:
                connection.execute(f"DELETE FROM standfast.{table}".encode())
                connection.execute(f"INSERT INTO standfast.{table} SELECT * FROM kept.{table}".encode())


def test_a_store_put_back_by_another_tool_opens_its_gap(
    opened: Open, url: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """003-42, 002-10: effects are checked before they are sent again, no sequence number is used twice, and loops
    are paused.
    The gap is opened once, not at each open of the store.
    """
    got: list[Any] = []
    with opened() as sf:
        sf.loops.add("nightly", ["true"], every="1h")
        with sf.session("pay") as s:
            s.effect("charge", {"n": 1}, do=lambda call: got.append(1))
    kept = Snapshot(url, home)
    with opened() as sf:
        with sf.session("pay") as s:
            s.effect("charge", {"n": 2}, do=lambda call: got.append(2))
        last = sf.tasks.add("lost").receipt.seq
    kept.put_back()
    with opened() as sf:
        assert "went back in time" in caplog.text
        assert sf.engine.epoch == 2
        assert sf.tasks.add("new").receipt.seq > last
        assert sf.loops.get("nightly").state == "paused"
        assert "has no record of the time" in status(sf)["gap"]
        assert doctor._gap(sf._store).remedy == "standfast restore finish"
        with sf.session("pay") as s:
            s.effect("charge", {"n": 1}, do=lambda call: got.append(1))
            with pytest.raises(standfast.EffectInDoubt):
                s.effect("charge", {"n": 2}, do=lambda call: got.append(2))
    with opened() as sf:
        assert sf.engine.epoch == 2
    assert got == [1, 2]
    assert caplog.text.count("went back in time") == 1


def test_an_ordinary_store_opens_no_gap(opened: Open) -> None:
    for n in range(3):
        with opened() as sf, sf.session("pay") as s:
            assert s.effect("charge", {"n": n}, do=lambda call: "ok") == "ok"
            assert sf.engine.epoch == 1


def test_killed_before_the_gap_is_open_the_next_process_opens_it(opened: Open, url: str, home: Path) -> None:
    """002-11: the killed process wrote nothing, and the memory of stores still names the missing row."""
    with opened() as sf:
        sf.tasks.add("one")
    kept = Snapshot(url, home)
    with opened() as sf:
        sf.tasks.add("two")
    kept.put_back()
    crashed = remembering.run(home, "task", "list", STANDFAST_DB_URL=url, STANDFAST_CRASH_AT="restore.before_gap")
    assert crashed.returncode == -9
    with opened() as sf:
        assert sf.engine.epoch == 2


def _put_another(url: str, home: Path, empty: Snapshot) -> None:
    """Replace the store by another one, as `cp` over its file or loading a dump into the database does."""
    if "://" in url:
        empty.put_back()
        with psycopg.connect(url) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(f"UPDATE standfast.meta SET value = '{new_id('sto')}' WHERE key = 'store_id'".encode())
        return
    standfast.open(home / "other" / "standfast.db", data_dir=home / "other").close()
    for file in Path(url).parent.glob("standfast.db*"):
        file.unlink()
    for file in (home / "other").glob("standfast.db*"):
        shutil.copy(file, Path(url).parent)


def test_another_store_in_the_place_of_one_opens_its_gap(
    opened: Open, url: str, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """003-42, 002-10: the new store does not know what the old one sent. The gap is opened once, not at each open."""
    got: list[int] = []
    with opened() as sf:
        first = sf.engine.store_id
    empty = Snapshot(url, home)
    with opened() as sf, sf.session("pay") as s:
        s.effect("charge", {"n": 1}, do=lambda call: got.append(1))
    _put_another(url, home, empty)
    with opened() as sf:
        assert sf.engine.store_id != first
        assert f"took the place of {first}" in caplog.text
        assert "standfast restore finish" in caplog.text
        with sf.session("pay") as s, pytest.raises(standfast.EffectInDoubt):
            s.effect("charge", {"n": 1}, do=lambda call: got.append(1))
        restore_gap.nothing_was_sent(sf._store)
        epoch = sf.engine.epoch
    with opened() as sf, sf.session("pay later") as s:
        s.effect("charge", {"n": 2}, do=lambda call: got.append(2))
        assert sf.engine.epoch == epoch
    assert got == [1, 2]
    assert caplog.text.count("took the place of") == 1


def test_a_host_that_cannot_remember_the_other_store_opens_no_gap(home: Path) -> None:
    """Otherwise each open would begin another epoch and invalidate the handles of the previous one."""
    here = str(home / "data" / "standfast.db")
    with or_skip(), mounts.memory(home / ".local", size="1m"):
        standfast.open(here, data_dir=home / "data").close()
        standfast.open(home / "other" / "standfast.db", data_dir=home / "other").close()
        shutil.rmtree(home / "data")
        shutil.copytree(home / "other", home / "data")
        with mounts.read_only(home / ".local"):
            for _ in range(2):
                with standfast.open(here, data_dir=home / "data") as sf:
                    assert sf.engine.epoch == 1


def test_a_store_that_a_person_asked_for_in_an_empty_place_has_no_gap(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-42: `store create --if-missing` means that the first store is given up."""
    monkeypatch.delenv("STANDFAST_DATA_DIR", raising=False)
    with standfast.open() as sf:
        sf.tasks.add("one")
    shutil.rmtree(home / ".standfast")
    done = remembering.run(home, "store", "create", "--if-missing")
    assert done.returncode == 0, done.stderr
    with standfast.open() as sf:
        assert sf.engine.epoch == 1
