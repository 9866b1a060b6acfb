"""Migrations: from an empty file, from every released schema, and with later migrations that only the tests have."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import apsw
import pytest

import standfast
from standfast import clock, modules
from standfast.db import migrations
from standfast.db.contract import Caller
from standfast.db.migrations import MIGRATIONS, ddl
from standfast.db.migrations.migration import Migration
from standfast.db.sqlite.engine import SqliteEngine
from standfast_prove.campaigns.boot import LATER, engine_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "schemas"
NOBODY = Caller(actor="tests", holder="a:tests", scope="", clock=clock.SYSTEM)


def dumped(path: Path) -> list[tuple[str, str]]:
    """Every object of a schema with its SQL text in SQLite."""
    connection = apsw.Connection(str(path))
    try:
        return list(connection.execute("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name"))
    finally:
        connection.close()


def opened(path: Path, upto: int = len(MIGRATIONS)) -> SqliteEngine:
    return SqliteEngine(str(path), NOBODY, migrations=MIGRATIONS[:upto])


def test_versions_count_up_and_names_are_unique() -> None:
    """003-16: the order is reviewable in a diff."""
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len({migration.name for migration in MIGRATIONS}) == len(MIGRATIONS)


def test_every_landed_schema_has_its_fixture() -> None:
    """003-15: a migration works from every earlier version, and there is a file of each version."""
    assert sorted(file.name for file in FIXTURES.glob("*.db")) == [f"{m.version:04d}.db" for m in MIGRATIONS]


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("*.db")), ids=lambda path: path.stem)
def test_a_store_of_every_landed_schema_opens_and_keeps_what_it_held(
    fixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """001-8, 001-60, 003-7, 003-15, 003-36: an old file is migrated before the first method and keeps its rows."""
    monkeypatch.chdir(tmp_path)  # the scope of the fixture is outside any repository
    path = tmp_path / "standfast.db"
    shutil.copy(fixture, path)
    fresh = tmp_path / "fresh.db"
    opened(fresh).close()
    with standfast.open(path, data_dir=tmp_path / "data") as sf:
        assert sf.engine.schema_version() == migrations.LATEST
        assert sf.leases.get("deploy").fence == 1
        (event,) = sf.journal.tail(limit=1).events
        assert (event.type, event.subject) == ("lease.acquired", "lock:deploy")
        assert sf.leases.acquire("another").fence == 1
    assert dumped(path) == dumped(fresh)


def test_an_applied_migration_was_never_edited_since() -> None:
    """The fixtures and the package have equal checksums: migrations are only added."""
    for fixture in sorted(FIXTURES.glob("*.db")):
        connection = apsw.Connection(
            f"file:{fixture}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        kept = dict(connection.execute("SELECT version, checksum FROM migration"))
        connection.close()
        assert kept == {m.version: m.checksum for m in MIGRATIONS if m.version <= int(fixture.stem)}


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    """001-10: making the schema is idempotent."""
    path = tmp_path / "standfast.db"
    opened(path).close()
    before = dumped(path)
    opened(path).close()
    assert dumped(path) == before


def test_a_newer_store_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "standfast.db"
    newer = Migration(len(MIGRATIONS) + 1, "from the future", "CREATE TABLE later (id TEXT PRIMARY KEY) STRICT;")
    SqliteEngine(str(path), NOBODY, migrations=[*MIGRATIONS, newer]).close()
    with pytest.raises(standfast.SchemaTooNew, match="schema") as caught:
        standfast.open(path, data_dir=tmp_path / "data")
    assert caught.value.hint == modules.UPGRADE


def test_an_old_process_continues_beside_an_additive_change_and_is_fenced_by_min_writer(tmp_path: Path) -> None:
    """002-17: the migration runs while the old version is in use."""
    path = tmp_path / "standfast.db"
    with standfast.open(path, data_dir=tmp_path / "data") as old:
        old.leases.acquire("before")
        version = len(MIGRATIONS) + 1
        additive = Migration(version, "additive", "ALTER TABLE lease ADD COLUMN later TEXT;")
        SqliteEngine(str(path), NOBODY, migrations=[*MIGRATIONS, additive]).close()
        assert old.leases.acquire("beside").fence == 1
        breaking = Migration(version + 1, "breaking", "ALTER TABLE lease ADD COLUMN last TEXT;", min_writer=version + 1)
        SqliteEngine(str(path), NOBODY, migrations=[*MIGRATIONS, additive, breaking]).close()
        with pytest.raises(standfast.SchemaTooNew, match="upgraded"):
            old.leases.acquire("after")
        assert old.leases.get("beside").fence == 1


@pytest.mark.without_store
def test_a_changed_later_migration_is_refused(engine_url: str) -> None:
    """003-16: a migration is never edited once a store has it."""
    engine_of(engine_url, NOBODY, (*MIGRATIONS, LATER[0])).close()
    edited = LATER[0]._replace(text=LATER[0].text + "\n-- edited")
    with pytest.raises(standfast.Corrupt, match="differs from that of this standfast"):
        engine_of(engine_url, NOBODY, (*MIGRATIONS, edited))


@pytest.mark.without_store
@pytest.mark.parametrize("steps", [0, 3], ids=["schema 1", "schema 4"])
def test_a_development_store_is_refused_and_not_changed(engine_url: str, tmp_path: Path, steps: int) -> None:
    """003-38: the history starts with the first release. An older store is refused and not changed."""
    first = MIGRATIONS[0]._replace(name="foundation", text=MIGRATIONS[0].text + "\n-- before the first release")
    engine_of(engine_url, NOBODY, (first, *LATER[:steps])).close()
    before = [] if "://" in engine_url else dumped(Path(engine_url))
    with pytest.raises(standfast.SchemaTooNew, match="development version") as caught:
        standfast.open(engine_url, data_dir=tmp_path / "data")
    assert caught.value.code == "development_store"
    assert "standfast store reset" in caught.value.hint
    assert before == ([] if "://" in engine_url else dumped(Path(engine_url)))


def test_a_foreign_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(standfast.Corrupt, match="another program"):
        standfast.open(path, data_dir=tmp_path / "data")
    assert path.read_bytes() == before


ENGINES_OWN = {("search_entry", "words"), ("knowledge", "embedding"), ("item_vector", "embedding")}
"""Columns that one engine needs to find rows: made of other columns, and made again after a restore."""


def test_both_engines_get_the_same_tables_and_columns(sf: standfast.Standfast) -> None:
    """003-28: one history, one architecture, two engines. 003-39: no change is made for one alone."""
    if sf.engine.name == "sqlite":
        found = sf.rows(
            "SELECT t.name AS table_name, c.name AS column_name FROM pragma_table_list t, pragma_table_info(t.name) c"
            " WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
        )
    else:
        found = sf.rows(
            "SELECT c.table_name, c.column_name FROM information_schema.columns c JOIN information_schema.tables t"
            " USING (table_schema, table_name) WHERE table_schema = 'standfast' AND t.table_type = 'BASE TABLE'"
        )
    columns = {(row["table_name"], row["column_name"]) for row in found} - ENGINES_OWN
    assert columns == expected_columns()


def expected_columns() -> set[tuple[str, str]]:
    """The columns that the migrations' SQL creates in an empty SQLite database."""
    connection = apsw.Connection(":memory:")
    for migration in MIGRATIONS:
        connection.execute(ddl(migration, "sqlite")).fetchall()
    rows = connection.execute(
        "SELECT t.name, c.name FROM pragma_table_list t, pragma_table_info(t.name) c"
        " WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
    ).fetchall()
    connection.close()
    return {(str(table), str(column)) for table, column in rows}


def make_fixtures() -> None:
    """`python -m tests.db.test_migrations`: write the missing file of each schema."""
    for migration in MIGRATIONS:
        path = FIXTURES / f"{migration.version:04d}.db"
        if path.exists():
            continue
        engine = opened(path, migration.version)
        from standfast.core.leases import Leases
        from standfast.db.store import Store

        store = Store(lambda caller, engine=engine: engine, NOBODY, lambda: NOBODY.holder)  # type: ignore[misc]
        Leases(store).acquire("deploy", note="a row of its time")
        engine.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        engine.close()
        for suffix in ("-wal", "-shm", ".lock", ".bell"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        print(f"made {path.name}", file=sys.stderr)


if __name__ == "__main__":
    make_fixtures()
