"""Performing an effect: the walk around other people's code.

    begin      one transaction: the intent, dispatched, on disk before the world is touched
    act        no transaction: `do` runs, the lease is renewed
    finish     one transaction: the result, on disk before it is returned

Killed at any line, the next call finds nothing, an intent in doubt, or a result. What is returned
is decoded from what was stored, so first run and replay cannot differ. Nothing is tried twice
inside one call.
"""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.store import Store, refused_inside
from standfast.errors import ApprovalRequired, InProgress, InvalidInput, LeaseLost, StandfastError
from standfast.footings import foreign, leases, notices
from standfast.ids import new_id, short
from standfast.ledger.effects import identity, transitions
from standfast.ledger.effects.declared import (
    Applied,
    Call,
    Declared,
    NotApplied,
    Options,
    RepeatedEffect,
    Unknown,
    fill,
)
from standfast.ledger.effects.identity import Wanted
from standfast.ledger.effects.transitions import Doubt, Finding, Go, Recorded

if TYPE_CHECKING:
    from standfast.ledger.opening import Opening

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

INLINE_MAX_BYTES = 1024 * 1024
"""A longer result is kept as an artifact; the effect remembers which."""
ROUNDS_MAX = 4
"""How often one call may find a doubt that somebody else has just settled differently."""


class Work(NamedTuple):
    """What is to be done, whatever form it was given in."""

    tool: str
    options: Options
    intent: serial.Json
    text: str
    """The intent as it is stored and hashed."""
    fields: serial.Json
    returns: Any
    act: Callable[[serial.Json, Call], Any]
    """Do it, with the recorded words if there are any to keep to, else with the caller's."""
    ask: Callable[[serial.Json, Call], Any] | None
    """The probe, with the recorded words."""
    function: Callable[..., Any] | None = None


# -- the public walk --------------------------------------------------------------------------------


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


