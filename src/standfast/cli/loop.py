"""`standfast loop`: what is run when, and what became of every slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from standfast.cli import values
from standfast.cli.answers import One
from standfast.cli.frame import Command, Refused, argument, noun, option, scope_options
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.footings import hints

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.loops import Absent, Loop, Run

STATES = ("active", "paused", "finished", "removed")
RUN_STATES = ("queued", "running", "done", "failed", "timed_out", "skipped", "missed", "abandoned", "cancelled")

loop = noun(
    "loop",
    "Loops: schedules. Every slot leaves one row that says what became of it, and why.",
    default="list",
    of="standfast.record.loops:Loops",
)


def _short(id: object) -> str:
    return str(id)[-6:]


def _length(us: int) -> str:
    from standfast.clock import format_duration

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
    Column("slot"),
    Column("loop"),
    Column("state"),
    Column("attempt"),
    Column("exit_code", "exit"),
    Column("duration_us", "took", _length),
    Column("host"),
    Column("id", show=_short),
    Column("reason", "why"),
]


# -- keeping -----------------------------------------------------------------------------------------


class _Add(Command):
    """Behind `--` stands the command alone: its first word is no name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = args[: args.index("--")] if "--" in args else None
        if before is not None and not {"-h", "--help"} & set(before):
            given = self.make_parser(ctx).parse_args([*before])[0]
            if not isinstance(given.get("name"), str):
                raise Refused(
                    "the loop has no name: it stands before --",
                    "standfast loop add NAME --every 15m -- COMMAND",
                    ctx,
                )
        return super().parse_args(ctx, args)


