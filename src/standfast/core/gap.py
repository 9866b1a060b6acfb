"""The gap: the time of which the store has no record, because an older copy of it was restored.

    restored copy ──▶ gap open: effects may have been sent in it ──▶ `restore finish` closes it

The gap is one row of `meta`. While it is open, an effect without a row may have been sent already. Its probe decides,
or a person. Webhooks and credits are refused, unless the ledger of the replaced store was carried over.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from standfast.clock import readable
from standfast.db.contract import Tx
from standfast.db.sql import load
from standfast.errors import Conflict

SQL = load(__name__)

KEY = "gap"
"""The key of the gap's row in table `meta`."""
UNSEEN = 1_000_000
"""Sequence numbers that are skipped if no process on this host knows the highest one."""


class Gap(NamedTuple):
    """The time from the last row of the restored copy to the restore."""

    copy: str
    """The copy that was restored; empty if another tool put the store back."""
    seq: int
    """The journal of the copy ends here."""
    seen: int
    """A sequence number that is at least as high as any that a process has seen."""
    from_us: int
    to_us: int
    carried: bool = False
    """True if effects, approvals, credits and webhooks of the replaced store were copied into this one."""

    def dumps(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True, separators=(",", ":"))

    @property
    def shown(self) -> str:
        return f"between {readable(self.from_us)} and {readable(self.to_us)}"


def loads(text: str) -> Gap:
    return Gap(**json.loads(text))


def read(tx: Tx) -> Gap | None:
    """The open gap; None if there is none."""
    row = tx.maybe(SQL.value, key=KEY)
    return None if row is None else loads(row["value"])


def warning(tx: Tx) -> str:
    """One sentence about the open gap; empty if none is."""
    found = read(tx)
    return f"the store has no record of the time {found.shown}: effects may be in doubt" if found else ""


def refuse(tx: Tx, what: str) -> None:
    """Raise Conflict if `what` may have happened in an open gap."""
    found = read(tx)
    if found is not None and not found.carried:
        raise Conflict(
            f"{what} waits: the store was restored and has no record of the time {found.shown}",
            "a person closes the gap: standfast restore finish",
            code="gap_open",
        )
