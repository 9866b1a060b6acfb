"""Handle an event with a command: `standfast webhook receive … -- COMMAND`.

As with `once`, the child process starts blocked and holds the lease of the event before it runs the command. If either
process is killed, the next delivery can see whether the command still runs. The stdin of the command is a temporary
file with the body.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from standfast import hints, serial
from standfast.cli.output import Out
from standfast.cli.values import plain
from standfast.config import load
from standfast.serial import clean

if TYPE_CHECKING:
    from standfast.cli.child import Child
    from standfast.handle import Standfast
    from standfast.ledger.webhooks import WebhookEvent

SAID_MAX = 300


def answer(out: Out, event: WebhookEvent, argv: tuple[str, ...]) -> int:
    """Handle one event, or print its stored output. Returns the exit code."""
    if event.state == "done":
        return _replayed(out, event)
    ended, code = _handled(out, argv, event.id)
    if not out.for_people:
        out.record(plain(ended))
    elif ended.state != "done":
        again = "dead letter" if ended.state == "dead" else f"attempt {ended.attempts} of {ended.attempts_max}"
        out.say(f"standfast: failed ({again}): {ended.error}")
        out.then(hints.command("webhook", "retry", ended.id[-6:]))
    return code


def _handled(out: Out, argv: tuple[str, ...], id: str) -> tuple[WebhookEvent, int]:
    """Claim the event and run the command. Returns the event afterwards and the exit code."""
    from standfast.cli.child import blocked_child
    from standfast.handle import connect

    settings = load()
    shown = out.for_people
    with (
        _as_stdin() as body,
        blocked_child(argv, capture=True, shown=shown) as child,
        connect(settings, pid=child.pid) as sf,
    ):
        return _run(sf, sf.webhooks.claim(id), child, body)


def _run(sf: Standfast, event: WebhookEvent, child: Child, body: int) -> tuple[WebhookEvent, int]:
    _write(body, _text(event.payload).encode())
    child.go(
        {
            "STANDFAST_WEBHOOK_ID": event.id,
            "STANDFAST_WEBHOOK_SOURCE": event.source,
            "STANDFAST_WEBHOOK_EVENT_ID": event.event_id,
            "STANDFAST_WEBHOOK_KIND": event.kind or "",
            "STANDFAST_ATTEMPT": str(event.attempts),
        }
    )
    code = child.wait()
    redact = sf._store.redact
    if code == 0 and child.failure is None:
        said = {"stdout": child.stdout.value(redact=redact), "stderr": child.stderr.value(redact=redact)}
        return sf.webhooks.done(event, {"exit": 0, **said}), 0
    how = child.failure or (f"exit {code}" if code > 0 else f"ended by {signal.Signals(-code).name}")
    said_last = _last_line(child.stderr.value(redact=redact))
    failed = sf.webhooks.fail(event, f"{how}: {said_last}" if said_last and child.failure is None else how)
    return failed, code if code > 0 else 128 - code


def _replayed(out: Out, event: WebhookEvent) -> int:
    from standfast.cli.child import bytes_of
    from standfast.cli.once_run import _resolved_text, _when

    if not out.for_people:
        out.record(plain(event))
        return 0
    out.say(f"standfast: already delivered; replayed from {_when(event.ended_us or event.received_us)}")
    result = event.result
    said = result if isinstance(result, dict) and "exit" in result else {"stdout": _resolved_text(result)}
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        stream.flush()
        stream.buffer.write(bytes_of(said.get(name)))
        stream.flush()
    return 0


@contextmanager
def _as_stdin() -> Iterator[int]:
    """Replace stdin with a temporary file until the command is forked. Yields its descriptor."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        before = os.dup(0) if _is_open(0) else None
        os.dup2(file.fileno(), 0)
        try:
            yield file.fileno()
        finally:
            if before is not None:
                os.dup2(before, 0)
                os.close(before)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _write(fd: int, data: bytes) -> None:
    """Write without moving the file offset, which the command shares: it must read from the start."""
    place = 0
    while place < len(data):
        place += os.pwrite(fd, data[place:], place)


def _text(payload: Any) -> str:
    return payload if isinstance(payload, str) else serial.canonical(payload)


def _last_line(said: Any) -> str:
    lines = [line for line in said.splitlines() if line.strip()] if isinstance(said, str) else []
    return clean(lines[-1], SAID_MAX) if lines else ""
