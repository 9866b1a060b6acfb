"""`standfast backup` and `standfast restore` in a shell."""

from __future__ import annotations

import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import standfast
from standfast.cli import app, progress
from standfast.clock import iso
from tests.interfaces.test_cli import MAIN, environment, run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a store of one task."""
    path = tmp_path / "home"
    path.mkdir()
    assert run("task", "add", "one", home=path).returncode == 0
    return path


def answer(*words: str, home: Path, code: int = 0, **variables: str) -> Any:
    done = run(*words, "--json", home=home, **variables)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)["data"]


def failure(*words: str, home: Path, **variables: str) -> tuple[int, dict[str, str]]:
    done = run(*words, "--json", home=home, **variables)
    return done.returncode, json.loads(done.stderr.splitlines()[-1])["error"]


def test_a_copy_from_taking_to_restoring(home: Path) -> None:
    """000-42, 001-54: one command takes and verifies a copy; it is tested, and restored read only without the store."""
    first = answer("backup", home=home)
    assert first["state"] == "verified"
    assert first["place"].startswith(str(home / ".local" / "state" / "standfast" / "copies"))
    second = answer("backup", "--note", "hi", "--no-verify", home=home)
    assert (second["state"], second["note"]) == ("taken", "hi")
    assert [copy["id"] for copy in answer("backup", "list", home=home)] == [second["id"], first["id"]]
    assert answer("backup", "show", home=home)["id"] == first["id"], "the newest verified one"
    assert [copy["state"] for copy in answer("backup", "verify", "--all", home=home)] == ["verified", "verified"]
    tested = answer("backup", "test", second["id"][-6:], home=home)
    assert tested["state"] == "tested"
    assert {check["ok"] for check in tested["checks"]} == {True}
    shutil.rmtree(home / ".standfast")
    assert [copy["id"] for copy in answer("backup", "list", home=home)] == [second["id"], first["id"]]
    assert answer("backup", "show", home=home)["id"] == second["id"]
    look = str(home / "look")
    assert answer("restore", "--to", look, home=home)["copy"] == second["id"]
    assert [task["title"] for task in answer("task", "list", home=home, STANDFAST_DATA_DIR=look)] == ["one"]
    assert failure("task", "add", "two", home=home, STANDFAST_DATA_DIR=look)[1]["code"] == "read_only_copy"
    assert failure("restore", "--to", look, home=home)[1]["code"] == "conflict"


def test_work_of_more_than_a_second_reports_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-42: progress is on stderr, not in the answer. In this test the first second is already over."""
    monkeypatch.setattr(progress, "FIRST_S", -1.0)
    monkeypatch.setattr(progress, "LINE_EVERY_S", -1.0)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
    assert app.run(["task", "add", "one"]) == 0
    assert app.run(["artifact", "put", __file__]) == 0
    capsys.readouterr()
    for words, doing in ((["backup"], "verifying: "), (["backup", "test"], "restoring artifacts: 0 of 1")):
        assert app.run([*words, "--json"]) == 0
        said = capsys.readouterr()
        assert f"standfast: {doing}" in said.err
        assert json.loads(said.out)["data"]["state"] in ("verified", "tested")


def test_a_copy_elsewhere_is_found_where_it_was_taken_to(home: Path, tmp_path: Path) -> None:
    """000-42: `--to` and `--from` name the same directory."""
    there = str(tmp_path / "nas")
    made = answer("backup", "--to", there, home=home)
    assert answer("backup", "list", home=home) == []
    assert [copy["id"] for copy in answer("backup", "list", "--from", there, home=home)] == [made["id"]]
    restored = answer("restore", made["id"][-6:], "--from", there, "--to", str(tmp_path / "look"), home=home)
    assert restored["seq"] == made["seq"]
    code, error = failure("restore", "--from", str(tmp_path / "empty"), "--to", str(tmp_path / "x"), home=home)
    assert (code, error["code"]) == (3, "not_found")


