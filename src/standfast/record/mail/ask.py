"""A question to another agent, and its answer: `s.ask(…)` in one process, `sf.mail.answer(…)` in another.

A question is one mail per key. Its answer is the first reply that `ask` took. Both are rows, so a program that is
killed at any line and runs again gets the same answer. `ask` marks the reply as done in the transaction that takes it.

A question that expired or became a dead letter raises NoAnswer. The next call sends a new mail in the same thread, and
a late answer to the first mail counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from standfast import crash, hints, log, serial
from standfast.clock import SECOND_US, Duration, format_duration, iso
from standfast.core import user_code
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import ApprovalRequired, Conflict, EffectInDoubt, LeaseLost, NoAnswer
from standfast.ids import short
from standfast.record.followers import LOOK_AGAIN_S
from standfast.record.mail import addresses, claims
from standfast.record.mail import send as send_mail
from standfast.record.mail.models import Mail, mail

if TYPE_CHECKING:
    from standfast.ledger.openings import Opening
    from standfast.record.mail.resource import Ended, Mails

SQL = load(__name__)

ASKED_MAX = 1_000
"""Mails for one question, including those that expired."""
WAITING = ("planned", "dispatched", "requested")
"""In these states an effect or an approval waits for a person. Such a wait does not count as an attempt."""
SETTLED = ("acknowledged", "failed", "granted")
"""In these states a person has answered meanwhile: deliver the mail again at once. It counts as an attempt."""


class Question(NamedTuple):
    """One question of a session, by its key."""

    to: str
    body: serial.Json
    key: str
    session: str
    session_key: str
    timeout_us: int

    def mail_key(self, n: int) -> str:
        return f"ask:{self.session}:{self.key}" + (f"#{n}" if n > 1 else "")

    def draft(self, n: int, thread: str | None) -> send_mail.Draft:
        return send_mail.letter(
            send_mail.Draft(
                addresses.checked(self.to),
                self.body,
                key=self.mail_key(n),
                for_us=self.timeout_us,
                thread=thread,
                sender=f"session:{self.session_key}",
                session=self.session,
            )
        )


def ask(opening: Opening, to: str, body: serial.Json, *, key: str, timeout_us: int) -> serial.Json:
    """Send the question once, wait, and return the answer. After a crash, the same call returns the same answer."""
    user_code.refuse_nested(f"the question {serial.clean(key, 60)!r}")
    opening.usable()
    question = Question(to, body, key, opening.session_id, opening.session_key, timeout_us)
    store = opening.store
    sent = store.write(lambda tx: _asked(tx, question))
    if isinstance(sent, Conflict):
        raise sent
    asked: Mail = sent
    crash.point("mail.after_ask")
    with store.watch() as watch:
        while True:
            # The transaction of a reply also ends the question. Read the question first, so that no reply is missed.
            (left_s, now), replies = store.read(lambda tx: (_left(tx, asked.id), _replies(tx, asked)))
            if replies:
                return store.write(lambda tx: _take_answer(tx, asked))
            if left_s <= 0:
                raise _no_answer(now, question)
            watch.wait(min(LOOK_AGAIN_S, left_s))


def _left(tx: Tx, id: str) -> tuple[float, Mail]:
    """The seconds until the question expires, 0 if it has ended, and the question itself."""
    found = mail(tx, claims.find(tx, id))
    if found.ended or found.state in ("dead", "expired"):
        return 0.0, found
    if found.expires_us is None:
        return float("inf"), found
    return (found.expires_us - tx.now_us()) / SECOND_US, found


def _asked(tx: Tx, question: Question) -> Mail | Conflict:
    """The newest mail of the question. If it ended without an answer, another one is sent."""
    found = send_mail.send(tx, question.draft(1, None))
    if not isinstance(found, Mail):
        return found
    first = found
    for n in range(2, ASKED_MAX):
        if _left(tx, found.id)[0] > 0 or _replies(tx, first):  # in this order: see `ask`
            return found
        again = send_mail.send(tx, question.draft(n, first.id))
        if not isinstance(again, Mail):
            return again
        found = again
    return found


def _replies(tx: Tx, asked: Mail) -> list[Row]:
    """The replies to the session that asked. The reply that was taken comes first."""
    return tx.all(SQL.replies, thread_id=asked.thread_id, box=asked.sender, limit=ASKED_MAX)


def _take_answer(tx: Tx, asked: Mail) -> serial.Json:
    rows = _replies(tx, asked)
    for row in rows:
        if row["ended_us"] is None or row["state"] == "expired":
            with suppress(LeaseLost):  # another reader of the session's box holds it; its body is still the answer
                _end_reply(tx, row["id"])
    return serial.read(rows[0]["body"])


def _end_reply(tx: Tx, id: str) -> None:
    """Mark a reply as done, even if it expired before the asking process restarted."""
    row = claims.written_down(tx, claims.locked(tx, id))
    if row["state"] == "expired":
        claims.revive(tx, row, attempts=1, expires_us=None, note="asked for again")
    claims.done(tx, id, "taken by ask")


def _no_answer(asked: Mail, question: Question) -> NoAnswer:
    waited = format_duration((asked.ended_us or asked.expires_us or asked.sent_us) - asked.sent_us, parts=2)
    how = f"after {waited}"
    if asked.state == "dead":
        how = f"it became a dead letter: {asked.reason}"
    elif asked.state == "done":
        how = f"{asked.agent} marked it done without a reply"
    return NoAnswer(
        f"no answer from {asked.box} to {serial.clean(question.key, 60)!r}, asked at {iso(asked.sent_us)}: {how}",
        f"the same call asks again; see the question: {hints.command('mail', 'show', short(asked.id))}",
    )


# -- answers -----------------------------------------------------------------------------------------------


def answer(mails: Mails, box: str, function: Callable[[Mail], serial.Json], *, timeout: Duration | None) -> int:
    """Answer the mail of a box until none comes for `timeout`. Returns how many mails were answered."""
    answered = 0
    with mails.follow(box, timeout=timeout) as arriving:
        for one in arriving:
            answered += _answer_one(mails, one, function)
    return answered


def _answer_one(mails: Mails, one: Mail, function: Callable[[Mail], serial.Json]) -> bool:
    """Run the function in a session for this mail, which the next attempt resumes, and reply once."""
    from standfast.record.open_session import Session, last_line

    try:
        with Session(mails.store, f"mail:{one.id}", agent=one.box.removeprefix("role:")) as session:
            body = function(one)
        crash.point("mail.before_answer")
        _reply(mails, one, body, session.id)
    except Exception as error:  # noqa: BLE001  an error of the user's function must not stop the other mails
        # The session has the steps and effects so far, and the next attempt resumes it. The last attempt ends dead.
        _defer(mails, one, error, last_line(error))
        log.warning(f"mail {short(one.id)} in {one.box} was not answered: {last_line(error)}")
        return False
    return True


def _defer(mails: Mails, one: Mail, error: Exception, reason: str) -> None:
    def back(tx: Tx) -> Ended:
        doubt = error.effect_id if isinstance(error, EffectInDoubt) else ""
        approval = error.approval_id if isinstance(error, ApprovalRequired) else ""
        row = tx.maybe(SQL.awaited, effect_id=doubt, approval_id=approval)
        state = row["state"] if row else ""
        later_s = (60 if row else 1) << min(one.attempts, 10)
        ready_us = 0 if state in SETTLED else tx.now_us() + later_s * SECOND_US
        return claims.back(tx, one, "deferred", reason, ready_us=ready_us, one_more=state in WAITING)

    mails._told(mails._write(back))


def _reply(mails: Mails, one: Mail, body: serial.Json, session: str) -> None:
    """Reply and mark the mail as done, in one transaction. The reply expires when the asker stops waiting.

    A reply gets no reply: otherwise two agents that answer would write to each other forever.
    """
    if one.reply_to_id is not None:
        mails.done(one, note="a reply is not answered")
        return
    left_s = None
    if one.expires_us is not None:
        left_s = max((one.expires_us - mails.store.read(lambda tx: tx.now_us())) / SECOND_US, 1.0)
    mails.reply(one, body, done=True, key=f"answer:{one.id}", for_=left_s, session=session)
