"""`store push` to a real S3 server that stops in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.admin import push as pushing
from standfast.admin.copies.places import opened
from tests import s3

PLACE = "s3://keep/pushed"


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with s3.server(tmp_path_factory.mktemp("s3") / "weed") as found:
        yield found


@pytest.mark.slow
def test_a_bucket_has_each_event_once_also_after_an_outage(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-5, 000-49: the push continues after the outage, and writes each event once by store and number."""
    with standfast.open(tmp_path / "local.db", data_dir=tmp_path / "data") as sf:
        sf.tasks.add("one")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert pushing.push(sf._store, PLACE).sent > 0
        sf.tasks.add("two")
        with monkeypatch.context() as outage:
            outage.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            with pytest.raises(standfast.StorageError, match="Nothing is lost here"):
                pushing.push(sf._store, PLACE)
        assert pushing.push(sf._store, PLACE).sent == 1
        place = opened(PLACE).of(sf.engine.store_id)
        content = b"".join(b"".join(place.read(one.name)) for one in sorted(place.entries("journal")))
        found = [int(json.loads(line)["id"]) for line in content.splitlines()]
        assert found == [row["seq"] for row in sf.rows("SELECT seq FROM event ORDER BY seq")]
