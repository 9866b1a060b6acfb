"""The ready probe of `standfast once`: for some commands standfast can find out whether they were applied.

The facts that a probe needs, such as the pushed commit or the published version, are read before the command runs and
stored with the intent. If the outcome is in doubt, the next call looks for the stored facts, not for the current ones.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast.actions import doubts, table
from standfast.actions.action import Action, CannotTell, Facts
from standfast.cli.render import printed

if TYPE_CHECKING:
    from standfast.clock import Clock, Duration
    from standfast.handle import Standfast
    from standfast.ledger.effects.call import Applied, Call, NotApplied, Unknown
    from standfast.ledger.effects.identity import Asking, Request


class Ready(NamedTuple):
    """The action that matches this command, and its facts."""

    action: Action
    facts: Facts

    @property
    def shown(self) -> str:
        """A description of the probe for people."""
        return table.shown(self.facts)

    @property
    def idempotent(self) -> bool | timedelta:
        seconds = self.action.idempotent_s
        return False if seconds is None else timedelta(seconds=seconds)

    def asking(
        self,
        sf: Standfast,
        wanted: Request,
        settle: Duration | None,
        wait: Callable[[Clock, int], None],
        mask: Any,
    ) -> Asking | None:
        """The probe of this call; None if the action is only sent again."""
        from standfast.ledger.effects import identity

        if self.action.find is None:
            return None

        def ask(_: Any, call: Call) -> Applied | NotApplied | Unknown:
            before = signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                found = sf.effects._by_key(wanted.key, wanted.scope)
                return doubts.looked_up(found, say).as_probe()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

        settle_us = identity.settle_us(self.action.settle if settle is None else settle)
        return identity.Asking("once", ask, self.shown, settle_us, wait=wait)


def ready_probe(argv: Sequence[str], cwd: str) -> Ready | None:
    """The ready probe of a command; None if standfast has none, or cannot read the facts."""
    known = table.recognised(argv, cwd)
    if known is None or (known.action.find is None and known.action.idempotent_s is None):
        return None
    try:
        return Ready(known.action, known.before())
    except CannotTell:
        return None


def say(text: str) -> None:
    """Print one line on stderr."""
    print(printed(text), file=sys.stderr, flush=True)
