"""PostgreSQL: records through our engine against a bare psycopg loop with the same statements."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from standfast_prove import postgres as pg
from standfast_prove.bench.crew import Crew
from standfast_prove.bench.measure import Plan, Table, interleaved, ratios
from standfast_prove.extras import needs


def postgres(plan: Plan) -> list[Table]:
    """Both use one real server with its data on the measured disk."""
    with server(plan.directory) as url:
        return [_threads(plan, url, count) for count in plan.postgres_threads]


def _threads(plan: Plan, url: str, count: int) -> Table:
    with ExitStack() as stack:
        # Our contestant runs first and creates the schema.
        crews = {way: stack.enter_context(Crew(way, url, callers=count)) for way in ("ours", "bare psycopg")}
        contestants = {way: partial(crew.round, plan.window_s) for way, crew in crews.items()}
        interleaved(1, contestants)
        rounds = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    rates = {way: [sample.rate for sample in samples] for way, samples in rounds.items()}
    table = Table(
        f"PostgreSQL, {count} thread{'s' * (count > 1)}",
        "Bare: a connection each; BEGIN, insert, insert, COMMIT, four round trips. Both write the same two rows.",
    )
    table.add("bare psycopg", rates["bare psycopg"], "/s")
    table.add("records", rates["ours"], "/s")
    table.add("records / bare psycopg", ratios(rates["ours"], rates["bare psycopg"]), "x")
    for way, label in (("ours", "records"), ("bare psycopg", "bare psycopg")):
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            table.add(f"{label}: wait {name}", [sample.wait(part) for sample in rounds[way]], "s")
        cpu = [sample.cpu_s / max(1, sum(sample.counts)) for sample in rounds[way]]
        table.add(f"{label}: our side's CPU each", cpu, "s")
    return table


@contextmanager
def server(directory: Path) -> Iterator[str]:
    """The URL of a server whose data is in `directory`, or of the one that the environment names."""
    needs("psycopg")
    if existing := os.environ.get("STANDFAST_TEST_PG_URL"):
        yield existing
        return
    # The tests keep their server in memory. Here its fsyncs must reach a disk.
    before, pg.MEMORY_ROOT = pg.MEMORY_ROOT, directory / "absent"
    place, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        started = pg.TemporaryPostgres()
    finally:
        pg.MEMORY_ROOT, tempfile.tempdir = before, place
    with started:
        yield started.url
