"""The files of an open store are removed: the process saves a copy of the store through its open connections."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.admin.copies.automatic import rescue
from standfast.errors import CommitUnknown, StorageError
from tests import remembering

TASKS = 50


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of this process and of its children, with the memory of stores."""
    with remembering.home() as made:
        monkeypatch.setenv("HOME", str(made))
        monkeypatch.delenv("STANDFAST_REMEMBER")
        monkeypatch.delenv("STANDFAST_DATA_DIR")
        yield made


def answer(home: Path, *words: str) -> Any:
    done = remembering.run(home, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def restored(home: Path) -> None:
    asked = remembering.run(home, "restore", "--here", "--json")
    plan = json.loads(asked.stdout)["data"]
    done = remembering.run(home, "restore", "--here", "--confirm", plan["hash"])
    assert done.returncode == 0, done.stderr


def all_files(path: Path) -> None:
    shutil.rmtree(path.parent)


def the_log(path: Path) -> None:
    os.unlink(f"{path}-wal")


def the_database(path: Path) -> None:
    os.unlink(path)


def another_file(path: Path) -> None:
    """Replace the database as a tool does that writes a new file and renames it."""
    other = path.with_name("other")
    other.write_bytes(b"")
    os.replace(other, path)


@pytest.mark.parametrize("remove", [all_files, the_log, the_database, another_file])
def test_every_acknowledged_row_is_in_the_copy_that_the_next_write_takes(
    home: Path, remove: Callable[[Path], None]
) -> None:
    """002-10: if an agent deletes the store, no acknowledged row is lost."""
    with standfast.open() as sf:
        sf.copies.take()  # an older copy, which is verified too
        receipts = [str(sf.tasks.add(f"task {n}").receipt) for n in range(TASKS)]
        remove(Path(sf.engine.identity))
        with pytest.raises(CommitUnknown, match="standfast restore --here"):
            sf.tasks.add("the outcome is unknown")
        with pytest.raises(StorageError):
            sf.tasks.add("nothing goes on elsewhere")
    restored(home)
    for receipt in (receipts[0], receipts[-1]):
        assert answer(home, "verify", receipt)["verified"] is True
    with standfast.open() as sf:
        titles = {task.title for task in sf.tasks.list(limit=1000)}
    assert titles >= {f"task {n}" for n in range(TASKS)}
    assert "nothing goes on elsewhere" not in titles


def test_a_process_that_only_closes_saves_it_too(home: Path) -> None:
    with standfast.open() as sf:
        sf.tasks.add("one")
        shutil.rmtree(Path(sf.engine.identity).parent)
    restored(home)
    with standfast.open() as sf:
        assert [task.title for task in sf.tasks.list()] == ["one"]


def test_an_effect_that_was_sent_is_not_sent_by_the_rescued_store(home: Path) -> None:
    """003-42: the rescued copy has the ledger, so the call is replayed."""
    sent: list[str] = []
    with standfast.open() as sf, suppress(StorageError), sf.session("pay") as session:  # raised by leaving it
        session.effect("charge", {"n": 1}, do=lambda call: sent.append(call.key))
        shutil.rmtree(Path(sf.engine.identity).parent)
        with pytest.raises(CommitUnknown):
            session.effect("charge", {"n": 2}, do=lambda call: sent.append(call.key))
    assert len(sent) == 1
    restored(home)
    assert len(answer(home, "backup", "list")) == 1
    with standfast.open() as sf, sf.session("pay") as session:
        session.effect("charge", {"n": 1}, do=lambda call: sent.append(call.key))
    assert len(sent) == 1


def test_no_copy_of_a_store_that_is_moved_or_temporary(home: Path, tmp_path: Path) -> None:
    """A renamed directory still has the store, and a temporary store has no copies."""
    with standfast.open() as sf:
        sf.tasks.add("one")
        os.rename(home / ".standfast", home / "elsewhere")
        with pytest.raises(CommitUnknown, match="standfast doctor"):
            sf.tasks.add("two")
    with standfast.open(tmp_path / "t" / "standfast.db", data_dir=tmp_path / "t") as sf:
        sf.tasks.add("one")
        shutil.rmtree(tmp_path / "t")
    assert not (home / ".local/state/standfast/copies").exists()


def test_what_an_overwritten_file_gives_is_no_copy(home: Path) -> None:
    """Pages of another file are refused as a copy of the store, and the error gives the reason."""
    with standfast.open() as sf:
        settings, store_id = sf.settings, sf.engine.store_id
    with pytest.raises(StorageError, match="reads"):
        rescue(settings, store_id, lambda path: Path(path).write_bytes(b"x" * 8192))
    assert not list((home / ".local/state/standfast/copies" / store_id).glob("cpy_*"))


def test_a_full_directory_of_copies_is_named_and_does_not_stop_the_writer(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(home / "file" / "copies"))
    with standfast.open() as sf:
        sf.tasks.add("one")
        shutil.rmtree(Path(sf.engine.identity).parent)
        with pytest.raises(CommitUnknown, match="standfast doctor"):
            sf.tasks.add("two")
    assert "no copy could be saved" in caplog.text
