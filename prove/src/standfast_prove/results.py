"""Result files: what was run where, with which seeds, and what was seen. Small, and they add up.

A file is one run of `standfast prove`: `prove-<moment>.json`. The next run with `--continue` takes
the seeds after the last of each campaign, so that a hundred short runs are one long one. A result is one line
of JSON, so files can be joined: every line of a `*.jsonl` is a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from standfast.errors import InvalidInput

T = TypeVar("T")
FORMAT = 1
WENT_WRONG = "times it went wrong, as it must"
"""The counts of a control."""


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
    """Elapsed time."""


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
    _write(path, {**run._asdict(), "results": [one._asdict() for one in run.results]})
    return path


def write_table(directory: Path, table: Table) -> Path:
    """Put a table into a file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    path = _free(directory / f"{table.kind}-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}.json")
    _write(path, table._asdict())
    return path


def _write(path: Path, data: dict[str, Any]) -> None:
    spare = path.with_suffix(".part")
    line = json.dumps({"format": FORMAT, **data}, ensure_ascii=False, separators=(",", ":"))
    spare.write_text(line + "\n")
    os.replace(spare, path)


def _free(path: Path) -> Path:
    """A name that nothing has, also for a process that runs twice in one second."""
    names = chain([path], (path.with_stem(f"{path.stem}-{n}") for n in count(2)))
    return next(name for name in names if not name.exists())


def read(directory: Path) -> list[Run]:
    """Every run in the directory, oldest first. Raises InvalidInput for a file that is not one."""
    return sorted(_documents(directory, "prove", _run), key=lambda run: run.started)


def _run(data: dict[str, Any]) -> Run:
    results = [Result(**{**one, "seeds": tuple(one["seeds"])}) for one in data.pop("results")]
    return Run(results=results, **data)


def tables(directory: Path) -> list[Table]:
    """`found-`, `peers-`, `bench-*.json`: {"format": 1, "kind", "command", "versions", "rows": [{column: value}]}."""
    return [table for kind in ("found", "peers", "bench") for table in _documents(directory, kind, _table)]


def _table(data: dict[str, Any]) -> Table:
    return Table(**{name: data[name] for name in Table._fields if name in data})


def _documents(directory: Path, kind: str, decode: Callable[[dict[str, Any]], T]) -> Iterator[T]:
    """Every result of this kind, in the order of the files and of their lines. A run has no `kind`."""
    for path in [*sorted(directory.glob(f"{kind}-*.json")), *sorted(directory.glob("*.jsonl"))]:
        for line in path.read_text().removesuffix("\n").split("\n"):
            try:
                data = json.loads(line)
                if data.pop("format") != FORMAT:
                    raise ValueError("another format")
                if data.get("kind", "prove") == kind:
                    yield decode(data)
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInput(f"{path} is not a result: {error}", "move it elsewhere") from None


def every(runs: Iterable[Run]) -> Iterator[Result]:
    for run in runs:
        yield from run.results


def next_seed(runs: Iterable[Run], campaign: str, engine: str) -> int:
    played = [one.seeds[1] for one in every(runs) if (one.campaign, one.engine) == (campaign, engine) and one.seen]
    return max(played, default=-1) + 1
