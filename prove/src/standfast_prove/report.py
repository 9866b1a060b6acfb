"""A page to read, made of result files alone: the same files give the same page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from standfast_prove import results
from standfast_prove.catalogue import WORKLOADS
from standfast_prove.results import WENT_WRONG, Result, Run, Table, every
from standfast_prove.untested import UNTESTED

_INTRODUCTION = """\
# Evaluation

What was tried to make standfast lose a record, do something twice, or say "done" of what was not, and what
came of it. Every row can be repeated: `pip install . ./prove` in the source, then `standfast prove --minutes 5`
runs all of it on your own machine and disk, and prints the one command that plays a failing seed again. This
page is made from result files alone, by `standfast prove --report`.

**How to read it.** *Tried* counts what the campaign counts: a kill, an image of a disk, a program. *At most* is the
rule of three: if nothing went wrong in n independent tries, then with 95 % confidence it goes wrong in fewer than
3/n of them. A row in *italics* is a control: the same campaign with one protection taken away. It must go
wrong, or the zeros above it would mean nothing. The same holds for the seeded bugs: each must be found.
"""

Key = tuple[str, str]
ALSO = (
    "killed twice",
    "histories",
    "simulated years",
    "crowds of 64 processes or more",
    "crowds of 128 connections or more",
)
"""Counted beside the tries, and worth a line of their own."""
PER_STORE = " (sum over stores)"


def page(directory: Path) -> str:
    """Markdown: every campaign with what was tried and what went wrong, the seeded bugs, versions and commands."""
    runs = results.read(directory)
    parts = [_INTRODUCTION, *_totals(runs)]
    for workload, about in WORKLOADS.items():
        parts += _workload(workload, about, [one for one in every(runs) if one.workload == workload])
    parts += [*_bugs(runs), *_tables(results.tables(directory)), UNTESTED, *_runs(runs)]
    return "\n".join(parts).rstrip("\n") + "\n"


def anchor(*words: str) -> str:
    return "-".join(words).lower().replace(" ", "-").replace(",", "")


def _grouped(found: Iterable[Result]) -> dict[Key, list[Result]]:
    groups: dict[Key, list[Result]] = {}
    for one in found:
        groups.setdefault((one.campaign, one.engine), []).append(one)
    return groups


# -- totals ------------------------------------------------------------------------------------------------------


def _totals(runs: Sequence[Run]) -> Iterator[str]:
    tried: dict[str, int] = {}
    wrong: dict[str, int] = {}
    for one in every(runs):
        if not one.control and not one.not_run:
            tried[one.unit] = tried.get(one.unit, 0) + one.tries
            wrong[one.unit] = wrong.get(one.unit, 0) + bool(one.bad)
    yield "## In all\n"
    yield "| tried | | went wrong | at most, 95 % |\n|---|---:|---:|---:|"
    for unit, number in sorted(tried.items(), key=lambda item: -item[1]):
        yield f"| {_mark('total', unit)}{unit} | {number:,} | {wrong[unit]} | {_bound(number, wrong[unit])} |"
    for what in ALSO:
        if number := sum(one.seen.get(what, 0) for one in every(runs) if not one.control and one.unit != what):
            yield f"| {_mark('also', what)}of these or beside them: {what} | {number:,} | | |"
    hours = sum(run.seconds for run in runs) / 3600
    yield f"\nIn {len(runs)} runs, {hours:.1f} hours by the clock on the wall.\n"


def _bound(tries: int, wrong: int) -> str:
    return f"1 in {tries // 3:,}" if tries > 5 and not wrong else ""


def _mark(*words: str) -> str:
    return f'<a id="{anchor(*words)}"></a>'


# -- workloads -----------------------------------------------------------------------------------------------------


def _workload(name: str, about: str, found: list[Result]) -> Iterator[str]:
    if not found:
        return
    yield f"## {name.capitalize()}\n\n{about[0].upper()}{about[1:]}.\n"
    yield "| campaign | engine | tried | went wrong | at most, 95 % | seeds | minutes |"
    yield "|---|---|---:|---:|---:|---|---:|"
    groups = _grouped(found)
    for played in groups.values():
        yield _row(played)
    yield ""
    for played in groups.values():
        yield from _more(played)
    yield ""


def _row(found: Sequence[Result]) -> str:
    one, ran = found[-1], [result for result in found if not result.not_run]
    mark = _mark(one.campaign, one.engine)
    if not ran:
        return f"| {mark}{one.campaign} | {one.engine} | not run: {one.not_run} | | | | |"
    tries, minutes = sum(result.tries for result in ran), sum(result.seconds for result in ran) / 60
    rest = f"{_seeds(ran)} | {minutes:.1f} |"
    if one.control:
        wrong = sum(result.seen.get(WENT_WRONG, 0) for result in ran)
        said = f"*{wrong} of {len(ran)} runs, as it must*"
        return (
            f"| {mark}*{one.campaign}: without {one.control}* | {one.engine} | {tries:,} {one.unit} | {said} | | {rest}"
        )
    bad = sum(bool(result.bad) for result in ran)
    return f"| {mark}{one.campaign} | {one.engine} | {tries:,} {one.unit} | {bad} | {_bound(tries, bad)} | {rest}"


def _seeds(found: Sequence[Result]) -> str:
    """ "0-41, 100-120": neighbouring ranges are one."""
    ranges: list[list[int]] = []
    for first, last in sorted(result.seeds for result in found):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1][1] = max(last, ranges[-1][1])
        else:
            ranges.append([first, last])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _more(found: Sequence[Result]) -> Iterator[str]:
    """Other counts, and the text of every violation."""
    one, counted = found[-1], dict[str, int]()
    for result in found:
        for what, number in result.seen.items():
            if what not in (result.unit, WENT_WRONG):
                counted[what] = counted.get(what, 0) + number
    if counted:
        figures = ", ".join(_figure(what, number, counted) for what, number in counted.items())
        yield f"- {one.campaign} on {one.engine}: {figures}"
    for result in found:
        for sentence in result.bad:
            yield f"- **WRONG** in {one.campaign} on {one.engine}: {sentence[:400]}"


def _figure(what: str, number: int, counted: dict[str, int]) -> str:
    """Counts add up; what was measured in each store is shown as its mean."""
    name, at, size = what.removesuffix(PER_STORE).rpartition(" at ")
    stores = counted.get(f"stores of {size} events", 0)
    if not what.endswith(PER_STORE) or not at or not stores:
        return f"{number:,} {what}"
    return f"{number / stores:,.0f} {name} at {size}"


# -- seeded bugs, tables, runs -----------------------------------------------------------------------------------------


def _bugs(runs: Sequence[Run]) -> Iterator[str]:
    """The newest word about each mutant."""
    newest = {bug["mutant"]: bug for run in runs for bug in run.mutants}
    if not newest:
        return
    found = sum(bool(bug["found"]) for bug in newest.values())
    yield "## Seeded bugs\n"
    yield f"{_mark('mutants')}{found} of {len(newest)} were found, by a harness that is quiet without it. A bug is a"
    yield "small patch that only children of `prove` have; the product knows nothing of it.\n"
    yield "| bug | what it does | who looks | found after |\n|---|---|---|---|"
    for bug in newest.values():
        yield f"| {_mark('bug', bug['mutant'])}{bug['mutant']} | {bug['what']} | {bug['harness']} | {_outcome(bug)} |"


def _outcome(bug: dict[str, Any]) -> str:
    if bug["not_run"]:
        return f"not run: {bug['not_run']}"
    return f"{bug['tries']} tries, {bug['seconds']} s" if bug["found"] else "**SURVIVED**"


def _tables(found: Sequence[Table]) -> Iterator[str]:
    titles = {
        "found": "What went wrong on the way",
        "peers": "The same schedules for others",
        "bench": "How fast",
    }
    for kind, title in titles.items():
        for number, table in enumerate(one for one in found if one.kind == kind):
            yield "" if number else f"\n## {title}\n"
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    columns = list(dict.fromkeys(name for row in table.rows for name in row if name != "anchor"))
    if table.title:
        yield f"{table.title}\n"
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    for row in table.rows:
        mark = _mark(str(row["anchor"])) if "anchor" in row else ""
        yield f"| {mark}{' | '.join(_cell(row.get(name)) for name in columns)} |"
    made = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    yield f"\n`{table.command}`; {made}.\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return (
        f"{value:,}"
        if isinstance(value, int | float) and not isinstance(value, bool)
        else str(value).replace("|", "\\|")
    )


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    yield "\n## The runs\n"
    yield "| begun | command | minutes | made with |\n|---|---|---:|---|"
    for run in runs:
        made = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        yield f"| {run.started} | `{run.command}` | {run.seconds / 60:.1f} | {made} |"
