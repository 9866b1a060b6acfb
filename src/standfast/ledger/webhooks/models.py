"""The models of webhook events."""

from __future__ import annotations

from typing import Any

from standfast import serial
from standfast.core import leases
from standfast.core.checks import whole
from standfast.core.journal import Event
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.ids import short
from standfast.ledger.dead_letters import DeadLetter
from standfast.models import Model

STATES = ("received", "done", "dead")
ERROR_MAX = 2000
ATTEMPTS_DEFAULT = 8
ATTEMPTS_MAX = 100


class WebhookEvent(Model):
    """An event that a sender delivered, and its result."""

    id: str
    scope: str
    source: str
    event_id: str
    """The id that its sender gave it, unique in the source and the scope."""
    kind: str | None
    payload: serial.Json
    state: str
    """received, done or dead."""
    result: serial.Json
    """The result of its handler. Every later delivery gets it as its answer."""
    error: str | None
    """Why the last attempt failed."""
    deliveries: int
    attempts: int
    """The number of claims since the event was received or retried."""
    attempts_max: int
    ready_us: int
    """No claim gets the event before this time."""
    holder: str | None
    agent: str | None
    """The agent that holds it or held it last; of a done event, the agent that ended it."""
    lease_until_us: int | None
    fence: int
    received_us: int
    ended_us: int | None
    standing: str
    """The state of its lease: free, live, over (its time ran out) or gone (its process is dead)."""
    fresh: bool = False
    """Whether this delivery was the first."""
    receipt: Receipt | None = None

    @property
    def name(self) -> str:
        return f"{self.source}/{self.event_id}"

    @property
    def held_by(self) -> str | None:
        """The holder, with a mark if it exited or its lease expired."""
        if self.holder is None:
            return None
        return leases.holder_text(self.holder) + {"gone": " (gone)", "over": " (late)"}.get(self.standing, "")

    @staticmethod
    def columns() -> tuple[str, ...]:
        first = "id", "state", "source", "event_id", "kind", "deliveries delivered", "attempts tried"
        return *first, "received_us", "held_by", "error"


class Handled(Model):
    """The counts of one call of `handle`."""

    done: int
    failed: int
    """Failed, and to be retried."""
    dead: int
    lost: int
    """Handled too slowly: another worker took the event over, and this result was not recorded."""


class Shown(Model):
    """One event with its dead letter and its history."""

    event: WebhookEvent
    letter: DeadLetter | None
    """The event's open dead letter, or the last one that was settled."""
    history: tuple[Event, ...]

    def as_json(self) -> dict[str, Any]:
        return {**self.event.as_dict(), "dead_letter": self.letter, "history": self.history}


def event_of(tx: Tx, row: Row, receipt: Receipt | None = None, *, fresh: bool = False) -> WebhookEvent:
    read = {name: serial.read(row[name]) for name in ("payload", "result")}
    standing = leases.judge(tx, row).state
    return WebhookEvent.from_row(row, **read, standing=standing, fresh=fresh, receipt=receipt)


def named(row: Row) -> str:
    """An event as messages name it."""
    return f"webhook event {short(row['id'])} ({serial.clean(row['source'] + '/' + row['event_id'], 80)})"


def checked_attempts(number: object) -> int:
    return whole(number, "attempts_max", least=1, most=ATTEMPTS_MAX, hint="for example: --attempts-max 5")
