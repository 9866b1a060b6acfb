"""Result files: the campaigns of a run, their seeds and counts, and the machine. Results of several runs can be added.

A file is one run of `standfast prove`: `prove-<moment>.json`. The next run with `--continue` starts after the last seed
of each campaign, so 100 short runs equal one long run. A result is one line of JSON, so files can be joined: every line
of a `*.jsonl` is a result.
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
    """The result of one campaign on one engine in one run."""

    campaign: str
    workload: str
    engine: str
    unit: str
    control: str
    seeds: tuple[int, int]
    """The first and the last seed that were played."""
    seconds: float
    seen: dict[str, int]
    bad: list[str]
    not_run: str = ""
    """The reason why this machine could not run it. Then there are no counts."""

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
    """The results of seeded bugs, one dictionary for each `mutants.hunting.Found`."""
    seconds: float = 0.0
    """Elapsed time."""


class Table(NamedTuple):
    """A table beside the runs: found defects and their repairs, the results of peers, or benchmark figures."""

    kind: str
    command: str
    versions: dict[str, str]
    rows: list[dict[str, Any]]
    title: str = ""


def write(directory: Path, run: Run, path: Path | None = None) -> Path:
    """Write a run to a new file. With `path`, replace the file that the same run wrote before."""
    directory.mkdir(parents=True, exist_ok=True)
    path = path or _free(directory / f"prove-{run.started.replace(':', '').replace('-', '')}-{os.getpid()}.json")
    _write(path, {**run._asdict(), "results": [one._asdict() for one in run.results]})
    return path


def write_table(directory: Path, table: Table) -> Path:
    """Write a table to a new file."""
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
    """An unused file name, also if a process runs twice in one second."""
    names = chain([path], (path.with_stem(f"{path.stem}-{n}") for n in count(2)))
    return next(name for name in names if not name.exists())


def read(directory: Path) -> list[Run]:
    """Every run in the directory, oldest first. Raises InvalidInput for a file that is no run."""
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
