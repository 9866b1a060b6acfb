"""SQLite: durable records from one caller, many threads, many tasks, many processes."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from benchmarks import peers
from benchmarks.crew import Crew, Sample
from benchmarks.measure import Plan, Reach, Table, at_least, at_most, interleaved, ratios

AIOSQLITE = "aiosqlite==0.22.1"


def alone(plan: Plan) -> list[Table]:
    """One caller: what a record with its journal row costs over one raw row."""
    with ExitStack() as stack:
        ways = ("raw sync", "connection each", "both rows", "ours", "lease")
        rounds = _rounds(plan, {way: _crew(stack, plan, way) for way in ways})
    table = Table(
        "SQLite, one caller",
        "A raw row is one apsw insert and sync. A record is the same row with its journal row and that one's "
        "indexes; by hand means apsw and the same statements, nothing else.",
    )
    _rates(
        table,
        rounds,
        {
            "raw sync": "overwrite a page and sync",
            "connection each": "raw row",
            "both rows": "record by hand",
            "ours": "record",
            "lease": "a lock taken",
        },
    )
    table.add("record / raw row", ratios(*_pair(rounds)), "x", at_least(0.7))
    table.add("raw row's p50 / record's p50", _p50_ratio(rounds), "x")
    table.add("record / record by hand", ratios(_rate(rounds["ours"]), _rate(rounds["both rows"])), "x")
    table.add("record by hand / raw row", ratios(_rate(rounds["both rows"]), _rate(rounds["connection each"])), "x")
    table.add("record / raw sync", ratios(_rate(rounds["ours"]), _rate(rounds["raw sync"])), "x")
    _waits(table, "record", rounds["ours"])
    _waits(table, "raw row", rounds["connection each"])
    return [table]


def threads(plan: Plan) -> list[Table]:
    """Many threads in one process, against a connection for each of them."""
    return [_threads(plan, count) for count in plan.threads]


def _threads(plan: Plan, count: int) -> Table:
    with ExitStack() as stack:
        crews = {way: _crew(stack, plan, way, callers=count) for way in ("connection each", "ours")}
        crews["raw sync"] = _crew(stack, plan, "raw sync")
        rounds = _rounds(plan, crews)
        served = _served(plan, crews, plan.rows_each) if count > 1 else {}
    table = Table(
        f"SQLite, {count} thread{'s' * (count > 1)}", "A connection each: apsw, WAL, FULL, a busy timeout of 10 s."
    )
    reach = at_least(5.0) if count >= 64 else None
    _compared(table, rounds, reach)
    return _all_served(table, served, plan.rows_each, reach)


def tasks(plan: Plan) -> list[Table]:
    """Many tasks of one event loop, against aiosqlite."""
    path = peers.installed(AIOSQLITE)
    usual = "aiosqlite" if path else "executor each"
    with ExitStack() as stack:
        kinds = [usual, "aiosqlite mixed"] if path else [usual]
        crews = {
            **{k: _crew(stack, plan, k, callers=plan.tasks, tasks=True, path=[path] if path else []) for k in kinds},
            "connection each": _crew(stack, plan, "connection each", callers=plan.tasks),
            "ours": _crew(stack, plan, "ours", callers=plan.tasks, tasks=True),
            "raw sync": _crew(stack, plan, "raw sync"),
        }
        rounds = _rounds(plan, crews)
    name = AIOSQLITE.replace("==", " ") if path else "aiosqlite's pattern by hand"
    table = Table(
        f"SQLite, {plan.tasks} asyncio tasks",
        f"{name}: one connection with its thread, FULL, a lock so that each task commits its own. Mixed is without "
        "the lock: faster, but a commit takes along what other tasks have half done, and so does a rollback.",
    )
    labels = {"raw sync": "raw sync, one caller", usual: name, "aiosqlite mixed": "aiosqlite, mixed transactions"}
    _rates(table, rounds, {key: label for key, label in labels.items() if key in rounds} | {"ours": "records"})
    table.add(f"records / {name}", ratios(_rate(rounds["ours"]), _rate(rounds[usual])), "x")
    table.add("records / a connection and thread each", ratios(*_pair(rounds)), "x", at_least(5.0))
    _waits(table, "records", rounds["ours"])
    _waits(table, name, rounds[usual])
    return [table]


def processes(plan: Plan) -> list[Table]:
    """Many processes, each writing single records, against the usual way."""
    return [_processes(plan, count) for count in plan.processes]


def _processes(plan: Plan, count: int) -> Table:
    with ExitStack() as stack:
        crews = {way: _crew(stack, plan, way, processes=count) for way in ("connection each", "ours")}
        crews["raw sync"] = _crew(stack, plan, "raw sync")
        rounds = _rounds(plan, crews)
        served = _served(plan, crews, plan.rows_each * 10) if count > 1 else {}
    table = Table(f"SQLite, {count} process{'es' * (count > 1)}, single records", "A connection each, as above.")
    many = count >= 8
    reach = at_least(1.5) if many else None
    _compared(table, rounds, reach, wait=at_most(0.2) if many else None, share=at_least(0.5) if many else None)
    return _all_served(table, served, plan.rows_each * 10, reach)


# -- parts --------------------------------------------------------------------------------------------

Rounds = dict[str, list[Sample]]


def _crew(stack: ExitStack, plan: Plan, way: str, **crew: object) -> Crew:
    place = str(plan.fresh(way.replace(" ", "-")))
    return stack.enter_context(Crew(way, place, **crew))  # type: ignore[arg-type]


def _rounds(plan: Plan, crews: dict[str, Crew]) -> Rounds:
    """One window of each as a warm-up: the log has its final size then, and is overwritten in place."""
    contestants = {name: partial(crew.round, plan.window_s) for name, crew in crews.items()}
    interleaved(1, contestants)
    return interleaved(plan.rounds, contestants, patience_s=plan.patience_s)


def _served(plan: Plan, crews: dict[str, Crew], rows_each: int) -> dict[str, list[float]]:
    """The rate when nobody may be left out: each caller writes so many rows, until the last one is done."""
    contestants = {name: partial(crews[name].served, rows_each) for name in ("connection each", "ours")}
    return interleaved(plan.rounds, contestants, patience_s=plan.patience_s)


def _rate(samples: list[Sample]) -> list[float]:
    return [sample.rate for sample in samples]


def _pair(rounds: Rounds) -> tuple[list[float], list[float]]:
    return _rate(rounds["ours"]), _rate(rounds["connection each"])


def _p50_ratio(rounds: Rounds) -> list[float]:
    """The same by the typical write alone, without the disk's bad moments."""
    return ratios([s.wait(0.5) for s in rounds["connection each"]], [s.wait(0.5) for s in rounds["ours"]])


