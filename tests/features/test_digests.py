"""Digests of the journal: `verify` names a row that was changed, removed or added later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import Standfast, ids
from standfast.admin.copies.places import Directory
from standfast.admin.copies.restore import restore
from standfast.admin.copies.take import Order, Source, take
from standfast.cli import app
from standfast.config.target import Target
from standfast.core import digests, journal
from standfast.core.progress import quiet
from standfast.core.receipts import Receipt, row_hash
from standfast_prove.campaigns.digests import Vandal

STRETCH = 20


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests over few rows. On PostgreSQL there is no wait, because no other process runs a transaction."""
    monkeypatch.setattr(digests, "STRETCH", STRETCH)
    monkeypatch.setattr(digests, "SETTLED_US", -1_000_000_000)


@pytest.fixture
def vandal(sf: Standfast, engine_url: str) -> Vandal:
    for n in range(2 * STRETCH + 5):
        sf.state.set(f"k{n}", n)
    return Vandal(engine_url)


def seqs(sf: Standfast) -> list[int]:
    return [row["seq"] for row in sf.rows("SELECT seq FROM event ORDER BY seq")]


def texts(sf: Standfast, against: str | None = None) -> list[str]:
    return [one.text for one in sf.journal.check(against=against).findings]


def test_an_untouched_journal_is_verified(sf: Standfast, vandal: Vandal) -> None:
    """001-75: every row is compared, and new rows continue the chain."""
    first = sf.journal.check()
    assert (first.findings, first.open) == ([], first.events % STRETCH)
    assert first.upto_seq == seqs(sf)[first.events - first.open - 1]
    for n in range(STRETCH):
        sf.state.set("k", n)
    second = sf.journal.check(against=first.witness)
    assert second.findings == []
    assert second.upto_seq > first.upto_seq
    assert second.witness != first.witness


@pytest.mark.parametrize("column", ["actor", "data", "time_us", "subject", "db_user", "origin", "summary"])
def test_an_edited_row_is_named(sf: Standfast, vandal: Vandal, column: str) -> None:
    sf.journal.check()
    seq = seqs(sf)[5]
    vandal.edit(seq, column)
    assert texts(sf) == [f"row {seq} was changed"]


def test_a_removed_and_an_exchanged_row_are_named(sf: Standfast, vandal: Vandal) -> None:
    sf.journal.check()
    three, eight, nine = (seqs(sf)[n] for n in (3, 8, 9))
    vandal.remove(three)
    vandal.exchange(eight, nine)
    assert texts(sf) == [f"row {three} was removed", f"row {eight} was changed", f"row {nine} was changed"]


def test_a_cut_tail_is_found_by_its_digest_or_a_witness(sf: Standfast, vandal: Vandal) -> None:
    witness = sf.journal.check().witness
    last = seqs(sf)[-1]
    vandal.remove(last)
    assert texts(sf) == []
    assert "rows" in texts(sf, witness)[0]
    sealed = [seq for seq in seqs(sf) if seq <= sf.journal.check().upto_seq]
    for seq in sealed[-3:]:
        vandal.remove(seq)
    assert texts(sf) == [f"row {seq} was removed" for seq in sealed[-3:]]


def test_what_was_written_again_as_a_whole_needs_a_witness(sf: Standfast, vandal: Vandal) -> None:
    """The store also has the digests, so only a digest kept elsewhere detects a rewrite of all rows."""
    witness = sf.journal.check().witness
    vandal.edit(seqs(sf)[5], "actor")
    vandal.rewrite_digests(sf)
    assert texts(sf) == []
    (text,) = texts(sf, witness)
    assert "were changed since the witness was made" in text


def test_a_removed_digest_is_named(sf: Standfast, vandal: Vandal) -> None:
    sf.journal.check()
    vandal.run("DELETE FROM digest WHERE n = 1")
    assert texts(sf)[0].startswith("digest 1 is missing")


def test_receipts_without_a_salt_stay_valid(sf: Standfast, vandal: Vandal) -> None:
    """Rows of older versions have `h1:` hashes."""
    seq = seqs(sf)[2]
    vandal.run(f"UPDATE event SET salt = NULL WHERE seq = {seq}")
    row: Any = sf.read(lambda tx: tx.one(journal.SQL.by_seq, seq=seq))
    assert row_hash(row).startswith("h1:")
    assert sf.journal.verify(f"{seq}:{row_hash(row)}").seq == seq


def test_two_equal_rows_have_different_hashes(sf: Standfast) -> None:
    """The digest of an erased row cannot confirm a guess of its content."""
    first, second = (sf.state.set("k", 1).receipt for _ in range(2))
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert first.hash.startswith("h2:")
    assert first.hash != second.hash


def test_a_manifest_is_a_witness(
    sf: Standfast, vandal: Vandal, engine_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`verify --against MANIFEST`, by file and by id; another store's manifest and a damaged one are refused."""
    monkeypatch.setenv("STANDFAST_DB_URL", engine_url)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("STANDFAST_COPIES_DIR", str(tmp_path / "copies"))
    made = sf.backup(tmp_path / "copies")
    file = Path(made.place) / f"{made.id}.json"
    assert app.run(["verify"]) == 0
    assert app.run(["verify", "--against", str(file)]) == 0
    assert app.run(["verify", "--against", made.id]) == 0
    capsys.readouterr()
    vandal.edit(seqs(sf)[5], "actor")
    vandal.rewrite_digests(sf)
    assert app.run(["verify"]) == 0
    capsys.readouterr()
    assert app.run(["verify", "--against", str(file), "--json"]) == 1
    assert "witness" in json.loads(capsys.readouterr().out)["data"]["findings"][0]["text"]
    (tmp_path / file.name).write_text(file.read_text().replace(sf.engine.store_id, ids.new_id("sto")))
    assert app.run(["verify", "--against", str(tmp_path / file.name)]) == 1
    assert "manifest was changed" in capsys.readouterr().err
    assert app.run(["verify", "1:h2:" + "0" * 64, "--against", str(file)]) == 2
    assert app.run(["verify", "--against", "nothing"]) == 3


def test_a_restored_copy_is_checked_without_writing(sf: Standfast, vandal: Vandal, tmp_path: Path) -> None:
    """001-75: this includes rows without a digest in the copy. The restored store is read only."""
    source = Source(sf.engine.name, sf.engine.identity, sf.engine.store_id)
    root = Directory(str(tmp_path / "copies"))
    made = take(source, root, Order("before migration 1 to 2", None, 0, quiet))
    restore(made, root.of(sf.engine.store_id), Target("sqlite", str(tmp_path / "look")), quiet)
    with standfast.open(data_dir=tmp_path / "look") as look:
        found = look.journal.check(against=sf.journal.check().witness)
        assert (found.findings, found.upto_seq, found.open) == ([], 0, found.events)
        assert found.witness == sf.journal.check().witness


def test_digests_of_two_processes_are_the_same(sf: Standfast, vandal: Vandal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both processes compute one digest. The second one finds it in the store."""
    make: Callable[..., None] = digests._put

    def twice(*args: Any) -> None:
        make(*args)
        make(*args)

    monkeypatch.setattr(digests, "_put", twice)
    assert sf.journal.check().findings == []
    assert sf.journal.check().findings == []


def test_a_witness_that_is_none_is_refused(sf: Standfast) -> None:
    with pytest.raises(standfast.InvalidInput, match="is not a digest"):
        sf.journal.check(against="12:x")
