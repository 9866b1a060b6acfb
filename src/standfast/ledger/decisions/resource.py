"""`sf.decisions`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from standfast.clock import Time
from standfast.core import journal, repositories
from standfast.core.checks import FAR_FUTURE_US, like, one_of, page_size, past_us
from standfast.db.contract import Tx
from standfast.db.store import Resource, query, transactional
from standfast.ids import Id
from standfast.ledger.decisions.changes import SQL, ended, find, place_of, recorded, reopened, standing_order
from standfast.ledger.decisions.models import (
    STATES,
    TEXT_MAX,
    WHAT_MAX,
    Caught,
    Decision,
    Unwritten,
    caught_of,
    checked,
    checked_tag,
    checked_text,
    decision_of,
    outcome_text,
)

UNWRITTEN = "decision:unwritten"
"""The subject of journal rows about decisions that were made but not recorded."""

# Inside the resource class `list` is a method, so annotations there use this name instead of `list[…]`.
DecisionList: TypeAlias = "list[Decision]"
CaughtList: TypeAlias = "list[Caught]"
UnwrittenList: TypeAlias = "list[Unwritten]"


class Decisions(Resource):
    """Decisions: record, close, withdraw and list them."""

    __slots__ = ()

    @transactional
    def record(
        self,
        tx: Tx,
        what: str,
        *,
        why: str | None = None,
        then: str | None = None,
        session: object = None,
        tags: Collection[str] = (),
        agent: str | None = None,
        standing: bool = False,
    ) -> Decision:
        """Record a decision before acting on it. It stays open until you close it with its outcome.

        - `why`: the reason.
        - `then`: record what you do next.
        - `session`: the session it belongs to.
        - `tags`: add this topic; may be given several times.
        - `agent`: the agent that decided.  [default: the caller]
        - `standing`: make it a standing order, which applies until it is withdrawn.

        Recording the same `what` and `then` again returns the decision that is open or standing.
        """
        said = checked(what, why, then, tags, agent)
        place = place_of(tx, self.scope, session)
        return standing_order(tx, said, place) if standing else recorded(tx, said, place)

    @transactional
    def done(self, tx: Tx, which: str, outcome: object = None) -> Decision:
        """Close an open decision with its outcome.

        - `outcome`: record the result.

        Raises IllegalTransition if it is not open.
        """
        return ended(tx, which, "done", outcome_text(outcome))

    @transactional
    def fail(self, tx: Tx, which: str, why: object = None) -> Decision:
        """Close an open decision as failed: the plan was not carried out, or did not work.

        - `why`: record what went wrong.
        """
        return ended(tx, which, "failed", outcome_text(why))

    @transactional
    def withdraw(self, tx: Tx, which: str, why: object = None) -> Decision:
        """Withdraw a standing order, or an open decision that is no longer followed.

        - `why`: record why it no longer applies.
        """
        return ended(tx, which, "withdrawn", outcome_text(why), also="standing")

    @transactional
    def reopen(self, tx: Tx, which: str) -> Decision:
        """Open a closed or withdrawn decision again. A standing order applies again.

        Does nothing if it is open. Raises Conflict if the same standing order was recorded since.
        """
        return reopened(tx, which)

    @query
    def show(self, tx: Tx, which: str) -> Decision:
        """Show one decision, by its id or the end of its id."""
        return find(tx, which)

    @query
    def list(
        self,
        tx: Tx,
        *,
        agent: str | None = None,
        tag: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        text: str | None = None,
        state: str | None = None,
        session: object = None,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> DecisionList:
        """List decisions: standing orders first, then the newest.

        - `agent`: only by this agent.
        - `tag`: only list texts with this topic.
        - `since`: only list rows since this time: 7d, "mon 09:00".
        - `until`: only list rows before this time.
        - `text`: only list decisions with this text in what, why, then or the outcome.
        - `state`: only in this state.
        - `session`: only of this session.
        - `after`: start after this id, the last one of the page before.
        """
        if state is not None:
            one_of(state, STATES, "the state of a decision")
        rows = tx.all(
            SQL.page,
            **self.keyspace._asdict(),
            everywhere=int(everywhere),
            agent=agent or "",
            tag=f"%,{like(checked_tag(tag))},%" if tag else "",
            since_us=-FAR_FUTURE_US if since is None else past_us(since, tx.now_us(), "since"),
            until_us=FAR_FUTURE_US if until is None else past_us(until, tx.now_us(), "until"),
            text=f"%{like(text)}%" if text else "",
            state=state or "",
            session=str(getattr(session, "id", session)) if session is not None else "",
            after=after or "",
            limit=page_size(limit),
        )
        return [decision_of(row) for row in rows]

    def incomplete(
        self, *, session: object = None, everywhere: bool = False, limit: int = 50, after: str | None = None
    ) -> DecisionList:
        """List open decisions, with the state of their sessions. A recovery looks at these first."""
        return self.list(state="open", session=session, everywhere=everywhere, limit=limit, after=after)

    @transactional
    def catch(
        self,
        tx: Tx,
        what: str,
        *,
        control: str,
        notes: str | None = None,
        session: object = None,
    ) -> Caught:
        """Record that a decision was made but not recorded, and which control noticed it.

        - `control`: the review, check or person that noticed it.
        - `notes`: record how it was noticed.
        - `session`: the session it was made in.

        The journal marks it as a report (`said`).
        """
        what, control = checked_text(what, "what", WHAT_MAX), checked_text(control, "control", 200)
        notes = checked_text(notes, "notes", TEXT_MAX) if notes is not None else None
        place = place_of(tx, self.scope, session)
        data = {"what": what, "control": control, "notes": notes}
        receipt = journal.append(
            tx, "decision.caught", UNWRITTEN, summary=what, data=data, session_id=place.session_id, source="said"
        )
        return Caught(what, control, notes, place.session_id, tx.caller.actor, tx.now_us(), None, receipt)

    @query
    def caught(self, tx: Tx, *, everywhere: bool = False, limit: int = 50, after: int | None = None) -> CaughtList:
        """List decisions that controls found to be unrecorded, the newest first.

        - `after`: start after this `seq`, the last one of the page before.
        """
        rows = tx.all(
            SQL.caught,
            subject=UNWRITTEN,
            scope=self.scope,
            everywhere=int(everywhere),
            before_seq=after if after is not None else FAR_FUTURE_US,
            limit=page_size(limit),
            **repositories.filtered(tx, everywhere=everywhere),
        )
        return [caught_of(journal.event(row)) for row in rows]

    @query
    def unwritten(self, tx: Tx, session: object, *, limit: int = 50, after: Id | None = None) -> UnwrittenList:
        """List effects of a session that were sent while no decision was open in it, in order.

        - `after`: start after this effect's id, the last one of the page before.
        """
        place = place_of(tx, self.scope, session)
        rows = tx.all(SQL.unwritten, session_id=place.session_id, after=after or "", limit=page_size(limit))
        return [Unwritten.from_row(row) for row in rows]
