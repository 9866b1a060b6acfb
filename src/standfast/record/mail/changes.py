"""The journal entry of each change of a mail."""

from __future__ import annotations

from standfast import serial
from standfast.core import journal
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx


def journal_change(tx: Tx, row: Row, type: str, *, summary: str | None = None, data: serial.Json = None) -> Receipt:
    """Journal a change with the sender, the box and the subject, never the body."""
    envelope = f"{row['sender']} → {row['box']}" + (f": {row['subject']}" if row["subject"] else "")
    words = f"{serial.clean(envelope, 100)}: {summary}" if summary else envelope
    return journal.append(
        tx,
        type,
        row["id"],
        summary=words,
        data=data,
        session_id=row["session_id"],
        state=row["state"],
        scope=row["scope"],
    )
