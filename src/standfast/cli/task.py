"""`standfast task`: what is to be done, one per problem; claimed, done, put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column, clean_lines
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.record.tasks import Shown, Task

SESSION = "STANDFAST_SESSION"
STATES = ("open", "snoozed", "accepted", "closed", "any")

task = noun("task", "Tasks: one per problem, however often it is seen.", default="list")


def _short(id: object) -> str:
    return str(id)[-6:]


def _moment(us: int) -> str:
    from time import localtime, strftime

    return strftime("%Y-%m-%d %H:%M", localtime(us // 1_000_000))


COLUMNS = [
    Column("id", show=_short),
    Column("priority", "p"),
    Column("state"),
    Column("occurrences", "seen"),
    Column("last_seen_us", "last", _moment),
    Column("by", "held by"),
    Column("labels", show=",".join),
    Column("title"),
]


# -- seeing ------------------------------------------------------------------------------------------


@task.verb(
    "add",
    examples=(
        "standfast task add 'flaky test in test_parser.py' --label ci --source nightly",
        "standfast task add 'ship 1.2' --priority 1 --needs 9k2m4x",
    ),
)
@argument("title")
@option("--body", help="The details; `-` reads them from standard input.")
@option("--kind", default="task", show_default=True, help="What kind of thing it is; part of its identity.")
@option("--source", default="", help="Who reports it: a linter, a loop; part of its identity.")
@option("--fingerprint", help="Its identity, instead of source, kind and title.")
@option("--priority", type=int, default=2, show_default=True, help="0 comes first.")
@option("--label", "labels", multiple=True, help="May be given several times.")
@option("--branch", help="The branch it belongs to.")
@option("--assignee", help="Who is to do it; nobody else is handed it.")
@option("--parent", help="The goal it belongs to.")
@option("--needs", multiple=True, help="A task that has to be closed first; may be given several times.")
@option("--session", envvar=SESSION, help="The session it came up in: its key or id.")
@option("--cool-down", "cool_down", help="Seen again so soon after it was closed, it stays closed: 30m.")
@option("--due", help='When it is due: "fri 17:00", "2026-11-20".')
def add(out: Out, body: str | None, cool_down: str | None, due: str | None, **given: Any) -> None:
    """Report a problem or a piece of work, TITLE. Reported before, it is counted, not added again.

    Two reports are the same if source, kind and title are: upper and lower case, spaces, UUIDs, moments
    and long hexadecimal numbers in the title do not count.
    """
    from standfast.cli.store import opened

    with opened() as sf:
        given["session"] = given["session"] or sf._store.caller.session_id
        added = sf.tasks.add(body=_text(body), cool_down_us=_duration(cool_down), due_us=_future(due), **given)
    out.record(plain(added), [added.id])
    out.say(f"standfast: {_found(added)}") if out.for_people else None
    out.then(f"standfast task show {_short(added.id)}" if added.state == "closed" else "standfast task next")


@task.verb(
    "sweep",
    examples=(
        "my-linter --titles | standfast task sweep lint --absent-max 3",
        "standfast task sweep disk --seen 'disk 91% full' --cool-down 1h",
    ),
)
@argument("source")
@option("--seen", multiple=True, help="What was seen; without any, lines of standard input: titles, or JSON objects.")
@option("--nothing", is_flag=True, help="Nothing was seen.")
@option(
    "--absent-max",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Close what so many sweeps missed; 0: never.",
)
@option("--cool-down", "cool_down", help="Seen again so soon after it was closed, it stays closed: 30m.")
def sweep(out: Out, source: str, seen: tuple[str, ...], nothing: bool, absent_max: int, cool_down: str | None) -> None:
    """Say everything that SOURCE sees now. What it sees is counted, what it misses long enough is closed."""
    from standfast.cli.store import opened

    sightings = [] if nothing else list(seen) or _lines()
    with opened() as sf:
        swept = sf.tasks.sweep(source, seen=sightings, absent_max=absent_max or None, cool_down_us=_duration(cool_down))
    words = f"{swept.seen} seen, {len(swept.opened)} opened, {len(swept.closed)} closed"
    receipt = swept.receipt.as_json() if swept.receipt else None
    out.record({**swept._asdict(), "receipt": receipt}, [f"sweep {swept.n} of {swept.source}: {words}"])
    out.then(hints.command("task", "list", "--source", swept.source))


# -- working -----------------------------------------------------------------------------------------


def filters(function: Any) -> Any:
    """What a worker wants."""
    for one in (
        option("--assignee", help="Also what is assigned to this name, not to this actor."),
        option("--source", help="Only from this source."),
        option("--kind", help="Only of this kind."),
        option("--label", help="Only with this label."),
    ):
        function = one(function)
    return function


@task.verb("next", examples=("standfast task next", "standfast task next --label ci --limit 3 --json"))
@filters
@option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000))
def next_(out: Out, **asked: Any) -> None:
    """List what could be claimed now, the most urgent first, then the oldest."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.tasks.next(**asked)
    out.rows(
        [_row(one) if out.for_people else plain(one) for one in found],
        COLUMNS,
        then="standfast task claim" if found else "",
        empty="nothing is ready",
    )


