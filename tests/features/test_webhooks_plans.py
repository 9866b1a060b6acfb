"""Every statement on a hot path of webhooks, dead letters and credits finds its rows by an index, on both engines."""

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
from standfast.ledger import credits, dead_letters
from standfast.ledger.webhooks import claims, receive, resource
from standfast.views import recovery
from standfast_prove.postgres import fresh_database

ROWS = 10_000
N_SQLITE = f"WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < {ROWS})"
SERIES = f"FROM generate_series(1, {ROWS}) AS i (n)"


def _filled(table: str, columns: str, values: str) -> Statement:
    """`{id:x}` is an id with the prefix x, made of n."""
    lite = re.sub(r"\{id:(\w+)\}", r"'\1_' || substr('00000000000000000000000000' || n, -26)", values)
    post = re.sub(r"\{id:(\w+)\}", r"'\1_' || lpad(CAST(n AS text), 26, '0')", values)
    into = f"INSERT INTO {table} ({columns})"
    return Statement(f"fill_{table}", f"{into} {N_SQLITE} SELECT {lite} FROM i", f"{into} SELECT {post} {SERIES}")


FILL = [
    _filled(
        "webhook_event",
        "id, scope, source, event_id, hash, payload, state, deliveries, attempts, attempts_max, ready_us, fence,"
        " holder, received_us",
        "{id:whk}, 'here', 'source ' || (n % 5), 'e' || n, 'h', '{}', CASE WHEN n % 10 = 1 THEN 'received'"
        " WHEN n % 1000 = 0 THEN 'dead' ELSE 'done' END, 1, 0, 8, n, 0, CASE WHEN n % 1000 = 1 THEN 'a:ann' END, n",
    ),
    _filled(
        "dead_letter",
        "id, scope, subject, kind, reason, attempts, created_us, settled_us, settlement",
        "{id:ddl}, 'here', {id:whk}, 'webhook', 'why', 8, n, CASE WHEN n % 1000 = 0 THEN NULL ELSE n END,"
        " CASE WHEN n % 1000 = 0 THEN NULL ELSE 'retried' END",
    ),
    _filled(
        "credit_entry",
        "id, scope, account, unit, amount, key, hash, actor, created_us, occurred_us",
        "{id:crd}, 'here', 'account ' || (n % 500), 'credits', 1, 'key ' || n, 'h', 'ann', n, n",
    ),
]
ANALYZE = statement("ANALYZE")

ID = "0" * 25 + "1"
GIVEN: Row = {
    "scope": "here",
    "everywhere": 0,
    "git_dir": None,
    "origin": None,
    "here": "there",
    "source": "",
    "kind": "",
    "state": "",
    "limit": 50,
    "now_us": 10**9,
    "id": f"whk_{ID}",
    "event_id": "e7",
    "hash": "h",
    "payload": "{}",
    "attempts_max": 8,
    "fence": 0,
    "was": 0,
    "subject": f"whk_{ID}",
    "reason": "why",
    "attempts": 1,
    "settlement": "retried",
    "by": "ann",
    "note": None,
    "holder": "a:ann",
    "actor": "ann",
    "error": None,
    "result": None,
    "ready_us": 1,
    "ended_us": 1,
    "lease_until_us": 1,
    "lease_boot": "b",
    "lease_mono_us": 1,
    "lease_for_us": 1,
    "boot_id": "b",
    "mono_us": 1,
    "mono_now_us": 1,
    "account": "account 7",
    "unit": "credits",
    "amount": 1,
    "key": "key 7",
    "occurred_us": 1,
    "seq": 10**9,
    "at_us": 10**9,
    "after": "whk_z",
}
HOT: list[tuple[Statement, Row]] = [
    (receive.SQL.receive, {"source": "source 1"}),
    (receive.SQL.by_event_for_update, {"source": "source 1"}),
    (receive.SQL.count, {}),
    (claims.CLAIMS.by_id, {}),
    (claims.SQL.by_event, {"source": "source 1"}),
    (claims.SQL.ready, {}),
    (claims.CLAIMS.processes, {"own": "p:1"}),
    (claims.CLAIMS.expire_lease, {}),
    (claims.SQL.take, {}),
    (claims.SQL.change, {"state": "done"}),
    (resource.SQL.page, {}),
    (resource.SQL.waiting, {}),
    (resource.SQL.dead, {}),
    (leases.RENEWED["webhook_event"], {}),
    (dead_letters.SQL.bury, {"kind": "webhook"}),
    (dead_letters.SQL.settle, {}),
    (dead_letters.SQL.open_of, {}),
    (dead_letters.SQL.open_page, {"after": "ddl_z"}),
    (dead_letters.SQL.page, {"after": "ddl_z"}),
    (recovery.SQL.dead_letters, {}),
    (credits.SQL.add, {}),
    (credits.SQL.by_key, {}),
    (credits.SQL.kept_sum, {"fold": "credits", "stream": "account 7"}),
    (credits.SQL.balance_since, {"seq": 9_000}),
    (credits.SQL.balance_at, {}),
    (credits.SQL.balances_of, {"unit": ""}),
    (credits.SQL.page, {"unit": ""}),
    (credits.SQL.page_of, {"unit": ""}),
]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[standfast.Standfast]:
    """10,000 rows of each kind. One event in ten is still to be handled, and one letter in a thousand is open."""
    place: Path = tmp_path_factory.mktemp("plans")
    url = str(place / "standfast.db")
    if request.param == "postgres":
        url = request.getfixturevalue("pg_module_database")
    with handle.connect(config.load(url, data_dir=place / "data", scope="here")) as sf:
        for fill in [*FILL, ANALYZE]:
            sf._store.write(lambda tx, fill=fill: tx.run(fill))  # type: ignore[misc]
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
    rows = sf._store.write(lambda tx: tx.all(explained, **(GIVEN | params)))
    return [str(row.get("detail", row.get("QUERY PLAN"))) for row in rows]


@pytest.mark.parametrize(("asked", "params"), HOT, ids=lambda value: value.name if isinstance(value, Statement) else "")
def test_it_never_reads_a_table_from_end_to_end(full: standfast.Standfast, asked: Statement, params: Row) -> None:
    steps = plan(full, asked, **params)
    tables = "webhook_event|dead_letter|credit_entry"
    assert [step for step in steps if re.search(rf"Seq Scan on ({tables})|^SCAN ({tables}|[wd])$", step)] == []


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        (claims.SQL.ready, "webhook_event_ready"),
        (resource.SQL.waiting, "webhook_event_ready"),
        (resource.SQL.dead, "dead_letter_open"),
        (dead_letters.SQL.open_page, "dead_letter_open"),
        (recovery.SQL.dead_letters, "dead_letter_open"),
        (credits.SQL.balance_since, "credit_entry_by_account"),
    ],
    ids=lambda value: value.name if isinstance(value, Statement) else value,
)
def test_what_waits_is_found_by_its_own_index_however_much_is_settled(
    full: standfast.Standfast, asked: Statement, index: str
) -> None:
    assert index in "\n".join(plan(full, asked, seq=0))  # no sum of credits was stored yet
