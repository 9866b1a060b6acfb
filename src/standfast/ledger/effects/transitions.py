"""The state machine of effects: functions of a transaction, each change a compare-and-set.

The attempt is the fencing token. A caller with an old attempt is refused, its result is discarded, and the journal
records that. A body may run twice and on another thread, so it touches only `tx` and its arguments.
"""

from __future__ import annotations

from standfast import hints, serial
from standfast.clock import SECOND_US, iso
from standfast.core import journal, leases, repositories
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import ApprovalRequired, Conflict, LeaseLost, StandfastError
from standfast.ids import short
from standfast.ledger import deferred_answers
from standfast.ledger.effects import identity, texts
from standfast.ledger.effects.identity import Request

SQL = load(__name__)

ERROR_MAX = 2000
EVIDENCE_MAX = 4000
YOUNG_US = SECOND_US
"""A result that is younger than this may be visible before it is on disk."""

leases.renewed("effect")


# -- begin of an attempt ----------------------------------------------------------------------------


def dispatched(tx: Tx, row: Row, wanted: Request, *, resent: bool = False) -> Row | StandfastError:
    """Dispatch the next attempt: the row with its `receipt`, or a refusal if it needs an approval that it lacks."""
    from standfast.ledger import approvals

    if wanted.still is not None and not wanted.still():
        return Conflict(f"{wanted.shown} was not sent: its caller does not wait any longer", code="caller_gone")
    # An open request keeps the effect waiting, even if the code no longer asks for approval.
    if wanted.approve or approvals.asked(tx, row["id"]):
        row = reworded(tx, row, wanted)
        asked = {**row, "context": wanted.context}
        refusal = approvals.require(tx, asked, attempt=row["attempt"] + 1, why=wanted.why, gate=wanted.gate)
        if refusal is not None:
            if isinstance(refusal, ApprovalRequired):
                refusal.effect_id = row["id"]
            return refusal
    now_us = tx.now_us()
    owner = wanted.owner()
    moved = tx.one(
        SQL.dispatch,
        id=row["id"],
        session_id=owner["session_id"],
        node_id=owner["node_id"],
        attempt=row["attempt"],
        state=row["state"],
        intent=wanted.intent_text,
        intent_hash=wanted.intent_hash,
        context=wanted.context,
        idempotent_us=wanted.idempotent_us,
        result_shape=wanted.shape,
        actor=tx.caller.actor,
        now_us=now_us,
        **term(tx, wanted),
    )
    sent = {**row, "state": "dispatched", "attempt": moved["attempt"], "context": wanted.context}
    sent |= {"intent": wanted.intent_text, "intent_hash": wanted.intent_hash, "shown": wanted.shown}
    sent |= {"result_shape": wanted.shape, "session_id": owner["session_id"] or row["session_id"]}
    attempt = f", attempt {moved['attempt']}" if moved["attempt"] > 1 else ""
    again = f"{attempt}, sent again with the same key" if resent else attempt
    return {**sent, "receipt": journal_change(tx, "dispatched", sent, f"{wanted.shown}{again}")}


def reworded(tx: Tx, row: Row, wanted: Request) -> Row:
    """Store the arguments of this call, because these will be sent and need the approval."""
    if row["intent_hash"] == wanted.intent_hash and row["context"] == wanted.context:
        return row
    tx.one(
        SQL.reword,
        id=row["id"],
        attempt=row["attempt"],
        state=row["state"],
        intent=wanted.intent_text,
        intent_hash=wanted.intent_hash,
        context=wanted.context,
        now_us=tx.now_us(),
    )
    if row["intent_hash"] == wanted.intent_hash:
        return {**row, "context": wanted.context}
    names = identity.differences(serial.read(row["intent"]), wanted.intent)
    journal_change(tx, "reworded", row, f"{wanted.shown}: other {', '.join(names)}", data={"fields": names})
    return {**row, "intent": wanted.intent_text, "intent_hash": wanted.intent_hash, "context": wanted.context}


def term(tx: Tx, wanted: Request) -> Row:
    """The lease of the process that will do the work."""
    term = leases.new_lease(tx, wanted.for_us)
    return term if wanted.holder is None else {**term, "holder": wanted.holder}


# -- end of an attempt ------------------------------------------------------------------------------


def acknowledge(
    tx: Tx,
    row: Row,
    result: str | None,
    *,
    artifact_id: str | None = None,
    external_ref: str | None = None,
    source: str = "seen",
) -> Receipt | StandfastError:
    """Record the result of attempt `row["attempt"]`, or return LeaseLost for a late one.

    `source` is "said" for a result that standfast did not see.
    """
    receipt = acknowledged(tx, row, result, artifact_id=artifact_id, external_ref=external_ref, source=source)
    return receipt if receipt is not None else late(tx, row, "done")


def fail(tx: Tx, row: Row, error: str, *, source: str = "seen") -> Receipt | StandfastError:
    """Record that nothing was sent. The next call dispatches again."""
    moved = tx.maybe(
        SQL.fail,
        id=row["id"],
        attempt=row["attempt"],
        error=serial.clean(error, ERROR_MAX),
        evidence=None,
        now_us=tx.now_us(),
    )
    if moved is None:
        return late(tx, row, "failed")
    return journal_change(tx, "failed", row, f"{texts.shown(row)}: {error}", state="failed", source=source)


