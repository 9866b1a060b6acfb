"""Make mail ready whose answer waited for a person.

`sf.mail.answer` defers a mail if the session that answers it has an effect in doubt or needs an approval. The
transaction that settles the doubt or answers the approval makes the mail ready again. The commit wakes the reader.
"""

from __future__ import annotations

from standfast.db.contract import Tx
from standfast.db.sql import load

SQL = load(__name__)


def make_ready(tx: Tx, session_id: str | None) -> None:
    """Make the mail ready that this session answers, if it answers one."""
    if session_id is not None:
        tx.run(SQL.make_ready, session_id=session_id)
