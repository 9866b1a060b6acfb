"""Reading mail without marking it as read: pages, conversations, and receipts."""

from __future__ import annotations

from standfast import serial
from standfast.clock import format_duration
from standfast.core import journal, leases
from standfast.core.checks import no_cursor, page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.ledger.dead_letters import DeadLetter
from standfast.record.mail import claims
from standfast.record.mail.addresses import Place
from standfast.record.mail.claims import Which
from standfast.record.mail.models import ENDED, STATES, Delivery, Mail, Shown, attempt, mail

SQL = load(__name__)

SHOWN_MAX = 100
_LAST_SEQ = 2**63 - 1


def page(
    tx: Tx,
    place: Place | None,
    *,
    state: str | None,
    sender: str | None,
    everywhere: bool,
    limit: int,
    after: str | None,
) -> list[Mail]:
    """Waiting mail in the order of delivery; or mail that has ended, the newest first."""
    if state is not None and state not in (*STATES, "any"):
        raise InvalidInput(f"{serial.clean(state, 40)!r} is not a state of a mail", f"one of: {', '.join(STATES)}, any")
    last = None if after is None else _row_at(tx, after)
    asked: Row = {
        "scope": place.scope if place else tx.caller.scope,
        "box": place.box if place else "",
        "state": "" if state in (None, "any") else state,
        "sender": sender or "",
        "everywhere": int(everywhere),
        "limit": page_size(limit),
        "seq": last["seq"] if last else 0,
        "priority": last["priority"] if last else -1,
        "at_scope": last["scope"] if last else "",
        "at_box": last["box"] if last else "",
    }
    return [mail(tx, row) for row in _rows(tx, place, state, asked, first=last is None)]


def _rows(tx: Tx, place: Place | None, state: str | None, asked: Row, *, first: bool) -> list[Row]:
    if state is None or state not in (*ENDED, "any"):
        return tx.all(SQL.waiting if place else SQL.waiting_all, **asked)
    newest = asked | {"seq": _LAST_SEQ} if first else asked
    if place is not None and state in ENDED:
        return tx.all(SQL.ended, **newest)
    return tx.all(SQL.any, **newest)


def _row_at(tx: Tx, after: str) -> Row:
    """The last row of a page, by its id: it has the columns of every order."""
    try:
        return claims.find(tx, after)
    except (NotFound, InvalidInput):
        raise no_cursor(after) from None


def receipt(tx: Tx, row: Row) -> Delivery:
    """The receipt of a mail."""
    found = mail(tx, row)
    attempts = tuple(attempt(one) for one in reversed(tx.all(SQL.attempts, id=row["id"], limit=SHOWN_MAX)))
    first = attempts[0].began_us if attempts and attempts[0].n == 1 else None
    if attempts and first is None:
        first = tx.one(SQL.first_attempt, id=row["id"])["began_us"]
    letters = _letters(tx, row["id"], 1) if found.state == "dead" else ()
    box = tx.maybe(SQL.box, scope=row["scope"], box=row["box"])
    seen_us = box["seen_us"] if box else None
    said = found.as_dict()
    return Delivery(
        **{name: said[name] for name in Delivery.field_names() if name in said and name != "attempts"},
        leased_us=first,
        by=found.agent,
        attempts=attempts,
        dead_letter=letters[0] if letters else None,
        box_seen_us=seen_us,
        words=_words(tx, row, found, seen_us, letters[0] if letters else None),
    )


def sent_by(tx: Tx, sender: str, *, limit: int, after: str | None) -> list[Delivery]:
    seq = _LAST_SEQ if after is None else _row_at(tx, after)["seq"]
    rows = tx.all(SQL.sent_by, scope=tx.caller.scope, sender=sender, seq=seq, limit=page_size(limit))
    return [receipt(tx, row) for row in rows]


def thread(tx: Tx, thread_id: str, limit: int) -> list[Mail]:
    return [mail(tx, row) for row in tx.all(SQL.thread, thread_id=thread_id, limit=page_size(limit))]


def show(tx: Tx, which: Which) -> Shown:
    row = claims.find(tx, which)
    events = tx.all(SQL.latest_events, id=row["id"], limit=SHOWN_MAX)
    return Shown(
        mail=mail(tx, row),
        delivery=receipt(tx, row),
        thread=tuple(thread(tx, row["thread_id"], SHOWN_MAX)),
        dead_letters=_letters(tx, row["id"], SHOWN_MAX)[::-1],
        history=tuple(journal.event(one) for one in reversed(events)),
    )


# -- private functions -------------------------------------------------------------------------------


def _letters(tx: Tx, id: str, limit: int) -> tuple[DeadLetter, ...]:
    rows = tx.all(SQL.letters_of, id=id, limit=limit)
    return tuple(DeadLetter(*(row[name] for name in DeadLetter.field_names()[:-1])) for row in rows)


def _words(tx: Tx, row: Row, found: Mail, seen_us: int | None, letter: DeadLetter | None) -> str:
    """The state of a mail in one sentence, for its sender."""
    now_us = tx.now_us()
    if found.state == "done":
        said = f": {found.reason}" if found.reason else ""
        return f"done by {found.agent} {_ago(now_us, found.ended_us)}{said}"
    if found.state == "dead":
        settled = (
            f"; {letter.settlement} by {letter.settled_by}: {letter.note or 'no note'}"
            if letter and letter.settlement
            else ""
        )
        return f"dead letter {_ago(now_us, found.ended_us)}: {found.reason}{settled}"
    if found.state == "expired":
        return f"expired: {found.reason or 'not claimed in time'}"
    if found.standing == "live":
        read = "read by" if found.state == "read" else "taken by"
        holder = leases.holder_text(found.holder)
        return f"{read} {found.agent} ({holder}), attempt {found.attempts} of {found.attempts_max}"
    return _waiting(tx, row, found, seen_us)


def _waiting(tx: Tx, row: Row, found: Mail, seen_us: int | None) -> str:
    now_us = tx.now_us()
    if found.standing != "free":
        holder = leases.holder_text(found.holder)
        return f"waiting: {holder} had it and is {'gone' if found.standing == 'gone' else 'late'}"
    why = f": {found.reason}" if found.reason else ""
    came = f", came back {found.attempts}×{why}" if found.attempts else ""
    if found.ready_us > now_us:
        return f"deferred for {format_duration(found.ready_us - now_us, parts=2)}{came}"
    if seen_us is None:
        return f"waiting: the box {found.box!r} has never been read{came}"
    ahead = tx.one(SQL.ahead, scope=row["scope"], box=row["box"], priority=row["priority"], seq=row["seq"])["n"]
    turn = f"behind {ahead} more" if ahead else "the next"
    return f"waiting: {turn} in {found.box!r}, which was last read {_ago(now_us, seen_us)}{came}"


def _ago(now_us: int, then_us: int | None) -> str:
    past_us = max(0, now_us - (then_us or now_us))
    return f"{format_duration(past_us, parts=1)} ago" if past_us >= 1_000_000 else "just now"
