"""Decisions: what was decided, why, and the planned action, stored before that action.

                decide / record               leave the block, done
    (nothing) ─────────────────▶ open ──────────────────────────────▶ done
                                  ├─ an exception, fail ─▶ failed ──▶ open, when the program reaches it again
                                  └─ withdraw ─▶ withdrawn ◀─ withdraw ─ standing

A process that dies between deciding and acting leaves an open decision, and the next process finds it with its session.
A decision never says whether the action happened: effects record that.

In a session, `what`, `then` and the number of times that an opening has reached them identify a decision. So a program
that runs again from its first line decides once: it takes an open decision up, and leaves a done one as it is.

A standing order is a decision that applies until it is withdrawn. Lists have it first. It belongs to the scope, not to
a session. `catch` records that a decision was made but not recorded; `unwritten` finds the effects that were sent
without one.

    models     Decision and other models, and the checks of arguments
    changes    write, find and close one decision inside a transaction
    block      `s.decide`
    resource   `sf.decisions`
"""

from __future__ import annotations

from standfast.ledger.decisions.block import Deciding, decide
from standfast.ledger.decisions.models import Caught, Decision, Unwritten
from standfast.ledger.decisions.resource import Decisions

__all__ = ["Caught", "Deciding", "Decision", "Decisions", "Unwritten", "decide"]
