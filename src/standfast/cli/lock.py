"""`standfast lock`: one holder at a time for any file, port or deployment.

With a command, the command's own process is the holder: it is started stopped, the lock is taken in
its name, and only then it begins. While it runs its lease is renewed; if it is killed, the lock is free at once.
Without one the actor holds the lock, until `--release` or the time is over.
"""

from __future__ import annotations

import os
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
"""Names the lock for the command that runs under it."""
LOOK_AGAIN_S = 1.0

COLUMNS = [
    Column("name"),
    Column("holder_name", "held by"),
    Column("standing", "state"),
    Column("left", "ends in"),
    Column("fence"),
    Column("note"),
]


class Lock(Command):
    """There are no verbs here; who types one must not get a lock of that name, or run a command by mistake."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if "--" not in args and words[:1] in (["list"], ["ls"], ["status"]) and len(words) == 1:
            args = [word for word in args if word != words[0]]
        elif "--" not in args and len(words) == 2 and words[0] in ("acquire", "take", "release", "renew"):
            verb, name = words
            line = hints.command("lock", name, *(("--release",) if verb == "release" else ()))
            raise Refused(f"lock has no verbs: {verb!r} would be the lock's name and {name!r} a command", line, ctx)
        return super().parse_args(ctx, args)


@made_command(
    "lock",
    cls=Lock,
    examples=("standfast lock deploy --wait 10m -- ./deploy.sh", "standfast lock port-8080 --for 30m"),
)
@argument("name", required=False)
@option("--for", "for_", type=DURATION, help="Lease duration.  [default: 15m, or while COMMAND runs]")
@option("--while", "pid", type=int, metavar="PID", help="Hold it while this process lives.")
@option("--wait", type=DURATION, help="Wait this long for another holder to release it.")
@option("--note", help="What it is for; shown to others that want it.")
@option("--release", is_flag=True, help="Release it.")
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
    """Hold the lock NAME; with COMMAND, while it runs. Without NAME, list the locks and their holders."""
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
        out.rows([], [], empty=f"{error.message}; {error.hint}")  # as every list answers
        return
    out.rows(
        [{**plain(one), **_for_people(one)} if out.for_people else plain(one) for one in found],
        COLUMNS,
        then=hints.command("lock", ours, "--release") if ours else "",
        empty="no lock is held here",
    )


def _release(out: Out, name: str, scope_choice: str | None) -> None:
    with opened(scope_choice=scope_choice, create=False) as sf:
        given_back = sf.leases.release(name)
    out.record(plain(given_back), [f"{name} is free"])


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
    import signal

    from standfast.cli.session_run import PASSED_ON, Child
    from standfast.core.leases import PROCESS_US, renewer
    from standfast.handle import connect

    settings = load(outside=scope_choice == "global")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    try:
        child = Child(command, os.getcwd(), before, variable=VARIABLE)
        try:
            with connect(settings, pid=child.pid) as sf:
                # Shorter than between two renewals it would be lost while the command runs.
                held = _acquired(sf, name, max(duration_us(for_, "--for") or 0, PROCESS_US) / SECOND_US, wait_us, note)
                renewing = renewer(sf._store)
                renewing.start()
                child.go(name)
                code = child.wait()
                code = _given_back(out, sf, held, code, kept=renewing.trusted)
        finally:
            child.never()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return code if code >= 0 else 128 - code


def _acquired(sf: Standfast, name: str, for_: Duration | None, wait_us: int, note: str | None) -> Lease:
    """The lock, as soon as it is free, or InProgress when patience is over."""
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
            # A holder that dies rings no bell: look again in any case.
            watch.wait(min(left_s, LOOK_AGAIN_S))
            if sigpending() & {SIGINT, SIGTERM, SIGHUP, SIGQUIT}:
                raise click.Abort  # they are held back for the command, which will not begin


def _given_back(out: Out, sf: Standfast, held: Lease, code: int, *, kept: bool) -> int:
    """The command has ended as it has; but if the lock was lost while it ran, success must not be said.

    If it was renewed in time until the command ended, a present holder came after that.
    """
    try:
        sf.leases.release(held.name, held.fence)
    except StandfastError as error:
        if kept and isinstance(error, LeaseLost):
            return code
        out.error(error.code, f"the command ended, and its lock could not be given back: {error.message}", error.hint)
        return code or exits.code_of(error)
    return code


def held_for(for_: str | None, pid: int | None) -> Duration | None:
    """A lease of a process ends with it; the time limit is only the last resort."""
    if pid is None or for_ is not None:
        return for_
    from standfast.core.leases import LEASE_MAX_US

    return LEASE_MAX_US / SECOND_US


def _for_people(found: Lease) -> dict[str, Any]:
    from standfast.core.leases import holder_text

    left_us = (found.lease_until_us or 0) - round(time() * 1_000_000)
    return {
        "holder_name": holder_text(found.holder),
        "left": format_duration(left_us, parts=2) if found.standing == "live" and left_us > 0 else None,
    }
