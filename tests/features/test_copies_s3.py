"""Copies in S3: a real server, SeaweedFS from its wheel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.admin.copies.places import opened
from standfast.admin.copies.resource import read
from standfast.admin.copies.restore import restore
from standfast.config.target import Target
from tests import s3
from tests.features.test_copies import rows_of, silent

PLACE = "s3://keep/agents"


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3.server(tmp_path_factory.mktemp("s3") / "weed") as found:
        yield found


@pytest.fixture
def reachable(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def test_a_copy_in_s3_from_taking_to_restoring(
    sf: standfast.Standfast, reachable: dict[str, str], tmp_path: Path
) -> None:
    """000-42, 002-48: a copy in S3 has the same files as one in a directory. The credentials come from the
    environment.
    """
    kept = sf.artifacts.put(os.urandom(700_000), name="log")
    sf.tasks.add("one")
    first = sf.backup(PLACE)
    assert (first.state, first.place) == ("verified", f"{PLACE}/{sf.engine.store_id}")
    before = rows_of(sf, first.seq)
    sf.tasks.add("two")
    second = sf.backup(PLACE)
    assert [check for check in sf.copies.test(first.id, place=PLACE).checks if not check.ok] == []
    assert [copy.state for copy in sf.copies.list(place=PLACE)] == ["verified", "tested"]
    assert sf.engine.store_id in opened(PLACE).stores()
    place = opened(PLACE).of(sf.engine.store_id)
    restore(read(place, first.id), place, Target("sqlite", str(tmp_path / "look")), silent)
    with standfast.open(data_dir=tmp_path / "look") as look:
        assert rows_of(look, first.seq) == before
        assert len(look.artifacts.get(kept.id)) == 700_000
    sf.copies.forget(sf.copies.plan([first.id], place=PLACE), place=PLACE)
    assert [copy.id for copy in sf.copies.list(place=PLACE)] == [second.id]
    assert sf.copies.verify(second.id, place=PLACE).state == "verified"
    for entry in place.entries():
        place.remove(entry.name)


def test_damage_in_s3_is_named(sf: standfast.Standfast, reachable: dict[str, str]) -> None:
    """001-54: a changed object and a missing one."""
    copy = sf.backup(PLACE)
    place = opened(PLACE).of(sf.engine.store_id)
    name = read(place, copy.id).file.name
    place.put_bytes(name, b"other")
    with pytest.raises(standfast.Corrupt, match=copy.id):
        sf.copies.verify(copy.id, place=PLACE)
    place.remove(name)
    with pytest.raises(standfast.Corrupt, match="missing"):
        sf.copies.verify(copy.id, place=PLACE)
    for entry in place.entries():
        place.remove(entry.name)


def test_a_service_that_hangs_up_in_the_middle_leaves_no_copy(
    sf: standfast.Standfast, reachable: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-42: the error names the copy. The earlier copy verifies, and the next copy is taken."""
    sf.artifacts.put(os.urandom(700_000), name="log")
    before = sf.backup(PLACE)
    sf.artifacts.put(os.urandom(700_000), name="other")
    with s3.cut_after(reachable["AWS_ENDPOINT_URL"], 50_000) as cut:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cut)
        with pytest.raises(standfast.StorageError, match=r"the copy cpy_\w{26} was not written to s3://keep"):
            sf.backup(PLACE)
        with pytest.raises(standfast.StorageError, match=before.id):
            sf.copies.verify(before.id, place=PLACE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", reachable["AWS_ENDPOINT_URL"])
    assert [copy.id for copy in sf.copies.list(place=PLACE)] == [before.id]
    assert sf.copies.verify(before.id, place=PLACE).state == "verified"
    assert sf.backup(PLACE).state == "verified"


def test_a_service_that_refuses_is_named_with_the_copy_and_without_a_key(
    reachable: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """003-42: a wrong key, and no server at all."""
    with standfast.open(data_dir=tmp_path) as sf:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        with pytest.raises(
            standfast.StorageError, match=r"the copy cpy_\w{26} was not written to s3://keep"
        ) as refused:
            sf.backup(PLACE)
        assert "hunter2" not in str(refused.value)
        with pytest.raises(standfast.StorageError, match="cannot be read"):
            sf.copies.list(place=PLACE)
        for text in ("s3://", "s3:///x", "s3://key:secret@keep/x"):
            with pytest.raises(standfast.InvalidInput, match="without a key"):
                sf.backup(text)
