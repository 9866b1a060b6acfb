"""`standfast restore --here` and `restore finish`: a copy takes the place of the store, and nothing is sent again."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast import crash
from tests import remembering
from tests.db.test_sqlite_guard import grown
from tests.places import git

Run = Callable[..., Any]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that is not temporary, so that this host remembers its store."""
    with remembering.home() as made:
        yield made


@pytest.fixture
def url(engine_url: str, home: Path) -> str:
    return engine_url if "://" in engine_url else str(home / "store" / "standfast.db")


@pytest.fixture
def shell(url: str, home: Path) -> Run:
    def go(*words: str, **variables: str) -> Any:
        given = {"STANDFAST_DB_URL": url, "STANDFAST_COPIES_DIR": str(home / "copies"), **variables}
        return remembering.run(home, *words, **given)

    return go


def answer(shell: Run, *words: str, code: int = 0, **variables: str) -> Any:
    done = shell(*words, "--json", **variables)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["data"]


def error(shell: Run, *words: str, **variables: str) -> tuple[int, str]:
    done = shell(*words, "--json", **variables)
    return done.returncode, json.loads(done.stderr.splitlines()[-1])["error"]["code"]


def here(shell: Run, **variables: str) -> Any:
    """Run `restore --here` and confirm the printed plan."""
    plan = json.loads(shell("restore", "--here", "--json").stdout)["data"]
    return shell("restore", "--here", "--confirm", plan["hash"], **variables)


def titles(shell: Run) -> list[str]:
    return [task["title"] for task in answer(shell, "task", "list")]


def prepared(shell: Run) -> int:
    """Take a copy with one task, then add rows. Returns the last sequence number."""
    answer(shell, "task", "add", "one")
    assert shell("loop", "add", "nightly", "--every", "1h", "--", "true").returncode == 0
    answer(shell, "backup")
    return int(answer(shell, "task", "add", "two")["receipt"]["seq"])


def test_a_store_is_restored_and_a_person_closes_its_gap(shell: Run, url: str, tmp_path: Path) -> None:
    """000-37, 003-42: the epoch is new, old handles are refused, loops are paused, no sequence number is used twice."""
    last = prepared(shell)
    with standfast.open(url, data_dir=tmp_path / "old") as old:
        assert old.engine.epoch == 1
        assert error(shell, "restore", "--here") == (5, "confirm_required")
        assert error(shell, "restore", "--here", CLAUDECODE="1") == (5, "agent_present")
        assert sorted(titles(shell)) == ["one", "two"]
        assert here(shell).returncode == 0
        assert titles(shell) == ["one"]
        assert error(shell, "restore", "finish") == (5, "gap_open")
        assert error(shell, "restore", "finish", "--nothing-was-sent", CLAUDECODE="1") == (5, "agent_present")
        done = answer(shell, "restore", "finish", "--nothing-was-sent")
        assert (done["seen"], done["seq"] < done["seen"]) == (last, True)
        with suppress(standfast.StorageError):  # CommitUnknown: its files were replaced
            old.tasks.add("from before")
        with pytest.raises(standfast.StorageError) as caught:
            old.tasks.add("from before")
        assert caught.value.code == "store_replaced"
    assert answer(shell, "task", "add", "three")["receipt"]["seq"] > last + 1
    assert "store.restored" in {row["type"] for row in answer(shell, "event", "list")}
    assert [loop["state"] for loop in answer(shell, "loop", "list")] == ["paused"]
    with standfast.open(url, data_dir=tmp_path / "new") as sf:
        assert sf.engine.epoch == 2
        assert sf.journal.check().findings == []
    assert error(shell, "restore", "finish", "--nothing-was-sent") == (4, "conflict")
    if "://" not in url:
        (aside,) = Path(url).parent.glob("*.before-*")
        assert (aside / "standfast.db").exists()


def lose(url: str) -> None:
    """Delete the store's files directly."""
    if "://" in url:
        with psycopg.connect(url) as connection:
            connection.execute("DROP SCHEMA standfast CASCADE")
    else:
        for file in Path(url).parent.glob("standfast.db*"):
            file.unlink()


