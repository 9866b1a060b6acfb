"""Every statement on a hot path of tasks finds its rows by an index, on both engines, in a large queue."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle
from standfast.core import leases
from standfast.db.contract import Row
from standfast.db.sql import Statement, statement
from standfast.record.tasks import changes, claims, graph, queries, sightings
from standfast_prove.postgres import fresh_database

FILL = Statement(
    "fill",
    """INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, kind, source, priority, labels,
                       parent_id, occurrences, first_seen_us, last_seen_us, last_sweep, fence, holder, created_us,
                       updated_us)
WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 40000)
SELECT 'tsk_' || substr('00000000000000000000000000' || n, -26), 'here', 'there', 'f' || (n / 2), 2 - n % 2,
       CASE WHEN n % 2 = 1 THEN 'open' ELSE 'closed' END, 'task ' || n, 'task', 'source ' || (n % 50), n % 3, '',
       CASE WHEN n % 100 = 0 THEN 'tsk_' || substr('00000000000000000000000000' || (1 + n / 1000), -26) END,
       1, n, n, n % 7, 0, CASE WHEN n % 500 = 1 THEN 'a:ann' END, n, n FROM i""",
    """INSERT INTO task (id, scope, repository, fingerprint, episode, state, title, kind, source, priority, labels,
                       parent_id, occurrences, first_seen_us, last_seen_us, last_sweep, fence, holder, created_us,
                       updated_us)
SELECT 'tsk_' || lpad(CAST(n AS text), 26, '0'), 'here', 'there', 'f' || (n / 2), 2 - n % 2,
       CASE WHEN n % 2 = 1 THEN 'open' ELSE 'closed' END, 'task ' || n, 'task', 'source ' || (n % 50), n % 3, '',
       CASE WHEN n % 100 = 0 THEN 'tsk_' || lpad(CAST(1 + n / 1000 AS text), 26, '0') END,
       1, n, n, n % 7, 0, CASE WHEN n % 500 = 1 THEN 'a:ann' END, n, n FROM generate_series(1, 40000) AS i (n)""",
)
NEED = statement(
    """INSERT INTO task_need (task_id, needs_id)
SELECT t.id, o.id FROM task t JOIN task o ON o.scope = t.scope AND o.repository = t.repository
                                 AND o.fingerprint = t.fingerprint AND o.id < t.id"""
)
ANALYZE = statement("ANALYZE")

WORKER: Row = {"label": "", "kind": "", "source": "", "assignee": "ann"}
LISTED: Row = {"label": "", "kind": "", "source": "", "assignee": "", "branch": "", "session_id": "", "held": 0}
SEEN: Row = {
    **dict.fromkeys(("body", "branch", "assignee", "parent_id", "session_id", "cool_down_us", "due_us")),
} | {"title": "x", "kind": "task", "priority": 2, "labels": ""}
AT: Row = {"priority": -1, "created_us": 0, "id": ""}
HOT: list[tuple[Statement, Row]] = [
    (sightings.SQL.add, SEEN),
    (sightings.SQL.count_cooling, {}),
    (sightings.SQL.absent, {"seen_before": 2}),
    (sightings.SQL.next_sweep, {}),
    (changes.CLAIMS.by_id, {}),
    (changes.SQL.by_fingerprint, {}),
    (claims.SQL.ready, WORKER),
    (claims.SQL.ready_page, WORKER | AT),
    (changes.CLAIMS.processes, {"own": "p:1"}),
    (changes.CLAIMS.expire_lease, {"holder": "a:ann"}),
    (claims.SQL.take, {"holder": "a:ann"} | dict.fromkeys(("lease_until_us", "lease_mono_us", "lease_for_us"), 1)),
    (claims.SQL.blockers, {}),
    (graph.SQL.waits_for, {"other": "tsk_"}),
    (graph.SQL.progress, {"depth_max": 64}),
    (graph.SQL.children, {}),
    (queries.SQL.live, LISTED | AT),
    (queries.SQL.live_everywhere, LISTED | AT),
    (queries.SQL.settled, LISTED | {"state": "closed", "id": "\x7f"}),
    (queries.SQL.any, LISTED | {"id": "\x7f", "everywhere": 0}),
    (leases.RENEWED["task"], {"holder": "a:ann", "mono_now_us": 1}),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    """40,000 tasks: half of them are closed, and many of the others wait for another task."""
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        sf._store.write(lambda tx: tx.run(FILL))
        sf._store.write(lambda tx: tx.run(NEED))
        sf._store.write(lambda tx: tx.run(ANALYZE))
        yield sf


@pytest.fixture(scope="module")
def pg_module_database(pg_url: str) -> Iterator[str]:
    with fresh_database(pg_url) as url:
        yield url


def plan(sf: standfast.Standfast, asked: Statement, **params: object) -> list[str]:
    """The engine's query plan, one line per step."""
    explained = copy.copy(asked)
    explained.columns = None
    explained.sqlite = f"EXPLAIN QUERY PLAN {asked.sqlite}"
    explained.postgres = f"EXPLAIN (COSTS OFF) {asked.postgres}"
    given: Row = {"scope": "here", "fingerprint": "f7", "source": "source 1", "limit": 50, "state": "", "fence": 0}
    given |= {"id": "tsk_00000000000000000000000001", "actor": "ann", "boot_id": "boot", "lease_boot": "boot"}
    given |= {"mono_us": 1, "now_us": 1, "git_dir": None, "origin": None, "repository": "there", "here": None} | params
    rows = sf._store.write(lambda tx: tx.all(explained, **given))
    return [str(row.get("detail", row.get("QUERY PLAN"))) for row in rows]


@pytest.mark.parametrize(("asked", "params"), HOT, ids=lambda value: value.name if isinstance(value, Statement) else "")
def test_it_never_reads_the_table_from_end_to_end(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    steps = plan(full, asked, **params)
    assert [step for step in steps if re.search(r"Seq Scan on task|^SCAN (task\w*|[tcnpod])$", step)] == []


@pytest.mark.parametrize(
    ("asked", "params"),
    [(claims.SQL.ready, WORKER), (claims.SQL.ready_page, WORKER | AT), (queries.SQL.live, LISTED | AT)],
    ids=["ready", "ready_page", "live"],
)
def test_the_order_of_the_queue_is_the_indexs_own(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    """The engine sorts nothing: it reads the index until the first row that fits, however long the queue is."""
    steps = "\n".join(plan(full, asked, **params))
    assert "task_ready" in steps
    assert "TEMP B-TREE FOR ORDER BY" not in steps
    assert "Sort" not in steps


def test_a_sighting_of_a_known_problem_rewrites_no_index(full: standfast.Standfast) -> None:
    """PostgreSQL keeps the new version on the same page if no indexed column changes."""
    if full.engine.name != "postgres":
        pytest.skip("SQLite has no such distinction")
    full.tasks.add("seen often")
    counted = statement("SELECT pg_stat_get_xact_tuples_hot_updated(CAST('task' AS regclass)) AS hot")
    with full.transaction() as tx:
        tx.tasks.add("seen often")
        assert tx._tx is not None
        assert tx._tx.one(counted)["hot"] == 1
