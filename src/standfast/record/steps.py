"""Steps: computation that is done once and remembered.

A step is known by its name and its arguments. The first time its function runs and the result
is stored, in one durable write; ever after, what was stored is returned, to any process. For
computation that touches nothing outside: what the world can see is an effect.

    (nothing) ──fn returns──▶ recorded ──▶ recorded, for good
        └──fn raises──▶ (nothing): it runs again next time

The same name and arguments again in one opening is `#2`, in order. Two at once are refused,
because nobody could say which of them is `#2`. What is returned is decoded from the stored
text, the first time too, so that a first run and a replay cannot differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from standfast import crash, serial
from standfast.clock import SECOND_US
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import refused_inside
from standfast.errors import InProgress, InvalidInput, LeaseLost, StandfastError
from standfast.footings import foreign, journal, keys
from standfast.ids import new_id
from standfast.ledger.opening import Opening
from standfast.record.nodes import Path

SQL = load(__name__)

NAME_MAX = 200
INLINE_MAX_BYTES = 1024 * 1024
"""A longer result is kept as an artifact; the step remembers which."""
FRESH_US = SECOND_US
"""A hit younger than this may be visible before it is durable: it is synced before it is returned."""


class Identity(NamedTuple):
    """What a step is known by."""

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
        # While this opening owns the session nobody else records steps. Once as many were found as
        # there are, looking for another is a trip for nothing. A fork may also find its parent's.
        self._unseen = recorded

    def perform(
        self, path: Path, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The stored result of this step; the function runs only if there is none yet."""
        refused_inside(self._opening.store.held, "step")
        foreign.refuse_nested(f"step {serial.clean(str(name), 60)!r}")
        self._opening.usable()
        name = keys.checked(name, "a step's name", limit=NAME_MAX)
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
                    "give each its own name or an argument that tells them apart; or wait for the first",
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
        """The stored text of the result, once it is surely on disk."""
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
            from standfast.footings import artifacts

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
        result = foreign.call(function, *args, **kwargs)
        duration_us = (time.monotonic_ns() - started) // 1000
        text = serial.canonical(result, what=f"the result of {identity}")
        # Decoded before it is recorded: a result that does not fit its annotation would never fit again.
        value = _decoded(identity, text, returns)
        stored = self._record(identity, text, duration_us)
        return value if stored is None else _decoded(identity, stored, returns)

    def _record(self, identity: Identity, text: str, duration_us: int) -> str | None:
        """None once it is recorded; the text of another's result if that one came first."""
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


def arguments_hash(path: Path, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What the arguments are compared by; a sub-agent's steps are its own.

    Raises InvalidInput naming the argument that has no plain form.
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
    """What it says it returns. Looking its names up costs as much as writing a row: once for each function."""
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
    """The text itself, or the artifact that holds it."""
    if len(text) <= INLINE_MAX_BYTES // 4 or len(data := text.encode()) <= INLINE_MAX_BYTES:
        return text, None
    from standfast.footings import artifacts

    name = f"step-{identity.arguments_hash[3:15]}-{identity.n}.json"
    kept = artifacts.put(
        opening.store, data, name=name, kind="step", session_id=opening.session_id, retention="session"
    )
    return None, kept.id


def _vanished(identity: Identity) -> LeaseLost:
    return LeaseLost(f"{identity} could not be recorded: its session changed hands", "start over from what is recorded")
