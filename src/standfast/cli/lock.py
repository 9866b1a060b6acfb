"""`standfast lock`: one holder at a time for any file, port or deployment.

With a command, the process of the command is the holder. It starts blocked, this process acquires the lock for it, and
then it runs the command. This process renews the lease while the command runs. If the command is killed, the lock is
free immediately. Without a command the actor holds the lock until `--release`, or until the lease expires.
"""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, Any

import click

from standfast import hints
from standfast.cli import exits
from standfast.cli.frame import Command, Refused, argument, command_line, option, scope_options
from standfast.cli.frame import command as made_command
from standfast.cli.open_store import NoStore, opened
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.cli.values import DURATION, plain
from standfast.clock import SECOND_US, duration_us, format_duration
from standfast.config import load
from standfast.errors import InProgress, LeaseLost, StandfastError

if TYPE_CHECKING:
    from standfast.clock import Duration
    from standfast.core.leases import Lease
    from standfast.handle import Standfast

VARIABLE = "STANDFAST_LOCK"
"""The command finds the name of the lock in this variable."""
LOOK_AGAIN_S = 1.0
LIST_VERBS = ("list", "ls", "show", "status")
VERBS = (*LIST_VERBS, "acquire", "get", "hold", "release", "renew", "take", "wait")

COLUMNS = [
    Column("name"),
    Column("holder_name", "held by"),
    Column("standing", "state"),
    Column("left", "ends in"),
    Column("fence"),
    Column("note"),
]


