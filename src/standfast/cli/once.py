"""`standfast once`: run a command once per key; later calls print the stored output."""

from __future__ import annotations

import os
from time import localtime, mktime, strftime
from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, command, command_line, option
from standfast.cli.output import Out
from standfast.clock import SYSTEM, parse_duration

if TYPE_CHECKING:
    from standfast.clock import Clock


@command(
    "once",
    examples=(
        "standfast once deploy:42 --probe './is-deployed.sh 42' -- ./deploy.sh 42",
        "standfast once backup --per day --retry-failed -- ./backup.sh",
    ),
)
@argument("key")
@option("--by", help="Compare this text instead of the command line; another text under the same KEY exits 4.")
@option(
    "--probe",
    help="Run this command if the outcome is in doubt: exit 0 means applied (stdout is the result), 3 not applied.",
)
@option("--no-probe", is_flag=True, help="Do not use the ready probe that standfast has for some commands.")
@option(
    "--settle",
    metavar="DURATION",
    help='Accept "not applied" only this long after the last command ended.  [default: 10s]',
)
@option("--retry-failed", is_flag=True, help="Treat a non-zero exit as not applied: the next call runs COMMAND again.")
@option("--until-ok", is_flag=True, hidden=True)
@option("--again", is_flag=True, help="Run COMMAND again, although it was done or may have happened in part.")
@option(
    "--per",
    type=click.Choice(["hour", "day", "week"]),
    help="Run COMMAND once per hour, day or week of the local clock.",
)
@option("--approve", is_flag=True, help="Require the approval of a person for this command line first.")
@option("--attempts", type=click.IntRange(1, 10), default=1, help="One approval allows N runs.  [default: 1]")
@option("--in", "inputs", multiple=True, metavar="FILE", help="Also compare the content of FILE, which COMMAND reads.")
@option(
    "--out",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="Store FILE, which COMMAND writes; a later call writes it again if it is missing.",
)
@option("--why", help="Show this reason to the approver.")
@option("--session", envvar="STANDFAST_SESSION", help="The session that the run belongs to.")
@option("--task", help="The task that the run is done for.")
@command_line("argv", required=True)
def once(
    out: Out, key: str, per: str | None, settle: str | None, retry_failed: bool, until_ok: bool, **given: Any
) -> None:
    """Run COMMAND once per KEY. Later calls print the stored output.

    Exit 0 is the result. After a non-zero exit, COMMAND may have acted in part: the next call runs the probe, or exits
    6 without one. A command that was killed by a signal is in doubt too.
    """
    from standfast.cli.once_run import Asked, run_once

    asked = Asked(
        key=f"{key}@{period(per, SYSTEM)}" if per else key,
        begins_us=begins_us(per, SYSTEM) if per else None,
        settle_us=None if settle is None else parse_duration(settle),
        retry_failed=retry_failed or until_ok,
        cwd=os.getcwd(),
        **given,
    )
    raise click.exceptions.Exit(run_once(out, asked))


def period(per: str, clock: Clock) -> str:
    """The current hour, day or week in local time."""
    shapes: dict[str, str] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%G-W%V"}
    return strftime(shapes[per], localtime(clock.now_us() // 1_000_000))


def begins_us(per: str, clock: Clock) -> int:
    """When the current hour, day or week began."""
    now = localtime(clock.now_us() // 1_000_000)
    hour = now.tm_hour if per == "hour" else 0
    day = now.tm_mday - (now.tm_wday if per == "week" else 0)
    return int(mktime((now.tm_year, now.tm_mon, day, hour, 0, 0, 0, 0, -1))) * 1_000_000
