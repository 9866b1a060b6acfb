"""The memory of stores: a missing store is reported and is never silently created again."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.db import store_memory
from tests import remembering
from tests.hooks import bash
from tests.remembering import environment, run


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of this process and of its children. standfast remembers the stores in it."""
    with remembering.home() as made:
        monkeypatch.setenv("HOME", str(made))
        monkeypatch.delenv("STANDFAST_REMEMBER")
        monkeypatch.delenv("STANDFAST_DATA_DIR")
        yield made


def files(home: Path) -> list[Path]:
    return sorted((home / ".local/state/standfast/stores").glob("*"))


def remembered(home: Path) -> dict[str, Any]:
    (path,) = files(home)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def code(error: str) -> str:
    return str(json.loads(error)["error"]["code"])


# The content of the file, and the times of its writes.


def test_one_private_file_has_the_location_of_the_store(home: Path) -> None:
    with standfast.open() as sf:
        id = sf.engine.store_id
        path = files(home)[0]
        assert path.name == f"{id}.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for parent in (path.parent, path.parent.parent):
            assert stat.S_IMODE(parent.stat().st_mode) == 0o700
        said = remembered(home)
        place = {
            "engine": "sqlite",
            "host": os.uname().nodename,
            "port": "",
            "name": str(home / ".standfast/standfast.db"),
        }
        assert (said["store_id"], said["epoch"], said["gates"], said["places"]) == (id, 1, False, [place])
        opened_us = said["time_us"]
        made = sf.tasks.add("x")
        assert made.receipt is not None
    said = remembered(home)
    assert {"seq": said["seq"], "hash": said["hash"]} == made.receipt.as_json()
    assert said["time_us"] > opened_us


def test_an_effect_that_begins_is_remembered_by_its_newest_row_before_it_is_sent(home: Path) -> None:
    """002-11: after a restore, the memory must know at least the newest effect that may have been sent."""
    with standfast.open() as sf:
        begun = sf.effects.begin("mail.send", {"to": "ann"})
        history = [event for event in sf.journal.tail(limit=100).events if event.subject == begun.id]
        assert len(history) > 1
        assert remembered(home)["seq"] == history[-1].seq


def test_other_stores_are_named_as_not_read_and_the_own_one_is_not(home: Path) -> None:
    """The output names the stores on this host that the command did not read."""
    from standfast.views.coverage import unread_stores

    with standfast.open() as sf:
        assert unread_stores(sf.settings) == []
        other = home / "other" / "standfast.db"
        standfast.open(other, data_dir=other.parent).close()
        (named,) = unread_stores(sf.settings)
        assert "other" in named


def test_the_directory_follows_the_state_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    standfast.open().close()
    assert len(list((home / "state/standfast/stores").iterdir())) == 1
    assert files(home) == []


def test_the_number_of_an_effect_is_noted_before_it_is_done(home: Path) -> None:
    """Decision 18: before each dispatch, the number of the effect is written into the memory outside the store."""
    seen: list[dict[str, Any]] = []

    def act(_: object) -> None:
        seen.append(remembered(home))

    with standfast.open() as sf:
        with sf.session("s") as s:
            s.effect("pay", {"n": 1}, do=act)
        about = {event.type: event for event in sf.journal.about(sf.effects.list()[0].id)}
        assert seen[0]["seq"] == about["effect.dispatched"].seq
        receipt = f"{seen[0]['seq']}:{seen[0]['hash']}"
        assert sf.journal.verify(receipt).type == "effect.dispatched"
        begun = sf.effects.begin("mail", {"n": 2}, key="m")
        assert remembered(home)["seq"] == sf.journal.about(begun.id)[-1].seq
        planned = sf.effects.begin("mail", {"n": 3}, key="p", plan=True)
        before = remembered(home)["seq"]
        sf.effects.dispatch(planned.id)
        assert remembered(home)["seq"] > before


def test_any_path_can_be_remembered(home: Path) -> None:
    """The file is written as JSON and searched as text: both must agree on every path."""
    for name in ('quo"te', "back\\slash", "ünïcödé 漢", "new\u2028line", "a" * 200):
        path = home / name / "s.db"
        standfast.open(path).close()
        (known,) = [known for known in store_memory.stores() if known.places[0].name == str(path)]
        before = os.stat(store_memory.path_of(known.store_id)).st_ino
        standfast.open(path).close()
        assert os.stat(store_memory.path_of(known.store_id)).st_ino == before  # changed in place
        path.unlink()
        with pytest.raises(standfast.StorageError, match="is missing"):
            standfast.open(path)


