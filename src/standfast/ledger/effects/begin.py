"""Begin an effect: insert its intent, or decide by the row that is stored under its identity.

docs/concepts/effects.md has the table of decisions. `begin` is the body of a transaction: it may run twice and on
another thread, so it touches only `tx` and its arguments. It asks no outside system. If the effect is in doubt, it
returns the doubt; its caller asks the probe and calls `begin` again with the answer, a `Finding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from standfast import hints, serial
from standfast.core import gap as gaps
from standfast.core import leases, repositories
from standfast.core.claims import FREE
from standfast.core.gap import Gap
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import Statement
from standfast.errors import Conflict, KeyConflict, StandfastError
from standfast.ids import short
from standfast.ledger.effects import identity, texts, transitions
from standfast.ledger.effects.identity import Request
from standfast.ledger.openings import lineage_of

BEGUN: set[tuple[str, int]] = set()
"""Attempts that this process began with `sf.effects.begin` and has not ended. It owns them although no call is
running."""
LEFT: set[tuple[str, int]] = set()
"""Attempts whose call has ended in this process, but the store could not record the end."""
PAGE = 100
"""The page size when dispatched effects are read."""
DOUBTS_MAX = 100
"""One `Stopped` names at most this many effects in doubt."""


class Go(NamedTuple):
    """The intent is recorded as this attempt, and the caller may send."""

    row: Row
    resent: bool = False
    """True if the remote knows the key, so the request is sent again with the arguments of the first attempt."""
    receipt: Receipt | None = None
    """The journal row that says "dispatched"."""


class Recorded(NamedTuple):
    """The effect was acknowledged: the row has the result."""

    row: Row


class Planned(NamedTuple):
    """The intent is recorded, and the caller asked not to send it."""

    row: Row


class Doubt(NamedTuple):
    """The effect was sent, and its outcome is unknown."""

    row: Row
    quiet: bool
    """True if, as far as this process knows, the last holder can no longer send. Only then "not applied" counts."""
    standing: str


class Stopped(NamedTuple):
    """Nothing was recorded. Other effects are in doubt and must be settled before this one is sent."""

    doubts: tuple[Doubt, ...]
    session: str = ""
    """The key of the session that is stopped."""
    elsewhere: str | None = None
    """The text `in session 'x'`, if the doubt is about the same effect in another session."""
    repository: str = ""
    """The name of that session's repository, if it is another one, and the account that wrote the effect."""


class Finding(NamedTuple):
    """The answer about one attempt in doubt, for the next call of `begin`."""

    attempt: int
    answer: str
    """applied · not_applied · again"""
    result: str | None = None
    evidence: str = ""


Outcome = Go | Recorded | Planned | Doubt | Stopped