def test_a_deleted_store_is_restored(shell: Run, url: str, tmp_path: Path) -> None:
    """000-42: the store's files are missing, and only the copy is left."""
    answer(shell, "task", "add", "one")
    answer(shell, "backup")
    lost = answer(shell, "task", "add", "two")["receipt"]
    lose(url)
    known = json.loads(shell("restore", "--here", "--json").stdout)["data"]["last"]
    assert known <= lost["seq"]  # the row itself or an older one: no margin for unseen rows
    assert here(shell).returncode == 0
    assert titles(shell) == ["one"]
    answer(shell, "backup")  # its numbers are higher, and it lacks the row
    words = ["--to", str(tmp_path / "look"), "--receipt", f"{lost['seq']}:{lost['hash']}"]
    assert error(shell, "restore", *words) == (3, "not_found")


POINTS = ["restore.before_rename", "restore.before_swap", "restore.before_promote", "restore.before_finish"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_the_same_commands_complete_it(shell: Run, url: str, point: str) -> None:
    """002-11: after the kill there is the old store, a read-only copy, or a store with an open gap. None sends
    again.
    """
    last = prepared(shell)
    here(shell, STANDFAST_CRASH_AT=point)
    shell("restore", "finish", "--nothing-was-sent", STANDFAST_CRASH_AT=point)
    there = shell("task", "list", "--json", STANDFAST_REMEMBER="0")
    assert there.returncode == 0, there.stderr
    assert ("two" in there.stdout) == (point == "restore.before_rename")
    if point in ("restore.before_swap", "restore.before_promote") and "://" not in url:
        assert error(shell, "task", "add", "x") == (1, "read_only_copy")
    assert here(shell).returncode == 0
    answer(shell, "restore", "finish", "--nothing-was-sent")
    assert titles(shell) == ["one"]
    assert answer(shell, "task", "add", "three")["receipt"]["seq"] > last


def test_a_copy_of_another_store_is_refused(shell: Run, tmp_path: Path, url: str) -> None:
    answer(shell, "task", "add", "one")
    answer(shell, "backup")
    other = tmp_path / "other" / "standfast.db"
    assert error(shell, "restore", "--here") == (5, "confirm_required")
    answer(shell, "task", "add", "mine", STANDFAST_DB_URL=str(other))
    assert error(shell, "restore", "--here", STANDFAST_DB_URL=str(other))[0] == 4
    assert shell("restore").returncode == 2
    assert shell("restore", "--here", "--to", "x").returncode == 2


def sent(shell: Run, key: str, **variables: str) -> int:
    """Run `once` with a command that appends to the outside system. Returns the exit code."""
    code: int = shell("once", key, "--", "sh", "-c", f"echo {key} >> $OUTSIDE", **variables).returncode
    return code


def test_what_was_sent_after_the_copy_is_not_sent_again(shell: Run, url: str, home: Path) -> None:
    """003-42: the replaced store cannot be read, so a person resolves each effect in doubt."""
    outside = home / "outside.txt"
    variables = {"OUTSIDE": str(outside)}
    prepared(shell)
    assert sent(shell, "charge", **variables) == 0
    lose(url)
    assert here(shell).returncode == 0
    assert sent(shell, "charge", **variables) == 6
    assert sent(shell, "other", **variables) == 6
    assert outside.read_text() == "charge\n"
    listed = json.loads(shell("restore", "finish", "--json").stdout)["data"]
    assert len(listed["effects"]) == 2
    charge = next(one["id"] for one in listed["effects"] if one["key"] == "charge")
    assert shell("effect", "resolve", charge, "--applied", "--evidence", "the file has it").returncode == 0
    assert sent(shell, "charge", **variables) == 0
    answer(shell, "restore", "finish", "--nothing-was-sent")
    assert sent(shell, "other", **variables) == 0
    assert sent(shell, "third", **variables) == 0
    assert outside.read_text() == "charge\nother\nthird\n"


def test_the_ledger_of_a_readable_store_is_carried_over(shell: Run, home: Path) -> None:
    """003-42: effects that the replaced store recorded are replayed. Credits and webhooks need not wait."""
    variables = {"OUTSIDE": str(home / "outside.txt")}
    prepared(shell)
    assert sent(shell, "charge", **variables) == 0
    assert shell("credit", "add", "ann", "5", "--key", "topup:1").returncode == 0
    assert here(shell).returncode == 0
    assert sent(shell, "charge", **variables) == 0
    assert (home / "outside.txt").read_text() == "charge\n"
    assert shell("credit", "add", "ann", "5", "--key", "topup:2").returncode == 0
    assert answer(shell, "credit", "balance", "ann")[0]["balance"] == 10
    assert sent(shell, "other", **variables) == 6


def put_back(url: str, directory: Path) -> Iterator[None]:
    """Save the store, and put it back as `cp` or the server does, without a command of ours."""
    if "://" in url:
        server, _, name = url.rpartition("/")
        with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}_saved TEMPLATE {name}".encode())
            yield
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            admin.execute(f"ALTER DATABASE {name}_saved RENAME TO {name}".encode())
    else:
        shutil.copytree(Path(url).parent, directory)
        yield
        shutil.rmtree(Path(url).parent)
        shutil.copytree(directory, Path(url).parent)


