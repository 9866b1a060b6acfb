"""A handle belongs to one store: it never continues in another store, nor in an empty one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import standfast
from standfast.cli.exits import code_of
from standfast.core import leases
from standfast.db.sql import statement
from standfast_prove.faults.rows import checkpoint
from tests.others import Other

RAISE_EPOCH = statement("UPDATE meta SET value = '2' WHERE key = 'epoch'")


def pay(sf: standfast.Standfast, sent: list[str]) -> None:
    with sf.session("night") as s:
        s.effect("pay", {"invoice": 7}, do=lambda call: sent.append("sent"))


def refusals(sf: standfast.Standfast, times: int = 3) -> list[str]:
    """Make writes that are all refused. Returns their error codes, each with exit code 75 or 78."""
    codes = []
    for n in range(times):
        with pytest.raises(standfast.StorageError) as caught:
            sf.state.set(f"after-{n}", n)
        assert code_of(caught.value) in (75, 78)
        codes.append(caught.value.code)
    return codes


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def opened(store: Path) -> standfast.Standfast:
    return standfast.open(store / "standfast.db", data_dir=store)


def test_the_id_and_the_epoch_are_read_at_open(sf: standfast.Standfast) -> None:
    stored = {row["key"]: row["value"] for row in sf.rows("SELECT key, value FROM meta")}
    assert (sf.engine.store_id, str(sf.engine.epoch)) == (stored["store_id"], stored["epoch"])


def test_an_effect_is_not_sent_again_after_the_store_was_deleted(store: Path) -> None:
    """000-1, 002-11: R1. The open handle reports a missing store; it creates none."""
    sent: list[str] = []
    with opened(store) as sf:
        pay(sf, sent)
        shutil.rmtree(store)
        codes = []
        for _ in range(3):
            with pytest.raises(standfast.StorageError) as caught:
                pay(sf, sent)
            codes.append(caught.value.code)
        assert sent == ["sent"]
        assert set(codes[1:]) == {"store_missing"}
        assert not store.exists()


def test_an_effect_is_not_sent_again_after_the_log_was_deleted(store: Path) -> None:
    """002-11: without its WAL the file contains no store."""
    sent: list[str] = []
    with opened(store) as sf:
        pay(sf, sent)
        (store / "standfast.db-wal").unlink()
        for _ in range(3):
            with pytest.raises(standfast.StorageError) as caught:
                pay(sf, sent)
        assert sent == ["sent"]
        assert caught.value.code == "store_missing"


def test_a_store_that_was_copied_over_ours_is_refused(store: Path, tmp_path: Path) -> None:
    """000-1: another id at the same path is `store_replaced`, exit 78."""
    with opened(tmp_path / "other") as other:
        other.state.set("theirs", 1)
    with opened(store) as sf:
        sf.state.set("ours", 1)
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "other", store)
        codes = refusals(sf)
        assert set(codes[1:]) == {"store_replaced"}
        with opened(store) as new:
            assert sorted(value.key for value in new.state.list()) == ["theirs"]
            refusals(sf, 1)


def test_a_handle_does_not_continue_in_an_older_state_of_its_store(store: Path, tmp_path: Path) -> None:
    """Decision 18: the row of a sent effect is missing, so the effect would be sent again."""
    sent: list[str] = []
    with opened(store) as sf:
        sf.state.set("before", 1)
    shutil.copytree(store, tmp_path / "older")
    with opened(store) as sf:
        pay(sf, sent)
        shutil.rmtree(store)
        shutil.copytree(tmp_path / "older", store)
        codes = []
        for _ in range(3):
            with pytest.raises(standfast.StorageError) as caught:
                pay(sf, sent)
            codes.append(caught.value.code)
        assert "went back in time" in caught.value.message
        assert set(codes[1:]) == {"store_replaced"}
        assert sent == ["sent"]


@pytest.mark.parametrize("first", ["write", "fork"])
def test_an_effect_is_not_sent_again_after_an_older_copy_was_written_over_the_file(
    store: Path, tmp_path: Path, first: str
) -> None:
    """R2, 002-11: the WAL still has the newest rows, so the journal shows nothing."""
    path, sent = store / "standfast.db", list[str]()
    with opened(store) as sf:
        sf.state.set("before", 1)
    checkpoint(path)
    shutil.copyfile(path, tmp_path / "older.db")
    with opened(store) as sf:
        pay(sf, sent)
        sf.state.set("more pages", "x" * 50_000)
        sf.engine.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # type: ignore[attr-defined]
        sf.state.set("in the WAL", 1)
        if first == "fork":  # closes the engine: the next call opens the store again
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        shutil.copyfile(tmp_path / "older.db", path)
        codes = []
        for _ in range(3):
            with pytest.raises(standfast.StorageError) as caught:
                pay(sf, sent)
            codes.append(caught.value.code)
        assert codes == ["store_replaced" if first == "fork" else "database_overwritten", *["store_replaced"] * 2]
        assert sent == ["sent"]


@pytest.mark.parametrize("written", ["by a method", "in a block"])
def test_a_handle_whose_rows_are_lost_is_refused_although_a_heartbeat_got_the_first_error(
    store: Path, written: str
) -> None:
    """R2, 000-1: the thread that renews leases ignores its errors, so the next caller must get one."""
    with opened(store) as sf:
        sf.state.set("first", 1)
    checkpoint(store / "standfast.db")
    with opened(store) as sf:
        if written == "by a method":
            sf.state.set("acknowledged", 1)
        else:
            with sf.transaction() as tx:
                tx.state.set("acknowledged", 1)
        os.truncate(store / "standfast.db-wal", 0)
        with pytest.raises(standfast.CommitUnknown):
            leases.renewer(sf._store).renew()
        assert set(refusals(sf)) == {"store_replaced"}
        with opened(store) as new:
            assert [value.key for value in new.state.list()] == ["first"]
            new.state.set("of another handle", 1)  # takes the sequence number of the lost row
            assert set(refusals(sf)) == {"store_replaced"}


def test_a_handle_continues_if_none_of_its_rows_is_lost(store: Path) -> None:
    """RULES 12: after an alarm, the handle continues if the file has the same store id and epoch."""
    with opened(store) as sf:
        sf.state.set("a", 1)
        (store / "standfast.db-shm").unlink()
        with pytest.raises(standfast.CommitUnknown):
            sf.state.set("b", 1)
        sf.state.set("c", 1)
        assert {"a", "c"} <= {value.key for value in sf.state.list()}


def test_a_store_that_was_moved_away_and_back_continues(store: Path, tmp_path: Path) -> None:
    with opened(store) as sf:
        sf.state.set("a", 1)
        store.rename(tmp_path / "away")
        with pytest.raises(standfast.StorageError):
            sf.state.set("b", 1)
        with pytest.raises(standfast.StorageError) as caught:
            sf.state.set("b", 1)
        assert caught.value.code == "store_missing"
        (tmp_path / "away").rename(store)
        sf.state.set("c", 1)
        assert {"a", "c"} <= {value.key for value in sf.state.list()}


def test_a_forked_child_does_not_create_a_store(store: Path) -> None:
    with opened(store) as sf:
        sf.state.set("a", 1)
        shutil.rmtree(store)
        pid = os.fork()
        if pid == 0:
            try:
                sf.state.set("b", 1)
            except standfast.StorageError as error:
                os._exit(0 if error.code == "store_missing" else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not store.exists()


def test_a_forked_child_does_not_continue_in_another_store(engine_url: str, tmp_path: Path) -> None:
    """On both engines the child opens its own connection and compares the store id."""
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.state.set("a", 1)
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(go)
                os.read(ready, 1)
                sf.state.set("b", 1)
            except standfast.StorageError as error:
                os._exit(0 if error.code == "store_replaced" else 3)
            finally:
                os._exit(4)
        sf._store.write(lambda tx: tx.run(RAISE_EPOCH))
        os.write(go, b".")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        os.close(ready)
        os.close(go)


def test_a_handle_of_an_older_epoch_is_refused_at_its_next_write(engine_url: str, tmp_path: Path) -> None:
    """RULES 12: a restore raises the epoch, which stops old handles."""
    raising = (
        "from tests.db.test_store_pin import RAISE_EPOCH\nsf._store.write(lambda tx: tx.run(RAISE_EPOCH))\nsay('2')"
    )
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        sf.state.set("before", 1)
        with Other(engine_url, tmp_path / "data", raising, cwd=Path(__file__).parents[2]) as other:
            other.hear("2")
        assert set(refusals(sf)) == {"store_replaced"}
        with pytest.raises(standfast.StorageError, match="epoch"), sf.transaction() as tx:
            tx.state.set("inside", 1)
    with standfast.open(engine_url, data_dir=tmp_path / "data") as new:
        assert new.engine.epoch == 2
        assert [value.key for value in new.state.list()] == ["before"]


def test_a_memory_store_is_pinned_too(tmp_path: Path) -> None:
    with standfast.open(":memory:", data_dir=tmp_path) as sf:
        sf.state.set("a", 1)
        path = sf.engine.facts()["path"]
        assert isinstance(path, str)
        shutil.rmtree(os.path.dirname(path))
        assert refusals(sf)[-1] == "store_missing"


def test_an_empty_file_in_place_of_the_store_is_not_filled(store: Path) -> None:
    with opened(store) as sf:
        sf.state.set("a", 1)
        shutil.rmtree(store)
        store.mkdir()
        (store / "standfast.db").touch()
        assert refusals(sf)[-1] == "store_missing"
        assert (store / "standfast.db").stat().st_size == 0


def test_an_empty_database_in_place_of_the_store_is_not_filled(store: Path) -> None:
    """A database file without a table counts as no file."""
    with opened(store) as sf:
        sf.state.set("a", 1)
        shutil.rmtree(store)
        store.mkdir()
        code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('VACUUM'); c.close()"
        subprocess.run([sys.executable, "-c", code, str(store / "standfast.db")], check=True)
        assert (store / "standfast.db").stat().st_size > 0
        assert refusals(sf)[-1] == "store_missing"


# PostgreSQL.


def execute(url: str, *texts: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for text in texts:
            connection.execute(text.encode())


def test_a_dropped_schema_is_a_missing_store(pg_database: str, tmp_path: Path) -> None:
    """000-1: DROP SCHEMA under an open handle. Reads, writes and blocks raise the same error."""
    with standfast.open(pg_database, data_dir=tmp_path) as sf:
        sf.state.set("a", 1)
        execute(pg_database, "DROP SCHEMA standfast CASCADE")
        with pytest.raises(standfast.StorageError) as caught:
            sf.state.get("a")
        assert caught.value.code == "store_missing"
        assert set(refusals(sf)) == {"store_missing"}
        with pytest.raises(standfast.StorageError) as caught, sf.transaction() as tx:
            tx.state.set("b", 1)
        assert caught.value.code == "store_missing"


def test_a_block_finds_a_dropped_schema_first(pg_database: str, tmp_path: Path) -> None:
    with standfast.open(pg_database, data_dir=tmp_path) as sf:
        sf.state.set("a", 1)
        execute(pg_database, "DROP SCHEMA standfast CASCADE")
        with pytest.raises(standfast.StorageError) as caught, sf.transaction() as tx:
            tx.state.set("b", 1)
        assert caught.value.code == "store_missing"


def test_one_dropped_table_is_not_a_missing_store(pg_database: str, tmp_path: Path) -> None:
    with standfast.open(pg_database, data_dir=tmp_path) as sf:
        execute(pg_database, "DROP TABLE standfast.task CASCADE")
        with pytest.raises(standfast.StorageError) as caught:
            sf.tasks.add("x")
        assert caught.value.code != "store_missing"
        sf.state.set("a", 1)


def test_a_dropped_and_recreated_database_is_refused(pg_url: str, tmp_path: Path) -> None:
    """002-11: the effect is not sent a second time into the new, empty database."""
    from standfast_prove.postgres import fresh_database

    sent: list[str] = []
    with fresh_database(pg_url) as url:
        name = url.rpartition("/")[2].partition("?")[0]
        with standfast.open(url, data_dir=tmp_path) as sf:
            pay(sf, sent)
            execute(pg_url, f"DROP DATABASE {name} WITH (FORCE)", f"CREATE DATABASE {name} TEMPLATE template0")
            assert refusals(sf)[-1] == "store_missing"
            with Other(url, tmp_path, "sf.state.set('theirs', 1)\nsay('made')") as other:
                other.hear("made")
            assert set(refusals(sf)) == {"store_replaced"}
            with pytest.raises(standfast.StorageError):
                pay(sf, sent)
            with standfast.open(url, data_dir=tmp_path) as new:
                assert [value.key for value in new.state.list()] == ["theirs"]
        assert sent == ["sent"]
