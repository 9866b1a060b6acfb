"""`standfast crash`: kill an agent at each crash point it passes, and count requests that were sent twice."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from standfast.cli.frame import command, command_line, option
from standfast.cli.output import Out
from standfast.errors import InvalidInput

LIFE_MAX_S = 300.0
SCHEDULES_MAX = 1000


class Outcome(NamedTuple):
    """The outcome of one kill: the lines in the file, the crash points of the first run, the last exit code."""

    seen: Counter[str]
    points: list[str]
    exit: int


@command(
    "crash",
    examples=(
        "standfast crash --count server.log -- python agent.py",
        "standfast crash --count sent.txt --points 'effect.*' -- ./nightly.sh",
    ),
)
@option(
    "--count",
    "count_file",
    metavar="FILE",
    required=True,
    help="The outside system writes one line per request to this file.",
)
@option("--points", default="*", show_default=True, help='Only kill at these crash points: "effect.*".')
@command_line("argv", required=True)
def crash(out: Out, count_file: str, points: str, argv: tuple[str, ...]) -> None:
    """Kill COMMAND at each crash point it passes, run it again, and count the lines of FILE that occur twice.

    For each crash point COMMAND starts with an empty store and an empty FILE. Exit 1 if a line occurs twice.
    """
    from standfast import crash as crashes

    chosen, file = crashes.matching(points), Path(count_file)
    if file.exists() and file.stat().st_size:
        raise InvalidInput(f"{count_file} is not empty, and each run empties it", f"rm {count_file}")
    with TemporaryDirectory(prefix="standfast-crash-") as place:
        usual = _schedule(argv, file, Path(place) / "0", 0)
        if usual.exit != 0:
            raise InvalidInput(
                f"the command fails without a kill: exit {usual.exit}", f"run it alone: {shlex.join(argv)}"
            )
        kills = [n for n, name in enumerate(usual.points, 1) if name in chosen]
        if not kills:
            raise InvalidInput(f"the command passes no crash point that matches {points!r}", "does it use standfast?")
        rows = [_judged(n, usual, _schedule(argv, file, Path(place) / str(n), n)) for n in kills[:SCHEDULES_MAX]]
    file.write_text("")
    _report(out, rows)
    raise click.exceptions.Exit(int(any(row["twice"] for row in rows)))


def _schedule(argv: tuple[str, ...], file: Path, place: Path, kill: int) -> Outcome:
    place.mkdir()
    file.write_text("")
    exit, points = _live(argv, place, kill)
    if kill:
        exit, _ = _live(argv, place, 0)
    return Outcome(Counter(file.read_text(errors="replace").splitlines()), points, exit)


def _live(argv: tuple[str, ...], place: Path, kill: int) -> tuple[int, list[str]]:
    """Run the command in its own process group. The process that passes the crash point kills the group."""
    from standfast import crash as crashes

    trace = place / "trace"
    trace.write_text("")
    ours = {"STANDFAST_DATA_DIR": str(place / "data"), "STANDFAST_REMEMBER": "0", crashes.TRACE: f"{trace}:{kill}"}
    left_out = ("STANDFAST_DB_URL", "STANDFAST_STORE", "STANDFAST_SESSION", crashes.VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, env=environment | ours, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True,
            timeout=LIFE_MAX_S, check=False,
        )  # fmt: skip
    except OSError as error:
        raise InvalidInput(f"{argv[0]}: {error.strerror}", "standfast crash --count FILE -- COMMAND") from None
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"the command runs longer than {LIFE_MAX_S:.0f} s", "shorten the work of the command"
        ) from None
    return done.returncode, trace.read_text().split()


def _judged(n: int, usual: Outcome, found: Outcome) -> dict[str, object]:
    point = found.points[n - 1] if len(found.points) >= n else "not reached"
    twice, missing = compared(usual.seen, found.seen)
    return {
        "killed_at": f"{point}:{found.points[:n].count(point)}",
        "twice": twice,
        "missing": missing,
        "exit": found.exit,
    }


def compared(usual: Counter[str], seen: Counter[str]) -> tuple[int, int]:
    """How many lines are surplus, and how many are missing.

    A line may contain a time or an id that differs in each run, so a new line replaces a missing one.
    """
    more, less = seen - usual, usual - seen
    replaced = min(sum(line not in usual for line in more), less.total())
    return more.total() - replaced, less.total() - replaced


def _report(out: Out, rows: list[dict[str, object]]) -> None:
    twice, missing, stopped = (sum(bool(row[name]) for row in rows) for name in ("twice", "missing", "exit"))
    out.rows(
        [row for row in rows if not out.for_people or row["twice"] or row["missing"] or row["exit"]],
        ["killed_at", "twice", "missing", "exit"],
        empty="no kill changed what the outside system saw",
    )
    out.say(
        f"killed at {len(rows)} crash points: the outside system saw something twice at {twice}, missed something at"
        f" {missing}; the second run did not exit 0 at {stopped}"
    )