class Lock(Command):
    """Refuses verbs: `lock acquire NAME` must not run NAME as a command under a lock named `acquire`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if "--" not in args and len(words) == 1 and words[0] in LIST_VERBS:
            args = [word for word in args if word != words[0]]
        left = super().parse_args(ctx, args)
        verb, command = ctx.params["name"], ctx.params["command"]
        after = args[args.index("--") + 1 :] if "--" in args else []
        if verb in VERBS and len(command) > len(after):
            name, *_ = command
            message = f"lock has no verbs: {verb!r} would be the lock's name and {name!r} a command"
            raise Refused(message, _without_verb(verb, name, args), ctx)
        return left


def _without_verb(verb: str, name: str, args: list[str]) -> str:
    """The line that a line with a verb probably means."""
    if verb in LIST_VERBS:
        return "standfast lock list"
    if verb == "release":
        return hints.command("lock", name, "--release")
    first = args.index(verb)
    return hints.command("lock", *args[:first], *args[first + 1 :])


@made_command(
    "lock",
    cls=Lock,
    examples=("standfast lock deploy --wait 10m -- ./deploy.sh", "standfast lock port-8080 --for 30m"),
)
@argument("name", required=False)
@option(
    "--for",
    "for_",
    type=DURATION,
    help="Hold the lock for this long after your last command.  [default: 15m, or while COMMAND runs]",
)
@option("--while", "pid", type=int, metavar="PID", help="Hold the lock while this process lives: --while $$")
@option("--wait", type=DURATION, help="Wait this long for another holder to release the lock.")
@option("--note", help="Show this note to others that wait for the lock.")
@option("--release", is_flag=True, help="Release the lock.")
@scope_options
@command_line()
def lock(
    out: Out,
    name: str | None,
    for_: str | None,
    pid: int | None,
    wait: str | None,
    note: str | None,
    release: bool,
    scope_choice: str | None,
    command: tuple[str, ...],
) -> None:
    """Hold the lock NAME, while COMMAND runs if it is given. Without NAME, list all locks and their holders."""
    if name is None and command:
        raise click.UsageError("NAME is missing before --")
    if name is None:
        return _list(out, scope_choice)
    if release:
        return _release(out, name, scope_choice)
    wait_us = duration_us(wait, "--wait") or 0
    if command:
        raise click.exceptions.Exit(_run(out, name, command, for_, wait_us, note, scope_choice))
    return _hold(out, name, for_, wait_us, note, pid, scope_choice)


def _list(out: Out, scope_choice: str | None) -> None:
    try:
        with opened(scope_choice=scope_choice, create=False) as sf:
            found = sf.leases.list(everywhere=scope_choice == "all", limit=1000)
            ours = next((one.name for one in found if one.standing != "live" or one.agent == sf.agent), None)
    except NoStore as error:
        out.rows([], [], empty=f"{error.message}; {error.hint}")  # an empty list is no error, as in every other list
        return
    out.rows(
        [{**plain(one), **_for_people(one)} if out.for_people else plain(one) for one in found],
        COLUMNS,
        then=hints.command("lock", ours, "--release") if ours else "",
        empty="no lock is held" + (" in any repository or scope" if scope_choice == "all" else " here"),
    )


def _release(out: Out, name: str, scope_choice: str | None) -> None:
    with opened(scope_choice=scope_choice, create=False) as sf:
        released = sf.leases.release(name)
    out.record(plain(released), [f"{name} is released"])


def _hold(
    out: Out,
    name: str,
    for_: str | None,
    wait_us: int,
    note: str | None,
    pid: int | None,
    scope_choice: str | None,
) -> None:
    with opened(scope_choice=scope_choice, pid=pid) as sf:
        held = _acquired(sf, name, held_for(for_, pid), wait_us, note)
    out.record(plain(held), [f"{name} is held by {_for_people(held)['holder_name']}, fence {held.fence}"])
    out.then(hints.command("lock", name, "--release"))


def _run(
    out: Out,
    name: str,
    command: tuple[str, ...],
    for_: str | None,
    wait_us: int,
    note: str | None,
    scope_choice: str | None,
) -> int:
    from standfast.cli.child import blocked_child
    from standfast.core.leases import PROCESS_US, renewer
    from standfast.handle import connect

    settings = load(outside=scope_choice == "global")
    with blocked_child(command) as child, connect(settings, pid=child.pid) as sf:
        # A lease must last longer than the time between two renewals.
        held = _acquired(sf, name, max(duration_us(for_, "--for") or 0, PROCESS_US) / SECOND_US, wait_us, note)
        renewing = renewer(sf._store)
        renewing.start()
        child.go({VARIABLE: name})
        code = child.wait()
        if child.failure is not None:
            out.say(f"standfast: {child.failure}")
        code = _released(out, sf, held, code, kept=renewing.trusted)
    return code if code >= 0 else 128 - code


def _acquired(sf: Standfast, name: str, for_: Duration | None, wait_us: int, note: str | None) -> Lease:
    """Acquire the lock, or wait for it. Raises InProgress after `wait_us`."""
    from signal import SIGHUP, SIGINT, SIGQUIT, SIGTERM, sigpending

    end = monotonic() + wait_us / 1_000_000
    if not wait_us:
        return sf.leases.acquire(name, for_=for_, note=note)
    with sf._store.watch() as watch:
        while True:
            try:
                return sf.leases.acquire(name, for_=for_, note=note)
            except InProgress:
                if (left_s := end - monotonic()) <= 0:
                    raise
            # No notification is sent when a holder dies, so the wait is short.
            watch.wait(min(left_s, LOOK_AGAIN_S))
            if sigpending() & {SIGINT, SIGTERM, SIGHUP, SIGQUIT}:
                raise click.Abort  # blocked for the command, which will not start


def _released(out: Out, sf: Standfast, held: Lease, code: int, *, kept: bool) -> int:
    """Release the lock. Returns the exit code of the command, or an error if the lock was lost while the command ran.

    If the lease was renewed until the command ended (`kept`), another holder acquired the lock after that: no error.
    """
    try:
        sf.leases.release(held.name, held.fence)
    except StandfastError as error:
        if kept and isinstance(error, LeaseLost):
            return code
        out.error(error.code, f"the command ended, and its lock could not be released: {error.message}", error.hint)
        return code or exits.code_of(error)
    return code


def held_for(for_: str | None, pid: int | None) -> Duration | None:
    """The duration of a lease. With `pid` the lease ends with that process, so the longest duration is used."""
    if pid is None or for_ is not None:
        return for_
    from standfast.core.leases import LEASE_MAX_US

    return LEASE_MAX_US / SECOND_US


def _for_people(found: Lease) -> dict[str, Any]:
    from standfast.core.leases import holder_text

    left_us = ((found.lease_until_us or 0) - round(time() * 1_000_000)) // SECOND_US * SECOND_US
    return {
        "holder_name": holder_text(found.holder),
        "left": format_duration(left_us, parts=2) if found.standing == "live" and left_us > 0 else None,
    }