def give_up(tx: Tx, row: Row, error: str) -> Receipt | None:
    """Release the lease, so that the effect is in doubt at once."""
    moved = tx.maybe(
        SQL.give_up,
        id=row["id"],
        attempt=row["attempt"],
        error=serial.clean(error, ERROR_MAX),
        now_us=tx.now_us(),
    )
    if moved is None:
        return None
    return journal_change(tx, "gave_up", row, f"{texts.shown(row)}: {error}", state="dispatched")


def resolve(tx: Tx, row: Row, result: str | None, evidence: str) -> Receipt:
    """Record the answer about an effect in doubt. `result` is None if it was not applied."""
    about: Row = {"id": row["id"], "attempt": row["attempt"], "evidence": evidence, "now_us": tx.now_us()}
    if result is None:
        tx.one(SQL.fail, error="resolved: not applied", **about)
        state, said = "failed", "not applied"
    else:
        tx.one(SQL.acknowledge, result=result, artifact_id=None, external_ref=None, **about)
        state, said = "acknowledged", "applied"
    summary = f"{texts.shown(row)}: {said}, says {tx.caller.actor}: {evidence}"
    receipt = journal_change(tx, "resolved", row, summary, state=state, source="said")
    if result is not None and row["tool"].startswith(identity.COMPENSATE):
        _compensated(tx, row)
    deferred_answers.make_ready(tx, row["session_id"])
    return receipt


def correct(tx: Tx, row: Row, result: str, evidence: str) -> Receipt:
    """Replace the result that a person gave. The state stays, and the journal has both results."""
    about: Row = {"id": row["id"], "attempt": row["attempt"], "evidence": evidence, "now_us": tx.now_us()}
    tx.one(SQL.correct, result=result, **about)
    summary = f"{texts.shown(row)}: another result, says {tx.caller.actor}: {evidence}"
    return journal_change(tx, "resolved", row, summary, state="acknowledged", data={"corrected": True}, source="said")


def proceed(tx: Tx, row: Row, session_id: str, reason: str | None) -> Receipt:
    """Record that the session continues in spite of this doubt."""
    why = f": {reason}" if reason else ""
    row = {**row, "session_id": session_id}  # a fork that passes over its ancestor's effect does so only for itself
    return journal_change(tx, "proceeded", row, f"{texts.shown(row)}: the session continues without knowing{why}")


def late(tx: Tx, row: Row, what: str) -> StandfastError:
    """The LeaseLost for a caller that ends an old attempt. The journal records it."""
    now = tx.one(SQL.by_id, id=row["id"])
    journal_change(tx, "late", now, f"{texts.shown(now)}: attempt {row['attempt']} was {what} too late, discarded")
    if now["attempt"] != row["attempt"]:
        since = f"attempt {now['attempt']} was begun at {iso(now['dispatched_us'] or now['updated_us'])}"
    else:
        since = f"it is {now['state']} since {iso(now['ended_us'] or now['updated_us'])}"
    return LeaseLost(
        f"{texts.named(now)}: attempt {row['attempt']} is {what} too late: {since}; its result was not stored",
        f"see its state: {hints.command('effect', 'show', short(now['id']))}",
    )


def acknowledged(
    tx: Tx,
    row: Row,
    result: str | None,
    *,
    artifact_id: str | None = None,
    external_ref: str | None = None,
    evidence: str | None = None,
    said: str = "",
    source: str = "seen",
) -> Receipt | None:
    """Record the result. None if this is not the current attempt, or if it has ended."""
    moved = tx.maybe(
        SQL.acknowledge,
        id=row["id"],
        attempt=row["attempt"],
        result=result,
        artifact_id=artifact_id,
        external_ref=external_ref,
        evidence=evidence,
        now_us=tx.now_us_if_known(),
    )
    if moved is None:
        return None
    summary = f"{texts.shown(row)}{f': {said}' if said else ''}"
    receipt = journal_change(tx, "acknowledged", row, summary, state="acknowledged", source=source)
    if moved["tool"].startswith(identity.COMPENSATE):
        _compensated(tx, row)
    return receipt


def _compensated(tx: Tx, compensation: Row) -> None:
    """Mark the effect of an acknowledged compensation as compensated, in the same transaction."""
    done = serial.read(tx.one(SQL.by_id, id=compensation["id"])["intent"])["effect"]
    if tx.maybe(SQL.compensate, id=done, successor_id=compensation["id"], now_us=tx.now_us()) is not None:
        row = tx.one(SQL.by_id, id=done)
        journal_change(
            tx,
            "compensated",
            row,
            f"{texts.shown(row)}, compensated by {short(compensation['id'])}",
            state="compensated",
        )


def journal_change(
    tx: Tx,
    event: str,
    row: Row,
    summary: str,
    *,
    state: str | None = None,
    data: serial.Json = None,
    source: str = "seen",
) -> Receipt:
    """Append to the journal, in the transaction of the change. `source` is "said" for reports of agents and persons."""
    about = {"attempt": row["attempt"], "intent_hash": row.get("intent_hash"), **(data or {})}
    return journal.append(
        tx,
        f"effect.{event}",
        row["id"],
        summary=summary,
        scope=row["scope"],
        label=repositories.labelled(row),
        session_id=row["session_id"],
        state=state or (event if event in ("planned", "dispatched") else row["state"]),
        data=about,
        source=source,
    )