@task.verb(
    "claim",
    examples=("standfast task claim --json", "standfast task claim 9k2m4x --for 1h"),
)
@argument("task", required=False)
@filters
@option("--for", "term", help="Hold it this long from your last command: 30m, 2h.  [default: 15m]")
@option("--while", "pid", type=int, help="Hold it as long as this process lives: --while $$")
def claim(out: Out, task: str | None, term: str | None, pid: int | None, **asked: Any) -> None:
    """Take the next task that is ready, or TASK, alone. Prints its id; exit 3 if nothing is ready.

    It is this actor's until it is done, released, or the time is over; every command of the actor
    renews it.
    """
    from standfast.cli.lock import held_for
    from standfast.cli.store import held_while, opened
    from standfast.config import load
    from standfast.errors import NotFound

    for_us = held_for(_duration(term), pid)
    with opened(create=False) if pid is None else held_while(load(), pid, create=False) as sf:
        if task is not None:
            claimed: Task | None = sf.tasks.claim(task, for_us=for_us)
        else:
            claimed = sf.tasks.claim(for_us=for_us, **asked)
    if claimed is None:
        raise NotFound("nothing is ready to be claimed", "what there is: standfast task list", code="nothing_ready")
    out.record(plain(claimed), [claimed.id])
    out.say(f"standfast: {claimed.title}") if out.for_people else None
    out.then(f"standfast task done {_short(claimed.id)}")


@task.verb("renew", examples=("standfast task renew 9k2m4x", "standfast task renew 9k2m4x --for 1h"))
@argument("task")
@option("--for", "term", help="So long from now.  [default: as long as it was claimed for]")
def renew(out: Out, task: str, term: str | None) -> None:
    """Hold on to TASK for another term."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        renewed = sf.tasks.renew(task, for_us=_duration(term))
    out.record(plain(renewed), [f"{_short(renewed.id)} is yours until {_moment(renewed.lease_until_us or 0)}"])


@task.verb("release", examples=("standfast task release 9k2m4x", "standfast task release 9k2m4x --force"))
@argument("task")
@option("--force", is_flag=True, help="Take it from whoever holds it; what they do with it from now on is refused.")
def release(out: Out, task: str, force: bool) -> None:
    """Give TASK back, undone."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        released = sf.tasks.release(task, force=force)
    out.record(plain(released), [f"{_short(released.id)} is free: {released.title}"])
    out.then("standfast task next")


@task.verb(
    "done",
    examples=("standfast task done 9k2m4x", "standfast task done 9k2m4x --reason duplicate --cool-down 1d"),
)
@argument("task")
@option("--reason", default="done", show_default=True, help="Why it is closed.")
@option("--result", help="What came of it.")
@option("--cool-down", "cool_down", help="Seen again so soon, it stays closed: 30m.")
def done(out: Out, task: str, reason: str, result: str | None, cool_down: str | None) -> None:
    """Close TASK, claimed or not. Held by somebody else it is refused: exit 4."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        closed = sf.tasks.done(task, reason=reason, result=result, cool_down_us=_duration(cool_down))
    out.record(plain(closed), [f"{_short(closed.id)} is closed: {closed.reason}"])
    out.then("standfast task next")


# -- putting aside, changing ---------------------------------------------------------------------------


@task.verb(
    "snooze", examples=("standfast task snooze 9k2m4x --for 2d", "standfast task snooze 9k2m4x --until 'mon 09:00'")
)
@argument("task")
@option("--for", "term", help="So long: 2h, 3d.")
@option("--until", help='Until then: "mon 09:00", "2026-11-20".')
def snooze(out: Out, task: str, term: str | None, until: str | None) -> None:
    """Put TASK aside for a while. It is counted meanwhile, and back by itself."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        snoozed = sf.tasks.snooze(task, for_us=_duration(term), until_us=_future(until))
    out.record(plain(snoozed), [f"{_short(snoozed.id)} sleeps until {_moment(snoozed.snoozed_until_us or 0)}"])


