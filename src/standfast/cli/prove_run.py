"""What `standfast prove` does: campaigns, then the seeded bugs, then one small file and a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.errors import InvalidInput
from standfast.prove import catalogue, results
from standfast.prove.catalogue import Campaign
from standfast.prove.results import Result, Run
from standfast.prove.runner import Runner, engines, versions

MUTANTS_SHARE = 0.4
"""Of the time; all of them are tried, however little there is."""


class Wanted(NamedTuple):
    minutes: float
    seed: int | None
    go_on: bool
    only: tuple[str, ...]
    engine: tuple[str, ...]
    mutants: bool
    directory: Path


def listing(out: Out) -> None:
    rows = [
        {"workload": one.workload, "campaign": one.name, "engines": " ".join(one.engines), "counts": one.unit}
        for one in catalogue.CAMPAIGNS
    ]
    out.rows(rows, [Column("workload"), Column("campaign"), Column("engines"), Column("counts")])


def report(out: Out, directory: Path) -> None:
    from standfast.prove.report import page

    found = results.read(directory)
    if not found:
        raise InvalidInput(f"there is no result in {directory}", f"standfast prove --minutes 5 --results {directory}")
    out.text(page(found))


def prove(out: Out, wanted: Wanted) -> bool:
    """Whether everything held and every mutant was found."""
    unknown = [name for name in wanted.only if name not in catalogue.known()]
    if unknown:
        raise InvalidInput(f"no campaign is named {unknown[0]!r}", "standfast prove --list")
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    earlier = results.read(wanted.directory) if wanted.go_on else []
    shown = _Progress(out)
    with ExitStack() as stack:
        runner = Runner(stack, say=shown.say)
        played = [] if wanted.mutants else _campaigns(out, wanted, runner, earlier, shown)
        bugs = _mutants(out, wanted, shown)
    command = "standfast prove " + shlex.join(sys.argv[sys.argv.index("prove") + 1 :] if "prove" in sys.argv else [])
    run = Run(started, command.strip(), versions(), played, bugs)
    path = results.write(wanted.directory, run)
    good = all(one.held for one in played) and all(bug["found"] for bug in bugs)
    out.record({"held": good, "file": str(path), **run._asdict()}, text=_summary(run, path))
    return good


def _campaigns(out: Out, wanted: Wanted, runner: Runner, earlier: Sequence[Run], shown: _Progress) -> list[Result]:
    chosen = [
        (campaign, engine) for campaign in catalogue.named(wanted.only) for engine in engines(campaign, wanted.engine)
    ]
    minutes = wanted.minutes * (1 if wanted.only else 1 - MUTANTS_SHARE)
    share_s = minutes * 60 / sum(campaign.share for campaign, _ in chosen) if chosen else 0.0
    played = []
    for campaign, engine in chosen:
        seed = wanted.seed or 0
        if wanted.go_on:
            seed = results.next_seed(earlier, campaign.name, engine)
        result = runner.run(campaign, engine, seed=seed, seconds=campaign.share * share_s)
        shown.clear()
        _tell(out, campaign, result)
        played.append(result)
    return played


def _tell(out: Out, campaign: Campaign, result: Result) -> None:
    what = f"{campaign.name} on {result.engine}"
    if result.not_run:
        out.say(f"{what}: NOT RUN on this machine: {result.not_run}")
        return
    figures = ", ".join(f"{number:,} {name}" for name, number in result.seen.items())
    mark = out.styled("ok ", "green") if result.held else out.styled("BAD", "red")
    out.say(f"{mark} {what}: {figures} ({result.seconds:.0f} s)", *(f"    {sentence}" for sentence in result.bad))


def _mutants(out: Out, wanted: Wanted, shown: _Progress) -> list[dict[str, Any]]:
    """The table of seeded bugs; none are tried when only some campaigns were asked for."""
    return []


def _summary(run: Run, path: Path) -> list[str]:
    tries = sum(one.tries for one in run.results if not one.control)
    bad = [one.campaign for one in run.results if not one.held]
    lines = [f"{len(run.results)} campaigns, {tries:,} tries: " + (f"WRONG in {', '.join(bad)}" if bad else "all held")]
    return [*lines, f"written to {path}"]


class _Progress:
    """One line that says what is going on, where somebody looks at a terminal."""

    def __init__(self, out: Out) -> None:
        self._shows = out.for_people and sys.stderr.isatty()

    def say(self, line: str) -> None:
        if self._shows:
            sys.stderr.write(f"\r\x1b[K{line[:110]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
