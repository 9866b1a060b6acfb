"""What a call finds under its identity, and what it may do about it.

`begin` records the intent, or decides by what stands there: the table is in docs/effects.md. It is a
body of a transaction: it may run twice and on another thread, and touches only `tx` and its
arguments. Nothing of the world is asked in here; a doubt is handed out, and what was found
out about it is handed back in as a `Finding`.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast import serial
from standfast.db.contract import Row, Tx
from standfast.errors import KeyConflict, StandfastError
from standfast.footings import leases
from standfast.ids import short
from standfast.ledger.effects import identity, transitions, words
from standfast.ledger.effects.identity import Wanted

BEGUN: set[tuple[str, int]] = set()
"""Attempts this process has begun by hand and not ended: nobody is inside a call, and yet it is at them."""


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
    made = tx.maybe(transitions.SQL.insert, **_first(tx, id, wanted, state))
    if made is not None:
        row = _seed(tx, id, wanted, state)
        words.say(tx, "planned", row, wanted.shown)
        if state == "dispatched":
            words.say(tx, "dispatched", row, wanted.shown)
            return Go(row)
        return Planned(row) if wanted.plan else _sent(tx, row, wanted)
    refusal = wanted.opening.guard(tx) if wanted.opening is not None else None
    if refusal is not None:
        return refusal
    row = tx.one(transitions.SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    return _found(tx, row, wanted, finding, idle)


def _found(tx: Tx, row: Row, wanted: Wanted, finding: Finding | None, idle: bool) -> Outcome | StandfastError:
    """The table of what the next call does: docs/effects.md shows it."""
    refusal = mismatch(row, wanted) or words.closed(row)
    if refusal is not None:
        return refusal
    if row["state"] == "acknowledged":
        return Recorded(row)
    if row["state"] in ("planned", "failed") and wanted.plan:
        return Planned(transitions.reworded(tx, row, wanted))
    if row["state"] in ("planned", "failed"):
        return _sent(tx, row, wanted)
    doubt = doubtful(tx, row, idle=idle)
    if doubt is None:
        return words.in_progress(tx, row)
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
        f"the key {wanted.key!r} {said} ({words.named(row)})",
        f"use another key, or see what it names: standfast effect show {short(row['id'])}",
    )


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
        transitions.acknowledged(tx, row, finding.result, evidence=finding.evidence, said="found by its probe")
        return Recorded(tx.one(transitions.SQL.by_id, id=row["id"]))
    if finding.answer == "again":
        # The same key must carry the same words: a remote may refuse it otherwise.
        return _sent(tx, row, wanted._replace(intent_text=row["intent"], intent_hash=row["intent_hash"]), resent=True)
    words.say(tx, "failed", row, f"{words.shown(row)}: {finding.evidence}", state="failed")
    return _sent(tx, row, wanted)


def remembered(tx: Tx, row: Row, window_us: int | None) -> bool:
    """Whether the remote still knows the key of the first dispatch, so that it may be sent again."""
    return window_us is not None and tx.now_us() - row["first_dispatched_us"] <= window_us


def _sent(tx: Tx, row: Row, wanted: Wanted, *, resent: bool = False) -> Go | StandfastError:
    sent = transitions.dispatched(tx, row, wanted, resent=resent)
    return sent if isinstance(sent, StandfastError) else Go(sent, resent)


def dispatch(tx: Tx, row: Row, *, for_us: int | None, holder: str | None) -> Go | StandfastError:
    """The next attempt of what is planned or failed, in the words it was recorded with."""
    intent = serial.read(row["intent"])
    wanted = Wanted(
        scope=row["scope"],
        tool=row["tool"],
        key=row["key"],
        n=row["n"],
        by=None,
        fields=intent,
        shown=words.shown(row),
        by_hash=row["by_hash"],
        intent=intent,
        intent_text=row["intent"],
        intent_hash=row["intent_hash"],
        context=row["context"],
        idempotent_us=row["idempotent_us"],
        for_us=for_us,
        holder=holder,
    )
    return words.closed(row) or _sent(tx, row, wanted)


def _first(tx: Tx, id: str, wanted: Wanted, state: str) -> Row:
    sent = state == "dispatched"
    nobody = {"holder": None, "lease_until_us": None, "lease_boot": None, "lease_mono_us": None, "lease_for_us": None}
    return {
        "id": id,
        "scope": wanted.scope,
        **wanted.owner(),
        "task_id": wanted.task_id,
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
        **(transitions.term(tx, wanted) if sent else nobody),
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
