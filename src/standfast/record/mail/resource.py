"""`sf.mail`: the methods on mail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from standfast import crash, hints, serial
from standfast.clock import DAY_US, Deadline, Duration, Time, duration_s, duration_us
from standfast.core import journal
from standfast.core.checks import bounded_us, future_us, page_size
from standfast.core.claims import keep_while_alive
from standfast.core.journal import Event
from standfast.db.contract import Row, Tx
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import IllegalTransition, InProgress, InvalidInput, StandfastError
from standfast.ids import Id, short
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter
from standfast.record import agents
from standfast.record.followers import LOOK_AGAIN_S
from standfast.record.mail import addresses, claims, queries, readers
from standfast.record.mail import ask as asks
from standfast.record.mail import send as send_mail
from standfast.record.mail.addresses import Place
from standfast.record.mail.claims import Which
from standfast.record.mail.follow import Follow
from standfast.record.mail.models import (
    ATTEMPTS_DEFAULT,
    Delivery,
    Mail,
    Shown,
    Swept,
    checked_attempts,
    checked_bound,
    checked_reason,
    mail,
)
from standfast.record.mail.send import Draft

SWEEP_MAX = 200
UNTIL = ("leased", "read", "done")

# Inside the resource class `list` is a method, so annotations there use these names instead of `list[…]`.
MailList: TypeAlias = "list[Mail]"
DeliveryList: TypeAlias = "list[Delivery]"
LetterList: TypeAlias = "list[DeadLetter]"
EventList: TypeAlias = "list[Event]"
Ended: TypeAlias = "tuple[Mail, DeadLetter | None]"


class Mails(Resource):
    """Mail between agents: sent, claimed, read and done, or a dead letter with the reason."""

    __slots__ = ("_looked_s",)

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        super().__init__(store, tx)
        self._looked_s = float("-inf")

    # -- send ----------------------------------------------------------------------------------------

    def send(
        self,
        to: str,
        body: serial.Json,
        *,
        key: str | None = None,
        subject: str | None = None,
        priority: int | None = None,
        for_: Duration | None = None,
        expires: Time | None = None,
        attempts_max: int = ATTEMPTS_DEFAULT,
        thread: Which | None = None,
        reply_to: Which | None = None,
        sender: str | None = None,
        session: str | None = None,
    ) -> Mail:
        """Send BODY (- is stdin) to TO: an agent's name, role:NAME, session:KEY, or a session's id.

        - `key`: send it once per key; a repeated call returns the first mail.
        - `subject`: the line that lists show.
        - `priority`: set the priority; 0 is the most urgent.  [default: 2]
        - `for_`: let it expire if it is not read within this time: 2h.
        - `attempts_max`: make it a dead letter after N attempts.
        - `thread`: add it to the conversation of this mail.
        - `sender`: send answers to this address.  [default: this agent]
        - `session`: the session it comes from.

        The mail is on disk when this returns. A repeated `key` returns the first mail, `replayed`. `expires` is a time,
        instead of `for_`. Raises KeyConflict if the key was used for another mail, Conflict (`box_full`) if the box is
        full.
        """
        for_us = duration_us(for_, "for_")
        expires_us = future_us(expires, self.store.caller.clock.now_us(), "expires")
        if for_us is not None and expires_us is not None:
            raise InvalidInput("give only one of for_ and expires", 'for_="2h", or expires="fri 17:00"')
        draft = Draft(
            addresses.checked(to),
            body,
            key=key,
            subject=subject,
            priority=priority,
            for_us=for_us,
            expires_us=expires_us,
            attempts_max=attempts_max,
            thread=thread,
            reply_to=reply_to,
            sender=sender,
            session=session,
        )
        checked = send_mail.letter(draft)
        return self._write(lambda tx: send_mail.send(tx, checked))

    def reply(
        self,
        which: Which,
        body: serial.Json,
        *,
        done: bool = False,
        key: str | None = None,
        subject: str | None = None,
        priority: int | None = None,
        for_: Duration | None = None,
        attempts_max: int = ATTEMPTS_DEFAULT,
        sender: str | None = None,
        session: str | None = None,
    ) -> Mail:
        """Answer MAIL with BODY (- is stdin): to its sender, in its thread.

        - `done`: mark MAIL as done, in the same transaction.
        - `key`: send it once per key; a repeated call returns the first mail.
        - `subject`: the line that lists show.  [default: the subject of MAIL]
        - `sender`: send answers to this address.  [default: the box of MAIL]
        - `session`: the session it comes from.
        """
        for_us = duration_us(for_, "for_")
        draft = Draft(
            None,
            body,
            key=key,
            subject=subject,
            priority=priority,
            for_us=for_us,
            attempts_max=attempts_max,
            reply_to=which,
            sender=sender,
            session=session,
        )

        checked = send_mail.letter(draft)

        def send(tx: Tx) -> Mail | StandfastError:
            sent = send_mail.send(tx, checked)
            if done and isinstance(sent, Mail):
                claims.done(tx, which, "answered")  # if it raises, nothing was sent
            return sent

        return self._write(send)

    @query
    def has_reader(self, tx: Tx, to: str) -> bool:
        """Whether a live session or process reads the box TO now. Mail to a box without one waits."""
        return readers.any_live(tx, addresses.placed(tx, addresses.checked(to)))

    # -- claims and reads ----------------------------------------------------------------------------

    def claim(self, to: str | None = None, *, thread: Which | None = None, for_: Duration | None = None) -> Mail | None:
        """Claim the next mail of a box; None if none is ready. Without `to`, of the caller's own box.

        A process holds it while it lives, and an agent for 15 minutes (or `for_`) after its last command. Unless it is
        `done` by then, it returns to its box.
        """
        for_us = duration_us(for_, "for_")
        box, look = self._box(to), self._look()
        return self._handed(self._write(lambda tx: self._claim_next(tx, box, thread, for_us, look)))

    def read(
        self,
        which: Which | None = None,
        *,
        to: str | None = None,
        thread: Which | None = None,
        for_: Duration | None = None,
    ) -> Mail | None:
        """Claim a mail and mark it as read: the named one, or the next of a box. None if none is ready.

        Raises InProgress if another reader has the named one, IllegalTransition if it has ended.
        """
        for_us = duration_us(for_, "for_")
        if which is not None:
            return self._handed(self._write(lambda tx: claims.Claimed(_read_one(tx, which, for_us), ())))
        box, look = self._box(to), self._look()

        def read_next(tx: Tx) -> claims.Claimed:
            claimed = self._claim_next(tx, box, thread, for_us, look)
            if claimed.mail is None:
                return claimed
            row = claims.mark_read(tx, claims.locked(tx, claimed.mail), kept=True)
            return claimed._replace(mail=mail(tx, row, claimed.mail.receipt))

        return self._handed(self._write(read_next))

    def follow(
        self,
        to: str | None = None,
        *,
        thread: Which | None = None,
        for_: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Follow:
        """Yield mail as it comes: `for m in sf.mail.follow("reviewer"): …; sf.mail.done(m)`.

        The next iteration marks the mail as read. Unless you call `done`, it returns to its box when its lease ends.
        The iterator ends after `timeout` without mail; without a `timeout` it never ends.
        """
        for_us = duration_us(for_, "for_")
        timeout_s = duration_s(timeout, "timeout")
        refused_inside(self.tx, "mail.follow")
        box = self._box(to)

        def claim(before: Mail | None) -> Mail | None:
            look = self._look()

            def next(tx: Tx) -> claims.Claimed:
                if before is not None:
                    claims.go_on(tx, before)
                return self._claim_next(tx, box, thread, for_us, look)

            return self._handed(self._write(next))

        def is_ready() -> bool:
            return self._read(lambda tx: claims.is_ready(tx, *self._where(tx, box, thread)))

        return Follow(self, claim, is_ready, timeout_s)

    def answer(self, box: str, function: Callable[[Mail], serial.Json], *, timeout: Duration | None = None) -> int:
        """Answer each mail of `box` with what `function(mail)` returns, in a session of its own; returns how many.

        If the process is killed at any line, the next call resumes that session: its steps and effects are not
        repeated, and the sender gets one answer. If the function raises, it is called again later; after `attempts_max`
        attempts the mail is a dead letter. Waiting for a person (an approval, an effect in doubt) does not count as an
        attempt. A mail that is itself a reply is passed to the function and gets no reply. This call ends after
        `timeout` without mail; without a `timeout` it never ends.
        """
        refused_inside(self.tx, "mail.answer")
        return asks.answer(self, self._box(box), function, timeout=timeout)

    @transactional
    def renew(self, tx: Tx, which: Which, *, for_: Duration | None = None) -> Mail:
        """Renew the lease of a mail that you hold.

        - `for_`: hold it for this long from now.  [default: the duration of the claim]

        Not journalled. Raises LeaseLost if the caller no longer holds it.
        """
        for_us = duration_us(for_, "for_")
        return mail(tx, claims.CLAIMS.renew(tx, which, for_us) | {"kept": 1})

    # -- end of a claim ------------------------------------------------------------------------------

    @transactional
    def done(self, tx: Tx, which: Which, *, note: str | None = None) -> Mail:
        """Record that a mail was handled; refused (exit 4) if another holder has it.

        - `note`: record the result, which the sender can read.

        A repeated call by the same agent returns the first result. Raises LeaseLost if another holder has it or the
        given claim was lost; IllegalTransition if it has ended otherwise.
        """
        return claims.done(tx, which, checked_reason(note))

    def defer(
        self, which: Which, *, for_: Duration | None = None, until: Time | None = None, reason: str | None = None
    ) -> Mail:
        """Return a mail to its box until later. It counts as an attempt.

        - `for_`: deliver it again after this time: 10m, 2h.
        - `until`: deliver it again at this time: "mon 09:00", 2026-11-20.
        - `reason`: the reason, which the sender can read.

        After `attempts_max` attempts it becomes a dead letter, and the answer has that state. Raises LeaseLost
        if another reader holds it.
        """
        for_us = duration_us(for_, "for_")
        until_us = future_us(until, self.store.caller.clock.now_us(), "until")
        if (for_us is None) == (until_us is None):
            raise InvalidInput("defer needs one of for_ and until", "in a shell: --for 2h, or --until 'mon 09:00'")
        later_us = None if for_us is None else bounded_us(for_us, "a delay")
        words = checked_reason(reason)

        def back(tx: Tx) -> Ended:
            ready_us = until_us if later_us is None else tx.now_us() + later_us
            return claims.back(tx, which, "deferred", words, ready_us=ready_us)

        return self._told(self._write(back))

    def release(self, which: Which, *, reason: str | None = None) -> Mail:
        """Return a mail to its box for the next reader. It counts as an attempt.

        - `reason`: the reason, which the sender can read.
        """
        words = checked_reason(reason)
        return self._told(self._write(lambda tx: claims.back(tx, which, "returned", words)))

    def refuse(self, which: Which, reason: str) -> Mail:
        """Refuse a mail that no reader can handle: it is a dead letter at once.

        - `reason`: the reason why it cannot be handled; a person will read it.
        """
        words = checked_reason(reason)
        if words is None:
            raise InvalidInput("a reason is empty", "write a sentence: a person will read it")
        return self._told(self._write(lambda tx: claims.refuse(tx, which, words)))

    def sweep(self, *, limit: int = SWEEP_MAX) -> Swept:
        """Return mail of dead or late readers to its boxes, and mark expired mail. The daemon does this too.

        At most `limit` of each; with `more` in the result there may be more. Readers do not depend on it, because a
        claim checks the holders itself. It also returns the mail of a dead holder to a box that no reader polls.
        """
        size = page_size(limit)
        swept, buried = self._write(lambda tx: claims.sweep(tx, size))
        for letter in buried:
            self._tell(letter)
        return swept

    # -- dead letters --------------------------------------------------------------------------------

    @query
    def dead(
        self,
        tx: Tx,
        *,
        settled: bool = False,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> LetterList:
        """List dead letters with the reason, the newest first.

        - `settled`: include dead letters that were retried or resolved.
        """
        scope = None if everywhere else self.scope
        return dead_letters.page(tx, scope=scope, kind="mail", open_only=not settled, limit=limit, after=after)

    def retry(
        self,
        which: Which | DeadLetter,
        *,
        attempts: int = ATTEMPTS_DEFAULT,
        for_: Duration | None = None,
        note: str | None = None,
    ) -> Mail:
        """Return a dead or expired mail to its box.

        - `attempts`: allow N further attempts.
        - `for_`: let it expire after this time.  [default: never]
        - `note`: record why it should work now.

        Raises Conflict (`box_full`) if the box is full, IllegalTransition if it is not dead.
        """
        for_us = duration_us(for_, "for_")
        term_us = None if for_us is None else bounded_us(for_us, "a mail's time")
        more, words = checked_attempts(attempts), checked_reason(note)
        return self._write(lambda tx: self._retried(tx, which, more, term_us, words))

    def _retried(
        self, tx: Tx, which: Which | DeadLetter, attempts: int, for_us: int | None, note: str | None
    ) -> Mail | StandfastError:
        row = claims.written_down(tx, claims.locked(tx, self._subject(tx, which)))
        if row["state"] not in ("dead", "expired"):
            raise _not_dead(row)
        full = send_mail.box_full(tx, Place(row["scope"], row["box"]))
        if full is not None:
            return full
        crash.point("mail.before_retry")
        if row["state"] == "dead":
            letter = dead_letters.find(tx, row["id"])
            if letter is not None and letter.open:  # a resolved dead letter may still be sent again
                dead_letters.settle(tx, row["id"], "retried", note)
        expires_us = None if for_us is None else tx.now_us() + for_us
        return claims.revive(tx, row, attempts=attempts, expires_us=expires_us, note=note)

    @transactional
    def resolve(self, tx: Tx, which: Which | DeadLetter, *, note: str | None = None) -> DeadLetter:
        """Settle a dead letter that a person handled in another way: it is not delivered again.

        - `note`: record what was done instead.

        Raises NotFound if it is no dead letter, IllegalTransition if it was settled before.
        """
        row = claims.locked(tx, self._subject(tx, which))
        if row["state"] != "dead":
            raise _not_dead(row)
        crash.point("mail.before_retry")
        return dead_letters.settle(tx, row["id"], "resolved", checked_reason(note))

    # -- receipts ------------------------------------------------------------------------------------

    @query
    def delivered(self, tx: Tx, which: Which) -> Delivery:
        """The receipt of a mail, by its id or its key: its state and its attempts. Raises NotFound."""
        return queries.receipt(tx, claims.find(tx, which))

    @query
    def receipts(self, tx: Tx, *, sender: str | None = None, limit: int = 50, after: str | None = None) -> DeliveryList:
        """The receipts of the mail that the caller or `sender` sent, the newest first."""
        address = self.agent if sender is None else addresses.checked(sender, "a sender")
        return queries.sent_by(tx, address, limit=limit, after=after)

    def wait(self, which: Which, *, until: str = "done", timeout: Duration | None = None) -> Delivery:
        """Wait until the mail is done; or with `until`, until it is `"read"` or `"leased"`. Returns its receipt.

        Check `state` of the result: a dead or expired mail ends the wait too. Any process may wait. Raises InProgress
        after `timeout`, by default 24 h.
        """
        timeout_us = duration_us(timeout, "timeout")
        refused_inside(self.tx, "mail.wait")
        if until not in UNTIL:
            raise InvalidInput(f"until cannot be {serial.clean(until, 20)!r}", f"one of {', '.join(UNTIL)}")
        deadline = Deadline(self.store.caller.clock, DAY_US if timeout_us is None else timeout_us)
        with self.store.watch() as watch:
            while not _so_far(found := self.delivered(which), until):
                left_s = deadline.left_s
                if left_s <= 0:
                    raise InProgress(
                        f"mail {short(found.id)} to {found.box} is not {until} yet: {found.words}",
                        f"wait again, or see: {hints.command('mail', 'show', short(found.id))}",
                    )
                watch.wait(min(LOOK_AGAIN_S, left_s))
        if self.tx is None:
            self.store.sync()  # the state that was read is on disk before the caller acts on it
        return found

    # -- lists and details ---------------------------------------------------------------------------

    @query
    def get(self, tx: Tx, which: Which) -> Mail:
        """Get a mail by its id, the end of its id, or its key, without marking it as read. Raises NotFound."""
        return mail(tx, claims.find(tx, which))

    @query
    def list(
        self,
        tx: Tx,
        to: str | None = None,
        *,
        mine: bool = False,
        state: str | None = None,
        sender: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> MailList:
        """List the mail that waits for TO, or for all, in its order. Nothing is marked.

        - `to`: only list the mail of this box: reviewer, role:reviewer, session:fix-42.
        - `mine`: without TO, only list mail for this agent.
        - `state`: of this state.  [default: not ended]
        - `sender`: only list mail from this sender.

        Mail that has ended comes newest first. `after` is the `place` of the last one you have.
        """
        box = to or (self.agent if mine else None)
        place = None if box is None else addresses.placed(tx, addresses.checked(box))
        return queries.page(tx, place, state=state, sender=sender, everywhere=everywhere, limit=limit, after=after)

    @query
    def thread(self, tx: Tx, which: Which, *, limit: int = 50) -> MailList:
        """The conversation of a mail, the first mail first."""
        return queries.thread(tx, claims.find(tx, which)["thread_id"], limit)

    @query
    def show(self, tx: Tx, which: Which) -> Shown:
        """Show MAIL, by id or key: its body, every attempt with its reason, its thread. Nothing is marked."""
        return queries.show(tx, which)

    @query
    def history(self, tx: Tx, which: Which, *, after: int = 0, limit: int = 50) -> EventList:
        """Every change of a mail, in order. `after` is the `seq` of the last one you have."""
        row = claims.find(tx, which)
        return journal.Journal(self.store, tx).about(row["id"], after=after, limit=limit)

    def bound(self, to: str, bound: int | None) -> None:
        """Set the number of mails that may wait in a box; None for the default of 1,000. A full box refuses mail."""
        box, most = addresses.checked(to), None if bound is None else checked_bound(bound)
        self._write(lambda tx: send_mail.set_bound(tx, addresses.placed(tx, box), most))

    # -- private functions ---------------------------------------------------------------------------

    def _box(self, to: str | None) -> str:
        return addresses.checked(self.agent if to is None else to)

    def _where(self, tx: Tx, box: str, thread: Which | None) -> tuple[Place, str]:
        place = addresses.placed(tx, box)
        if thread is None:
            return place, ""
        return place, thread.thread_id if isinstance(thread, Mail) else claims.find(tx, thread)["thread_id"]

    def _claim_next(self, tx: Tx, box: str, thread: Which | None, for_us: int | None, look: bool) -> claims.Claimed:
        place, thread_id = self._where(tx, box, thread)
        return claims.claim_next(tx, place, thread_id=thread_id, for_us=for_us, look=look)

    def _look(self) -> bool:
        """Whether to check for dead holders now. Most checks find none, so a busy box is not checked at every
        claim."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_AGAIN_S:
            return False
        self._looked_s = now_s
        return True

    def _handed(self, claimed: claims.Claimed) -> Mail | None:
        """After the transaction: send notices of dead letters, and renew the lease of the claimed mail."""
        for letter in claimed.buried:
            self._tell(letter)
        if claimed.mail is not None:
            keep_while_alive(self.store, self.tx, claimed.mail.holder)
            agents.notice(self.store, self.tx)
        return claimed.mail

    def _told(self, ended: Ended) -> Mail:
        if ended[1] is not None:
            self._tell(ended[1])
        return ended[0]

    def _tell(self, letter: DeadLetter) -> None:
        dead_letters.tell(self.store, letter, hints.command("mail", "show", short(letter.subject)), tx=self.tx)

    def _leave(self, held: Mail) -> None:
        """Let the lease end by time for the mail of a follower that was closed."""
        self.store.write(lambda tx: claims.let_age(tx, held), durable=False)

    def _subject(self, tx: Tx, which: Which | DeadLetter) -> Which:
        """The mail of a dead letter, which may be named by the dead letter's own id."""
        if isinstance(which, DeadLetter):
            return which.subject
        if isinstance(which, str) and which.startswith("ddl_"):
            letter = dead_letters.find(tx, which)
            return which if letter is None else letter.subject
        return which


def _so_far(found: Delivery, until: str) -> bool:
    if found.settled:
        return True
    if until == "leased":
        return found.leased_us is not None
    return until == "read" and found.read_us is not None


def _not_dead(row: Row) -> IllegalTransition:
    return IllegalTransition(
        f"{claims.named(row)} is {row['state']}, not a dead letter", hints.command("mail", "show", short(row["id"]))
    )


def _read_one(tx: Tx, which: Which, for_us: int | None) -> Mail:
    held = claims.take(tx, claims.locked(tx, which), for_us)
    return mail(tx, claims.mark_read(tx, held, kept=True))
