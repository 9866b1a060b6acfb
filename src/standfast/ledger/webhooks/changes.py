"""The journal entry of each change of a webhook event."""

from __future__ import annotations

from standfast import serial
from standfast.core import journal
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx


def journal_change(tx: Tx, row: Row, type: str, *, summary: str | None = None, data: serial.Json = None) -> Receipt:
    """Journal a change with the source, the kind and the id of the event, never the payload."""
    kind = f" {row['kind']}" if row["kind"] else ""
    said = f"{row['source']}{kind} {row['event_id']}"
    said = f"{serial.clean(said, 100)}: {summary}" if summary else said
    return journal.append(tx, type, row["id"], scope=row["scope"], state=row["state"], summary=said, data=data)
