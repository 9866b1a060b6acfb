"""Working on events: claimed by one handler, done, failed and tried again, given up, taken back.

Every change is on a row that its transaction has locked, and asks first whose it is. What the
caller holds is known by its holder, by its actor (`claim` in one shell, `done` in another) and,
where a claimed event is given, by its fence: a handler that slept too long is refused even
under its own name.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, serial
from standfast.clock import DAY_US, HOUR_US, SECOND_US, format_duration, iso
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InProgress, InvalidInput, LeaseLost, NotFound, StandfastError
from standfast.footings import journal, leases, naming
from standfast.ids import like_suffix, short
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter
from standfast.ledger.webhooks.nouns import ERROR_MAX, WebhookEvent, event_of, named

SQL = load(__name__)

leases.renewed("webhook_event")

Which = str | WebhookEvent
"""An event as callers name it: its id, the end of its id, `source/event id`, or the event itself."""

BACKOFF_US = 30 * SECOND_US
BACKOFF_MAX_US = HOUR_US
AGAIN_MAX_US = 30 * DAY_US
HOLDERS_MAX = 1000
"""Processes that hold events, judged at each claim."""
BURIED_MAX = 50
"""Events whose last handler died, given up in passing by one claim."""
SLASHES_MAX = 10
_NOBODY = dict.fromkeys(("holder", "lease_until_us", "lease_boot", "lease_mono_us", "lease_for_us"))


class Changed(NamedTuple):
    """What a change came to: the event, or why not; and what was given up on the way."""

    event: WebhookEvent | StandfastError | None
    letters: tuple[DeadLetter, ...] = ()


def backoff_us(attempts: int) -> int:
    """How long to wait after the n-th attempt: 30 s, 1 min, 2 min … at most an hour."""
    doublings = min(max(attempts, 1) - 1, 20)
    return min(BACKOFF_US << doublings, BACKOFF_MAX_US)


# -- finding -----------------------------------------------------------------------------------------


def find(tx: Tx, which: Which) -> Row | StandfastError:
    """By id, the end of an id, `source/event id` in this scope, or its dead letter."""
    name = which.id if isinstance(which, WebhookEvent) else which
    row = naming.row_of(
        tx,
        name,
        by_id=SQL.by_id,
        by_key=lambda text: _by_event(tx, text),
        ends=SQL.by_suffix,
        prefix="whk",
        noun="webhook event",
    )
    if row is None and like_suffix(name, prefix="ddl") is not None:
        letter = dead_letters.one(tx, name)
        row = tx.maybe(SQL.by_id, id=letter.subject) if isinstance(letter, DeadLetter) else None
    return row if row is not None else _unknown(name)


def _by_event(tx: Tx, name: str) -> Row | None:
    """Both halves may hold slashes, so every place to cut is tried."""
    parts = name.split("/")
    for cut in range(1, min(len(parts), SLASHES_MAX)):
        source, event_id = "/".join(parts[:cut]), "/".join(parts[cut:])
        row = tx.maybe(SQL.by_event, scope=tx.caller.scope, source=source, event_id=event_id)
        if row is not None:
            return row
    return None


def _unknown(name: str) -> NotFound:
    return NotFound(
        f"there is no webhook event {serial.clean(name, 80)!r} in this scope",
        "standfast webhook list    (--all: every scope)",
    )


def locked(tx: Tx, which: Which) -> Row | StandfastError:
    """The row, and nobody else changes it until this transaction ends."""
    found = find(tx, which)
    if isinstance(found, StandfastError):
        return found
    return tx.one(SQL.by_id_for_update, id=found["id"])


# -- claiming ----------------------------------------------------------------------------------------


def claim_next(tx: Tx, *, source: str, kind: str, for_us: int | None) -> Changed:
    """The one that has waited longest, or none. What its last handler died of is given up in passing."""
    crash.point("webhook.before_claim")
    _expire_the_dead(tx)
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
    """This very one, also before its time, if nobody alive has it."""
    crash.point("webhook.before_claim")
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return Changed(row)
    if row["state"] != "received":
        return Changed(_is_over(row, "claimed"))
    standing = leases.stand(tx, row)
    term = leases.term_of(tx, for_us)
    if standing.live and row["holder"] == term["holder"] and term["holder"].startswith("a:"):
        return Changed(_extended(tx, row, term))
    if standing.live:
        refusal = leases.in_progress(tx, named(row), row)
        return Changed(InProgress(refusal.message, f"wait for it: standfast webhook show {short(row['id'])}"))
    if row["attempts"] >= row["attempts_max"]:
        given_up = _give_up(tx, row, _abandoned(tx, row))
        return Changed(_is_over(row | {"state": "dead"}, "claimed"), given_up.letters)
    return Changed(_taken(tx, row, for_us))


def renew(tx: Tx, which: Which, for_us: int | None) -> WebhookEvent | StandfastError:
    """Hold on to it for another term. Not journalled."""
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    refused = _refusal(tx, row, which, held=True)
    if refused is not None:
        return refused
    return _extended(tx, row, leases.term_of(tx, for_us or row["lease_for_us"], row["holder"]))


# -- ending ------------------------------------------------------------------------------------------


def done(tx: Tx, which: Which, result: str | None) -> WebhookEvent | StandfastError:
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    if row["state"] == "done" and _said_before(tx, row, which):
        return event_of(tx, row)
    refused = _refusal(tx, row, which) or _is_over(row, "done")
    if refused is not None:
        return refused
    crash.point("webhook.before_done")
    return _changed(tx, row, "webhook.done", state="done", result=result, ended_us=tx.now_us(), error=None)


def fail(tx: Tx, which: Which, reason: str, *, again_us: int | None, dead: bool) -> Changed:
    """It failed: again after a while, or never, if that was the last attempt or `dead` says so."""
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return Changed(row)
    claimed = isinstance(which, WebhookEvent) and which.holder is not None
    if row["state"] == "received" and row["holder"] is None and claimed and which.fence == row["fence"]:  # type: ignore[union-attr]
        return Changed(event_of(tx, row))  # said before with this very claim: the first time stands
    refused = _refusal(tx, row, which, held=True)
    if refused is not None:
        return Changed(refused)
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


def retry(tx: Tx, which: Which, note: str | None) -> WebhookEvent | StandfastError:
    """Ready now: a dead one with all its attempts before it, one that waits without waiting longer."""
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    if row["state"] == "done":
        return _is_over(row, "retried") or event_of(tx, row)
    if leases.stand(tx, row).live:
        return leases.in_progress(tx, named(row), row)
    attempts = row["attempts"]
    if row["state"] == "dead":
        settled = dead_letters.settle(tx, row["id"], "retried", note)
        if isinstance(settled, StandfastError):
            return settled
        attempts = 0
    columns: Row = {"state": "received", "attempts": attempts, "ready_us": tx.now_us(), "ended_us": None}
    return _changed(tx, row, "webhook.retried", note, **columns)


def resolve(tx: Tx, which: Which, note: str, result: str | None) -> WebhookEvent | StandfastError:
    """Somebody looked after a dead one in another way: it is done, and every later delivery is told so."""
    if not serial.clean(note):
        return InvalidInput("how was it looked after?", "say it in words: --note TEXT")
    row = locked(tx, which)
    if isinstance(row, StandfastError):
        return row
    if row["state"] != "dead":
        return IllegalTransition(
            f"{named(row)} is {row['state']}, and only what is dead is resolved",
            f"standfast webhook done {short(row['id'])}" if row["state"] == "received" else "nothing is left to do",
        )
    settled = dead_letters.settle(tx, row["id"], "resolved", note)
    if isinstance(settled, StandfastError):
        return settled
    return _changed(tx, row, "webhook.resolved", note, state="done", result=result, ended_us=tx.now_us())


# -- whose it is -------------------------------------------------------------------------------------


def _refusal(tx: Tx, row: Row, which: Which, *, held: bool = False) -> StandfastError | None:
    """Why the caller may not change this event now, if so. `held`: it has to be the caller's own."""
    if _claimed(tx, which) and which.fence != row["fence"]:  # type: ignore[union-attr]
        return leases.lost(named(row), row, which.fence)  # type: ignore[union-attr]
    if leases.acts_for(tx, row):
        return None
    if held and row["state"] != "received":
        return _is_over(row, "failed")
    if held and row["holder"] is None:
        return LeaseLost(f"{named(row)} is held by nobody", f"standfast webhook claim {short(row['id'])}")
    if held or leases.stand(tx, row).live:
        return LeaseLost(
            f"{named(row)} is held by {leases.who(row['holder'])} with fence {row['fence']}, not by {tx.caller.actor}",
            f"standfast webhook show {short(row['id'])}",
        )
    return None


