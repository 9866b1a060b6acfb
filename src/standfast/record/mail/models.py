"""Mail as callers see it, made from rows of the tables, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from standfast import serial
from standfast.core import keys, leases
from standfast.core.checks import PRIORITY_MAX, REASON_MAX, whole
from standfast.core.journal import Event
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.errors import InvalidInput
from standfast.ledger.dead_letters import DeadLetter
from standfast.models import Model

STATES = ("sent", "leased", "read", "done", "dead", "expired")
ENDED = ("done", "dead", "expired")
ATTEMPTS_DEFAULT = 5
ATTEMPTS_MAX = 1_000
BOUND_DEFAULT = 1_000
BOUND_MAX = 1_000_000
SUBJECT_MAX = 300
BODY_MAX_BYTES = 1024 * 1024


class Mail(Model):
    """One mail and its state."""

    id: str
    scope: str
    box: str
    """The box: an agent's name, `role:…` or `session:…`."""
    sender: str
    """The address for an answer, as the sender chose it. `provenance` has the real sender."""
    thread_id: str
    """The id of the mail that began the conversation."""
    reply_to_id: str | None
    subject: str | None
    body: serial.Json
    key: str | None
    priority: int
    """0 comes first."""
    state: str
    """sent, leased, read, done, dead or expired. A mail past its time shows as expired before the row says so."""
    reason: str | None
    """The reason why the mail was returned, became a dead letter or expired; or the note given to `done`."""
    attempts: int
    attempts_max: int
    provenance: dict[str, serial.Json]
    """The actor, session, process and host that sent it, recorded by standfast."""
    session_id: str | None
    ready_us: int
    """0, or the time until which it is deferred."""
    expires_us: int | None
    holder: str | None
    agent: str | None
    """The agent that holds it, held it last, or marked it as done."""
    lease_until_us: int | None
    fence: int
    sent_us: int
    read_us: int | None
    ended_us: int | None
    seq: int
    standing: str
    """The state of its lease: free, live, over (its time ran out) or gone (its process is dead)."""
    replayed: bool = False
    """True if an earlier call used the key. Then this is the mail of that call."""
    receipt: Receipt | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def place(self) -> str:
        """The cursor of a list: pass it as `after=`."""
        return self.id

    def rendered(self) -> str:
        """The envelope and the quoted body, as text for an agent or a terminal."""
        from standfast.record.mail import envelope

        return envelope.rendered(self)


class Attempt(Model):
    """One claim by a reader, and its outcome."""

    n: int
    fence: int
    agent: str
    holder: str
    began_us: int
    ended_us: int | None
    outcome: str | None
    """done, deferred, returned, refused or lost; None during the attempt."""
    reason: str | None


class Delivery(Model):
    """The receipt of a mail: its state and its attempts. Any process may read it at any time."""

    id: str
    scope: str
    box: str
    sender: str
    key: str | None
    subject: str | None
    state: str
    reason: str | None
    sent_us: int
    leased_us: int | None
    """The time when a reader first claimed the mail."""
    read_us: int | None
    ended_us: int | None
    by: str | None
    """The agent that holds it, held it last, or marked it as done."""
    attempts: tuple[Attempt, ...]
    attempts_max: int
    dead_letter: DeadLetter | None
    box_seen_us: int | None
    """The time when the box was last read; None if never."""
    words: str
    """The state in one sentence."""

    @property
    def place(self) -> str:
        """The cursor of a list: pass it as `after=`."""
        return self.id

    @property
    def settled(self) -> bool:
        """Whether the mail has ended: done, dead or expired."""
        return self.state in ENDED

    def as_json(self) -> dict[str, Any]:
        return {**self.as_dict(), "settled": self.settled}


class Shown(Model):
    """One mail with its receipt, its conversation, its dead letters and its newest changes."""

    mail: Mail
    delivery: Delivery
    thread: tuple[Mail, ...]
    """The conversation of the mail, the first mail first."""
    dead_letters: tuple[DeadLetter, ...]
    history: tuple[Event, ...]

    def as_json(self) -> dict[str, Any]:
        fields = self.as_dict()
        return {**fields.pop("mail").as_dict(), **fields}


class Swept(Model):
    """The ids of the mail that a sweep returned to its box, made a dead letter, or marked as expired."""

    returned: tuple[str, ...]
    dead: tuple[str, ...]
    expired: tuple[str, ...]
    more: bool
    """There may be more: sweep again."""


_STORED = Mail.column_names()[: Mail.field_names().index("standing")]
_STATE, _BODY, _PROVENANCE = (_STORED.index(name) for name in ("state", "body", "provenance"))


def mail(tx: Tx, row: Row, receipt: Receipt | None = None, *, replayed: bool = False) -> Mail:
    """The model of a row, with derived values: whether it has expired, and the state of its lease."""
    standing = leases.judge(tx, row).state
    values = list(map(row.__getitem__, _STORED))
    values[_BODY] = serial.read(row["body"])
    values[_PROVENANCE] = serial.read(row["provenance"])
    if row["ended_us"] is None and standing != "live" and expired(tx, row):
        values[_STATE] = "expired"
    return Mail.from_values([*values, standing, replayed, receipt])


def expired(tx: Tx, row: Row) -> bool:
    """Whether its time is over. A live holder may still mark it as done."""
    return row["expires_us"] is not None and bool(row["expires_us"] <= tx.now_us())


def attempt(row: Row) -> Attempt:
    return Attempt.from_row(row)


# -- checks of arguments -------------------------------------------------------------------------------


def checked_subject(subject: str | None) -> str | None:
    return None if subject is None else keys.line(" ".join(subject.split()), "a subject", limit=SUBJECT_MAX)


def checked_priority(priority: object) -> int:
    return whole(priority, "a priority", least=0, most=PRIORITY_MAX, hint="0 comes first; 2 is usual")


def checked_attempts(attempts: object) -> int:
    return whole(attempts, "attempts_max", least=1, most=ATTEMPTS_MAX, hint=f"{ATTEMPTS_DEFAULT} is usual")


def checked_bound(bound: object) -> int:
    return whole(bound, "a bound", least=1, most=BOUND_MAX, hint=f"{BOUND_DEFAULT} is usual")


def checked_reason(reason: str | None) -> str | None:
    if reason is None:
        return None
    if not isinstance(reason, str):
        raise InvalidInput(f"a reason is text, not {type(reason).__name__}")
    return serial.clean(reason, REASON_MAX) or None
