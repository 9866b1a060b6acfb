"""Perform an effect: begin, call the user's function, finish.

    begin      one transaction: the intent as dispatched, on disk before anything is sent
    act        no transaction: `do` runs, the lease is renewed
    finish     one transaction: the result, on disk before it is returned

If the process is killed at any line, the next call finds nothing, an intent in doubt, or a result. The return value is
decoded from the stored text, so first run and replay cannot differ. One call sends once. `retry` allows another
attempt if the last one is known not applied.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from standfast import clock, crash, hints, serial
from standfast.clock import SECOND_US
from standfast.core import leases, notices, user_code
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.store import Store, refused_inside
from standfast.errors import ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StandfastError
from standfast.ids import new_id, short
from standfast.ledger.effects import begin, identity, resolve_doubt, texts, transitions
from standfast.ledger.effects.begin import Doubt, Finding, Go, Recorded, Stopped
from standfast.ledger.effects.call import Call, NotApplied, RepeatedEffect
from standfast.ledger.effects.identity import Request
from standfast.ledger.effects.intent import prepare
from standfast.ledger.effects.one_at_a_time import alone, store_id

if TYPE_CHECKING:
    from standfast.ledger.openings import Opening

INLINE_MAX_BYTES = 1024 * 1024
"""A longer result is stored as an artifact, and the effect has its id."""
ROUNDS_MAX = 4
"""How often one call begins again because it had to settle a doubt or another caller changed the row first."""
RETRY_US = SECOND_US
"""The pause before the second attempt of `retry`. Each further attempt doubles the pause."""
RETRY_MAX_US = 60 * SECOND_US


def perform(opening: Opening, what: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, options: bool = True) -> Any:
    """Call the function once; later calls return the recorded result. Nothing is sent a second time without a check.

    Without `options`, every keyword is an argument of the function.

    Raises InProgress while a live holder is sending it, EffectInDoubt if only a person can tell,
    ApprovalRequired before a grant, KeyConflict for a key that names another effect, LeaseLost for
    a session or an attempt that was taken over. An exception of the function passes unchanged.
    """
    opening.usable()
    refused_inside(opening.store.held, "effect")
    user_code.refuse_nested(f"effect {name_of_tool(what)}")
    wanted = prepare(opening, what, args, kwargs, options=options)
    if wanted.again:
        text, repeated = _numbered(opening, wanted), False
    else:
        text, replayed = walk(opening.store, _nth(opening, wanted, 1))
        repeated = not _counted(opening, wanted.key) and replayed
    if repeated:
        _warn(wanted)
    return serial.decode(serial.read(text), wanted.returns, what=f"{wanted.tool}: result")


def _numbered(opening: Opening, wanted: Request) -> str | None:
    """The result with `again=True`. Numbers count from 1 in each opening, so a program that runs again from its first
    line gets the same ones.
    """
    with alone(opening.store, opening.scope, wanted.key, wanted.tool):
        n = opening.number("effect", wanted.key)
        try:
            return walk(opening.store, _nth(opening, wanted, n), locked=True)[0]
        except BaseException:
            opening.take_back("effect", wanted.key)
            raise


def _counted(opening: Opening, key: str) -> bool:
    """Count this result once per opening; False if there was one before."""
    if opening.number("effect", key) == 1:
        return True
    opening.take_back("effect", key)
    return False


def _warn(wanted: Request) -> None:
    by = ", ".join(wanted.by) if wanted.by is not None else "its arguments"
    warnings.warn(
        f"{wanted.shown} was called twice in this opening of the session, with the same {by}: the second call "
        'returned the recorded result. Name the field that differs in by=(…), for example by=("branch", "head"), '
        "or pass again=True (a declared effect takes it in with_options).",
        RepeatedEffect,
        stacklevel=_caller(),
    )


def _caller() -> int:
    """The stack level of the first frame outside standfast, as `warnings.warn` counts in the calling function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("standfast."):
        level, frame = level + 1, frame.f_back
    return level


def _nth(opening: Opening, wanted: Request, n: int) -> Request:
    """The request with the key of its n-th call. In a fork, with the key of an ancestor that began it before the
    cut."""
    own = wanted._replace(key=identity.numbered(wanted.key, n), n=n)
    if not opening.lineage or not wanted.of_session:
        return own

    def look(tx: Tx) -> Request:
        for session_id, cut_seq in opening.lineage:
            key = identity.numbered(identity.derived_key(session_id, wanted.tool, wanted.fields), n)
            if tx.maybe(transitions.SQL.before_cut, scope=opening.scope, key=key, cut_seq=cut_seq):
                return own._replace(key=key)
        return own

    return opening.store.read(look)


