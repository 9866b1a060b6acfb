"""`standfast doctor`: the findings of `upkeep.doctor`, and an exit code for scripts."""

from __future__ import annotations

from collections.abc import Callable

import click

from standfast.cli import exits
from standfast.cli.frame import command, option
from standfast.cli.output import Out
from standfast.cli.render import Column

LINE_EVERY_S = 10
_STYLES = {"ok": "green", "warn": "yellow", "error": "red"}


@command("doctor", examples=("standfast doctor", "standfast doctor --fix --json"))
@option("--fix", is_flag=True, help="Repair what can be repaired without losing anything.")
@option("--quick", is_flag=True, help="Skip the comparison of each index with its rows.")
def doctor(out: Out, fix: bool, quick: bool) -> None:
    """Check the store and its place. Exits 1 only on a finding in state error."""
    from standfast.cli.store import opened
    from standfast.config import load
    from standfast.upkeep.doctor import examine

    findings = list(examine(lambda: load(quiet=True), opened, fix=fix, quick=quick, progress=_reading(out)))
    if not any(finding.state == "error" for finding in findings):
        from standfast.cli.store import exists
        from standfast.daemon.checks import examine as examine_daemon

        settings = load(quiet=True)
        findings += examine_daemon(settings, opened) if exists(settings) else []
    rows = [finding._asdict() for finding in findings]
    if out.for_people:
        for finding in findings:
            mark = out.styled(f"{finding.state:<5}", _STYLES[finding.state])
            out.text(f"{mark}  {finding.id:<11}  {finding.text}")
            if finding.remedy:
                out.text(f"{'':7}{'':13}→ {finding.remedy}")
    else:
        out.rows(rows, [Column("id")])
    bad = [finding for finding in findings if finding.state == "error"]
    if not bad:
        fixable = any("--fix" in finding.remedy for finding in findings)
        out.then("standfast doctor --fix" if fixable else "standfast status")
    if bad:
        raise click.exceptions.Exit(exits.FAILED)


def _reading(out: Out) -> Callable[[float], None]:
    """A line on stderr after a second of reading, and then every 10 seconds."""
    lines = [0]

    def told(seconds: float) -> None:
        if seconds >= lines[0] * LINE_EVERY_S:
            lines[0] = int(seconds // LINE_EVERY_S) + 1
            out.say(f"reading through the file: {seconds:.0f} s so far (standfast doctor --quick takes less)")

    return told