def test_a_hint_about_a_copy_elsewhere_names_that_place(home: Path, tmp_path: Path) -> None:
    """000-42: the printed next command finds the copy."""
    there = str(tmp_path / "a nas")
    hints = [run("backup", "--to", there, home=home).stderr, run("backup", "list", "--from", there, home=home).stderr]
    for hint in hints:
        words = shlex.split(hint.strip().splitlines()[-1].removeprefix("next: standfast "))
        assert run(*words, home=home).returncode == 0
    code, error = failure("restore", "--here", "--from", there, home=home)
    assert (code, f" --from '{there}' --here --confirm " in error["hint"]) == (5, True), error


def test_forgetting_asks_a_person_and_is_refused_to_an_agent(home: Path) -> None:
    """RULES 12: a terminal, or the hash of the plan; never an agent."""
    first, second = answer("backup", home=home), answer("backup", home=home)
    done = run("backup", "forget", first["id"], "--json", home=home)
    plan = json.loads(done.stdout)["data"]
    assert (done.returncode, plan["forget"], plan["keep"]) == (5, [first["id"]], [second["id"]])
    assert failure("backup", "forget", first["id"], "--confirm", "0" * 12, home=home)[0] == 4
    agent = failure("backup", "forget", first["id"], "--confirm", plan["hash"], home=home, CLAUDECODE="1")
    assert (agent[0], agent[1]["code"]) == (5, "agent_present")
    answer("backup", "forget", first["id"], "--confirm", plan["hash"], home=home)
    assert [copy["id"] for copy in answer("backup", "list", home=home)] == [second["id"]]
    assert failure("backup", "forget", second["id"], home=home)[0] == 4


def tasks_in(path: Path) -> int:
    """The tasks that stock sqlite3 reads in a file copied by `cp`."""
    with closing(apsw.Connection(str(path))) as connection:
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'task'").get
        return int(connection.execute("SELECT count(*) FROM task").get) if found else 0


def test_a_plain_cp_is_correct_while_the_store_is_frozen_and_only_then(home: Path, tmp_path: Path) -> None:
    """003-13: while a process has the frozen store open, one file has all rows. A bare `cp` is the control."""
    path = home / ".standfast" / "standfast.db"
    with standfast.open(path, data_dir=home / ".standfast") as sf:
        for n in range(20):
            sf.tasks.add(f"task {n}")
        shutil.copy(path, tmp_path / "bare.db")
        done = run("backup", "--freeze", "--", "cp", str(path), str(tmp_path / "frozen.db"), home=home)
        assert (done.returncode, done.stderr) == (0, "")
        sf.tasks.add("it goes on")
    assert tasks_in(tmp_path / "frozen.db") == 21
    assert tasks_in(tmp_path / "bare.db") < 21
    assert run("backup", "--freeze", "--", "sh", "-c", "exit 7", home=home).returncode == 7
    assert run("backup", "--freeze", home=home).returncode == 2
    assert run("backup", "--", "ls", home=home).returncode == 2


def test_a_full_disk_leaves_no_copy_and_no_file(home: Path) -> None:
    """003-42: the message names the copy and the reason; earlier copies are unchanged."""
    kept = answer("backup", home=home)

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [sys.executable, "-c", MAIN, "backup", "--json"]
    done = subprocess.run(command, env=environment(home), cwd=home, capture_output=True, text=True, preexec_fn=small)
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (done.returncode, error["code"]) == (1, "copy_failed")
    assert "the copy cpy_" in error["message"]
    assert [copy["state"] for copy in answer("backup", "list", home=home)] == ["verified"]
    assert {name.split(".")[0] for name in os.listdir(kept["place"])} == {kept["id"], "lock"}


