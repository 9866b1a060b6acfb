"""The doctor distinguishes missing, locked, corrupt, newer and unsafe stores, and never loses data."""

from __future__ import annotations

import fcntl
import importlib.util
import itertools
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import config, handle
from standfast.admin import doctor, doctor_place
from standfast.admin.doctor import Finding, examine, size
from standfast.cli import app, progress
from standfast.cli.open_store import opened
from standfast.clock import SYSTEM
from standfast.record import knowledge
from standfast_prove.mutants.shell_scenes import CHANGE, HIDE, SHOW

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy closed store with some rows."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("STANDFAST_DB_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    write_something()
    return tmp_path / "data" / "standfast.db"


def write_something(clock: Any = None) -> None:
    from standfast.core import journal

    with standfast.open(clock=clock) as sf:
        sf._store.write(lambda tx: journal.append(tx, "test.happened", "thing"))


def findings(*, fix: bool = False, quick: bool = False) -> dict[str, Finding]:

    found = list(examine(lambda: config.load(quiet=True), opened, fix=fix, quick=quick))
    for finding in found:
        # The advice never destroys data.
        assert not re.search(r"\brm\b|delet|remov|truncat|drop", finding.remedy, re.IGNORECASE), finding
        assert finding.remedy or finding.state == "ok"
    assert len({finding.id for finding in found}) == len(found)
    return {finding.id: finding for finding in found}


def states(**wanted: Any) -> dict[str, str]:
    return {finding.id: finding.state for finding in findings(**wanted).values() if finding.state != "ok"}


