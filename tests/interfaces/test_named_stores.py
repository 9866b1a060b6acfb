"""Named stores: `--store NAME`, `STANDFAST_STORE`, `store list`."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

import standfast
from standfast.config import load
from standfast.config.named_stores import named_stores
from standfast.errors import InvalidInput
from tests.interfaces.test_cli import run


def titles(home: Path, *words: str, **variables: str) -> list[str]:
    found = run(*words, "task", "list", "--json", home=home, **variables)
    return [task["title"] for task in json.loads(found.stdout)["data"]]


def test_each_name_is_a_store_of_its_own(tmp_path: Path) -> None:
    """000-6: stores are found by name, before or after the command or by the variable."""
    assert run("--store", "threads", "task", "add", "a thread", home=tmp_path).returncode == 0
    assert run("task", "add", "a goal", "--store", "goals", home=tmp_path).returncode == 0
    assert run("task", "add", "no name", home=tmp_path).returncode == 0
    assert titles(tmp_path, "--store", "threads") == ["a thread"]
    assert titles(tmp_path, STANDFAST_STORE="goals") == ["a goal"]
    assert titles(tmp_path) == titles(tmp_path, "--store", "default") == ["no name"]
    assert (tmp_path / ".standfast/stores/goals/standfast.db").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / ".standfast/stores").stat().st_mode & 0o777 == 0o700


def test_creating_a_store_prints_a_sentence_and_the_next_command(tmp_path: Path) -> None:
    made = run("store", "create", "goals", home=tmp_path)
    place = tmp_path / ".standfast/stores/goals/standfast.db"
    id = made.stdout.split()[3]
    assert made.stdout == f"created the store {id} at {place}\n"
    assert made.stderr == "next: standfast --store goals status\n"
    again = run("store", "create", "goals", "--if-missing", home=tmp_path)
    assert again.stdout == f"there is a store at {place}: {id}; nothing changed\n"


def test_the_list_shows_times_to_the_second(tmp_path: Path) -> None:
    run("--store", "goals", "task", "add", "x", home=tmp_path)
    listed = run("store", "list", home=tmp_path).stdout
    assert re.search(r"\t\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\t", listed), listed


def test_the_next_command_keeps_the_store_and_the_scope(tmp_path: Path) -> None:
    done = run("--store", "goals", "--scope", "a b", "task", "add", "x", home=tmp_path)
    assert "next: standfast --store goals --scope 'a b' task next" in done.stderr
    missing = run("--store", "goals", "task", "show", "abcdef", home=tmp_path)
    assert missing.returncode == 3
    assert "standfast --store goals task list" in missing.stderr


def test_a_projects_file_is_trusted_for_the_store_that_ignored_it(tmp_path: Path) -> None:
    """Each store has its own list of trusted files, so the hint names the store."""
    file = tmp_path / "work" / ".standfast" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('db_url = "x.db"\n')
    ignored = run("--store", "goals", "task", "list", home=tmp_path, cwd=file.parent.parent)
    assert "(read it, then: standfast --store goals db trust)" in ignored.stderr
    assert run("--store", "goals", "db", "trust", home=tmp_path, cwd=file.parent.parent).returncode == 0
    assert "ignored" not in run("--store", "goals", "task", "list", home=tmp_path, cwd=file.parent.parent).stderr


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", "-x", "ü", "x" * 65, "a b"])
def test_a_bad_name_is_refused_and_makes_nothing(tmp_path: Path, name: str) -> None:
    refused = run(f"--store={name}", "task", "add", "x", home=tmp_path)
    assert refused.returncode == 78
    assert "is not a store name" in refused.stderr
    assert not (tmp_path / ".standfast").exists()


def test_two_ways_to_name_a_store_are_refused(tmp_path: Path) -> None:
    refused = run("task", "list", home=tmp_path, STANDFAST_STORE="goals", STANDFAST_DB_URL="sqlite:")
    assert refused.returncode == 78
    assert "both STANDFAST_STORE and STANDFAST_DB_URL name a store" in refused.stderr


def test_an_explicit_url_or_directory_is_not_moved_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_STORE", "goals")
    assert load(data_dir=tmp_path).target.location == str(tmp_path / "standfast.db")
    assert load(tmp_path / "x.db").target.location == str(tmp_path / "x.db")
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "stores" / "goals"))  # a child may inherit this
    assert load().data_dir == str(tmp_path / "stores" / "goals")
    monkeypatch.setenv("STANDFAST_STORE", "../goals")
    with pytest.raises(InvalidInput, match="is not a store name"):
        load()


def test_a_hundred_stores_are_listed_without_opening_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-6: about 100 small stores, each findable by name. Reading them costs a few stat calls each."""
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / ".standfast"))
    with standfast.open():
        pass
    for n in range(100):
        place = tmp_path / ".standfast" / "stores" / f"s{n:02}"
        place.mkdir(parents=True)
        shutil.copy(tmp_path / ".standfast" / "standfast.db", place)
        (place / "standfast.db").chmod(0o600)
    began = time.process_time()
    names = named_stores()
    spent = time.process_time() - began
    assert list(names) == ["default", *(f"s{n:02}" for n in range(100))]
    print(f"{spent * 1000:.1f} ms of CPU for {len(names)} stores", file=sys.stderr)
    listed = run("store", "list", "--json", home=tmp_path)
    rows = json.loads(listed.stdout)["data"]
    assert [row["name"] for row in rows] == list(names)
    assert all(row["size_bytes"] > 0 and row["written"] for row in rows)
    assert not list((tmp_path / ".standfast" / "stores").glob("*/*-wal"))