def begin(tx: Tx, id: str, wanted: Request, finding: Finding | None = None) -> Outcome | StandfastError:
    """Record the intent as dispatched, or return the row of its identity.

    The caller is inside `alone`: no other thread of this process runs this effect. If this process still has a lease on
    the row, an interrupted call left it.
    """
    # `insert` looks for dispatched effects of the session itself. In a fork, those of its ancestors may be in doubt.
    made = _inserted(tx, id, wanted, beside=wanted.plan) if wanted.plan or not _forked(tx, wanted) else None
    if made is not None:
        return made
    if wanted.opening is not None:
        wanted.opening.check(tx)
    row = tx.maybe(transitions.SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    if row is None:  # another dispatched effect may be in doubt, or a gap is open
        made = stopped(tx, wanted) or _lost(tx, id, wanted) or _inserted(tx, id, wanted, beside=True)
        if made is not None:
            return made
        row = tx.one(transitions.SQL.by_key_for_update, scope=wanted.scope, key=wanted.key)
    return _found(tx, row, wanted, finding)


def _forked(tx: Tx, wanted: Request) -> bool:
    if wanted.opening is not None:
        return bool(wanted.opening.lineage)
    return wanted.session_id is not None and bool(lineage_of(tx, wanted.session_id))


def _inserted(tx: Tx, id: str, wanted: Request, *, beside: bool) -> Outcome | StandfastError | None:
    """Insert the effect. None if the key is taken. Without `beside`, also None if another effect may be in doubt."""
    state = "planned" if wanted.plan or wanted.approve else "dispatched"
    row = _first(tx, id, wanted, state)
    if tx.maybe(transitions.SQL.insert, beside=int(beside), **row) is None:
        return None
    transitions.journal_change(tx, "planned", row, wanted.shown)
    if state == "dispatched":
        return Go(row, receipt=transitions.journal_change(tx, "dispatched", row, wanted.shown))
    return Planned(row) if wanted.plan else _sent(tx, row, wanted)


def _found(tx: Tx, row: Row, wanted: Request, finding: Finding | None) -> Outcome | StandfastError:
    """Decide by the stored row, as the table in docs/concepts/effects.md says."""
    refusal = elsewhere(tx, row, wanted) or mismatch(row, wanted) or texts.closed(row)
    if refusal is not None:
        return refusal
    if row["state"] == "acknowledged":
        return Recorded(row)
    if row["state"] in ("planned", "failed") and wanted.plan:
        return Planned(transitions.reworded(tx, row, wanted))
    if row["state"] in ("planned", "failed"):
        return stopped(tx, wanted, row["id"]) or _sent_in_gap(tx, row, wanted) or _sent(tx, row, wanted)
    doubt = doubtful(tx, row, alone=True)
    if doubt is None:
        return texts.in_progress(tx, row)
    if finding is None or finding.attempt != row["attempt"]:
        return doubt
    return _settled(tx, row, wanted, finding)


def _lost(tx: Tx, id: str, wanted: Request) -> Doubt | None:
    """The store has no row, but the effect may have been sent in the open gap. Record it as in doubt."""
    gap = _gap(tx, wanted)
    if gap is None:
        return None
    row = _first(tx, id, wanted, "dispatched") | {"dispatched_us": gap.from_us}
    if tx.maybe(transitions.SQL.insert, beside=1, **row) is None:
        return None
    transitions.journal_change(tx, "planned", row, wanted.shown)
    transitions.give_up(tx, row, _why(tx, gap, wanted))
    return Doubt(tx.one(transitions.SQL.by_id, id=id), True, "gave_up")


def _sent_in_gap(tx: Tx, row: Row, wanted: Request) -> Doubt | None:
    """The row is planned or failed, but the effect may have been sent in the open gap. Record it as in doubt."""
    gap = _gap(tx, wanted)
    if gap is None or (row["state"] == "failed" and row["ended_us"] > gap.to_us):
        return None
    error = _why(tx, gap, wanted)
    about: Row = {"id": row["id"], "attempt": row["attempt"], "state": row["state"]}
    tx.one(transitions.SQL.sent_in_gap, error=error, from_us=gap.from_us, now_us=tx.now_us(), **about)
    sent = tx.one(transitions.SQL.by_id, id=row["id"])
    transitions.journal_change(tx, "gave_up", sent, f"{texts.shown(sent)}: {error}", state="dispatched")
    return Doubt(sent, True, "gave_up")


def _gap(tx: Tx, wanted: Request) -> Gap | None:
    """The open gap. None if the work began after the gap, as with a later period of `once --per`."""
    gap = gaps.read(tx)
    later = gap is not None and wanted.begins_us is not None and wanted.begins_us >= gap.to_us
    return None if later else gap


def _why(tx: Tx, gap: Gap, wanted: Request) -> str:
    """The error to record. A session newer than the copy may replace a lost one, which used other derived keys."""
    session_id = wanted.owner()["session_id"] if wanted.key.startswith(identity.DERIVED) else None
    found = tx.maybe(transitions.SQL.session_created, id=session_id) if session_id is not None else None
    lost = found is not None and found["created_us"] > gap.from_us
    return f"{texts.IN_GAP} {gap.shown}, of which the restored store has no record{texts.LOST if lost else ''}"


def elsewhere(tx: Tx, row: Row, wanted: Request) -> Conflict | None:
    """The refusal of a key that another repository uses."""
    return repositories.refused(tx, row, f"the key {wanted.key!r} of {texts.named(row)}", wanted.repository(tx))


def mismatch(row: Row, wanted: Request) -> KeyConflict | None:
    """The refusal of a key that names another tool, or other values of the identifying fields."""
    intent = serial.read(row["intent"])
    if row["tool"] != wanted.tool:
        said = f"was used for {row['tool']} and not for {wanted.tool}"
    elif identity.same_fields(wanted, row["by_hash"], intent):
        return None
    elif intent is None:
        said = f"was used for another {wanted.tool}, whose intent was pruned"
    else:
        what = "command" if wanted.tool == "once" else wanted.tool
        said = f"was used for another {what}: {identity.told(wanted, intent)}"
    return KeyConflict(
        f"the key {wanted.key!r} {said} ({texts.named(row)})",
        f"use another key, or see what it names: {hints.command('effect', 'show', short(row['id']))}",
    )


def doubtful(tx: Tx, row: Row, *, alone: bool = False) -> Doubt | None:
    """The doubt about a dispatched effect; None while a live process runs it.

    `alone` says that the caller is the only call of this process for this effect.
    """
    standing = leases.judge(tx, row)
    if row["gave_up_us"] is not None or standing.free:
        return Doubt(row, True, "gave_up")
    if standing.gone:
        return Doubt(row, True, "gone")
    ours = row["holder"] == tx.caller.holder and row["holder"].startswith("p:")
    attempt = (row["id"], row["attempt"])
    if ours and attempt not in BEGUN and (alone or attempt in LEFT):
        return Doubt(row, True, "interrupted")
    return None if standing.live else Doubt(row, _long_over(tx, row), "over")


def stopped(tx: Tx, wanted: Request, id: str = "") -> Stopped | None:
    """The doubts to settle before `wanted` is sent; None if there are none. `id` is its effect, if that has a row.

    A compensation is not stopped: it reverses what was sent, and a person or an error handler asked for it.
    """
    session_id = wanted.owner()["session_id"]
    if wanted.tool.startswith(identity.COMPENSATE):
        return None
    if session_id is not None and (doubts := unsettled(tx, session_id, id)):
        return Stopped(doubts, session=tx.one(transitions.SQL.session_key, id=session_id)["key"])
    derived = wanted.key.startswith(identity.DERIVED)
    about: Row = {"scope": wanted.scope, "tool": wanted.tool, "by_hash": wanted.by_hash, "derived": int(derived)}
    for doubt in _doubts(tx, transitions.SQL.same_elsewhere, id, session_id=session_id or "", **about):
        repository = repositories.other(tx, doubt.row, wanted.repository(tx))
        return Stopped((doubt,), elsewhere=_where(tx, doubt.row["session_id"]), repository=repository)
    return None


def unsettled(tx: Tx, session_id: str, id: str = "") -> tuple[Doubt, ...]:
    """The oldest effects in doubt that stop a session: those that `s.proceed()` did not pass over, without `id`.

    A fork is also stopped by effects of its ancestors that were begun before the cut.
    """
    found: list[Doubt] = []
    for owner, cut_seq in ((session_id, None), *lineage_of(tx, session_id)):
        doubts = _doubts(tx, transitions.SQL.under_way, id, session_id=owner)
        stopping = (doubt for doubt in doubts if _stops(tx, doubt.row, session_id, cut_seq))
        found += islice(stopping, DOUBTS_MAX - len(found))
    return tuple(found)


def _doubts(tx: Tx, statement: Statement, id: str, **about: Any) -> Iterator[Doubt]:
    """The effects in doubt among the rows of `statement`, without the effect `id`."""
    after = ""
    while rows := tx.all(statement, after=after, limit=PAGE, **about):
        for row in rows:
            doubt = doubtful(tx, row) if row["id"] != id else None
            if doubt is not None:
                yield doubt
        after = rows[-1]["id"]


def _stops(tx: Tx, row: Row, session_id: str, cut_seq: int | None) -> bool:
    """Whether this attempt stops the session. It does not if `s.proceed()` passed over it, or if it is after the cut
    of a fork."""
    if cut_seq is not None:
        known = tx.maybe(transitions.SQL.before_cut, scope=row["scope"], key=row["key"], cut_seq=cut_seq)
        if known is None:
            return False
    said = tx.maybe(transitions.SQL.proceeded, id=row["id"], session_id=session_id, cut_seq=cut_seq or 0)
    return said is None or serial.read(said["data"])["attempt"] != row["attempt"]


def _where(tx: Tx, session_id: str | None) -> str:
    found = tx.maybe(transitions.SQL.session_key, id=session_id) if session_id is not None else None
    return "outside any session" if found is None else f"in session {found['key']!r}"


def _long_over(tx: Tx, row: Row) -> bool:
    """Whether a second lease duration has passed since the lease expired. By then a holder that only slept has woken.

    Never true for a holder that is a live process of this host, because it may still send.
    """
    clock = tx.caller.clock
    if leases.is_here(row["holder"], clock):
        return False
    if tx.dialect == "sqlite" and row["lease_boot"] == clock.boot_id():
        return bool(clock.mono_us() >= row["lease_mono_us"] + row["lease_for_us"])
    return bool(tx.now_us() >= row["lease_until_us"] + row["lease_for_us"])


def _settled(tx: Tx, row: Row, wanted: Request, finding: Finding) -> Outcome | StandfastError:
    if finding.answer == "applied":
        transitions.acknowledged(tx, row, finding.result, evidence=finding.evidence, said="found by its probe")
        return Recorded(tx.one(transitions.SQL.by_id, id=row["id"]))
    if finding.answer == "again":
        # Send the recorded arguments: a remote service may refuse a known key with other ones.
        return _sent(tx, row, wanted._replace(intent_text=row["intent"], intent_hash=row["intent_hash"]), resent=True)
    # Record "failed" first: the next attempt may have to wait for an approval.
    failed = {"id": row["id"], "attempt": row["attempt"], "error": finding.evidence, "evidence": finding.evidence}
    tx.one(transitions.SQL.fail, now_us=tx.now_us(), **failed)
    transitions.journal_change(tx, "failed", row, f"{texts.shown(row)}: {finding.evidence}", state="failed")
    return _sent(tx, {**row, "state": "failed"}, wanted)


def remembered(tx: Tx, row: Row, window_us: int | None) -> bool:
    """Whether the remote service still knows the key of the first dispatch, so that sending again is safe."""
    if texts.lost(row):  # the lost session sent under another key
        return False
    return window_us is not None and tx.now_us() - (row["first_dispatched_us"] or row["planned_us"]) <= window_us


def _sent(tx: Tx, row: Row, wanted: Request, *, resent: bool = False) -> Go | StandfastError:
    sent = transitions.dispatched(tx, row, wanted, resent=resent)
    return sent if isinstance(sent, StandfastError) else Go(sent, resent, sent.pop("receipt"))


def unsettled_us(tx: Tx, row: Row, settle_us: int) -> int:
    """How long a probe's "not there" does not count yet: at most `settle_us`, also if the wall clock was set back.

    It counts `settle_us` after the attempt may have sent last: when its function ended, or, for a killed process, when
    its lease ended.
    """
    last_us: int = row["gave_up_us"] or row["lease_until_us"] or row["dispatched_us"] or row["updated_us"]
    return max(0, min(settle_us, last_us + settle_us - tx.now_us()))


def dispatch(tx: Tx, row: Row, *, for_us: int | None, holder: str | None) -> Go | Stopped | StandfastError:
    """The next attempt of a planned or failed effect, with the recorded arguments."""
    intent = serial.read(row["intent"])
    wanted = Request(
        scope=row["scope"],
        tool=row["tool"],
        key=row["key"],
        n=row["n"],
        by=None,
        fields=intent,
        shown=texts.shown(row),
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
    before = texts.closed(row) or stopped(tx, wanted, row["id"])
    doubt = None if before else _sent_in_gap(tx, row, wanted)
    return before or (texts.in_doubt(doubt) if doubt else _sent(tx, row, wanted))


def _first(tx: Tx, id: str, wanted: Request, state: str) -> Row:
    """The row to insert. Later steps use it as it is, instead of reading it back."""
    sent = state == "dispatched"
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
        **wanted.repository(tx).as_dict(),
        **(transitions.term(tx, wanted) if sent else FREE),
    }