def _claimed(tx: Tx, which: Which) -> bool:
    return isinstance(which, WebhookEvent) and which.holder == tx.caller.holder


def _said_before(tx: Tx, row: Row, which: Which) -> bool:
    """Whether it is done by this very claim, or by this actor."""
    if _claimed(tx, which):
        return bool(which.fence == row["fence"])  # type: ignore[union-attr]
    return bool(row["actor"] == tx.caller.actor)


def _is_over(row: Row, wanted: str) -> IllegalTransition | None:
    if row["state"] == "received":
        return None
    about = f"{named(row)} is {row['state']}"
    if row["state"] == "dead":
        return IllegalTransition(
            f"{about} and cannot be {wanted}: {row['error']}", f"standfast webhook retry {short(row['id'])}"
        )
    when = f" since {iso(row['ended_us'])}, by {row['actor']}" if row["ended_us"] else ""
    return IllegalTransition(
        f"{about}{when}, and cannot be {wanted}", f"its result: standfast webhook show {short(row['id'])}"
    )


# -- small parts -------------------------------------------------------------------------------------


def _expire_the_dead(tx: Tx) -> None:
    for row in tx.all(SQL.processes, limit=HOLDERS_MAX):
        if leases.is_gone(row["holder"], tx.caller.clock):
            tx.run(SQL.expire, holder=row["holder"])


