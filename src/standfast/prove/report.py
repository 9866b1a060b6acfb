"""A page to read, made of result files alone."""

from __future__ import annotations

from collections.abc import Sequence

from standfast.prove.results import Result, Run, every


def page(runs: Sequence[Run]) -> str:
    """Markdown: every campaign with what was tried, what went wrong, and the bound that follows."""
    lines = ["| workload | campaign | engine | tried | went wrong | at most, 95 % |", "|---|---|---|---:|---:|---:|"]
    keys = dict.fromkeys((one.workload, one.campaign, one.engine) for one in every(runs))
    lines += [_row([one for one in every(runs) if (one.workload, one.campaign, one.engine) == key]) for key in keys]
    return "\n".join(lines)


def _row(found: Sequence[Result]) -> str:
    one = found[-1]
    name = f"{one.campaign}, without {one.control}" if one.control else one.campaign
    if all(result.not_run for result in found):
        return f"| {one.workload} | {name} | {one.engine} | not run: {one.not_run} | | |"
    tries, bad = sum(result.tries for result in found), sum(bool(result.bad) for result in found)
    bound = f"{3 / tries:.1e}" if tries and not bad and not one.control else ""
    return f"| {one.workload} | {name} | {one.engine} | {tries:,} {one.unit} | {bad} | {bound} |"
