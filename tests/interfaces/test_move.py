"""`standfast db move`: every row is moved to the other engine and back; after a kill one store is the authority."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast import config, files, hints
from standfast.admin import move as admin_move
from standfast.admin.copies import automatic
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import read
from standfast.admin.copies.restore import restore
from standfast.admin.copies.restore_here import look, promote
from standfast.admin.move import SQL, _compare, _mover, carried
from standfast.config.target import Target
from standfast.db.move_mark import Moved
from standfast.db.postgres import copies as server
from standfast.db.sqlite import move as local
from standfast.db.tables import Sum, line
from standfast.interchange import plain_files
from tests import remembering

pytestmark = pytest.mark.without_store

Run = Callable[..., Any]


@pytest.fixture
def home() -> Iterator[Path]:
    with remembering.home() as made:
        yield made


@pytest.fixture
def shell(home: Path) -> Run:
    return lambda url, *words, **variables: remembering.run(home, *words, STANDFAST_DB_URL=url, **variables)


def answer(shell: Run, url: str, *words: str) -> Any:
    done = shell(url, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def error(shell: Run, url: str, *words: str) -> tuple[int, str]:
    done = shell(url, *words, "--json")
    return done.returncode, json.loads(done.stderr.splitlines()[-1])["error"]["code"]


def engine_of(url: str) -> str:
    return "pg" if "://" in url else "sqlite"


def move(shell: Run, source: str, target: str, **variables: str) -> Any:
    plan = answer(shell, source, "db", "move", engine_of(target), target)
    return shell(
        source, "db", "move", engine_of(target), target, "--commit", "--confirm", plan["hash"], "--global", **variables
    )


def hashes(url: str) -> dict[str, tuple[int, str]]:
    """The number of rows and the hash of every table."""
    found = {}
    with server.snapshot(url) if "://" in url else local.snapshot(url) as source:
        for table in source.tables:
            own = Sum()
            for row in carried(source, table):
                own.add(line(row))
            found[table.name] = own.rows, own.hash
    return found


PLAN = {f"k{n}": {"n": n, "text": "ä\t\n\"'", "list": [None, 1.5, True, {}]} for n in range(20)}


def filled(url: str, data: Path) -> dict[str, Any]:
    """Fill a store with rows of several kinds. Returns the values that the tests compare later."""
    with standfast.open(url, data_dir=data) as sf:
        task = sf.tasks.add("one")
        with sf.session("pay") as s:
            s.effect("charge", {"n": 1}, do=lambda call: call.key)
            s.say("user", "hello")
        for n in range(5):
            sf.events.append("orders", "placed", n)
        batch = sf.events.poll("billing", limit=3)
        sf.events.commit(batch)
        sf.artifacts.put(b"x" * 300_000, name="big")
        sf.leases.acquire("deploy", for_="1h")
        sf.budgets.set("team", tokens=9_000, per="month", action="block")
        sf.budgets.give_up(sf.budgets.reserve("team", tokens=3_000, key="call:1"))
        sf.usage.record("pay", "m-1", input_tokens=80, output_tokens=4, usd="0.01")
        sf.knowledge.add("CI needs node 20", tags=["ci"], embedding=[0.6, 0.8])
        data.mkdir(exist_ok=True)
        files.write(data / "plan.json", PLAN)
        plain_files.run(sf, str(data / "plan.json"))
        return {"receipt": str(task.receipt), "next": [event.seq for event in sf.events.poll("billing").events]}


def check(url: str, data: Path, wanted: dict[str, Any]) -> None:
    with standfast.open(url, data_dir=data) as sf:
        assert sf.journal.verify(wanted["receipt"]).seq == int(wanted["receipt"].partition(":")[0])
        assert [event.seq for event in sf.events.poll("billing").events] == wanted["next"]
        assert len(sf.artifacts.read(sf.artifacts.list()[0].id)) == 300_000
        assert sf.journal.check().findings == []
        assert [one.text for one in sf.knowledge.search("", embedding=[0.6, 0.8])] == ["CI needs node 20"]
        assert [(one.in_doubt, one.most.tokens) for one in sf.budgets.holds("team")] == [(True, 3_000)]
        files.write(data / "back.json", {one.key: one.value for one in sf.state.list(namespace="plan")})
        assert (data / "back.json").read_bytes() == (data / "plan.json").read_bytes()
        with sf.session("pay") as s:
            assert s.effect("charge", {"n": 1}, do=lambda call: "again").startswith("sf_")


@pytest.fixture(params=["sqlite", "postgres"])
def two(request: pytest.FixtureRequest, pg_database: str, home: Path) -> tuple[str, str]:
    """The URLs of a source and a target, one on each engine, in both orders."""
    file = str(home / "data" / "standfast.db")
    return (file, pg_database) if request.param == "sqlite" else (pg_database, file)


def test_there_and_back_every_row_is_the_same(shell: Run, two: tuple[str, str], home: Path) -> None:
    """001-39, 001-52, 003-21: records, ids, fencing tokens, receipts and artifacts move, and a consumer continues."""
    a, b = two
    wanted = filled(a, home / "data")
    before = hashes(a)
    with standfast.open(a, data_dir=home / "data") as running:
        done = move(shell, a, b)
        assert done.returncode == 0, done.stderr
        assert hashes(b) == before
        with pytest.raises(standfast.StorageError, match="this store moved to") as caught:
            running.tasks.add("late")
        assert caught.value.code == "store_moved"
        assert caught.value.hint.endswith(hints.command("db", engine_of(b), b))
    assert error(shell, a, "task", "list") == (78, "store_moved")
    done = move(shell, b, a)
    assert done.returncode == 0, done.stderr
    assert hashes(a) == before
    check(a, home / "data", wanted)


EVENT = (
    "INSERT INTO standfast.event (xid, time_us, occurred_us, scope, actor, holder, source, type, subject)"
    " VALUES (CAST(%s AS xid8), 1, 1, '', 'a', 'h', 'seen', 'x.y', %s)"
)


@pytest.mark.parametrize("first", range(4))
def test_a_consumer_in_the_middle_of_late_commits_gets_each_event_once(
    pg_database: str, home: Path, first: int
) -> None:
    """001-52: rows that PostgreSQL committed out of order, read on both engines by one consumer."""
    file, data = str(home / "data" / "standfast.db"), home / "data"
    with standfast.open(pg_database, data_dir=data) as sf, psycopg.connect(pg_database, autocommit=True) as admin:
        for xid, subject in ((18, "one"), (20, "three"), (19, "two"), (21, "four")):
            admin.execute(EVENT, (str(xid), subject))
        got = {"early": taken(sf, "early", first), "late": []}
    for number, (a, b) in enumerate(((pg_database, file), (file, pg_database), (pg_database, file))):
        plan = standfast.move(b, url=a, data_dir=data)
        standfast.move(b, url=a, data_dir=data, confirm=plan.hash)
        with standfast.open(b, data_dir=data) as sf:
            got["early"] += taken(sf, "early", 1)
            got["late"] += taken(sf, "late", number + 1)
            sf.tasks.add(f"after move {number}")
            if number == 2:
                got = {name: [*seen, *taken(sf, name, 100)] for name, seen in got.items()}
    wanted = ["four", "one", "three", "two"]
    assert {name: sorted(one for one in seen if one in wanted) for name, seen in got.items()} == {
        "early": wanted,
        "late": wanted,
    }


@pytest.mark.parametrize("first", range(4))
def test_a_consumer_of_postgresql_continues_in_a_copy_in_sqlite(
    pg_database: str, home: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """001-52, 003-13: rows that PostgreSQL committed out of order, restored into SQLite and promoted."""
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(home / "copies"))
    with standfast.open(pg_database, data_dir=home / "data") as sf:
        with psycopg.connect(pg_database, autocommit=True) as admin:
            for xid, subject in ((18, "one"), (20, "three"), (19, "two"), (21, "four")):
                admin.execute(EVENT, (str(xid), subject))
        got = taken(sf, "reader", first)
        copy = sf.backup()
    place, there = Directory(copy.place), home / "look"
    restore(read(place, copy.id), place, Target("sqlite", str(there)), lambda *_: None)
    promote(config.load(cwd=home, environ={**os.environ, "STANDFAST_DATA_DIR": str(there)}, quiet=True))
    with standfast.open(data_dir=there) as sf:
        got += [subject for _ in range(9) for subject in taken(sf, "reader", 1)]
    wanted = ["four", "one", "three", "two"]
    assert sorted(one for one in got if one in wanted) == wanted


def taken(sf: standfast.Standfast, name: str, limit: int) -> list[str]:
    """The subjects of a consumer's next events in the whole journal, up to a limit."""
    if not limit:
        return []
    batch = sf.events.poll(name, limit=limit)
    sf.events.commit(batch)
    return [event.subject for event in batch.events]


