"""`standfast once`: run a command once per key; later calls print the stored output."""

from __future__ import annotations

import os
from time import localtime, mktime, strftime
from typing import TYPE_CHECKING

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
@option("--by", help="Compare this instead of the command line: the same key must mean the same.")
@option("--probe", help="In doubt, ask: exit 0 = it was applied (stdout is the result), 3 = it was not.")
@option("--no-probe", is_flag=True, help="Use no ready probe, also if standfast has one for COMMAND.")
@option(
    "--settle", help='The probe\'s "not applied" counts only this long after the last command ended.  [default: 10s]'
)
@option(
    "--retry-failed", is_flag=True, help="A non-zero exit means that nothing was done: the next call runs it again."
)
@option("--until-ok", is_flag=True, hidden=True)
@option("--again", is_flag=True, help="Run it again, although it was done or may have happened in part.")
@option("--per", type=click.Choice(["hour", "day", "week"]), help="Once in each, by the clock on the wall.")
@option("--approve", is_flag=True, help="A person has to approve this command line first.")
@option("--attempts", type=click.IntRange(1, 10), default=1, help="How many runs one approval allows.  [default: 1]")
@option("--in", "inputs", multiple=True, metavar="FILE", help="COMMAND reads FILE: its content is compared, too.")
@option(
    "--out",
    "outputs",
    multiple=True,
    metavar="FILE",
    help="COMMAND writes FILE: it is stored; a later call writes it if it is missing.",
)
@option("--why", help="Reason shown to the approver.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it belongs to: key or id.")
@option("--task", help="The task it is done for: id, or the end of it.")
@command_line("argv", required=True)
def once(
    out: Out,
    key: str,
    argv: tuple[str, ...],
    by: str | None,
    probe: str | None,
    no_probe: bool,
    settle: str | None,
    retry_failed: bool,
    until_ok: bool,
    again: bool,
    per: str | None,
    approve: bool,
    attempts: int,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    why: str | None,
    session: str | None,
    task: str | None,
) -> None:
    """Run COMMAND once per KEY. Later calls print the stored output.

    Exit 0 is the result. A non-zero exit proves nothing: the command may have acted in part. The next call asks the
    probe, or exits 6. A command that a signal ended is in doubt too.
    """
    from standfast.cli.once_run import Asked, run_once

    asked = Asked(
        key=f"{key}@{period(per, SYSTEM)}" if per else key,
        begins_us=begins_us(per, SYSTEM) if per else None,
        argv=argv,
        by=by,
        probe=probe,
        no_probe=no_probe,
        settle_us=None if settle is None else parse_duration(settle),
        retry_failed=retry_failed or until_ok,
        again=again,
        approve=approve,
        attempts=attempts,
        inputs=inputs,
        outputs=outputs,
        why=why,
        session=session,
        task=task,
        cwd=os.getcwd(),
    )
    raise click.exceptions.Exit(run_once(out, asked))


def period(per: str, clock: Clock) -> str:
    """The hour, day or week it is now, where the person is."""
    shapes: dict[str, str] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%G-W%V"}
    return strftime(shapes[per], localtime(clock.now_us() // 1_000_000))


def begins_us(per: str, clock: Clock) -> int:
    """When that hour, day or week began."""
    now = localtime(clock.now_us() // 1_000_000)
    hour = now.tm_hour if per == "hour" else 0
    day = now.tm_mday - (now.tm_wday if per == "week" else 0)
    return int(mktime((now.tm_year, now.tm_mon, day, hour, 0, 0, 0, 0, -1))) * 1_000_000