@loop.verb(
    "add",
    cls=_Add,
    examples=(
        "standfast loop add inbox --every 15m -- ./triage.sh",
        "standfast loop add nightly --cron '0 3 * * *' --zone Europe/Berlin --retries 2 --timeout 1h -- make nightly",
    ),
)
@argument("name")
@option("--every", help="An interval: 90s, 15m, 1h30m.")
@option("--cron", help="Five fields: minute hour day month weekday; or @hourly, @daily, @weekly, @monthly.")
@option("--at", help='One moment: "tomorrow 03:00", "2026-11-20 09:00 UTC", 2h.')
@option("--zone", help="The time zone of --cron.  [default: this machine's]")
@option(
    "--catch-up",
    type=click.Choice(("latest", "all", "none")),
    default="latest",
    show_default=True,
    help="Slots that nobody was there to fire: run the latest, all, or none of them.",
)
@option("--catch-up-max", type=click.IntRange(1, 1000), default=100, show_default=True, help="All: at most so many.")
@option(
    "--overlap",
    type=click.Choice(("skip", "queue")),
    default="skip",
    show_default=True,
    help="Due while the last run still goes: skip it, or let it wait.",
)
@option("--retries", type=click.IntRange(0, 100), default=0, show_default=True, help="Try a failed run so often again.")
@option("--backoff", default="30s", show_default=True, help="Before the first retry; doubled each time, up to 1h.")
@option("--timeout", help="End a run that takes longer: 30m.")
@option(
    "--failures",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Pause the loop after so many failed runs in a row; 0: never.",
)
@option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command; may be given several times.")
@option("--cwd", type=click.Path(), help="Where it runs.  [default: here]")
@argument("command", nargs=-1, type=click.UNPROCESSED)
def add(out: Out, name: str, command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND on a schedule as the loop NAME. The same again changes nothing; anything else changes the loop.

    The daemon fires it: standfast daemon start.
    """
    from standfast.cli.store import opened

    command, when = _schedule(command, given)
    with opened() as sf:
        added = sf.loops.add(
            name,
            command,
            every=when["every"],
            cron=when["cron"],
            at=values.FUTURE.parse(when["at"]),
            zone=given["zone"],
            catch_up=given["catch_up"],
            catch_up_max=given["catch_up_max"],
            overlap=given["overlap"],
            retries_max=given["retries"],
            backoff_us=values.DURATION.parse(given["backoff"]) or 0,
            timeout_us=values.DURATION.parse(given["timeout"]),
            failures_max=given["failures"],
            cwd=given["cwd"],
            environment=_environment(given["env"]),
        )
    words = {"new": "new", "same": "as it was", "changed": "changed"}[added.change or "same"]
    runs_what = _quoted_all(added.command)
    out.record(plain(added), [f"{added.name} is {words}: runs {runs_what} {added.said}, next {_next(added)}"])
    out.then("standfast daemon start    (if it does not run yet: standfast daemon status)")


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


@loop.verb("resume", examples=("standfast loop resume nightly", "standfast loop resume nightly --json"))
@argument("name")
def resume(sf: Standfast, name: str) -> One:
    """Resume a loop: its slots run again from now on, and its failures are counted from 0."""
    if sf.loops.get(name).account is None:
        _confirm(sf, name, hints.command("loop", "resume", name))
    return _changed(sf, sf.loops.resume(name))


loop.generate(
    "remove", answer=_changed, examples=("standfast loop remove nightly", "standfast loop remove nightly --json")
)


# -- running -----------------------------------------------------------------------------------------


@loop.verb("run", examples=("standfast loop run nightly", "standfast loop run nightly --here"))
@argument("name")
@option("--here", is_flag=True, help="In this terminal, now; exits as the command does.")
def run(out: Out, name: str, here: bool) -> None:
    """Ask for a run of NAME now: the daemon performs it, behind what of it waits or goes already."""
    from standfast.cli.store import opened

    if here:
        raise click.exceptions.Exit(_run_here(out, name))
    with opened(create=False) as sf:
        asked = sf.runs.ask(name)
    out.record(plain_run(asked), [asked.id])
    out.then(hints.command("loop", "runs", asked.loop))


@loop.verb("cancel", examples=("standfast loop cancel 9k2m4x", "standfast loop cancel 9k2m4x --reason 'wrong branch'"))
@argument("run")
@option("--reason", default="cancelled by hand", show_default=True)
def cancel(out: Out, run: str, reason: str) -> None:
    """Cancel RUN: at once if it waits; if it goes, the daemon ends it."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.runs.cancel(run, reason)
    words = "is cancelled" if found.state == "cancelled" else "is asked to end"
    out.record(plain_run(found), [f"{_short(found.id)} of {found.loop} {words}"])
    out.then(hints.command("loop", "runs", found.loop))


# -- looking -----------------------------------------------------------------------------------------


@loop.verb("list", examples=("standfast loop list", "standfast loop list --all --json"))
@option("--state", type=click.Choice(STATES), help="[default: all but removed]")
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def list_(out: Out, state: str | None, after: str | None, limit: int, scope_choice: str | None) -> None:
    """List the loops: their schedules, the next slot, the last one."""
    from standfast.cli.store import opened
    from standfast.config import load

    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        found = sf.loops.list(state=state, everywhere=scope_choice == "all", limit=limit, after=after)
        late = {one.loop_id: one for one in sf.loops.absent(everywhere=scope_choice == "all", limit=1000)}
    out.rows(
        [_row(one, late.get(one.id)) if out.for_people else plain(one, late.get(one.id)) for one in found],
        COLUMNS,
        next=found[-1].id if len(found) == limit else None,
        then="standfast loop runs --since 1d" if found else "",
        empty="there is no loop here; standfast loop add NAME --every 15m -- COMMAND",
    )
    _say_absent(out, list(late.values()))


@loop.verb("show", examples=("standfast loop show nightly", "standfast loop show nightly --json"))
@argument("name")
def show(out: Out, name: str) -> None:
    """Show NAME: its command, its rules, its last runs."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        found = sf.loops.get(name)
        late = {one.loop_id: one for one in sf.loops.absent(everywhere=True, limit=1000)}.get(found.id)
        runs = sf.runs.list(found.id, limit=10)
    if not out.for_people:
        return out.record({**plain(found, late), "runs": [plain_run(one) for one in runs]})
    for line in _lines_of(out, found):
        out.text(line)
    if runs:
        out.text("")
        for line in out.table([_run_row(one, found.zone) for one in runs], RUN_COLUMNS):
            out.text(line)
    _say_absent(out, [late] if late else [])
    if found.state == "paused":
        return out.then(hints.command("loop", "resume", found.name))
    return out.then(hints.command("loop", "runs", found.name, "--since", "1w"))


@loop.verb(
    "runs",
    examples=("standfast loop runs nightly --since 3w", "standfast loop runs --since 'tue 03:00' --state missed"),
)
@argument("name", required=False)
@option("--since", help='Slots from then on: 3w, 2h, "tue 03:00", "2026-11-01".')
@option("--state", type=click.Choice((*RUN_STATES, "absent")))
@option("--after", help="Where the page before ended.")
@option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@scope_options
def runs(
    out: Out,
    name: str | None,
    since: str | None,
    state: str | None,
    after: str | None,
    limit: int,
    scope_choice: str | None,
) -> None:
    """What became of each slot, the newest first, and why. Slots that nobody fired are listed as absent."""
    from standfast.cli.store import opened
    from standfast.config import load

    everywhere = scope_choice == "all"
    with opened(load(outside=scope_choice == "global"), create=False) as sf:
        since_us = _past(since)
        asked: dict[str, Any] = {"since_us": since_us, "everywhere": everywhere, "limit": limit, "after": after}
        found = [] if state == "absent" else sf.runs.list(name, state=state, **asked)
        late = _absent(sf, name, since_us, everywhere) if after is None and state in (None, "absent") else []
        zones = {one.id: one.zone for one in _loops_of(sf, {run.loop_id for run in found})}
    rows = [_absent_row(one, people=out.for_people) for one in late]
    rows += [_run_row(one, zones.get(one.loop_id, "UTC")) if out.for_people else plain_run(one) for one in found]
    out.rows(
        rows,
        RUN_COLUMNS,
        next=found[-1].place if len(found) == limit else None,
        then=_follow(found, late),
        empty="no slot was due" + (" since then" if since else ""),
    )
    _say_absent(out, late)


# -- what is printed ---------------------------------------------------------------------------------


def plain(found: Loop, late: Absent | None = None) -> dict[str, Any]:
    """The noun's own fields; never the value of a variable that looks like a secret."""
    return {**values.plain(found), "absent": late._asdict() if late else None}


def plain_run(found: Run) -> dict[str, Any]:
    fields = found._asdict()
    del fields["job"]
    return {**fields, "receipt": found.receipt.as_json() if found.receipt else None}


def _row(found: Loop, late: Absent | None) -> dict[str, Any]:
    import shlex

    return {
        "name": found.name,
        "state": "absent" if late else found.state,
        "when": found.said,
        "next": _next(found),
        "last": _at(found.last_slot_us, found.zone),
        "said": shlex.join(found.command)[:60],
        "account": found.account,
        "reason": f"{late.slots} slots without a row" if late else found.reason,
    }


def _run_row(found: Run, zone: str) -> dict[str, Any]:
    more = f" … {_at(found.until_slot_us, zone)} ({found.slots} slots)" if found.until_slot_us else ""
    asked = " (asked)" if found.source == "asked" else ""
    return {**found._asdict(), "slot": f"{_at(found.slot_us, zone)}{more}{asked}", "attempt": found.attempt or None}


def _absent_row(late: Absent, *, people: bool) -> dict[str, Any]:
    """Derived from the schedule: there is no such row in the store, and that is what it says."""
    reason = "no daemon was there to fire it"
    if people:
        more = f" … {_at(late.until_slot_us, late.zone)} ({late.slots} slots)" if late.slots > 1 else ""
        return {
            "slot": f"{_at(late.slot_us, late.zone)}{more}",
            "loop": late.name,
            "state": "absent",
            "reason": reason,
            "id": "",
        }
    return {**late._asdict(), "id": None, "loop": late.name, "state": "absent", "reason": reason}


def _lines_of(out: Out, found: Loop) -> list[str]:
    import shlex

    more = f", at most {found.catch_up_max}" if found.catch_up == "all" else ""
    pairs = [
        ("loop", found.id),
        ("name", found.name),
        ("state", found.state + (f": {found.reason}" if found.reason else "")),
        ("when", found.said),
        ("next", _next(found)),
        ("runs", shlex.join(found.command)),
        ("in", found.cwd),
        ("account", found.account or "none: an older version wrote it"),
        ("with", " ".join(f"{name}={value}" for name, value in found.environment_shown.items())),
        ("catch-up", found.catch_up + more),
        ("overlap", found.overlap),
        ("retries", f"{found.retries_max}, first after {_length(found.backoff_us)}" if found.retries_max else None),
        ("timeout", _length(found.timeout_us) if found.timeout_us else None),
        ("failures", f"{found.failures} in a row; pauses at {found.failures_max or 'never'}"),
    ]
    return list(out.pairs([(label, value) for label, value in pairs if value not in (None, "")]))


def _say_absent(out: Out, late: list[Absent]) -> None:
    if not out.for_people:
        return
    for one in late:
        span = f"{one.slots} slots" if one.slots > 1 else "the slot"
        out.say(f"standfast: {one.name} has stopped firing: {span} since {_at(one.slot_us, one.zone)} have no row")
    if late:
        out.say("  is the daemon there? standfast daemon status")


def _follow(found: list[Run], late: list[Absent]) -> str:
    if late or any(one.state == "queued" for one in found):
        return "standfast daemon status"
    kept = next((one.stderr_id or one.stdout_id for one in found if one.stderr_id or one.stdout_id), None)
    return f"standfast artifact get {_short(kept)}" if kept else ""


def _next(found: Loop) -> str:
    return _at(found.next_slot_us, found.zone) if found.next_slot_us is not None else "never"


def _at(us: int | None, zone: str) -> str:
    from standfast.record.loops.schedule import shown

    return shown(us, zone) if us is not None else ""


def _quoted_all(command: tuple[str, ...]) -> str:
    import shlex

    return shlex.join(command)


# -- what is asked -----------------------------------------------------------------------------------


def _schedule(command: tuple[str, ...], given: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """`loop add nightly '0 3 * * *' -- make` is understood too: a schedule before the command is one."""
    when = {name: given[name] for name in ("every", "cron", "at")}
    if any(value is not None for value in when.values()) or not command:
        return command, when
    first = command[0]
    if len(first.split()) == 5 or first.startswith("@"):
        return command[1:], when | {"cron": first}
    from standfast.clock import parse_duration
    from standfast.errors import InvalidInput

    try:
        parse_duration(first.removeprefix("every "))
    except InvalidInput:
        return command, when
    return command[1:], when | {"every": first}


def _environment(given: tuple[str, ...]) -> dict[str, str]:
    from standfast.errors import InvalidInput

    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals:
            raise InvalidInput(f"{name[:60]!r} has no value", "--env NAME=value")
        found[name] = value
    return found


def _past(text: str | None) -> int | None:
    """So long ago, or a moment as people type it."""
    if text is None:
        return None
    import time

    from standfast.clock import parse_duration
    from standfast.errors import InvalidInput
    from standfast.views import when

    now_us = time.time_ns() // 1000
    try:
        return max(0, now_us - parse_duration(text.removesuffix(" ago")))
    except InvalidInput:
        return when.parse(text, now_us).us


def _absent(sf: Standfast, name: str | None, since_us: int | None, everywhere: bool) -> list[Absent]:
    late = sf.loops.absent(everywhere=everywhere or name is not None, limit=1000)
    wanted = None if name is None else sf.loops.get(name).id
    return [one for one in late if wanted in (None, one.loop_id) and one.until_slot_us >= (since_us or 0)]


def _loops_of(sf: Standfast, ids: set[str]) -> list[Loop]:
    return [sf.loops.get(id) for id in sorted(ids)]


# -- in this terminal ----------------------------------------------------------------------------------


def _run_here(out: Out, name: str) -> int:
    """Ask, claim, run the command under this terminal, and record how it ended; the exit code."""
    import os

    from standfast.cli.store import exists, refuse_missing
    from standfast.config import load
    from standfast.errors import NotFound
    from standfast.handle import connect

    settings = load()
    refuse_missing(settings)
    if not exists(settings):
        raise NotFound(f"there is no store at {settings.target.shown} yet", "standfast loop add --help")
    with connect(settings) as sf:
        _confirm(sf, name, hints.command("loop", "run", name, "--here"))
        asked = sf.runs.ask(name)
        try:
            claimed = sf.runs.claim(host=os.uname().nodename, run_id=asked.id)
        except BaseException as error:
            sf.runs.cancel(asked.id, f"could not be begun here: {str(error).splitlines()[0]}")
            raise
        assert claimed is not None
        ended = _perform(sf, claimed)
    out.say(
        f"standfast: run {_short(ended.id)} of {ended.loop} is {ended.state}"
        + (f": {ended.reason}" if ended.reason else "")
    )
    if ended.exit_code is None:
        return 1
    return ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code


def _confirm(sf: Standfast, name: str, again: str) -> None:
    """Show the command of a loop that another account wrote, and ask, before it runs here for the first time."""
    from standfast.cli.stored_commands import Stored, confirm, is_confirmed
    from standfast.config.actor import account
    from standfast.record.loops.firing import is_foreign

    found = sf.loops.get(name)
    if is_foreign(sf.engine.name, found.account, (account(), *sf.settings.options.accounts)):
        stored = Stored(_quoted_all(found.command), found.cwd, (found.account or "an older version", found.actor))
        if not is_confirmed(stored, sf.settings.data_dir):
            confirm(stored, sf.settings.data_dir, again)


def _perform(sf: Standfast, run: Run) -> Run:
    import os
    import subprocess
    import time

    from standfast.config.scope import Label, carried
    from standfast.footings.leases import process

    assert run.job is not None
    said: dict[str, Any] = {}
    begun = time.monotonic()
    own = {"STANDFAST_LOOP": run.loop, "STANDFAST_RUN": run.id, "STANDFAST_ATTEMPT": str(run.attempt)}
    own |= carried(run.scope, Label(run.git_dir, run.origin))
    try:
        child = subprocess.Popen(run.job.command, cwd=run.job.cwd, env={**os.environ, **run.job.environment, **own})
    except OSError as error:
        return sf.runs.finish(run.id, run.attempt, duration_us=0, reason=f"it could not be started: {error.strerror}")
    sf.runs.started(run.id, run.attempt, pid=child.pid, process=str(process(child.pid, sf._store.caller.clock)))
    limit_s = run.job.timeout_us / 1_000_000 if run.job.timeout_us else None
    try:
        said["exit_code"] = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        said = {"timed_out": True, "exit_code": _ended(child)}
    except KeyboardInterrupt:
        said = {"cancelled": True, "exit_code": _ended(child), "reason": "interrupted in its terminal"}
    return sf.runs.finish(run.id, run.attempt, duration_us=round((time.monotonic() - begun) * 1_000_000), **said)


def _ended(child: Any) -> int:
    """Asked to end, and killed if it does not."""
    import subprocess

    child.terminate()
    try:
        code: int = child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    return code
