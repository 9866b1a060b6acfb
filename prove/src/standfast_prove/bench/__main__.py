"""`python -m standfast_prove.bench`: run the areas one after the other and print their tables."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from standfast_prove.bench import plot
from standfast_prove.bench.areas import OURS, leave_the_users_store_alone, quick
from standfast_prove.bench.measure import Line, Neighbours, Plan, Table, as_json, machine, shown, summary, text

AREAS = {
    **OURS,
    "tasks": "standfast_prove.bench.aio",
    "steps": "standfast_prove.bench.steps",
    "steps_postgres": "standfast_prove.bench.steps",
    "resume": "standfast_prove.bench.steps",
    "messages": "standfast_prove.bench.records",
    "upsert": "standfast_prove.bench.records",
    "claims": "standfast_prove.bench.tasks",
    "claims_postgres": "standfast_prove.bench.tasks",
    "loops": "standfast_prove.bench.loops",
    "mail": "standfast_prove.bench.mail",
    "mail_postgres": "standfast_prove.bench.mail",
    "events": "standfast_prove.bench.events",
    "events_postgres": "standfast_prove.bench.events",
    "search": "standfast_prove.bench.search",
    "imports": "standfast_prove.bench.imports",
    "langgraph": "standfast_prove.bench.threads",
    "langgraph_postgres": "standfast_prove.bench.threads",
    "openai_sessions": "standfast_prove.bench.sessions_openai",
    "openai_sessions_postgres": "standfast_prove.bench.sessions_openai",
}
"""The areas in their order, each with the module that has the function of its name."""


def area(name: str) -> Callable[[Plan], list[Table]]:
    function: Callable[[Plan], list[Table]] = getattr(import_module(AREAS[name]), name)
    return function


def main() -> int:
    options = _options()
    directory = Path(tempfile.mkdtemp(prefix=".bench-", dir=options.dir)).resolve()
    leave_the_users_store_alone(directory)
    plan = quick(directory) if options.quick else Plan(directory=directory)
    plan = replace(plan, patience_s=options.patient)
    print(", ".join(f"{name} {value}" for name, value in machine().items()), end="\n\n", flush=True)
    tables: list[Table] = []
    try:
        for name in options.only or AREAS:
            neighbours = Neighbours()
            for table in area(name)(plan):
                table.others = neighbours.share
                tables.append(table)
                print(text(table), end="\n\n", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(summary(tables))
    if options.json:
        Path(options.json).write_text(as_json(tables) + "\n")
    if options.results:
        write_results(Path(options.results), tables)
    return 0


def write_results(directory: Path, tables: list[Table]) -> None:
    """What `docs/evaluation.md` is made of: every ratio and every figure to reach, and these as a picture.

    A table that has neither, because it compares a store with itself at another size, is kept whole.
    """
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    rows = [
        {
            "figure": f"{table.title}: {line.label}",
            "median": shown(line.median, line.unit),
            "min – max": f"{shown(min(line.values), line.unit)} – {shown(max(line.values), line.unit)}",
            "reach": f"{line.reach.sign} {shown(line.reach.bound, line.unit)}" if line.reach else "",
            "": line.verdict,
            "others used": f"{table.others:.0%}" if table.others == table.others else "",
        }
        for table in tables
        for line in _kept(table)
    ]
    command = "python -m standfast_prove.bench " + " ".join(sys.argv[1:])
    document = {"format": 1, "kind": "bench", "command": command.strip(), "versions": machine(), "rows": rows}
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    (directory / f"bench-{moment}.json").write_text(text)
    if any(line.unit == "x" for table in tables for line in table.lines):
        (directory / f"bench-{moment}.svg").write_text(plot.svg(tables))


def _kept(table: Table) -> list[Line]:
    return [line for line in table.lines if line.unit == "x" or line.reach] or table.lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m standfast_prove.bench", description=sys.modules[__name__].__doc__)
    parser.add_argument("--quick", action="store_true", help="short windows and small stores: a look, not a verdict")
    parser.add_argument("--only", action="append", choices=list(AREAS), help="this area alone; may be repeated")
    patient = "wait up to that long for a quiet machine before each measurement"
    parser.add_argument("--patient", metavar="SECONDS", type=float, default=0.0, help=patient)
    parser.add_argument("--json", metavar="FILE", help="also write every value of every round")
    parser.add_argument("--results", metavar="DIR", help="also write a result file and a picture there")
    parser.add_argument("--dir", default=".", help="where the stores are made: the disk that is measured (here)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
