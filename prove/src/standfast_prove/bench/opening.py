"""Many processes open one fresh file at the same moment."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path

from standfast_prove.bench.measure import Plan, Table, at_most, interleaved

PROCESSES = 8
HEAD_START_S = 0.02
PATIENCE_S = 60.0

Opening = list[float | str]
"""The duration of the open in each process, or its error."""


def opening(plan: Plan) -> list[Table]:
    """8 processes open a new file: with standfast, and with a schema created in the usual way."""
    with Openers(plan, "ours") as ours, Openers(plan, "usual") as usual:
        contestants = {"ours": ours.round, "usual": usual.round}
        interleaved(1, contestants)
        opened = interleaved(plan.openings, contestants, patience_s=plan.patience_s)
    table = Table(
        f"SQLite, {PROCESSES} processes first-opening one fresh file",
        "Open, create the schema, write one row. As usual: WAL, a busy timeout of 10 s, the schema if there is none.",
    )
    for key, label, reach in (("ours", "ours", at_most(0)), ("usual", "as usual", None)):
        failed = sum(isinstance(one, str) for each in opened[key] for one in each)
        table.add(f"{label}: failed, of {PROCESSES * plan.openings}", [failed], "", reach)
        took = [[one for one in each if isinstance(one, float)] for each in opened[key]]
        table.add(f"{label}: the slowest process", [max(each, default=float("nan")) for each in took], "s")
    return [table]


class Openers:
    """Processes that have imported all modules and wait for the name of a file to open."""

    def __init__(self, plan: Plan, how: str) -> None:
        self._plan = plan
        self._how = how
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._children = []
        for _ in range(PROCESSES):
            ours, theirs = context.Pipe()
            child = context.Process(target=wait_and_open, args=(theirs, how), daemon=True)
            child.start()
            theirs.close()
            self._pipes.append(ours)
            self._children.append(child)
        self._answers()

    def round(self) -> Opening:
        place = self._plan.fresh(f"opening-{self._how}")
        start = time.monotonic() + HEAD_START_S
        for pipe in self._pipes:
            pipe.send((str(place), start))
        return self._answers()

    def _answers(self) -> Opening:
        for pipe in self._pipes:
            if not pipe.poll(PATIENCE_S):
                raise RuntimeError("an opening process gave no answer")
        return [pipe.recv() for pipe in self._pipes]

    def __enter__(self) -> Openers:
        return self

    def __exit__(self, *exc: object) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for child in self._children:
            child.join(10)
            if child.is_alive():
                child.kill()


def wait_and_open(pipe: Connection, how: str) -> None:
    open_one = _open_ours if how == "ours" else _open_as_usual
    pipe.send(0.0)
    while (order := pipe.recv()) is not None:
        place, start = order
        while time.monotonic() < start:
            pass
        try:
            open_one(Path(place))
            pipe.send(time.monotonic() - start)
        except Exception as error:  # noqa: BLE001  every way to fail counts
            pipe.send(f"{type(error).__name__}: {error}")


def _open_ours(place: Path) -> None:
    import standfast
    from standfast.ids import new_id

    with standfast.open(place / "standfast.db", data_dir=place) as store:
        store.leases.acquire(new_id("lea"))


def _open_as_usual(place: Path) -> None:
    import apsw

    from standfast.db.migrations import MIGRATIONS, ddl

    connection = apsw.Connection(str(place / "rows.sqlite"))
    connection.set_busy_timeout(10_000)
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
    if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
        connection.execute(ddl(MIGRATIONS[0], "sqlite")).fetchall()
    connection.execute("INSERT INTO meta (key, value) VALUES (hex(randomblob(8)), '')")
    connection.close()
