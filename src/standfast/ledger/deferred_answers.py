"""Mail whose answer waits for a person: `sf.mail.answer` deferred it, because its session has an effect in doubt or
asked for an approval.

The transaction that settles the doubt or answers the approval makes the mail ready. The commit wakes the reader.
"""

from __future__ import annotations

from standfast.db.contract import Tx
from standfast.db.sql import load

SQL = load(__name__)


def make_ready(tx: Tx, session_id: str | None) -> None:
    """Deliver the deferred mail that this session answers now, if it is such a session."""
    if session_id is not None:
        tx.run(SQL.make_ready, session_id=session_id)
