"""Every statement on a hot path of mail finds its rows by an index, on both engines, in a large store."""

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
from standfast.record.mail import claims, queries, send
from standfast.record.sessions import queries as sessions
from standfast.views import recovery
from standfast_prove.postgres import fresh_database

COLUMNS = """(id, scope, box, sender, thread_id, reply_to_id, body, hash, key, priority, state, attempts, attempts_max,
              provenance, ready_us, expires_us, holder, lease_until_us, kept, fence, sent_us, ended_us)"""
VALUES = """'here', 'box ' || (n % 20), 'sender ' || (n % 50),
       CASE WHEN n % 4 = 0 THEN 'mal_' || {pad_root} ELSE 'mal_' || {pad} END, NULL, '1', 'h', 'key ' || n, n % 3,
       CASE WHEN n % 50 = 1 THEN 'leased' WHEN n % 10 = 1 THEN 'sent' ELSE 'done' END, 1, 5, '{{}}', n,
       CASE WHEN n % 5 = 1 THEN n END, CASE WHEN n % 50 = 1 THEN 'a:ann' END, CASE WHEN n % 50 = 1 THEN n END, 0, 1, n,
       CASE WHEN n % 10 <> 1 THEN n END"""
SQLITE_PAD, POSTGRES_PAD = "substr('00000000000000000000000000' || {}, -26)", "lpad(CAST({} AS text), 26, '0')"
FILL = Statement(
    "fill",
    f"""INSERT INTO mail {COLUMNS} WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 40000)
SELECT 'mal_' || {SQLITE_PAD.format("n")}, {
        VALUES.format(pad=SQLITE_PAD.format("n"), pad_root=SQLITE_PAD.format("(n - 3)"))
    } FROM i""",
    f"""INSERT INTO mail {COLUMNS} SELECT 'mal_' || {POSTGRES_PAD.format("n")}, {
        VALUES.format(pad=POSTGRES_PAD.format("n"), pad_root=POSTGRES_PAD.format("(n - 3)"))
    } FROM generate_series(1, 40000) AS i (n)""",
)
ATTEMPTS = statement(
    """INSERT INTO mail_attempt (mail_id, n, fence, actor, holder, began_us)
SELECT id, 1, 1, 'ann', 'a:ann', 1 FROM mail"""
)
ANALYZE = statement("ANALYZE")

LEASE: Row = {"holder": "a:ann", "lease_until_us": 1, "lease_boot": "b", "lease_mono_us": 1, "lease_for_us": 1}
LISTED: Row = {"state": "", "sender": "", "everywhere": 0, "priority": -1, "seq": 0, "at_scope": "", "at_box": ""}
ENDED: Row = LISTED | {"seq": 2**62}
REPORT: Row = {"at_us": -1, "id": ""}
HOT: list[tuple[Statement, Row]] = [
    (send.SQL.room_left, {"bound_default": 1000}),
    (sessions.SQL.named, {"session": "x"}),
    (claims.SQL.by_key, {}),
    (claims.CLAIMS.by_id, {}),
    (claims.CLAIMS.by_id_for_update, {}),
    (claims.SQL.ready, {}),
    (claims.SQL.peek, {}),
    (claims.CLAIMS.processes, {"own": "p:1"}),
    (claims.CLAIMS.expire_lease, {"holder": "p:2"}),
    (claims.SQL.seen, {"stale_us": 1}),
    (claims.SQL.take, LEASE),
    (claims.SQL.end_attempt, {"n": 1, "outcome": "done", "reason": None}),
    (claims.SQL.mark_read, LEASE | {"kept": 1}),
    (claims.SQL.give_back, {"reason": None, "ready_us": 1, "attempts_max": 5}),
    (claims.SQL.finish, {"state": "done", "reason": None, "grow": 0, "read_us": None}),
    (claims.SQL.lapsed, {}),
    (claims.SQL.overdue, {}),
    (queries.SQL.waiting, LISTED),
    (queries.SQL.waiting_all, LISTED),
    (queries.SQL.ended, ENDED),
    (queries.SQL.sent_by, ENDED | {"sender": "sender 1"}),
    (queries.SQL.thread, {}),
    (queries.SQL.attempts, {}),
    (queries.SQL.ahead, {"priority": 2, "seq": 9}),
    (recovery.SQL.waiting_boxes, REPORT),
    (leases.RENEWED["mail"], {"holder": "a:ann", "mono_now_us": 1}),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    """Forty thousand mails, most of them done, in twenty boxes."""
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        for made in (FILL, ATTEMPTS, ANALYZE):
            sf._store.write(lambda tx, made=made: tx.run(made))  # type: ignore[misc]
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
    given: Row = {"scope": "here", "box": "box 1", "thread_id": "", "limit": 50, "fence": 0, "key": "key 7"}
    given |= {"id": "mal_00000000000000000000000001", "actor": "ann", "boot_id": "boot", "mono_us": 1, "now_us": 1}
    given |= {"git_dir": None, "origin": None, "here": "there"}
    rows = sf._store.write(lambda tx: tx.all(explained, **(given | params)))
    return [str(row.get("detail", row.get("QUERY PLAN"))) for row in rows]


@pytest.mark.parametrize(("asked", "params"), HOT, ids=lambda value: value.name if isinstance(value, Statement) else "")
def test_it_never_reads_the_table_from_end_to_end(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    steps = plan(full, asked, **params)
    bare = r"Seq Scan on mail(_attempt)?\b(?!_box)|^SCAN (mail|mail_attempt|[ma])$"
    assert [step for step in steps if re.search(bare, step)] == []


@pytest.mark.parametrize(
    ("asked", "params"),
    [(claims.SQL.ready, {}), (claims.SQL.peek, {}), (queries.SQL.waiting, LISTED)],
    ids=["ready", "peek", "waiting"],
)
def test_the_order_of_the_box_is_the_indexs_own(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    """The engine sorts nothing: it reads the index until the first mail that fits, however full the box is."""
    steps = "\n".join(plan(full, asked, **params))
    assert "mail_waiting" in steps
    assert "TEMP B-TREE FOR ORDER BY" not in steps
    assert "Sort" not in steps


def test_counting_a_box_stops_at_its_limit_and_reads_only_the_index(full: standfast.Standfast) -> None:
    steps = "\n".join(plan(full, send.SQL.room_left, bound_default=10))
    assert "mail_waiting" in steps
    if full.engine.name == "sqlite":
        assert "COVERING INDEX mail_waiting" in steps


def test_taking_and_reading_a_mail_rewrites_no_index_of_the_box(full: standfast.Standfast) -> None:
    """No index of the box has the state as a column: on SQLite the statement writes only the index `mail_held`."""
    if full.engine.name != "sqlite":
        pytest.skip("PostgreSQL writes every index for a new version that moves, or none")
    touched = {
        str(row["name"])
        for row in full.rows("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'mail'")
        if re.search(r"\bstate\b", str(row["sql"]))
    }
    assert touched == set()
