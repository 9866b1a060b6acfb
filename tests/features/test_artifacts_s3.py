"""Artifacts in S3: a real server, SeaweedFS from its wheel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config
from standfast.admin.copies.places import Directory
from standfast.admin.copies.resource import read
from standfast.admin.copies.restore import restore
from standfast.config.target import Target
from standfast.core import artifact_files
from standfast.core.buckets import Bucket
from standfast.core.progress import quiet
from standfast.errors import Corrupt, NotFound, StorageError
from tests import s3
from tests.features.test_artifacts import chunk_count

WHERE = "s3://keep/artifacts"
DATA = os.urandom(700_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3.server(tmp_path_factory.mktemp("s3") / "weed") as found:
        yield found


@pytest.fixture
def bucket(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return Bucket.named(WHERE)


@pytest.fixture
def away(sf: standfast.Standfast, bucket: Bucket) -> standfast.Standfast:
    """A store that keeps artifacts in the bucket."""
    sf._store.artifact_bucket = WHERE
    return sf


def named(digest: str) -> str:
    return artifact_files.path_of("", digest)


def test_the_bytes_are_in_the_bucket_and_the_row_has_the_hash(away: standfast.Standfast, bucket: Bucket) -> None:
    """002-48: the object is named by its hash, the bytes are only in the bucket, and every read compares the hash."""
    made = away.artifacts.put(DATA, name="log")
    assert made.uri == f"{WHERE}/{named(made.digest)}"
    assert b"".join(bucket.read(named(made.digest))) == DATA
    assert chunk_count(away) == 0
    assert away.artifacts.get(made.id) == DATA
    again = away.artifacts.put(DATA, name="other")
    assert (again.uri, again.id != made.id) == (made.uri, True)
    assert away.artifacts.verify() == []
    assert away.artifacts.collect().faults == []


@pytest.mark.parametrize("how", ["changed", "cut", "longer", "missing"])
def test_other_bytes_are_not_handed_out(away: standfast.Standfast, bucket: Bucket, how: str, tmp_path: Path) -> None:
    """002-48: the error names the damaged object, and putting the same bytes again repairs it."""
    made = away.artifacts.put(DATA, name="log")
    changed = {"changed": b"x" + DATA[1:], "cut": DATA[:-1], "longer": DATA + b"x"}
    if how == "missing":
        bucket.remove(named(made.digest))
    else:
        bucket.put_bytes(named(made.digest), changed[how])
    with pytest.raises(Corrupt, match=made.id):
        away.artifacts.get(made.id)
    with pytest.raises(Corrupt, match=made.id):
        away.artifacts.get(made.id, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    faults = [(fault.artifact.id, fault.state) for fault in away.artifacts.verify(made.id)]
    assert faults == [(made.id, "missing" if how == "missing" else "damaged")]
    assert away.artifacts.put(DATA, name="log").id == made.id
    assert away.artifacts.get(made.id) == DATA


def test_results_and_scratch_stay_beside_the_store(away: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """002-48: a step and an effect record their results also while S3 does not answer."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    large = "x" * 2_000_000
    with away.session("large") as session:
        assert session.step("one", lambda: large) == large
        assert session.effect("two", {}, do=lambda call: large) == large
    before = away.artifacts.list()
    assert [one.uri for one in before if one.uri.startswith("s3:")] == []
    assert away.artifacts.put(b"for a day", name="scratch", retention="scratch").uri[:3] != "s3:"
    with pytest.raises(StorageError, match=f"was not stored in {WHERE}") as refused:
        away.artifacts.put(DATA, name="log")
    assert refused.value.code == "not_stored"
    with pytest.raises(NotFound):
        away.artifacts.show("log")


def test_putting_again_moves_the_bytes(away: standfast.Standfast) -> None:
    """002-48: with a bucket in the configuration, the bytes move into it, and later out of it. Row and id stay."""
    away._store.artifact_bucket = None
    local = away.artifacts.put(DATA, name="log", retention="scratch")
    away._store.artifact_bucket = WHERE
    moved = away.artifacts.put(DATA, name="log")
    assert (moved.id, moved.uri[:3], moved.retention) == (local.id, "s3:", "keep")
    assert away.artifacts.get("log") == DATA
    away._store.artifact_bucket = None
    assert away.artifacts.put(DATA, name="log").uri == local.uri
    assert away.artifacts.get("log") == DATA


def test_a_copy_leaves_them_in_the_bucket(away: standfast.Standfast, tmp_path: Path) -> None:
    """002-48: a copy of the store has the row with the hash. The restored store reads the object and compares it."""
    made = away.artifacts.put(DATA, name="log")
    away._store.artifact_bucket = None
    away.artifacts.put(b"beside the store", name="local")
    copy = away.backup(tmp_path / "copies")
    assert copy.artifacts == 1
    checks = away.copies.test(copy.id, place=str(tmp_path / "copies")).checks
    assert [check for check in checks if not check.ok] == []
    place = Directory(copy.place)
    restore(read(place, copy.id), place, Target("sqlite", str(tmp_path / "look")), quiet)
    with standfast.open(data_dir=tmp_path / "look") as look:
        assert look.artifacts.get(made.id) == DATA
        assert look.artifacts.verify() == []


PUT = """
import sys, standfast
with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:
    made = sf.artifacts.put(b"killed" * 100_000, name="killed")
    print(made.id, made.uri)
"""


def test_killed_between_the_object_and_the_row(engine_url: str, bucket: Bucket, tmp_path: Path) -> None:
    """002-48: no row names the object, and repeating the call stores one. The bucket is named in config.toml."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "config.toml").write_text(f'artifact_bucket = "{WHERE}"\n')
    command = [sys.executable, "-c", PUT, engine_url, str(tmp_path / "data")]
    killed = subprocess.run(command, env={**os.environ, "STANDFAST_CRASH_AT": "artifact.before_row"})
    assert killed.returncode == -9
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf, pytest.raises(NotFound):
        sf.artifacts.show("killed")
    id, uri = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert uri.startswith(WHERE)
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        assert sf.artifacts.get(id) == b"killed" * 100_000


def test_a_line_cut_in_the_middle(
    away: standfast.Standfast, server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """002-48: an interrupted upload leaves no row, and an interrupted download returns no bytes. Both then succeed."""
    made = away.artifacts.put(DATA, name="whole")
    with s3.cut_after(server["AWS_ENDPOINT_URL"], 50_000) as cut:
        monkeypatch.setenv("AWS_ENDPOINT_URL", cut)
        with pytest.raises(StorageError, match="was not stored"):
            away.artifacts.put(os.urandom(700_000), name="cut")
        with pytest.raises(StorageError, match="cannot be read"):
            away.artifacts.get("whole")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server["AWS_ENDPOINT_URL"])
    with pytest.raises(NotFound):
        away.artifacts.show("cut")
    assert away.artifacts.get(made.id) == DATA


@pytest.mark.parametrize(
    "text",
    ['"s3://"', '"s3:///x"', '"s3://key:secret@keep/x"', '"/mnt/nas"', '"https://keep"', '"s3://keep/../x y"', "1"],
)
def test_a_wrong_bucket_is_refused_by_name(tmp_path: Path, text: str) -> None:
    """002-48: the error names the file, the key and the accepted values; a project cannot set it."""
    (tmp_path / "config.toml").write_text(f"artifact_bucket = {text}\n")
    with pytest.raises(standfast.InvalidInput, match="wrong value for 'artifact_bucket'"):
        config.load(data_dir=tmp_path)
