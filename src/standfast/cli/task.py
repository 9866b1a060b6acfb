"""`standfast task`: what is to be done, one per problem; claimed, done, put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.answers import Many, One, show
from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.cli.values import DURATION, FUTURE, STDIN, moment, plain, short

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.tasks import Shown, Task

STATES = ("open", "snoozed", "accepted", "closed", "any")

task = noun(
    "task",
    "Tasks: one per problem, however often it is seen.",
    default="list",
    of="standfast.record.tasks:Tasks",
)


# -- reporting ---------------------------------------------------------------------------------------


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


@task.verb(
    "sweep",
    examples=(
        "my-linter --titles | standfast task sweep lint --absent-max 3",
        "standfast task sweep disk --seen 'disk 91% full' --cool-down 1h",
    ),
)
@argument("source")
@option("--seen", multiple=True, help="A title that was seen; without any, lines of stdin: titles or JSON objects.")
@option("--nothing", is_flag=True, help="Report that nothing was seen.")
@option(
    "--absent-max",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Close a task that N sweeps in a row missed; 0: never.",
)
@option("--cool-down", "cool_down_us", type=DURATION, help="Keep it closed if it is reported again within this time.")
def sweep(
    out: Out, source: str, seen: tuple[str, ...], nothing: bool, absent_max: int, cool_down_us: int | None
) -> None:
    """Report everything that SOURCE sees now. What it misses --absent-max times in a row is closed."""
    from standfast.cli.store import opened

    sightings = [] if nothing else list(seen) or _lines()
    with opened() as sf:
        swept = sf.tasks.sweep(source, seen=sightings, absent_max=absent_max or None, cool_down_us=cool_down_us)
    words = f"{swept.seen} seen, {len(swept.opened)} opened, {len(swept.closed)} closed"
    show(out, One(swept, [f"sweep {swept.n} of {swept.source}: {words}"], then="task list --source {source}"))


# -- working -----------------------------------------------------------------------------------------


task.generate(
    "next",
    examples=("standfast task next", "standfast task next --label ci --limit 3 --json"),
    then="task claim",
    empty="no task is ready",
)


@task.verb(
    "claim",
    examples=("standfast task claim --json", "standfast task claim 9k2m4x --for 1h"),
)
@argument("task", required=False)
@option("--label", help="Only with this label.")
@option("--kind", help="Only of this kind.")
@option("--source", help="Only from this source.")
@option("--assignee", metavar="NAME", help="Include tasks assigned to this agent, not to this actor.")
@option("--for", "for_us", type=DURATION, help="Hold it this long after your last command.  [default: 15m]")
@option("--while", "pid", type=int, metavar="PID", help="Hold it while this process lives: --while $$")
def claim(out: Out, task: str | None, for_us: int | None, pid: int | None, **asked: Any) -> None:
    """Claim TASK, or the next one that is ready. Prints its id; exit 3 if none is ready.

    This actor holds it until it is done or released, or the time is over. Every command of the actor renews it.
    """
    from standfast.cli.lock import held_for
    from standfast.cli.store import held_while, opened
    from standfast.config import load
    from standfast.errors import NotFound

    for_us = held_for(for_us, pid)
    with opened(create=False) if pid is None else held_while(load(), pid, create=False) as sf:
        if task is not None:
            claimed: Task | None = sf.tasks.claim(task, for_us=for_us)
        else:
            claimed = sf.tasks.claim(for_us=for_us, **asked)
    if claimed is None:
        raise NotFound("no task is ready", "all tasks: standfast task list", code="nothing_ready")
    show(out, One(claimed, [claimed.id], then="task done {id}", say=claimed.title))


task.generate(
    "renew",
    examples=("standfast task renew 9k2m4x", "standfast task renew 9k2m4x --for 1h"),
    text="{id} is yours until {lease_until_us}",
)
task.generate(
    "release",
    examples=("standfast task release 9k2m4x", "standfast task release 9k2m4x --force"),
    text="{id} is free: {title}",
    then="task next",
)
task.generate(
    "done",
    examples=("standfast task done 9k2m4x", "standfast task done 9k2m4x --reason duplicate --cool-down 1d"),
    options={"result": {"type": click.STRING}},
    text="{id} is closed: {reason}",
    then="task next",
)


# -- changing ----------------------------------------------------------------------------------------


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


@task.verb(
    "edit",
    examples=("standfast task edit 9k2m4x --priority 0 --assignee ada", "standfast task edit 9k2m4x --needs 7h3kq2"),
)
@argument("task")
@option("--title", help="New title; its identity stays.")
@option("--body", type=STDIN, help="Details; - reads stdin.")
@option("--priority", type=int, metavar="N", help="0 is the most urgent.")
@option("--label", "labels", multiple=True, help="All its labels (repeatable).")
@option("--branch", help="Branch it belongs to.")
@option("--assignee", metavar="NAME", help="Hand it only to this agent; empty for any.")
@option("--parent", metavar="ID", help="Goal it belongs to; empty for none.")
@option("--due", "due_us", type=FUTURE, help='Due date: "fri 17:00".')
@option("--needs", multiple=True, metavar="ID", help="Task to close first (repeatable).")
@option("--no-needs", multiple=True, metavar="ID", help="Task that it no longer needs (repeatable).")
def edit(out: Out, task: str, needs: tuple[str, ...], no_needs: tuple[str, ...], **given: Any) -> None:
    """Change the given fields of TASK; all of them, or none if one is refused."""
    from standfast.cli.store import opened

    columns: dict[str, Any] = {
        name: None if value == "" else value for name, value in given.items() if value is not None and value != ()
    }
    with opened(create=False) as sf, sf.transaction() as tx:
        edited = tx.tasks.edit(task, **columns) if columns else tx.tasks.get(task)
        for other in needs:
            edited = tx.tasks.need(edited.id, other)
        for other in no_needs:
            edited = tx.tasks.unneed(edited.id, other)
    show(out, One(edited, _lines_of(out, edited)))


# -- looking -----------------------------------------------------------------------------------------


@task.verb("list", examples=("standfast task list", "standfast task list --held --all --json"))
@option("--state", type=click.Choice(STATES), help="[default: open and snoozed]")
@option("--label", help="Only with this label.")
@option("--kind", help="Only of this kind.")
@option("--source", help="Only from this source.")
@option("--branch", help="Only of this branch.")
@option("--assignee", metavar="NAME", help="Only assigned to this agent.")
@option("--session", metavar="KEY|ID", help="Only of this session.")
@option("--held", is_flag=True, help="Only tasks with a holder; suspect ones are marked.")
@option("--goals", is_flag=True, help="Only tasks with tasks below them, with their progress.")
@option("--after", help="Start after this cursor, the `next` of the last page.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), metavar="N")
@scope_options
def list_(sf: Standfast, goals: bool, limit: int, after: str | None, **asked: Any) -> Many:
    """List tasks that are open or snoozed, the most urgent first."""
    if goals:
        return _goals(sf.tasks.goals(limit=limit, after=after), limit)
    found = sf.tasks.list(limit=limit, after=after, **asked)
    return Many(found, limit=limit, then="task next", empty="no task here" if not any(asked.values()) else "none")


@task.verb("show", examples=("standfast task show 9k2m4x", "standfast task show 9k2m4x --json"))
@argument("task")
def show_(out: Out, task: str) -> None:
    """Show TASK: its notes, the tasks it needs, its episodes, and its changes."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        shown = sf.tasks.show(task)
    if not out.for_people:
        out.record(_shown(shown))
        return
    for line in _lines_of(out, shown.task):
        out.text(line)
    for line in _rest(out, shown):
        out.text(line)


