"""`standfast bench`: our own ratios, on this machine and this disk."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from standfast.cli.frame import command, option
from standfast.cli.output import Out


@command("bench", examples=("standfast bench --quick", "standfast bench --only alone --only threads --dir /data"))
@option("--quick", is_flag=True, help="Short windows: a look, too short to judge by.")
@option("--only", multiple=True, metavar="AREA", help="This area; may be given again.")
@option("--dir", "where", default=".", type=click.Path(exists=True, file_okay=False), help="The disk to measure.")
@option("--patient", type=click.FloatRange(min=0), default=0.0, help="Wait up to so many seconds for quiet.")
def bench(out: Out, quick: bool, only: tuple[str, ...], where: str, patient: float) -> None:
    """Measure standfast beside the usual ways of doing the same, in one run. Only the ratios mean something."""
    from standfast.errors import InvalidInput
    from standfast_prove.bench import areas
    from standfast_prove.bench.measure import Neighbours, Plan, machine, summary, text
    from standfast_prove.faults import Unavailable

    unknown = [name for name in only if name not in areas.OURS]
    if unknown:
        raise InvalidInput(f"there is no area {unknown[0]!r}", f"one of: {', '.join(areas.OURS)}")
    tables: list[Any] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".bench-", dir=where))).resolve()
        areas.leave_the_users_store_alone(directory)
        plan = replace(areas.quick(directory) if quick else Plan(directory=directory), patience_s=patient)
        out.say(", ".join(f"{name} {value}" for name, value in machine().items()))
        for name in only or areas.SHORT:
            out.say(f"{name} …")
            neighbours = Neighbours()
            try:
                measured = areas.area(name)(plan)
            except Unavailable as missing:
                out.say(f"{name}: NOT MEASURED: {missing}")
                continue
            for table in measured:
                table.others = neighbours.share
                tables.append(table)
                if out.for_people:
                    out.text(text(table) + "\n")
    if out.for_people:
        out.text(summary(tables))
    else:
        out.record({"machine": machine(), "tables": [_as_json(table) for table in tables]})


def _as_json(table: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(table)