def stock_sqlite(path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """The system's sqlite3 in another process, because one process must not use two SQLite libraries on one file."""
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.executescript(sys.argv[2]); c.commit()"
    return subprocess.run([sys.executable, "-c", code, str(path), script], capture_output=True, text=True)


def test_a_healthy_store_has_nothing_but_ok(store: Path) -> None:
    found = findings()
    assert {finding.state for finding in found.values()} == {"ok"}
    assert list(found) == [
        "config", "scope", "memory", "place", "permissions", "disk", "lock", "engine", "schema", "clock",
        "duplicates", "loops", "copies", "gap", "wal", "guard", "integrity", "unchecked",
    ]  # fmt: skip


def test_both_engines_are_examined(engine_url: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    write_something()
    found = findings()
    assert {finding.state for finding in found.values()} == {"ok"}
    assert {"config", "engine", "schema", "clock"} <= found.keys()
    assert found["engine"].text.startswith("postgres" if engine_url.startswith("postgres") else "sqlite")


def test_what_compares_vectors_is_named(engine_url: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    with standfast.open(engine_url, data_dir=store.parent) as sf:
        sf.knowledge.add("CI needs node 20", embedding=[0.6, 0.8])
    if engine_url.startswith("postgres"):
        assert findings()["vectors"].remedy == "CREATE EXTENSION vector"
    else:
        assert findings()["vectors"].text == "sqlite-vec compares the stored vectors (1)"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = findings()["vectors"]
    assert (found.state, found.text) == ("ok", "Python compares the stored vectors (1): exact, and refused past 5,000")
    monkeypatch.setattr(knowledge, "VECTORS_MAX", 0)
    assert findings()["vectors"].state == "warn"


def test_a_missing_store_is_no_error_and_is_not_made(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = store.parent.parent / "empty"
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(empty))
    assert findings()["store"].text.startswith("there is no store yet")
    assert states() == {}
    assert not empty.exists()


# Locked.


@pytest.fixture
def held_lock(store: Path) -> Iterator[int]:
    """Another process that keeps the lock."""
    code = "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, f"{store}.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process.pid
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_lock_that_is_never_given_back_is_named(store: Path, held_lock: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_place, "LOCK_WAIT_S", 0.1)
    found = findings()
    assert found["lock"].state == "error"
    if sys.platform == "linux":
        assert f"process {held_lock} has held the lock" in found["lock"].text
    assert "integrity" not in found  # doctor does not guess any other cause


def test_something_else_where_the_lock_should_be_is_named(store: Path) -> None:
    Path(f"{store}.lock").unlink()
    Path(f"{store}.lock").mkdir()
    found = findings()
    assert (found["lock"].state, found["lock"].text) == ("error", f"{store}.lock cannot be opened: Is a directory")
    assert "integrity" not in found


def test_the_check_of_a_free_lock_does_not_take_it(store: Path) -> None:
    findings()
    with open(f"{store}.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


# Corrupt, foreign, newer, changed.


def test_a_damaged_file_is_reported_as_corrupt_and_not_changed(store: Path) -> None:
    with standfast.open() as sf:
        for _ in range(200):
            from standfast.core import journal

            sf._store.write(lambda tx: journal.append(tx, "test.happened", "thing", summary="x" * 150))
    checkpoint(store)
    content = bytearray(store.read_bytes())
    pages = len(content) // 4096
    assert pages > 8
    for page in range(pages // 2, pages):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    store.write_bytes(content)
    before = store.read_bytes()
    found = findings(fix=True)
    assert found["integrity"].state == "error"
    assert "keep all the files" in found["integrity"].remedy
    assert store.read_bytes() == before


def checkpoint(store: Path) -> None:
    """Move all rows into the database file, which the test then damages."""
    code = "import apsw, sys; apsw.Connection(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()"
    subprocess.run([sys.executable, "-c", code, str(store)], check=True)


def test_a_file_that_is_no_database_is_corrupt(store: Path) -> None:
    checkpoint(store)
    for end in ("-wal", "-shm"):
        Path(f"{store}{end}").unlink(missing_ok=True)
    store.write_bytes(b"this is not a database, it is a poem. " * 500)
    assert states() == {"integrity": "error"}


def test_the_database_of_another_program_is_recognised(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = store.parent / "other.db"
    assert stock_sqlite(other, "CREATE TABLE theirs (x)").returncode == 0
    other.chmod(0o600)
    monkeypatch.setenv("STANDFAST_DB_URL", str(other))
    found = findings()
    assert found["store"].state == "error"
    assert "another program" in found["store"].text


def test_a_newer_store_is_recognised(store: Path) -> None:
    assert stock_sqlite(store, "PRAGMA user_version = 9999").returncode == 0
    found = findings()
    assert found["schema"].state == "error"
    assert "upgrade" in found["schema"].remedy


def test_a_migration_that_was_another_one_is_found(store: Path) -> None:
    script = "DROP TRIGGER guard_migration_update; UPDATE migration SET checksum = 'x' WHERE version = 1"
    assert stock_sqlite(store, script).returncode == 0
    found = findings()
    assert found["schema"].state == "error"
    assert "a development version of standfast made this store" in found["schema"].text


# Unsafe.


def test_an_unsafe_directory_is_an_error_unless_the_user_insists(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """003-35: a file is not a server; a synchronised folder loses data."""
    synced = store.parent.parent / "Dropbox"
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(synced))
    found = findings()
    assert found["place"].state == "error"
    assert "synchronised" in found["place"].text
    monkeypatch.setenv("STANDFAST_UNSAFE_STORAGE", "1")
    assert states() == {"place": "warn"}


# Permissions.


def test_loose_permissions_are_found_and_fixed(store: Path) -> None:
    store.chmod(0o644)
    store.parent.chmod(0o755)
    found = findings()
    assert found["permissions"].state == "warn"
    assert "data, standfast.db" in found["permissions"].text
    fixed = findings(fix=True)["permissions"]
    assert (fixed.state, fixed.fixed) == ("ok", True)
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.parent.stat().st_mode) == 0o700
    assert states() == {}


def test_a_directory_the_user_chose_is_theirs(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = store.parent.parent / "shared"
    shared.mkdir(mode=0o755)
    monkeypatch.setenv("STANDFAST_DB_URL", str(shared / "state.db"))
    write_something()
    assert states(fix=True) == {}
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755


# Guards.


def test_lost_guards_are_found_and_put_back(store: Path) -> None:
    """000-30: one bypass voids all guarantees."""
    change = "UPDATE event SET summary = 'forged'"
    assert stock_sqlite(store, change).returncode != 0
    assert stock_sqlite(store, "DROP TRIGGER guard_event_update").returncode == 0
    assert findings()["guard"].text == "other programs could write event"
    assert findings(fix=True)["guard"].fixed
    assert states() == {}
    assert stock_sqlite(store, change).returncode != 0
    assert stock_sqlite(store, "SELECT count(*) FROM event").returncode == 0


def test_a_guard_that_refuses_nothing_is_replaced(store: Path) -> None:
    """000-30: another program replaced the trigger by one with the same name and an empty body."""
    empty = "CREATE TRIGGER guard_event_update BEFORE update ON event BEGIN SELECT 1; END"
    assert stock_sqlite(store, f"DROP TRIGGER guard_event_update; {empty}").returncode == 0
    assert findings()["guard"].text == "other programs could write event"
    assert findings(fix=True)["guard"].fixed
    assert stock_sqlite(store, "UPDATE event SET summary = 'forged'").returncode != 0
    assert states() == {}


# The schema, compared with the catalogue.


def damage(url: str, script: str) -> None:
    """Run statements with stock sqlite3 or psql, as another program could."""
    if not url.startswith("postgres"):
        done = stock_sqlite(Path(url), script)
        assert done.returncode == 0, done.stderr
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = standfast")
        connection.execute(script.encode())


@pytest.fixture
def either(engine_url: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A closed store on each engine."""
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    write_something()
    return engine_url


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("DROP TABLE task_note", "table task_note"),
        ("DROP INDEX effect_unresolved", "index effect_unresolved"),
        ("DROP VIEW effect_transition", "view effect_transition"),
        (
            "DROP INDEX approval_current; CREATE INDEX approval_current ON approval (effect_id, question_hash)",
            "unique index approval_current",
        ),
        ("ALTER TABLE session DROP COLUMN title", "column session.title"),
        ("ALTER TABLE decision RENAME TO decisions", "table decision"),
    ],
)
def test_an_object_of_ours_that_was_dropped_is_an_error(either: str, script: str, named: str) -> None:
    """000-30, 001-8: objects that another program removed from the schema are named."""
    damage(either, script)
    found = findings()
    assert found["schema"].state == "error"
    assert f"damaged: {named} missing" in found["schema"].text
    assert app.run(["doctor"]) == 1


def test_a_dropped_table_is_damage_to_every_command(either: str, capsys: pytest.CaptureFixture[str]) -> None:
    """001-8: the error says that the store is damaged, and its hint is the command doctor."""
    damage(either, "DROP TABLE task" + (" CASCADE" if either.startswith("postgres") else ""))
    with standfast.open() as sf:
        for use in (sf.tasks.list, lambda: sf.tasks.add("x")):
            with pytest.raises(standfast.Corrupt, match="task") as damaged:
                use()
            assert damaged.value.code == "schema_damaged"
            assert "standfast doctor" in (damaged.value.hint or "")
    assert app.run(["task", "list"]) == 1
    assert "standfast doctor" in capsys.readouterr().err
    assert "not checked" in findings()["unchecked"].text


@pytest.mark.parametrize("table", ["meta", "migration", "event", "loop"])
def test_doctor_survives_any_missing_table(either: str, table: str) -> None:
    """001-8: it names the missing table instead of failing."""
    damage(either, f"DROP TABLE {table}" + (" CASCADE" if either.startswith("postgres") else ""))
    found = findings()
    assert found["schema"].state == "error"
    assert table in found["schema"].text


def test_objects_of_other_programs_are_reported_and_not_changed(either: str) -> None:
    """000-30: Litestream's tables, a user's index and view."""
    theirs = "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER); CREATE INDEX mine ON task (title);"
    damage(either, theirs + " CREATE VIEW titles AS SELECT title FROM task")
    for fix in (False, True):
        found = findings(fix=fix)
        assert {one.state for one in found.values()} == {"ok"}
        assert found["foreign"].text.endswith("index mine on task, table _litestream_seq, view titles")
        damage(
            either, "INSERT INTO _litestream_seq (seq) VALUES (1)" if not either.startswith("postgres") else "SELECT 1"
        )


def test_the_catalogue_is_what_the_migrations_make(either: str) -> None:
    """000-30: on both engines, for every object of the schema."""
    from standfast.db import catalogue

    with opened() as sf:
        found = doctor._objects(sf)
    guards = {one for one in found if one.kind == "trigger" and one.name.startswith("guard_")}
    assert found - guards == catalogue.wanted("postgres" if either.startswith("postgres") else "sqlite")
    assert len(catalogue.tables()) > 40
    assert len(guards) == (0 if either.startswith("postgres") else len(catalogue.tables()) * 3)


def test_an_index_that_lacks_rows_is_found(store: Path) -> None:
    """001-8: quick_check does not see it; integrity_check does, and doctor runs that one."""
    with standfast.open() as sf:
        sf.tasks.add("before")
    checkpoint(store)
    for script in (HIDE, CHANGE, SHOW):
        done = stock_sqlite(store, script)
        assert done.returncode == 0, done.stderr
    assert findings(quick=True)["integrity"].state == "ok"
    assert "indexes against their rows (standfast doctor)" in findings(quick=True)["unchecked"].text
    found = findings(fix=True)["integrity"]
    assert found.state == "error"
    assert "index" in found.text
    assert app.run(["doctor"]) == 1
    assert app.run(["doctor", "--quick"]) == 0


def test_the_check_reports_pages_and_then_tables(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-40: each line has the number of checked pages or tables and the total."""
    from standfast.db.sqlite import integrity

    monkeypatch.setattr(integrity, "REPORT_EVERY_S", 0.0)
    monkeypatch.setattr(integrity, "STEPS", 1)
    integrity.main(str(store), integrity.FULL)
    *steps, said = map(json.loads, capsys.readouterr().out.splitlines())
    assert said == []
    assert list(dict.fromkeys(step["doing"] for step in steps)) == ["pages read", "tables compared with their indexes"]
    assert all(0 <= step["done"] <= step["total"] for step in steps)
    tables = {step["done"] for step in steps if step["doing"].startswith("tables")}
    assert max(tables) + 1 == steps[-1]["total"] > 20


def test_a_long_check_prints_its_progress(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-40: a check of more than a second prints a line on stderr. stdout has only data."""
    from standfast.db.sqlite import integrity

    seconds = itertools.count()
    monkeypatch.setattr(progress.reported, "__defaults__", (lambda: float(next(seconds)),))
    real = integrity.check

    def slow(path: str, *, quick: bool, progress: Any) -> list[str]:
        progress("pages read", 1, 2)
        return real(path, quick=quick, progress=progress)

    monkeypatch.setattr(integrity, "check", slow)
    assert app.run(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["data"]
    assert "standfast: pages read: 1 of 2\n" in err


def test_what_was_removed_is_not_in_the_file_any_more(store: Path) -> None:
    """003-24: `secure_delete` overwrites the bytes of removed rows."""
    from standfast.db.sql import statement

    secret = "Ada-Lovelace-7c1f"
    with standfast.open() as sf:
        for n in range(200):
            sf.state.set(f"k{n}", {"name": secret * 3})
        for table in ("state", "event"):
            sf._store.write(lambda tx, table=table: tx.run(statement(f"DELETE FROM {table} WHERE 1 = 1")))
    checkpoint(store)
    assert store.read_bytes().count(secret.encode()) == 0


# Disk, log, clock.


@pytest.mark.parametrize(("free", "state"), [(1 << 40, "ok"), (500 << 20, "warn"), (1 << 20, "error")])
def test_free_space_is_watched(store: Path, free: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(store.parent)

    def statvfs(_: object) -> os.statvfs_result:
        values = list(real)
        values[4] = free // real.f_frsize
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert findings()["disk"].state == state


def test_a_large_wal_is_reported(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-24: a long read keeps the log from being emptied."""
    monkeypatch.setattr(doctor, "LOG_WARN_BYTES", 1)
    assert states() == {"wal": "warn"}


def test_a_clock_that_was_set_back_is_reported(store: Path) -> None:
    class Ahead:
        def __getattr__(self, name: str) -> Any:
            return getattr(SYSTEM, name)

        def now_us(self) -> int:
            return SYSTEM.now_us() + 3600 * 1_000_000

    write_something(clock=Ahead())
    assert states() == {"clock": "warn"}
    assert "in the future" in findings()["clock"].text


# Settings.


def test_settings_are_examined_too(store: Path) -> None:
    project = store.parent.parent / "project"
    (project / ".standfast").mkdir(parents=True)
    (project / ".standfast" / "config.toml").write_text('scope = "x"')
    (project / ".git").write_text("gitdir: /nonexistent")
    os.chdir(project)
    assert states() == {"trust": "warn", "scope": "warn"}
    (store.parent / "config.toml").write_text("nonsense = 1")
    assert states() == {"config": "error"}


def test_a_server_that_does_not_answer_is_an_error_without_its_password(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-24: the driver's error has the URL, but standfast's messages must not show the password."""
    monkeypatch.setenv("STANDFAST_DB_URL", "postgresql://ada:hunter2@127.0.0.1:1/state?connect_timeout=1")
    found = findings()
    assert [finding.state for finding in found.values() if finding.state != "ok"] == ["error"]
    assert "hunter2" not in repr(found)


# The command.


def test_the_command_exits_1_only_on_an_error(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN §5: a warning does not fail a script."""
    assert app.run(["doctor"]) == 0
    store.chmod(0o644)
    capsys.readouterr()
    assert app.run(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"warn +permissions +others .*\n +→ standfast doctor --fix\n", out)
    assert "next: standfast doctor --fix" in err
    assert app.run(["doctor", "--fix", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["data"]
    assert all(row.keys() == {"id", "state", "text", "remedy", "fixed"} for row in rows)
    monkeypatch.setattr(doctor_place, "DISK_ERROR_BYTES", 1 << 60)
    assert app.run(["doctor"]) == 1


def test_every_finding_is_documented() -> None:
    page = (ROOT / "docs" / "operating" / "doctor.md").read_text()
    source = "".join(Path(module.__file__).read_text() for module in (doctor, doctor_place))
    ids = set(re.findall(r'Finding\(\s*"(\w+)"', source))
    assert len(ids) >= 14
    assert [name for name in ids if f"| `{name}` |" not in page] == []


def test_sizes_read_like_sizes() -> None:
    assert [size(n) for n in (0, 999, 1000, 4_200_000, 123_000_000, 85_200_000_000, 5_000_000_000_000)] == [
        "0 bytes", "999 bytes", "1.0 kB", "4.2 MB", "123 MB", "85.2 GB", "5000 GB",
    ]  # fmt: skip


def test_a_key_in_a_scope_named_after_a_repository_is_found(
    engine_url: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-2: duplicates that exist already are a finding, with the commands that show both."""
    repository = store.parent.parent / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    settings = config.load(quiet=True)
    for scope in ("", "on-purpose", settings.label.name):
        with handle.connect(settings._replace(scope=scope)) as sf:
            sf.sessions.open("nightly")
            sf.effects.plan("deploy", key="deploy-7")
            sf.webhooks.receive("stripe", "evt_1", {})
            sf.credits.grant("ada", 5, key="invoice-1")
            sf.mail.send("ada", "hello", key="once")
    monkeypatch.delenv("STANDFAST_SCOPE", raising=False)
    found = [one for one in examine(lambda: config.load(quiet=True), opened) if one.id == "duplicates"]
    assert {one.state for one in found} == {"warn"}
    assert [one.text.split(" exists twice")[0] for one in found] == [
        "the credit 'invoice-1'",
        "the effect 'deploy-7'",
        "the mail 'once'",
        "the session 'nightly'",
        "the webhook 'evt_1'",
    ]
    assert all(f"--scope {settings.label.name}" in one.remedy for one in found)
    assert not any("on-purpose" in one.text for one in found)
    assert "compare both: standfast session show nightly; standfast session show nightly --scope" in found[3].remedy