POINTS = [
    *("move.before_commit", "move.after_commit"),
    *(pytest.param(f"move.{point}", marks=pytest.mark.slow) for point in ("before_mark", "after_mark", "after_seal")),
]


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_one_store_is_the_authority(shell: Run, two: tuple[str, str], home: Path, point: str) -> None:
    """002-11: before the target's commit only the source continues, and after it only the target."""
    a, b = two
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, b, STANDFAST_CRASH_AT=point).returncode == -9
    moved = point in ("move.after_commit", "move.after_seal")
    first = shell(a, "task", "add", "two")
    assert (first.returncode == 0) is not moved, first.stderr
    there = look(Target("postgres" if "://" in b else "sqlite", b))
    assert (there is not None) is moved
    assert (answer(shell, b if moved else a, "task", "list") != []) is True
    if not moved:
        done = move(shell, a, b)
        assert done.returncode == 0, done.stderr
        assert error(shell, a, "task", "add", "three") == (78, "store_moved")


def test_a_store_made_at_the_target_meanwhile_is_not_overwritten(home: Path) -> None:
    """002-11: between the plan, which a person reads, and the end of the move."""
    a, b, place = (str(home / name / "standfast.db") for name in ("data", "b", "c"))
    moves = [the_move(home, source, place) for source in (a, b)]
    moves[0]()
    with pytest.raises(standfast.Conflict, match="another process made a store at"):
        moves[1]()
    assert titles(home, place) == [a]
    assert titles(home, b) == [b]


