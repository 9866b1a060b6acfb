"""`with s.budget(…) as b`: reserve when the block begins, settle when it ends.

At its end the block settles with the amounts of `b.spent(…)`. If `b.spent` was not called, the whole reservation
counts as used. `NotApplied` releases it, because the call was not made. Any other exception before `b.spent` proves
nothing, so the hold is in doubt.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from standfast.clock import Duration
from standfast.errors import InvalidInput, StandfastError
from standfast.ledger.budgets import amounts
from standfast.ledger.budgets.amounts import Amounts, Usd
from standfast.ledger.budgets.models import Hold
from standfast.ledger.budgets.resource import Asked, Budgets, Subjects, asked_for, checked_name
from standfast.ledger.openings import Opening

if TYPE_CHECKING:
    from types import TracebackType


class Spending:
    """A reservation of a session, entered with `with`."""

    awaited = True

    def __init__(self, opening: Opening, asked: Asked, *, known: bool = False) -> None:
        """With `known`, the subject must have a budget."""
        self._opening = opening
        self._known = known
        self._budgets = Budgets(opening.store)
        self._asked = asked
        self._hold: Hold | None = None
        self._spent: Amounts | None = None
        self._began_us = 0

    @property
    def hold(self) -> Hold:
        """The hold of this block. Raises InvalidInput before the block is entered."""
        if self._hold is None:
            raise InvalidInput("this budget is not entered", "with s.budget(tokens=3000) as b: …")
        return self._hold

    def spent(self, *, tokens: int | None = None, usd: Usd | None = None, calls: int | None = None) -> None:
        """Set the amounts that the call used. A unit that is not given counts as reserved."""
        self._spent = amounts.given(tokens, usd, calls, None)

    def release(self) -> Hold:
        """Give the hold back now, because nothing was sent."""
        self._hold = self._budgets.release(self.hold)
        return self._hold

    def refresh(self) -> None:
        """Read the hold again, because a model call that was recorded in the block has settled it."""
        self._hold = self._budgets.hold(self.hold.id)

    def __enter__(self) -> Self:
        if self._hold is not None:
            raise InvalidInput("this budget was entered before", "make another: with s.budget(…) as b")
        self._opening.usable()
        self._hold = self._budgets.hold_for(self._asked, known=self._known)
        self._began_us = self._opening.store.caller.clock.mono_us()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.hold.state != "held":
            return  # the block released it, or an earlier call with this key settled it
        if error is None or self._spent is not None:
            self._hold = self._settled()
        elif _is_not_applied(error):
            self.release()
        else:
            note = f"the call ended in {type(error).__name__}"
            with suppress(StandfastError):  # the caller must see its own error; the lease ends by itself
                self._hold = self._budgets.give_up(self.hold, note=note)

    def _settled(self) -> Hold:
        spent = self._spent or Amounts()
        took_us = self._opening.store.caller.clock.mono_us() - self._began_us
        return self._budgets._end(self.hold, "settled", spent.replace(duration_us=took_us), None)


def spending(
    opening: Opening,
    subject: str | None,
    *,
    tokens: int | None,
    usd: Usd | None,
    calls: int,
    time: Duration | None,
    key: str | None,
    note: str | None,
) -> Spending:
    """The result of `s.budget`. The reservation counts for the subject, the session, its agent, and `all`."""
    own_key = None if key is None else f"{opening.session_key}:{key}"
    most = amounts.given(tokens, usd, calls, time)
    asked = asked_for(subjects_of(opening, subject), most, own_key, note)
    return Spending(opening, asked, known=subject is not None)


def subjects_of(opening: Opening, subject: str | None = None) -> Subjects:
    session = f"session:{opening.session_key}"
    agent = f"agent:{opening.agent}" if opening.agent else ""
    return Subjects(session if subject is None else checked_name(subject), session, agent, opening.session_id)


def _is_not_applied(error: BaseException) -> bool:
    from standfast.ledger.effects.call import NotApplied

    return isinstance(error, NotApplied)
