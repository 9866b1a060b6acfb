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
from standfast.errors import Conflict, KeyConflict, StandfastError
from standfast.footings import leases, repositories
from standfast.footings.journal import Receipt
from standfast.ids import short
from standfast.ledger.effects import identity, transitions, words
from standfast.ledger.effects.identity import Wanted

BEGUN: set[tuple[str, int]] = set()
"""Attempts this process has begun by hand and not ended: nobody is inside a call, and yet it is at them."""
LEFT: set[tuple[str, int]] = set()
"""Attempts whose call has ended in this process while the store could not record it."""
DOUBTS_MAX = 100
"""Effects under way that are judged at a time; equal ones in other sessions: at all."""


class Go(NamedTuple):
    """Yours: the intent is recorded as this attempt, now act."""

    row: Row
    resent: bool = False
    """Sent again because the remote knows the key: with the words of the first time."""
    receipt: Receipt | None = None
    """Of the journal row that says "dispatched"."""


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


class Stopped(NamedTuple):
    """Nothing was recorded: other effects are in doubt, and this one is not sent before they are settled."""

    doubts: tuple[Doubt, ...]
    elsewhere: str | None = None
    """Of the same effect in another session: where that is."""
    repository: str = ""
    """Of the same effect in another repository: which, and the account that wrote it."""


class Finding(NamedTuple):
    """What was found out about one attempt in doubt."""

    attempt: int
    answer: str
    """applied · not_applied · again"""
    result: str | None = None
    evidence: str = ""


Outcome = Go | Recorded | Planned | Doubt | Stopped


