"""Makes the Markdown page of `standfast prove --report`. The same result files give the same page."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from standfast_prove import results
from standfast_prove.catalogue import CAMPAIGNS, WORKLOADS
from standfast_prove.results import WENT_WRONG, Result, Run, Table, every
from standfast_prove.untested import UNTESTED

_INTRODUCTION = """\
# Evaluation

This page has the results of `standfast prove`. It tries to make standfast lose a record, do something twice, or
acknowledge a write that is not durable. To repeat it on your own machine and disk, run these commands in the source:

```sh
pip install . ./prove
standfast prove --minutes 5
```

If a campaign fails, it prints the command that plays the same seed again. [standfast prove](prove.md) has the
options. `standfast prove --report` makes this page from result files.

How to read a row:

- **Campaign.** One kind of test, run with many random seeds. An oracle outside the store counts what really happened.
- **Tried.** The number of kills, disk images, programs or other units of this campaign.
- **Failed.** Runs in which a promise did not hold.
- **At most, 95 %.** The rule of three: if nothing fails in n independent tries, the rate of failures is below 3/n, with
  95 % confidence.
- **Seeds.** The range of seeds that was played. **Minutes** is elapsed time.
- A row in *italics* is a **control**: the same campaign without one protection. It has to fail. Otherwise the campaign
  could not see the failure at all, and a zero in the row above would prove nothing.

