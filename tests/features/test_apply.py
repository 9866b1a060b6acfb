"""Apply: dry-run, preflight and commit of a file. Each key and specification is applied once."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.db.sql import statement
from standfast.errors import InvalidInput, KeyConflict
from standfast.record.apply import read, read_text
from standfast_prove.crashes.apply import FLEET, with_
from standfast_prove.faults.children import Nursery
from tests.interfaces.test_cli import environment, run

TABLES = ("task", "task_need", "loop", "state", "gate", "event", "application", "agent")


def contents(sf: standfast.Standfast) -> dict[str, list[str]]:
    """Every row of every table that apply could touch."""
    return {table: sorted(map(repr, sf.rows(f"SELECT * FROM {table}"))) for table in TABLES}


def actions(applied: Any) -> list[str]:
    return [change.action for change in applied.changes]


def test_commit_makes_it_so_and_answers_with_references(sf: standfast.Standfast) -> None:
    """000-28, 000-29: the caller's key and the hash of the specification identify a row. Commit returns durable
    refs.
    """
    applied = sf.apply(FLEET, key="k", mode="commit")
    assert (actions(applied), applied.problems, applied.replayed) == (["new"] * 7, (), False)
    keys, publish, release = (sf.tasks.get(applied.refs[f"tasks[{n}]"] or "") for n in range(3))
    assert (keys.priority, keys.labels, keys.cool_down_us, keys.occurrences) == (1, ("keys", "ops"), 86_400_000_000, 1)
    assert (publish.parent_id, publish.due_us) == (release.id, 1_796_115_600_000_000)
    assert [other.id for other in sf.tasks.show(publish.id).needs] == [keys.id]
    assert sf.loops.get("nightly").id == applied.refs["loops[0]"]
    assert (sf.state.get("limits").value, sf.state.get("limits").verify) == ({"cpu": 2}, "true")
    assert {gate.pattern: (gate.need, gate.repository) for gate in sf.gates.list()} == {
        "git push*": ("approval", sf._store.caller.keyspace.repository),
        "rm *": ("effect", ""),
    }
    assert applied.receipt is not None
    assert sf.journal.verify(str(applied.receipt)).type == "application.committed"


def test_the_same_key_and_specification_again_is_answered_from_the_record(sf: standfast.Standfast) -> None:
    first = sf.apply(FLEET, key="k", mode="commit")
    sf.tasks.done(first.refs["tasks[0]"] or "")
    sf.state.set("limits", {"cpu": 9})
    before = contents(sf)
    again = sf.apply(json.loads(json.dumps(FLEET)), key="k", mode="commit")
    assert (again.replayed, again.refs, again.changes, again.receipt) == (True, first.refs, first.changes, None)
    assert contents(sf) == before
    assert sf.apply(FLEET, key="k").replayed


def test_the_same_key_with_another_specification_is_a_conflict(sf: standfast.Standfast) -> None:
    sf.apply(FLEET, key="k", mode="commit")
    before, other = contents(sf), with_(FLEET, "tasks", 0, priority=0)
    for mode in ("commit", "dry-run"):
        with pytest.raises(KeyConflict, match=r"the key 'k' was used for another specification \(20.*, by "):
            sf.apply(other, key="k", mode=mode)
    assert sf.apply(other, key="k", mode="preflight").problems[0].startswith("the key 'k' was used")
    assert contents(sf) == before


def test_another_key_changes_only_what_differs(sf: standfast.Standfast) -> None:
    first = sf.apply(FLEET, key="k", mode="commit")
    sf.tasks.edit(first.refs["tasks[1]"] or "", assignee="ann")  # the file does not mention it
    other = with_(with_(FLEET, "tasks", 0, priority=0, labels=["ops"]), "state", 0, value={"cpu": 3})
    other = with_(with_(other, "loops", 0, timeout="1h"), "tasks", 2, needs=["keys"])
    shown = sf.apply(other)
    assert actions(shown) == ["changed", "same", "changed", "changed", "changed", "same", "same"]
    assert shown.changes[0].fields == {
        "priority": {"was": 1, "is": 0},
        "labels": {"was": ",keys,ops,", "is": ",ops,"},
    }
    second = sf.apply(other, key="k2", mode="commit")
    assert second.refs == first.refs
    assert (sf.state.get("limits").value, sf.state.get("limits").version) == ({"cpu": 3}, 2)
    assert sf.tasks.get(first.refs["tasks[0]"] or "").labels == ("ops",)
    assert sf.tasks.get(first.refs["tasks[1]"] or "").assignee == "ann"
    assert sf.loops.get("nightly").timeout_us == 3_600_000_000
    assert set(actions(sf.apply(other))) == {"same"}


def test_due_and_cool_down_of_a_task_are_changed(sf: standfast.Standfast) -> None:
    task = {"title": "rotate keys", "due": "2026-12-01T09:00:00+00:00", "cool_down": "1h"}
    first = sf.apply({"tasks": [task]}, key="k", mode="commit")
    later = task | {"due": "2026-12-02T09:00:00+00:00", "cool_down": "2h"}
    assert sf.apply({"tasks": [later]}, key="k2", mode="commit").refs == first.refs
    changed = sf.tasks.get(first.refs["tasks[0]"] or "")
    assert (changed.due_us, changed.cool_down_us) == (1_796_202_000_000_000, 7_200_000_000)
    assert actions(sf.apply({"tasks": [later]})) == ["same"]


def test_nothing_is_deleted_by_absence(sf: standfast.Standfast) -> None:
    sf.apply(FLEET, key="k", mode="commit")
    before = {table: rows for table, rows in contents(sf).items() if table not in ("event", "application")}
    assert sf.apply({}, key="empty", mode="commit").changes == ()
    assert {table: rows for table, rows in contents(sf).items() if table in before} == before


def test_a_task_that_is_done_stays_done(sf: standfast.Standfast) -> None:
    first = sf.apply({"tasks": [{"title": "once"}]}, key="k", mode="commit")
    sf.tasks.done(first.refs["tasks[0]"] or "")
    again = sf.apply({"tasks": [{"title": "once", "priority": 0}]}, key="k2", mode="commit")
    assert (actions(again), again.refs) == (["closed"], first.refs)
    assert sf.tasks.get(first.refs["tasks[0]"] or "").state == "closed"


def test_dry_run_and_preflight_write_nothing_at_all(sf: standfast.Standfast) -> None:
    """000-29: dry-run and preflight come before the commit."""
    sf.apply(FLEET, key="k", mode="commit")
    before = contents(sf)
    for mode in ("dry-run", "preflight"):
        sf.apply(with_(FLEET, "tasks", 0, title="another one"), key="k3", mode=mode)
        sf.apply({"gates": [{"pattern": "git push*", "need": "effect"}]}, mode=mode)
    assert contents(sf) == before


# -- all or nothing --------------------------------------------------------------------------------------


def test_preflight_names_each_check_that_fails_and_the_commit_changes_nothing(sf: standfast.Standfast) -> None:
    """000-29: preflight names the exact failing check."""
    sf.gates.add("git push*", need="effect")
    sf.state.set("n", 1, json_schema={"type": "integer"})
    wrong = {
        "tasks": [{"title": "a", "needs": ["missing"]}, {"title": "b", "priority": "high"}, {"title": "A"}],
        "state": [{"key": "n", "value": "text"}],
        "gates": [{"pattern": "git push*"}],
        "loops": [{"name": "l", "command": ["x"], "at": "2001-01-01T00:00:00Z"}],
        "queues": [],
    }
    problems = sf.apply(wrong, mode="preflight").problems
    wanted = [
        "tasks[1] (b): priority is a whole number, not text",
        "'queues' is not a section; there are: tasks, loops, state, gates",
        "tasks[2] (A): it is tasks[0] already",
        "tasks[0] (a): there is no task 'missing' in this scope",
        "state[0] (n): state 'n' does not fit its schema: integer is wanted, found string",
        "gates[0] (git push*): it exists and needs effect, not approval: a person has to remove it first",
        "loops[0] (l): its moment is over",
    ]
    assert sorted(problems) == sorted(wanted)
    before = contents(sf)
    with pytest.raises(InvalidInput, match="and 2 more"):
        sf.apply(wrong, key="k", mode="commit")
    with pytest.raises(InvalidInput, match="does not fit its schema"):
        sf.apply({"tasks": [{"title": "fine"}], "state": wrong["state"]}, key="k", mode="commit")
    assert contents(sf) == before


def test_what_only_the_commit_can_see_takes_everything_back(sf: standfast.Standfast) -> None:
    """A circle between a task of the file and one of the store is found in the transaction, which is rolled back."""
    old, older = sf.tasks.add("old"), sf.tasks.add("older")
    sf.tasks.need(old.id, older.id)
    before = contents(sf)
    spec = {
        "gates": [{"pattern": "git push*"}],
        "tasks": [{"name": "new", "title": "new", "needs": [old.id]}, {"title": "older", "needs": ["new"]}],
    }
    with pytest.raises(standfast.Conflict, match="each would wait for the other"):
        sf.apply(spec, key="k", mode="commit")
    assert contents(sf) == before
    assert sf.apply({"tasks": []}, key="k", mode="commit").replayed is False  # the key is free


def test_a_commit_is_refused_inside_a_transaction_and_without_a_key(sf: standfast.Standfast) -> None:
    with pytest.raises(InvalidInput, match="cannot run inside a transaction"), sf.transaction():
        sf.apply({}, key="k", mode="commit")
    with pytest.raises(InvalidInput, match="a commit needs a key"):
        sf.apply({}, mode="commit")
    with pytest.raises(InvalidInput, match="a mode is dry-run, preflight, commit"):
        sf.apply({}, mode="yes")
    with pytest.raises(InvalidInput, match="an application's key is empty"):
        sf.apply({}, key=" ", mode="commit")


def test_it_is_there_awaited(engine_url: str, tmp_path: Path) -> None:
    async def program() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            first = await sf.apply(FLEET, key="k", mode="commit")
            again = await sf.apply(FLEET, key="k", mode="commit")
            assert (again.replayed, again.refs) == (True, first.refs)

    asyncio.run(program())


# -- many at once ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def commit(url: str, data: str, out: str, number: int) -> None:
    """Apply two keys in a child process: one that all children share, and one of this child."""
    with handle.connect(config.load(url, data_dir=data, scope="here")) as sf:
        refs = sf.apply(FLEET, key="k", mode="commit").refs
        sf.apply(FLEET, key=f"k{number}", mode="commit")
        (Path(out) / str(number)).write_text(json.dumps(refs))


def test_of_eight_processes_that_apply_one_file_one_does_it_and_all_get_its_references(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    """000-28: a retried call cannot create a duplicate."""
    handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope="here")).close()
    asked: dict[str, object] = {"url": engine_url, "data": str(tmp_path / "data"), "out": str(tmp_path)}
    pids = nursery.race("tests.features.test_apply:commit", [asked | {"number": n} for n in range(8)])
    assert [nursery.wait(pid, 60) for pid in pids] == [0] * 8
    refs = [json.loads((tmp_path / str(n)).read_text()) for n in range(8)]
    assert all(one == refs[0] for one in refs)
    with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope="here")) as sf:
        assert [task.occurrences for task in sf.tasks.list(state="any")] == [1, 1, 1]
        assert len(sf.loops.list()) == 1
        committed = list(sf.rows("SELECT * FROM event WHERE type = 'application.committed'"))
        assert len(committed) == 9


# -- garbage ---------------------------------------------------------------------------------------------


GARBAGE: dict[str, tuple[Any, str]] = {
    "no list": ({"tasks": {"title": "x"}}, r"tasks is a list of entries, not an object: \[\[tasks\]\] in TOML"),
    "no object": ({"tasks": ["x"]}, r"tasks\[0\]: an entry is an object of fields, not text"),
    "no title": ({"tasks": [{}]}, r"tasks\[0\]: title is missing"),
    "no such field": ({"tasks": [{"title": "x", "prio": 1}]}, r"tasks\[0\] \(x\): there is no field 'prio'"),
    "true as number": ({"tasks": [{"title": "x", "priority": True}]}, "priority is a whole number, not true or false"),
    "priority": ({"tasks": [{"title": "x", "priority": 100}]}, "a priority is a whole number from 0 to 99"),
    "labels": ({"tasks": [{"title": "x", "labels": "ci"}]}, "labels is a list of texts, not text"),
    "due": ({"tasks": [{"title": "x", "due": "tomorrow"}]}, "due: 'tomorrow' is not a time"),
    "no zone": ({"tasks": [{"title": "x", "due": "2026-12-01T09:00:00"}]}, "has no time zone"),
    "cool-down": ({"tasks": [{"title": "x", "cool_down": 5}]}, "cool_down is a duration"),
    "empty title": ({"tasks": [{"title": " "}]}, "a task's title is empty"),
    "circle": (
        {"tasks": [{"title": "a", "name": "a", "needs": ["b"]}, {"title": "b", "name": "b", "needs": ["a"]}]},
        r"tasks\[0\], tasks\[1\]: each waits for another",
    ),
    "its own parent": ({"tasks": [{"title": "a", "name": "a", "parent": "a"}]}, "each waits for another"),
    "name twice": ({"tasks": [{"title": "a", "name": "n"}, {"title": "b", "name": "n"}]}, "the name 'n' is that of"),
    "no schedule": ({"loops": [{"name": "l", "command": ["x"]}]}, r"loops\[0\] \(l\): "),
    "no command": ({"loops": [{"name": "l", "command": "make", "every": "1h"}]}, "command is a list of texts"),
    "no value": ({"state": [{"key": "k"}]}, r"state\[0\] \(k\): value is missing"),
    "unfit": ({"state": [{"key": "k", "value": 1, "json_schema": {"type": "string"}}]}, "does not fit its schema"),
    "keyword": ({"state": [{"key": "k", "value": 1, "json_schema": {"pattern": "x"}}]}, "the keyword 'pattern'"),
    "no term": ({"state": [{"key": "k", "value": 1, "for": "0s"}]}, "must be between 1 µs and a hundred years"),
    "need": ({"gates": [{"pattern": "x", "need": "luck"}]}, "a gate needs approval, effect, ask"),
    "pattern": ({"gates": [{"pattern": ""}]}, r"gates\[0\]: a gate's pattern"),
    "section": ({"task": []}, "'task' is not a section; there are: tasks, loops, state, gates"),
    "many": ({"state": [{"key": f"k{n}", "value": n} for n in range(301)]}, "301 entries, and the limit is 300"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_an_invalid_value_is_refused_with_its_position_and_field(what: str) -> None:
    document, wanted = GARBAGE[what]
    problems = read(document).problems
    assert len(problems) == 1, problems
    with pytest.raises(AssertionError, match=wanted):
        raise AssertionError(problems[0])


@pytest.mark.parametrize("document", [[], "x", 5, None, {"a": float("nan")}, {"tasks": [{"title": "\ud800"}]}])
def test_a_value_that_is_no_specification_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        read(document)


def test_a_file_that_cannot_be_parsed_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidInput, match=r"f.toml is not TOML: .*line 2"):
        read_text(b"[[tasks]]\ntitle = \n", what="f.toml")
    with pytest.raises(InvalidInput, match=r"f.json: line 2 column 1"):
        read_text(b'{"tasks":\n', what="f.json")
    with pytest.raises(InvalidInput, match="'tasks'"):
        read_text(b'{"tasks": [], "tasks": []}', what="f.json")
    with pytest.raises(InvalidInput, match="line 2 is not UTF-8"):
        read_text(b"# fine\n\xff", what="f.toml")
    with pytest.raises(InvalidInput, match="bytes, and the limit is"):
        read_text(b" " * 2_000_000, what="f.toml")


def test_equal_toml_and_json_are_the_same_specification() -> None:
    toml = b'[[tasks]]\ntitle = "x"\ndue = 2026-12-01T09:00:00+00:00\n'
    text = b'{"tasks": [{"due": "2026-12-01T09:00:00+00:00", "title": "x"}]}'
    assert read_text(toml, what="a.toml") == read_text(text, what="standard input")


# -- from a shell ----------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "fleet.json").write_text(json.dumps(FLEET))
    return tmp_path / "home"


def test_a_dry_run_makes_not_even_a_store(home: Path) -> None:
    """000-29: dry-run creates no DB file."""
    for mode in ([], ["--dry-run"], ["--preflight"]):
        done = run("apply", "fleet.json", *mode, "--key", "k", home=home)
        assert (done.returncode, done.stdout.count("+ ")) == (0, 7), done.stderr
    (home / "bad.json").write_text('{"tasks": [{"title": "x", "needs": ["y"]}]}')
    assert run("apply", "bad.json", "--preflight", home=home).returncode == 1
    assert run("apply", "bad.toml", "--commit", "--key", "k", home=home).returncode == 2
    (home / "bad.toml").write_text("[[tasks]]\nx = 1\n")
    assert run("apply", "bad.toml", "--commit", "--key", "k", home=home).returncode == 2
    assert sorted(os.listdir(home)) == ["bad.json", "bad.toml", "fleet.json"]


@pytest.mark.without_store
def test_a_dry_run_makes_no_schema_on_a_server_either(home: Path, pg_database: str) -> None:
    import psycopg

    assert run("apply", "fleet.json", home=home, STANDFAST_DB_URL=pg_database).returncode == 0
    with psycopg.connect(pg_database) as server:
        assert server.execute("SELECT to_regnamespace('standfast')").fetchone() == (None,)
    commit = ("apply", "fleet.json", "--commit", "--key", "k")
    assert run(*commit, home=home, STANDFAST_DB_URL=pg_database).returncode == 0
    assert "+" not in run("apply", "fleet.json", home=home, STANDFAST_DB_URL=pg_database).stdout


def test_a_dry_run_does_not_bring_an_old_store_up_to_date(home: Path) -> None:
    """A later migration, which only this test has, makes the current store an old one."""
    assert run("task", "add", "x", home=home).returncode == 0
    place = home / ".standfast" / "standfast.db"
    before = place.read_bytes()
    code = (
        "import sys; from standfast.db import migrations; from standfast.db.migrations.migration import Migration\n"
        "later = Migration(migrations.LATEST + 1, 'later', 'CREATE TABLE later (a TEXT) STRICT;')\n"
        "migrations.MIGRATIONS += (later,)\n"
        "from standfast.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "apply", "fleet.json", "--json"]
    done = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (1, "schema_older")
    assert place.read_bytes() == before


def test_apply_in_a_shell(home: Path) -> None:
    assert run("apply", "fleet.json", "--commit", home=home).returncode == 2
    done = run("apply", "fleet.json", "--commit", "--key", "k", "--json", home=home)
    first = json.loads(done.stdout)["data"]
    assert (done.returncode, first["replayed"], len(first["refs"])) == (0, False, 7)
    assert run("verify", json.dumps(first["receipt"]), home=home).returncode == 0
    again = run("apply", "-", "--commit", "--key", "k", "--json", home=home, input=json.dumps(FLEET))
    assert (json.loads(again.stdout)["data"]["replayed"], json.loads(again.stdout)["data"]["refs"]) == (
        True,
        first["refs"],
    )
    (home / "fleet.json").write_text(json.dumps(with_(FLEET, "tasks", 0, priority=3)))
    conflict = run("apply", "fleet.json", "--commit", "--key", "k", "--json", home=home)
    assert (conflict.returncode, json.loads(conflict.stderr)["error"]["code"]) == (4, "key_conflict")
    shown = run("apply", "fleet.json", home=home)
    assert "~ tasks  rotate the keys" in shown.stdout
    assert "    priority: 1 → 3" in shown.stdout
    assert json.loads(run("gate", "list", "--json", home=home).stdout)["data"] != []
    assert (home / ".standfast" / "gates.json").exists()


def test_the_keys_of_two_scopes_are_two_keys(engine_url: str, tmp_path: Path) -> None:
    for scope in ("one", "two"):
        with handle.connect(config.load(engine_url, data_dir=tmp_path / "data", scope=scope)) as sf:
            assert not sf.apply({"tasks": [{"title": scope}]}, key="k", mode="commit").replayed
            assert sf.read(lambda tx: tx.one(statement("SELECT count(*) AS n FROM application")))["n"] >= 1