@pytest.mark.parametrize("opened", [True, False])
def test_a_store_that_went_back_does_not_replace_the_ledger_of_its_copy(
    shell: Run, url: str, home: Path, opened: bool
) -> None:
    """003-42: that store lacks rows of the copy, so its ledger is not used, and credits wait."""
    variables = {"OUTSIDE": str(home / "outside.txt")}
    prepared(shell)
    saved = put_back(url, home / "saved")
    next(saved)
    assert sent(shell, "charge", **variables) == 0
    assert shell("credit", "add", "ann", "5", "--key", "topup:1").returncode == 0
    answer(shell, "backup")
    next(saved, None)
    if opened:
        assert answer(shell, "credit", "list", "ann") == []  # the gap is open, and the journal continues after it
    assert here(shell).returncode == 0
    assert sent(shell, "charge", **variables) == 0
    assert (home / "outside.txt").read_text() == "charge\n"
    assert answer(shell, "credit", "balance", "ann")[0]["balance"] == 5
    assert error(shell, "credit", "add", "ann", "5", "--key", "topup:2") == (4, "gap_open")


def test_two_processes_that_notice_the_same_gap_both_continue(
    shell: Run, url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-42: one process opens the gap, and the other finds it open."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("STANDFAST_REMEMBER", raising=False)
    with standfast.open(url, data_dir=home / "data") as sf:
        sf.effects.begin("charge", {}, key="k")
        memory = sf._store.memory
        assert memory is not None
        memory.note(999, "h2:" + "0" * 64)  # a row that the store does not have
    others: list[Any] = []

    def first(_: str) -> None:
        crash.disarm()
        others.append(answer(shell, "task", "list"))

    crash.arm(lambda name: first(name) if name == "restore.before_gap" else None)
    try:
        with standfast.open(url, data_dir=home / "data") as sf:
            assert (others, sf.engine.epoch) == ([[]], 2)
            assert sf.tasks.add("goes on").receipt.seq > 999
    finally:
        crash.disarm()


@pytest.mark.without_store
def test_a_missing_store_is_restored_unattended(shell: Run, url: str) -> None:
    """003-13: `restore --if-missing` in an entrypoint restores the newest copy, or does nothing if the store is
    there.
    """
    assert answer(shell, "restore", "--if-missing")["store"] is None
    prepared(shell)
    assert answer(shell, "restore", "--if-missing")["store"].startswith("sto_")
    assert sorted(titles(shell)) == ["one", "two"]
    lose(url)
    answer(shell, "restore", "--if-missing")
    assert titles(shell) == ["one"]
    assert error(shell, "restore", "finish") == (5, "gap_open")


def test_a_read_only_copy_is_promoted(shell: Run, home: Path) -> None:
    """003-42: after one question, the copy has the next epoch and an open gap."""
    last = prepared(shell)
    assert error(shell, "restore", "promote") == (4, "conflict")
    answer(shell, "restore", "--to", str(home / "look"))
    look = {"STANDFAST_DB_URL": str(home / "look" / "standfast.db")}
    plan = json.loads(shell("restore", "promote", "--json", **look).stdout)["data"]
    assert error(shell, "restore", "promote", "--confirm", "no", **look) == (4, "conflict")
    assert error(shell, "restore", "promote", "--confirm", plan["hash"], CLAUDECODE="1", **look) == (5, "agent_present")
    assert shell("restore", "promote", "--confirm", plan["hash"], **look).returncode == 0
    assert answer(shell, "task", "add", "three", **look)["receipt"]["seq"] > last
    assert shell("once", "charge", "--", "true", **look).returncode == 6


def in_terminal(home: Path, url: str, said: list[tuple[bytes, bytes]], *words: str) -> tuple[int, str]:
    """Run a command at a terminal, and type each answer after its question."""
    import pty

    variables = remembering.environment(home, STANDFAST_DB_URL=url, STANDFAST_COPIES_DIR=str(home / "copies"))
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "standfast", *words], variables)
    shown = seen = b""
    for question, text in said:
        while question not in shown:
            shown += os.read(fd, 1000)
        seen, shown = seen + shown, b""
        os.write(fd, text)
    with suppress(OSError):  # the terminal is closed with its last process
        while part := os.read(fd, 1000):
            shown += part
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(fd)
    return code, (seen + shown).decode().replace("\r\n", "\n")


