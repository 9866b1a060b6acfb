"""A decision of a session: `s.decide(…)` writes it, and leaving its block closes it."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.store import raised
from standfast.errors import ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StandfastError, StorageError
from standfast.ids import short
from standfast.ledger import current
from standfast.ledger.decisions.changes import SQL, added, close, find, journalled
from standfast.ledger.decisions.models import Decision, Said, checked, decision_of, last_line, outcome_text
from standfast.ledger.opening_counts import Opening

# The block ended, the work did not: a person, another holder or the store itself is in the way.
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
    """Write a decision, durably, before anything is done about it; leaving the block closes it.

        with s.decide("edit parser.py", why="the test names it", then="patch, test, open a PR") as d:
            ...
            d.outcome = "patched"

    Reached again by a later opening it is the same decision: an open or failed one is taken up,
    one that is done is left as it is. Reached twice in one opening, the second is another.
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
    """A decision while its block runs. `outcome` is what will stand in the record."""

    awaited = True
    """Under an event loop its methods are awaited too."""

    def __init__(self, opening: Opening, decision: Decision, *, resumed: bool) -> None:
        self._opening = opening
        self._store = opening.store
        self.decision = decision
        self.resumed = resumed
        """Whether an earlier opening wrote it: look at what was recorded before doing it again."""
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
        """Close it before the block ends, or without one."""
        if outcome is not None:
            self.outcome = outcome
        return self._close("done", outcome_text(self.outcome))

    def fail(self, why: object = None) -> Decision:
        """Close it as failed: what was planned was not done, or did not work."""
        return self._close("failed", outcome_text(why if why is not None else self.outcome))

    def _close(self, state: str, outcome: str | None) -> Decision:
        if self.decision.state == "open":
            crash.point("decision.before_close")
            closed = self._store.write(lambda tx: close(tx, self.decision.id, state, outcome))
            # Another caller may have closed it by its id: then that outcome stays.
            self.decision = closed if closed is not None else self._now()
            crash.point("decision.after_close")
        return self.decision

    def _now(self) -> Decision:
        return raised(self._store.read(lambda tx: find(tx, self.decision.id)))

    def _bind(self) -> None:
        """A request of approval inside the block takes its reason from here."""
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
            return  # a forked child left its parent's block: the parent is still in it
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0, False)):
            self._close("done", outcome_text(self.outcome))
        elif not _unfinished(error):
            try:
                self._close("failed", last_line(error))
            except StandfastError as second:
                # The first error is the one to be seen; the decision stays open and is found later.
                error.add_note(f"standfast: decision {short(self.id)} could not be closed: {second.message}")

    def __del__(self) -> None:
        if not self._entered and self.decision.state == "open" and not self._opening.elsewhere:
            import warnings

            text = f"decision {short(self.id)} stays open: use `with s.decide(…)`, or call done()"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<Deciding {short(self.id)} {self.state}: {serial.clean(self.what, 60)}>"


def _unfinished(error: BaseException) -> bool:
    """Whether a caller will come back to it: then the decision stays open, and the next process finds it."""
    if isinstance(error, BaseExceptionGroup):
        return all(_unfinished(one) for one in error.exceptions)
    interrupted = not isinstance(error, (Exception, SystemExit))  # Ctrl-C, a cancelled task, a closed generator
    return interrupted or isinstance(error, _IN_THE_WAY)


def _reached(tx: Tx, opening: Opening, said: Said, n: int) -> tuple[Decision, bool]:
    """The decision an opening has come to, and whether it was there before."""
    node = tx.maybe(SQL.node, id=opening.node_id)
    below = node is not None and node["parent_id"] != ""
    # Two sub-agents may decide the same; the session's own decisions are also reached by its key.
    identity = serial.hash([said.identity, opening.node_id]) if below else said.identity
    place: Row = {"session_id": opening.session_id, "identity": identity, "n": n}
    row = tx.maybe(SQL.reached, **place)
    if row is None:
        position = node["next_position"] if node is not None else None
        whose: Row = {"keyspace": opening.keyspace(tx), "label": opening.label}
        made = added(tx, said, node_id=opening.node_id, position=position, state="open", **whose, **place)
        if made is not None:
            return made, False
        row = tx.one(SQL.reached, **place)  # made by another process since we looked
    found = decision_of(row)
    if found.state == "failed" and (again := tx.maybe(SQL.reopen, id=found.id, state="open", was="failed")) is not None:
        return journalled(tx, "decision.reopened", decision_of(again)), True
    return found, True
