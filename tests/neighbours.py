"""A store with neighbours in it: every resource once to its end and once halfway, in two other scopes.

It is filled once per test process. A test gets a copy: of the file on SQLite, of the database on PostgreSQL, so
that it costs no more than an empty store. `unchanged` compares the rows afterwards.

`MODULES` names the test files whose stores have neighbours. A test of theirs that needs a store of its own, because
it reads the whole journal or writes plain SQL to all rows, is listed in `ALONE`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from standfast_prove.postgres import fresh_database
from tests.rows import Name, Row, differing, snapshot
from tests.walks import RESOURCES, Names, opened

MODULES = frozenset(
    {
        "test_agents",
        "test_checkpoints",
        "test_conversations",
        "test_credits",
        "test_dead_letters",
        "test_decisions",
        "test_effects",
        "test_events",
        "test_leases",
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
        "test_a_fork_shares_what_came_before_the_cut_and_copies_nothing",
        "test_a_handler_that_lost_its_event_records_nothing",
        "test_a_key_grants_once_however_often_it_is_said",
        "test_a_large_result_is_kept_as_an_artifact",
        "test_a_loop_of_fifteen_minutes_for_a_week_leaves_the_predicted_episodes",
        "test_a_repeat_in_one_opening_is_number_two_in_order",
        "test_a_result_that_cannot_be_stored_is_refused_by_name",
        "test_an_expected_version_that_is_not_there_is_refused_and_the_one_there_is_named",
        "test_committing_nothing_changes_nothing",
        "test_deleting_goes_no_further_than_it_says",
        "test_one_key_in_two_repositories_and_two_scopes_is_two_sessions",
        "test_pages_by_scope_and_kind_the_newest_first",
        "test_pages_of_runs_go_on_where_they_ended",
        "test_scopes_are_worlds_of_their_own",
        "test_taking_giving_back_and_taking_over_are_in_the_journal_and_renewing_is_not",
        "test_the_balance_at_a_moment_counts_what_had_happened_by_then",
        "test_the_streams_of_a_scope_are_its_own",
        "test_what_a_step_leaves_in_the_journal",
        "test_what_is_taken_back_is_kept_and_marked",
    }
)


def has_neighbours(module: str, function: str) -> bool:
    return module.rpartition(".")[2] in MODULES and function not in ALONE


FINISHED = Names(scope="neighbour.example/finished", actor="neighbour")
HALFWAY = Names(scope="neighbour.example/halfway", actor="neighbour")
SWEPT = {"mail", "loops"}
"""What others look after in every scope of the store: a neighbour leaves nothing of it open."""


def fill(url: str, place: Path) -> dict[Name, Row]:
    """Let the neighbours work; every row they leave."""
    for names in (FINISHED, HALFWAY):
        with opened(url, place, names) as sf:
            for name, resource in RESOURCES.items():
                if names is FINISHED:
                    steps = sum(1 for _ in resource.walk(sf, names))
                    LENGTHS[name] = steps
                elif name not in SWEPT:
                    list(islice(resource.walk(sf, names), LENGTHS[name] // 2))
    with opened(url, place, FINISHED) as sf:
        return snapshot(sf)


LENGTHS: dict[str, int] = {}


class Template:
    """One filled store on one engine, and its rows."""

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.rows = fill(url, place)

    def unchanged(self, url: str, place: Path) -> None:
        """Fails with every row of a neighbour that is not as it was."""
        with opened(url, place, FINISHED) as sf:
            now = snapshot(sf)
        wrong = [
            f"{table} {key}: {differing(row, now.get((table, key)))}"
            for (table, key), row in self.rows.items()
            if now.get((table, key)) != row
        ]
        assert wrong == [], "rows of a neighbour were changed"


class FileTemplate(Template):
    def copy(self, path: Path) -> str:
        for suffix in ("", "-wal"):
            if Path(f"{self.url}{suffix}").exists():
                shutil.copy(f"{self.url}{suffix}", f"{path}{suffix}")
        return str(path)


class DatabaseTemplate(Template):
    @contextmanager
    def copy(self, server_url: str) -> Iterator[str]:
        with fresh_database(server_url, template=self.url.rpartition("/")[2].partition("?")[0]) as url:
            yield url
