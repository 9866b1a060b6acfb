"""Copies that standfast takes automatically, and the report of copies in `doctor`, `status` and `where`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config
from standfast.admin.copies import automatic
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import listed
from standfast.admin.copies.take import Order, Source, take
from standfast.clock import DAY_US, HOUR_US, ManualClock
from standfast.core.progress import quiet
from standfast.db.migrations import MIGRATIONS
from standfast.db.sql import statement
from standfast_prove.campaigns.boot import LATER, engine_of
from tests import remembering
from tests.db.test_migrations import NOBODY


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose stores are remembered."""
    with remembering.home() as made:
        monkeypatch.setenv("HOME", str(made))
        monkeypatch.delenv("STANDFAST_REMEMBER")
        monkeypatch.delenv("STANDFAST_DATA_DIR")
        yield made


def answer(home: Path, *words: str) -> Any:
    done = remembering.run(home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


# -- hourly ----------------------------------------------------------------------------------------------------


def test_the_daemon_copies_hourly_if_anything_happened(
    engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-42: no copy of a new store, none twice within an hour, and none without a change since the last copy."""
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
    clock = ManualClock()
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as sf:
        part = automatic.Hourly(sf.copies, lambda: True)

        def states() -> list[str]:
            part.step()
            part.wait()
            part.step()
            return [f"{copy.why} {copy.state}" for copy in sf.copies.list()]

        assert states() == []
        sf.tasks.add("one")
        assert states() == ["hourly verified"]
        sf.tasks.add("two")
        assert states() == ["hourly verified"]
        clock.advance(HOUR_US)
        assert states() == ["hourly verified"] * 2
        clock.advance(HOUR_US)
        assert states() == ["hourly verified"] * 2
        sf.tasks.add("three")
        off = automatic.Hourly(sf.copies, lambda: False)
        off.step()
        off.wait()
        assert len(sf.copies.list()) == 2
        clock.advance(100 * DAY_US)
        assert len(states()) == 3
        assert sf.copies.apply_rule() == []


def test_the_daemon_applies_the_rule_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RULES 12: `[copies] keep`."""
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
    clock = ManualClock()
    with standfast.open(data_dir=tmp_path / "data", clock=clock) as sf:
        sf._store.copies = config.CopyOptions(keep="2h")
        for n in range(4):
            sf.tasks.add(f"task {n}")
            part = automatic.Hourly(sf.copies, lambda: True)
            part.step()
            part.wait()
            clock.advance(HOUR_US)
        assert len(sf.copies.list()) == 2


def test_a_copy_that_fails_is_reported_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """003-42: the daemon reports the failure as its part `copy`, and loops continue to fire."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "file"))
    with standfast.open(data_dir=tmp_path / "data") as sf:
        sf.tasks.add("one")
        part = automatic.Hourly(sf.copies, lambda: True)
        part.step()
        part.wait()
        with pytest.raises(standfast.StorageError, match="the copy cpy_"):
            part.step()
        monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
        part.step()
        part.wait()
        assert [copy.state for copy in sf.copies.list()] == ["verified"]


# -- before a migration, before a reset ---------------------------------------------------------------------------


def test_a_copy_is_taken_before_a_migration_and_not_of_a_fresh_store(engine_url: str, tmp_path: Path) -> None:
    """002-19, 003-36: the copy has the old schema; it is taken while the migrating process holds the lock."""
    asked: list[tuple[int, int]] = []
    place = Directory(str(tmp_path / "copies"))

    def copied(store_id: str, found: int, latest: int) -> None:
        asked.append((found, latest))
        engine = "postgres" if "://" in engine_url else "sqlite"
        take(Source(engine, engine_url, store_id), place, Order("before", None, 1, quiet))

    engine_of(engine_url, NOBODY, MIGRATIONS, on_migrate=copied).close()
    assert asked == []
    later = (*MIGRATIONS, LATER[0])
    engine = engine_of(engine_url, NOBODY, later, on_migrate=copied)
    engine.close()
    assert asked == [(len(MIGRATIONS), len(later))]
    (copy,) = listed(place.of(engine.store_id))
    assert (copy.schema, copy.state) == (len(MIGRATIONS), "taken")
    engine_of(engine_url, NOBODY, later, on_migrate=copied).close()
    assert len(asked) == 1


def test_a_migration_waits_for_its_copy(home: Path) -> None:
    """002-19: if the copy fails, the store is not migrated. The configuration can turn these copies off."""
    answer(home, "task", "add", "one")
    settings = config.load()
    with standfast.open() as sf:
        store_id = sf.engine.store_id
    automatic.before_migration(settings, store_id, 1, 2)
    root = home / ".local" / "state" / "standfast" / "copies"
    assert [copy.why for copy in listed(Directory(str(root / store_id)))] == ["before migration 1 to 2"]
    full = settings._replace(options=settings.options.replace(copies=config.CopyOptions(to=str(home / "f" / "x"))))
    (home / "f").write_text("")
    with pytest.raises(standfast.StorageError, match="was not migrated: the copy cpy_"):
        automatic.before_migration(full, store_id, 1, 2)
    off = settings._replace(options=settings.options.replace(copies=config.CopyOptions(enabled=False)))
    automatic.before_migration(off, store_id, 1, 2)
    assert len(listed(Directory(str(root / store_id)))) == 1


def test_a_reset_takes_a_copy_first(home: Path) -> None:
    """R33, RULES 12: a copy is taken before each destructive command, and can be restored after the reset."""
    answer(home, "task", "add", "one")
    plan = json.loads(remembering.run(home, "store", "reset", "--json").stdout)["data"]
    answer(home, "store", "reset", "--confirm", plan["hash"])
    assert not (home / ".standfast" / "standfast.db").exists()
    answer(home, "restore", "--to", str(home / "look"))
    with standfast.open(data_dir=home / "look") as look:
        assert [task.title for task in look.tasks.list(everywhere=True)] == ["one"]


def test_a_copy_is_taken_before_each_destructive_command(home: Path, engine_url: str) -> None:
    """RULES 12: restore --here, backup forget, db move. The copy has every row of the store, and can be restored."""
    url = engine_url if "://" in engine_url else str(home / "store" / "standfast.db")

    def go(*words: str) -> Any:
        done = remembering.run(home, *words, "--json", STANDFAST_DB_URL=url)
        assert done.returncode in (0, 5), done.stderr
        return json.loads(done.stdout)["data"]

    def confirmed(*words: str) -> None:
        go(*words, "--confirm", go(*words)["hash"])

    def before(command: str) -> list[str]:
        """The tasks in the newest copy, which was taken before this command."""
        newest = go("backup", "list")[0]
        assert newest["why"] == f"before {command}"
        go("restore", newest["id"], "--to", str(home / command))
        with standfast.open(data_dir=home / command) as look:
            return sorted(task.title for task in look.tasks.list(everywhere=True))

    go("task", "add", "one")
    first = go("backup")
    go("task", "add", "two")
    confirmed("restore", "--here")
    assert before("restore --here") == ["one", "two"]
    go("restore", "finish", "--nothing-was-sent")
    go("task", "add", "three")
    go("backup")
    go("task", "add", "four")
    confirmed("backup", "forget", first["id"])
    assert before("backup forget") == ["four", "one", "three"]
    go("task", "add", "five")
    target = str(home / "target" / "standfast.db")
    confirmed("db", "move", "sqlite", target, "--commit", "--global")
    url = target
    assert before("db move") == ["five", "four", "one", "three"]


# -- status, doctor and where ---------------------------------------------------------------------------------------


def test_doctor_and_status_warn_when_the_last_verified_copy_is_old(tmp_path: Path) -> None:
    """000-43, 001-30: older than `[copies] max_age`. A store without any copy causes no warning."""
    home = tmp_path
    path = home / ".standfast" / "standfast.db"
    from tests.interfaces.test_cli import run

    def said() -> tuple[str, str, str]:
        (finding,) = [
            one for one in json.loads(run("doctor", "--json", home=home).stdout)["data"] if one["id"] == "copies"
        ]
        return (
            finding["state"],
            finding["text"],
            json.loads(run("--json", home=home).stdout)["data"]["copies"]["warning"],
        )

    assert run("task", "add", "one", home=home).returncode == 0
    assert said() == ("ok", "this store has recorded no copy yet: standfast backup", "")
    assert run("backup", "--no-verify", home=home).returncode == 0
    assert said()[::2] == ("warn", "no copy of this store is verified")
    assert run("backup", "verify", home=home).returncode == 0
    assert said()[::2] == ("ok", "")
    older = statement("UPDATE copy SET taken_us = taken_us - :us")
    with standfast.open(path, data_dir=path.parent) as sf:
        sf._store.write(lambda tx: tx.run(older, us=3 * DAY_US))
    state, text, warning = said()
    assert (state, text) == ("warn", warning)
    assert text == "the last verified copy is 3d old; the limit is 1d"
    assert f"{warning}: standfast backup" in run(home=home).stdout
    (path.parent / "config.toml").write_text('[copies]\nmax_age = "1w"\n')
    assert said()[::2] == ("ok", "")


def test_where_prints_store_copies_spool_and_configuration_with_sizes(tmp_path: Path) -> None:
    """000-3, 001-30: the command connects to no server."""
    from tests.interfaces.test_cli import run

    assert run("task", "add", "one", home=tmp_path).returncode == 0
    assert run("backup", home=tmp_path).returncode == 0
    found = json.loads(run("where", "--json", home=tmp_path).stdout)["data"]
    assert found["copies"] == str(tmp_path / ".local" / "state" / "standfast" / "copies")
    assert found["spool"] == str(tmp_path / ".standfast" / "spool")
    assert found["config"] == str(tmp_path / ".standfast" / "config.toml")
    sizes = found["size_bytes"]
    assert (sizes["store"] > 100_000, sizes["copies"] > 10_000, sizes["spool"], sizes["config"]) == (True, True, 0, 0)
    lines = run("where", home=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["data", "store", "engine", "copies", "spool", "config"]


def test_the_variable_comes_before_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 3: the environment comes before the configuration, for the place of copies and the output of `where`."""
    from tests.interfaces.test_cli import run

    (tmp_path / "config.toml").write_text(f'[copies]\nto = "{tmp_path}/there"\n')
    with standfast.open(data_dir=tmp_path) as sf:
        assert sf.backup().place.startswith(f"{tmp_path}/there/")
        monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "named"))
        assert sf.backup().place.startswith(f"{tmp_path}/named/")
    found = run("where", "--json", home=tmp_path, STANDFAST_DATA_DIR=str(tmp_path))
    assert json.loads(found.stdout)["data"]["copies"] == str(tmp_path / "named")
    monkeypatch.delenv("STANDFAST_COPIES_DIR")
    found = run("where", "--json", home=tmp_path, STANDFAST_DATA_DIR=str(tmp_path))
    assert json.loads(found.stdout)["data"]["copies"] == f"{tmp_path}/there"


@pytest.mark.parametrize(
    "text",
    ["copies = 1", "[copies]\nenabled = 1", '[copies]\nkeep = "all"', '[copies]\nmax_age = "x"', '[copies]\nx = "y"'],
)
def test_a_wrong_value_for_copies_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """003-42: the value is refused before a copy is taken or removed."""
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(standfast.InvalidInput, match="wrong value for 'copies'"):
        config.load(data_dir=tmp_path)
