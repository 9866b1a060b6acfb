"""Claim events, and end, retry and give up claims.

Each function changes a row that its transaction has locked. `core/claims.py` decides who may change it.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, hints, serial
from standfast.clock import DAY_US, HOUR_US, SECOND_US, format_duration, iso
from standfast.core import gap, leases
from standfast.core.claims import FREE, Claims, found
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InProgress, InvalidInput, StandfastError
from standfast.ids import like_suffix, short
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter
from standfast.ledger.webhooks.changes import journal_change
from standfast.ledger.webhooks.models import ERROR_MAX, WebhookEvent, event_of, named

SQL = load(__name__)

Which = str | WebhookEvent
"""The name of an event: its id, the end of its id, `source/event id`, or the event itself."""

BACKOFF_US = 30 * SECOND_US
BACKOFF_MAX_US = HOUR_US
AGAIN_MAX_US = 30 * DAY_US
BURIED_MAX = 50
"""One claim gives up at most this many events whose handler died in the last attempt."""
SLASHES_MAX = 10


class Changed(NamedTuple):
    """The result of a change: the event or a refusal, and the dead letters of events that it gave up."""

    event: WebhookEvent | StandfastError | None
    letters: tuple[DeadLetter, ...] = ()


def backoff_us(attempts: int) -> int:
    """The wait after the n-th attempt: 30 s, 1 min, 2 min … at most 1 hour."""
    doublings = min(max(attempts, 1) - 1, 20)
    return min(BACKOFF_US << doublings, BACKOFF_MAX_US)


# -- lookup ------------------------------------------------------------------------------------------


def _by_event(tx: Tx, name: str) -> Row | None:
    """The event that is named `source/event id`. Both parts may contain slashes, so try to split at each one."""
    parts = name.split("/")
    for cut in range(1, min(len(parts), SLASHES_MAX)):
        source, event_id = "/".join(parts[:cut]), "/".join(parts[cut:])
        row = tx.maybe(SQL.by_event, scope=tx.caller.scope, source=source, event_id=event_id)
        if row is not None:
            return row
    return None


def _by_letter(tx: Tx, name: str) -> Row | None:
    letter = dead_letters.find(tx, name) if like_suffix(name, prefix="ddl") is not None else None
    return None if letter is None else tx.maybe(CLAIMS.by_id, id=letter.subject)


CLAIMS = Claims(
    WebhookEvent,
    "whk",
    by_key=_by_event,
    otherwise=_by_letter,
    named=named,
    hints=(
        "standfast webhook list --all",
        lambda id: hints.command("webhook", "claim", id),
        lambda id: hints.command("webhook", "show", id),
    ),
)
find, locked = CLAIMS.find, CLAIMS.locked


# -- claims ------------------------------------------------------------------------------------------


def claim_next(tx: Tx, *, source: str, kind: str, for_us: int | None) -> Changed:
    """Claim the event that has waited longest; None if none is ready. Events without attempts left are given up."""
    crash.point("webhook.before_claim")
    CLAIMS.expire_dead(tx)
    letters: list[DeadLetter] = []
    asked: Row = {"scope": tx.caller.scope, "source": source, "kind": kind, "now_us": tx.now_us()} | tx.lease_clock()
    while (row := tx.maybe(SQL.ready, **asked)) is not None:
        if row["attempts"] < row["attempts_max"]:
            return Changed(_taken(tx, row, for_us), tuple(letters))
        letters.append(_give_up(tx, row, _abandoned(tx, row)).letters[0])
        if len(letters) >= BURIED_MAX:
            break
    return Changed(None, tuple(letters))


def claim(tx: Tx, which: Which, for_us: int | None) -> Changed:
    """Claim this event, also before it is ready, if it has no live holder."""
    crash.point("webhook.before_claim")
    gap.refuse(tx, "a webhook")
    row = locked(tx, which)
    _refuse_over(row, "claimed")
    standing = leases.judge(tx, row)
    term = leases.new_lease(tx, for_us)
    if standing.live and row["holder"] == term["holder"] and term["holder"].startswith("a:"):
        return Changed(event_of(tx, CLAIMS.extend(tx, row, term)))
    if standing.live:
        refusal = leases.in_progress(tx, named(row), row)
        raise InProgress(refusal.message, f"wait for it: {hints.command('webhook', 'show', short(row['id']))}")
    if row["attempts"] >= row["attempts_max"]:
        given_up = _give_up(tx, row, _abandoned(tx, row))
        # The refusal is returned, not raised, so that giving the event up is committed.
        return given_up._replace(event=_over(row | {"state": "dead"}, "claimed"))
    return Changed(_taken(tx, row, for_us))


# -- end of a claim ----------------------------------------------------------------------------------


def done(tx: Tx, which: Which, result: str | None) -> WebhookEvent:
    row = locked(tx, which)
    if row["state"] == "done" and CLAIMS.ended_by_caller(tx, row, which):
        return event_of(tx, row)
    CLAIMS.check(tx, row, which)
    _refuse_over(row, "done")
    crash.point("webhook.before_done")
    return _changed(tx, row, "webhook.done", state="done", result=result, ended_us=tx.now_us(), error=None)


def fail(tx: Tx, which: Which, reason: str, *, again_us: int | None, dead: bool) -> Changed:
    """Record a failed attempt: retry later, or give up after the last attempt or if `dead`."""
    row = locked(tx, which)
    claim = which if isinstance(which, WebhookEvent) and which.holder is not None else None
    if row["state"] == "received" and row["holder"] is None and claim is not None and claim.fence == row["fence"]:
        return Changed(event_of(tx, row))  # this claim has already failed the event: the first call counts
    CLAIMS.check(tx, row, which)
    _refuse_over(row, "failed")
    CLAIMS.check_held(tx, row)
    crash.point("webhook.before_fail")
    words = serial.clean(reason, ERROR_MAX) or "no reason was given"
    if dead or row["attempts"] >= row["attempts_max"]:
        return _give_up(tx, row, words)
    wait_us = backoff_us(row["attempts"]) if again_us is None else again_us
    left = f"attempt {row['attempts']} of {row['attempts_max']}, again in {format_duration(wait_us)}"
    data = {"attempt": row["attempts"], "ready_us": tx.now_us() + wait_us}
    return Changed(
        _changed(tx, row, "webhook.failed", f"{left}: {words}", data, error=words, ready_us=tx.now_us() + wait_us)
    )


def retry(tx: Tx, which: Which, note: str | None) -> WebhookEvent:
    """Make an event ready now. A dead one gets all its attempts again."""
    row = locked(tx, which)
    if row["state"] == "done":
        _refuse_over(row, "retried")
    if leases.judge(tx, row).live:
        raise leases.in_progress(tx, named(row), row)
    attempts = row["attempts"]
    if row["state"] == "dead":
        dead_letters.settle(tx, row["id"], "retried", note)
        attempts = 0
    columns: Row = {"state": "received", "attempts": attempts, "ready_us": tx.now_us(), "ended_us": None}
    return _changed(tx, row, "webhook.retried", note, **columns)


def resolve(tx: Tx, which: Which, note: str, result: str | None) -> WebhookEvent:
    """Mark a dead event as done, because a person handled it in another way."""
    if not serial.clean(note):
        raise InvalidInput("webhook resolve needs --note", '--note "refunded by hand"')
    row = locked(tx, which)
    if row["state"] != "dead":
        raise IllegalTransition(
            f"{named(row)} is {row['state']}, and only a dead one can be resolved",
            hints.command("webhook", "done", short(row["id"]))
            if row["state"] == "received"
            else "nothing is left to do",
        )
    dead_letters.settle(tx, row["id"], "resolved", note)
    return _changed(tx, row, "webhook.resolved", note, state="done", result=result, ended_us=tx.now_us())


# -- refusals ----------------------------------------------------------------------------------------


def _refuse_over(row: Row, wanted: str) -> None:
    """Raises IllegalTransition if the event has ended."""
    if row["state"] != "received":
        raise _over(row, wanted)


def _over(row: Row, wanted: str) -> IllegalTransition:
    about = f"{named(row)} is {row['state']}"
    if row["state"] == "dead":
        return IllegalTransition(
            f"{about} and cannot be {wanted}: {row['error']}", hints.command("webhook", "retry", short(row["id"]))
        )
    when = f" since {iso(row['ended_us'])}, by {row['actor']}" if row["ended_us"] else ""
    return IllegalTransition(
        f"{about}{when}, and cannot be {wanted}", f"its result: {hints.command('webhook', 'show', short(row['id']))}"
    )


# -- private functions -------------------------------------------------------------------------------


def _abandoned(tx: Tx, row: Row) -> str:
    """The error of an attempt that never ended."""
    why = "died" if leases.judge(tx, row).gone or row["lease_until_us"] == 0 else "let its lease run out"
    return (
        f"attempt {row['attempts']}: {leases.holder_text(row['holder'])} {why} before it was done"
        if row["holder"]
        else ""
    )


def _taken(tx: Tx, row: Row, for_us: int | None) -> WebhookEvent:
    term = leases.new_lease(tx, for_us)
    written = term | {"actor": tx.caller.actor, "error": _abandoned(tx, row) or row["error"]}
    tx.defer(SQL.take, found, id=row["id"], fence=row["fence"], **written)
    taken = row | written | {"fence": row["fence"] + 1, "attempts": row["attempts"] + 1}
    data: dict[str, serial.Json] = {"fence": taken["fence"], "attempt": taken["attempts"], "by": term["holder"]}
    if row["holder"] is None:
        return event_of(tx, taken, journal_change(tx, taken, "webhook.claimed", data=data))
    data["from"] = row["holder"]
    return event_of(tx, taken, journal_change(tx, taken, "webhook.taken_over", data=data))


def _give_up(tx: Tx, row: Row, reason: str) -> Changed:
    """Make the event a dead letter: a person has to handle it."""
    event = _changed(tx, row, "webhook.died", reason, state="dead", error=reason, ended_us=tx.now_us())
    letter = dead_letters.bury(
        tx, scope=row["scope"], subject=row["id"], kind="webhook", reason=reason, attempts=row["attempts"]
    )
    return Changed(event, (letter,))


def _changed(
    tx: Tx, row: Row, type: str, summary: str | None = None, data: serial.Json = None, **columns: object
) -> WebhookEvent:
    """Set columns of a locked row and remove its holder. If that is not the caller, the fence grows."""
    grow = int(row["holder"] is not None and not leases.may_act_for(tx, row))
    made = row | columns | FREE | {"actor": tx.caller.actor, "fence": row["fence"] + grow}
    tx.defer(SQL.change, found, was=row["fence"], **{name: made[name] for name in _CHANGED})
    return event_of(tx, made, journal_change(tx, made, type, summary=summary, data=data))


_CHANGED = ("id", "fence", "state", "result", "error", "attempts", "ready_us", "actor", "ended_us")