def test_each_effect_in_doubt_is_shown_to_a_person(shell: Run, url: str, home: Path) -> None:
    """003-42: `restore finish --ask-each` settles what a person knows, and the gap stays open for the rest."""
    prepared(shell)
    assert here(shell).returncode == 0
    assert answer(shell)["gap"].startswith("the store has no record of the time")
    assert next(one for one in answer(shell, "doctor") if one["id"] == "gap")["state"] == "warn"
    for key in ("sent", "not-sent", "unknown"):
        assert shell("once", key, "--", "true").returncode == 6
    typed = [(b"was it sent?", text) for text in (b"yes\n", b"no\n", b"\n")]
    code, shown = in_terminal(home, url, typed, "restore", "finish", "--ask-each")
    assert (code, "2 of 3 effects are settled" in shown) == (0, True), shown
    states = {one["key"]: one["state"] for one in answer(shell, "effect", "list", "--all")}
    assert states == {"sent": "acknowledged", "not-sent": "failed", "unknown": "dispatched"}
    assert error(shell, "restore", "finish") == (5, "gap_open")
    code, shown = in_terminal(home, url, [(b"Type `nothing`", b"nothing\n")], "restore", "finish")
    assert code == 0, shown
    assert answer(shell)["gap"] == ""


def test_a_known_action_in_the_gap_is_checked_first(shell: Run, url: str, home: Path) -> None:
    """003-42: `git push` has a ready probe, so a push that arrived in the gap needs no person."""
    work, far = home / "work", home / "far.git"
    git(home, "init", "-q", "--bare", str(far))
    git(home, "clone", "-q", str(far), str(work))
    git(work, "commit", "-q", "--allow-empty", "-m", "one")
    prepared(shell)
    push = ("once", "push-one", "--", "git", "-C", str(work), "push", "origin", "HEAD:refs/heads/main")
    assert shell(*push).returncode == 0
    lose(url)
    assert here(shell).returncode == 0
    done = shell(*push)
    assert done.returncode == 0, done.stderr
    (found,) = answer(shell, "effect", "list", "--all")
    assert (found["key"], found["state"]) == ("push-one", "acknowledged")
    types = [row["type"] for row in answer(shell, "event", "list") if row["subject"] == found["id"]]
    assert types == ["effect.planned", "effect.gave_up", "effect.acknowledged"]  # the effect was not dispatched


