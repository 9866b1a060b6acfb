"""Many processes append events, and some are killed. Consumers are killed, too, and two of them have one name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

import standfast
from standfast.errors import VersionConflict
from standfast_prove.campaigns.events import WRITERS, everything, storm
from standfast_prove.faults.children import Nursery

pytestmark = pytest.mark.without_store


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


def test_nothing_is_lost_or_interleaved_and_every_consumer_sees_every_event_once(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    """001-72, 001-48."""
    assert storm(nursery, engine_url, tmp_path, seed=4, rounds=20, kills=6) > 100


def test_a_transaction_that_commits_late_is_neither_skipped_nor_waited_for_by_other_streams(
    pg_database: str, tmp_path: Path
) -> None:
    """On PostgreSQL, a lower number may become visible after a higher one."""

    def append(stream: str) -> int:
        return other.submit(lambda: sf.events.append(stream, "x").version).result()

    def seen(name: str, stream: str | None = None) -> list[tuple[str | None, int | None]]:
        consumed = other.submit(lambda: list(sf.events.consume(name, stream))).result()
        return [(event.stream, event.version) for event in consumed]

    with standfast.open(pg_database, data_dir=tmp_path) as sf, ThreadPoolExecutor(1) as other:
        append("early")
        assert seen("all") == [("early", 1)]
        with sf.transaction() as tx:
            assert tx.events.append("slow", "x").version == 1
            assert append("fast") == 1  # this event has a higher number, but commits first
            assert seen("of one stream", "fast") == [("fast", 1)]
            assert seen("all") == []  # none before the earlier transaction has ended
        assert seen("all") == [("slow", 1), ("fast", 1)]
        with suppress(RuntimeError), sf.transaction() as tx:
            tx.events.append("slow", "x")
            append("fast")
            raise RuntimeError
        assert seen("all") == [("fast", 2)]


def race(url: str, data: str, number: int, times: int, acked: str) -> None:
    """In a child process: read the version and append at this version. After a conflict, read again."""
    note = os.open(acked, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with standfast.open(url, data_dir=data) as sf:
        for n in range(times):
            while True:
                version = len(everything(sf, "counter"))
                try:
                    sf.events.append("counter", "counted", {"is": version + 1, "by": number}, expected_version=version)
                except VersionConflict:
                    continue
                os.write(note, json.dumps([number, n, version + 1]).encode() + b"\n")
                break


def test_of_several_writers_with_one_expected_version_one_wins(
    nursery: Nursery, engine_url: str, tmp_path: Path
) -> None:
    acked = tmp_path / "acked"
    asked: dict[str, object] = {"url": engine_url, "data": str(tmp_path / "data"), "times": 3, "acked": str(acked)}
    pids = nursery.race("tests.slow.test_events_storm:race", [asked | {"number": n} for n in range(WRITERS)])
    assert [nursery.wait(pid, 120) for pid in pids] == [0] * WRITERS
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        events = everything(sf, "counter")
    assert (
        [event.data["is"] for event in events] == [event.version for event in events] == list(range(1, 3 * WRITERS + 1))
    )
    assert sorted(json.loads(line)[2] for line in acked.read_text().splitlines()) == list(range(1, 3 * WRITERS + 1))