def test_the_remembered_sequence_number_never_falls(home: Path) -> None:
    with standfast.open() as sf:
        memory = sf._store.memory
        assert memory is not None
        memory.note(7, "h1:" + "a" * 64)
        memory.note(5, "h1:" + "b" * 64)
        assert (remembered(home)["seq"], remembered(home)["hash"][3]) == (7, "a")
        memory.note(2**63 - 1, "h1:" + "c" * 64)
        assert remembered(home)["seq"] == 2**63 - 1


def test_gates_are_remembered_when_one_is_added_and_when_the_last_is_removed(home: Path) -> None:
    with standfast.open() as sf:
        sf.gates.add("git push*")
        assert remembered(home)["gates"] is True
        sf.gates.remove("git push*")
        assert remembered(home)["gates"] is False


def test_a_daemon_writes_it_too(home: Path) -> None:
    from standfast.clock import ManualClock
    from standfast.daemon.jobs import REMEMBER_EVERY_US, Sweeping

    clock = ManualClock()
    with standfast.open(clock=clock) as sf:
        sweeping = Sweeping(sf)
        made = sf.tasks.add("x")
        assert made.receipt is not None
        clock.advance(REMEMBER_EVERY_US / 1_000_000 * 2)
        sweeping.step()
        assert remembered(home)["seq"] >= (made.receipt.seq or 0)


@pytest.mark.parametrize("off", ["0", "no", "false"])
def test_nothing_is_remembered_if_the_variable_disables_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setenv("STANDFAST_REMEMBER", off)
    standfast.open().close()
    shutil.rmtree(home / ".standfast")
    standfast.open().close()
    assert files(home) == []


def test_an_invalid_value_of_the_variable_is_refused(home: Path) -> None:
    done = run(home, "task", "add", "x", STANDFAST_REMEMBER="maybe")
    assert done.returncode == 78
    assert "STANDFAST_REMEMBER is neither 1 nor 0" in done.stderr


