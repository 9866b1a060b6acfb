"""Sending: once per key, within the bound of the box.

Each send counts the waiting mail of the box by its index, at most up to the bound, so there is no counter that could be
wrong. If fewer than NEAR places are free, senders on PostgreSQL take an advisory lock in turn. So only more than NEAR
concurrent sends can exceed the bound, by a few mails.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from standfast import crash, hints, serial
from standfast.core import journal, keys, leases
from standfast.core.checks import PRIORITY_DEFAULT, bounded_us
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, KeyConflict
from standfast.ids import new_id, short
from standfast.record.mail import addresses, changes, claims
from standfast.record.mail.addresses import Place
from standfast.record.mail.claims import Which
from standfast.record.mail.models import (
    ATTEMPTS_DEFAULT,
    BODY_MAX_BYTES,
    BOUND_DEFAULT,
    Mail,
    checked_attempts,
    checked_priority,
    checked_subject,
    mail,
)
from standfast.record.sessions import queries as sessions

SQL = load(__name__)

NEAR = 64
"""With fewer free places than this in the box, senders take the lock."""


class Draft(NamedTuple):
    """A mail as its sender gives it. `letter` checks it."""

    to: str | None
    """None for a reply: it goes to the sender of the mail it answers."""
    body: Any
    """JSON text in the result of `letter`."""
    key: str | None = None
    subject: str | None = None
    priority: int | None = None
    for_us: int | None = None
    expires_us: int | None = None
    attempts_max: int = ATTEMPTS_DEFAULT
    thread: Which | None = None
    reply_to: Which | None = None
    sender: str | None = None
    session: str | None = None
    host: str = ""
    cwd: str | None = None
    """The sender's host and working directory, set by `letter`."""


def letter(given: Draft) -> Draft:
    """The draft, checked and encoded, before there is a transaction. Raises InvalidInput."""
    return given._replace(
        body=serial.dumps(given.body, what="body", limit_bytes=BODY_MAX_BYTES),
        key=None if given.key is None else keys.checked(given.key, "a key"),
        subject=checked_subject(given.subject),
        priority=None if given.priority is None else checked_priority(given.priority),
        for_us=None if given.for_us is None else bounded_us(given.for_us, "a mail's time"),
        attempts_max=checked_attempts(given.attempts_max),
        sender=None if given.sender is None else addresses.checked(given.sender, "a sender"),
        host=os.uname().nodename,
        cwd=_cwd(),
    )


def send(tx: Tx, given: Draft) -> Mail | Conflict:
    """Add a mail to its box. For a key that was used before, returns the mail that was sent then.

    The refusal of a full box is returned, not raised, because it increments a counter in the same transaction.
    """
    about = _about(tx, given)
    before = None if given.key is None else tx.maybe(claims.SQL.by_key, scope=about["scope"], key=given.key)
    if before is not None:
        return _same_or_conflict(tx, before, about)
    full = box_full(tx, Place(about["scope"], about["box"]))
    if full is not None:
        return full
    crash.point("mail.before_send")
    row = tx.maybe(SQL.send, now_us=tx.now_us(), **about)
    if row is None:  # another process has just sent a mail with this key
        return _same_or_conflict(tx, tx.one(claims.SQL.by_key, scope=about["scope"], key=given.key), about)
    data: dict[str, serial.Json] = {"box": row["box"], "from": row["sender"], "hash": row["hash"]}
    if row["reply_to_id"]:
        data["reply_to"] = row["reply_to_id"]
    return mail(tx, row, changes.journal_change(tx, row, "mail.sent", data=data))


def set_bound(tx: Tx, place: Place, bound: int | None) -> Receipt:
    crash.point("mail.before_change")
    tx.run(SQL.set_bound, scope=place.scope, box=place.box, bound=bound, **tx.caller.labelled())
    words = f"{place.box}: at most {bound:,} mails" if bound else f"{place.box}: the usual bound"
    return journal.append(
        tx, "mail.bounded", f"box:{place.box}", scope=place.scope, summary=words, data={"bound": bound}
    )


# -- private functions -------------------------------------------------------------------------------