def test_a_full_disk_is_named_with_the_copy_also_by_restore(tmp_path: Path, engine_url: str) -> None:
    """003-42: on a file system of 64 kB, on both engines. The earlier copy still verifies."""
    small, url = tmp_path / "small", {"STANDFAST_DB_URL": engine_url}
    small.mkdir()
    assert run("task", "add", "one", home=tmp_path, **url).returncode == 0
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.artifacts.put(os.urandom(200_000), name="log")
    kept = answer("backup", home=tmp_path, **url)
    for words in (["backup", "--to", str(small)], ["restore", "--to", str(small / "look")]):
        mount = f'mount -t tmpfs -o size=64k none {small} && exec "$0" "$@"'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, sys.executable, "-c", MAIN]
        done = subprocess.run(
            [*command, *words, "--json"], env=environment(tmp_path, **url), cwd=tmp_path, capture_output=True, text=True
        )
        error = json.loads(done.stderr.splitlines()[-1])["error"]
        assert (done.returncode, error["code"]) == (1, "copy_failed"), done.stderr
        assert "the copy cpy_" in error["message"]
        assert "No space left" in error["message"] or "full" in error["message"]
    assert answer("backup", "verify", home=tmp_path, **url)[0]["id"] == kept["id"]


def test_a_damaged_copy_is_named_and_the_rest_is_verified(home: Path) -> None:
    """001-54: `verify --all` exits 1 and continues with the other copies."""
    good, bad = answer("backup", home=home), answer("backup", home=home)
    (Path(bad["place"]) / f"{bad['id']}.json").write_text("{")
    assert [copy["state"] for copy in answer("backup", "list", home=home)] == ["damaged", "verified"]
    done = run("backup", "verify", "--all", "--json", home=home)
    assert done.returncode == 1
    assert [copy["id"] for copy in json.loads(done.stdout)["data"]] == [good["id"]]
    assert bad["id"] in done.stderr


def test_a_copy_is_read_by_standard_tools(home: Path, tmp_path: Path) -> None:
    """001-75: a copy is readable without standfast: sqlite3 opens the decompressed file."""
    import gzip

    without = tmp_path / "without"
    without.mkdir()
    (without / "zstandard.py").write_text("raise ImportError")
    made = answer("backup", home=home, PYTHONPATH=str(without))
    (file,) = Path(made["place"]).glob("*.db.gz")
    (tmp_path / "copy.db").write_bytes(gzip.decompress(file.read_bytes()))
    assert tasks_in(tmp_path / "copy.db") == 1
    other = answer("backup", home=home)
    assert list(Path(other["place"]).glob("*.db.zst"))
    code, error = failure("backup", "verify", other["id"], home=home, PYTHONPATH=str(without))
    assert (code, error["code"]) == (1, "missing_extra")
    assert error["hint"].startswith("pip install")


def test_a_copy_is_chosen_by_a_time_or_a_receipt(home: Path) -> None:
    """000-42: `restore` chooses the newest copy up to the time, or the oldest copy that has the receipt."""
    first = answer("backup", home=home)
    added = answer("task", "add", "two", home=home)
    receipt = f"{added['receipt']['seq']}:{added['receipt']['hash']}"
    second, third = answer("backup", home=home), answer("backup", home=home)

    def restored(*words: str) -> str:
        shutil.rmtree(home / "look", ignore_errors=True)
        return str(answer("restore", "--to", str(home / "look"), *words, home=home)["copy"])

    assert restored("--as-of", "0s") == third["id"]
    assert restored("--as-of", iso(second["taken_us"] - 1)) == first["id"]
    assert restored("--receipt", receipt) == second["id"]
    assert failure("restore", "--to", str(home / "x"), "--as-of", "2020-01-01", home=home)[0] == 3
    assert failure("restore", "--to", str(home / "x"), "--receipt", "999999:h2:" + "0" * 64, home=home)[0] == 3
    assert run("restore", "--to", "x", first["id"], "--as-of", "1h", home=home).returncode == 2
