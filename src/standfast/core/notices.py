"""Notices: the configured `notify` command is started when something needs a person.

    notify = ["ntfy", "publish", "my-agents"]          # config.toml

The command is started after the transaction that recorded the matter, in a session of its own,
and no caller waits for it: it cannot delay a method, fail one, or print into an agent's output. It
learns what happened from four variables, and from the same as one JSON object on stdin:

    STANDFAST_EVENT     approval.requested, effect.in_doubt, mail.dead, webhook.dead, run.missed,
                        loop.paused
    STANDFAST_SUBJECT   the id
    STANDFAST_SUMMARY   one line, without anything that could harm a terminal
    STANDFAST_HINT      the command that settles it

A notice is a courtesy, started at most once: a process killed between the commit and the
notice sends none. An item that needs a person stays in `standfast` and in the brief until it is settled.
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

# The shell leaves at once and the command has no parent of ours: no zombie, and no exit status that a
# program waiting for its own children would find. (A background command's stdin is empty
# unless it is taken from another descriptor.)
_DETACH = 'exec 3<&0; "$@" <&3 3<&- >/dev/null 2>&1 &'


def tell(store: Store, type: str, subject: str, summary: str, hint: str, *, tx: Tx | None = None) -> None:
    """Start the `notify` command, if there is one. Never raises, never waits for it.

    Call it after the transaction. Inside a caller's own, give its `tx` (`resource.tx`): the command is
    then started once that has committed.
    """
    if not store.notify or os.environ.get(VARIABLE):  # what a notice does itself sends no notices
        return
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
    """Start `command` with `about` as variables and as JSON on stdin, and forget it."""
    import json
    import subprocess
    from contextlib import suppress

    text = json.dumps({name.removeprefix("STANDFAST_").lower(): value for name, value in about.items()})
    # Far below what a pipe holds, so writing it does not wait for a reader.
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