# -- steps of one call ------------------------------------------------------------------------------


def walk(store: Store, wanted: Request, *, locked: bool = False) -> tuple[str | None, bool]:
    """The text of the result, and whether an earlier call stored it."""
    found = None if wanted.unheard else store.read(lambda tx: _look(tx, wanted))
    if found is not None:
        return _replayed(store, wanted, found), True
    try:
        with nullcontext() if locked else alone(store, wanted.scope, wanted.key, wanted.tool):
            return _walked(store, wanted)
    except (EffectInDoubt, ApprovalRequired) as error:
        if wanted.opening is not None:
            # At the end of the block the session waits, even if the caller swallows this error.
            wanted.opening.stops[error.effect_id] = (error.code, error.message)
        raise


def _walked(store: Store, wanted: Request) -> tuple[str | None, bool]:
    session = None if wanted.opening is None else wanted.opening.session_key
    call = Call(identity.call_key(store_id(store), wanted.scope, wanted.key), 0, session)
    leases.renewer(store).start()
    while True:
        outcome = _begun(store, wanted, call)
        if isinstance(outcome, Recorded):
            return _replayed(store, wanted, outcome.row), True
        attempt = outcome.row["attempt"]
        try:
            return _acted(store, wanted, outcome, call._replace(attempt=attempt)), False
        except Exception as error:
            if attempt >= wanted.retry or not _unsent(wanted, outcome, error):
                raise
        clock.wait(store.caller.clock, min(RETRY_US << (attempt - 1), RETRY_MAX_US))


def _unsent(wanted: Request, go: Go, error: BaseException) -> bool:
    """Whether the error proves that nothing was sent. For a resend it proves nothing about the earlier attempt."""
    known = isinstance(error, (NotApplied, *wanted.not_applied)) or user_code.never_ran(error, wanted.function)
    return known and not go.resent


def _look(tx: Tx, wanted: Request) -> Row | None:
    """The row if it has a result. Every other case needs a write transaction."""
    row = tx.maybe(transitions.SQL.by_key, scope=wanted.scope, key=wanted.key)
    if row is None or row["state"] != "acknowledged" or texts.closed(row) or begin.mismatch(row, wanted):
        return None
    if begin.elsewhere(tx, row, wanted) is not None:
        return None
    row["young"] = tx.now_us() - row["ended_us"] < transitions.YOUNG_US
    return row


def _replayed(store: Store, wanted: Request, row: Row) -> str | None:
    """The stored result, once it is on disk. If the arguments differ, the journal names them."""
    if row["intent_hash"] != wanted.intent_hash:
        names = identity.differences(serial.read(row["intent"]), wanted.intent)
        other = f"{texts.shown(row)}: other {', '.join(names) or 'intent'}"
        store.write(lambda tx: transitions.journal_change(tx, "replayed", row, other, data={"fields": names}))
    elif row.get("young"):
        store.sync()  # another process may not have synced the row yet, and a power loss would remove it
    return stored(store, row)


def stored(store: Store, row: Row) -> str | None:
    """The text of a stored result, from its row or its artifact."""
    if row["artifact_id"] is not None:
        return kept(store, row["artifact_id"])
    result: str | None = row["result"]
    return result


def kept(store: Store, artifact_id: str) -> str:
    from standfast.core import artifacts

    return artifacts.read(store, artifact_id).decode()


def _begun(store: Store, wanted: Request, call: Call) -> Go | Recorded:
    found: Finding | None = None
    id = new_id("eff")
    patient = wanted.wait_us is not None
    for _ in range(ROUNDS_MAX):
        crash.point("effect.before_begin")
        try:
            outcome = _begin_once(store, id, wanted, found)
        except ApprovalRequired as error:
            from standfast.ledger import approvals

            approvals.tell(store, error)
            if not patient or not _answered(store, error, wanted.wait_us or 0):
                raise
            patient = False
            continue
        if isinstance(outcome, Go | Recorded):
            return outcome
        if isinstance(outcome, Stopped):
            resolve_doubt.settle_first(store, outcome, wanted, call)
            continue
        assert isinstance(outcome, Doubt)
        found = resolve_doubt.inquire(store, wanted, outcome, call)
    raise InProgress(f"{wanted.shown} is being settled by another process", "try again")


def _begin_once(store: Store, id: str, wanted: Request, found: Finding | None) -> begin.Outcome:
    begun = store.write(lambda tx: begin.begin(tx, id, wanted, found))
    return cast("begin.Outcome", begun)  # mypy joins a union of named tuples into plain ones


