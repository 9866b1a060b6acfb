"""Rounds, medians, ratios and tables, used by every area.

Each area returns tables. A line of a table has one value per round. The median counts, and the smallest and largest
are printed beside it. A line may have a target.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of a run: full by default, `quick` for a short one, even smaller in the tests."""

    directory: Path
    rounds: int = 7
    window_s: float = 1.0
    starts: int = 21
    openings: int = 20
    rows: int = 5_000_000
    threads: tuple[int, ...] = (1, 2, 4, 8, 64)
    tasks: int = 64
    processes: tuple[int, ...] = (1, 4, 8)
    postgres_threads: tuple[int, ...] = (1, 8)
    rows_each: int = 5
    """The number of writes per caller in tests of fairness."""
    patience_s: float = 0.0
    """How long to wait for a quiet moment before each measurement."""

    def at_least(self, rounds: int) -> int:
        """More rounds for a noisy measurement; a plan of one round stays at one."""
        return max(self.rounds, rounds) if self.rounds > 1 else 1

    def fresh(self, name: str) -> Path:
        """A new directory for one store, on the file system that is measured."""
        for number in range(1000):
            path = self.directory / f"{name}-{number}"
            if not path.exists():
                path.mkdir(mode=0o700)
                return path
        raise AssertionError(f"a thousand directories named {name}")


@dataclass(frozen=True, slots=True)
class Reach:
    """A target: its value, and whether it is a minimum or a maximum."""

    sign: str
    bound: float

    def met(self, value: float) -> bool:
        return value >= self.bound if self.sign == "≥" else value <= self.bound


def at_least(bound: float) -> Reach:
    return Reach("≥", bound)


def at_most(bound: float) -> Reach:
    return Reach("≤", bound)


@dataclass(frozen=True, slots=True)
class Line:
    """One measured line with a value per round."""

    label: str
    values: Sequence[float]
    unit: str
    reach: Reach | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        if self.reach is None:
            return ""
        return "ok" if self.reach.met(self.median) else "MISSED"


@dataclass(slots=True)
class Table:
    """The lines of one comparison, with the notes to read them."""

    title: str
    note: str = ""
    lines: list[Line] = field(default_factory=list)
    others: float = float("nan")
    """The share of the machine's CPU that other processes used meanwhile."""

    def add(self, label: str, values: Iterable[float], unit: str, reach: Reach | None = None) -> None:
        self.lines.append(Line(label, list(values), unit, reach))


def interleaved(
    rounds: int, contestants: Mapping[str, Callable[[], T]], *, patience_s: float = 0.0
) -> dict[str, list[T]]:
    """Run each contestant once per round. Every second round goes backwards, so that no contestant is always first."""
    results: dict[str, list[T]] = {name: [] for name in contestants}
    for number in range(rounds):
        order = list(contestants) if number % 2 == 0 else list(contestants)[::-1]
        for name in order:
            wait_for_quiet(patience_s)
            results[name].append(contestants[name]())
    return results


QUIET = 0.15
"""A machine counts as quiet if other processes use less than this share of its CPU."""


def wait_for_quiet(patience_s: float) -> None:
    """Return as soon as the machine has been nearly idle for a moment, or after `patience_s`."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        before = _machine_ticks()
        time.sleep(0.1)
        if _busy_share(before, _machine_ticks()) <= QUIET:
            return


class Neighbours:
    """The CPU that other processes used meanwhile. A high value makes the figures unreliable."""

    def __init__(self) -> None:
        self._ticks = _machine_ticks()
        self._ours_s = _our_cpu_s()
        self._start = time.monotonic()

    @property
    def share(self) -> float:
        """A share between 0 and 1, or nan if the system does not report it. Child processes count after they ended."""
        cores = os.cpu_count() or 1
        ours = (_our_cpu_s() - self._ours_s) / max(1e-9, (time.monotonic() - self._start) * cores)
        return max(0.0, _busy_share(self._ticks, _machine_ticks()) - ours)


def _our_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _machine_ticks() -> tuple[int, int]:
    """(total, idle) time of all cores since the system started, or zeros if it does not report them."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks), ticks[3] + ticks[4]


def _busy_share(before: tuple[int, int], after: tuple[int, int]) -> float:
    whole = after[0] - before[0]
    return 1 - (after[1] - before[1]) / whole if whole else float("nan")


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Our value divided by theirs, round by round, because other load in a round disturbs both sides."""
    return [our / their if their else float("inf") for our, their in zip(ours, theirs, strict=True)]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that a `share` of `ordered` does not exceed, or the largest if there are too few values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


# -- printing ---------------------------------------------------------------------------------------


def shown(value: float, unit: str) -> str:
    if value != value:
        return "–"
    match unit:
        case "x":
            return f"{value:.2f}×"
        case "/s":
            return f"{value:,.0f}/s"
        case "s":
            return _duration(value)
        case "%":
            return f"{value:.2f} %"
        case _:
            return f"{value:,.10g} {unit}".rstrip()


def _duration(seconds: float) -> str:
    if abs(seconds) >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.2f} ms" if abs(seconds) < 0.1 else f"{seconds * 1000:.0f} ms"


def text(table: Table) -> str:
    """The table as text. It is also valid Markdown, so the docs can contain it unchanged."""
    head = ["", "median", "min – max", "reach", ""]
    rows = [head, *(_cells(line) for line in table.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    bars = ["-" * width for width in widths]
    body = [_row(cells, widths) for cells in (rows[0], bars, *rows[1:])]
    return "\n".join([f"### {table.title}", *([table.note] if table.note else []), "", *body, *_disturbed(table)])


def _disturbed(table: Table) -> list[str]:
    if not table.others > QUIET:
        return []
    return [
        "",
        f"Others used {table.others:.0%} of the machine meanwhile: compare within a round, not with other runs.",
    ]


def _cells(line: Line) -> list[str]:
    low, high = shown(min(line.values), line.unit), shown(max(line.values), line.unit)
    reach = f"{line.reach.sign} {shown(line.reach.bound, line.unit)}" if line.reach else ""
    return [line.label, shown(line.median, line.unit), f"{low} – {high}", reach, line.verdict]


def _row(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if number in (0, 4) else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {first} | {' | '.join(rest)} |"


def summary(tables: Iterable[Table]) -> str:
    """One table with every figure that has a target."""
    figures = Table("The figures to reach")
    for table in tables:
        figures.lines += [replace(line, label=f"{table.title}: {line.label}") for line in table.lines if line.reach]
    reached = sum(line.verdict == "ok" for line in figures.lines)
    return f"{text(figures)}\n\n{reached} of {len(figures.lines)} figures reached"


def as_json(table: Table) -> dict[str, object]:
    """The result with all values of all rounds."""
    return {
        "title": table.title,
        "note": table.note,
        "others_share": round(table.others, 3) if table.others == table.others else None,
        "lines": [
            {
                "label": line.label,
                "unit": line.unit,
                "values": line.values,
                "median": line.median,
                "reach": [line.reach.sign, line.reach.bound] if line.reach else None,
                "verdict": line.verdict or None,
            }
            for line in table.lines
        ],
    }


def machine() -> dict[str, str]:
    """Versions, system and load that the figures depend on, without the name of the machine."""
    import apsw

    import standfast

    return {
        "standfast": standfast.__version__,
        "python": platform.python_version(),
        "apsw": apsw.apsw_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