def _rates(table: Table, rounds: Rounds, labels: dict[str, str]) -> None:
    for name, label in labels.items():
        table.add(label, _rate(rounds[name]), "/s")


def _compared(
    table: Table, rounds: Rounds, ratio: Reach | None = None, *, wait: Reach | None = None, share: Reach | None = None
) -> Table:
    labels = {"raw sync": "raw sync, one caller", "connection each": "a connection each", "ours": "records"}
    _rates(table, rounds, labels)
    table.add("records / a connection each", ratios(*_pair(rounds)), "x", ratio)
    table.add("records / raw sync", ratios(_rate(rounds["ours"]), _rate(rounds["raw sync"])), "x")
    _waits(table, "records", rounds["ours"], wait=wait, share=share)
    _waits(table, "a connection each", rounds["connection each"])
    return table


def _all_served(table: Table, served: dict[str, list[float]], rows_each: int, reach: Reach | None) -> Table:
    if served:
        table.add(f"until each has written {rows_each}: a connection each", served["connection each"], "/s")
        table.add(f"until each has written {rows_each}: records", served["ours"], "/s")
        ratio = ratios(served["ours"], served["connection each"])
        table.add(f"until each has written {rows_each}: records / a connection each", ratio, "x", reach)
    return table


def _waits(
    table: Table, label: str, samples: list[Sample], *, wait: Reach | None = None, share: Reach | None = None
) -> None:
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        table.add(f"{label}: wait {name}", [sample.wait(part) for sample in samples], "s")
    table.add(f"{label}: wait p99.9", [sample.wait(0.999) for sample in samples], "s", wait)
    table.add(f"{label}: wait max", [sample.wait_max for sample in samples], "s")
    if len(samples[0].counts) > 1:
        table.add(f"{label}: min/max share", [sample.share for sample in samples], "x", share)
    if any(sample.errors for sample in samples):
        table.add(f"{label}: busy errors", [sample.errors for sample in samples], "")
