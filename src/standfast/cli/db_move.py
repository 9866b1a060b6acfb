"""How `standfast db move` shows its plan, asks, and reports its progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.confirm import agreed
from standfast.cli.output import Out
from standfast.clock import parse_duration
from standfast.errors import Conflict

if TYPE_CHECKING:
    from standfast.config import Settings, Target

REPORT_S = 2.0
POLL_S = 0.2


def moved(out: Out, settings: Settings, target: Target, *, commit: bool, wait: str | None, confirm: str | None) -> bool:
    """Whether the store is at the target now."""
    from standfast.admin.copies.automatic import before_command
    from standfast.admin.move import move, plan

    what = plan(settings, target)
    shown = {**what.as_dict(), "hash": what.hash, "commit": commit}
    lines = [
        f"Move {what.store} from {what.source} to {what.target}: {what.rows} rows, {what.artifacts} artifacts.",
        "Processes that have it open are refused at their next write. The source stays there, sealed.",
        f"plan {what.hash}",
    ]
    if not commit:
        out.record(shown, lines)
        place = ("pg", "URL") if target.engine == "postgres" else ("sqlite", "PATH")
        out.then(hints.command("db", "move", *place, "--commit"))
        return False
    if confirm is not None and confirm != what.hash:
        raise Conflict(f"the plan is {what.hash} now, not {confirm}", "standfast db move")
    if confirm is None and not agreed(out, ["db", "move"], "Type yes to move it: ", shown, lines):
        out.say("nothing was changed")
        raise click.exceptions.Exit(exits.NEEDS_A_PERSON)
    before_command(settings, what.store, "db move")
    waiting, end = False, time.monotonic() + (parse_duration(wait) / 1_000_000 if wait else 0)
    while True:
        try:
            move(settings, target, what, _reported(out))
            break
        except Conflict as error:
            if error.code != "under_way" or time.monotonic() >= end:
                raise
            if not waiting:
                out.say(f"{error.message}: waiting up to {wait}")
            waiting = True
            time.sleep(POLL_S)
    out.say(f"{what.store} is at {what.target}: {what.rows} rows and {what.artifacts} artifacts, compared")
    return True


def _reported(out: Out):  # type: ignore[no-untyped-def]
    """Progress with rows per second and the time left."""
    began = last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_S:
            last = now
            speed = done / (now - began)
            left = max(0, total - done) / speed if speed else 0
            out.say(f"{what}: {done} of {total}, {speed:.0f} rows/s, {left:.0f} s left")

    return report
