"""Steps: computation that runs once and whose result is stored.

A step is identified by its name and its arguments. The first call runs the function and stores the result with one
fsync. Later calls of any process return the stored result. Use it for computation without outside effects; a call that
changes an outside system is an effect.

    (nothing) ──fn returns──▶ recorded, never changed
        └──fn raises──▶ (nothing): the next call runs it again

The same name and arguments again in one opening is `#2`, in order. Two concurrent calls with the same name and
arguments are refused, because their order is not defined. The result is always decoded from the stored text, also the
first time, so a first run and a replay cannot differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial, update_wrapper
from types import FunctionType
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, cast, overload
from weakref import WeakKeyDictionary, WeakValueDictionary

from standfast import crash, serial
from standfast.clock import SECOND_US
from standfast.core import journal, keys, user_code
from standfast.core.checks import NAME_MAX
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import refused_inside
from standfast.errors import InProgress, InvalidInput, LeaseLost, StandfastError
from standfast.ids import new_id
from standfast.ledger import current
from standfast.ledger.openings import Opening
from standfast.record.nodes import Path

SQL = load(__name__)

INLINE_MAX_BYTES = 1024 * 1024
"""A longer result is stored as an artifact, and the step has its id."""
FRESH_US = SECOND_US
"""A result younger than this may be visible before it is on disk: it is synced before it is returned."""


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(name: str, /) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(what: Any, /) -> Any:
    """Declare a function as a step: `@standfast.step`, or `@standfast.step("name")`.

    Called inside a session it runs once for its name and arguments, and later calls return the stored result.
    Outside a session it is the plain function. The name is the function's own, with its class.
    """
    if isinstance(what, str):
        return partial(Step, keys.checked(what, "a step's name", limit=NAME_MAX))
    name = getattr(what, "__qualname__", "").rpartition("<locals>.")[2]
    if not callable(what) or name in ("", "<lambda>"):
        raise InvalidInput(
            f"a step needs a name, and {what!r:.60} has none", '@standfast.step("name") above a function'
        )
    return Step(name, what)


class Step(Generic[P, R]):
    """A function whose calls inside a session are steps."""

    def __init__(self, name: str, function: Callable[P, R]) -> None:
        user_code.refuse_generator(function, name)
        self.name = name
        self.function = function
        update_wrapper(self, function)
        if isinstance(function, FunctionType):  # a bound method was declared with its class
            user_code.warn_duplicate(_declared.get(name), function, f"step {name!r}")
            _declared[name] = self

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        found = None if current.UNRECORDED.get() else current.get()
        if found is None:
            return self.function(*args, **kwargs)
        session, path = found.node._session, found.node._path
        call = partial(session.steps.perform, path, self.name, self.function, args, kwargs)
        import inspect

        return cast(
            "R", user_code.awaited(call, self.function) if inspect.iscoroutinefunction(self.function) else call()
        )

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...
    @overload
    def __get__(self: Step[Concatenate[Any, Q], R], instance: object, owner: type[object]) -> Step[Q, R]: ...
    def __get__(self, instance: object, owner: type[object]) -> Any:
        """In a class it is a method: `self` is bound and is no argument of the step."""
        return self if instance is None else Step(self.name, self.function.__get__(instance, owner))

    def __repr__(self) -> str:
        import inspect

        return f"<step {self.name}{inspect.signature(self.function)}>"


_declared: WeakValueDictionary[str, Step[..., Any]] = WeakValueDictionary()


class Identity(NamedTuple):
    """The identity of a step."""

    name: str
    arguments_hash: str
    n: int

    def __str__(self) -> str:
        return f"step {self.name!r}" + (f" #{self.n}" if self.n > 1 else "")


class Steps:
    """The steps of one opening of a session."""

    def __init__(self, opening: Opening, *, recorded: int) -> None:
        """`recorded` is how many the session had when it was opened."""
        self._opening = opening
        self._mutex = threading.Lock()
        self._running: set[tuple[str, str]] = set()
        # Only this opening records steps of the session. Once all recorded steps were found, no query is needed.
        # A fork may also find steps of its parent.
        self._unseen = recorded

    def perform(
        self, path: Path, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The stored result of this step; the function runs only if there is none yet."""
        refused_inside(self._opening.store.held, "step")
        user_code.refuse_nested(f"step {serial.clean(str(name), 60)!r}")
        self._opening.usable()
        _check_form(name, function)
        name = keys.checked(name, "a step's name", limit=NAME_MAX)
        function = function.function if isinstance(function, Step) else function
        returns, kwargs = _returns(function, kwargs)
        hashed = arguments_hash(path, name, args, kwargs)
        identity = self._enter(name, hashed)
        found = done = False
        try:
            text = self._found(identity)
            found = text is not None
            if text is not None:
                value = _decoded(identity, text, returns)
            else:
                value = self._run(identity, function, args, kwargs, returns)
            done = True
            return value
        finally:
            self._leave(identity, done=done, found=found)

    def _enter(self, name: str, hashed: str) -> Identity:
        with self._mutex:
            if (name, hashed) in self._running:
                raise InProgress(
                    f"step {name!r} with these arguments is running already in this opening",
                    "give each call its own name or a different argument, or wait for the first one",
                )
            self._running.add((name, hashed))
        return Identity(name, hashed, self._opening.number("step", f"{name}\0{hashed}"))

    def _leave(self, identity: Identity, *, done: bool, found: bool) -> None:
        if not done:  # nothing was recorded: the next try is the same step, not #2
            self._opening.take_back("step", f"{identity.name}\0{identity.arguments_hash}")
        with self._mutex:
            self._running.discard((identity.name, identity.arguments_hash))
            self._unseen -= done and found

    def _found(self, identity: Identity) -> str | None:
        """The stored text of the result, synced to disk; None if there is none."""
        if self._unseen <= 0 and not self._opening.lineage:
            return None
        row = self._opening.store.read(lambda tx: self._look(tx, identity))
        return None if row is None else self._text(row)

    def _look(self, tx: Tx, identity: Identity) -> Row | None:
        known = identity._asdict()
        row = tx.maybe(SQL.find, session_id=self._opening.session_id, **known)
        for session_id, cut_seq in self._opening.lineage if row is None else ():
            row = row or tx.maybe(SQL.find_before, session_id=session_id, cut_seq=cut_seq, **known)
        return row and {**row, "age_us": tx.now_us() - row["created_us"]}

    def _text(self, row: Row) -> str:
        store = self._opening.store
        if row["age_us"] < FRESH_US:
            store.sync()
        if row["artifact_id"] is not None:
            from standfast.core import artifacts

            return artifacts.read(store, row["artifact_id"]).decode()
        text: str = row["result"]
        return text

    def _run(
        self,
        identity: Identity,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        returns: Any,
    ) -> Any:
        crash.point("step.before_run")
        started = time.monotonic_ns()
        result = user_code.call(function, *args, **kwargs)
        duration_us = (time.monotonic_ns() - started) // 1000
        text = serial.canonical(result, what=f"the result of {identity}")
        # Decode before recording: a stored result that does not fit its annotation would fail on every later call.
        value = _decoded(identity, text, returns)
        stored = self._record(identity, text, duration_us)
        return value if stored is None else _decoded(identity, stored, returns)

    def _record(self, identity: Identity, text: str, duration_us: int) -> str | None:
        """Record the result. Returns None, or the stored text if another process recorded the step first."""
        store = self._opening.store
        result, artifact_id = _kept(self._opening, identity, text)
        crash.point("step.before_record")
        written = store.write(lambda tx: self._write(tx, identity, result, artifact_id, duration_us))
        crash.point("step.after_record")
        return None if written is None else self._text(written)

    def _write(
        self, tx: Tx, identity: Identity, result: str | None, artifact_id: str | None, duration_us: int
    ) -> Row | StandfastError | None:
        opening = self._opening
        id = new_id("stp")
        made = tx.maybe(
            SQL.record,
            id=id,
            holder=opening.holder,
            result=result,
            artifact_id=artifact_id,
            duration_us=duration_us,
            now_us=tx.now_us_if_known(),
            **identity._asdict(),
            **opening.guarded(),
        )
        if made is None:
            return opening.guard(tx) or self._look(tx, identity) or _vanished(identity)
        journal.append(tx, "step.recorded", id, session_id=opening.session_id, summary=str(identity)[5:])
        return None