@task.verb("accept", examples=("standfast task accept 9k2m4x --reason 'by design'", "standfast task accept 9k2m4x"))
@argument("task")
@option("--reason", help="Why it may stay.")
def accept(out: Out, task: str, reason: str | None) -> None:
    """Let TASK be: it is counted when it is seen, and nobody is handed it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        accepted = sf.tasks.accept(task, reason=reason)
    out.record(plain(accepted), [f"{_short(accepted.id)} is accepted: {accepted.title}"])
    out.then(f"standfast task reopen {_short(accepted.id)}")


@task.verb("reopen", examples=("standfast task reopen 9k2m4x", "standfast task reopen 9k2m4x --json"))
@argument("task")
def reopen(out: Out, task: str) -> None:
    """Open TASK again: it was closed, accepted or snoozed too soon."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        opened_again = sf.tasks.reopen(task)
    out.record(plain(opened_again), [f"{_short(opened_again.id)} is open: {opened_again.title}"])
    out.then("standfast task next")


@task.verb(
    "edit",
    examples=("standfast task edit 9k2m4x --priority 0 --assignee ada", "standfast task edit 9k2m4x --needs 7h3kq2"),
)
@argument("task")
@option("--title")
@option("--body", help="The details; `-` reads them from standard input.")
@option("--priority", type=int, help="0 comes first.")
@option("--label", "labels", multiple=True, help="All its labels; may be given several times.")
@option("--branch")
@option("--assignee", help="Who is to do it; empty for anybody.")
@option("--parent", help="The goal it belongs to; empty for none.")
@option("--due", help='When it is due: "fri 17:00".')
@option("--needs", multiple=True, help="A task that has to be closed first.")
@option("--no-needs", multiple=True, help="A task it waits for no more.")
def edit(
    out: Out,
    task: str,
    body: str | None,
    due: str | None,
    needs: tuple[str, ...],
    no_needs: tuple[str, ...],
    **given: Any,
) -> None:
    """Change what is given of TASK and leave the rest; all of it, or nothing."""
    from standfast.cli.store import opened

    if body is not None:
        given["body"] = _text(body)
    if due is not None:
        given["due_us"] = _future(due)
    columns: dict[str, Any] = {
        name: None if value == "" else value for name, value in given.items() if value is not None and value != ()
    }
    with opened(create=False) as sf, sf.transaction() as tx:
        edited = tx.tasks.edit(task, **columns) if columns else tx.tasks.get(task)
        for other in needs:
            edited = tx.tasks.need(edited.id, other)
        for other in no_needs:
            edited = tx.tasks.unneed(edited.id, other)
    out.record(plain(edited), _lines_of(out, edited))


@task.verb(
    "note",
    examples=("standfast task note 9k2m4x 'seen again after the fix'", "make test 2>&1 | standfast task note 9k2m4x -"),
)
@argument("task")
@argument("text")
def note(out: Out, task: str, text: str) -> None:
    """Say something about TASK. `-` reads it from standard input."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        said = sf.tasks.note(task, _text(text) or "")
    out.record({**said._asdict(), "receipt": said.receipt.as_json() if said.receipt else None}, [said.id])
    out.then(f"standfast task show {_short(said.task_id)}")


# -- looking -----------------------------------------------------------------------------------------


@task.verb("list", examples=("standfast task list", "standfast task list --held --all --json"))
@option("--state", type=click.Choice(STATES), help="[default: open and snoozed]")
@option("--label")
@option("--kind")
@option("--source")
@option("--branch")
@option("--assignee")
@option("--session", help="Only of this session: its key or id.")
@option("--held", is_flag=True, help="Only what somebody holds or held; suspect ones are marked.")
@option("--goals", is_flag=True, help="Only tasks with tasks below them, with their progress.")
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, goals: bool, limit: int, after: str | None, scope_choice: str | None, **asked: Any) -> None:
    """List what is open or snoozed, the most urgent first."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        if goals:
            return _print_goals(out, sf.tasks.goals(limit=limit, after=after), limit)
        found = sf.tasks.list(everywhere=scope_choice == "all", limit=limit, after=after, **asked)
    out.rows(
        [_row(one) if out.for_people else plain(one) for one in found],
        COLUMNS,
        next=found[-1].place if len(found) == limit else None,
        then="standfast task next" if found else "",
        empty="nothing is to be done here" if not any(asked.values()) else "none",
    )
    return None


