"""`standfast doctor`: check the store and its place, and make safe repairs."""

from __future__ import annotations

import click

from standfast.cli import exits
from standfast.cli.frame import command, option
from standfast.cli.open_store import exists, opened
from standfast.cli.output import Out
from standfast.cli.progress import reported
from standfast.cli.render import Column
from standfast.config import load

INDENT = 20
_STYLES = {"ok": "green", "warn": "yellow", "error": "red"}


@command("doctor", examples=("standfast doctor", "standfast doctor --fix --json"))
@option("--fix", is_flag=True, help="Make repairs that lose no data.")
@option("--quick", is_flag=True, help="Do not compare each index with its rows.")
def doctor(out: Out, fix: bool, quick: bool) -> None:
    """Check the store and its place. Exits 1 only if a finding has the state error."""
    from standfast.admin.doctor import examine

    findings = list(examine(lambda: load(quiet=True), opened, fix=fix, quick=quick, progress=reported(out)))
    if not any(finding.state == "error" for finding in findings):
        from standfast.daemon.doctor import examine as examine_daemon

        settings = load(quiet=True)
        findings += examine_daemon(settings, opened) if exists(settings) else []
    rows = [finding._asdict() for finding in findings]
    if out.for_people:
        for finding in findings:
            mark = out.styled(f"{finding.state:<5}", _STYLES[finding.state])
            first, *more = out.wrapped(finding.text, INDENT)
            out.text(f"{mark}  {finding.id:<11}  {first}")
            for line in [*more, *_remedy(out, finding.remedy)]:
                out.text(f"{'':{INDENT}}{line}")
    else:
        out.rows(rows, [Column("id")])
    bad = [finding for finding in findings if finding.state == "error"]
    if not bad:
        from standfast.views import coverage

        if unread := coverage.not_read(coverage.unread_stores(load(quiet=True))):
            out.say(unread)
        fixable = any("--fix" in finding.remedy for finding in findings)
        out.then("standfast doctor --fix" if fixable else "standfast status")
    if bad:
        raise click.exceptions.Exit(exits.FAILED)


def _remedy(out: Out, text: str) -> list[str]:
    """The lines of a remedy. A command stays on one line, so that it can be copied."""
    if not text:
        return []
    return [f"→ {text}"] if "standfast " in text else out.wrapped(f"→ {text}", INDENT)
