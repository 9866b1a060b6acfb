"""A webhook's event as callers see it."""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.footings import leases
from standfast.footings.checks import whole
from standfast.footings.journal import Event, Receipt
from standfast.ids import short
from standfast.ledger.dead_letters import DeadLetter

STATES = ("received", "done", "dead")
NAME_MAX = 200
ERROR_MAX = 2000
ATTEMPTS_DEFAULT = 8
ATTEMPTS_MAX = 100


class WebhookEvent(NamedTuple):
    """What a sender delivered, and what became of it."""

    id: str
    scope: str
    source: str
    event_id: str
    """The sender's own id for it; one per source and scope."""
    kind: str | None
    payload: serial.Json
    state: str
    """received, done or dead."""
    result: serial.Json
    """What its handler returned; every later delivery is answered with it."""
    error: str | None
    """Why the last attempt failed."""
    deliveries: int
    attempts: int
    """How often it was handed out, since it was received or retried."""
    attempts_max: int
    ready_us: int
    """Not handed out before."""
    holder: str | None
    actor: str | None
    """Who holds it or held it last; once done, who said so."""
    lease_until_us: int | None
    fence: int
    received_us: int
    ended_us: int | None
    standing: str
    """How its lease stands: free, live, over (its time ran out) or gone (its process is dead)."""
    fresh: bool = False
    """Whether this very delivery was the first."""
    receipt: Receipt | None = None

    @property
    def name(self) -> str:
        return f"{self.source}/{self.event_id}"

    @property
    def held_by(self) -> str | None:
        """The holder, with a mark if it exited or its lease expired."""
        if self.holder is None:
            return None
        return leases.who(self.holder) + {"gone": " (gone)", "over": " (late)"}.get(self.standing, "")

    @staticmethod
    def columns() -> tuple[str, ...]:
        first = "id", "state", "source", "event_id", "kind", "deliveries delivered", "attempts tried"
        return *first, "received_us", "held_by", "error"


_COLUMNS = WebhookEvent._fields[: WebhookEvent._fields.index("standing")]


class Handled(NamedTuple):
    """What one round of handling came to."""

    done: int
    failed: int
    """To be tried again."""
    dead: int
    lost: int
    """Handled too slowly: somebody else has it by now, and what this one did was not recorded."""


class Shown(NamedTuple):
    """Everything about one event."""

    event: WebhookEvent
    letter: DeadLetter | None
    """Its open dead letter, or the last one that was settled."""
    history: tuple[Event, ...]


def event_of(tx: Tx, row: Row, receipt: Receipt | None = None, *, fresh: bool = False) -> WebhookEvent:
    values = {name: row[name] for name in _COLUMNS}
    values |= {"payload": serial.read(row["payload"]), "result": serial.read(row["result"])}
    return WebhookEvent(**values, standing=leases.stand(tx, row).state, fresh=fresh, receipt=receipt)


def named(row: Row) -> str:
    """An event as messages name it."""
    return f"webhook event {short(row['id'])} ({serial.clean(row['source'] + '/' + row['event_id'], 80)})"


def checked_attempts(number: object) -> int:
    return whole(number, "attempts_max", least=1, most=ATTEMPTS_MAX, hint="for example: --attempts-max 5")
