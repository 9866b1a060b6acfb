"""SQLite: durable records from one caller, many threads, many tasks, many processes."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from standfast_prove.bench.crew import Crew, Sample
from standfast_prove.bench.measure import Plan, Reach, Table, at_least, at_most, interleaved, ratios

THREADS_REACH = {4: 1.0, 64: 1.8}
"""Threads, and their rate against a connection each. The fsync is the floor for a few threads."""
WAIT_MAX_S = 0.05
"""The limit for the p99.9 of the wait."""


def alone(plan: Plan) -> list[Table]:
    """One caller: what a record with its journal row costs over one raw row."""
    with ExitStack() as stack:
        ways = ("raw sync", "connection each", "both rows", "protected", "ours", "lease")
        rounds = played(plan, {way: crew_of(stack, plan, way) for way in ways})
    table = Table(
        "SQLite, one caller",
        "A raw row is one apsw insert and sync. A record is the same row with its journal row and that one's "
        "indexes; by hand means apsw and the same statements, nothing else. Protected by hand: with the system calls "
        "and the trigger that every record of ours is protected by, one after the other, and no engine.",
    )
    add_rates(
        table,
        rounds,
        {
            "raw sync": "overwrite a page and sync",
            "connection each": "raw row",
            "both rows": "record by hand",
            "protected": "record protected by hand",
            "ours": "record",
            "lease": "a lock taken",
        },
    )
    table.add("record / raw row", ratios(*pair(rounds)), "x", at_least(0.45))
    table.add("raw row's p50 / record's p50", _p50_ratio(rounds), "x")
    by_hand = ratios(rate(rounds["ours"]), rate(rounds["both rows"]))
    table.add("record / record by hand", by_hand, "x", at_least(0.65))
    table.add("record by hand / raw row", ratios(rate(rounds["both rows"]), rate(rounds["connection each"])), "x")
    protected = rate(rounds["protected"])
    table.add("record / record protected by hand", ratios(rate(rounds["ours"]), protected), "x")
    table.add("record protected by hand / raw row", ratios(protected, rate(rounds["connection each"])), "x")
    table.add("record / raw sync", ratios(rate(rounds["ours"]), rate(rounds["raw sync"])), "x")
    add_waits(table, "record", rounds["ours"])
    add_waits(table, "raw row", rounds["connection each"])
    return [table]


def threads(plan: Plan) -> list[Table]:
    """Many threads in one process, against a connection for each of them."""
    return [_threads(plan, count) for count in plan.threads]


def _threads(plan: Plan, count: int) -> Table:
    with ExitStack() as stack:
        crews = {way: crew_of(stack, plan, way, callers=count) for way in ("connection each", "ours")}
        crews["raw sync"] = crew_of(stack, plan, "raw sync")
        crews["together"] = crew_of(stack, plan, "together", callers=count)
        rounds = played(plan, crews)
        served = _served(plan, crews, plan.rows_each) if count > 1 else {}
    table = Table(
        f"SQLite, {count} thread{'s' * (count > 1)}",
        "A connection each: apsw, WAL, FULL, a busy timeout of 10 s. Together by hand: a record's two rows of every "
        "thread in one commit and one sync, and nothing else: the best that sharing can do in one interpreter.",
    )
    reach = at_least(THREADS_REACH[count]) if count in THREADS_REACH else None
    wait, share = (at_most(WAIT_MAX_S), at_least(0.8)) if reach is not None else (None, None)
    _compared(table, rounds, reach, wait=wait, share=share)
    bound = rate(rounds["together"])
    table.add("together by hand", bound, "/s")
    table.add("together by hand / a connection each", ratios(bound, pair(rounds)[1]), "x")
    table.add("records / together by hand", ratios(rate(rounds["ours"]), bound), "x")
    return _all_served(table, served, plan.rows_each, reach)


def processes(plan: Plan) -> list[Table]:
    """Many processes, each writing single records, against the usual way."""
    return [_processes(plan, count) for count in plan.processes]


def _processes(plan: Plan, count: int) -> Table:
    with ExitStack() as stack:
        ways = ("connection each", "behind a lock", "ours")
        crews = {way: crew_of(stack, plan, way, processes=count) for way in ways}
        crews["raw sync"] = crew_of(stack, plan, "raw sync")
        rounds = played(plan, crews)
        served = _served(plan, crews, plan.rows_each * 10) if count > 1 else {}
    table = Table(
        f"SQLite, {count} process{'es' * (count > 1)}, single records",
        "A connection each, as above. Behind a lock: a record's two rows by hand under a lock file that is waited for "
        "without end, each synced outside of it: the way of our engine with nothing else in it.",
    )
    many = count >= 8
    reach = at_least(0.7) if many else None
    _compared(table, rounds, reach, wait=at_most(WAIT_MAX_S) if many else None, share=at_least(0.5) if many else None)
    bound = rate(rounds["behind a lock"])
    table.add("by hand behind a lock", bound, "/s")
    table.add("by hand behind a lock / a connection each", ratios(bound, pair(rounds)[1]), "x")
    table.add("records / by hand behind a lock", ratios(rate(rounds["ours"]), bound), "x")
    return _all_served(table, served, plan.rows_each * 10, reach)


# -- parts --------------------------------------------------------------------------------------------

Rounds = dict[str, list[Sample]]


def crew_of(stack: ExitStack, plan: Plan, way: str, **crew: object) -> Crew:
    place = str(plan.fresh(way.replace(" ", "-")))
    return stack.enter_context(Crew(way, place, **crew))  # type: ignore[arg-type]


def played(plan: Plan, crews: dict[str, Crew]) -> Rounds:
    """Play one window of each contestant as a warm-up. Then the WAL has its final size and is overwritten in place."""
    contestants = {name: partial(crew.round, plan.window_s) for name, crew in crews.items()}
    interleaved(1, contestants)
    return interleaved(plan.rounds, contestants, patience_s=plan.patience_s)


def _served(plan: Plan, crews: dict[str, Crew], rows_each: int) -> dict[str, list[float]]:
    """Each caller writes `rows` rows. The rate counts until the slowest caller is done."""
    contestants = {name: partial(crews[name].served, rows_each) for name in ("connection each", "ours")}
    return interleaved(plan.rounds, contestants, patience_s=plan.patience_s)


def rate(samples: list[Sample]) -> list[float]:
    return [sample.rate for sample in samples]


def pair(rounds: Rounds) -> tuple[list[float], list[float]]:
    return rate(rounds["ours"]), rate(rounds["connection each"])


def _p50_ratio(rounds: Rounds) -> list[float]:
    """The same ratio by the median write, without the slow moments of the disk."""
    return ratios([s.wait(0.5) for s in rounds["connection each"]], [s.wait(0.5) for s in rounds["ours"]])


def add_rates(table: Table, rounds: Rounds, labels: dict[str, str]) -> None:
    for name, label in labels.items():
        table.add(label, rate(rounds[name]), "/s")


def _compared(
    table: Table, rounds: Rounds, ratio: Reach | None = None, *, wait: Reach | None = None, share: Reach | None = None
) -> Table:
    labels = {"raw sync": "raw sync, one caller", "connection each": "a connection each", "ours": "records"}
    add_rates(table, rounds, labels)
    table.add("records / a connection each", ratios(*pair(rounds)), "x", ratio)
    table.add("records / raw sync", ratios(rate(rounds["ours"]), rate(rounds["raw sync"])), "x")
    add_waits(table, "records", rounds["ours"], wait=wait, share=share)
    add_waits(table, "a connection each", rounds["connection each"])
    return table


def _all_served(table: Table, served: dict[str, list[float]], rows_each: int, reach: Reach | None) -> Table:
    if served:
        table.add(f"until each has written {rows_each}: a connection each", served["connection each"], "/s")
        table.add(f"until each has written {rows_each}: records", served["ours"], "/s")
        ratio = ratios(served["ours"], served["connection each"])
        table.add(f"until each has written {rows_each}: records / a connection each", ratio, "x", reach)
    return table


def add_waits(
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
