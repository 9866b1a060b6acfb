"""`standfast loop run --here`: run the command of a loop in this terminal, and record how it ended."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from standfast import hints
from standfast.cli.open_store import exists, refuse_missing
from standfast.cli.output import Out
from standfast.cli.values import short
from standfast.config import load
from standfast.config.actor import account
from standfast.errors import NotFound

if TYPE_CHECKING:
    from standfast.handle import Standfast
    from standfast.record.loops import Run


def run_here(out: Out, name: str) -> int:
    """Request and claim a run, run its command in this terminal, record the outcome, and return the exit code."""
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
            sf.runs.cancel(asked.id, f"could not be started here: {str(error).splitlines()[0]}")
            raise
        assert claimed is not None
        ended = _perform(sf, claimed)
    out.say(
        f"standfast: run {short(ended.id)} of {ended.loop} is {ended.state}"
        + (f": {ended.reason}" if ended.reason else "")
    )
    if ended.exit_code is None:
        return 1
    return ended.exit_code if ended.exit_code >= 0 else 128 - ended.exit_code


def _confirm(sf: Standfast, name: str, again: str) -> None:
    """Ask before the command of a loop that another account or actor wrote runs here for the first time.

    An account in the option `accounts` of the configuration counts as this account.
    """
    from standfast.cli.command_consent import Stored, confirm, is_by, is_confirmed

    found = sf.loops.get(name)
    mine = any(is_by((found.agent,), one) for one in (found.account, sf.settings.actor))
    if mine and found.account in (account(), *sf.settings.options.accounts):
        return
    given = [f"{name}={value}" for name, value in found.environment_shown.items()]
    command = ("env", *given, *found.command) if given else found.command
    stored = Stored(shlex.join(command), found.cwd, (found.account, found.agent))
    if not is_confirmed(stored, sf.settings.data_dir):
        confirm(stored, sf.settings.data_dir, again)


def _perform(sf: Standfast, run: Run) -> Run:
    import subprocess

    from standfast.config.scope import Label, carried
    from standfast.core.leases import process

    assert run.job is not None
    said: dict[str, Any] = {}
    begun = time.monotonic()
    own = {"STANDFAST_LOOP": run.loop, "STANDFAST_RUN": run.id, "STANDFAST_ATTEMPT": str(run.attempt)}
    own |= carried(run.scope, Label(run.git_dir, run.origin))
    try:
        child = subprocess.Popen(run.job.command, cwd=run.job.cwd, env={**os.environ, **run.job.environment, **own})
    except OSError as error:
        return sf.runs.finish(run.id, run.attempt, duration=0, reason=f"it could not be started: {error.strerror}")
    sf.runs.started(run.id, run.attempt, pid=child.pid, process=str(process(child.pid, sf._store.caller.clock)))
    limit_s = run.job.timeout_us / 1_000_000 if run.job.timeout_us else None
    try:
        said["exit_code"] = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        said = {"timed_out": True, "exit_code": _ended(child)}
    except KeyboardInterrupt:
        said = {"cancelled": True, "exit_code": _ended(child), "reason": "interrupted in its terminal"}
    return sf.runs.finish(run.id, run.attempt, duration=time.monotonic() - begun, **said)


def _ended(child: Any) -> int:
    """Send SIGTERM, and SIGKILL after 5 s. Returns the exit code."""
    import subprocess

    child.terminate()
    try:
        code: int = child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    return code
