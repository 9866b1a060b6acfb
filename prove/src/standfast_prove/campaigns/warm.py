"""Imports the modules that actors need.

If a nursery is asked to run a function of this module, it imports this module before it forks."""

from __future__ import annotations

import standfast.checkpoint.checkpoints
import standfast.db.sqlite.engine
import standfast.ledger.approvals
import standfast.ledger.decisions
import standfast.ledger.effects.perform
import standfast.ledger.effects.resource
import standfast.ledger.webhooks
import standfast.record.agents
import standfast.record.events
import standfast.record.loops
import standfast.record.loops.runs
import standfast.record.mail
import standfast.record.open_session
import standfast.record.tasks
import standfast.views.recovery
import standfast.views.timeline  # noqa: F401  imported for what it costs
from standfast_prove.faults.children import Nursery


def ready() -> None:
    """Do nothing: the import of this module has imported everything."""


def warmed(nursery: Nursery, *, postgres: bool) -> None:
    """Make `nursery` import the modules of its children, and the PostgreSQL driver if needed."""
    for module in ("warm", "warm_postgres") if postgres else ("warm",):
        nursery.wait(nursery.start(f"standfast_prove.campaigns.{module}:ready"))
