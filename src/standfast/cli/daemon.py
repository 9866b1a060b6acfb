"""`standfast daemon`: run, start, stop and install the process that runs loops."""

from __future__ import annotations

import os
import sys
import time
from time import gmtime, localtime, strftime
from typing import TYPE_CHECKING, Any

import click

from standfast.cli import exits
from standfast.cli.frame import noun, option
from standfast.cli.output import Out
from standfast.cli.render import Column, printed
from standfast.clock import SECOND_US, SYSTEM, parse_duration
from standfast.config import load

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.daemon.status import Status

daemon = noun(
    "daemon", "Run, start, stop and install the daemon, which runs loops in the background.", default="status"
)

START_MAX_S = 20.0
STOP_MAX_S = 90.0
LOG_MAX_BYTES = 1_000_000
LOG_LINES = 10


def settings_of(cwd: str | None = None) -> Settings:
    """The settings of the daemon: the store that a command would use here, in no scope and no repository."""
    from standfast.config.scope import OUTSIDE

    settings = load(scope="", actor=f"daemon:{os.uname().nodename}", cwd=cwd, quiet=True)
    return settings._replace(label=OUTSIDE)  # each run gets the repository of its loop


@daemon.verb("run", examples=("standfast daemon run", "standfast daemon run --workers 2 --grace 5m"))
@option(
    "--workers",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="Run at most N commands at the same time.",
)
@option(
    "--grace", default="30s", show_default=True, metavar="DURATION", help="Let commands run this long after SIGTERM."
)
@option("--again", is_flag=True, hidden=True, help="Restart if another store is configured.")
def run(out: Out, workers: int, grace: str, again: bool) -> None:
    """Run the daemon in the foreground until SIGTERM. A second SIGTERM ends it without the grace time."""
    from contextlib import suppress

    from standfast.daemon.service import Service
    from standfast.daemon.tick import Options

    cwd, words = os.getcwd(), sys.argv[1:]
    options = Options(workers, parse_duration(grace) / SECOND_US)

    def say(text: str) -> None:
        with suppress(OSError, ValueError):  # the reader of stderr has exited; the daemon continues
            print(printed(f"{strftime('%Y-%m-%dT%H:%M:%SZ', gmtime())} {text}"), file=sys.stderr, flush=True)

    ended = Service(settings_of(cwd), options, say, lambda: settings_of(cwd)).run()
    if ended.restart and again:
        os.execv(sys.executable, [sys.executable, "-P", "-m", "standfast", *words])
    if ended.restart:
        raise click.exceptions.Exit(exits.BUSY)


@daemon.verb("start", examples=("standfast daemon start", "standfast daemon start --json"))
def start(out: Out) -> None:
    """Start the daemon in the background, and wait until it works."""
    from standfast.daemon import status

    settings = settings_of()
    found = status.read(settings.data_dir, SYSTEM)
    if found.state == "stopped":
        found = _started(settings)
    out.record(plain(found), [_sentence(found)])
    out.then("standfast daemon status")


