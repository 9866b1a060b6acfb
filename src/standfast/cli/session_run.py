"""`standfast session run`: run a command in a session.

The child process starts blocked, and runs the command after it receives one message. Therefore the child exists and
can hold the session before the command does anything. If another process holds the session, the command never starts.
The process of the command is the holder: if it is killed, the hold ends. This process renews the lease, forwards
signals, and ends the session by the exit code.

    fork ── waits ─────────────── execs ─────── ends
       └── open the session ──▶ go ── renew ──┴─▶ end the session, exit as it did
"""

from __future__ import annotations

import os
from collections.abc import Callable

from standfast.cli.child import blocked_child
from standfast.cli.output import Out
from standfast.config import load
from standfast.errors import InvalidInput, StandfastError

VARIABLE = "STANDFAST_SESSION"


def run_in_session(out: Out, key: str, command: tuple[str, ...], *, agent: str | None, cwd: str) -> int:
    """Run the command. Returns its exit code, or 128 + n if signal n ended it."""
    from standfast.config.scope import carried
    from standfast.handle import connect

    if not os.path.isdir(cwd):
        raise InvalidInput(f"the directory of this session is gone: {cwd}", "run it elsewhere: session run KEY -- …")
    settings = load(cwd=cwd)
    with blocked_child(command, cwd=cwd) as child, connect(settings, pid=child.pid) as sf:
        opened = sf.sessions.open(key, agent=agent, command=command, cwd=cwd)
        sf.sessions.keep()
        record = opened.record
        assert record.holder is not None
        child.go({VARIABLE: record.id, **carried(record.scope, record.label)})
        code = child.wait()
        if child.failure is not None:
            out.say(f"standfast: {child.failure}")
        _end(out, lambda: sf.sessions.exited(record.id, holder=record.holder or "", code=code))
    return code if code >= 0 else 128 - code


def _end(out: Out, exited: Callable[[], object]) -> None:
    """End the session. An error of the store must not change the exit code of the command."""
    try:
        exited()
    except StandfastError as error:
        out.error(error.code, f"the command ended, but its session could not be ended: {error.message}", error.hint)