def _abandoned(tx: Tx, row: Row) -> str:
    """What is known of an attempt that never ended."""
    why = "died" if leases.stand(tx, row).gone or row["lease_until_us"] == 0 else "was not heard of again"
    return f"attempt {row['attempts']}: {leases.who(row['holder'])} {why} before it was done" if row["holder"] else ""


def _taken(tx: Tx, row: Row, for_us: int | None) -> WebhookEvent:
    term = leases.term_of(tx, for_us)
    written = term | {"actor": tx.caller.actor, "error": _abandoned(tx, row) or row["error"]}
    tx.defer(SQL.take, _there, id=row["id"], fence=row["fence"], **written)
    taken = row | written | {"fence": row["fence"] + 1, "attempts": row["attempts"] + 1}
    data: dict[str, serial.Json] = {"fence": taken["fence"], "attempt": taken["attempts"], "by": term["holder"]}
    if row["holder"] is None:
        return event_of(tx, taken, _told(tx, taken, "webhook.claimed", None, data))
    return event_of(tx, taken, _told(tx, taken, "webhook.taken_over", None, data | {"from": row["holder"]}))


def _extended(tx: Tx, row: Row, term: Row) -> WebhookEvent:
    tx.defer(SQL.extend, _there, id=row["id"], fence=row["fence"], **term)
    return event_of(tx, row | term)


def _give_up(tx: Tx, row: Row, reason: str) -> Changed:
    """No attempt is left: a person has to look at it."""
    event = _changed(tx, row, "webhook.died", reason, state="dead", error=reason, ended_us=tx.now_us())
    letter = dead_letters.bury(
        tx, scope=row["scope"], subject=row["id"], kind="webhook", reason=reason, attempts=row["attempts"]
    )
    return Changed(event, (letter,))


def _changed(
    tx: Tx, row: Row, type: str, summary: str | None = None, data: serial.Json = None, **columns: object
) -> WebhookEvent:
    """Set some columns of a locked row, without its holder. Whoever held it and is not the caller is fenced off."""
    grow = int(row["holder"] is not None and not leases.acts_for(tx, row))
    made = row | columns | _NOBODY | {"actor": tx.caller.actor, "fence": row["fence"] + grow}
    tx.defer(SQL.change, _there, was=row["fence"], **{name: made[name] for name in _CHANGED})
    return event_of(tx, made, _told(tx, made, type, summary, data))


_CHANGED = ("id", "fence", "state", "result", "error", "attempts", "ready_us", "actor", "ended_us")


def _told(tx: Tx, row: Row, type: str, summary: str | None, data: serial.Json) -> journal.Receipt:
    said = serial.clean(f"{row['source']} {row['event_id']}", 100)
    said = f"{said}: {summary}" if summary else said
    return journal.append(tx, type, row["id"], scope=row["scope"], state=row["state"], summary=said, data=data)


def _there(row: Row) -> None:
    """The row was locked, so the compare-and-set has found it; `defer` asserts that."""
