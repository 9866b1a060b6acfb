"""Every statement on a hot path of loops and runs finds its rows by an index, on both engines, in a long history."""

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
from standfast.record.loops import edit, fire, runs
from standfast.views import recovery, timeline
from tests.features.test_tasks_plans import pg_module_database  # noqa: F401  # a fixture

LOOP = """'lop_' || {padded}, 'here', 'loop ' || n, 'every', '60000000', 'UTC', '["true"]', '/', 'latest', 10, 'skip',
       0, 0, 5, 0, 'active', 'h1:' || n, 0, 1000000000 + n, 'ann', 'ann@here', 'here', n, n"""
RUN = """'run_' || {padded}, 'lop_' || {loop}, 'here', n, 1, 'slot', CASE WHEN n > 39990 THEN 'queued' WHEN n % 9 = 0
       THEN 'missed' ELSE 'done' END, 0, n, n, CASE WHEN n > 39990 THEN NULL ELSE n END"""
LOOP_COLUMNS = """id, scope, name, kind, schedule, zone, command, cwd, catch_up, catch_up_max, overlap, retries_max,
       backoff_us, failures_max, failures, state, spec_hash, anchor_us, next_slot_us, actor, account, host, created_us,
       updated_us"""
RUN_COLUMNS = "id, loop_id, scope, slot_us, slots, source, state, attempt, ready_us, created_us, ended_us"


def fill(table: str, columns: str, values: str, number: int) -> Statement:
    """`number` rows. The statement sees the number of each row as n."""
    series = {
        "sqlite": f"WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < {number})",
        "postgres": f"WITH i (n) AS (SELECT * FROM generate_series(1, {number}))",
    }
    padded = {
        "sqlite": "substr('00000000000000000000000000' || ({n}), -26)",
        "postgres": "lpad(CAST(({n}) AS text), 26, '0')",
    }
    texts = [
        f"{'INSERT INTO ' + table + ' (' + columns + ')'} {series[engine]} SELECT "
        + values.format(padded=padded[engine].format(n="n"), loop=padded[engine].format(n="1 + n % 400"))
        + " FROM i"
        for engine in ("sqlite", "postgres")
    ]
    return Statement("fill", *texts)


LISTED: Row = {"state": "", "since_us": 0, "until_us": 2**62, "slot_us": 10**15, "id": "\x7f"}
WINDOW: Row = {"from_us": 1000, "until_us": 1100, "everywhere": 0, "subject": None, "ending": None}
HOT: list[tuple[Statement, Row]] = [
    (fire.SQL.due, {"now_us": 1_000_000_010}),
    (fire.SQL.known, {"first_us": 1, "last_us": 2}),
    (fire.SQL.advance, {"next_slot_us": 1, "last_slot_us": 1, "state": "active", "reason": None}),
    (fire.SQL.next_slot, {}),
    (fire.SQL.next_ready, {}),
    (fire.SQL.late, {"late_us": 1_000_000_010, "everywhere": 1}),
    (edit.SQL.by_name, {}),
    (edit.SQL.cancel_queued, {"reason": "x"}),
    (runs.SQL.ready, {"now_us": 10**15}),
    (runs.SQL.running, {}),
    (runs.SQL.take, {"host": "h"} | dict.fromkeys(("lease_until_us", "lease_mono_us", "lease_for_us"), 1)),
    (runs.SQL.by_id_for_update, {}),
    (runs.SQL.holders, {}),
    (runs.SQL.over, {}),
    (runs.SQL.of_holder, {}),
    (runs.SQL.to_cancel, {}),
    (runs.SQL.of_loop, LISTED),
    (runs.SQL.of_scope, LISTED),
    (runs.SQL.everywhere, LISTED),
    (timeline.SQL.slots_between, WINDOW),
    (timeline.SQL.ranges_into, WINDOW),
    (recovery.SQL.late_loops, {"late_us": 1_000_000_010, "everywhere": 0}),
    (recovery.SQL.waiting_runs, {"late_us": 39_995, "at_us": -1}),
    (leases._renewal("run"), {"mono_now_us": 1}),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    """Four hundred loops and forty thousand runs, a few of them open."""
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        sf._store.write(lambda tx: tx.run(fill("loop", LOOP_COLUMNS, LOOP, 400)))
        sf._store.write(lambda tx: tx.run(fill("run", RUN_COLUMNS, RUN, 40_000)))
        sf._store.write(lambda tx: tx.run(statement("ANALYZE")))
        yield sf


def plan(sf: standfast.Standfast, asked: Statement, **params: object) -> list[str]:
    """The engine's query plan, one line per step."""
    explained = copy.copy(asked)
    explained.columns = None
    explained.sqlite = f"EXPLAIN QUERY PLAN {asked.sqlite}"
    explained.postgres = f"EXPLAIN (COSTS OFF) {asked.postgres}"
    given: Row = {"scope": "here", "limit": 50, "attempt": 0, "holder": "p:x", "name": "loop 7", "actor": "ann"}
    given |= {"id": "run_00000000000000000000000007", "loop_id": "lop_00000000000000000000000007", "slot_us": 1}
    given |= {"boot_id": "boot", "lease_boot": "boot", "mono_us": 1, "now_us": 1}
    given |= {"account": "ann@here"}
    given |= {"git_dir": None, "origin": None, "here": "there"} | params
    rows = sf._store.write(lambda tx: tx.all(explained, **given))
    return [str(row.get("detail", row.get("QUERY PLAN"))) for row in rows]


@pytest.mark.parametrize(("asked", "params"), HOT, ids=lambda value: value.name if isinstance(value, Statement) else "")
def test_it_never_reads_the_history_from_end_to_end(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    steps = plan(full, asked, **params)
    read = [step for step in steps if re.search(r"Seq Scan on (run|loop)|^SCAN (run|loop|[rlo])$", step)]
    # For each run found, PostgreSQL may read all 400 loops. The timeline reads loop by loop.
    by_loop = full.engine.name == "postgres" or asked is timeline.SQL.slots_between
    assert [step for step in read if not by_loop or " on run" in step or "SCAN r" in step] == [], "\n".join(steps)


def test_the_newest_runs_of_a_scope_are_read_in_the_order_of_the_index(full: standfast.Standfast) -> None:
    steps = "\n".join(plan(full, runs.SQL.of_scope, **LISTED))
    assert "run_by_time" in steps
    assert "TEMP B-TREE" not in steps
