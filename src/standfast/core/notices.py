"""Notices: start the configured `notify` command when something needs a person.

    notify = ["ntfy", "publish", "my-agents"]          # config.toml

The command starts after the commit, in a process session of its own, and no caller waits for it. So it cannot delay or
fail a method, or print into the output of an agent. It gets four variables, and the same as one JSON object on stdin:

    STANDFAST_EVENT     approval.requested, effect.in_doubt, mail.dead, webhook.dead, run.missed,
                        loop.paused
    STANDFAST_SUBJECT   the id
    STANDFAST_SUMMARY   one line, without anything that could harm a terminal
    STANDFAST_HINT      the command that settles it

The command is started at most once. A process that is killed between the commit and the start starts none. An item that
needs a person stays in `standfast` and in the brief until it is settled.
"""

from __future__ import annotations

import os

from standfast.db.contract import Tx
from standfast.db.store import Store
from standfast.serial import clean

SUMMARY_MAX = 200
HINT_MAX = 300
START_MAX_S = 2.0
VARIABLE = "STANDFAST_EVENT"

# The shell exits at once, so the command is no child of this process. It leaves no zombie, and no exit status for a
# program that waits for its children. A background command gets our stdin only through another descriptor.
_DETACH = 'exec 3<&0; "$@" <&3 3<&- >/dev/null 2>&1 &'


def tell(store: Store, type: str, subject: str, summary: str, hint: str, *, tx: Tx | None = None) -> None:
    """Start the `notify` command, if there is one. It never raises and never waits.

    Call it after the commit. Inside a caller's transaction give its `tx` (`resource.tx`): the command starts after the
    commit.
    """
    if not store.notify or os.environ.get(VARIABLE):
        return  # a `notify` command that runs standfast must not start another one
    about = {
        VARIABLE: type,
        "STANDFAST_SUBJECT": clean(subject, SUMMARY_MAX),
        "STANDFAST_SUMMARY": clean(summary, SUMMARY_MAX),
        "STANDFAST_HINT": clean(hint, HINT_MAX),
    }
    if tx is None:
        start(store.notify, about)
    else:
        tx.after = [*(tx.after or ()), lambda: start(store.notify, about)]


def start(command: tuple[str, ...], about: dict[str, str]) -> None:
    """Start `command` with `about` as variables and as JSON on stdin, and do not wait for it."""
    import json
    import subprocess
    from contextlib import suppress

    text = json.dumps({name.removeprefix("STANDFAST_").lower(): value for name, value in about.items()})
    # The text fits into the buffer of a pipe, so writing it does not wait for a reader.
    reader, writer = os.pipe()
    try:
        os.write(writer, text.encode())
        os.close(writer)
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            shell = subprocess.Popen(
                ["/bin/sh", "-c", _DETACH, "sh", *command],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **about},
                start_new_session=True,
            )
            shell.wait(START_MAX_S)
    finally:
        os.close(reader)
