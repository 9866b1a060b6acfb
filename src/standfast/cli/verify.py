"""`standfast verify`: what was written then is still what it says now."""

from __future__ import annotations

from standfast.cli.frame import argument, command
from standfast.cli.output import Out


@command(
    "verify",
    examples=(
        "standfast verify 4711:h1:9f2c…",
        'standfast verify \'{"seq": 4711, "hash": "h1:9f2c…"}\'',
    ),
)
@argument("receipt")
def verify(out: Out, receipt: str) -> None:
    """Prove that a RECEIPT, as --json prints it, is still in the journal, unchanged."""
    from standfast.cli.store import opened

    with opened(create=False) as sf:
        event = sf.journal.verify(receipt)
    data = event._asdict()
    out.record({"verified": True, **data}, [f"verified: {event.seq} {event.type} {event.subject} by {event.actor}"])