def test_nothing_in_a_temporary_directory_is_remembered(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    for place in (home / "tmp" / "a.db", Path("/dev/shm") / f"standfast-{os.getpid()}" / "a.db"):
        standfast.open(place).close()
        shutil.rmtree(place.parent)
        standfast.open(place).close()
        shutil.rmtree(place.parent)
    standfast.open(":memory:").close()
    assert files(home) == []


# A missing store.


def test_a_new_process_does_not_begin_again_where_a_store_was(home: Path) -> None:
    """000-1, R1: commands that write and commands that only read report the missing store."""
    assert run(home, "task", "add", "x").returncode == 0
    shutil.rmtree(home / ".standfast")
    for words in (
        ["task", "add", "y"],
        ["task", "list"],
        ["status"],
        ["brief"],
        ["state", "get", "k"],
        ["db"],
        ["loop", "run", "nightly"],
        ["daemon", "run"],
    ):
        done = run(home, *words, "--json")
        assert (done.returncode, code(done.stderr.splitlines()[-1])) == (78, "store_missing"), words
    assert not (home / ".standfast/standfast.db").exists()
    with pytest.raises(standfast.StorageError, match="is missing") as caught:
        standfast.open()
    assert caught.value.code == "store_missing"
    assert "its journal ended at 1" in caught.value.message
    assert "standfast store reset" in caught.value.hint
    assert "standfast store create --if-missing" in caught.value.hint
    found = {one["id"]: one for one in json.loads(run(home, "doctor", "--json").stdout)["data"]}
    assert found["store"]["state"] == "error"


def test_files_that_were_moved_back_are_opened_again(home: Path) -> None:
    run(home, "task", "add", "x")
    (home / ".standfast").rename(home / "away")
    assert run(home, "task", "list").returncode == 78
    (home / "away").rename(home / ".standfast")
    assert "x" in run(home, "task", "list").stdout


def test_an_empty_file_counts_as_no_store(home: Path) -> None:
    run(home, "task", "add", "x")
    for name in ("standfast.db-wal", "standfast.db-shm"):
        (home / ".standfast" / name).unlink(missing_ok=True)
    (home / ".standfast/standfast.db").write_bytes(b"")
    assert run(home, "task", "add", "y").returncode == 78


def test_a_moved_store_is_remembered_in_both_directories(home: Path) -> None:
    """A process with the old setting must not begin a second store; the message says where the store is."""
    run(home, "task", "add", "x")
    (home / "new").mkdir()
    (home / ".standfast/standfast.db").rename(home / "new/standfast.db")
    for suffix in ("-wal", "-shm"):
        if (home / f".standfast/standfast.db{suffix}").exists():
            (home / f".standfast/standfast.db{suffix}").rename(home / f"new/standfast.db{suffix}")
    assert run(home, "task", "list", STANDFAST_DB_URL=str(home / "new/standfast.db")).returncode == 0
    done = run(home, "task", "add", "y")
    assert done.returncode == 78
    assert f"since then it was opened at {home / 'new/standfast.db'}" in done.stderr


def test_another_host_with_the_same_home_is_another_location(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(home, "task", "add", "x")
    path = files(home)[0]
    path.write_text(path.read_text().replace(f'"{os.uname().nodename}"', '"elsewhere"'))
    shutil.rmtree(home / ".standfast")
    assert run(home, "task", "add", "y").returncode == 0


def test_a_damaged_file_of_the_memory_stops_nothing(home: Path) -> None:
    run(home, "task", "add", "x")
    path = files(home)[0]
    good = path.read_text()
    damaged = (
        good.replace('"epoch": 1', '"epoch": Infinity'),
        json.dumps({**json.loads(good), "time_us": 10**30}),
        good.replace("standfast.db", "standfast\\u0000.db"),
    )
    for text in ("", "{", "[]", '{"seq": 1}', "\0" * 100, "[" * 60_000, *damaged):
        assert text != good
        path.write_text(text)
        assert run(home, "store", "list").returncode == 0
        assert run(home, "task", "list").returncode == 0
        assert remembered(home)["store_id"] == path.stem


def test_a_note_is_kept_while_another_handle_replaces_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An effect records its number before it is sent. A change of gates at that time must not restore an older
    number.
    """
    one, two = (store_memory.Memory("sto_a", 1, store_memory.Place("sqlite", "h", "", "/s.db")) for _ in range(2))
    one.opened(1)
    noting, write = threading.Thread(target=two.note, args=(9, "h2:")), store_memory._write

    def slow(path: str, what: store_memory.Remembered) -> None:
        noting.start()
        noting.join(0.3)
        write(path, what)

    monkeypatch.setattr(store_memory, "_write", slow)
    one.opened(2, gates=True)
    noting.join()
    known = one.known()
    assert known is not None
    assert (known.seq, known.gates, one.problem, two.problem) == (9, True, "", "")


@pytest.mark.without_store
def test_a_dropped_database_of_a_server_is_missing_too(
    home: Path, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    assert run(home, "task", "add", "x", STANDFAST_DB_URL=pg_database).returncode == 0
    place = remembered(home)["places"][0]
    assert (place["engine"], place["host"], place["name"]) == (
        "postgres",
        "127.0.0.1",
        pg_database.rpartition("/")[2].partition("?")[0],
    )
    assert "postgres@" not in files(home)[0].read_text()
    with psycopg.connect(pg_database, autocommit=True) as connection:
        connection.execute("DROP SCHEMA standfast CASCADE")
    done = run(home, "task", "add", "y", "--json", STANDFAST_DB_URL=pg_database)
    assert (done.returncode, code(done.stderr)) == (78, "store_missing")
    assert run(home, "store", "create", "--if-missing", STANDFAST_DB_URL=pg_database).returncode == 0
    assert run(home, "task", "add", "y", STANDFAST_DB_URL=pg_database).returncode == 0


# Containers and CI runners.


def test_a_container_that_starts_with_an_empty_volume(home: Path) -> None:
    """Unattended: its home is in the image and its data in a volume, which may be new or lost."""
    data = home / "volume"
    start = ("store", "create", "--if-missing", "--json")
    made = [json.loads(run(home, *start, STANDFAST_DATA_DIR=str(data)).stdout)["data"] for _ in range(2)]
    assert [one["created"] for one in made] == [True, False]
    assert run(home, "task", "add", "x", STANDFAST_DATA_DIR=str(data)).returncode == 0
    shutil.rmtree(data)
    assert run(home, "task", "add", "y", STANDFAST_DATA_DIR=str(data)).returncode == 78
    again = json.loads(run(home, *start, STANDFAST_DATA_DIR=str(data)).stdout)["data"]
    assert (again["created"], again["instead_of"]) == (True, [made[0]["store_id"]])
    assert run(home, "task", "add", "y", STANDFAST_DATA_DIR=str(data)).returncode == 0
    states = {one["store_id"]: one["state"] for one in json.loads(run(home, "store", "list", "--json").stdout)["data"]}
    assert states == {made[0]["store_id"]: "given up", again["store_id"]: "present"}


def test_a_ci_runner_that_cleans_its_home(home: Path) -> None:
    """The runner removes the whole home with the memory of stores: the next job begins with an empty store."""
    for _ in range(2):
        assert run(home, "task", "add", "x").returncode == 0
        for left in home.iterdir():
            shutil.rmtree(left)
    assert run(home, "task", "add", "x").returncode == 0
    shutil.rmtree(home / ".standfast")  # a runner that removes only the data gets an error
    assert run(home, "task", "add", "x").returncode == 78
    assert run(home, "task", "add", "x", STANDFAST_REMEMBER="0").returncode == 0


def test_a_state_directory_that_cannot_be_written(home: Path) -> None:
    """A file in place of the directory also stops root. Work continues, and `doctor` reports the problem."""
    (home / ".local").write_text("in the way")
    assert run(home, "task", "add", "x").returncode == 0
    with standfast.open() as sf:
        sf.gates.add("git push*")
        with sf.session("s") as s:
            s.effect("pay", {"n": 1}, do=lambda call: None)
        assert sf._store.memory is not None
        assert sf._store.memory.problem
    done = run(home, "doctor", "--json")
    assert done.returncode == 0
    found = {one["id"]: one for one in json.loads(done.stdout)["data"]}
    assert found["memory"]["state"] == "warn"
    assert f"{home / '.local'} is not a directory" in found["memory"]["text"]


def test_a_hook_spools_and_prints_one_line(home: Path) -> None:
    run(home, "task", "add", "x")
    shutil.rmtree(home / ".standfast")
    done = run(home, "hook", "claude-code", input=json.dumps(bash("PreToolUse", "git push", cwd=home)))
    assert (done.returncode, done.stdout) == (0, "")
    assert len(done.stderr.splitlines()) == 1
    assert "is missing" in done.stderr
    assert not (home / ".standfast/standfast.db").exists()
    assert list((home / ".standfast/spool").iterdir())


def test_a_hook_refuses_every_call_if_the_missing_store_had_gates(home: Path) -> None:
    """The store is missing, and with it its gates and their copy."""
    run(home, "gate", "add", "git push*")
    shutil.rmtree(home / ".standfast")
    done = run(home, "hook", "claude-code", input=json.dumps(bash("PreToolUse", "ls", cwd=home)))
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert "the store that holds the gates is missing" in said["permissionDecisionReason"]
    answered = run(home, "hook", "claude-code", input=json.dumps(bash("PostToolUse", "ls", cwd=home)))
    assert (answered.returncode, answered.stdout) == (0, "")


# Commands.


def test_list_and_show_name_existing_and_missing_stores(home: Path) -> None:
    assert "no store is remembered" in run(home, "store", "list").stderr
    assert run(home, "store", "show").returncode == 3
    run(home, "task", "add", "x")
    (one,) = json.loads(run(home, "store", "list", "--json").stdout)["data"]
    assert (one["state"], one["seq"], one["configured_here"]) == ("present", 1, True)
    assert one["place"] == str(home / ".standfast/standfast.db")
    shutil.rmtree(home / ".standfast")
    (one,) = json.loads(run(home, "store", "list", "--json").stdout)["data"]
    assert one["state"] == "missing"
    assert json.loads(run(home, "store", "show", "--json").stdout)["data"] == one
    assert json.loads(run(home, "store", "show", one["store_id"][-6:], "--json").stdout)["data"] == one


def test_create_refuses_to_replace_a_store(home: Path) -> None:
    run(home, "task", "add", "x")
    assert run(home, "store", "create").returncode == 4
    assert "x" in run(home, "task", "list").stdout


def test_an_agent_may_create_a_first_store_and_not_another_one(home: Path) -> None:
    """RULES 9: a new store in place of a missing one is a reset. The message names the variable of the agent."""
    assert run(home, "store", "create", CLAUDECODE="1").returncode == 0
    shutil.rmtree(home / ".standfast")
    done = run(home, "store", "create", "--if-missing", CLAUDECODE="1")
    assert done.returncode == 5
    assert "CLAUDECODE is set" in done.stderr
    assert run(home, "task", "add", "x").returncode == 78


def test_reset_moves_the_store_aside_and_forgets_it(home: Path) -> None:
    run(home, "task", "add", "x")
    run(home, "gate", "add", "git push*")
    (home / "large").write_bytes(b"1" * 10)
    run(home, "artifact", "put", str(home / "large"))
    before = {path.name for path in (home / ".standfast").iterdir()}
    asked = run(home, "store", "reset", "--json")
    plan = json.loads(asked.stdout)["data"]
    assert (asked.returncode, code(asked.stderr)) == (5, "confirm_required")
    assert {path.name for path in (home / ".standfast").iterdir()} == before
    done = run(home, "store", "reset", "--confirm", plan["hash"], "--json")
    assert done.returncode == 0, done.stderr
    (aside,) = (home / ".standfast").glob("standfast.db.reset-*")
    assert {"standfast.db", "artifacts", "gates.json"} <= {path.name for path in aside.iterdir()}
    assert not (home / ".standfast/standfast.db").exists()
    assert files(home) == []
    assert run(home, "task", "list").returncode == 0
    assert run(home, "task", "add", "y").returncode == 0
    assert "x" in run(home, "task", "list", STANDFAST_DB_URL=str(aside / "standfast.db")).stdout


def test_reset_loses_nothing_that_is_only_in_the_log(home: Path) -> None:
    """Another process has the store open, so its WAL stays."""
    with standfast.open() as sf:
        sf.tasks.add("in the log")
        plan = json.loads(run(home, "store", "reset", "--json").stdout)["data"]
        assert run(home, "store", "reset", "--confirm", plan["hash"]).returncode == 0
        codes = []
        for _ in range(2):
            with pytest.raises(standfast.StorageError) as caught:
                sf.tasks.add("later")
            codes.append(caught.value.code)
        assert codes[-1] == "store_missing"
    (aside,) = (home / ".standfast").glob("standfast.db.reset-*")
    assert "in the log" in run(home, "task", "list", "--all", STANDFAST_DB_URL=str(aside / "standfast.db")).stdout


def test_reset_of_a_missing_store_only_forgets_it(home: Path) -> None:
    run(home, "task", "add", "x")
    shutil.rmtree(home / ".standfast")
    plan = json.loads(run(home, "store", "reset", "--json").stdout)["data"]
    assert plan["moves"] == []
    assert run(home, "store", "reset", "--confirm", plan["hash"]).returncode == 0
    assert run(home, "task", "add", "y").returncode == 0
    shutil.rmtree(home / ".standfast")
    shutil.rmtree(home / ".local")
    assert run(home, "store", "reset").returncode == 3


def test_a_plan_is_for_one_store(home: Path) -> None:
    run(home, "task", "add", "x")
    hash = json.loads(run(home, "store", "reset", "--json").stdout)["data"]["hash"]
    assert run(home, "store", "reset", "--confirm", "0" * 12).returncode == 4
    assert run(home, "store", "reset", "--confirm", hash).returncode == 0
    run(home, "task", "add", "y")
    assert run(home, "store", "reset", "--confirm", hash).returncode == 4
    assert "y" in run(home, "task", "list").stdout


def test_reset_is_refused_to_agents_even_with_the_hash(home: Path) -> None:
    run(home, "task", "add", "x")
    hash = json.loads(run(home, "store", "reset", "--json").stdout)["data"]["hash"]
    done = run(home, "store", "reset", "--confirm", hash, CODEX_THREAD_ID="1")
    assert done.returncode == 5
    assert "CODEX_THREAD_ID is set" in done.stderr
    assert "x" in run(home, "task", "list").stdout


def test_reset_on_a_server_renames_the_schema(pg_database: str, home: Path) -> None:
    """The database is listed first: its template must not be remembered in this home."""
    import psycopg

    run(home, "task", "add", "x", STANDFAST_DB_URL=pg_database)
    plan = json.loads(run(home, "store", "reset", "--json", STANDFAST_DB_URL=pg_database).stdout)["data"]
    assert run(home, "store", "reset", "--confirm", plan["hash"], STANDFAST_DB_URL=pg_database).returncode == 0
    assert files(home) == []
    with psycopg.connect(pg_database) as connection:
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'standfast%'").fetchall()
        assert len(schemas) == 1
        row = connection.execute(f"SELECT title FROM {schemas[0][0]}.task".encode()).fetchone()
        assert row == ("x",)
    assert run(home, "task", "add", "y", STANDFAST_DB_URL=pg_database).returncode == 0


def test_a_terminal_is_asked(home: Path) -> None:
    """Decision 19: a terminal shows the plan, and the person types yes."""
    import pty
    import subprocess
    import sys

    run(home, "task", "add", "x")
    for answer, code in ((b"no\n", 5), (b"yes\n", 0)):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "standfast", "store", "reset"], environment(home))
        shown = b""
        while b"Type yes" not in shown:
            shown += os.read(fd, 1000)
        assert str(home / ".standfast/standfast.db").encode() in shown.replace(b"\r\n", b"")
        os.write(fd, answer)
        try:
            while os.read(fd, 1000):
                pass
        except OSError:
            pass  # the terminal is closed with its last process
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        os.close(fd)
    assert subprocess.run(["ls", home / ".standfast"], capture_output=True, text=True).stdout.count("reset-") == 1


def test_the_all_clear_names_the_stores_it_did_not_read(home: Path) -> None:
    """002-18: "nothing waits" covers the stores that the command read; the others are named."""
    run(home, "task", "add", "x", STANDFAST_DB_URL=str(home / "other.db"))
    said = run(home, "status").stdout
    assert "Nothing needs you now in this store." in said
    assert str(home / "other.db") in said
    assert json.loads(run(home, "status", "--json").stdout)["data"]["unread_stores"] == [str(home / "other.db")]


@pytest.mark.parametrize("words", [["approval", "list"], ["approve"], ["brief"]], ids=" ".join)
def test_what_waits_and_the_brief_name_the_stores_they_did_not_read(home: Path, words: list[str]) -> None:
    """002-18: on stderr, with and without a store of the caller."""
    other = str(home / "other.db")
    run(home, "task", "add", "x", STANDFAST_DB_URL=other)
    said = f"standfast: Not read: {other} (standfast store list)"
    if words == ["brief"]:
        assert said in run(home, *words).stderr
    run(home, "task", "add", "y")
    assert said in run(home, *words).stderr
    assert "Not read" in run(home, *words, STANDFAST_DB_URL=other).stderr
    if words == ["brief"]:
        assert json.loads(run(home, *words, "--json").stdout)["data"]["unread_stores"] == [other]


def test_servers_are_named_as_in_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STANDFAST_REMEMBER")

    def place(url: str) -> tuple[str, str, str] | None:
        found = store_memory.place_of(standfast.config.Target("postgres", url))
        return (found.host, found.port, found.name) if found else None

    assert place("postgresql://ada:secret@db.example.org/state") == ("db.example.org", "5432", "state")
    assert place("postgresql://a@one:1,two:2/state") == ("one,two", "1,2", "state")
    assert place("postgresql://a@[::1]:77/state") == ("[::1]", "77", "state")
    assert place("postgresql://ada@/?host=/run/pg&port=6&dbname=d") == ("/run/pg", "6", "d")
    assert place("postgresql://ada@db") == ("db", "5432", "ada")
    assert place("postgresql://ada@db/my%20state?host=%2Frun%2Fpg") == ("/run/pg", "5432", "my state")
    assert place("postgresql://a@/x?host=/tmp/pg") is None