def test_a_restore_that_fails_leaves_the_store_and_no_file(home: Path) -> None:
    """On a full disk, half of a restored copy would leave no space for the store's writes."""
    file = str(home / "store" / "standfast.db")
    variables = {"STANDFAST_DB_URL": file, "STANDFAST_COPIES_DIR": str(home / "copies")}

    def go(*words: str, **more: str) -> Any:
        return remembering.run(home, *words, **variables, **more)

    prepared(go)
    (copy,) = (home / "copies").glob("*/cpy_*.db.*")
    copy.write_bytes(copy.read_bytes()[:-100])
    assert here(go).returncode == 1
    assert sorted(titles(go)) == ["one", "two"]
    assert [path.name for path in Path(file).parent.iterdir() if "restor" in path.name or "before" in path.name] == []


def test_options_of_finish_are_refused_elsewhere(shell: Run) -> None:
    for words in (["--here", "--ask-each"], ["finish", "--ask-each", "--nothing-was-sent"], ["--here", "--if-missing"]):
        assert shell("restore", *words).returncode == 2


def test_a_store_is_restored_and_moved_from_python(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-50: the first call returns a plan, and the same call with the hash of the plan restores or moves."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("STANDFAST_REMEMBER")
    monkeypatch.delenv("STANDFAST_DATA_DIR")
    with standfast.open() as sf:
        receipt = sf.tasks.add("one").receipt
        kept = sf.artifacts.put(b"kept", name="kept")
        sf.backup()
        sf.tasks.add("two")
    (file,) = [
        path for path in (home / ".standfast" / "artifacts").rglob("*") if path.is_file() and path.stat().st_size
    ]
    file.write_bytes(b"lost")
    assert standfast.restore(to=home / "look", receipt=str(receipt)).to == str(home / "look")
    with standfast.open(data_dir=home / "look") as look:
        assert [task.title for task in look.tasks.list()] == ["one"]
    plan = standfast.restore()
    with pytest.raises(standfast.Conflict, match="the plan is"):
        standfast.restore(confirm="0" * 12)
    with standfast.open() as sf:
        assert len(sf.tasks.list()) == 2
    assert standfast.restore(confirm=plan.hash).copy == plan.copy
    with standfast.open() as sf:
        assert ([task.title for task in sf.tasks.list()], sf.engine.epoch) == (["one"], 2)
        assert sf.artifacts.read(kept.id) == b"kept"  # the damaged file was replaced
    there = home / "other" / "standfast.db"
    moved = standfast.move(there)
    assert (moved.rows > 0, there.exists()) == (True, False)
    standfast.move(there, confirm=moved.hash)
    with standfast.open(there) as sf:
        assert [task.title for task in sf.tasks.list()] == ["one"]
        assert sf.artifacts.read(kept.id) == b"kept"
    with pytest.raises(standfast.StorageError, match="this store moved to"):
        standfast.open()
    assert standfast.restore().moved == str(there)


def test_a_database_that_was_replaced_beside_its_wal_is_restored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """003-42: `cp` of an older file leaves the WAL. No row of this mixture is carried over."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("STANDFAST_REMEMBER")
    monkeypatch.delenv("STANDFAST_DATA_DIR")
    path, got = home / ".standfast" / "standfast.db", []

    def charge(sf: standfast.Standfast) -> None:
        with sf.session("pay") as s:
            s.effect("charge", {"n": 1}, do=lambda call: got.append(1))

    with standfast.open() as sf:
        sf.tasks.add("one")
    older = shutil.copyfile(path, home / "older.db")
    with standfast.open() as sf:
        charge(sf)
    grown(path)
    with standfast.open() as sf:
        sf.backup()
    shutil.copyfile(older, path)
    with pytest.raises(standfast.StorageError, match="restore --here"):
        standfast.open()
    done = standfast.restore(confirm=standfast.restore().hash)
    assert (Path(done.to) / "standfast.db-wal").stat().st_size > 0  # both files are unchanged
    with standfast.open() as sf:
        charge(sf)
        assert sf.journal.check().findings == []
    assert got == [1]
