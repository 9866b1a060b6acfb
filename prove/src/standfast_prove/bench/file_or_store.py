"""One workflow of dependent tasks, in a JSON file and in SQLite, at three sizes.

    python -m standfast_prove.bench.file_or_store [SIZE …]

Tasks come in groups of five, and each needs the one before it in its group. It measures three things: the time to write
the plan, the time to close the next task (read, choose, write, sync; the median of ROUNDS), and the size on disk.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import standfast
from standfast import files

SIZES = (5, 500, 50_000)
ROUNDS = 5
BATCH = 200
GROUP = 5


class Figures(NamedTuple):
    """The times and sizes of one side at one number of tasks."""

    plan_s: float
    close_ms: float
    size_bytes: int


def in_file(place: Path, size: int) -> Figures:
    path = place / "plan.json"

    def plan() -> None:
        needs = ([f"t{n - 1}"] if n % GROUP else [] for n in range(size))
        files.write(path, {f"t{n}": {"needs": need, "state": "open"} for n, need in enumerate(needs)})

    def close() -> None:
        with files.locked(path) as tasks:
            name = next(n for n, task in tasks.items() if _ready(task, tasks))
            tasks[name]["state"] = "done"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", files.FileStoreLimit)
        return Figures(_timed(plan), _median_ms(close, min(size, ROUNDS)), path.stat().st_size)


def _ready(task: dict[str, Any], tasks: dict[str, Any]) -> bool:
    return task["state"] == "open" and all(tasks[need]["state"] == "done" for need in task["needs"])


def in_store(place: Path, size: int) -> Figures:
    with standfast.open(place / "plan.db", data_dir=place / "data") as sf:

        def plan() -> None:
            last: list[str] = []
            for start in range(0, size, BATCH):
                with sf.transaction() as tx:
                    for n in range(start, min(start + BATCH, size)):
                        last = [tx.tasks.add(f"t{n}", fingerprint=f"t{n}", needs=last if n % GROUP else ()).id]

        def close() -> None:
            task = sf.tasks.claim()
            assert task is not None
            sf.tasks.done(task)

        planned = _timed(plan)
        closed = _median_ms(close, min(size, ROUNDS))
    return Figures(planned, closed, sum(path.stat().st_size for path in place.glob("plan.db*")))


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _median_ms(act: Callable[[], object], rounds: int) -> float:
    return statistics.median(_timed(act) for _ in range(rounds)) * 1000


def compared(size: int, root: str | None = None) -> tuple[Figures, Figures]:
    """A file and a store with this many tasks."""
    with tempfile.TemporaryDirectory(dir=root) as place:
        for name in ("file", "store"):
            os.mkdir(os.path.join(place, name))
        return in_file(Path(place, "file"), size), in_store(Path(place, "store"), size)


def main() -> None:
    print("| tasks | plan, file | plan, SQLite | close, file | close, SQLite | size, file | size, SQLite |")
    print("|---|---|---|---|---|---|---|")
    for size in map(int, sys.argv[1:] or SIZES):
        file, store = compared(size, os.environ.get("BENCH_DIR"))
        cells = (
            *(f"{size:,}", f"{file.plan_s * 1000:,.1f} ms", f"{store.plan_s * 1000:,.1f} ms"),
            *(f"{file.close_ms:,.2f} ms", f"{store.close_ms:,.2f} ms"),
            *(f"{file.size_bytes / 1000:,.0f} kB", f"{store.size_bytes / 1000:,.0f} kB"),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