def _goals(found: list[Any], limit: int) -> Many:
    def counted(progress: Any) -> str:
        return f"{progress['closed']} of {progress['total'] - progress['accepted']}"

    return Many(
        [{**plain(one.task), "progress": {**one.progress._asdict(), "share": one.progress.share}} for one in found],
        ("id", "priority p", Column("progress", "done", counted), "title"),
        limit,
        cursor=lambda _: found[-1].task.place,
        empty="no task has tasks below it",
    )


# -- small parts -------------------------------------------------------------------------------------


def _found(added: Task) -> str:
    times = f"seen {added.occurrences} time{'s' * (added.occurrences > 1)}"
    return {
        "new": "new",
        "again": f"{added.state} already, {times}",
        "returned": f"it is back: episode {added.episode}",
        "cooling": f"closed, and cooling down ({times}): {added.reason}",
    }[added.sighting or "again"]


def _lines_of(out: Out, found: Task) -> list[str]:
    pairs = [
        ("task", found.id),
        ("title", found.title),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        (
            "asleep until",
            moment(found.snoozed_until_us) if found.state == "snoozed" and found.snoozed_until_us else None,
        ),
        ("held by", found.held_by),
        ("priority", found.priority),
        ("seen", f"{found.occurrences}×, first {moment(found.first_seen_us)}, last {moment(found.last_seen_us)}"),
        ("episode", found.episode),
        ("kind", found.kind),
        ("source", found.source),
        ("labels", ", ".join(found.labels)),
        ("branch", found.branch),
        ("assignee", found.assignee),
        ("due", moment(found.due_us) if found.due_us is not None else None),
        ("parent", found.parent_id),
        ("session", found.session_id),
        ("result", found.result),
        ("fingerprint", found.fingerprint),
    ]
    return list(out.pairs([(label, value) for label, value in pairs if value not in (None, "")]))


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
        lines += ["", out.styled(f"{moment(one.created_us)} {one.actor}", "bold"), clean_lines(one.text)]
    lines += [
        "",
        *(f"{moment(e.time_us)}  {e.type:<16} {e.actor}  {clean_lines(e.summary or '')}" for e in shown.history),
    ]
    return lines


def _shown(shown: Shown) -> dict[str, Any]:
    return {
        **plain(shown.task),
        "notes": [one._asdict() for one in shown.notes],
        "needs": [one._asdict() for one in shown.needs],
        "needed_by": [one._asdict() for one in shown.needed_by],
        "children": [one._asdict() for one in shown.children],
        "progress": {**shown.progress._asdict(), "share": shown.progress.share} if shown.progress else None,
        "episodes": [one._asdict() for one in shown.episodes],
        "history": [one._asdict() for one in shown.history],
    }


def _lines() -> list[Any]:
    """Titles, one a line; a line that begins with a brace is a JSON object with more than a title."""
    import sys

    from standfast import serial

    if sys.stdin.isatty():
        raise click.UsageError("sweep needs --seen TITLE, lines on stdin, or --nothing")
    lines = [line.strip() for line in sys.stdin]
    return [serial.loads(line, what="a sighting") if line.startswith("{") else line for line in lines if line]
