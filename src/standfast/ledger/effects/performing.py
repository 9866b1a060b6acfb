"""Performing an effect: the walk around other people's code.

    begin      one transaction: the intent, dispatched, on disk before the world is touched
    act        no transaction: `do` runs, the lease is renewed
    finish     one transaction: the result, on disk before it is returned

Killed at any line, the next call finds nothing, an intent in doubt, or a result. What is returned
is decoded from what was stored, so first run and replay cannot differ. Nothing is tried twice
inside one call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.store import Store, refused_inside
from standfast.errors import ApprovalRequired, EffectInDoubt, InProgress, LeaseLost, StandfastError
from standfast.footings import foreign, leases, notices
from standfast.footings.journal import Receipt
from standfast.ids import new_id, short
from standfast.ledger.effects import doubting, finding, identity, transitions, words
from standfast.ledger.effects.alone import alone, store_id
from standfast.ledger.effects.call import Call, NotApplied, RepeatedEffect
from standfast.ledger.effects.finding import Doubt, Finding, Go, Recorded, Stopped
from standfast.ledger.effects.identity import Wanted
from standfast.ledger.effects.work import Work, prepare, wanted_for

if TYPE_CHECKING:
    from standfast.ledger.effects.declared import Declared
    from standfast.ledger.opening import Opening

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

INLINE_MAX_BYTES = 1024 * 1024
"""A longer result is kept as an artifact; the effect remembers which."""
ROUNDS_MAX = 4
"""How often one call may find a doubt that somebody else has just settled differently."""


@overload
def perform(opening: Opening, what: Declared[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


@overload
def perform(opening: Opening, what: Declared[..., R], /, *args: Any, again: bool, **kwargs: Any) -> R: ...


@overload
def perform(opening: Opening, what: Declared[..., R], /, *args: Any, key: str, **kwargs: Any) -> R: ...


@overload
def perform(
    opening: Opening, what: str, intent: Any = None, /, *, do: Callable[[Call], Any], returns: type[T], **options: Any
) -> T: ...


@overload
def perform(
    opening: Opening, what: str, intent: Any = None, /, *, do: Callable[[Call], T], returns: None = None, **options: Any
) -> T: ...


def perform(opening: Opening, what: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Do it once: the recorded result ever after. Never sent blindly a second time.

    Raises InProgress while somebody alive is at it, EffectInDoubt where only a person can tell,
    ApprovalRequired before a yes, KeyConflict for a key that names something else, LeaseLost for
    a session or an attempt that was taken over. Whatever `do` raises passes unchanged.
    """
    opening.usable()
    refused_inside(opening.store.held, "effect")
    foreign.refuse_nested(f"effect {name_of_tool(what)}")
    work = prepare(what, args, kwargs)
    base = _base(opening, work)
    if work.options.again:
        text, repeated = _numbered(opening, work, base), False
    else:
        text, replayed = walk(opening.store, work, _wanted(opening, work, base, 1), session=opening.session_key)
        repeated = not _counted(opening, base) and replayed
    if repeated:
        _warn(work)
    return serial.decode(serial.read(text), work.returns, what=f"{work.tool}: result")


def _numbered(opening: Opening, work: Work, base: str) -> str | None:
    """`again=True`: the next number of this opening, so that a run from the top meets the same ones."""
    with alone(opening.store, opening.scope, base, work.tool):
        n = opening.number("effect", base)
        try:
            wanted = _wanted(opening, work, base, n)
            return walk(opening.store, work, wanted, session=opening.session_key, locked=True)[0]
        except BaseException:
            opening.take_back("effect", base)
            raise


def _counted(opening: Opening, base: str) -> bool:
    """Count this result once per opening; False if there was one before."""
    if opening.number("effect", base) == 1:
        return True
    opening.take_back("effect", base)
    return False


def _warn(work: Work) -> None:
    by = ", ".join(work.options.by) if work.options.by is not None else "its arguments"
    warnings.warn(
        f"{identity.describe(work.tool, work.fields)} was asked for twice in this opening of the session, with the "
        f"same {by}: the second time it was answered from the record. Name what makes it different "
        'in by=(…), for example by=("branch", "head"), or pass again=True.',
        RepeatedEffect,
        stacklevel=4,
    )


def _base(opening: Opening, work: Work) -> str:
    if work.options.key is not None:
        return identity.checked_key(work.options.key)
    session_id = None if work.options.per == "store" else opening.session_id
    return identity.derived_key(session_id, work.tool, work.fields)