def begin(tx: Tx, id: str, wanted: Wanted, finding: Finding | None, idle: bool) -> Outcome | StandfastError:
    """Record the intent as dispatched, or say what stands under its identity.

    `idle` says that no thread of this process is at it: a lease of this very process is then
    what an interrupted call left behind.
    """
    made = _inserted(tx, id, wanted, beside=wanted.plan)
    if made is not None:
        return made
    refusal = wanted.opening.guard(tx) if wanted.opening is not None else None
    if refusal is not None:
        return refusal
    row = tx.maybe(transitions.SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    if row is None:  # others are under way beside it: are they in doubt?
        made = stopped(tx, wanted) or _inserted(tx, id, wanted, beside=True)
        if made is not None:
            return made
        row = tx.one(transitions.SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    return _found(tx, row, wanted, finding, idle)


def _inserted(tx: Tx, id: str, wanted: Wanted, *, beside: bool) -> Outcome | StandfastError | None:
    """The new effect; None if its identity is taken or, unless `beside`, others are under way beside it."""
    state = "planned" if wanted.plan or wanted.approve else "dispatched"
    if tx.maybe(transitions.SQL.insert, beside=int(beside), **_first(tx, id, wanted, state)) is None:
        return None
    row = _seed(id, wanted, state) | wanted.repository(tx)._asdict()
    words.say(tx, "planned", row, wanted.shown)
    if state == "dispatched":
        return Go(row, receipt=words.say(tx, "dispatched", row, wanted.shown))
    return Planned(row) if wanted.plan else _sent(tx, row, wanted)


def _found(tx: Tx, row: Row, wanted: Wanted, finding: Finding | None, idle: bool) -> Outcome | StandfastError:
    """The table of what the next call does: docs/effects.md shows it."""
    refusal = elsewhere(tx, row, wanted) or mismatch(row, wanted) or words.closed(row)
    if refusal is not None:
        return refusal
    if row["state"] == "acknowledged":
        return Recorded(row)
    if row["state"] in ("planned", "failed") and wanted.plan:
        return Planned(transitions.reworded(tx, row, wanted))
    if row["state"] in ("planned", "failed"):
        return stopped(tx, wanted, row["id"]) or _sent(tx, row, wanted)
    doubt = doubtful(tx, row, idle=idle)
    if doubt is None:
        return words.in_progress(tx, row)
    if finding is None or finding.attempt != row["attempt"]:
        return doubt
    return _settled(tx, row, wanted, finding)


def elsewhere(tx: Tx, row: Row, wanted: Wanted) -> Conflict | None:
    """The key belongs to another repository."""
    return repositories.refused(tx, row, f"the key {wanted.key!r} of {words.named(row)}", wanted.repository(tx))


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
    attempt = (row["id"], row["attempt"])
    if ours and attempt not in BEGUN and (idle or attempt in LEFT):
        return Doubt(row, True, "interrupted")
    return None if standing.live else Doubt(row, _long_over(tx, row), "over")


def stopped(tx: Tx, wanted: Wanted, id: str = "") -> Stopped | None:
    """What has to be settled before `wanted` (effect `id`, if there is a row) is sent; None if nothing.

    An undo goes on: it makes less of what was sent, and a person or a handler of errors has asked for it.
    """
    session_id = wanted.owner()["session_id"]
    if wanted.tool.startswith(identity.UNDO):
        return None
    if session_id is not None and (doubts := unsettled(tx, session_id, id)):
        return Stopped(doubts)
    derived = wanted.key.startswith(identity.DERIVED)
    about: Row = {"scope": wanted.scope, "tool": wanted.tool, "by_hash": wanted.by_hash, "derived": int(derived)}
    for row in tx.all(transitions.SQL.same_elsewhere, session_id=session_id or "", limit=DOUBTS_MAX, **about):
        doubt = doubtful(tx, row) if row["id"] != id else None
        if doubt is not None:
            return Stopped((doubt,), _where(tx, row["session_id"]), repositories.other(tx, row, wanted.repository(tx)))
    return None


def unsettled(tx: Tx, session_id: str, id: str = "") -> tuple[Doubt, ...]:
    """The oldest effects of a session that are in doubt and not passed over; `id` is left out."""
    after = ""
    while rows := tx.all(transitions.SQL.under_way, session_id=session_id, after=after, limit=DOUBTS_MAX):
        doubts = [doubt for row in rows if row["id"] != id and (doubt := doubtful(tx, row)) is not None]
        if found := tuple(doubt for doubt in doubts if not _passed_over(tx, doubt.row)):
            return found
        after = rows[-1]["id"]
    return ()


def _passed_over(tx: Tx, row: Row) -> bool:
    """Whether the program said `s.proceed()` about this very attempt."""
    said = tx.maybe(transitions.SQL.proceeded, id=row["id"])
    return said is not None and serial.read(said["data"])["attempt"] == row["attempt"]


def _where(tx: Tx, session_id: str | None) -> str:
    found = tx.maybe(transitions.SQL.session_key, id=session_id) if session_id is not None else None
    return "outside any session" if found is None else f"in session {found['key']!r}"


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
    # It may wait for an approval now, so the row itself says that nothing was applied.
    failed = {"id": row["id"], "attempt": row["attempt"], "error": finding.evidence, "evidence": finding.evidence}
    tx.one(transitions.SQL.fail, now_us=tx.now_us(), **failed)
    words.say(tx, "failed", row, f"{words.shown(row)}: {finding.evidence}", state="failed")
    return _sent(tx, {**row, "state": "failed"}, wanted)


def remembered(tx: Tx, row: Row, window_us: int | None) -> bool:
    """Whether the remote still knows the key of the first dispatch, so that it may be sent again."""
    return window_us is not None and tx.now_us() - row["first_dispatched_us"] <= window_us


def _sent(tx: Tx, row: Row, wanted: Wanted, *, resent: bool = False) -> Go | StandfastError:
    sent = transitions.dispatched(tx, row, wanted, resent=resent)
    return sent if isinstance(sent, StandfastError) else Go(sent, resent, sent.pop("receipt"))


def unsettled_us(tx: Tx, row: Row, settle_us: int) -> int:
    """How long a probe's "not there" does not count yet. At most `settle_us`, also if the wall clock was set back.

    The attempt may have sent until its function ended. A killed process may have sent just before it was found dead,
    but not after its lease.
    """
    last_us: int = row["gave_up_us"] or row["lease_until_us"] or row["dispatched_us"]
    return max(0, min(settle_us, last_us + settle_us - tx.now_us()))


def dispatch(tx: Tx, row: Row, *, for_us: int | None, holder: str | None) -> Go | Stopped | StandfastError:
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
        session_id=row["session_id"],
        shape=row["result_shape"],
    )
    return words.closed(row) or stopped(tx, wanted, row["id"]) or _sent(tx, row, wanted)


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
        "result_shape": wanted.shape,
        "derived": int(wanted.key.startswith(identity.DERIVED)),
        "actor": tx.caller.actor,
        "now_us": tx.now_us(),
        "dispatched_us": tx.now_us() if sent else None,
        **wanted.repository(tx)._asdict(),
        **(transitions.term(tx, wanted) if sent else nobody),
    }


def _seed(id: str, wanted: Wanted, state: str) -> Row:
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
        "result_shape": wanted.shape,
    }
