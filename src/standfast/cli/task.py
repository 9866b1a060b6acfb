"""`standfast task`: add, list, claim and close tasks."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from standfast import serial
from standfast.cli.answers import Many, One
from standfast.cli.frame import made, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import moment, plain, short, text_of

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.tasks import Shown, Swept, Task

STATES = ("open", "snoozed", "accepted", "closed", "any")

task = noun(
    "task",
    "Add, list, claim and close tasks. A problem that is reported twice is one task.",
    default="list",
    of="standfast.record.tasks:Tasks",
)


# -- reports -----------------------------------------------------------------------------------------


def _added(_: Standfast, added: Task) -> One:
    return One(added, [added.id], then="task show {id}" if added.state == "closed" else "task next", say=_found(added))


task.generate(
    "add",
    creates=True,
    in_session=True,
    answer=_added,
    examples=(
        "standfast task add 'flaky test in test_parser.py' --label ci --source nightly",
        "standfast task add 'ship 1.2' --priority 1 --needs 9k2m4x",
    ),
)


def _read_sightings(asked: dict[str, Any]) -> None:
    nothing = asked.pop("nothing", False)
    if "seen" not in asked:
        asked["seen"] = [] if nothing else _lines()
    if asked.get("absent_max") == 0:
        asked["absent_max"] = None


def _swept(_: Standfast, swept: Swept) -> One:
    counts = f"{swept.seen} seen, {len(swept.opened)} opened, {len(swept.closed)} closed"
    return One(swept, [f"sweep {swept.n} of {swept.source}: {counts}"], then="task list --source {source}")


task.generate(
    "sweep",
    creates=True,
    prepare=_read_sightings,
    answer=_swept,
    also=[partial(made, click.Option, ("--nothing",), "Report that SOURCE saw nothing.", is_flag=True)],
    options={"seen": {"required": False, "metavar": "TITLE"}, "absent_max": {"type": click.IntRange(0)}},
    examples=(
        "my-linter --titles | standfast task sweep lint --absent-max 3",
        "standfast task sweep disk --seen 'disk 91% full' --cool-down 1h",
    ),
)


# -- claims ------------------------------------------------------------------------------------------


task.generate(
    "next",
    examples=("standfast task next", "standfast task next --label ci --limit 3 --json"),
    then="task claim",
    empty="no task is ready",
)


task.generate(
    "claim",
    answer=lambda _, claimed: One(claimed, [claimed.id], then="task done {id}", say=claimed.title),
    holds=True,
    nothing=("no task is ready", "all tasks: standfast task list"),
    examples=("standfast task claim --json", "standfast task claim 9k2m4x --for 1h"),
)
task.generate(
    "renew",
    examples=("standfast task renew 9k2m4x", "standfast task renew 9k2m4x --for 1h"),
    text="{id} is yours until {lease_until_us}",
)
task.generate(
    "release",
    examples=("standfast task release 9k2m4x", "standfast task release 9k2m4x --force"),
    text="{id} is released: {title}",
    then="task next",
)
task.generate(
    "done",
    examples=("standfast task done 9k2m4x", "standfast task done 9k2m4x --reason duplicate --cool-down 1d"),
    options={"result": {"type": click.STRING}},
    text="{id} is closed: {reason}",
    then="task next",
)


# -- changes -----------------------------------------------------------------------------------------


task.generate(
    "snooze",
    examples=("standfast task snooze 9k2m4x --for 2d", "standfast task snooze 9k2m4x --until 'mon 09:00'"),
    text="{id} is snoozed until {snoozed_until_us}",
)
task.generate(
    "accept",
    examples=("standfast task accept 9k2m4x --reason 'by design'", "standfast task accept 9k2m4x"),
    text="{id} is accepted: {title}",
    then="task reopen {id}",
)
task.generate("reopen", text="{id} is open: {title}", then="task next")
task.generate(
    "note",
    examples=("standfast task note 9k2m4x 'seen again after the fix'", "make test 2>&1 | standfast task note 9k2m4x -"),
    answer=lambda _, note: One(note, [note.id], then="task show {task_id}"),
)


task.generate(
    "edit",
    answer=lambda _, edited: One(edited, lambda out: _lines_of(out, edited)),
    without=("cool_down",),
    examples=("standfast task edit 9k2m4x --priority 0 --assignee ada", "standfast task edit 9k2m4x --needs 7h3kq2"),
)


# -- lists and details -------------------------------------------------------------------------------


@task.verb("list", examples=("standfast task list", "standfast task list --held --all --json"))
@option("--state", type=click.Choice(STATES), help="Only list tasks in this state.  [default: open and snoozed]")
@option("--label", help="Only list tasks with this label.")
@option("--kind", help="Only list tasks of this kind.")
@option("--source", help="Only list tasks from this source.")
@option("--branch", help="Only list tasks of this branch.")
@option("--assignee", metavar="NAME", help="Only list tasks assigned to this agent.")
@option("--session", metavar="KEY|ID", help="Only list tasks of this session.")
@option("--held", is_flag=True, help="Only list tasks with a holder, and mark those whose holder may be dead.")
@option("--goals", is_flag=True, help="Only list tasks that have subtasks, with their progress.")
@option("--after", help="Start after this cursor: the `next` of the page before.")
@option(
    "--limit", default=50, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="List at most N tasks."
)
@scope_options
def list_(sf: Standfast, goals: bool, limit: int, after: str | None, **asked: Any) -> Many:
    """List open and snoozed tasks, the most urgent first."""
    if goals:
        return _goals(sf.tasks.goals(limit=limit, after=after), limit)
    found = sf.tasks.list(limit=limit, after=after, **asked)
    return Many(found, limit=limit, then="task next", empty="no task here" if not any(asked.values()) else "none")


task.generate(
    "show",
    answer=lambda _, shown: One(
        shown, lambda out: [*_lines_of(out, shown.task, _started_us(shown)), *_rest(out, shown)], extra=_times(shown)
    ),
    examples=("standfast task show 9k2m4x", "standfast task show 9k2m4x --json"),
)


def _goals(found: list[Any], limit: int) -> Many:
    def counted(progress: Any) -> str:
        return f"{progress['closed']} of {progress['total'] - progress['accepted']}"

    return Many(
        [{**plain(one.task), "progress": plain(one.progress)} for one in found],
        ("id", "priority p", Column("progress", "done", counted), "title"),
        limit,
        cursor=lambda _: found[-1].task.place,
        empty="no task has subtasks",
    )


# -- private functions -------------------------------------------------------------------------------


def _found(added: Task) -> str:
    times = f"seen {added.occurrences} time{'s' * (added.occurrences > 1)}"
    return {
        "new": "new",
        "again": f"{added.state} already, {times}",
        "returned": f"reported again after it was closed: episode {added.episode}",
        "cooling": f"closed, and not opened again during its cool-down ({times}): {added.reason}",
    }[added.sighting or "again"]


def _started_us(shown: Shown) -> int | None:
    """When a worker first claimed the task."""
    return next((event.time_us for event in shown.history if event.type == "task.claimed"), None)


def _times(shown: Shown) -> dict[str, Any]:
    return {"started_us": _started_us(shown), "completed_us": shown.task.closed_us}


def _lines_of(out: Out, found: Task, started_us: int | None = None) -> list[str]:
    pairs = [
        ("task", found.id),
        ("title", found.title),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        ("snoozed until", moment(found.snoozed_until_us) if found.state == "snoozed" else None),
        ("held by", found.held_by),
        ("started", moment(started_us)),
        ("completed", moment(found.closed_us)),
        ("result", None if found.result is None else text_of(found.result)),
        ("priority", found.priority),
        ("seen", f"{found.occurrences}×, first {moment(found.first_seen_us)}, last {moment(found.last_seen_us)}"),
        ("episode", found.episode),
        ("kind", found.kind),
        ("source", found.source),
        ("labels", ", ".join(found.labels)),
        ("branch", found.branch),
        ("assignee", found.assignee),
        ("due", moment(found.due_us)),
        ("parent", found.parent_id),
        ("session", found.session_id),
        ("fingerprint", found.fingerprint),
    ]
    return list(out.pairs(pairs))


def _rest(out: Out, shown: Shown) -> list[str]:
    lines: list[str] = []
    if shown.task.body:
        lines += ["", clean_lines(shown.task.body)]
    for title, others in (("needs", shown.needs), ("needed by", shown.needed_by), ("below", shown.children)):
        lines += [f"{title}  {short(one.id)} {one.state:<8} {clean_lines(one.title)}" for one in others]
    if shown.progress is not None:
        left = shown.progress.total - shown.progress.accepted
        lines.append(f"progress  {shown.progress.closed} of {left} ({shown.progress.share:.0%})")
    for one in shown.notes:
        lines += ["", out.styled(f"{moment(one.created_us)} {one.agent}", "bold"), clean_lines(one.text)]
    lines += [
        "",
        *(f"{moment(e.time_us)}  {e.type:<16} {e.agent}  {clean_lines(e.summary or '')}" for e in shown.history),
    ]
    return lines


def _lines() -> list[Any]:
    """The titles on stdin, one per line. A line that begins with a brace is a JSON object with further fields."""
    if sys.stdin.isatty():
        raise click.UsageError("sweep needs --seen TITLE, lines on stdin, or --nothing")
    lines = [line.strip() for line in sys.stdin]
    return [serial.loads(line, what="a sighting") if line.startswith("{") else line for line in lines if line]
