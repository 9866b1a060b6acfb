"""A call costs the same in a stream of 100,000 events as in one of 1,000. Hot statements find rows by an index."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle, when
from standfast.core import journal
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement, statement
from standfast.record.events import append, consumers, folds, queries
from standfast.record.events.models import Item
from standfast.views import timeline
from tests.features.test_tasks_plans import pg_module_database  # noqa: F401  a fixture

LONG, SHORT = 100_000, 1_000
COLUMNS = "time_us, occurred_us, scope, actor, holder, source, type, subject, stream, version, data"
FILL = Statement(
    "fill",
    f"""INSERT INTO event ({COLUMNS})
WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < :count)
SELECT n, n, 'here', 'ann', 'h', 'said', 'kind' || (n % 7), 'stream:' || :name, :name, n, '{{"n":' || n || '}}'
FROM i""",
    f"""INSERT INTO event ({COLUMNS})
SELECT n, n, 'here', 'ann', 'h', 'said', 'kind' || (n % 7), 'stream:' || :name, :name, n, '{{"n":' || n || '}}'
FROM generate_series(1, CAST(:count AS bigint)) AS i (n)""",
)
STREAM = statement("INSERT INTO stream (scope, name, version, updated_us) VALUES ('here', :name, :count, 1)")
ANALYZE = statement("ANALYZE")

SPAN: Row = {"from_us": 5, "until_us": 50}
SEEN: Row = {
    "slots": 0,
    "problems": 0,
    **SPAN,
    "session_id": None,
    "agent": None,
    "subject": None,
    "ending": None,
    "type": None,
    "type_prefix": "",
}
BY_TIME = "event_by_time"
HOT: list[tuple[Statement, Row, str]] = [
    (append.SQL.keyed, {"subject": "stream:long:k"}, "event_by_subject"),
    (queries.SQL.page, {"after": 500, "upto": 600}, "event_by_stream"),
    (queries.SQL.newest, {"before": 2**62, "type": None}, "event_by_stream"),
    (queries.SQL.of_type, {"after": 500, "type": "kind1"}, "event_by_stream"),
    (queries.SQL.between, {**SPAN, "seq": 0, "stream": None, "type": None}, BY_TIME),
    (queries.SQL.between, {**SPAN, "seq": 0, "stream": None, "type": "kind1"}, BY_TIME),
    (queries.SQL.between_newest, {**SPAN, "stream": None, "type": None}, BY_TIME),
    (timeline.SQL.between, SEEN, BY_TIME),
    (queries.SQL.place, {"version": 77}, "event_by_stream"),
    (queries.SQL.first_later, {"low": 5, "high": 900, "time_us": 7}, "event_by_stream"),
    (queries.SQL.last_of_session, {"session_id": "ses_1"}, "event_by_session"),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        for name, count in (("long", LONG), ("short", SHORT)):
            sf._store.write(lambda tx, name=name, count=count: tx.run(FILL, name=name, count=count))  # type: ignore[misc]
            sf._store.write(lambda tx, name=name, count=count: tx.run(STREAM, name=name, count=count))  # type: ignore[misc]
        sf._store.write(lambda tx: tx.run(ANALYZE))
        yield sf


def plan(sf: standfast.Standfast, asked: Statement, **params: object) -> str:
    explained = copy.copy(asked)
    explained.columns = None
    explained.sqlite = f"EXPLAIN QUERY PLAN {asked.sqlite}"
    explained.postgres = f"EXPLAIN (COSTS OFF) {asked.postgres}"
    given: Row = {"scope": "here", "stream": "long", "name": "long", "limit": 50, "everywhere": 0}
    given |= {"git_dir": None, "origin": None, "here": "there"} | params
    rows = sf._store.write(lambda tx: tx.all(explained, **given))
    return "\n".join(str(row.get("detail", row.get("QUERY PLAN"))) for row in rows)


@pytest.mark.parametrize(("asked", "params", "index"), HOT, ids=lambda value: getattr(value, "name", ""))
def test_every_hot_question_is_answered_by_an_index(
    full: standfast.Standfast, asked: Statement, params: Row, index: str
) -> None:
    """001-43: an index finds events by time range and optional type."""
    steps = plan(full, asked, **params)
    assert re.search(index, steps), steps
    assert not re.search(r"Seq Scan on event|^SCAN ", steps), steps
    assert "TEMP B-TREE" not in steps


def reads(tx: Tx) -> Row:
    """Pages (SQLite) or rows of events (PostgreSQL) that this transaction has read so far."""
    if tx.dialect == "sqlite":
        import apsw

        connection = tx._cursor.connection  # type: ignore[attr-defined]
        kinds = (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
        return {"pages": sum(connection.status(kind)[0] for kind in kinds), "scanned": 0}
    counted = statement(
        "SELECT seq_tup_read AS scanned, idx_tup_fetch AS pages FROM pg_stat_xact_user_tables WHERE relname = 'event'"
    )
    return tx.one(counted)


def cost(sf: standfast.Standfast, stream: str, **asked: object) -> Row:
    """The number of pages or rows that one append reads."""

    def body(tx: Tx) -> Row:
        tx.now_us()
        before = reads(tx)
        append.append(tx, stream, [Item("kind1", {"n": 1}, None, None)], **asked)  # type: ignore[arg-type]
        after = reads(tx)
        return {name: after[name] - before[name] for name in before}

    return sf._store.write(body)


@pytest.mark.parametrize("asked", [{}, {"key": "k"}, {"expected_version": 0}], ids=["plain", "key", "expected"])
def test_an_append_to_a_long_stream_reads_what_one_to_a_short_stream_reads(
    full: standfast.Standfast, asked: dict[str, object]
) -> None:
    """001-24: a 100,000-entry event log appends without loading the log."""
    costs = {}
    for stream in ("short", "long", "short", "long"):  # page splits and cold caches change the first count
        if "expected_version" in asked:
            asked["expected_version"] = full.events.stream(stream).version
        if "key" in asked:
            asked["key"] = f"{asked['key']}+"
        costs[stream] = cost(full, stream, **asked)
    assert costs["long"]["scanned"] == 0
    assert costs["long"]["pages"] <= 1.2 * costs["short"]["pages"] + 3, costs  # a tree may be a level deeper


def test_a_fold_of_a_long_stream_reads_only_the_events_after_its_snapshot(full: standfast.Standfast) -> None:
    """001-76: count rows."""
    called: list[int] = []

    def total(state: int, event: journal.Event) -> int:
        called.append(event.version or 0)
        return state + 1

    version = full.events.stream("long").version
    assert full.events.fold("long", total, 0, name="total").state == version == len(called)
    called.clear()
    added = full.events.append_many("long", [("kind1", None)] * 7)
    folded = full.events.fold("long", total, 0, name="total")
    assert (folded.state, folded.read, folded.snapshot) == (version + 7, 7, version)
    assert called == [one.version for one in added]
    called.clear()
    past = full.events.fold("long", total, 0, name="total", at=54_321)  # snapshots were stored meanwhile
    assert (past.state, past.read, called) == (54_321, 4_321, list(range(50_001, 54_322)))
    called.clear()
    assert full.events.fold("long", total, 0, name="total", at=when.utc(30_000)).state == 30_000
    assert called == []


def test_cursors_and_snapshots_are_found_by_their_keys(full: standfast.Standfast) -> None:
    at: Row = {"fold": "total", "version": 9, "name": "c", "stream": "long"}
    for asked in (consumers.SQL.get, folds.SQL.nearest, queries.SQL.stream):
        steps = plan(full, asked, **at)
        assert not re.search(r"^SCAN ", steps), steps
        if full.engine.name == "sqlite":  # a server rightly reads a table of a few rows without an index
            assert "SEARCH" in steps


def test_an_empty_batch_is_the_end_also_after_many_events_of_other_types(full: standfast.Standfast) -> None:
    full.events.append("long", "rare")
    assert [event.type for event in full.events.consume("seeker", type="rare")] == ["rare"]
    assert not full.events.poll("seeker").moved
