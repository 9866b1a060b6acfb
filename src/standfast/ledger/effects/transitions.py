"""The state machine of effects: functions of a transaction, each change a compare-and-set.

`begin` decides by what it finds under the identity; the rest end an attempt. The attempt is the
fence: whoever comes back with an old one is refused, its result is discarded, and the journal
says so. A body may run twice and on another thread, so it touches only `tx` and its arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.clock import SECOND_US, iso
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import Conflict, EffectInDoubt, InProgress, KeyConflict, LeaseLost, StandfastError
from standfast.footings import journal, leases
from standfast.footings.journal import Receipt
from standfast.ids import short
from standfast.ledger.effects import identity
from standfast.ledger.effects.identity import Wanted

SQL = load(__name__)

ERROR_MAX = 2000
EVIDENCE_MAX = 4000
YOUNG_US = SECOND_US
"""A result younger than this may be visible and not yet on disk."""

leases.renewed("effect")

BEGUN: set[tuple[str, int]] = set()
"""Attempts this process has begun by hand and not ended: nobody is inside a call, and yet it is at them."""


# -- what `begin` finds -----------------------------------------------------------------------------


class Go(NamedTuple):
    """Yours: the intent is recorded as this attempt, now act."""

    row: Row
    resent: bool = False
    """Sent again because the remote knows the key: with the words of the first time."""


class Recorded(NamedTuple):
    """It was done: the result is in the row."""

    row: Row


class Planned(NamedTuple):
    """Written down and not sent, as was asked."""

    row: Row


class Doubt(NamedTuple):
    """It was sent, and nobody knows how it ended."""

    row: Row
    quiet: bool
    """The last holder cannot send any more, as far as anybody can tell: "not applied" counts."""
    standing: str


class Finding(NamedTuple):
    """What was found out about one attempt in doubt."""

    attempt: int
    answer: str
    """applied · not_applied · again"""
    result: str | None = None
    evidence: str = ""


Outcome = Go | Recorded | Planned | Doubt


def begin(tx: Tx, id: str, wanted: Wanted, finding: Finding | None, idle: bool) -> Outcome | StandfastError:
    """Record the intent as dispatched, or say what stands under its identity.

    `idle` says that no thread of this process is at it: a lease of this very process is then
    what an interrupted call left behind.
    """
    state = "planned" if wanted.plan or wanted.approve else "dispatched"
    made = tx.maybe(SQL.insert, **_first(tx, id, wanted, state))
    if made is not None:
        row = _seed(tx, id, wanted, state)
        say(tx, "planned", row, wanted.shown)
        if state == "dispatched":
            say(tx, "dispatched", row, wanted.shown)
            return Go(row)
        return Planned(row) if wanted.plan else _dispatched(tx, row, wanted)
    refusal = wanted.opening.guard(tx) if wanted.opening is not None else None
    if refusal is not None:
        return refusal
    row = tx.one(SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    return _found(tx, row, wanted, finding, idle)


def _found(tx: Tx, row: Row, wanted: Wanted, finding: Finding | None, idle: bool) -> Outcome | StandfastError:
    """The table of what the next call does: docs/effects.md shows it."""
    refusal = mismatch(row, wanted) or closed(row)
    if refusal is not None:
        return refusal
    if row["state"] == "acknowledged":
        return Recorded(row)
    if row["state"] in ("planned", "failed") and wanted.plan:
        return Planned(_reworded(tx, row, wanted))
    if row["state"] in ("planned", "failed"):
        return _dispatched(tx, row, wanted)
    doubt = doubtful(tx, row, idle=idle)
    if doubt is None:
        return in_progress(tx, row)
    if finding is None or finding.attempt != row["attempt"]:
        return doubt
    return _settled(tx, row, wanted, finding)


def mismatch(row: Row, wanted: Wanted) -> KeyConflict | None:
    """The key names something else: another tool, or other values of the fields that identify it."""
    intent = serial.read(row["intent"])
    if row["tool"] != wanted.tool:
        said = f"was used for {row['tool']} and not for {wanted.tool}"
    elif identity.same_fields(wanted, row["by_hash"], intent):
        return None
    elif intent is None:
        said = f"was used for another {wanted.tool}, whose intent was pruned"
    else:
        said = f"was used for another {wanted.tool}: {identity.told(wanted, intent)}"
    return KeyConflict(
        f"the key {wanted.key!r} {said} ({named(row)})",
        f"use another key, or see what it names: standfast effect show {short(row['id'])}",
    )


def closed(row: Row) -> Conflict | None:
    """What no call goes on from."""
    tell = f"standfast effect show {short(row['id'])}"
    if row["pruned_us"] is not None:
        return Conflict(
            f"{named(row)} was {row['state']} and its result was pruned at {iso(row['pruned_us'])}",
            f"it is not done again under this identity; to do it anew, use another key ({tell})",
            code="result_pruned",
        )
    if row["state"] == "superseded":
        successor = f" by {short(row['successor_id'])}" if row["successor_id"] else ""
        return Conflict(f"{named(row)} was superseded{successor}", tell, code="superseded")
    if row["state"] == "compensated":
        return Conflict(
            f"{named(row)} was done and undone by {short(row['successor_id'] or '')}",
            f"to do it once more pass again=True, or another key ({tell})",
            code="compensated",
        )
    return None


def doubtful(tx: Tx, row: Row, *, idle: bool = False) -> Doubt | None:
    """The doubt about a dispatched effect; None while somebody alive is at it."""
    standing = leases.stand(tx, row)
    if row["gave_up_us"] is not None or standing.free:
        return Doubt(row, True, "gave_up")
    if standing.gone:
        return Doubt(row, True, "gone")
    ours = row["holder"] == tx.caller.holder and row["holder"].startswith("p:")
    if idle and ours and (row["id"], row["attempt"]) not in BEGUN:
        return Doubt(row, True, "interrupted")
    return None if standing.live else Doubt(row, _long_over(tx, row), "over")


def _long_over(tx: Tx, row: Row) -> bool:
    """One more lease has passed since it ran out: a holder that only slept would have come back.

    One that can be seen has all the time it wants: it may wake up and send.
    """
    clock = tx.caller.clock
    if leases.is_here(row["holder"], clock):
        return False
    if tx.dialect == "sqlite" and row["lease_boot"] == clock.boot_id():
        return bool(clock.mono_us() >= row["lease_mono_us"] + row["lease_for_us"])
    return bool(tx.now_us() >= row["lease_until_us"] + row["lease_for_us"])


def _settled(tx: Tx, row: Row, wanted: Wanted, finding: Finding) -> Outcome | StandfastError:
    if finding.answer == "applied":
        _acknowledged(tx, row, finding.result, evidence=finding.evidence, said="found by its probe")
        return Recorded(tx.one(SQL.by_id, id=row["id"]))
    if finding.answer == "again":
        # The same key must carry the same words: a remote may refuse it otherwise.
        return _dispatched(
            tx, row, wanted._replace(intent_text=row["intent"], intent_hash=row["intent_hash"]), resent=True
        )
    say(tx, "failed", row, f"{shown(row)}: {finding.evidence}", state="failed")
    return _dispatched(tx, row, wanted)


def _dispatched(tx: Tx, row: Row, wanted: Wanted, *, resent: bool = False) -> Outcome | StandfastError:
    """The next attempt, if nobody has to say yes first, or somebody has."""
    from standfast.ledger import approvals

    # Once a person was asked, their answer is awaited, also by code that no longer asks.
    if wanted.approve or approvals.asked(tx, row["id"]):
        row = _reworded(tx, row, wanted)
        refusal = approvals.require(tx, row, attempt=row["attempt"] + 1, why=wanted.why, gate=wanted.gate)
        if refusal is not None:
            return refusal
    now_us = tx.now_us()
    moved = tx.one(
        SQL.dispatch,
        id=row["id"],
        attempt=row["attempt"],
        state=row["state"],
        intent=wanted.intent_text,
        intent_hash=wanted.intent_hash,
        context=wanted.context,
        idempotent_us=wanted.idempotent_us,
        actor=tx.caller.actor,
        now_us=now_us,
        **_term(tx, wanted),
    )
    sent = {**row, "state": "dispatched", "attempt": moved["attempt"], "context": wanted.context}
    sent |= {"intent": wanted.intent_text, "intent_hash": wanted.intent_hash, "shown": wanted.shown}
    attempt = f", attempt {moved['attempt']}" if moved["attempt"] > 1 else ""
    again = f"{attempt}, sent again with the same key" if resent else attempt
    say(tx, "dispatched", sent, f"{wanted.shown}{again}")
    return Go(sent, resent)


def dispatch(tx: Tx, row: Row, *, for_us: int | None, holder: str | None) -> Outcome | StandfastError:
    """The next attempt of what is planned or failed, in the words it was recorded with."""
    intent = serial.read(row["intent"])
    wanted = Wanted(
        scope=row["scope"],
        tool=row["tool"],
        key=row["key"],
        n=row["n"],
        by=None,
        fields=intent,
        shown=shown(row),
        by_hash=row["by_hash"],
        intent=intent,
        intent_text=row["intent"],
        intent_hash=row["intent_hash"],
        context=row["context"],
        idempotent_us=row["idempotent_us"],
        for_us=for_us,
        holder=holder,
    )
    return closed(row) or _dispatched(tx, row, wanted)


def _reworded(tx: Tx, row: Row, wanted: Wanted) -> Row:
    """What will be sent is what this call says, so that is what has to be recorded and approved."""
    if row["intent_hash"] == wanted.intent_hash:
        return row
    tx.one(
        SQL.reword,
        id=row["id"],
        attempt=row["attempt"],
        state=row["state"],
        intent=wanted.intent_text,
        intent_hash=wanted.intent_hash,
        now_us=tx.now_us(),
    )
    names = identity.differences(serial.read(row["intent"]), wanted.intent)
    say(tx, "reworded", row, f"{wanted.shown}: other {', '.join(names)}", data={"fields": names})
    return {**row, "intent": wanted.intent_text, "intent_hash": wanted.intent_hash}


def _first(tx: Tx, id: str, wanted: Wanted, state: str) -> Row:
    sent = state == "dispatched"
    nobody = {"holder": None, "lease_until_us": None, "lease_boot": None, "lease_mono_us": None, "lease_for_us": None}
    return {
        "id": id,
        "scope": wanted.scope,
        **wanted.owner(),
        "tool": wanted.tool,
        "key": wanted.key,
        "n": wanted.n,
        "by_hash": wanted.by_hash,
        "intent_hash": wanted.intent_hash,
        "intent": wanted.intent_text,
        "context": wanted.context,
        "shown": wanted.shown,
        "state": state,
        "attempt": int(sent),
        "idempotent_us": wanted.idempotent_us,
        "actor": tx.caller.actor,
        "now_us": tx.now_us(),
        "dispatched_us": tx.now_us() if sent else None,
        **(_term(tx, wanted) if sent else nobody),
    }


def _seed(tx: Tx, id: str, wanted: Wanted, state: str) -> Row:
    """What is known of a row that was just inserted, without reading it back."""
    return {
        "id": id,
        "scope": wanted.scope,
        "session_id": wanted.owner()["session_id"],
        "tool": wanted.tool,
        "key": wanted.key,
        "context": wanted.context,
        "shown": wanted.shown,
        "state": state,
        "attempt": int(state == "dispatched"),
        "intent": wanted.intent_text,
        "intent_hash": wanted.intent_hash,
    }


def _term(tx: Tx, wanted: Wanted) -> Row:
    term = leases.term_of(tx, wanted.for_us)
    return term if wanted.holder is None else {**term, "holder": wanted.holder}


# -- how an attempt ends ----------------------------------------------------------------------------


def acknowledge(
    tx: Tx,
    row: Row,
    result: str | None,
    *,
    artifact_id: str | None = None,
    external_ref: str | None = None,
    source: str = "seen",
) -> Receipt | StandfastError:
    """Record the result of attempt `row["attempt"]`, or refuse a late one. What we did not see was said."""
    receipt = _acknowledged(tx, row, result, artifact_id=artifact_id, external_ref=external_ref, source=source)
    return receipt if receipt is not None else late(tx, row, "done")


def fail(tx: Tx, row: Row, error: str, *, source: str = "seen") -> Receipt | StandfastError:
    """Record that nothing was sent: the next call acts."""
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
    return say(tx, "failed", row, f"{shown(row)}: {error}", state="failed", source=source)


def give_up(tx: Tx, row: Row, error: str) -> Receipt | None:
    """Record that nobody is at it any more and nobody knows: in doubt at once."""
    moved = tx.maybe(
        SQL.give_up,
        id=row["id"],
        attempt=row["attempt"],
        error=serial.clean(error, ERROR_MAX),
        now_us=tx.now_us(),
    )
    return None if moved is None else say(tx, "gave_up", row, f"{shown(row)}: {error}", state="dispatched")


def resolve(tx: Tx, row: Row, result: str | None, evidence: str) -> Receipt:
    """A person's word about what is in doubt: `result` is None where it was not applied."""
    about: Row = {"id": row["id"], "attempt": row["attempt"], "evidence": evidence, "now_us": tx.now_us()}
    if result is None:
        tx.one(SQL.fail, error="resolved: not applied", **about)
        state, said = "failed", "not applied"
    else:
        tx.one(SQL.acknowledge, result=result, artifact_id=None, external_ref=None, **about)
        state, said = "acknowledged", "applied"
    summary = f"{shown(row)}: {said}, says {tx.caller.actor}: {evidence}"
    receipt = say(tx, "resolved", row, summary, state=state, source="said")
    if result is not None and row["tool"].startswith(identity.UNDO):
        _compensated(tx, row)
    return receipt


