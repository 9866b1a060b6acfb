"""Delivery: a mail goes to one holder at a time, with a lease, a fencing token and a row for each attempt.

A process holds its mail while it lives, and an actor while its commands renew the lease. If the holder exits or its
lease expires, the attempt has failed and the next reader may claim the mail. Each return increases the fencing token,
so later writes of the old holder are refused. After the last attempt, the same transaction makes it a dead letter.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import crash, hints, serial
from standfast.clock import MINUTE_US, iso
from standfast.core import leases
from standfast.core.checks import REASON_MAX
from standfast.core.claims import FREE, Claims, found
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, InProgress
from standfast.ids import short
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter
from standfast.record.mail import changes
from standfast.record.mail.addresses import Place
from standfast.record.mail.models import Mail, Swept, expired, mail

SQL = load(__name__)

Which = str | Mail
"""How callers name a mail: by its id, the end of its id, its key, or the mail itself."""

BURIED_MAX = 100
"""One claim makes at most this many dead letters while it looks for a mail that is ready."""
SEEN_EVERY_US = MINUTE_US


class Claimed(NamedTuple):
    """The claimed mail, and the mails that became dead letters during the claim."""

    mail: Mail | None
    buried: tuple[DeadLetter, ...]


# -- lookup ------------------------------------------------------------------------------------------


def named(row: Row) -> str:
    subject = f" ({serial.clean(row['subject'], 60)})" if row["subject"] else ""
    return f"mail {short(row['id'])} to {row['box']}{subject}"


CLAIMS = Claims(
    Mail,
    "mal",
    by_key=lambda tx, text: tx.maybe(SQL.by_key, scope=tx.caller.scope, key=text),
    named=named,
    hints=(
        "standfast mail list --state any --all",
        lambda id: hints.command("mail", "read", id),
        lambda id: f"it returns to its box if its holder does not finish it; see {hints.command('mail', 'show', id)}",
    ),
    renewal=", kept = 1",
)
find, locked = CLAIMS.find, CLAIMS.locked


# -- claims ------------------------------------------------------------------------------------------


def claim_next(tx: Tx, place: Place, *, thread_id: str, for_us: int | None, look: bool) -> Claimed:
    """Claim the most urgent mail that is ready in this box.

    With `look`, or if no mail is ready, it first expires the leases of processes that have exited.
    """
    crash.point("mail.before_claim")
    if look:
        CLAIMS.expire_dead(tx)
    where: Row = {"scope": place.scope, "box": place.box}
    asked = where | {"thread_id": thread_id, "now_us": tx.now_us_if_known()} | tx.lease_clock_if_known()
    buried: list[DeadLetter] = []
    while len(buried) < BURIED_MAX:
        row = tx.maybe(SQL.ready, **asked)
        if row is None and not look:
            look = True
            CLAIMS.expire_dead(tx)
            row = tx.maybe(SQL.ready, **asked)
        if row is None:
            break
        free = row if row["holder"] is None else lose(tx, row)
        if isinstance(free, DeadLetter):
            buried.append(free)
            continue
        _seen(tx, where)
        return Claimed(_taken(tx, free, for_us), tuple(buried))
    _seen(tx, where)
    return Claimed(None, tuple(buried))


def _seen(tx: Tx, where: Row) -> None:
    now_us = tx.now_us()
    tx.run(
        SQL.seen, now_us=now_us, stale_us=now_us - SEEN_EVERY_US, actor=tx.caller.actor, **where, **tx.caller.labelled()
    )


def is_ready(tx: Tx, place: Place, thread_id: str) -> bool:
    """Whether a claim could return a mail, or a holder has exited. Writes nothing."""
    asked: Row = {"scope": place.scope, "box": place.box, "thread_id": thread_id, "now_us": tx.now_us_if_known()}
    return tx.maybe(SQL.peek, **(asked | tx.lease_clock_if_known())) is not None or bool(CLAIMS.dead(tx))


def take(tx: Tx, row: Row, for_us: int | None) -> Row:
    """Claim this locked mail for the caller, unless the caller holds it already.

    Raises InProgress if another live holder has it, IllegalTransition if it has ended.
    """
    _refuse_ended(tx, row)
    if leases.judge(tx, row).live:
        if row["holder"] != tx.caller.holder and not leases.may_act_for(tx, row):
            raise _in_progress(tx, row)
        return row
    if row["holder"] is not None:
        row = _lost_attempt(tx, row)
    return _take(tx, row, for_us)[0]


def _taken(tx: Tx, row: Row, for_us: int | None) -> Mail:
    taken, receipt = _take(tx, row, for_us)
    return mail(tx, taken, receipt)


def _take(tx: Tx, row: Row, for_us: int | None) -> tuple[Row, Receipt]:
    term = leases.new_lease(tx, for_us)
    written = term | {"actor": tx.caller.actor}
    n, fence = row["attempts"] + 1, row["fence"] + 1
    tx.defer(SQL.take, found, id=row["id"], fence=row["fence"], **written)
    begun: Row = {"actor": tx.caller.actor, "holder": term["holder"], "now_us": tx.now_us()}
    tx.defer(SQL.begin_attempt, found, id=row["id"], n=n, fence=fence, **begun)
    taken = row | written | {"state": "leased", "fence": fence, "attempts": n, "kept": 1}
    data: dict[str, serial.Json] = {"fence": fence, "attempt": n, "by": term["holder"]}
    return taken, changes.journal_change(tx, taken, "mail.leased", data=data)


def _refuse_ended(tx: Tx, row: Row) -> None:
    late = row["ended_us"] is None and not leases.judge(tx, row).live and expired(tx, row)
    if row["ended_us"] is None and not late:
        return
    state = "expired" if late else row["state"]
    again = "retry" if state in ("dead", "expired") else "show"
    why = f": {row['reason']}" if row["reason"] else ""
    raise IllegalTransition(f"{named(row)} is {state}{why}", hints.command("mail", again, short(row["id"])))


def _in_progress(tx: Tx, row: Row) -> InProgress:
    refusal = leases.in_progress(tx, named(row), row)
    return InProgress(
        refusal.message, f"it returns to its box if it is not done: {hints.command('mail', 'show', short(row['id']))}"
    )


# -- read marks --------------------------------------------------------------------------------------


def mark_read(tx: Tx, row: Row, *, kept: bool) -> Row:
    """Mark a mail as read. Not journalled: the mail and its receipt have the time."""
    marked = row | {"state": "read", "read_us": row["read_us"] or tx.now_us(), "kept": int(kept)}
    tx.run(SQL.mark_read, id=row["id"], fence=row["fence"], holder=row["holder"], kept=int(kept), now_us=tx.now_us())
    return marked


def go_on(tx: Tx, held: Mail) -> None:
    """The follower asks for the next mail: mark this one as read and stop renewing its lease."""
    tx.run(SQL.mark_read, id=held.id, fence=held.fence, holder=held.holder, kept=0, now_us=tx.now_us())


def let_age(tx: Tx, held: Mail) -> None:
    """The follower was closed: stop renewing the lease. The mail is not marked as read."""
    tx.run(SQL.let_age, id=held.id, fence=held.fence, holder=held.holder)


# -- end of a claim ----------------------------------------------------------------------------------


def done(tx: Tx, which: Which, note: str | None) -> Mail:
    """Mark a mail as done, claimed or not. A repeated call by the same agent returns the first result."""
    row = locked(tx, which)
    if row["state"] == "done":
        return _done_before(tx, row, which)
    CLAIMS.check(tx, row, which)
    held = row if leases.may_act_for(tx, row) else take(tx, row, None)
    crash.point("mail.before_done")
    end_attempt(tx, held, "done", note)
    return _finished(tx, held, "done", note, "mail.done", grow=0)


def back(
    tx: Tx, which: Which, outcome: str, reason: str | None, *, ready_us: int | None = None, one_more: bool = False
) -> tuple[Mail, DeadLetter | None]:
    """Return a mail to its box, ready now or at `ready_us`. After its last attempt it becomes a dead letter instead.

    With `one_more` the attempt does not count: `attempts_max` increases by one.
    """
    row = _held_row(tx, which)
    crash.point("mail.before_back")
    words = reason or f"{outcome} by {tx.caller.actor}, without a reason"
    end_attempt(tx, row, outcome, words)
    attempts_max = row["attempts_max"] + one_more
    if row["attempts"] >= attempts_max:
        return bury(tx, row, f"{_times(row)}, the last one {outcome}: {words}")
    free = _free(tx, row | {"attempts_max": attempts_max}, words, ready_us=ready_us)
    data: dict[str, serial.Json] = {"attempt": row["attempts"], "ready_us": free["ready_us"]}
    data |= {"attempts_max": attempts_max} if one_more else {}
    return mail(tx, free, changes.journal_change(tx, free, f"mail.{outcome}", summary=words, data=data)), None


def refuse(tx: Tx, which: Which, reason: str) -> tuple[Mail, DeadLetter | None]:
    """Make a mail a dead letter now, without further attempts."""
    row = _held_row(tx, which)
    crash.point("mail.before_back")
    end_attempt(tx, row, "refused", reason)
    return bury(tx, row, f"refused by {tx.caller.actor}: {reason}")


def lose(tx: Tx, row: Row) -> Row | DeadLetter:
    """Take a mail from a holder that exited or whose lease expired. After the last attempt it is a dead letter."""
    if row["attempts"] >= row["attempts_max"]:
        reason = _how_lost(tx, row)
        end_attempt(tx, row, "lost", reason)
        letter = bury(tx, row, f"{_times(row)}, the last one lost: {reason}")[1]
        assert letter is not None
        return letter
    return _lost_attempt(tx, row)


def _lost_attempt(tx: Tx, row: Row) -> Row:
    reason = _how_lost(tx, row)
    end_attempt(tx, row, "lost", reason)
    free = _free(tx, row, reason, ready_us=None)
    changes.journal_change(
        tx, free, "mail.lost", summary=reason, data={"attempt": row["attempts"], "from": row["holder"]}
    )
    return free


def bury(tx: Tx, row: Row, reason: str) -> tuple[Mail, DeadLetter]:
    made = _finished(tx, row, "dead", reason, "mail.dead", grow=1)
    letter = dead_letters.bury(
        tx, scope=row["scope"], subject=row["id"], kind="mail", reason=reason, attempts=row["attempts"]
    )
    return made, letter


def sweep(tx: Tx, limit: int) -> tuple[Swept, tuple[DeadLetter, ...]]:
    """Return mail without a live holder to its boxes, and mark expired mail, in every scope."""
    crash.point("mail.before_sweep")
    CLAIMS.expire_dead(tx)
    returned: list[str] = []
    buried: list[DeadLetter] = []
    lapsed = tx.all(SQL.lapsed, limit=limit, **tx.lease_clock())
    for row in lapsed:
        lost = lose(tx, row)
        buried.append(lost) if isinstance(lost, DeadLetter) else returned.append(row["id"])
    overdue = tx.all(SQL.overdue, limit=limit, now_us=tx.now_us())
    for row in overdue:
        _expire(tx, row)
    more = len(lapsed) == limit or len(overdue) == limit
    dead = tuple(letter.subject for letter in buried)
    return Swept(tuple(returned), dead, tuple(row["id"] for row in overdue), more), tuple(buried)


def written_down(tx: Tx, row: Row) -> Row:
    """The locked row. If it has expired and has no holder, its state becomes `expired` first."""
    if row["ended_us"] is not None or row["holder"] is not None or not expired(tx, row):
        return row
    return _expire(tx, row)


def _expire(tx: Tx, row: Row) -> Row:
    reason = f"its time was over at {iso(row['expires_us'])}, after {_times(row)}"
    made = _finished(tx, row, "expired", reason, "mail.expired", grow=1)
    return row | {"state": made.state, "reason": made.reason, "ended_us": made.ended_us, "fence": made.fence}


def revive(tx: Tx, row: Row, *, attempts: int, expires_us: int | None, note: str | None) -> Mail:
    """Return a dead or expired mail to its box with more attempts. The rows of its old attempts stay."""
    given: Row = {"attempts_max": row["attempts"] + attempts, "expires_us": expires_us, "reason": note}
    tx.defer(SQL.revive, found, id=row["id"], fence=row["fence"], **given)
    was = row["state"]
    row = row | given | {"state": "sent", "ready_us": 0, "fence": row["fence"] + 1, "ended_us": None}
    data: dict[str, serial.Json] = {"was": was, "attempts_max": row["attempts_max"]}
    return mail(tx, row, changes.journal_change(tx, row, "mail.retried", summary=note, data=data))


# -- private functions -------------------------------------------------------------------------------


def end_attempt(tx: Tx, row: Row, outcome: str, reason: str | None) -> None:
    """End the current attempt. A mail with a holder always has one."""
    given: Row = {"n": row["attempts"], "outcome": outcome, "reason": reason, "now_us": tx.now_us()}
    tx.defer(SQL.end_attempt, found, id=row["id"], **given)


def _held_row(tx: Tx, which: Which) -> Row:
    """The row, held by the caller. A free mail is claimed first, so that a caller may end it without a claim."""
    row = CLAIMS.own(tx, which)
    return row if row["ended_us"] is None and leases.may_act_for(tx, row) else take(tx, row, None)


def _free(tx: Tx, row: Row, reason: str | None, *, ready_us: int | None) -> Row:
    given: Row = {"reason": reason, "ready_us": row["ready_us"] if ready_us is None else ready_us}
    given |= {"attempts_max": row["attempts_max"]}
    tx.defer(SQL.give_back, found, id=row["id"], fence=row["fence"], **given)
    return row | FREE | given | {"state": "sent", "fence": row["fence"] + 1, "kept": 0}


def _finished(tx: Tx, row: Row, state: str, reason: str | None, type: str, *, grow: int) -> Mail:
    words = None if reason is None else serial.clean(reason, REASON_MAX)
    # A reader that ends a mail as done has read it. A mail can die or expire before anyone reads it.
    read_us = row["read_us"] or (tx.now_us() if state == "done" else None)
    actor = tx.caller.actor if state == "done" else row["actor"]
    given: Row = {"state": state, "reason": words, "actor": actor, "read_us": read_us}
    tx.defer(SQL.finish, found, id=row["id"], fence=row["fence"], grow=grow, now_us=tx.now_us(), **given)
    row = row | FREE | given | {"ended_us": tx.now_us(), "fence": row["fence"] + grow, "kept": 0}
    data: dict[str, serial.Json] = {"fence": row["fence"], "attempt": row["attempts"]}
    return mail(tx, row, changes.journal_change(tx, row, type, summary=words, data=data))


def _done_before(tx: Tx, row: Row, which: Which) -> Mail:
    if CLAIMS.ended_by_caller(tx, row, which):
        return mail(tx, row)
    raise IllegalTransition(
        f"{named(row)} was done by {row['actor']} at {iso(row['ended_us'])}",
        hints.command("mail", "show", short(row["id"])),
    )


def _how_lost(tx: Tx, row: Row) -> str:
    who = leases.holder_text(row["holder"])
    if leases.judge(tx, row).gone:
        return f"{who} died with it"
    return f"{who} had it until {iso(row['lease_until_us'])} and did not end it"


def _times(row: Row) -> str:
    return f"{row['attempts']} attempt{'s' * (row['attempts'] != 1)}"