def tools(opening: Opening, *functions: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The functions as an agent's tools: same signatures, and every call an effect of this session."""
    return [_tool(opening, function) for function in functions]


def _tool(opening: Opening, function: Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(function, Declared):
        raise _undeclared(function)
    _refuse_async(function.function)

    @functools.wraps(function.function)
    def tool(*args: Any, **kwargs: Any) -> Any:
        return perform(opening, function, *args, **kwargs)

    dress(tool, function)
    return tool


def dress(tool: Callable[..., Any], function: Declared[..., Any]) -> None:
    """Make `tool` look like the function without its Call, to whoever reads signatures and annotations."""
    from typing import get_type_hints

    try:
        hints = get_type_hints(function.function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        hints = dict(function.function.__annotations__)  # named for type checkers only: left as they are written
    parameters = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in function.signature.parameters.values()]
    returns = hints.get("return", function.signature.return_annotation)
    tool.__signature__ = function.signature.replace(parameters=parameters, return_annotation=returns)  # type: ignore[attr-defined]
    tool.__annotations__ = {name: hint for name, hint in hints.items() if name != function.call_slot}
    # Whoever unwraps a tool must not find the bare function: calling that would leave no record.
    del tool.__wrapped__  # type: ignore[attr-defined]


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


# -- what is to be done -----------------------------------------------------------------------------


def prepare(what: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    """Everything that can be refused is refused here, before anything is recorded."""
    if isinstance(what, Declared):
        return _declared_work(what, args, kwargs)
    if isinstance(what, str):
        return _form_work(what, args, dict(kwargs))
    raise _undeclared(what)


def _undeclared(what: Any) -> InvalidInput:
    name = getattr(what, "__qualname__", repr(what))
    return InvalidInput(
        f"{name} is not declared as an effect",
        f'write @standfast.effect("…", by=(…)) above {name}, or give a name and do=',
    )


def _declared_work(what: Declared[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    parameters = what.signature.parameters
    given = {name: kwargs[name] for name in kwargs if name in Options._fields and name not in parameters}
    options = what.options.with_(dict(given))
    _refuse_async(what.function)
    arguments = what.arguments(args, {name: value for name, value in kwargs.items() if name not in given})
    intent = serial.encode(arguments, what="intent")
    text = serial.dumps(intent, what="intent")
    fields = what.said(intent) if options.by is None else identity.project(intent, options.by)

    def act(recorded: serial.Json, call: Call) -> Any:
        told = call._replace(intent=intent if recorded is None else recorded)
        function, args, kwargs = what.invoke(_words(what, recorded, arguments), told)
        return foreign.call(function, *args, **kwargs)

    def ask(recorded: serial.Json, call: Call) -> Any:
        assert options.probe is not None
        told = call._replace(intent=recorded)
        args, kwargs = fill(options.probe, (), _words(what, recorded, arguments), told)
        return foreign.call(options.probe, *args, **kwargs)

    returns = options.returns if options.returns is not None else what.returns
    return Work(what.name, options, intent, text, fields, returns, act, ask if options.probe else None, what.function)


def _words(what: Declared[..., Any], recorded: serial.Json, arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments if recorded is None else what.recorded(recorded, arguments)


def _form_work(tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Work:
    identity.checked_tool(tool)
    if len(args) > 1 or (args and "intent" in kwargs):
        raise InvalidInput(
            f"{tool}: effect() takes a name, an intent, and options by name", "s.effect(name, intent, do=…)"
        )
    given = args[0] if args else kwargs.pop("intent", None)
    do = kwargs.pop("do", None)
    if not callable(do) or isinstance(do, Declared):
        raise InvalidInput(f"{tool}: do= is the function that does it; it takes one call", "do=lambda call: …")
    _refuse_async(do)
    options = Options().with_(kwargs)
    intent = serial.encode(given, what="intent")
    text = serial.dumps(intent, what="intent")
    fields = intent if options.by is None else identity.project(intent, options.by)
    returns = options.returns if options.returns is not None else serial.return_annotation(do)

    def act(recorded: serial.Json, call: Call) -> Any:
        return foreign.call(do, call._replace(intent=intent if recorded is None else recorded))

    def ask(recorded: serial.Json, call: Call) -> Any:
        assert options.probe is not None
        return foreign.call(options.probe, call._replace(intent=recorded))

    return Work(tool, options, intent, text, fields, returns, act, ask if options.probe else None, do)


def _refuse_async(function: Callable[..., Any]) -> None:
    """Before anything is recorded: an async function in a synchronous session would never run."""
    import inspect

    if inspect.iscoroutinefunction(function) and not foreign.bridged():
        raise foreign.NotAwaited(function)


def _base(opening: Opening, work: Work) -> str:
    if work.options.key is not None:
        return identity.checked_key(work.options.key)
    return identity.derived_key(opening.session_id, work.tool, work.fields)


def _wanted(opening: Opening, work: Work, base: str, n: int) -> Wanted:
    scope = opening.scope
    key = _inherited(opening, work, n) or identity.numbered(base, n)
    # In a new session looking for an identity of its own is a trip for nothing.
    unheard = opening.first and work.options.key is None
    return wanted_for(work, scope=scope, key=key, n=n)._replace(opening=opening, unheard=unheard)


def _inherited(opening: Opening, work: Work, n: int) -> str | None:
    """In a fork: the identity under which an ancestor began it before the cut."""
    if not opening.lineage or work.options.key is not None:
        return None

    def look(tx: Tx) -> str | None:
        for session_id, cut_seq in opening.lineage:
            key = identity.numbered(identity.derived_key(session_id, work.tool, work.fields), n)
            if tx.maybe(transitions.SQL.before_cut, scope=opening.scope, key=key, cut_seq=cut_seq):
                return key
        return None

    return opening.store.read(look)


def wanted_for(work: Work, *, scope: str, key: str, n: int, context: dict[str, serial.Json] | None = None) -> Wanted:
    """One call of `work` under an identity."""
    options = work.options
    about = {
        "by": list(options.by) if options.by is not None else None,
        "probe": _name(options.probe),
        "undo": _name(options.undo),
        "approve": True if options.approve else None,
        **(context or {}),
    }
    return Wanted(
        scope=scope,
        tool=work.tool,
        key=key,
        n=n,
        by=options.by,
        fields=work.fields,
        shown=identity.describe(work.tool, work.fields),
        by_hash=serial.hash(work.fields, what="intent"),
        intent=work.intent,
        intent_text=work.text,
        intent_hash=serial.hash_text(work.text),
        context=serial.dumps({name: value for name, value in about.items() if value is not None}, what="context"),
        idempotent_us=identity.idempotent_us(options.idempotent),
        approve=options.approve,
        why=options.why,
    )


def _name(function: Callable[..., Any] | None) -> str | None:
    return None if function is None else serial.clean(getattr(function, "__qualname__", "a function"), 200)


# -- the walk ---------------------------------------------------------------------------------------


def walk(
    store: Store, work: Work, wanted: Wanted, *, session: str | None = None, locked: bool = False
) -> tuple[str | None, bool]:
    """The text of the result, and whether it was there before."""
    found = store.read(lambda tx: _look(tx, wanted))
    if found is not None:
        return _replayed(store, wanted, found), True
    if locked:
        return _walked(store, work, wanted, session)
    with alone(store, wanted.scope, wanted.key, work.tool):
        return _walked(store, work, wanted, session)


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
    if row is None or row["state"] != "acknowledged" or transitions.closed(row) or transitions.mismatch(row, wanted):
        return None
    row["young"] = tx.now_us() - row["ended_us"] < transitions.YOUNG_US
    return row


def _replayed(store: Store, wanted: Wanted, row: Row) -> str | None:
    """The stored result, once it is on disk; that it was asked for in other words is journalled."""
    if row["intent_hash"] != wanted.intent_hash:
        names = identity.differences(serial.read(row["intent"]), wanted.intent)
        other = f"{transitions.shown(row)}: other {', '.join(names) or 'intent'}"
        store.write(lambda tx: transitions.say(tx, "replayed", row, other, data={"fields": names}))
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
    finding: Finding | None = None
    id = new_id("eff")
    for _ in range(ROUNDS_MAX):
        crash.point("effect.before_begin")
        outcome = _begin_once(store, id, wanted, finding)
        if isinstance(outcome, Go | Recorded):
            return outcome
        assert isinstance(outcome, Doubt)
        finding = _inquired(store, work, wanted, outcome, call)
    raise InProgress(f"{wanted.shown} is being settled by others at this moment", "try again")


def _begin_once(store: Store, id: str, wanted: Wanted, finding: Finding | None) -> transitions.Outcome:
    try:
        begun = store.write(lambda tx: transitions.begin(tx, id, wanted, finding, True))
        return cast("transitions.Outcome", begun)  # mypy joins a union of named tuples into plain ones
    except ApprovalRequired as error:
        from standfast.ledger import approvals

        approvals.tell(store, error)
        raise


def _acted(store: Store, work: Work, go: Go, call: Call) -> str:
    row = go.row
    crash.point("effect.after_begin")
    try:
        value = work.act(serial.read(row["intent"]) if go.resent else None, call)
    except BaseException as error:
        if isinstance(error, (NotApplied, *work.options.not_applied)) or foreign.never_ran(error, work.function):
            _failed(store, row, error)
        else:
            _gave_up(store, work, row, error)
        raise
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
            f"{transitions.shown(row)} was done, and its result may not be recorded; look it up: "
            f"standfast effect show {short(row['id'])}; if it is in doubt: {transitions.settling(row['id'])}"
        )
        raise


def _failed(store: Store, row: Row, error: BaseException) -> None:
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_fail")
    _noted(error, lambda: store.write(lambda tx: transitions.fail(tx, row, said)))
    crash.point("effect.after_fail")


def _gave_up(store: Store, work: Work, row: Row, error: BaseException) -> None:
    """In doubt at once: the exception goes on unchanged, and says what to do about it."""
    said = f"{type(error).__name__}: {error}"
    crash.point("effect.before_give_up")
    _noted(
        error, lambda: store.write(lambda tx: transitions.give_up(tx, row, said) or transitions.late(tx, row, "ended"))
    )
    crash.point("effect.after_give_up")
    shown, settling = transitions.shown(row), transitions.settling(row["id"])
    error.add_note(
        f"standfast: {shown} is in doubt: this error does not prove that it did not happen.\n{_next(work)}{settling}"
    )
    if work.ask is None and not work.options.idempotent:
        notices.tell(store, "effect.in_doubt", row["id"], f"{shown} is in doubt: {said}", settling)


def _next(work: Work) -> str:
    if work.ask is not None:
        return "The next call asks its probe. To settle it by hand: "
    if work.options.idempotent:
        return "The next call sends it again with the same key. To settle it by hand: "
    return "Look whether it happened, then say so: "


def _noted(error: BaseException, record: Callable[[], object]) -> None:
    """What happened must not be hidden by a store that fails, or by a fence, at this very moment."""
    try:
        record()
    except StandfastError as other:
        error.add_note(f"standfast could not record this: {other}")


# -- in doubt ---------------------------------------------------------------------------------------


def _inquired(store: Store, work: Work, wanted: Wanted, doubt: Doubt, call: Call) -> Finding:
    """Probe, then the same key again if the remote knows it, then a person."""
    attempt = doubt.row["attempt"]
    probed = ""
    if work.ask is not None:
        answer = _asked(store, work, doubt, call._replace(attempt=attempt))
        if isinstance(answer, Applied):
            text = serial.dumps(answer.value, what=f"{work.tool}: result of its probe")
            asked = (serial.read(wanted.context) or {}).get("probe")
            return Finding(attempt, "applied", text, serial.clean(f"its probe found it: {asked}", 500))
        if isinstance(answer, NotApplied) and doubt.quiet:
            return Finding(attempt, "not_applied", None, f"its probe found nothing ({answer.why or 'not applied'})")
        probed = _shrug(answer)
    if store.read(lambda tx: transitions.remembered(tx, doubt.row, wanted.idempotent_us)):
        return Finding(attempt, "again")
    raise _doubted(store, doubt, probed)


def _asked(store: Store, work: Work, doubt: Doubt, call: Call) -> Any:
    """The probe's answer. A probe that breaks has not found out."""
    assert work.ask is not None
    crash.point("effect.before_probe")
    try:
        answer = work.ask(serial.read(doubt.row["intent"]), call)
    except NotApplied as error:
        answer = error
    except Exception as error:  # noqa: BLE001  # whatever it is, it proves nothing about the world
        answer = Unknown(f"{type(error).__name__}: {error}")
    crash.point("effect.after_probe")
    if isinstance(answer, type) and issubclass(answer, (NotApplied, Unknown)):
        answer = answer()
    if not isinstance(answer, (Applied, NotApplied, Unknown)):
        raise InvalidInput(
            f"{work.tool}: its probe {_name(work.options.probe)} returned {type(answer).__name__}",
            "a probe returns standfast.Applied(result), standfast.NotApplied() or standfast.Unknown()",
        )
    if not isinstance(answer, Applied) and not (isinstance(answer, NotApplied) and doubt.quiet):
        said = f"{transitions.shown(doubt.row)}:{_shrug(answer)}"
        store.write(lambda tx: transitions.say(tx, "probed", doubt.row, said))
    return answer


def _shrug(answer: NotApplied | Unknown) -> str:
    if isinstance(answer, NotApplied):
        return " its probe found nothing, but the last holder may be asleep and send it late; ask again in a while"
    return f" its probe could not tell{f' ({serial.clean(answer.why, 200)})' if answer.why else ''}"


def _doubted(store: Store, doubt: Doubt, probed: str) -> StandfastError:
    """The refusal. That nobody is at it is written down once, so that every reader sees it and one notice is sent."""
    row, why = doubt.row, transitions.WHY[doubt.standing]
    if doubt.quiet and row["gave_up_us"] is None:
        first = store.write(lambda tx: transitions.give_up(tx, row, row["error"] or why))
    else:
        first = None
    error = transitions.in_doubt(doubt, f";{probed}" if probed else "")
    if first is not None:
        notices.tell(store, "effect.in_doubt", row["id"], error.message, transitions.settling(row["id"]))
    return error


# -- one at a time in this process ------------------------------------------------------------------

_mutex = threading.Lock()
_under_way: set[tuple[str, str, str]] = set()
_store_ids: WeakKeyDictionary[Store, str] = WeakKeyDictionary()


def _forked() -> None:
    """Nothing of the parent's is under way in its child."""
    global _mutex
    _mutex = threading.Lock()
    _under_way.clear()
    transitions.BEGUN.clear()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def alone(store: Store, scope: str, key: str, tool: str) -> Iterator[None]:
    """Whoever is inside is the only call of this process for this identity.

    So a row that says this process is at it, and is found in here, was left by an interrupted call.
    """
    mark = (store_id(store), scope, key)
    with _mutex:
        taken = mark in _under_way
        _under_way.add(mark)
    if taken:
        raise InProgress(f"{tool} is under way in another thread of this process", "wait for that call")
    try:
        yield
    finally:
        with _mutex:
            _under_way.discard(mark)


def store_id(store: Store) -> str:
    found = _store_ids.get(store)
    if found is None:
        found = _store_ids[store] = store.read(lambda tx: tx.one(transitions.SQL.store_id))["value"]
    return found
