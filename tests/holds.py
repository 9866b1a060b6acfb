"""Everything that can be held with a lease: how to take it, who holds it, and how to end the lease.

    hold = HOLDS["task"]
    held = hold.take(sf, hold.make(sf))

`ends` has every method that releases it, renews it or records its outcome. Each method must refuse a holder
whose lease was taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import standfast

Handle = standfast.Standfast
End = Callable[[Handle, Any], Any]


class Hold(NamedTuple):
    table: str
    make: Callable[[Handle], str]
    """Something that can be held: its id, or its name."""
    take: Callable[[Handle, str], Any]
    """Hold it. Raises InProgress, or returns None, while another holder is alive."""
    ends: dict[str, End]
    free: Callable[[Handle], object] = lambda sf: None
    """An action of another caller before it can take it from a late holder."""


def _mail_box(sf: Handle) -> str:
    return sf.mail.send("reviewer", {"n": 1}).id


def _run(sf: Handle) -> str:
    sf.loops.add("nightly", ["true"], every="1h", retries_max=3, backoff="1us", cwd="/")
    return sf.runs.ask("nightly").id


HOLDS: dict[str, Hold] = {
    "lock": Hold(
        "lease",
        lambda sf: "deploy",
        lambda sf, id: sf.leases.acquire(id),
        {
            "renew": lambda sf, held: sf.leases.renew(held.name, held.fence),
            "release": lambda sf, held: sf.leases.release(held.name, held.fence),
        },
    ),
    "task": Hold(
        "task",
        lambda sf: sf.tasks.add("parser is flaky").id,
        lambda sf, id: sf.tasks.claim(id),
        {
            "renew": lambda sf, held: sf.tasks.renew(held),
            "release": lambda sf, held: sf.tasks.release(held),
            "done": lambda sf, held: sf.tasks.done(held),
            "snooze": lambda sf, held: sf.tasks.snooze(held, for_="1m"),
            "accept": lambda sf, held: sf.tasks.accept(held),
        },
    ),
    "mail": Hold(
        "mail",
        _mail_box,
        lambda sf, id: sf.mail.read(id),
        {
            "renew": lambda sf, held: sf.mail.renew(held),
            "release": lambda sf, held: sf.mail.release(held),
            "defer": lambda sf, held: sf.mail.defer(held, for_="1m"),
            "refuse": lambda sf, held: sf.mail.refuse(held, "not mine"),
            "done": lambda sf, held: sf.mail.done(held),
            "reply": lambda sf, held: sf.mail.reply(held, "late", done=True),
        },
    ),
    "webhook": Hold(
        "webhook_event",
        lambda sf: sf.webhooks.receive("stripe", "evt-1", {"n": 1}).id,
        lambda sf, id: sf.webhooks.claim(id),
        {
            "renew": lambda sf, held: sf.webhooks.renew(held),
            "fail": lambda sf, held: sf.webhooks.fail(held, "late"),
            "give up": lambda sf, held: sf.webhooks.fail(held, "late", dead=True),
            "done": lambda sf, held: sf.webhooks.done(held),
        },
    ),
    "run": Hold(
        "run",
        _run,
        lambda sf, id: sf.runs.claim(host="here", run_id=id),
        {
            "started": lambda sf, held: sf.runs.started(held.id, held.attempt, pid=1, process="p:late:1:1:1:1"),
            "done": lambda sf, held: sf.runs.finish(held.id, held.attempt, exit_code=0, duration="1us"),
            "fail": lambda sf, held: sf.runs.finish(held.id, held.attempt, exit_code=1, duration="1us"),
            "give up": lambda sf, held: sf.runs.finish(held.id, held.attempt, timed_out=True, duration="1us"),
            "cancelled": lambda sf, held: sf.runs.finish(held.id, held.attempt, cancelled=True, duration="1us"),
            "requeue": lambda sf, held: sf.runs.requeue(held.id, held.attempt, reason="late"),
            "adopt": lambda sf, held: sf.runs.adopt(held.id, held.attempt),
        },
        lambda sf: sf.runs.abandon_dead(),
    ),
    "session": Hold(
        "session",
        lambda sf: "fix-42",
        lambda sf, id: sf.sessions.open(id).record,
        {"end": lambda sf, held: sf.sessions.end(held.id, "failed", fence=held.fence)},
    ),
}
