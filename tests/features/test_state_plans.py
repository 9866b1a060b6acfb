"""Every statement on a hot path of state and agents finds its rows by an index, on both engines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast import config, handle
from standfast.db.contract import Row
from standfast.db.sql import Statement, statement
from standfast.record.state import values
from tests.features.test_tasks_plans import ANALYZE, pg_module_database, plan

__all__ = ["pg_module_database"]

FILL = Statement(
    "fill",
    """INSERT INTO state (scope, repository, namespace, key, value, version, actor, updated_us, expires_us)
WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 6000)
SELECT 'here', 'there', 'n' || (n % 20), 'k' || n, '1', 1, 'ann', n, CASE WHEN n % 10 = 0 THEN 1000000 + n END
FROM i""",
    """INSERT INTO state (scope, repository, namespace, key, value, version, actor, updated_us, expires_us)
SELECT 'here', 'there', 'n' || (n % 20), 'k' || n, '1', 1, 'ann', n, CASE WHEN n % 10 = 0 THEN 1000000 + n END
FROM generate_series(1, 6000) AS i (n)""",
)
TELL = statement(
    """INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject)
SELECT updated_us, updated_us, scope, actor, actor, 'seen', 'state.set', 'state:' || namespace || ':' || key
FROM state"""
)
KEY: Row = {"namespace": "n1", "key": "k21"}
WRITTEN: Row = {
    **KEY,
    **dict.fromkeys(("json_schema", "verify", "expires_us", "git_dir", "origin")),
} | {"value": "1", "checked": "", "keep_schema": 1, "keep_verify": 1, "keep_end": 0, "version": 1, "create": 0}
HOT: list[tuple[Statement, Row]] = [
    (values.SQL.get, KEY),
    (values.SQL.get_for_update, KEY),
    (values.SQL.set, WRITTEN),
    (values.SQL.swap, WRITTEN),
    (values.SQL.delete, WRITTEN),
    (values.SQL.verified, WRITTEN | {"verdict": "fresh"}),
    (values.SQL.expire, {"now_us": 1_000_100}),
    (values.SQL.page, {"namespace": "n1", "after": "k2"}),
    (values.SQL.keys_ever, {"namespace": "n1", "after": "k2"}),
    (values.SQL.at_cut, {"subject": "state:n1:k21", "cut_seq": 5}),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    """6,000 values in 20 namespaces. Every tenth value expires."""
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        sf._store.write(lambda tx: tx.run(FILL))
        sf._store.write(lambda tx: tx.run(TELL))
        sf._store.write(lambda tx: tx.run(ANALYZE))
        yield sf


@pytest.mark.parametrize(("asked", "params"), HOT, ids=lambda value: value.name if isinstance(value, Statement) else "")
def test_it_never_reads_the_table_from_end_to_end(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    steps = plan(full, asked, **params)
    assert [step for step in steps if re.search(r"Seq Scan on (state|event)|^SCAN (state|event)", step)] == [], steps


def test_the_sweep_finds_expired_values_by_their_end(full: standfast.Standfast) -> None:
    assert "state_expiring" in "\n".join(plan(full, values.SQL.expire, now_us=1_000_100))
