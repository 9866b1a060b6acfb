"""`store push` copies the journal to another place, each row once by store and number. The store needs no push."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import standfast
from standfast import Standfast
from standfast.admin import push as pushing
from standfast.cli import app
from tests.interfaces.test_cli import run

pytestmark = pytest.mark.without_store

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Standfast]:
    with standfast.open(tmp_path / "local.db", data_dir=tmp_path / "local") as store:
        yield store


def there(url: str) -> list[tuple[str, int, dict[str, Any]]]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT store, seq, event FROM standfast_pushed.event ORDER BY store, seq")
        return found.fetchall()


def lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(place.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def seqs(sf: Standfast) -> list[int]:
    return [row["seq"] for row in sf.rows("SELECT seq FROM event ORDER BY seq")]


def test_the_journal_is_in_postgresql_once(local: Standfast, pg_database: str, tmp_path: Path) -> None:
    """000-5, 000-49: the copy is optional and keyed by store and number. Two stores can push into one table."""
    local.tasks.add("one")
    done = pushing.push(local._store, pg_database)
    assert (done.sent, done.upto_seq) == (len(seqs(local)), seqs(local)[-1])
    assert pushing.push(local._store, pg_database).sent == 0
    local.tasks.add("two")
    assert pushing.push(local._store, pg_database).sent == 1
    with standfast.open(tmp_path / "other.db", data_dir=tmp_path / "other") as other:
        other.tasks.add("three")
        pushing.push(other._store, pg_database)
        stores = {local.engine.store_id: seqs(local), other.engine.store_id: seqs(other)}
    found = there(pg_database)
    assert {store: [seq for one, seq, _ in found if one == store] for store in stores} == stores
    assert "two" in {event["data"].get("summary") for _, _, event in found}


def test_a_directory_takes_cloud_events(sf: Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """000-49: on both engines. Payloads are pushed only on request, and redacted."""
    monkeypatch.setattr(pushing, "SETTLED_US", -1)  # as if a minute had passed
    sf.state.set("token", {"value": SECRET})
    sf.events.append("orders", "order.paid", {"card": "4711"})
    pushing.push(sf._store, str(tmp_path / "plain"))
    plain = lines(tmp_path / "plain")
    assert [int(event["id"]) for event in plain] == seqs(sf)
    assert all("data" not in event["data"] or event["data"]["data"] is None for event in plain)
    pushing.push(sf._store, str(tmp_path / "full"), payloads=True)
    text = json.dumps(lines(tmp_path / "full"))
    assert "4711" in text
    assert SECRET not in text


def test_a_row_that_is_not_settled_waits(sf: Standfast, tmp_path: Path) -> None:
    """On PostgreSQL, a row with a lower number may commit later. SQLite commits in order."""
    sf.tasks.add("now")
    sent = pushing.push(sf._store, str(tmp_path / "to")).sent
    assert sent == (len(seqs(sf)) if sf.engine.name == "sqlite" else 0)


def test_killed_between_two_batches_it_continues(
    local: Standfast, tmp_path: Path, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """000-49: the next push continues. No row is pushed twice or left out."""
    for _ in range(2):
        local.events.append_many("many", [("row", {"n": n}) for n in range(600)])
    place = {"home": tmp_path, "STANDFAST_DB_URL": str(tmp_path / "local.db")}
    for to in (pg_database, str(tmp_path / "to")):
        killed = run("store", "push", to, STANDFAST_CRASH_AT="push.after_batch", **place)
        assert killed.returncode == -signal.SIGKILL
        done = run("store", "push", to, **place)
        assert done.returncode == 0, done.stderr
        assert "pushed" in done.stdout
    assert [seq for _, seq, _ in there(pg_database)] == seqs(local)
    assert [int(event["id"]) for event in lines(tmp_path / "to")] == seqs(local)


def test_an_outage_changes_nothing_here(
    local: Standfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """000-5: the local store works while the other place is unreachable."""
    monkeypatch.setenv("STANDFAST_DB_URL", str(tmp_path / "local.db"))
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / "local"))
    local.tasks.add("one")
    url = "postgresql://ann:hidden@127.0.0.1:1/none"
    assert app.run(["store", "push", url]) == 1
    said = capsys.readouterr().err
    assert "Nothing is lost here" in said
    assert "hidden" not in said
    (tmp_path / "file").write_text("")
    assert app.run(["store", "push", str(tmp_path / "file")]) == 1
    assert app.run(["store", "push", "ftp://x/y"]) == 2
    assert [task.title for task in local.tasks.list()] == ["one"]