def _about(tx: Tx, given: Draft) -> Row:
    """The columns of the new mail."""
    answers = None if given.reply_to is None else claims.find(tx, given.reply_to)
    begun = answers if given.thread is None else claims.find(tx, given.thread)
    session = None if given.session is None else sessions.named(tx, given.session)
    place = _place(tx, given, answers)
    id = new_id("mal")
    subject = given.subject if given.subject is not None or answers is None else answers["subject"]
    priority = given.priority if given.priority is not None else answers["priority"] if answers else PRIORITY_DEFAULT
    reply_to_id = answers["id"] if answers else None
    expires_us = tx.now_us() + given.for_us if given.for_us is not None else given.expires_us
    named = {"to": place.box, "subject": subject, "reply_to": reply_to_id, "body": serial.read(given.body)}
    return {
        "id": id,
        "scope": place.scope,
        "box": place.box,
        "sender": given.sender or _sender(tx, answers),
        "thread_id": begun["thread_id"] if begun else id,
        "reply_to_id": reply_to_id,
        "subject": subject,
        "body": given.body,
        "hash": serial.hash(named, what="mail"),
        "key": given.key,
        "priority": priority,
        "attempts_max": given.attempts_max,
        "provenance": serial.dumps(_provenance(tx, given, session)),
        "session_id": session["id"] if session else None,
        "expires_us": expires_us,
        **tx.caller.labelled(),
    }


def _place(tx: Tx, given: Draft, answers: Row | None) -> Place:
    if given.to is not None:
        return addresses.placed(tx, given.to)
    assert answers is not None
    # An answer goes to the scope of its question, also if that is another one.
    return Place(serial.read(answers["provenance"])["scope"], addresses.checked(answers["sender"]))


def _sender(tx: Tx, answers: Row | None) -> str:
    """The default sender. An answer comes from the box of its question; for the box of a role, from the caller."""
    if answers is None or answers["box"].startswith("role:"):
        return tx.caller.actor
    return str(answers["box"])


def _provenance(tx: Tx, given: Draft, session: Row | None) -> dict[str, serial.Json]:
    """The real sender, recorded by standfast. No argument changes it."""
    found = leases.parse_process(tx.caller.holder)
    return {
        "actor": tx.caller.actor,
        "holder": tx.caller.holder,
        "host": given.host,
        "pid": found.pid if found else None,
        "scope": tx.caller.scope,
        "repository": tx.caller.label.name,
        "session": session["key"] if session else None,
        "cwd": given.cwd,
    }


def box_full(tx: Tx, place: Place) -> Conflict | None:
    """The refusal of a full box, or None. It increments a counter, so it is returned and not raised."""
    asked: Row = {"scope": place.scope, "box": place.box, "bound_default": BOUND_DEFAULT}
    found = tx.one(SQL.room_left, **asked)
    if found["bound"] - found["waiting"] > NEAR:
        return None
    tx.run(SQL.alone, name=f"mail {place.scope} {place.box}")
    found = tx.one(SQL.room_left, **asked)
    if found["waiting"] < found["bound"]:
        return None
    tx.run(SQL.refused, now_us=tx.now_us(), scope=place.scope, box=place.box, **tx.caller.labelled())
    return Conflict(
        f"the box {place.box!r} is full: it holds {found['waiting']:,} of at most {found['bound']:,}",
        f"nothing was sent; see its mail: {hints.command('mail', 'list', place.box)}    "
        f"(a higher bound: sf.mail.bound in Python)",
        code="box_full",
    )


def _same_or_conflict(tx: Tx, row: Row, about: Row) -> Mail:
    if row["hash"] == about["hash"]:
        return mail(tx, row, replayed=True)
    differing = [name for name in ("box", "subject", "reply_to_id", "body") if row[name] != about[name]]
    raise KeyConflict(
        f"the key {row['key']!r} was used for mail {short(row['id'])} to {row['box']!r}, "
        f"and this one differs in: {', '.join(differing)}",
        f"use another key for another mail; see the first one: {hints.command('mail', 'show', short(row['id']))}",
    )


def _cwd() -> str | None:
    try:
        return serial.clean(os.getcwd(), 500)
    except OSError:  # the working directory was deleted
        return None
