"""Every query of a session finds its rows by an index, so that the cost of a resume does not grow with the store."""

from __future__ import annotations

from pathlib import Path

import pytest

import standfast
from standfast.db.sql import Statement
from standfast.record import messages, nodes, steps
from standfast.record.sessions import forks, ownership, queries

MODULES = (queries, forks, messages, nodes, ownership, steps)
# These queries run once per command that a person types: the end of an id, a list of every scope or every holder.
LOOKS_AT_ALL = {"by_suffix", "page_everywhere", "held"}


def statements() -> list[Statement]:
    return [one for module in MODULES for one in module.SQL if one.name not in LOOKS_AT_ALL]  # type: ignore[attr-defined]


@pytest.mark.parametrize("one", statements(), ids=lambda one: one.name)
def test_no_table_is_read_from_end_to_end(one: Statement, tmp_path_factory: pytest.TempPathFactory) -> None:
    with standfast.open(tmp_path_factory.mktemp("plan") / "db") as sf:
        connection = sf.engine.connection  # type: ignore[attr-defined]
        asked = connection.execute(
            "EXPLAIN QUERY PLAN " + one.sqlite, dict.fromkeys(one.params | {"mono_us", "boot_id"})
        )
        plan = [row[3] for row in asked]
    # The largest key of a table is one row.
    cheap = ("SCAN CONSTANT ROW", "SCAN event" if one.name == "last_seq" else "")
    scans = [line for line in plan if line.startswith("SCAN") and line not in cheap]
    assert scans == [], "\n".join(plan)


def test_every_scope_has_its_own_list(tmp_path: Path) -> None:
    with standfast.open(tmp_path / "db") as sf:
        connection = sf.engine.connection  # type: ignore[attr-defined]
        one = queries.SQL.page
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + one.sqlite, dict.fromkeys(one.params))]
    assert any("session_by_update" in line for line in plan)
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in plan), plan


def test_effects_in_doubt_are_found_by_the_index_of_open_effects(tmp_path: Path) -> None:
    """002-37: a session with ten thousand effects behind it resumes as quickly as one with ten."""
    with standfast.open(tmp_path / "db") as sf:
        connection = sf.engine.connection  # type: ignore[attr-defined]
        one = ownership.SQL.dispatched
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + one.sqlite, dict.fromkeys(one.params))]
    assert any("effect_open" in line for line in plan), plan