def _wanted(opening: Opening, work: Work, base: str, n: int) -> Wanted:
    scope = opening.scope
    key = _inherited(opening, work, n) or identity.numbered(base, n)
    # In a new session looking for an identity of its own is a trip for nothing.
    unheard = opening.first and work.options.key is None and work.options.per != "store"
    return wanted_for(work, scope=scope, key=key, n=n)._replace(opening=opening, unheard=unheard)


def _inherited(opening: Opening, work: Work, n: int) -> str | None:
    """In a fork: the identity under which an ancestor began it before the cut."""
    if not opening.lineage or work.options.key is not None or work.options.per == "store":
        return None

    def look(tx: Tx) -> str | None:
        for session_id, cut_seq in opening.lineage:
            key = identity.numbered(identity.derived_key(session_id, work.tool, work.fields), n)
            if tx.maybe(transitions.SQL.before_cut, scope=opening.scope, key=key, cut_seq=cut_seq):
                return key
        return None

    return opening.store.read(look)


# -- the walk ---------------------------------------------------------------------------------------


def walk(
    store: Store, work: Work, wanted: Wanted, *, session: str | None = None, locked: bool = False
) -> tuple[str | None, bool]:
    """The text of the result, and whether it was there before."""
    found = None if wanted.unheard else store.read(lambda tx: _look(tx, wanted))
    if found is not None:
        return _replayed(store, wanted, found), True
    try:
        with nullcontext() if locked else alone(store, wanted.scope, wanted.key, work.tool):
            return _walked(store, work, wanted, session)
    except (EffectInDoubt, ApprovalRequired) as error:
        if wanted.opening is not None:  # leaving the block leaves the session waiting, also if this is swallowed
            wanted.opening.stops[error.effect_id] = (error.code, error.message)
        raise


def _walked(store: Store, work: Work, wanted: Wanted, session: str | None) -> tuple[str | None, bool]:
    call = Call(identity.call_key(store_id(store), wanted.scope, wanted.key), 0, session)
    leases.renewer(store).start()
    outcome = _begun(store, work, wanted, call)
    if isinstance(outcome, Recorded):
        return _replayed(store, wanted, outcome.row), True
    return _acted(store, work, outcome, call._replace(attempt=outcome.row["attempt"])), False


def _look(tx: Tx, wanted: Wanted) -> Row | None:
    """The row of a result that is simply there; everything else is decided where it can be written."""
    row = tx.maybe(transitions.SQL.by_key, scope=wanted.scope, key=wanted.key)
    if row is None or row["state"] != "acknowledged" or words.closed(row) or finding.mismatch(row, wanted):
        return None
    if finding.elsewhere(tx, row, wanted) is not None:
        return None
    row["young"] = tx.now_us() - row["ended_us"] < transitions.YOUNG_US
    return row


def _replayed(store: Store, wanted: Wanted, row: Row) -> str | None:
    """The stored result, once it is on disk; that it was asked for in other words is journalled."""
    if row["intent_hash"] != wanted.intent_hash:
        names = identity.differences(serial.read(row["intent"]), wanted.intent)
        other = f"{words.shown(row)}: other {', '.join(names) or 'intent'}"
        store.write(lambda tx: words.say(tx, "replayed", row, other, data={"fields": names}))
    elif row.get("young"):
        store.sync()  # visible is not yet durable, and nobody may act on what could still vanish
    return stored(store, row)


def stored(store: Store, row: Row) -> str | None:
    """The text of a recorded result, wherever it is kept."""
    if row["artifact_id"] is not None:
        return kept(store, row["artifact_id"])
    result: str | None = row["result"]
    return result


def kept(store: Store, artifact_id: str) -> str:
    from standfast.footings import artifacts

    return artifacts.read(store, artifact_id).decode()


def _begun(store: Store, work: Work, wanted: Wanted, call: Call) -> Go | Recorded:
    found: Finding | None = None
    id = new_id("eff")
    for _ in range(ROUNDS_MAX):
        crash.point("effect.before_begin")
        outcome = _begin_once(store, id, wanted, found)
        if isinstance(outcome, Go | Recorded):
            return outcome
        if isinstance(outcome, Stopped):
            doubting.settle_first(store, outcome, wanted, call)
            continue
        assert isinstance(outcome, Doubt)
        found = doubting.inquire(store, work, wanted, outcome, call)
    raise InProgress(f"{wanted.shown} is being settled by others at this moment", "try again")


def _begin_once(store: Store, id: str, wanted: Wanted, found: Finding | None) -> finding.Outcome:
    try:
        begun = store.write(lambda tx: finding.begin(tx, id, wanted, found, True))
        return cast("finding.Outcome", begun)  # mypy joins a union of named tuples into plain ones
    except ApprovalRequired as error:
        from standfast.ledger import approvals

        approvals.tell(store, error)
        raise


