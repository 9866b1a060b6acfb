"""Opening a store on PostgreSQL: a fresh, old, newer, moved or unsafe one, and by eight processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest

from standfast import crash, modules
from standfast.clock import SYSTEM
from standfast.db.contract import Caller
from standfast.db.migrations import LATEST, MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast.db.postgres.engine import PostgresEngine
from standfast.db.postgres.registry import open_engine
from standfast.db.sql import statement
from standfast.errors import Corrupt, SchemaTooNew, StorageError, UnsafeStorage
from standfast_prove.campaigns import boot
from standfast_prove.postgres import TemporaryPostgres

pytestmark = pytest.mark.without_store
CALLER = Caller(actor="tester", holder="h", scope="", clock=SYSTEM)
MINE = statement("INSERT INTO lease (scope, name, fence) VALUES ('', :name, 1)")
NEXT = Migration(version=LATEST + 1, name="next", text="CREATE TABLE next_thing (key TEXT NOT NULL PRIMARY KEY);")
FENCING = NEXT._replace(min_writer=LATEST + 1)


def meta(url: str) -> dict[str, str]:
    with psycopg.connect(url) as admin:
        return dict(admin.execute("SELECT key, value FROM standfast.meta").fetchall())


def open_with(url: str, *migrations: Migration) -> None:
    PostgresEngine(url, CALLER, migrations=migrations).close()


# -- eight at once --------------------------------------------------------------------------------


def test_eight_processes_open_one_fresh_database_at_once_ten_times(pg_database: str, tmp_path: Path) -> None:
    """003-18, 003-27: none of 80 openings fails, and each migration is applied once."""
    outcome = boot.run(tmp_path, url=pg_database, rounds=10)
    assert outcome.bad == []
    assert outcome.seen["openings"] == 80


def test_eight_processes_open_one_old_store_at_once(pg_database: str, tmp_path: Path) -> None:
    """003-15, 003-18: the store has the first schema or any later one."""
    outcome = boot.run(tmp_path, url=pg_database, rounds=3, old=True)
    assert outcome.bad == []
    assert outcome.seen["openings"] == 8 * 3


# -- versions ---------------------------------------------------------------------------------------


def test_a_fresh_store_knows_itself(pg_database: str) -> None:
    open_engine(pg_database, CALLER).release()
    found = meta(pg_database)
    assert found["store_id"].startswith("sto_")
    assert found["schema_version"] == str(LATEST)
    assert found["min_writer"] == str(max(migration.min_writer for migration in MIGRATIONS))
    assert found["settled_seq"] == ""
    assert int(found["cluster"]) > 0
    with psycopg.connect(pg_database) as admin:
        ledger = admin.execute("SELECT version, name, checksum FROM standfast.migration ORDER BY version").fetchall()
    assert ledger == [(m.version, m.name, m.checksum) for m in MIGRATIONS]


def test_all_tables_are_in_one_schema(pg_database: str) -> None:
    open_engine(pg_database, CALLER).release()
    with psycopg.connect(pg_database) as admin:
        places = "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname !~ '^pg_|information_schema'"
        assert admin.execute(places).fetchall() == [("standfast",)]


def test_a_newer_store_is_refused_with_the_next_step(pg_database: str) -> None:
    open_with(pg_database, *MIGRATIONS, NEXT)
    with pytest.raises(SchemaTooNew) as raised:
        open_engine(pg_database, CALLER)
    assert f"schema {LATEST + 1}" in raised.value.message
    assert f"up to {LATEST}" in raised.value.message
    assert raised.value.hint == modules.UPGRADE


def test_an_additive_migration_does_not_stop_running_writers_and_a_fencing_one_does(pg_database: str) -> None:
    running = open_engine(pg_database, CALLER)
    open_with(pg_database, *MIGRATIONS, NEXT)
    running.write(lambda tx: tx.run(MINE, name="a"), CALLER)
    with psycopg.connect(pg_database) as admin:
        admin.execute("DROP TABLE standfast.next_thing")
        admin.execute("DELETE FROM standfast.migration WHERE version = %s", (LATEST + 1,))
        admin.execute("UPDATE standfast.meta SET value = %s WHERE key = 'schema_version'", (str(LATEST),))
    open_with(pg_database, *MIGRATIONS, FENCING)
    with pytest.raises(SchemaTooNew, match=f"schema {LATEST}.*from schema {LATEST + 1} on"):
        running.write(lambda tx: tx.run(MINE, name="b"), CALLER)
    running.release()


def test_a_changed_history_is_refused_with_the_name_of_the_migration(pg_database: str) -> None:
    open_with(pg_database, *MIGRATIONS, NEXT)
    with psycopg.connect(pg_database) as admin:
        admin.execute("UPDATE standfast.migration SET checksum = 'other' WHERE version = %s", (LATEST + 1,))
    with pytest.raises(Corrupt, match=rf"migration {LATEST + 1} \(next\)"):
        open_with(pg_database, *MIGRATIONS, NEXT)


def test_a_migration_that_fails_leaves_the_old_schema(pg_database: str) -> None:
    open_engine(pg_database, CALLER).release()
    broken = NEXT._replace(text=NEXT.text + "\nCREATE TABLE meta (key TEXT);")
    with pytest.raises(StorageError):
        open_with(pg_database, *MIGRATIONS, broken)
    engine = open_engine(pg_database, CALLER)
    assert engine.schema_version() == LATEST
    engine.release()


def test_a_foreign_schema_of_the_same_name_is_not_changed(pg_database: str) -> None:
    with psycopg.connect(pg_database) as admin:
        admin.execute("CREATE SCHEMA standfast")
        admin.execute("CREATE TABLE standfast.theirs (n int)")
    with pytest.raises(Corrupt) as raised:
        open_engine(pg_database, CALLER)
    assert raised.value.code == "not_a_store"


@pytest.mark.parametrize("point", ["migrate.before_step:1", "migrate.after_step:1"])
def test_killed_in_the_middle_of_a_migration_the_next_one_finds_a_clean_start(pg_database: str, point: str) -> None:
    code = (
        "import sys\nfrom standfast.db.contract import Caller\nfrom standfast.clock import SYSTEM\n"
        "from standfast.db.postgres.registry import open_engine\n"
        "open_engine(sys.argv[1], Caller(actor='t', holder='h', scope='', clock=SYSTEM))"
    )
    environ = os.environ | {crash.VARIABLE: point}
    done = subprocess.run([sys.executable, "-c", code, pg_database], env=environ, timeout=60)
    assert done.returncode == -9
    with psycopg.connect(pg_database) as admin:
        assert admin.execute("SELECT to_regnamespace('standfast')").fetchone() == (None,)
    engine = open_engine(pg_database, CALLER)
    assert engine.schema_version() == LATEST
    engine.release()


# -- servers --------------------------------------------------------------------------------------------


def test_a_server_without_fsync_is_refused_unless_the_user_insists() -> None:
    with TemporaryPostgres("fsync = off") as server:
        with pytest.raises(UnsafeStorage, match="fsync = off") as raised:
            open_engine(server.url, CALLER)
        assert "STANDFAST_UNSAFE_STORAGE=1" in raised.value.hint
        engine = open_engine(server.url, CALLER, allow_unsafe=True)
        assert engine.facts()["fsync"] == "off"
        engine.release()


def test_a_database_that_cannot_hold_every_character_is_refused(pg_url: str) -> None:
    name = f"standfast_latin_{uuid.uuid4().hex}"
    with psycopg.connect(pg_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'".encode())
        try:
            with pytest.raises(UnsafeStorage, match="LATIN1"):
                open_engine(f"{pg_url.rpartition('/')[0]}/{name}", CALLER)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_standby_is_recognised_and_can_be_read() -> None:
    with TemporaryPostgres("hot_standby = on") as server:
        engine = open_engine(server.url, CALLER)
        engine.write(lambda tx: tx.run(MINE, name="a"), CALLER)
        engine.release()
        server._shut_down()
        (server._data / "standby.signal").touch()
        server._launcher.give(server._root)
        server._start()
        engine = open_engine(server.url, CALLER)
        count = statement("SELECT count(*) AS n FROM lease")
        assert engine.read(lambda tx: tx.one(count), CALLER) == {"n": 1}
        with pytest.raises(StorageError) as raised:
            engine.write(lambda tx: tx.run(MINE, name="b"), CALLER)
        assert raised.value.code == "read_only"
        assert "primary" in raised.value.hint
        with pytest.raises(StorageError, match="standby"):
            open_with(server.url, *MIGRATIONS, NEXT)
        assert engine.facts()["standby"] is True
        engine.release()


def test_a_role_that_may_not_create_gets_the_commands_for_its_administrator(pg_database: str) -> None:
    role = f"plain_{uuid.uuid4().hex[:12]}"
    plain = pg_database.replace("postgres@", f"{role}@")
    with psycopg.connect(pg_database, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            with pytest.raises(StorageError) as raised:
                open_engine(plain, CALLER)
            assert raised.value.code == "not_permitted"
            assert f"CREATE SCHEMA standfast AUTHORIZATION {role}" in raised.value.hint
            admin.execute(raised.value.hint.partition("run: ")[2].encode())
            engine = open_engine(plain, CALLER)  # the command of the hint is enough
            engine.write(lambda tx: tx.run(MINE, name="a"), CALLER)
            engine.release()
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE".encode())
            admin.execute(f"DROP ROLE {role}".encode())


# -- another cluster --------------------------------------------------------------------------------------


def test_a_journal_from_another_cluster_is_settled_once(pg_database: str) -> None:
    """After a restore every tail would miss the old rows until the new transaction counter has passed their ids."""
    engine = open_engine(pg_database, CALLER)
    event = statement(
        "INSERT INTO event (xid, time_us, occurred_us, scope, actor, holder, source, type, subject)"
        " VALUES (CAST(:xid AS xid8), 1, 1, '', 'a', 'h', 'seen', 'x.y', 's')"
    )
    for xid in ("2", "1", "3"):
        engine.write(lambda tx, xid=xid: tx.run(event, xid=xid), CALLER)  # type: ignore[misc]
    engine.release()
    here = meta(pg_database)["cluster"]
    open_engine(pg_database, CALLER).release()
    assert meta(pg_database)["settled_seq"] == ""  # the cluster is the same, so nothing changes

    for bounds in ("3", "3", "3,4"):
        with psycopg.connect(pg_database) as admin:
            admin.execute("UPDATE standfast.meta SET value = 'elsewhere' WHERE key = 'cluster'")
            if bounds == "3,4":
                admin.execute(
                    "INSERT INTO standfast.event (time_us, occurred_us, scope, actor, holder, source, type, subject)"
                    " VALUES (1, 1, '', 'a', 'h', 'seen', 'x.y', 's')"
                )
        open_engine(pg_database, CALLER).release()
        assert meta(pg_database)["settled_seq"] == bounds
        assert meta(pg_database)["cluster"] == here


def test_a_journal_ahead_of_its_cluster_is_settled_even_if_clusters_look_alike(pg_database: str) -> None:
    engine = open_engine(pg_database, CALLER)
    event = statement(
        "INSERT INTO event (xid, time_us, occurred_us, scope, actor, holder, source, type, subject)"
        " VALUES (CAST('900000000002' AS xid8), 1, 1, '', 'a', 'h', 'seen', 'x.y', 's')"
    )
    engine.write(lambda tx: tx.run(event), CALLER)
    engine.release()
    with psycopg.connect(pg_database) as admin:
        admin.execute("UPDATE standfast.meta SET value = '' WHERE key = 'cluster'")
    for _ in range(2):
        open_engine(pg_database, CALLER).release()
        assert meta(pg_database)["settled_seq"] == "1"


def test_a_dump_restored_on_another_server_is_settled_and_nothing_is_skipped() -> None:
    """001-54: a real dump is restored into a younger cluster; a tail reads it from the start and continues."""
    from standfast.core import journal
    from standfast.db.store import Store

    with TemporaryPostgres() as old, TemporaryPostgres() as new:
        with psycopg.connect(old.url, autocommit=True) as admin:
            for _ in range(2000):  # a cluster with more transactions than the next one
                admin.execute("SELECT pg_current_xact_id()")
        engine = open_engine(old.url, CALLER)
        for n in range(5):
            engine.write(lambda tx, n=n: journal.append(tx, "x.y", f"old {n}"), CALLER)  # type: ignore[misc]
        engine.release()
        dump = [f"{old._binaries}/pg_dump", "--no-owner", old.url]
        restore = [f"{old._binaries}/psql", "--quiet", "--set", "ON_ERROR_STOP=1", new.url]
        text = subprocess.run(dump, check=True, capture_output=True).stdout
        subprocess.run(restore, check=True, input=text, stdout=subprocess.DEVNULL)

        store = Store(lambda caller: open_engine(new.url, caller), CALLER, lambda: "h")
        log = journal.Journal(store)
        page = log.tail(limit=3)
        for n in range(3):
            store.write(lambda tx, n=n: journal.append(tx, "x.y", f"new {n}"))  # type: ignore[misc]
        rest = log.tail(page.cursor, limit=50)
        store.close()
    subjects = [event.subject for event in page.events + rest.events]
    assert subjects == [f"old {n}" for n in range(5)] + [f"new {n}" for n in range(3)]
