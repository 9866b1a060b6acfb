"""`sf.webhooks`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, overload

from standfast import crash, hints, serial
from standfast.clock import Duration, duration_us
from standfast.core import journal, keys, user_code
from standfast.core.checks import NAME_MAX, bounded_us, one_of, page_size
from standfast.core.claims import keep_while_alive
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, raised, refused_inside, transactional
from standfast.errors import InvalidInput, LeaseLost
from standfast.ids import Id, short
from standfast.ledger import dead_letters
from standfast.ledger.dead_letters import DeadLetter
from standfast.ledger.webhooks import claims
from standfast.ledger.webhooks import receive as receive_webhook
from standfast.ledger.webhooks.claims import Changed, Which
from standfast.ledger.webhooks.models import ATTEMPTS_DEFAULT, STATES, Handled, Shown, WebhookEvent, event_of

SQL = load(__name__)

ROUND_MAX = 1000
HISTORY_MAX = 200

Do = Callable[[WebhookEvent], Any]
# Inside the resource class `list` is a method, so annotations there use these names instead of `list[…]`.
EventList: TypeAlias = "list[WebhookEvent]"
LetterList: TypeAlias = "list[DeadLetter]"

_LAST = "whk_z"  # greater than every id in every collation, because ids begin with 0 to 7


class Webhooks(Resource):
    """Events that senders deliver: receive, handle, retry and list them."""

    __slots__ = ()

    # -- deliveries ----------------------------------------------------------------------------------

    def receive(
        self,
        source: str,
        event_id: str,
        payload: serial.Json,
        *,
        kind: str | None = None,
        ignore: Iterable[str] = (),
        attempts_max: int = ATTEMPTS_DEFAULT,
        do: Do | None = None,
    ) -> WebhookEvent:
        """Record one delivery. `source` and `event_id` identify the event. Later deliveries get the `state` and the
        `result` of the first, with `fresh=False`.

        With `do`, handle the event now: `do(event)` is called outside any transaction, and its result is recorded. A
        later delivery returns the recorded result and calls nothing. An exception of `do` is recorded as a failed
        attempt and raised; the next delivery, or `handle`, tries again.

        Raises KeyConflict if the payload differs; fields in `ignore` are not compared. With `do`, also raises
        InProgress while another worker has the event, and IllegalTransition for a dead one.
        """
        if do is not None:
            refused_inside(self.tx, "webhooks.receive(do=…)")
            _awaitable(do)
        got = receive_webhook.delivery(source, event_id, payload, kind=kind, ignore=ignore, attempts_max=attempts_max)
        event = self._write(lambda tx: receive_webhook.receive(tx, self.scope, got))
        return event if do is None else self._answered(event, do)

    def _answered(self, event: WebhookEvent, do: Do) -> WebhookEvent:
        if event.state == "done":
            return event
        held = self.claim(event.id)
        try:
            answer = _called(do, held)
        except BaseException as error:
            error.add_note(self._noted(held, error))
            raise
        return self.done(held, answer).replace(fresh=event.fresh)

    def _noted(self, held: WebhookEvent, error: BaseException) -> str:
        """Record a failed attempt. Returns a note for its exception."""
        try:
            state = self.fail(held, _reason(error)).state
        except LeaseLost:
            state = "lost"
        ends = {"dead": "it is a dead letter now", "lost": "another worker has it by now"}
        again = ends.get(state, "it will be tried again")
        return f"webhook event {held.name} failed, and {again}: {hints.command('webhook', 'show', short(held.id))}"

    # -- claims --------------------------------------------------------------------------------------

    @overload
    def claim(self, which: Which, *, for_: Duration | None = None) -> WebhookEvent: ...

    @overload
    def claim(
        self, which: None = None, *, source: str | None = None, kind: str | None = None, for_: Duration | None = None
    ) -> WebhookEvent | None: ...

    def claim(
        self,
        which: Which | None = None,
        *,
        source: str | None = None,
        kind: str | None = None,
        for_: Duration | None = None,
    ) -> WebhookEvent | None:
        """Claim an event, or the one that has waited longest. Prints its id; exit 3 if none is ready.

        - `source`: only list rows from this source.
        - `kind`: only list tasks of this kind.
        - `for_`: hold it for this long after your last command.  [default: 15m]

        A process holds it while it lives. Returns None if no event is ready. Raises InProgress if a live holder has
        the named one, IllegalTransition if it has ended.
        """
        for_us = duration_us(for_, "for_")

        def claim(tx: Tx) -> Changed:
            if which is not None:
                return claims.claim(tx, which, for_us)
            return claims.claim_next(tx, source=source or "", kind=kind or "", for_us=for_us)

        changed = self._write(claim)
        self._tell(changed)
        event = raised(changed.event)
        if event is not None:
            keep_while_alive(self.store, self.tx, event.holder)
        return event

    @transactional
    def renew(self, tx: Tx, which: Which, *, for_: Duration | None = None) -> WebhookEvent:
        """Renew the lease of an event that you hold.

        - `for_`: hold it for this long from now.  [default: the duration of the claim]

        Not journalled. Raises LeaseLost if the caller no longer holds it.
        """
        for_us = duration_us(for_, "for_")
        return event_of(tx, claims.CLAIMS.renew(tx, which, for_us))

    @transactional
    def done(self, tx: Tx, which: Which, result: serial.Json = None) -> WebhookEvent:
        """Record that an event was handled; refused (exit 4) if another holder has it.

        - `result`: answer repeated deliveries with this JSON or text.

        A repeated call by the same agent returns the first result. Raises LeaseLost if a live holder has it or the
        given claim was lost; IllegalTransition if it is dead, or if another agent handled it.
        """
        return claims.done(tx, which, None if result is None else serial.dumps(result, what="result"))

    def fail(self, which: Which, reason: str, *, again: Duration | None = None, dead: bool = False) -> WebhookEvent:
        """Record that handling an event failed. It is retried later; after the last attempt it is a dead letter.

        - `reason`: record what went wrong.
        - `again`: retry after this time.  [default: 30s, doubled each time up to 1h]
        - `dead`: make it a dead letter now, without a retry.

        Raises LeaseLost if the caller does not hold it.
        """
        again_us = duration_us(again, "again")
        if again_us is not None:
            bounded_us(again_us, "again_us", least_us=0, most_us=claims.AGAIN_MAX_US, hint="for example: --again-in 5m")
        if not isinstance(reason, str):
            raise InvalidInput(f"a reason is text, not {type(reason).__name__}")
        changed = self._write(lambda tx: claims.fail(tx, which, reason, again_us=again_us, dead=dead))
        self._tell(changed)
        event = raised(changed.event)
        assert event is not None
        return event

    def handle(self, source: str, fn: Do, *, kind: str | None = None, limit: int = ROUND_MAX) -> Handled:
        """Call `fn(event)` for every event of `source` that is ready, one after another, until none is left.

        The returned value is the event's result. An exception is recorded as a failed attempt, and the next event is
        handled. `Handled` has the counts. `fn` may be async under `aopen`.
        """
        refused_inside(self.tx, "webhooks.handle")
        _awaitable(fn)
        keys.checked(source, "a webhook's source", limit=NAME_MAX)
        ends = {"done": 0, "received": 0, "dead": 0, "lost": 0}
        for _ in range(page_size(limit, ROUND_MAX)):
            event = self.claim(source=source, kind=kind)
            if event is None:
                break
            ends[self._handled(event, fn)] += 1
        return Handled(ends["done"], ends["received"], ends["dead"], ends["lost"])

    def _handled(self, event: WebhookEvent, fn: Do) -> str:
        try:
            try:
                answer = _called(fn, event)
            except BaseException as error:
                state = self.fail(event, _reason(error)).state
                if isinstance(error, Exception):
                    return state
                raise
            return self.done(event, answer).state
        except LeaseLost:
            return "lost"

    # -- dead letters ---------------------------------------------------------------------------------

    @transactional
    def retry(self, tx: Tx, which: Which, *, note: str | None = None) -> WebhookEvent:
        """Make an event ready now. A dead letter gets all its attempts again.

        - `note`: record what has changed.

        Raises IllegalTransition for one that is done, InProgress while a live holder has it.
        """
        return claims.retry(tx, which, note)

    @transactional
    def resolve(self, tx: Tx, which: Which, *, note: str, result: serial.Json = None) -> WebhookEvent:
        """Mark a dead letter as done, because a person handled the event in another way.

        - `note`: record how it was handled.
        - `result`: answer repeated deliveries with this JSON or text.

        Raises IllegalTransition for one that is not dead.
        """
        return claims.resolve(tx, which, note, None if result is None else serial.dumps(result, what="result"))

    @query
    def dead(
        self, tx: Tx, *, everywhere: bool = False, settled: bool = False, after: Id | None = None, limit: int = 50
    ) -> LetterList:
        """List dead letters with the reason, the newest first.

        - `settled`: include dead letters that were retried or resolved.
        """
        scope = None if everywhere else self.scope
        return dead_letters.page(tx, scope=scope, kind="webhook", open_only=not settled, limit=limit, after=after)

    # -- lists -------------------------------------------------------------------------------------

    @query
    def get(self, tx: Tx, which: Which) -> WebhookEvent:
        """One event by its id, the end of its id, or `source/event id`. Raises NotFound."""
        return event_of(tx, claims.find(tx, which))

    @query
    def show(self, tx: Tx, which: Which) -> Shown:
        """Show an event: its body, its result, its dead letter, and every change.

        Raises NotFound.
        """
        row = claims.find(tx, which)
        events = tx.all(journal.SQL.about, subject=row["id"], seq=0, limit=HISTORY_MAX)
        return Shown(
            event_of(tx, row),
            dead_letters.find(tx, row["id"]),
            tuple(journal.event(event) for event in events),
        )

    @query
    def list(
        self,
        tx: Tx,
        *,
        state: str | None = None,
        source: str | None = None,
        kind: str | None = None,
        everywhere: bool = False,
        after: Id | None = None,
        limit: int = 50,
    ) -> EventList:
        """List received events, the newest first.

        - `state`: only in this state.
        - `source`: only list rows from this source.
        - `kind`: only list tasks of this kind.
        - `after`: start after this id, the last one of the page before.
        """
        if state is not None:
            one_of(state, STATES, "the state of a webhook event")
        asked: Row = {
            "scope": self.scope,
            "everywhere": int(everywhere),
            "source": source or "",
            "kind": kind or "",
            "after": after or _LAST,
            "limit": page_size(limit),
        }
        if state == "received":
            rows = tx.all(SQL.waiting, **asked)
        elif state == "dead":
            rows = tx.all(SQL.dead, **asked)
        else:
            rows = tx.all(SQL.page, state=state or "", **asked)
        return [event_of(tx, row) for row in rows]

    # -- private functions -----------------------------------------------------------------------------

    def _tell(self, changed: Changed) -> None:
        for letter in changed.letters:
            hint = hints.command("webhook", "show", short(letter.subject))
            dead_letters.tell(self.store, letter, hint, tx=self.tx)


def _awaitable(fn: Do) -> None:
    """Refuse what cannot be called, and an async handler without an event loop, before an attempt is used."""
    from inspect import iscoroutinefunction

    if not callable(fn):
        raise InvalidInput(f"a handler is a function of one event, not {type(fn).__name__}")
    if iscoroutinefunction(fn) and not user_code.bridged():
        raise user_code.NotAwaited(fn)


def _called(fn: Do, event: WebhookEvent) -> serial.Json:
    """The returned value as JSON. A value that cannot be stored is a failure of the handler."""
    try:
        return serial.encode(user_code.call(fn, event), what="result")
    finally:
        crash.point("webhook.after_handle")


def _reason(error: BaseException) -> str:
    words = serial.clean(str(error), 1000)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