def _started(settings: Settings) -> Status:
    import subprocess

    from standfast.daemon import status
    from standfast.db.sqlite.location import make_private

    make_private(os.path.join(settings.data_dir, "daemon"))
    log = _log(settings)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(log, flags, 0o600), "ab") as file:
        os.fchmod(file.fileno(), 0o600)  # an older log may have the permissions of the umask
        process = subprocess.Popen(
            # -P: without it `-m` imports from the current directory first, and that may be a clone.
            [sys.executable, "-P", "-m", "standfast", "daemon", "run", "--again"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    end = time.monotonic() + START_MAX_S
    while time.monotonic() < end:
        found = status.read(settings.data_dir, SYSTEM)
        if found.state not in ("stopped", "starting"):
            return found
        if process.poll() is not None:
            raise _failed(log, f"the daemon ended with exit code {process.returncode}")
        time.sleep(0.02)
    raise _failed(log, f"the daemon did not start within {START_MAX_S:.0f} s")


def _failed(log: str, words: str) -> click.ClickException:
    with open(log, errors="replace") as file:
        last = file.read()[-4000:].splitlines()[-LOG_LINES:]
    return click.ClickException("\n".join([words, *(f"  {line}" for line in last), f"  ({log})"]))


def _log(settings: Settings) -> str:
    """The path of the log. A log over 1 MB is renamed to `log.1`."""
    path = os.path.join(settings.data_dir, "daemon", "log")
    if os.path.exists(path) and os.path.getsize(path) > LOG_MAX_BYTES:
        os.replace(path, path + ".1")
    return path


@daemon.verb("stop", examples=("standfast daemon stop", "standfast daemon stop --now"))
@option("--now", is_flag=True, help="Kill running commands immediately.")
def stop(out: Out, now: bool) -> None:
    """Stop the daemon, and wait until it has ended. Running commands get the grace time of the daemon."""
    from standfast.daemon import instance
    from standfast.daemon import stop as stop_daemon

    settings = settings_of()
    found = instance.find(settings.data_dir, SYSTEM)
    if not found.running:
        out.record({"stopped": False, "pid": None}, ["no daemon runs here"])
        return
    stop_daemon.stop(settings.data_dir, found, SYSTEM, now=now, patience_s=STOP_MAX_S)
    out.record({"stopped": True, "pid": found.pid}, [f"the daemon (process {found.pid}) has ended"])
    out.then("standfast daemon start")


def _moment(us: int) -> str:
    return strftime("%Y-%m-%d %H:%M:%S", localtime(us // 1_000_000))


PARTS = [Column("name", "part"), Column("state"), Column("failures"), Column("error")]
RUNS = [Column("loop"), Column("slot_us", "slot", _moment), Column("attempt"), Column("pid"), Column("run")]


@daemon.verb("status", examples=("standfast daemon status", "standfast daemon status --json"))
def status_command(out: Out) -> None:
    """Show the parts and runs of the daemon. Exits 3 if no daemon runs."""
    from standfast.daemon import status

    found = status.read(settings_of().data_dir, SYSTEM)
    lines = [_sentence(found)]
    if found.parts:
        lines += ["", *out.table(found.parts, PARTS)]
    if found.runs:
        lines += ["", *out.table(found.runs, RUNS)]
    if found.foreign:
        lines += ["", *(f"the loop {one['loop']!r} is late: {one['why']}; {one['then']}" for one in found.foreign)]
    out.record(plain(found), lines)
    if found.state == "stopped":
        out.then("standfast daemon start", "standfast daemon install")
        raise click.exceptions.Exit(exits.NOT_FOUND)
    out.then("standfast loop list")


def _sentence(found: Status) -> str:
    if found.state == "stopped":
        return "no daemon runs here" + (f"; the last one ended: {found.note}" if found.note else "")
    words = {
        "starting": "is starting",
        "active": "fires and runs",
        "standby": f"on standby: {found.leader} leads",
        "waiting": f"waits for the store: {found.note}",
        "draining": "is ending",
    }.get(found.state, found.state)
    return f"the daemon (process {found.pid or 'not visible from here'}) {words}" + (
        f", on {found.store}" if found.store else ""
    )


def plain(found: Status) -> dict[str, Any]:
    return found._asdict()


@daemon.verb("install", examples=("standfast daemon install", "standfast daemon install --dry-run"))
@option("--dry-run", is_flag=True, help="Print the unit and write nothing.")
@option("--remove", is_flag=True, help="Remove the unit.")
def install(out: Out, dry_run: bool, remove: bool) -> None:
    """Write a systemd user unit, so that the daemon starts at boot and restarts when it ends."""
    from standfast.daemon import tick, unit

    settings = settings_of()
    path = unit.place(os.environ)
    if remove:
        if not dry_run:
            unit.remove(path)
        out.record({"path": path, "removed": not dry_run}, [f"{path} {'would be' if dry_run else 'is'} removed"])
        out.then("systemctl --user stop standfast; systemctl --user daemon-reload")
        return
    text = unit.text(environ=os.environ, data_dir=settings.data_dir, grace_s=tick.GRACE_S)
    changed = False if dry_run else unit.write(path, text)
    lines = text.splitlines() if dry_run else [f"{path} {'is written' if changed else 'was there already'}"]
    out.record({"path": path, "text": text, "written": changed}, lines)
    if settings.source == "environment":
        out.say(
            "STANDFAST_DB_URL is not written into the unit: it may carry a password. Save the store instead:",
            "  standfast db pg URL --global",
        )
    out.then("systemctl --user daemon-reload && systemctl --user enable --now standfast")
    if out.for_people:
        out.say("to keep it running while you are logged out: loginctl enable-linger")
