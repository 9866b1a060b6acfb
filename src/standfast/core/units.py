"""Numbers as people read them."""

from __future__ import annotations


def size(count: int) -> str:
    """Bytes for a person: 4.2 MB."""
    amount, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.1f} {unit}" if unit != "bytes" and amount < 100 else f"{amount:.0f} {unit}"
