"""Decisions: what was decided and why, and the next action, stored before that action.

                decide / record               leave the block, done
    (nothing) ─────────────────▶ open ──────────────────────────────▶ done
                                  ├─ an exception, fail ─▶ failed ──▶ open, when it is reached again
                                  └─ withdraw ─▶ withdrawn ◀─ withdraw ─ standing

The write is the commit point: a process that dies between deciding and acting leaves an open decision, and
the next process finds it, with its session. Whether the act itself happened is the ledger's to
answer (effects); a decision never claims it.

In a session a decision is known by what it says, `what` and `then`, and by how often one opening
has reached it. A program that runs again from its first line therefore decides once: an open
decision is taken up, one that is done stays as it is while the block runs through its recorded steps.

A standing order is a decision that stays, listed before all others until it is withdrawn; it belongs
to the scope, not to a session. `catch` writes down that a decision was made and not written;
`unwritten` finds the effects for which that is so.

    models     decisions as callers see them, and what they may give
    changes    one decision inside a transaction
    block      `s.decide`
    resource   `sf.decisions`
"""

from __future__ import annotations

from standfast.ledger.decisions.block import Deciding, decide
from standfast.ledger.decisions.models import Caught, Decision, Unwritten
from standfast.ledger.decisions.resource import Decisions

__all__ = ["Caught", "Deciding", "Decision", "Decisions", "Unwritten", "decide"]
