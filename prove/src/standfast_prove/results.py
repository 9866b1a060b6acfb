"""Result files: what was run where, with which seeds, and what was seen. Small, and they add up.

A file is one run of `standfast prove`: `prove-<moment>.json`. The next run with `--continue` takes
the seeds after the last of each campaign, so that a hundred short runs are one long one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from standfast.errors import InvalidInput

FORMAT = 1
WENT_WRONG = "times it went wrong, as it must"
"""What is counted of a control."""


class Result(NamedTuple):
    """What one campaign did on one engine in one run."""

    campaign: str
    workload: str
    engine: str
    unit: str
    control: str
    seeds: tuple[int, int]
    """The first and the last that were played."""
    seconds: float
    seen: dict[str, int]
    bad: list[str]
    not_run: str = ""
    """Why this machine could not do it; then nothing was seen."""

    @property
    def tries(self) -> int:
        return self.seen.get(self.unit, 0)

    @property
    def held(self) -> bool:
        return not self.bad


class Run(NamedTuple):
    """One file."""

    started: str
    command: str
    versions: dict[str, str]
    results: list[Result]
    mutants: list[dict[str, Any]]
    """As `mutants.hunting.Found` says it."""
    seconds: float = 0.0
    """By the clock on the wall."""


class Table(NamedTuple):
    """A table beside the runs: what they found and what became of it, how peers fare, how fast it is."""

    kind: str
    command: str
    versions: dict[str, str]
    rows: list[dict[str, Any]]
    title: str = ""


def write(directory: Path, run: Run, path: Path | None = None) -> Path:
    """Put a run into a file of its own; with `path`, over what the same run wrote before."""
    directory.mkdir(parents=True, exist_ok=True)
    path = path or _free(directory / f"prove-{run.started.replace(':', '').replace('-', '')}-{os.getpid()}.json")
    data = {"format": FORMAT, **run._asdict(), "results": [one._asdict() for one in run.results]}
    spare = path.with_suffix(".part")
    spare.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    os.replace(spare, path)
    return path


def _free(path: Path) -> Path:
    """A name that nothing has, also for a process that runs twice in one second."""
    names = chain([path], (path.with_stem(f"{path.stem}-{n}") for n in count(2)))
    return next(name for name in names if not name.exists())


def read(directory: Path) -> list[Run]:
    """Every run in the directory, oldest first. Raises InvalidInput for a file that is not one."""
    return [_read(path) for path in sorted(directory.glob("prove-*.json"))]


def _read(path: Path) -> Run:
    try:
        data = json.loads(path.read_text())
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        results = [Result(**{**one, "seeds": tuple(one["seeds"])}) for one in data.pop("results")]
        return Run(results=results, **data)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not a result of standfast prove: {error}", "move it elsewhere") from None


def tables(directory: Path) -> list[Table]:
    """`found-`, `peers-`, `bench-*.json`: {"format": 1, "kind", "command", "versions", "rows": [{column: value}]}."""
    kinds = ("found", "peers", "bench")
    return [_table(path) for kind in kinds for path in sorted(directory.glob(f"{kind}-*.json"))]


def _table(path: Path) -> Table:
    try:
        data = json.loads(path.read_text())
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        return Table(**{name: data[name] for name in Table._fields if name in data})
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is not a table of results: {error}", "move it elsewhere") from None


def every(runs: Iterable[Run]) -> Iterator[Result]:
    for run in runs:
        yield from run.results


def next_seed(runs: Iterable[Run], campaign: str, engine: str) -> int:
    played = [one.seeds[1] for one in every(runs) if (one.campaign, one.engine) == (campaign, engine) and one.seen]
    return max(played, default=-1) + 1
