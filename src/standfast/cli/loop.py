"""`standfast loop`: run commands on a schedule, and show the outcome of each slot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli import values
from standfast.cli.answers import Many, One
from standfast.cli.frame import argument, noun, option, scope_options
from standfast.cli.open_store import opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.cli.values import TIME, VARIABLE, short
from standfast.clock import format_duration, parse_duration
from standfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.loops import Absent, Loop, Run

STATES = ("active", "paused", "finished", "removed")
RUN_STATES = ("queued", "running", "done", "failed", "timed_out", "skipped", "missed", "abandoned", "cancelled")

loop = noun(
    "loop",
    "Run commands on a schedule. Each slot has one row with its outcome and the reason.",
    default="list",
    of="standfast.record.loops:Loops",
)


def _length(us: int) -> str:
    return format_duration(us, parts=2 if us >= 1_000_000 else 1)


COLUMNS = [
    Column("name"),
    Column("state"),
    Column("when"),
    Column("next"),
    Column("last"),
    Column("said", "runs"),
    Column("account"),
    Column("reason", "why"),
]
RUN_COLUMNS = [
    Column("id", show=short),
    Column("slot"),
    Column("loop"),
    Column("state"),
    Column("exit_code", "exit"),
    Column("reason", "why"),
    Column("duration_us", "took", _length),
    Column("attempt", "try"),
    Column("host"),
]


# -- schedules ---------------------------------------------------------------------------------------


def _read_schedule(asked: dict[str, Any]) -> None:
    """Accept a schedule before the command, as in `loop add nightly '0 3 * * *' -- make`."""
    command = asked.setdefault("command", ())
    if not command or not asked.keys().isdisjoint(("every", "cron", "at")):
        return
    first, *rest = command
    if len(first.split()) == 5 or first.startswith("@"):
        asked |= {"cron": first, "command": tuple(rest)}
        return
    every = first.removeprefix("every ")
    with suppress(InvalidInput):
        parse_duration(every)
        asked |= {"every": every, "command": tuple(rest)}


def _added(_: Standfast, added: Loop) -> One:
    state = {"new": "new", "same": "as it was", "changed": "changed"}[added.change or "same"]
    paused = added.state == "paused"
    end = f"and is still paused: {added.reason}" if paused else f"next {_next(added)}"
    text = f"{added.name} is {state}: it runs {shlex.join(added.command)}, {added.said}, {end}"
    then = "loop resume {name}" if paused else "daemon status\ndaemon start"
    return One(added, [text], then, extra={"absent": None})


loop.generate(
    "add",
    creates=True,
    prepare=_read_schedule,
    answer=_added,
    options={
        "cron": {"metavar": "CRON"},
        "zone": {"metavar": "ZONE"},
        "catch_up": {"type": click.Choice(["latest", "all", "none"])},
        "catch_up_max": {"type": click.IntRange(1, 1000)},
        "overlap": {"type": click.Choice(["skip", "queue"])},
        "retries_max": {"flag": "--retries", "type": click.IntRange(0, 100)},
        "failures_max": {"flag": "--failures", "type": click.IntRange(0)},
        "environment": {"flag": "--env", "type": VARIABLE},
        "cwd": {"type": click.Path()},
    },
    examples=(
        "standfast loop add inbox --every 15m -- ./triage.sh",
        "standfast loop add nightly --cron '0 3 * * *' --zone Europe/Berlin --retries 2 --timeout 1h -- make nightly",
    ),
)


def _changed(_: Standfast, found: Loop) -> One:
    if found.state == "paused":
        text, then = f"{found.name} is paused: {found.reason}", "loop resume {name}"
    elif found.state == "removed":
        text, then = f"{found.name} is removed; its runs stay", "loop runs {id}"
    else:
        text, then = f"{found.name} is {found.state}, next {_next(found)}", "loop runs {name}"
    return One(found, [text], then=then, extra={"absent": None})


loop.generate(
    "pause",
    answer=_changed,
    examples=("standfast loop pause nightly --reason 'disk is full'", "standfast loop pause nightly"),
)


loop.generate(
    "resume", answer=_changed, examples=("standfast loop resume nightly", "standfast loop resume nightly --json")
)
loop.generate(
    "remove", answer=_changed, examples=("standfast loop remove nightly", "standfast loop remove nightly --json")
)


# -- runs --------------------------------------------------------------------------------------------


@loop.verb("run", examples=("standfast loop run nightly", "standfast loop run nightly --here"))
@argument("name")
@option("--here", is_flag=True, help="Run it now in this terminal, and exit with its exit code.")
def run(out: Out, name: str, here: bool) -> None:
    """Request a run of NAME now. The daemon starts it after runs of NAME that are queued or running."""
    from standfast.cli.loop_here import run_here

    if here:
        raise click.exceptions.Exit(run_here(out, name))
    with opened(create=False) as sf:
        asked = sf.runs.ask(name)
        waits, then = _waiting(sf, asked) if out.for_people else ("", ())
    out.record(values.plain(asked), [asked.id])
    if out.for_people:
        out.say(f"standfast: {waits}")
        out.then(*then)


def _waiting(sf: Standfast, asked: Run) -> tuple[str, tuple[str, ...]]:
    """What a requested run waits for, and the next commands."""
    from standfast.config.actor import account
    from standfast.record.loops.fire import who_runs

    listed = hints.command("loop", "runs", asked.loop)
    owner, accounts = sf.loops.get(asked.loop_id).account, (account(), *sf.settings.options.accounts)
    if owner not in accounts:
        why, then = who_runs(owner)
        return f"no daemon of this account starts the run: {why}; {then}", (listed,)
    if _daemon_runs(sf, accounts):
        return f"the daemon starts the run after runs of {asked.loop} that are queued or running", (listed,)
    why = "the run waits for a daemon, and no daemon runs; to run it here, cancel it and add --here"
    return why, ("standfast daemon start", hints.command("loop", "cancel", short(asked.id)))


def _daemon_runs(sf: Standfast, accounts: Sequence[str]) -> bool:
    """Whether a daemon of these accounts runs, here or on another host of the store."""
    from standfast.clock import SYSTEM
    from standfast.daemon import leader_lease, status
    from standfast.errors import StandfastError

    with suppress(OSError, StandfastError):  # `daemon status` has the error
        if status.read(sf.settings.data_dir, SYSTEM).state != "stopped":
            return True
    with suppress(NotFound):
        return sf.leases.get(leader_lease.name_of(accounts)).standing == "live"
    return False


def _cancelled(_: Standfast, found: Run) -> One:
    words = "is cancelled" if found.state == "cancelled" else "was asked to end"
    return One(found, [f"{short(found.id)} of {found.loop} {words}"], then="loop runs {loop}")


loop.generate(
    "cancel",
    of="standfast.record.loops.runs:Runs",
    answer=_cancelled,
    by_name=("reason",),
    examples=("standfast loop cancel 9k2m4x", "standfast loop cancel 9k2m4x --reason 'wrong branch'"),
)


# -- lists and output --------------------------------------------------------------------------------


def _absent_of(sf: Standfast, found: Sequence[Loop]) -> dict[str, Absent]:
    """The slots of these loops that were due and have no row, because no daemon ran."""
    ids = {one.id for one in found}
    return {one.loop_id: one for one in sf.loops.absent(everywhere=True, limit=1000) if one.loop_id in ids}


def _listed(sf: Standfast, found: Many) -> Many:
    late = _absent_of(sf, found.models)
    return found._replace(
        columns=[*COLUMNS, *found.places],
        row=lambda one: {**_row(one, late.get(one.id)), "repository": values.repository(one)},
        plain=lambda one: plain(one, late.get(one.id)),
        say=_said_absent(late.values()),
    )


loop.generate(
    "list",
    answer=_listed,
    options={"state": {"type": click.Choice(STATES)}},
    then="loop runs --since 1d",
    empty="there is no loop here; add one: standfast loop add NAME --every 15m -- COMMAND",
    examples=("standfast loop list", "standfast loop list --all --json"),
)


def _shown(sf: Standfast, found: Loop) -> One:
    late, runs = _absent_of(sf, [found]), sf.runs.list(found.id, limit=10)
    return One(
        found,
        lambda out: _screen(out, found, runs),
        "loop resume {name}" if found.state == "paused" else "loop runs {name} --since 1w",
        say=_said_absent(late.values()),
        extra={"absent": plain(found, late.get(found.id))["absent"], "runs": [values.plain(one) for one in runs]},
    )


def _screen(out: Out, found: Loop, runs: list[Run]) -> Iterator[str]:
    yield from _lines_of(out, found)
    if runs:
        yield ""
        yield from out.table([_run_row(one, found.zone) for one in runs], RUN_COLUMNS)


loop.generate(
    "show", "get", answer=_shown, examples=("standfast loop show nightly", "standfast loop show nightly --json")
)


@loop.verb(
    "runs",
    examples=("standfast loop runs nightly --since 3w", "standfast loop runs --since 'tue 03:00' --state missed"),
)
@argument("name", required=False)
@option("--since", type=TIME, help='Only list slots since this time: 3w, 2h, "tue 03:00", "2026-11-01".')
@option("--until", type=TIME, help="Only list slots before this time.")
@option("--state", type=click.Choice((*RUN_STATES, "absent")), help="Only list slots in this state.")
@option("--after", metavar="CURSOR", help="Start after this cursor: the `next` of the page before.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Print at most N rows.")
@scope_options
def runs(
    out: Out,
    name: str | None,
    since: str | None,
    until: str | None,
    state: str | None,
    after: str | None,
    limit: int,
    scope_choice: str | None,
) -> None:
    """List the outcome of each slot and its reason, the newest first. A slot without a daemon is absent."""
    from standfast.core.checks import past_us

    everywhere = scope_choice == "all"
    with opened(scope_choice=scope_choice, create=False) as sf:
        now_us = sf._store.caller.clock.now_us()
        since_us, until_us = past_us(since, now_us, "since"), past_us(until, now_us, "until")
        asked: dict[str, Any] = {
            "since": since,
            "until": until,
            "everywhere": everywhere,
            "limit": limit,
            "after": after,
        }
        found = [] if state == "absent" else sf.runs.list(name, state=state, **asked)
        late = _absent(sf, name, since_us, until_us, everywhere) if after is None and state in (None, "absent") else []
        zones = {one.id: one.zone for one in _loops_of(sf, {run.loop_id for run in found})}
        several = everywhere or sf.settings.label.outside
    rows = [_absent_row(one, people=out.for_people) for one in late]
    rows += [_run_row(one, zones.get(one.loop_id, "UTC")) if out.for_people else values.plain(one) for one in found]
    out.rows(
        rows,
        [*RUN_COLUMNS, Column("repository", show=values.home_short)] if several else RUN_COLUMNS,
        next=found[-1].place if len(found) == limit else None,
        then=_follow(found, late),
        empty="no slot was due" + (" since then" if since_us else ""),
    )
    if late and out.for_people:
        out.say(*f"standfast: {_said_absent(late)}".splitlines())


@loop.verb("output", examples=("standfast loop output 9k2m4x", "standfast loop output nightly --stderr"))
@argument("run", metavar="RUN|LOOP")
@option("--stderr", "stream", flag_value="stderr", help="Only print stderr.")
@option("--stdout", "stream", flag_value="stdout", help="Only print stdout.")
def output(sf: Standfast, run: str, stream: str | None) -> One:
    """Print what a run wrote to stdout and stderr; for a LOOP, its newest run."""
    found = _run_of(sf, run)
    wanted = [stream] if stream else ["stdout", "stderr"]
    texts = {name: _artifact(sf, getattr(found, f"{name}_id")) for name in wanted}
    shown = [line for text in texts.values() for line in text.splitlines()]
    say = "" if shown else f"run {short(found.id)} of {found.loop} is {found.state} and wrote nothing"
    return One(found, shown, say=say, extra=texts, exact=True)


def _run_of(sf: Standfast, name: str) -> Run:
    """A run by its id, or the newest started run of a loop."""
    try:
        return sf.runs.get(name)
    except NotFound as error:
        runs = [one for one in sf.runs.list(sf.loops.get(name).id, limit=100) if one.attempt]
        if not runs:
            raise NotFound(f"no run of {name} has started", hints.command("loop", "runs", name)) from error
        return runs[0]


def _artifact(sf: Standfast, id: str | None) -> str:
    return sf.artifacts.get(id).decode(errors="replace") if id is not None else ""


# -- output -------------------------------------------------------------------------------------------


def plain(found: Loop, late: Absent | None = None) -> dict[str, Any]:
    """The fields of the loop as JSON, without the values of variables that look like secrets."""
    return {**values.plain(found), "absent": late.as_dict() if late else None}


def _row(found: Loop, late: Absent | None) -> dict[str, Any]:
    from standfast.record.loops.fire import ABSENT

    return {
        "name": found.name,
        "state": "absent" if late else found.state,
        "when": found.said,
        "next": _next(found),
        "last": _at(found.last_slot_us, found.zone),
        "said": shlex.join(found.command)[:60],
        "account": found.account,
        "reason": f"{ABSENT}: {late.slots} slot{'s' * (late.slots != 1)}" if late else found.reason,
    }


def _run_row(found: Run, zone: str) -> dict[str, Any]:
    asked = " (asked)" if found.source == "asked" else ""
    row = {**found.as_dict(), "repository": values.repository(found), "attempt": found.attempt or None}
    reason = found.reason
    if found.until_slot_us:
        reason = _spanning(reason or "", found.slots, found.until_slot_us, zone)
    return {**row, "reason": reason, "slot": f"{_at(found.slot_us, zone)}{asked}"}


def _spanning(reason: str, slots: int, until_us: int, zone: str) -> str:
    """The reason of slots that share a row, with their number and the last slot."""
    return f"{reason}{'; ' if reason else ''}{slots} slots, the last {_at(until_us, zone)}"


def _absent_row(late: Absent, *, people: bool) -> dict[str, Any]:
    """A row for slots that the store has no row of. It is derived from the schedule."""
    from standfast.record.loops.fire import ABSENT

    reason = ABSENT
    if people:
        if late.slots > 1:
            reason = _spanning(reason, late.slots, late.until_slot_us, late.zone)
        return {
            "slot": _at(late.slot_us, late.zone),
            "loop": late.name,
            "state": "absent",
            "reason": reason,
            "id": "",
            "repository": values.repository(late),
        }
    return {**late.as_dict(), "id": None, "loop": late.name, "state": "absent", "reason": reason}


def _lines_of(out: Out, found: Loop) -> list[str]:
    more = f", at most {found.catch_up_max}" if found.catch_up == "all" else ""
    pairs: list[tuple[str, object]] = [
        ("loop", found.id),
        ("name", found.name),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        ("when", found.said),
        ("next", _next(found)),
        ("runs", shlex.join(found.command)),
        ("in", found.cwd),
        ("account", found.account),
        ("with", " ".join(f"{name}={value}" for name, value in found.environment_shown.items())),
        ("catch-up", found.catch_up + more),
        ("overlap", found.overlap),
        ("retries", f"{found.retries_max}, first after {_length(found.backoff_us)}" if found.retries_max else None),
        ("timeout", _length(found.timeout_us) if found.timeout_us else None),
        ("failures", f"{found.failures} in a row; pauses at {found.failures_max or 'never'}"),
    ]
    return list(out.pairs(pairs))


def _said_absent(late: Iterable[Absent]) -> str:
    lines = []
    for one in late:
        span = f"{one.slots} slots" if one.slots > 1 else "1 slot"
        lines.append(f"{one.name} did not run: {span} since {_at(one.slot_us, one.zone)}")
    return "\nstandfast: ".join(lines) + "\n  Is the daemon running? standfast daemon status" * bool(lines)


def _follow(found: list[Run], late: list[Absent]) -> str:
    if late or any(one.state == "queued" for one in found):
        return "standfast daemon status"
    kept = next((one.id for one in found if one.stderr_id or one.stdout_id), None)
    if kept:
        return hints.command("loop", "output", short(kept))
    return hints.command("loop", "show", short(found[0].loop_id)) if found else ""


def _next(found: Loop) -> str:
    return _at(found.next_slot_us, found.zone) if found.next_slot_us is not None else "never"


def _at(us: int | None, zone: str) -> str:
    from standfast.record.loops.schedule import shown

    return shown(us, zone) if us is not None else ""


def _absent(
    sf: Standfast, name: str | None, since_us: int | None, until_us: int | None, everywhere: bool
) -> list[Absent]:
    late = sf.loops.absent(everywhere=everywhere or name is not None, limit=1000)
    wanted = None if name is None else sf.loops.get(name).id
    late = [one for one in late if until_us is None or one.slot_us < until_us]
    return [one for one in late if wanted in (None, one.loop_id) and one.until_slot_us >= (since_us or 0)]


def _loops_of(sf: Standfast, ids: set[str]) -> list[Loop]:
    return [sf.loops.get(id) for id in sorted(ids)]