def late(tx: Tx, row: Row, what: str) -> StandfastError:
    """Somebody with an old fence wants to say how it ended: refused, and the journal remembers."""
    now = tx.one(SQL.by_id, id=row["id"])
    say(tx, "late", now, f"{shown(now)}: attempt {row['attempt']} was {what} too late, discarded")
    if now["attempt"] != row["attempt"]:
        since = f"attempt {now['attempt']} was begun at {iso(now['dispatched_us'] or now['updated_us'])}"
    else:
        since = f"it is {now['state']} since {iso(now['ended_us'] or now['updated_us'])}"
    return LeaseLost(
        f"{named(now)}: attempt {row['attempt']} is {what} too late: {since}; what it brought was discarded",
        f"see what stands: standfast effect show {short(now['id'])}",
    )


def _acknowledged(
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
    summary = f"{shown(row)}{f': {said}' if said else ''}"
    receipt = say(tx, "acknowledged", row, summary, state="acknowledged", source=source)
    if moved["tool"].startswith(identity.UNDO):
        _compensated(tx, row)
    return receipt


def _compensated(tx: Tx, undo: Row) -> None:
    """An undo that was done ends what it undid, in the same transaction."""
    done = serial.read(tx.one(SQL.by_id, id=undo["id"])["intent"])["effect"]
    if tx.maybe(SQL.compensate, id=done, successor_id=undo["id"], now_us=tx.now_us()) is not None:
        row = tx.one(SQL.by_id, id=done)
        say(tx, "compensated", row, f"{shown(row)}, undone by {short(undo['id'])}", state="compensated")


# -- words ------------------------------------------------------------------------------------------


def say(
    tx: Tx,
    event: str,
    row: Row,
    summary: str,
    *,
    state: str | None = None,
    data: serial.Json = None,
    source: str = "seen",
) -> Receipt:
    about = {"attempt": row["attempt"], "intent_hash": row.get("intent_hash"), **(data or {})}
    return journal.append(
        tx,
        f"effect.{event}",
        row["id"],
        summary=summary,
        scope=row["scope"],
        session_id=row["session_id"],
        state=state or (event if event in ("planned", "dispatched") else row["state"]),
        data=about,
        source=source,
    )


def shown(row: Row) -> str:
    """An effect in one line, from its row: the tool, and what identifies it."""
    known: str | None = row.get("shown")
    return known or told(row["tool"], serial.read(row["intent"]), serial.read(row["context"]))


def told(tool: str, intent: serial.Json, context: serial.Json) -> str:
    by = context.get("by") if isinstance(context, dict) else None
    if by is not None and isinstance(intent, dict):
        intent = {name: intent[name] for name in by if name in intent}
    return identity.describe(tool, intent)


def named(row: Row) -> str:
    return f"effect {row['tool']!r} ({short(row['id'])})"


def settling(id: str) -> str:
    """The command that settles a doubt."""
    return f"standfast effect resolve {short(id)} --applied|--not-applied --evidence TEXT"


def in_progress(tx: Tx, row: Row) -> InProgress:
    found = leases.in_progress(tx, named(row), row)
    since = f"begun at {iso(row['dispatched_us'])}"
    if row["holder"] == tx.caller.holder and row["holder"].startswith("a:"):
        hint = f"say how it ended: standfast effect done|fail {short(row['id'])}"
    else:
        hint = f"wait, or end that holder; then ask again: standfast effect show {short(row['id'])}"
    return InProgress(f"{found.message}; {since}", hint)


WHY = {
    "gave_up": "it ended in an error that proves nothing",
    "gone": "its process is gone",
    "over": "its lease ran out",
    "interrupted": "its call was interrupted",
}


def in_doubt(doubt: Doubt, probed: str = "") -> EffectInDoubt:
    """Never a silent second run, never a silent skip: a person has to look."""
    row = doubt.row
    error = f" ({serial.clean(row['error'], 200)})" if row["error"] else ""
    sent = f"attempt {row['attempt']} was sent at {iso(row['dispatched_us'])} by {row['actor']}"
    return EffectInDoubt(
        f"{shown(row)} is in doubt: {sent}, {WHY[doubt.standing]}{error}{probed}",
        f"look whether it happened, then say so: {settling(row['id'])}",
    )


def remembered(tx: Tx, row: Row, window_us: int | None) -> bool:
    """Whether the remote still knows the key of the first dispatch, so that it may be sent again."""
    return window_us is not None and tx.now_us() - row["first_dispatched_us"] <= window_us