def _answered(store: Store, error: ApprovalRequired, wait_us: int) -> bool:
    """Wait for a person's answer; False if there is none in time."""
    from standfast.ledger.approvals import Approvals

    try:
        Approvals(store).wait(error.approval_id, wait_us / SECOND_US)
    except ApprovalRequired:
        return False
    return True


def _acted(store: Store, wanted: Request, go: Go, call: Call) -> str:
    row = go.row
    if go.receipt is not None and go.receipt.seq is not None:
        store.note(go.receipt.seq, go.receipt.hash)
    crash.point("effect.after_begin")
    assert wanted.act is not None
    try:
        with user_code.inside(wanted.tool):
            value = wanted.act(serial.read(row["intent"]) if go.resent else None, call)
    except BaseException as error:
        with _left_unless_recorded(row):
            if _unsent(wanted, go, error):
                _failed(store, row, error)
            else:
                _gave_up(store, wanted, row, error)
        raise
    with _left_unless_recorded(row):
        return _returned(store, wanted, row, value)


@contextmanager
def _left_unless_recorded(row: Row) -> Iterator[None]:
    """Record the end of a call in the block. If that fails, this process counts the attempt as in doubt."""
    try:
        yield
    except BaseException:
        begin.LEFT.add((row["id"], row["attempt"]))
        raise


def _returned(store: Store, wanted: Request, row: Row, value: Any) -> str:
    crash.point("effect.before_done")
    try:
        text = serial.canonical(value, what=f"{wanted.tool}: result")
        result, artifact_id = _kept(store, row, text)
    except StandfastError as error:
        _gave_up(store, wanted, row, error)
        raise
    _recorded(store, row, result, artifact_id)
    crash.point("effect.after_done")
    return text


def _kept(store: Store, row: Row, text: str) -> tuple[str | None, str | None]:
    """The text of a short result, or the id of the artifact that holds a long one."""
    if len(text) <= INLINE_MAX_BYTES // 4 or len(data := text.encode()) <= INLINE_MAX_BYTES:
        return text, None
    from standfast.core import artifacts

    name = f"{row['id']}.json"
    return None, artifacts.put(store, data, name=name, kind="effect", session_id=row["session_id"]).id


def _recorded(store: Store, row: Row, result: str | None, artifact_id: str | None) -> None:
    try:
        store.write(lambda tx: transitions.acknowledge(tx, row, result, artifact_id=artifact_id))
    except LeaseLost:
        raise
    except BaseException as error:
        error.add_note(
            f"{texts.shown(row)} was done, and its result may not be recorded; look it up: "
            f"{hints.command('effect', 'show', short(row['id']))}; if it is in doubt: {texts.settling(row)}"
        )
        raise


def _failed(store: Store, row: Row, error: BaseException) -> None:
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_fail")
    _ended(store, row, error, lambda tx: transitions.fail(tx, row, said))
    crash.point("effect.after_fail")


def _gave_up(store: Store, wanted: Request, row: Row, error: BaseException) -> None:
    """Mark the effect as in doubt at once. The caller raises the exception, with a note that names the next command."""
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_give_up")
    resolve_doubt.remember(row, wanted)
    _ended(store, row, error, lambda tx: transitions.give_up(tx, row, said) or transitions.late(tx, row, "ended"))
    crash.point("effect.after_give_up")
    shown, settling = texts.shown(row), texts.settling(row)
    error.add_note(
        f"standfast: {shown} is in doubt: it may have happened before this error.\n"
        f"{_next(wanted)}{texts.settling_either(row)}"
    )
    if wanted.asking is None and wanted.idempotent_us is None:
        notices.tell(store, "effect.in_doubt", row["id"], f"{shown} is in doubt: {said}", settling)


def _next(wanted: Request) -> str:
    if wanted.asking is not None:
        return "The next call asks its probe. To settle it by hand: "
    if wanted.idempotent_us is not None:
        return "The next call sends it again with the same key. To settle it by hand: "
    return "Look whether it happened, then say so: "


def _ended(store: Store, row: Row, error: BaseException, record: Callable[[Tx], Receipt | StandfastError]) -> None:
    """Record how the attempt ended. An error of the store must not hide the error of the function.

    If another caller took the attempt over, this raises LeaseLost from the error. Ctrl-C or the cancellation of a task
    is not replaced: it gets a note.
    """
    try:
        store.write(record)
    except LeaseLost as lost:
        if isinstance(error, Exception):
            raise lost from error
        error.add_note(f"standfast: {lost}")
    except StandfastError as other:
        begin.LEFT.add((row["id"], row["attempt"]))
        error.add_note(f"standfast could not record this: {other}")


def name_of_tool(what: Any) -> str:
    """The tool of a call, for an error before its arguments are checked."""
    return repr(serial.clean(str(getattr(what, "name", what)), 60))