The [seeded bugs](#seeded-bugs) serve the same purpose: each has to be found.
"""

Key = tuple[str, str]
ALSO = (
    "killed twice",
    "histories",
    "simulated years",
    "crowds of 64 processes or more",
    "crowds of 128 connections or more",
)
"""Counts that are not a unit of any campaign and get their own line in the totals."""
PER_STORE = " (sum over stores)"


def page(directory: Path) -> str:
    """Markdown: totals, each campaign with its counts and failures, the seeded bugs, versions and commands."""
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
    yield "## All campaigns together\n"
    yield "| unit | tried | failed | at most, 95 % |\n|---|---:|---:|---:|"
    for unit, number in sorted(tried.items(), key=lambda item: -item[1]):
        yield f"| {_mark('total', unit)}{unit} | {number:,} | {wrong[unit]} | {_bound(number, wrong[unit])} |"
    for what in ALSO:
        if number := sum(one.seen.get(what, 0) for one in every(runs) if not one.control and one.unit != what):
            yield f"| {_mark('also', what)}also: {what} | {number:,} | | |"
    hours = sum(run.seconds for run in runs) / 3600
    yield f"\nThese are {len(runs)} runs that took {hours:.1f} hours of elapsed time.\n"


def _bound(tries: int, wrong: int) -> str:
    return f"1 in {tries // 3:,}" if tries > 5 and not wrong else ""


def _mark(*words: str) -> str:
    return f'<a id="{anchor(*words)}"></a>'


# -- workloads -----------------------------------------------------------------------------------------------------


def _workload(name: str, about: str, found: list[Result]) -> Iterator[str]:
    if not found:
        return
    yield f"## {name.capitalize()}\n\n{about[0].upper()}{about[1:]}.\n"
    yield from _about(found)
    yield "| campaign | engine | tried | failed | at most, 95 % | seeds | minutes |"
    yield "|---|---|---:|---:|---:|---|---:|"
    groups = _grouped(found)
    for played in groups.values():
        yield _row(played)
    yield ""
    for played in groups.values():
        yield from _more(played)
    yield ""


def _about(found: Sequence[Result]) -> Iterator[str]:
    """A list of the campaigns, each with the first paragraph of its docstring."""
    names = dict.fromkeys(one.campaign for one in found if not one.control)
    about = {one.name: _paragraph(one.place) for one in CAMPAIGNS if one.name in names}
    for paragraph in dict.fromkeys(about.values()):
        same = [name for name in names if about.get(name) == paragraph]
        listed = ", ".join(same) if len(same) < 5 else f"{same[0].partition('-')[0]}-…"
        yield f"- **{listed}:** {paragraph}"
    yield ""


def _paragraph(place: str) -> str:
    """The first paragraph about a campaign: from its module for `run`, else from its function."""
    module, _, function = place.partition(":")
    tree = ast.parse((Path(__file__).parent / "campaigns" / f"{module}.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    text = (ast.get_docstring(tree if function == "run" else functions[function]) or "").partition("\n\n")[0]
    return " ".join(text.split())


def _row(found: Sequence[Result]) -> str:
    one, ran = found[-1], [result for result in found if not result.not_run]
    mark = _mark(one.campaign, one.engine)
    if not ran:
        return f"| {mark}{one.campaign} | {one.engine} | not run: {one.not_run} | | | | |"
    tries, minutes = sum(result.tries for result in ran), sum(result.seconds for result in ran) / 60
    rest = f"{_seeds(ran)} | {minutes:.1f} |"
    if one.control:
        wrong = sum(result.seen.get(WENT_WRONG, 0) for result in ran)
        said = f"*{wrong} of {len(ran)} runs, as it has to*"
        return (
            f"| {mark}*{one.campaign}: without {one.control}* | {one.engine} | {tries:,} {one.unit} | {said} | | {rest}"
        )
    bad = sum(bool(result.bad) for result in ran)
    return f"| {mark}{one.campaign} | {one.engine} | {tries:,} {one.unit} | {bad} | {_bound(tries, bad)} | {rest}"


def _seeds(found: Sequence[Result]) -> str:
    """ "0-41, 100-120": adjacent ranges are joined."""
    ranges: list[list[int]] = []
    for first, last in sorted(result.seeds for result in found):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1][1] = max(last, ranges[-1][1])
        else:
            ranges.append([first, last])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _more(found: Sequence[Result]) -> Iterator[str]:
    """One line with the other counts of a campaign, and one line for each violation."""
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
            yield f"- **FAILED** {one.campaign} on {one.engine}: {sentence[:400]}"


def _figure(what: str, number: int, counted: dict[str, int]) -> str:
    """Counts are added. A value that was measured in each store is shown as its mean."""
    name, at, size = what.removesuffix(PER_STORE).rpartition(" at ")
    stores = counted.get(f"stores of {size} events", 0)
    if not what.endswith(PER_STORE) or not at or not stores:
        return f"{number:,} {what}"
    return f"{number / stores:,.0f} {name} at {size}"


# -- seeded bugs, tables, runs -----------------------------------------------------------------------------------------


def _bugs(runs: Sequence[Run]) -> Iterator[str]:
    """A table with the newest result of each seeded bug."""
    newest = {bug["mutant"]: bug for run in runs for bug in run.mutants}
    if not newest:
        return
    found = sum(bool(bug["found"]) for bug in newest.values())
    yield "## Seeded bugs\n"
    yield f"{_mark('mutants')}{found} of {len(newest)} were found. A seeded bug is a small patch that a child process"
    yield "of `standfast prove` applies to itself. Nothing in the product knows about these patches. The harness in the"
    yield "third column has to report a violation with the patch, and none without it.\n"
    yield "| bug | what it does | harness | found after |\n|---|---|---|---|"
    for bug in newest.values():
        yield f"| {_mark('bug', bug['mutant'])}{bug['mutant']} | {bug['what']} | {bug['harness']} | {_outcome(bug)} |"


def _outcome(bug: dict[str, Any]) -> str:
    if bug["not_run"]:
        return f"not run: {bug['not_run']}"
    return f"{bug['tries']} tries, {bug['seconds']} s" if bug["found"] else "**SURVIVED**"


def _tables(found: Sequence[Table]) -> Iterator[str]:
    titles = {
        "found": "Failures that were found and repaired",
        "peers": "Other libraries under the same kills",
        "bench": "Performance",
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
    yield "\n## List of runs\n"
    yield "| started | command | minutes | versions |\n|---|---|---:|---|"
    for run in runs:
        made = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        yield f"| {run.started} | `{run.command}` | {run.seconds / 60:.1f} | {made} |"
