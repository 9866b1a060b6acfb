"""`standfast once`: run a command once per key; its answer ever after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from standfast.cli.frame import argument, command, option
from standfast.cli.output import Out

if TYPE_CHECKING:
    from standfast.clock import Clock


@command(
    "once",
    examples=(
        "standfast once deploy:42 --probe './is-deployed.sh 42' -- ./deploy.sh 42",
        "standfast once backup --per day --until-ok -- ./backup.sh",
    ),
)
@argument("key")
@option("--by", help="Compare this instead of the command line: the same key must mean the same.")
@option("--probe", help="In doubt, ask: exit 0 = it was applied (stdout is the result), 3 = it was not.")
@option(
    "--settle", help='The probe\'s "not applied" counts only this long after the last command ended.  [default: 10s]'
)
@option("--until-ok", is_flag=True, help="A non-zero exit means that nothing was done: the next call runs it.")
@option("--again", is_flag=True, help="Once more, although it was done.")
@option("--per", type=click.Choice(["hour", "day", "week"]), help="Once in each, by the clock on the wall.")
@option("--approve", is_flag=True, help="A person has to say yes to this command line first.")
@option("--attempts", type=click.IntRange(1, 10), default=1, help="How many runs one approval allows.  [default: 1]")
@option("--why", help="For the person who has to say yes.")
@option("--session", envvar="STANDFAST_SESSION", help="The session it belongs to: key or id.")
@option("--task", help="The task it is done for: id, or the end of it.")
@argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
def once(
    out: Out,
    key: str,
    argv: tuple[str, ...],
    by: str | None,
    probe: str | None,
    settle: str | None,
    until_ok: bool,
    again: bool,
    per: str | None,
    approve: bool,
    attempts: int,
    why: str | None,
    session: str | None,
    task: str | None,
) -> None:
    """Run COMMAND unless KEY has been done; exit as it did, then and ever after.

    A command that exits has answered: its exit code and output are the result. Ended by a signal,
    it is in doubt: the next call asks the probe, or stops with exit 6 until a person settles it.
    """
    from standfast.cli.once_run import Asked, run_once
    from standfast.clock import SYSTEM, parse_duration

    asked = Asked(
        key=f"{key}@{period(per, SYSTEM)}" if per else key,
        argv=argv,
        by=by,
        probe=probe,
        settle_us=None if settle is None else parse_duration(settle),
        until_ok=until_ok,
        again=again,
        approve=approve,
        attempts=attempts,
        why=why,
        session=session,
        task=task,
        cwd=os.getcwd(),
    )
    raise click.exceptions.Exit(run_once(out, asked))


def period(per: str, clock: Clock) -> str:
    """The hour, day or week it is now, where the person is."""
    from time import localtime, strftime

    shapes: dict[str, str] = {"hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d", "week": "%G-W%V"}
    return strftime(shapes[per], localtime(clock.now_us() // 1_000_000))