def test_two_moves_to_one_place_do_not_mix(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-11: another move to the same place begins while this one compares its rows."""
    a, b, place = (str(home / name / "standfast.db") for name in ("data", "b", "c"))
    first, second = (the_move(home, source, place) for source in (a, b))
    inside = []

    def compare(*args: Any) -> None:
        if not inside:
            inside.append(True)
            second()
        _compare(*args)

    monkeypatch.setattr(admin_move, "_compare", compare)
    with pytest.raises(standfast.Conflict, match="nothing was moved"):
        first()
    assert titles(home, place) == [b]
    assert titles(home, a) == [a]


def the_move(home: Path, source: str, place: str) -> Callable[[], None]:
    """A move of a new store with one task, planned now."""
    with standfast.open(source, data_dir=home / "data") as sf:
        sf.tasks.add(source)
    variables = {**os.environ, "STANDFAST_DB_URL": source, "STANDFAST_DATA_DIR": str(home / "data")}
    settings = config.load(cwd=home, environ=variables, quiet=True)
    target = Target("sqlite", place)
    plan = admin_move.plan(settings, target)
    return lambda: admin_move.move(settings, target, plan, lambda *_: None)


def titles(home: Path, source: str) -> list[str]:
    with standfast.open(source, data_dir=home / "data") as sf:
        return [task.title for task in sf.tasks.list()]


def test_a_killed_move_is_finished_although_the_store_moved_on_and_back(shell: Run, home: Path) -> None:
    """002-11: A to B, killed before A was sealed; then B to C and back. A must not become a second authority."""
    a, b, c = (str(home / name / "standfast.db") for name in ("data", "b", "c"))
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, b, STANDFAST_CRASH_AT="move.after_commit").returncode == -9
    for source, target in ((b, c), (c, b)):
        plan = standfast.move(target, url=source, data_dir=home / "data")
        standfast.move(target, url=source, data_dir=home / "data", confirm=plan.hash)
    assert error(shell, a, "task", "add", "two") == (78, "store_moved")


@pytest.mark.parametrize("same", [True, False])
def test_a_killed_move_is_settled_by_the_next_move(shell: Run, home: Path, same: bool) -> None:
    """002-11: the next move is the same command or has another target. The source need not be opened in between."""
    a, b = str(home / "data" / "standfast.db"), str(home / "b" / "standfast.db")
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, b, STANDFAST_CRASH_AT="move.after_mark").returncode == -9
    target = b if same else str(home / "c" / "standfast.db")
    done = move(shell, a, target)
    assert done.returncode == 0, done.stderr
    assert [task["title"] for task in answer(shell, target, "task", "list")] == ["one"]
    assert list((home / ".local/state/standfast/moves").iterdir()) == []


def elsewhere(url: str, host: str) -> None:
    """Change the mark of a killed move to that of a process on another machine."""
    there = look(Target(engine_of(url).replace("pg", "postgres"), url))
    assert there is not None
    assert there.moved is not None
    mark = there.moved._replace(holder=f"p:{host}:0b00f00d:4026531836:17:99")
    if "://" in url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE standfast.meta SET value = %s WHERE key = 'moved'", (mark.dumps(),))
    else:
        local.copies.put_meta(url, {"moved": mark.dumps()})


@pytest.mark.parametrize("point", ["move.after_mark", "move.after_commit"])
def test_a_move_that_died_on_another_host_is_settled_by_the_next_process(
    shell: Run, two: tuple[str, str], home: Path, point: str
) -> None:
    """002-11: the lock of the mover ends with it, so no process id is asked. Here that machine was restarted."""
    a, b = two
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, b, STANDFAST_CRASH_AT=point).returncode == -9
    elsewhere(a, os.uname().nodename)
    done = shell(a, "task", "add", "two", "--json")
    assert done.returncode == (78 if point == "move.after_commit" else 0), done.stderr
    assert list((home / ".local/state/standfast/moves").iterdir()) == []


def test_a_move_to_a_server_is_finished_from_any_host(shell: Run, home: Path, pg_database: str) -> None:
    """002-11: a process of another machine has no record of the target; the same command names it."""
    a = str(home / "data" / "standfast.db")
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, pg_database, STANDFAST_CRASH_AT="move.after_commit").returncode == -9
    elsewhere(a, "gone")
    for record in (home / ".local/state/standfast/moves").iterdir():
        record.unlink()
    done = shell(a, "task", "list")
    assert (done.returncode, "run the same command again" in done.stderr) == (1, True), done.stderr
    assert error(shell, a, "db", "move", "pg", pg_database) == (78, "store_moved")
    assert error(shell, a, "task", "list") == (78, "store_moved")
    assert [task["title"] for task in answer(shell, pg_database, "task", "list")] == ["one"]


def test_a_move_of_another_process_is_not_disturbed(shell: Run, two: tuple[str, str], home: Path) -> None:
    """002-11: while the moving process is alive, its lock is held. Its pid proves nothing here."""
    a, b = two
    answer(shell, a, "task", "add", "one")
    assert move(shell, a, b, STANDFAST_CRASH_AT="move.after_mark").returncode == -9
    elsewhere(a, os.uname().nodename)
    with _mover(Target("postgres" if "://" in a else "sqlite", a)):
        assert error(shell, a, "task", "add", "two") == (75, "store_moving")
    assert shell(a, "task", "add", "two").returncode == 0


def test_a_move_to_a_file_of_a_lost_host_is_not_undone(
    shell: Run, home: Path, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-11: only that machine knows whether the file is complete. A restored copy opens a gap instead."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("STANDFAST_REMEMBER")
    answer(shell, pg_database, "task", "add", "one")
    b = str(home / "b" / "standfast.db")
    assert move(shell, pg_database, b, STANDFAST_CRASH_AT="move.after_mark").returncode == -9
    elsewhere(pg_database, "gone")
    done = shell(pg_database, "task", "add", "two")
    assert (done.returncode, "a file of another machine" in done.stderr) == (1, True), done.stderr
    plan = standfast.restore(url=pg_database, data_dir=home / "data")
    assert shell(pg_database, "restore", "--here", "--confirm", plan.hash).returncode == 0
    assert [task["title"] for task in answer(shell, pg_database, "task", "list")] == ["one"]


def test_a_copy_taken_during_a_move_restores(home: Path, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """002-11, 000-37: the copy has the mark of the killed move; the restored store does not move."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("STANDFAST_REMEMBER")
    a, b = two
    given = {"url": a, "data_dir": home / "data"}
    with standfast.open(**given) as sf:
        sf.tasks.add("one")
        crashed = Moved("moving", b, "token", sf._store.caller.holder)
        sf._store.write(lambda tx: tx.run(SQL.set_mark, value=crashed.dumps()))
        assert automatic.before(sf.settings, sf._store.pin[0], "before db move") is not None
    standfast.restore(confirm=standfast.restore(**given).hash, **given)
    with standfast.open(**given) as sf:
        assert [task.title for task in sf.tasks.list()] == ["one"]
        sf.tasks.add("two")


def test_the_plan_prints_the_command_that_moves(shell: Run, home: Path) -> None:
    """The next command can be pasted: it has the options that were passed, and no others."""
    source, target = str(home / "data" / "standfast.db"), str(home / "data" / "other.db")
    standfast.open(source, data_dir=home / "data").close()
    planned = shell(source, "db", "move", "sqlite", target, "--global", "--wait", "5s")
    again = f"standfast db move sqlite {target} --global --wait 5s --commit"
    assert f"next: {again}\n" in planned.stderr
    asked = shell(source, "db", "move", "sqlite", target, "--global", "--wait", "5s", "--commit")
    (hash,) = re.findall(r"^plan (\w+)$", asked.stdout, re.MULTILINE)
    assert f"  a person confirms this plan: {again} --confirm {hash}\n" in asked.stderr


def test_while_an_effect_is_under_way_nothing_moves(shell: Run, two: tuple[str, str], home: Path) -> None:
    """003-21: a move is refused during an effect, to a target with another store, and to agents."""
    a, b = two
    with standfast.open(a, data_dir=home / "data") as sf:
        sf.effects.begin("charge", {}, key="k")
        done = move(shell, a, b)
        assert (done.returncode, "under way" in done.stderr) == (4, True)
        sf.effects.done("k", None)
        sf.tasks.add("goes on")
    assert shell(a, "db", "move", engine_of(b), b, "--commit", CLAUDECODE="1").returncode == 5
    assert shell(a, "db", "move", engine_of(b), b, "--commit").returncode == 5
    assert answer(shell, b, "task", "add", "another store")
    assert error(shell, a, "db", "move", engine_of(b), b)[0] == 4


def test_with_wait_a_move_waits_for_the_effect(shell: Run, home: Path) -> None:
    """003-21: `--wait` names what it waits for, and moves the store after the effect has ended."""
    a, b = str(home / "data" / "standfast.db"), str(home / "other" / "standfast.db")
    with standfast.open(a, data_dir=home / "data") as sf:
        sf.effects.begin("charge", {}, key="k")
        plan = answer(shell, a, "db", "move", "sqlite", b)
        words = ["db", "move", "sqlite", b, "--commit", "--confirm", plan["hash"], "--global", "--wait", "1m"]
        command, variables = [sys.executable, "-m", "standfast", *words], remembering.environment(home)
        variables["STANDFAST_DB_URL"] = a
        with subprocess.Popen(command, env=variables, cwd=home, stderr=subprocess.PIPE, text=True) as moving:
            assert moving.stderr is not None
            assert "is under way in a live process: waiting up to 1m" in moving.stderr.readline()
            sf.effects.done("k", None)
            assert moving.wait(60) == 0
    assert error(shell, a, "task", "list") == (78, "store_moved")


def test_a_server_that_is_away_is_named(shell: Run, home: Path) -> None:
    a = str(home / "data" / "standfast.db")
    answer(shell, a, "task", "add", "one")
    away = "postgresql://postgres@127.0.0.1:1/none"
    assert error(shell, a, "db", "move", "pg", away) == (1, "unreachable")
    assert error(shell, away, "restore", "--here")[1] in ("unreachable", "not_found")
    assert error(shell, away, "store", "reset") == (1, "unreachable")
    assert [task["title"] for task in answer(shell, a, "task", "list")] == ["one"]


def test_choosing_another_store_counts_the_rows_that_stay(shell: Run, home: Path, pg_database: str) -> None:
    """003-21: `db sqlite` and `db pg` move nothing, and name the command that does."""
    a = str(home / "data" / "standfast.db")
    answer(shell, a, "task", "add", "one")
    for engine, place in (("sqlite", str(home / "other.db")), ("pg", pg_database)):
        done = shell(a, "db", engine, place, "--global")
        assert f"1 journal rows stay in {a}; to move them: standfast db move {engine}" in done.stderr


@pytest.mark.slow
def test_the_daemon_of_a_store_that_moved_ends(shell: Run, home: Path) -> None:
    """003-21: the daemon has no effect in flight; otherwise the move would be refused."""
    a, b = str(home / "data" / "standfast.db"), str(home / "other" / "standfast.db")
    answer(shell, a, "task", "add", "one")
    command = [sys.executable, "-m", "standfast", "daemon", "run"]
    variables = remembering.environment(home, STANDFAST_DB_URL=a)
    with subprocess.Popen(command, env=variables, cwd=home, stderr=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stderr is not None
            while "leading" not in daemon.stderr.readline():
                assert daemon.poll() is None
            done = move(shell, a, b)
            assert done.returncode == 0, done.stderr
            assert daemon.wait(60) == 78
        finally:
            daemon.kill()


def test_the_plan_names_where_the_setting_is_saved(shell: Run, home: Path, tmp_path: Path) -> None:
    """003-23: the store of all repositories moves; without --global one project gets the setting."""
    source, target = str(home / "store.db"), str(tmp_path / "other.db")
    assert shell(source, "task", "add", "one").returncode == 0
    plan = ("db", "move", "sqlite", target)
    assert "saved for this project. With --global" in shell(source, *plan).stdout
    assert "--global" not in shell(source, *plan, "--global").stdout
