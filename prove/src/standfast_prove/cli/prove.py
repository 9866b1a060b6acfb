"""`standfast prove`: the evaluation, on this machine and this disk."""

from __future__ import annotations

from pathlib import Path

import click

from standfast.cli import exits
from standfast.cli.frame import command, option
from standfast.cli.output import Out

_EXAMPLES = (
    "standfast prove --minutes 5",
    "standfast prove --only crashes --minutes 60 --continue",
)


@command("prove", examples=_EXAMPLES)
@option(
    "--minutes",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="In all, 0.5 is fine; 0 plays one seed of each.",
)
@option("--seed", type=click.IntRange(min=0), help="Of the first try of each campaign (0).")
@option("--continue", "go_on", is_flag=True, help="Take the seeds after those in --results.")
@option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="This campaign or workload, without the seeded bugs; may be given again.",
)
@option("--engine", multiple=True, type=click.Choice(["sqlite", "postgres"]), help="Only this one.")
@option("--short", is_flag=True, help="A fifth of each try; by itself where everything is to fit into a few minutes.")
@option("--mutants", is_flag=True, help="The seeded bugs alone: is each found?")
@option(
    "--results", type=click.Path(file_okay=False, path_type=Path), help="Where the result goes (./standfast-prove)."
)
@option("--report", is_flag=True, help="Run nothing: a page of everything in --results.")
@option("--list", "listing", is_flag=True, help="Run nothing: the campaigns there are; with --mutants the seeded bugs.")
def prove(
    out: Out,
    minutes: float,
    seed: int | None,
    go_on: bool,
    only: tuple[str, ...],
    engine: tuple[str, ...],
    short: bool,
    mutants: bool,
    results: Path | None,
    report: bool,
    listing: bool,
) -> None:
    """Try to lose or double a record on this machine: kills, power loss, races. Exits 1 if anything was."""
    from standfast.errors import InvalidInput
    from standfast_prove.cli import prove_run as run

    if go_on and seed is not None:
        raise InvalidInput("--continue takes the seeds after the last, --seed names one", "give one of them")
    if listing:
        return run.listing(out, mutants=mutants)
    directory = results or Path("standfast-prove")
    if report:
        return run.report(out, directory)
    code = run.prove(out, run.Wanted(minutes, seed, go_on, only, engine, short, mutants, directory))
    if code != exits.OK:
        raise click.exceptions.Exit(code)
    return None
