"""Template stores: an empty one, and one with rows of other callers (two per resource: one finished, one halfway).

Each template is made once per test process. A test gets a copy of the SQLite file or the PostgreSQL database, so
no migration runs. Each copy has its own `store_id`. `unchanged` compares the rows of neighbours after the test.

`MODULES` names the test files whose stores have neighbours. A test in these files that needs an empty store, because
it reads the whole journal or writes plain SQL to all rows, is listed in `ALONE`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import psycopg

import standfast
from standfast.ids import new_id
from standfast_prove.postgres import fresh_database
from tests.rows import IN_ONE_TRIP, OWNED, Name, Row, by_name, differing
from tests.walks import RESOURCES, Names, opened

MODULES = frozenset(
    {
        "test_agents",
        "test_budgets",
        "test_checkpoints",
        "test_conversations",
        "test_copies",
        "test_credits",
        "test_dead_letters",
        "test_decisions",
        "test_effects",
        "test_events",
        "test_knowledge",
        "test_leases",
        "test_lists",
        "test_loops",
        "test_mail",
        "test_messages",
        "test_runs",
        "test_sessions",
        "test_state",
        "test_state_schemas",
        "test_state_values",
        "test_steps",
        "test_tasks",
        "test_tasks_episodes",
        "test_webhooks",
    }
)
ALONE = frozenset(
    {
        "test_a_bad_key_is_refused_by_name",
        "test_a_fork_shares_the_messages_before_the_cut_and_copies_nothing",
        "test_a_handler_that_lost_its_event_records_nothing",
        "test_repeated_grants_with_one_key_count_once",
        "test_a_large_result_is_stored_as_an_artifact",
        "test_a_loop_of_fifteen_minutes_for_a_week_leaves_the_predicted_episodes",
        "test_a_repeat_in_one_opening_is_number_two_in_order",
        "test_a_result_that_cannot_be_stored_is_refused_by_name",
        "test_an_expected_version_that_is_not_there_is_refused_and_the_one_there_is_named",
        "test_committing_nothing_changes_nothing",
        "test_delete_removes_only_the_named_checkpoints",
        "test_one_key_in_two_repositories_and_two_scopes_is_two_sessions",
        "test_pages_by_scope_and_kind_the_newest_first",
        "test_each_page_of_runs_begins_after_the_last_one",
        "test_scopes_are_independent",
        "test_taking_giving_back_and_taking_over_are_in_the_journal_and_renewing_is_not",
        "test_the_balance_at_a_moment_counts_what_had_happened_by_then",
        "test_the_streams_of_a_scope_are_its_own",
        "test_what_a_step_leaves_in_the_journal",
        "test_a_removed_item_stays_in_the_store_and_is_marked",
    }
)


def has_neighbours(module: str, function: str) -> bool:
    return module.rpartition(".")[2] in MODULES and function not in ALONE


FINISHED = Names(scope="neighbour.example/finished", actor="neighbour")
HALFWAY = Names(scope="neighbour.example/halfway", actor="neighbour")
SWEPT = {"mail", "loops"}
"""Rows that calls of any scope handle. A neighbour has no open ones."""


def fill(url: str, place: Path) -> None:
    """Run the walks that create the neighbours' rows."""
    for names in (FINISHED, HALFWAY):
        with opened(url, place, names) as sf:
            for name, resource in RESOURCES.items():
                if names is FINISHED:
                    steps = sum(1 for _ in resource.walk(sf, names))
                    LENGTHS[name] = steps
                elif name not in SWEPT:
                    list(islice(resource.walk(sf, names), LENGTHS[name] // 2))


LENGTHS: dict[str, int] = {}
STORE_ID = "SELECT value FROM meta WHERE key = 'store_id'"
Rows = frozenset[tuple[str, Any]]
"""Each row with its table, read by the driver, because opening a store would take longer than the test."""


class Template(ABC):
    """One filled store on one engine, and its rows when it was filled."""

    def __init__(self, url: str, place: Path, *, neighbours: bool) -> None:
        self.url = url
        standfast.open(url, data_dir=place / "data").close()
        if neighbours:
            fill(url, place)
        self.rows = self.read(url) if neighbours else frozenset()

    @abstractmethod
    def read(self, url: str) -> Rows:
        """Read every row that belongs to a caller."""

    @abstractmethod
    def named(self, rows: Rows) -> dict[Name, Row]:
        """The rows by table and primary key, with their columns by name."""

    def unchanged(self, url: str) -> None:
        """Fails if a row of a neighbour has changed, and lists the changed rows."""
        if not self.rows:
            return
        now = self.read(url)
        lost = self.rows - now
        if lost:
            there = self.named(now)
            wrong = [f"{name}: {differing(row, there.get(name))}" for name, row in self.named(lost).items()]
            raise AssertionError(f"rows of a neighbour were changed: {wrong}")


class FileTemplate(Template):
    def __init__(self, url: str, place: Path, *, neighbours: bool) -> None:
        super().__init__(url, place, neighbours=neighbours)
        # the last process that closes the store moves the WAL into the file
        with closing(apsw.Connection(url)) as connection:
            self.store_id = str(connection.execute(STORE_ID).get)
        self.content = Path(url).read_bytes()

    def read(self, url: str) -> Rows:
        with closing(apsw.Connection(url)) as connection:
            return frozenset((name, row) for name in OWNED for row in connection.execute(f"SELECT * FROM {name}"))

    def named(self, rows: Rows) -> dict[Name, Row]:
        with closing(apsw.Connection(self.url)) as connection:
            columns = {name: [found[1] for found in connection.execute(f"PRAGMA table_info({name})")] for name in OWNED}
        return by_name((name, dict(zip(columns[name], row, strict=True))) for name, row in rows)

    def copy(self, path: Path) -> str:
        path.touch(mode=0o600)
        path.write_bytes(self.content.replace(self.store_id.encode(), new_id("sto").encode()))
        return str(path)


class DatabaseTemplate(Template):
    def read(self, url: str) -> Rows:
        with psycopg.connect(url, options="-c search_path=standfast") as connection:
            return frozenset(connection.execute(IN_ONE_TRIP))

    def named(self, rows: Rows) -> dict[Name, Row]:
        return by_name((name, json.loads(row)) for name, row in rows)

    @contextmanager
    def copy(self, server_url: str) -> Iterator[str]:
        with fresh_database(server_url, template=self.url.rpartition("/")[2].partition("?")[0]) as url:
            with psycopg.connect(url) as connection:
                connection.execute("UPDATE standfast.meta SET value = %s WHERE key = 'store_id'", [new_id("sto")])
            yield url
