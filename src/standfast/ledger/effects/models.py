"""`Effect` and `Verdict`, and finding the row of an effect."""

from __future__ import annotations

from typing import TypeAlias

from standfast import hints, serial
from standfast.clock import iso
from standfast.config.scope import Keyspace
from standfast.core import lookup, repositories
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import IllegalTransition, NotFound
from standfast.ids import short
from standfast.ledger.effects import begin, texts, transitions
from standfast.models import Model

SQL = load(__name__)


class Effect(Model):
    """One effect and its state."""

    id: str
    scope: str
    session_id: str | None
    node_id: str | None
    task_id: str | None
    tool: str
    key: str
    n: int
    intent_hash: str
    intent: serial.Json
    context: serial.Json
    state: str
    attempt: int
    idempotent_us: int | None
    holder: str | None
    agent: str | None
    lease_until_us: int | None
    gave_up_us: int | None
    result: serial.Json
    artifact_id: str | None
    external_ref: str | None
    error: str | None
    evidence: str | None
    approval_id: str | None
    successor_id: str | None
    pruned_us: int | None
    planned_us: int
    first_dispatched_us: int | None
    dispatched_us: int | None
    ended_us: int | None
    updated_us: int
    git_dir: str | None
    origin: str | None
    """The repository in which it was first recorded: its git directory and its origin."""
    in_doubt: bool
    """True if the effect was sent, its outcome is unknown, and no live process runs it."""
    call_key: str = ""
    """The idempotency key for the remote service. Only `begin` and `dispatch` return it."""
    receipt: Receipt | None = None

    @property
    def done(self) -> bool:
        return self.state == "acknowledged"

    @property
    def shown(self) -> str:
        """The tool and the identifying fields in one line."""
        return texts.told(self.tool, self.intent, self.context)


Many: TypeAlias = list[Effect]


class Verdict(Model):
    """The action of the next call of an effect, and its reason."""

    action: str
    """replay: it would be sent · skip: it would not be sent · probe: its probe would be asked · ask: a person has to
    settle it · wait: a live process runs it"""
    reason: str
    effect: Effect
    settling: str = ""
    """The command that settles it, if it is in doubt."""


def found_session(tx: Tx, scope: str, session: str) -> Row:
    """The row of a session, given by id or key: its id, scope and label. Raises NotFound, Conflict."""
    row = tx.maybe(SQL.session, session=session, scope=scope)
    if row is None:
        raise lookup.unknown(tx, "session", session)
    if row["id"] != session:
        repositories.refuse(tx, row, f"session {row['key']!r}")
    return row


def found_task(tx: Tx, keyspace: Keyspace, task: str) -> str:
    """The id of a task, given by id, the end of its id, or its fingerprint: then its newest episode."""

    def newest(fingerprint: str) -> Row | None:
        return tx.maybe(SQL.task_by_fingerprint, fingerprint=fingerprint, **keyspace._asdict())

    row = lookup.row_of(tx, task, "tsk", by_key=newest)
    if row is None:
        raise lookup.unknown(tx, "task", task)
    return str(row["id"])


def find(tx: Tx, scope: str, effect: str, *, lock: bool = False) -> Row:
    """The row that an id, a key or the end of an id names; with `lock`, no other transaction changes it until this one
    ends. Raises NotFound, and Conflict for a key of another repository.
    """
    sql = transitions.SQL
    by_id, by_key = (sql.by_id_for_update, sql.by_key_for_update) if lock else (sql.by_id, sql.by_key)
    row = lookup.row_of(tx, effect, "eff", by_id=by_id, by_key=lambda key: tx.maybe(by_key, scope=scope, key=key))
    if row is None:
        raise NotFound(f"there is no effect {serial.clean(effect, 80)!r} here", "standfast effect list")
    if row["key"] == effect:
        repositories.refuse(tx, row, f"the key {effect!r} of {texts.named(row)}")
    return row


def made(tx: Tx, row: Row) -> Effect:
    """The model of a row, with `in_doubt` derived from its lease."""
    doubt = begin.doubtful(tx, row) if row["state"] == "dispatched" else None
    read = {name: serial.read(row[name]) for name in ("intent", "context", "result")}
    return Effect.from_row(row, **read, in_doubt=doubt is not None)


def judged(tx: Tx, row: Row) -> Verdict:
    """The action that the next call would take. This function does not take it."""
    effect = made(tx, row)
    closed = texts.closed(row)
    if closed is not None:
        return Verdict("skip", closed.message, effect)
    if row["state"] == "acknowledged":
        return Verdict(
            "skip", f"done at {iso(row['ended_us'] or row['updated_us'])}: the recorded result is returned", effect
        )
    if row["state"] == "planned":
        return Verdict("replay", "planned and never sent", effect)
    if row["state"] == "failed":
        return Verdict("replay", f"known not applied: {row['error']}", effect)
    doubt = begin.doubtful(tx, row)
    if doubt is None:
        return Verdict("wait", texts.in_progress(tx, row).message, effect)
    why = texts.WHY[doubt.standing]
    command = texts.settling(row)
    if (effect.context or {}).get("probe"):
        asked = f"in doubt ({why}); its probe would be asked: {effect.context['probe']}"
        return Verdict("probe", asked, effect, command)
    if begin.remembered(tx, row, effect.idempotent_us):
        return Verdict("replay", f"in doubt ({why}); the remote service knows its key", effect, command)
    return Verdict("ask", f"in doubt ({why}): {command}", effect, command)


def illegal(row: Row, wanted: str, why: str) -> IllegalTransition:
    """The error for a transition that the state machine does not have."""
    return IllegalTransition(
        f"{texts.named(row)} is {row['state']} and cannot become {wanted}: {why}",
        hints.command("effect", "show", short(row["id"])),
    )