@task.verb("show", examples=("standfast task show 9k2m4x", "standfast task show 9k2m4x --json"))
@argument("task")
def show(out: Out, task: str) -> None:
    """Show TASK: its notes, what it waits for, its episodes, and every change."""
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


def _print_goals(out: Out, found: list[Any], limit: int) -> None:
    rows = [{**plain(one.task), "progress": {**one.progress._asdict(), "share": one.progress.share}} for one in found]

    def shown(progress: Any) -> str:
        return f"{progress['closed']} of {progress['total'] - progress['accepted']}"

    out.rows(
        rows,
        [Column("id", show=_short), Column("priority", "p"), Column("progress", "done", shown), Column("title")],
        next=found[-1].task.place if len(found) == limit else None,
        empty="no task has tasks below it",
    )


# -- small parts -------------------------------------------------------------------------------------


def plain(found: Task) -> dict[str, Any]:
    """The noun's own fields, and its receipt as commands print it."""
    return {
        **found._asdict(),
        "reclaimable": found.reclaimable,
        "receipt": found.receipt.as_json() if found.receipt else None,
    }


def _row(found: Task) -> dict[str, Any]:
    return {**found._asdict(), "by": _holder(found)}


def _holder(found: Task) -> str | None:
    """Who holds it, and whether to believe that they still work on it."""
    from standfast.footings.leases import who

    if found.holder is None:
        return None
    words = {"gone": " (gone: reclaimable)", "over": " (late: reclaimable)"}
    return who(found.holder) + words.get(found.standing, " (suspect)" if found.suspect else "")


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
            _moment(found.snoozed_until_us) if found.state == "snoozed" and found.snoozed_until_us else None,
        ),
        ("held by", _holder(found)),
        ("priority", found.priority),
        ("seen", f"{found.occurrences}×, first {_moment(found.first_seen_us)}, last {_moment(found.last_seen_us)}"),
        ("episode", found.episode),
        ("kind", found.kind),
        ("source", found.source),
        ("labels", ", ".join(found.labels)),
        ("branch", found.branch),
        ("assignee", found.assignee),
        ("due", _moment(found.due_us) if found.due_us is not None else None),
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
        lines += [f"{title}  {_short(one.id)} {one.state:<8} {clean_lines(one.title)}" for one in others]
    if shown.progress is not None:
        left = shown.progress.total - shown.progress.accepted
        lines.append(f"progress  {shown.progress.closed} of {left} ({shown.progress.share:.0%})")
    for one in shown.notes:
        lines += ["", out.styled(f"{_moment(one.created_us)} {one.actor}", "bold"), clean_lines(one.text)]
    lines += [
        "",
        *(f"{_moment(e.time_us)}  {e.type:<16} {e.actor}  {clean_lines(e.summary or '')}" for e in shown.history),
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


def _text(text: str | None) -> str | None:
    if text != "-":
        return text
    import sys

    return sys.stdin.read()


def _lines() -> list[Any]:
    """Titles, one a line; a line that begins with a brace is a JSON object with more than a title."""
    import sys

    from standfast import serial

    if sys.stdin.isatty():
        raise click.UsageError("what was seen? --seen TITLE, lines on standard input, or --nothing")
    lines = [line.strip() for line in sys.stdin]
    return [serial.loads(line, what="a sighting") if line.startswith("{") else line for line in lines if line]


def _duration(text: str | None) -> int | None:
    if text is None:
        return None
    from standfast.clock import parse_duration

    return parse_duration(text)


def _future(text: str | None) -> int | None:
    """A moment to come: so long from now, or as people type it, the next one that fits."""
    if text is None:
        return None
    import time

    from standfast.clock import DAY_US, iso, parse_duration
    from standfast.errors import InvalidInput
    from standfast.views import when

    now_us = time.time_ns() // 1000
    try:
        return now_us + parse_duration(text.removeprefix("in "))
    except InvalidInput:
        pass
    # `when` knows the latest moment that fits; seen from a day, a week or a year ahead it is the next one.
    us = now_us
    for days in (0, 1, 7, 366):
        us = when.parse(text, now_us + days * DAY_US).us
        if us > now_us:
            return us
    raise InvalidInput(f"{text!r} is over: {iso(us)}", 'for example: "fri 17:00", "2026-11-20", 2d')
