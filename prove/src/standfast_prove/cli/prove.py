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
    help="Minutes for the whole run, such as 0.5. 0 plays one seed of each campaign.",
)
@option("--seed", type=click.IntRange(min=0), help="Seed of the first try of each campaign (0).")
@option("--continue", "go_on", is_flag=True, help="Begin after the last seeds in --results.")
@option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Run only this campaign or workload, without the seeded bugs. May be repeated.",
)
@option("--engine", multiple=True, type=click.Choice(["sqlite", "postgres"]), help="Use only this engine.")
@option("--short", is_flag=True, help="Play a fifth of each try (the default below 30 minutes).")
@option("--mutants", is_flag=True, help="Run only the seeded bugs. Each must be found.")
@option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the result files (./standfast-prove).",
)
@option("--report", is_flag=True, help="Run nothing. Print a page of all results in --results.")
@option("--list", "listing", is_flag=True, help="Run nothing. List the campaigns, or with --mutants the seeded bugs.")
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