def _check_form(name: object, function: object) -> None:
    """Raise InvalidInput unless it is a name and a function: `s.step(plan)`, `s.step("plan", plan(issue))`."""
    if isinstance(name, str) and callable(function):
        return
    if hasattr(function, "__await__") and (close := getattr(function, "close", None)) is not None:
        close()  # otherwise Python warns that it was never awaited
    fact = f"step {name!r:.60}: {type(function).__name__} is not a function"
    if not isinstance(name, str):
        fact = f"a step's name is text, not {type(name).__name__}"
    elif function is None:
        fact = f"step {name!r:.60} has no function"
    raise InvalidInput(fact, 'give the name, the function and its arguments: s.step("plan", make_plan, issue)')


def arguments_hash(path: Path, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The hash of the arguments. It includes the path of a sub-agent, whose steps are its own.

    Raises InvalidInput that names the argument which has no JSON form.
    """
    known = {"args": list(args), "kwargs": kwargs, **({"node": list(path)} if path else {})}
    try:
        return serial.hash(known, what=f"step {name!r}")
    except InvalidInput:
        for place, value in [*enumerate(args, 1), *kwargs.items()]:
            _check_argument(name, str(place), value)
        raise


def _check_argument(name: str, place: str, value: object) -> None:
    try:
        serial.canonical(value, what=f"step {name!r}, argument {place}")
    except InvalidInput as error:
        raise InvalidInput(
            error.message,
            f"{error.hint + '; ' if error.hint else ''}a step is known by its arguments: "
            "pass plain data, and bind the rest with functools.partial(fn, client)",
        ) from None


def _returns(function: Callable[..., Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The type to decode to, and the function's own keywords."""
    if "returns" in kwargs and not _takes_returns(function):
        rest = dict(kwargs)
        return rest.pop("returns"), rest
    return _annotation(function), kwargs


def _annotation(function: Callable[..., Any]) -> Any:
    """The return annotation of a function. Cached, because resolving it costs as much as writing a row."""
    if type(function) is not FunctionType:
        return serial.return_annotation(function)
    if function not in _annotations:
        _annotations[function] = serial.return_annotation(function)
    return _annotations[function]


_annotations: WeakKeyDictionary[FunctionType, Any] = WeakKeyDictionary()


def _takes_returns(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and "returns" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _decoded(identity: Identity, text: str, returns: Any) -> Any:
    return serial.decode(serial.read(text), returns, what=f"the result of {identity}")


def _kept(opening: Opening, identity: Identity, text: str) -> tuple[str | None, str | None]:
    """The text itself, or the id of the artifact with it."""
    if len(text) <= INLINE_MAX_BYTES // 4 or len(data := text.encode()) <= INLINE_MAX_BYTES:
        return text, None
    from standfast.core import artifacts

    name = f"step-{identity.arguments_hash[3:15]}-{identity.n}.json"
    kept = artifacts.put(
        opening.store, data, name=name, kind="step", session_id=opening.session_id, retention="session"
    )
    return None, kept.id


def _vanished(identity: Identity) -> LeaseLost:
    return LeaseLost(
        f"{identity} could not be recorded: another process took over its session", "open the session again"
    )
