"""`standfast doctor`: the findings of `upkeep.doctor`, and an exit code for scripts."""

from __future__ import annotations

import click

from standfast.cli import exits
from standfast.cli.frame import command, option
from standfast.cli.output import Out
from standfast.cli.render import Column

_STYLES = {"ok": "green", "warn": "yellow", "error": "red"}


@command("doctor", examples=("standfast doctor", "standfast doctor --fix --json"))
@option("--fix", is_flag=True, help="Repair what can be repaired without losing anything.")
def doctor(out: Out, fix: bool) -> None:
    """Check the store and its place. Exits 1 only on a finding in state error."""
    from standfast.cli.store import opened
    from standfast.config import load
    from standfast.upkeep.doctor import examine

    findings = list(examine(lambda: load(quiet=True), opened, fix=fix))
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
