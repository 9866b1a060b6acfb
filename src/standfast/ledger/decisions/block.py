"""`s.decide(…)`: a decision of a session. Leaving its block closes it."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.errors import ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StandfastError, StorageError
from standfast.ids import short
from standfast.ledger import current
from standfast.ledger.decisions.changes import SQL, Place, added, close, find, journal_change
from standfast.ledger.decisions.models import Decision, Said, checked, decision_of, last_line, outcome_text
from standfast.ledger.openings import Opening

# Errors that leave a decision open: its work waits for a person, another holder, or the store.
_IN_THE_WAY = (ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StorageError)


def decide(
    opening: Opening,
    what: str,
    *,
    why: str | None = None,
    then: str | None = None,
    tags: Iterable[str] = (),
    agent: str | None = None,
) -> Deciding:
    """Commit a decision before the program acts on it. Leaving the block closes it.

        with s.decide("edit parser.py", why="the test names it", then="patch, test, open a PR") as d:
            ...
            d.outcome = "patched"

    A later opening that reaches it again gets the same decision. It takes an open or failed one up, and leaves a done
    one as it is. The second time in one opening is another decision.
    """
    opening.usable()
    said = checked(what, why, then, tags if isinstance(tags, str) else tuple(tags), agent or opening.agent)
    counted = f"{opening.node_id} {said.identity}"
    n = opening.number("decision", counted)
    try:
        crash.point("decision.before_write")
        decision, resumed = opening.store.write(lambda tx: _reached(tx, opening, said, n))
    except BaseException:
        opening.take_back("decision", counted)
        raise
    crash.point("decision.after_write")
    return Deciding(opening, decision, resumed=resumed)


class Deciding:
    """A decision while its block runs. `outcome` is recorded when the block ends."""

    awaited = True
    """True if the caller awaits the block's methods under an event loop."""

    def __init__(self, opening: Opening, decision: Decision, *, resumed: bool) -> None:
        self._opening = opening
        self._store = opening.store
        self.decision = decision
        self.resumed = resumed
        """Whether an earlier opening wrote it. Then look at the record before you do the work again."""
        self.outcome: object = decision.outcome
        self._entered = False

    @property
    def id(self) -> str:
        return self.decision.id

    @property
    def what(self) -> str:
        return self.decision.what

    @property
    def state(self) -> str:
        return self.decision.state

    def done(self, outcome: object = None) -> Decision:
        """Close it now, before the block ends or without a block."""
        if outcome is not None:
            self.outcome = outcome
        return self._close("done", outcome_text(self.outcome))

    def fail(self, why: object = None) -> Decision:
        """Close it as failed: the plan was not carried out, or did not work."""
        return self._close("failed", outcome_text(why if why is not None else self.outcome))

    def _close(self, state: str, outcome: str | None) -> Decision:
        if self.decision.state == "open":
            crash.point("decision.before_close")
            closed = self._store.write(lambda tx: close(tx, self.decision.id, state, outcome))
            # If another caller closed it by its id first, that outcome stays.
            self.decision = closed if closed is not None else self._now()
            crash.point("decision.after_close")
        return self.decision

    def _now(self) -> Decision:
        return self._store.read(lambda tx: find(tx, self.decision.id))

    def _bind(self) -> None:
        """Give the reason to requests for approval inside the block."""
        current.explain(self, self._opening, ": ".join(filter(None, (self.what, self.decision.why))))

    def _unbind(self) -> None:
        current.unbind(self)

    def __enter__(self) -> Self:
        self._entered = True
        self._bind()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unbind()
        if self._opening.elsewhere:
            return  # a forked child leaves a block that its parent is still in
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
            self._close("done", outcome_text(self.outcome))
        elif not _unfinished(error):
            try:
                self._close("failed", last_line(error))
            except StandfastError as second:
                # The caller must see the first error. The decision stays open, and recovery lists it.
                error.add_note(f"standfast: decision {short(self.id)} could not be closed: {second.message}")

    def __del__(self) -> None:
        if not self._entered and self.decision.state == "open" and not self._opening.elsewhere:
            import warnings

            text = f"decision {short(self.id)} stays open: use `with s.decide(…)`, or call done()"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Deciding {short(self.id)} {self.state}: {serial.clean(self.what, 60)}>"


def _unfinished(error: BaseException) -> bool:
    """Whether the error leaves the decision open, so that the next process continues it."""
    if isinstance(error, BaseExceptionGroup):
        return all(_unfinished(one) for one in error.exceptions)
    interrupted = not isinstance(error, (Exception, SystemExit))  # Ctrl-C, a cancelled task, a closed generator
    return interrupted or isinstance(error, _IN_THE_WAY)


def _reached(tx: Tx, opening: Opening, said: Said, n: int) -> tuple[Decision, bool]:
    """The decision that an opening has reached, and whether an earlier opening wrote it."""
    node = tx.maybe(SQL.node, id=opening.node_id)
    below = node is not None and node["parent_id"] != ""
    # Two sub-agents may decide the same, so the node is part of the identity. Decisions of the session itself lack it,
    # because commands reach them by the key of the session.
    identity = serial.hash([said.identity, opening.node_id]) if below else said.identity
    asked: Row = {"session_id": opening.session_id, "identity": identity, "n": n}
    row = tx.maybe(SQL.reached, **asked)
    if row is None:
        position = node["next_position"] if node is not None else None
        place = Place(opening.keyspace(tx), opening.label, opening.session_id, opening.node_id, position)
        made = added(tx, said, place, n=n, identity=identity)
        if made is not None:
            return made, False
        row = tx.one(SQL.reached, **asked)  # made by another process since we looked
    found = decision_of(row)
    if found.state == "failed" and (again := tx.maybe(SQL.reopen, id=found.id, state="open", was="failed")) is not None:
        return journal_change(tx, "decision.reopened", decision_of(again)), True
    return found, True
