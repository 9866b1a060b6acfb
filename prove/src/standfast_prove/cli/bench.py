"""`standfast bench`: our own ratios, on this machine and this disk."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from standfast import hints
from standfast.cli.frame import command, option
from standfast.cli.output import Out
from standfast.errors import InvalidInput
from standfast_prove import results as files
from standfast_prove.bench import areas
from standfast_prove.bench.measure import Line, Neighbours, Plan, Table, as_json, machine, shown, summary, text
from standfast_prove.faults import Unavailable


@command("bench", examples=("standfast bench --quick", "standfast bench --only alone --only threads --dir /data"))
@option("--quick", is_flag=True, help="Short windows: a look, too short to judge by.")
@option("--only", multiple=True, metavar="AREA", help="This area; may be given again.")
@option("--all", "everything", is_flag=True, help="Every area. Packages to compare with are installed from PyPI.")
@option("--dir", "where", default=".", type=click.Path(exists=True, file_okay=False), help="The disk to measure.")
@option("--patient", type=click.FloatRange(min=0), default=0.0, help="Wait up to so many seconds for quiet.")
@option("--results", type=click.Path(file_okay=False, path_type=Path), help="Also write a result file there.")
def bench(
    out: Out, quick: bool, only: tuple[str, ...], everything: bool, where: str, patient: float, results: Path | None
) -> None:
    """Measure standfast beside the usual ways of doing the same, in one run. Only the ratios mean something."""
    unknown = [name for name in only if name not in areas.AREAS]
    if unknown:
        raise InvalidInput(f"there is no area {unknown[0]!r}", f"one of: {', '.join(areas.AREAS)}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".bench-", dir=where))).resolve()
        areas.leave_the_users_store_alone(directory)
        plan = replace(areas.quick(directory) if quick else Plan(directory=directory), patience_s=patient)
        out.say(", ".join(f"{name} {value}" for name, value in machine().items()))
        names = only or (areas.AREAS if everything else areas.SHORT)
        tables = [table for name in names for table in _measured(out, name, plan)]
    if out.for_people:
        out.text(summary(tables))
    else:
        out.record({"machine": machine(), "tables": [as_json(table) for table in tables]})
    if results:
        out.say(f"written to {files.write_table(results, _kept(tables))}")


def _measured(out: Out, name: str, plan: Plan) -> list[Table]:
    out.say(f"{name} …")
    neighbours = Neighbours()
    try:
        tables = areas.area(name)(plan)
    except Unavailable as missing:
        out.say(f"{name}: NOT MEASURED: {missing}")
        return []
    for table in tables:
        table.others = neighbours.share
        if out.for_people:
            out.text(text(table) + "\n")
    return tables


def _kept(tables: list[Table]) -> files.Table:
    """The figures for `docs/internals/evaluation.md`: every ratio and every figure with a target.

    A table without both, which compares a store with itself at another size, is kept completely.
    """
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
        for line in _lines(table)
    ]
    words = sys.argv[sys.argv.index("bench") + 1 :] if "bench" in sys.argv else []
    return files.Table("bench", hints.command("bench", *words), machine(), rows)


def _lines(table: Table) -> list[Line]:
    return [line for line in table.lines if line.unit == "x" or line.reach] or table.lines
