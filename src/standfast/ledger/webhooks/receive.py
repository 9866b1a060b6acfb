"""Receive an event: record its first delivery, and count the others.

A known id with another payload is refused. Either the id names two events, and dropping the second would lose it; or
the sender changes some fields with every delivery. Only the caller knows which. In the second case `ignore` names the
fields that are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from standfast import crash, serial
from standfast.clock import iso
from standfast.core import keys
from standfast.core.checks import NAME_MAX
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, KeyConflict, StandfastError
from standfast.ids import new_id
from standfast.ledger.webhooks.changes import journal_change
from standfast.ledger.webhooks.models import ATTEMPTS_DEFAULT, WebhookEvent, checked_attempts, event_of, named

SQL = load(__name__)

IGNORED_MAX = 20
SHOWN_MAX = 5


class Delivery(NamedTuple):
    """One delivery with checked arguments."""

    source: str
    event_id: str
    kind: str | None
    payload: str
    hash: str
    ignore: frozenset[str]
    attempts_max: int


def delivery(
    source: str,
    event_id: str,
    payload: serial.Json,
    *,
    kind: str | None = None,
    ignore: Iterable[str] = (),
    attempts_max: int = ATTEMPTS_DEFAULT,
) -> Delivery:
    """The delivery with checked arguments. Raises InvalidInput."""
    fields = frozenset((ignore,) if isinstance(ignore, str) else ignore)
    if len(fields) > IGNORED_MAX or not all(isinstance(name, str) for name in fields):
        raise InvalidInput(f"ignore names at most {IGNORED_MAX} fields of the payload")
    text = serial.dumps(payload, what="payload")
    return Delivery(
        keys.checked(source, "a webhook's source", limit=NAME_MAX),
        keys.checked(event_id, "an event's id"),
        None if kind is None else keys.checked(kind, "an event's kind", limit=NAME_MAX),
        text,
        serial.hash_text(text),
        fields,
        checked_attempts(attempts_max),
    )


def receive(tx: Tx, scope: str, got: Delivery) -> WebhookEvent | StandfastError:
    crash.point("webhook.before_receive")
    place: Row = {"scope": scope, "source": got.source, "event_id": got.event_id}
    row = tx.maybe(
        SQL.receive,
        id=new_id("whk"),
        kind=got.kind,
        hash=got.hash,
        payload=got.payload,
        attempts_max=got.attempts_max,
        now_us=tx.now_us(),
        **place,
        **tx.caller.labelled(),
    )
    if row is not None:
        return event_of(tx, row, journal_change(tx, row, "webhook.received", data={"hash": got.hash}), fresh=True)
    found = tx.one(SQL.by_event_for_update, **place)
    differing = _differing(found, got)
    if differing:
        return _refused(tx, found, got, differing)
    counted = found | {"deliveries": found["deliveries"] + 1}
    tx.run(SQL.count, id=found["id"])
    data = {"deliveries": counted["deliveries"]} | ({"hash": got.hash} if got.hash != found["hash"] else {})
    return event_of(tx, counted, journal_change(tx, counted, "webhook.redelivered", data=data))


def _differing(found: Row, got: Delivery) -> list[str]:
    """The compared fields of the payload in which a later delivery differs, or "the payload"."""
    kinds = {found["kind"], got.kind} - {None}
    differing = ["kind"] if len(kinds) > 1 else []
    if found["hash"] == got.hash:
        return differing
    first, second = serial.read(found["payload"]), serial.read(got.payload)
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return [*differing, "the payload"]
    names = sorted((first.keys() | second.keys()) - got.ignore)
    return differing + [name for name in names if _text(first, name) != _text(second, name)]


def _text(payload: dict[str, serial.Json], name: str) -> str | None:
    return serial.canonical(payload[name]) if name in payload else None


def _refused(tx: Tx, found: Row, got: Delivery, differing: list[str]) -> KeyConflict:
    shown = ", ".join(serial.clean(name, 40) for name in differing[:SHOWN_MAX])
    more = f" and {len(differing) - SHOWN_MAX} more" if len(differing) > SHOWN_MAX else ""
    said = f"another payload under a known id: {shown}{more} differ"
    journal_change(tx, found, "webhook.refused", summary=said, data={"hash": got.hash})
    hint = "if it is another event, give it an id of its own"
    if set(differing).isdisjoint({"kind", "the payload"}) and not more:
        flags = " ".join(f"--ignore {name}" for name in differing)
        hint += f"; if the sender changes that with every delivery: {flags}"
    return KeyConflict(
        f"{named(found)} was received at {iso(found['received_us'])} with another payload: {shown}{more} differ", hint
    )