def _acted(store: Store, work: Work, go: Go, call: Call) -> str:
    row = go.row
    if go.receipt is not None and go.receipt.seq is not None:
        store.note(go.receipt.seq, go.receipt.hash)
    crash.point("effect.after_begin")
    try:
        with foreign.inside(work.tool):
            value = work.act(serial.read(row["intent"]) if go.resent else None, call)
    except BaseException as error:
        unsent = isinstance(error, (NotApplied, *work.options.not_applied)) or foreign.never_ran(error, work.function)
        with _left_unless_recorded(row):
            if unsent and not go.resent:  # of a repetition it says nothing about the attempt that was in doubt before
                _failed(store, row, error)
            else:
                _gave_up(store, work, row, error)
        raise
    with _left_unless_recorded(row):
        return _returned(store, work, row, value)


@contextmanager
def _left_unless_recorded(row: Row) -> Iterator[None]:
    """The call has ended. If its end is not recorded, this process counts the attempt as in doubt."""
    try:
        yield
    except BaseException:
        finding.LEFT.add((row["id"], row["attempt"]))
        raise


def _returned(store: Store, work: Work, row: Row, value: Any) -> str:
    crash.point("effect.before_done")
    try:
        text = serial.canonical(value, what=f"{work.tool}: result")
        result, artifact_id = _kept(store, row, text)
    except StandfastError as error:
        _gave_up(store, work, row, error)
        raise
    _recorded(store, row, result, artifact_id)
    crash.point("effect.after_done")
    return text


def _kept(store: Store, row: Row, text: str) -> tuple[str | None, str | None]:
    """The text itself, or the artifact that holds a long one."""
    if len(text) <= INLINE_MAX_BYTES // 4 or len(data := text.encode()) <= INLINE_MAX_BYTES:
        return text, None
    from standfast.footings import artifacts

    name = f"{row['id']}.json"
    return None, artifacts.put(store, data, name=name, kind="effect", session_id=row["session_id"]).id


def _recorded(store: Store, row: Row, result: str | None, artifact_id: str | None) -> None:
    try:
        store.write(lambda tx: transitions.acknowledge(tx, row, result, artifact_id=artifact_id))
    except LeaseLost:
        raise
    except BaseException as error:
        error.add_note(
            f"{words.shown(row)} was done, and its result may not be recorded; look it up: "
            f"standfast effect show {short(row['id'])}; if it is in doubt: {words.settling(row)}"
        )
        raise


def _failed(store: Store, row: Row, error: BaseException) -> None:
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_fail")
    _ended(store, row, error, lambda tx: transitions.fail(tx, row, said))
    crash.point("effect.after_fail")


def _gave_up(store: Store, work: Work, row: Row, error: BaseException) -> None:
    """In doubt at once: the exception goes on unchanged, and says what to do about it."""
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_give_up")
    doubting.remember(row, work)
    _ended(store, row, error, lambda tx: transitions.give_up(tx, row, said) or transitions.late(tx, row, "ended"))
    crash.point("effect.after_give_up")
    shown, settling = words.shown(row), words.settling(row)
    error.add_note(
        f"standfast: {shown} is in doubt: this error does not prove that it did not happen.\n"
        f"{_next(work)}{words.settling_either(row)}"
    )
    if work.ask is None and not work.options.idempotent:
        notices.tell(store, "effect.in_doubt", row["id"], f"{shown} is in doubt: {said}", settling)


def _next(work: Work) -> str:
    if work.ask is not None:
        return "The next call asks its probe. To settle it by hand: "
    if work.options.idempotent:
        return "The next call sends it again with the same key. To settle it by hand: "
    return "Look whether it happened, then say so: "


def _ended(store: Store, row: Row, error: BaseException, record: Callable[[Tx], Receipt | StandfastError]) -> None:
    """Record how the attempt ended. What happened is not hidden by a store that fails at this very moment.

    Of an attempt that was taken over it changes nothing: raises LeaseLost from the error. What is no Exception
    (Ctrl-C, a cancelled task) goes on as it is.
    """
    try:
        store.write(record)
    except LeaseLost as lost:
        if isinstance(error, Exception):
            raise lost from error
        error.add_note(f"standfast: {lost}")
    except StandfastError as other:
        finding.LEFT.add((row["id"], row["attempt"]))
        error.add_note(f"standfast could not record this: {other}")


def name_of_tool(what: Any) -> str:
    """The tool of a call, for a message before anything about it was checked."""
    return repr(serial.clean(str(getattr(what, "name", what)), 60))
