"""An open session: the object of `with sf.session(key) as s`.

Entering opens or resumes the session; `s.resumed` has its earlier state. Leaving the block ends it:

    no exception, sys.exit()              completed
    an exception, sys.exit(3)             failed, with the last line of the exception
    an effect in doubt, an approval       waiting, also if the program caught the error
    Ctrl-C, a cancelled task, a closed    waiting
     generator, s.pause(reason)

The lease is always released. If the process dies, its lease ends with it.

A session and each of its sub-agents have the same methods (`node_methods`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from weakref import WeakValueDictionary

from standfast import crash, serial
from standfast.core import leases
from standfast.core.checks import REASON_MAX
from standfast.db.store import Store, refused_inside
from standfast.errors import ApprovalRequired, EffectInDoubt, InvalidInput, StandfastError
from standfast.ids import is_id
from standfast.ledger.openings import Opening
from standfast.record import nodes
from standfast.record.node_methods import NodeMethods, Subagent
from standfast.record.nodes import Path, Segment
from standfast.record.sessions import InDoubt, Opened, Resumed, SessionRecord, Sessions, ownership
from standfast.record.steps import Steps

if TYPE_CHECKING:
    from types import TracebackType

    from standfast.handle import Standfast
    from standfast.record.state import SessionState

ENTER = "enter it: with standfast.session(key) as s"
VARIABLE = "STANDFAST_SESSION"
"""The variable with the session that `session run` has opened for its child processes."""

_Name = tuple[str, str, str]
_open_here: WeakValueDictionary[_Name, Session] = WeakValueDictionary()
"""The sessions that this process has open, by (store, scope, key). A dropped object disappears by itself."""
_opening_locks: WeakValueDictionary[_Name, threading.Lock] = WeakValueDictionary()
"""Threads of this process open one session one after another: the store distinguishes processes, not threads."""
_mutex = threading.Lock()


def _forked() -> None:
    """A forked child has no open session, and none of its threads holds a lock."""
    global _mutex
    _mutex = threading.Lock()
    _open_here.clear()
    _opening_locks.clear()


os.register_at_fork(after_in_child=_forked)


class Session(NodeMethods):
    """A session. It holds its lease only inside its `with` block."""

    def __init__(
        self,
        store: Store | None,
        key: str,
        *,
        agent: str | None = None,
        handle: Standfast | None = None,
        connect: Callable[[], Standfast] | None = None,
    ) -> None:
        """With `connect`, entering the block opens a store, and leaving the block closes it."""
        super().__init__(self, ())
        if store is not None:
            self._store = store
        self._handle = handle
        self._connect = connect
        self._entered = False
        self._agent = agent
        self._given_key = key
        self._opened: Opened | None = None
        self._opening_now: Opening | None = None
        self._steps: Steps | None = None
        self._paused: str | None = None
        self._subagents: dict[Path, Subagent] = {}
        self._cursor: serial.Json = None
        self.resumed: Resumed | None = None
        """None for a new session; otherwise its earlier state and counts."""

    # -- entry and exit -----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._entered = True
        if self._opening_now is not None:
            raise InvalidInput(f"session {self.key!r} is open already", "make another object: standfast.session(key)")
        if self._connect is not None and self._handle is None:
            self._handle = self._connect()
            self._store = self._handle._store
        try:
            self._open()
        except BaseException:
            self._disconnect()
            raise
        return self

    if not TYPE_CHECKING:  # a type checker must refuse it

        async def __aenter__(self) -> Self:
            self._entered = True
            raise InvalidInput(
                f"session {self._given_key!r} is entered with `with`",
                "in async code: async with standfast.aopen() as sf, sf.session(key) as s: …",
            )

        async def __aexit__(self, *exc: object) -> None:
            """Python requires this method before it calls `__aenter__`."""

    def open(self) -> Self:
        """Open it without a block, as in a notebook: `s = standfast.session("fix-42").open()`. `close()` ends it."""
        return self.__enter__()

    def close(self) -> None:
        """End a session that was opened with `open()`: it is completed, or waiting after `s.pause(…)`."""
        self.__exit__(None, None, None)

    @property
    def store(self) -> Standfast:
        """The handle of the session's store: `s.store.tasks.add(…)`."""
        if self._handle is None:
            raise InvalidInput(f"session {self._given_key!r} is not open", ENTER)
        return self._handle

    def _disconnect(self) -> None:
        if self._connect is not None and self._handle is not None:
            handle, self._handle = self._handle, None
            handle.close()

    def __del__(self) -> None:
        if not getattr(self, "_entered", True):
            import warnings

            warnings.warn(
                f"session {self._given_key!r} was never entered: use `with`, or open()", RuntimeWarning, stacklevel=2
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unbind()
        if self._opening_now is not None and self._opening_now.elsewhere:
            return  # a forked child leaves its parent's block
        try:
            if self._opening_now is not None:  # else it was ended already
                self._conclude(error)
        finally:
            self._disconnect()

    def _conclude(self, error: BaseException | None) -> None:
        state, reason = _outcome(error, self._paused)
        if reason is not None and self._store.redact:
            from standfast.serial.redaction import redacted

            reason = redacted(reason)
        try:
            if state == "completed":
                self._leave()
            else:
                self._end(state, reason)
        except StandfastError as refusal:
            if error is None:
                raise
            # The caller must see the error of the block, so this refusal becomes a note.
            error.add_note(f"standfast: session {self.key!r} could not be ended: {refusal}")

    def _open(self) -> None:
        refused_inside(self._store.held, "session")
        resource = Sessions(self._store)
        key = resource.get(self._given_key).key if is_id(self._given_key) else self._given_key
        name = (self._store.engine.identity, self._store.caller.scope, key)
        with _mutex:
            lock = _opening_locks.setdefault(name, threading.Lock())
        with lock:
            self._enter(resource, name)

    def _enter(self, resource: Sessions, name: _Name) -> None:
        """Open the session. The caller holds the lock of its name, so no other thread opens it now."""
        # If this process holds the lease but has no object for it, the object was dropped, or `session run` opened it.
        alone = name not in _open_here
        try:
            opened = resource.open(self._given_key, agent=self._agent, alone=alone, join=os.environ.get(VARIABLE))
            with _mutex:
                _open_here[name] = self  # the former holder in this process has ended it, or lost it
            self._adopt(opened)
            leases.renewer(self._store).start()
            self._bind()
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> None:
        """Release the lease after entering failed: Python will not call `__exit__`."""
        self._unbind()
        if self._opening_now is not None:
            with suppress(StandfastError):
                self._end("waiting", "its opening was interrupted")
        self._forget()

    def _adopt(self, opened: Opened) -> None:
        crash.point("session.after_open")
        record = opened.record
        self._opened, self._node, self._cursor = opened, opened.root, record.cursor
        self._opening_now = Opening(
            self._store,
            session_id=record.id,
            session_key=record.key,
            node_id=opened.root.id,
            fence=record.fence,
            agent=record.agent,
            lineage=opened.lineage,
            scope=record.scope,
            label=record.label,
        )
        self._paused = None
        self._subagents = {}
        self._segments = (Segment(opened.root.id, opened.root.first_position, nodes.POSITION_MAX),)
        if opened.lineage:
            self._segments = self._store.read(lambda tx: nodes.segments(tx, opened.root, (), opened.lineage))
        # Counted after the commit, on a snapshot. Only this process may add to the session now.
        self._opening_now.first = opened.before is None and not opened.lineage
        self.resumed = None if opened.before is None else Sessions(self._store).found(opened.before)
        self._steps = Steps(self._opening_now, recorded=self.resumed.steps if self.resumed else 0)

    def _leave(self) -> None:
        opening = self.opening
        self._over(
            lambda: Sessions(self._store).leave(opening.session_id, fence=opening.fence, stops=dict(opening.stops))
        )

    def _end(self, state: str, reason: str | None) -> SessionRecord:
        opening = self.opening
        resource = Sessions(self._store)
        return self._over(lambda: resource.end(opening.session_id, state, reason=reason, fence=opening.fence))

    def _over(self, end: Callable[[], SessionRecord]) -> SessionRecord:
        opening = self.opening
        try:
            ended = end()
        finally:
            opening.end()
            self._opening_now = None
            self._forget()
        crash.point("session.after_end")
        return ended

    def _forget(self) -> None:
        with _mutex:
            for name, session in list(_open_here.items()):
                if session is self:
                    del _open_here[name]

    def end(self, state: str = "completed", *, reason: str | None = None) -> SessionRecord:
        """End the session before the block ends: completed, failed or waiting."""
        return self._end(state, reason)

    def pause(self, reason: str) -> None:
        """Make the session wait, with this reason, when the block ends. It does not complete."""
        self.opening.usable()
        self._paused = serial.clean(reason, REASON_MAX) or "paused"

    def proceed(self, reason: str | None = None) -> tuple[InDoubt, ...]:
        """Continue although effects of this session are in doubt, and return those. New effects are sent.

        Each is journalled (`effect.proceeded`) and stays in doubt. A later doubt stops the session again. Raises
        LeaseLost if the session was taken over.
        """
        opening = self.opening
        opening.usable()
        passed = Sessions(self._store).proceed(opening.session_id, opening=opening, reason=reason)
        for effect in passed:
            opening.stops.pop(effect.id, None)
        return passed

    # -- properties -----------------------------------------------------------------------------------

    @property
    def opening(self) -> Opening:
        """This opening. Raises InvalidInput outside the block."""
        if self._opening_now is None:
            raise InvalidInput(f"session {self._given_key!r} is not open", ENTER)
        return self._opening_now

    @property
    def steps(self) -> Steps:
        self.opening.usable()
        assert self._steps is not None
        return self._steps

    @property
    def record(self) -> SessionRecord:
        """The session at the time of this opening."""
        if self._opened is None:
            raise InvalidInput(f"session {self._given_key!r} was not opened yet", ENTER)
        return self._opened.record

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def key(self) -> str:
        return self._opened.record.key if self._opened else self._given_key

    @property
    def agent(self) -> str | None:
        return self.record.agent

    @property
    def fence(self) -> int:
        return self.opening.fence

    @property
    def cursor(self) -> serial.Json:
        """The program's own progress: any JSON value, stored across openings."""
        return self._cursor

    @cursor.setter
    def cursor(self, value: serial.Json) -> None:
        opening = self.opening
        opening.usable()
        text = serial.dumps(value, what="cursor")
        self._store.write(lambda tx: ownership.move(tx, opening, text))
        self._cursor = serial.read(text)

    @property
    def state(self) -> SessionState:
        """The values of this session by key: `s.state["branch"] = "fix-42"`."""
        from standfast.record.state import SessionState

        return SessionState(self.opening)

    def _at(self, path: Path, title: str | None) -> Subagent:
        found = self._subagents.get(path)
        if found is not None:
            return found
        opening = self.opening
        found = Subagent(self, path)
        # The node usually exists, and a read does not wait for other writers.
        node = self._store.read(lambda tx: nodes.find(tx, opening.session_id, path))
        if node is None:
            node = self._store.write(
                lambda tx: nodes.open_at(tx, opening.session_id, path, opening.lineage, title=title)
            )
        found._node = opened_at = node
        found._segments = self._store.read(lambda tx: nodes.segments(tx, opened_at, path, opening.lineage))
        return self._subagents.setdefault(path, found)

    def __repr__(self) -> str:
        return f"<Session {self.key}>"


# -- the outcome of a block ----------------------------------------------------------------------------


def _outcome(error: BaseException | None, paused: str | None) -> tuple[str, str | None]:
    """The state of the session after the block, and the reason."""
    if error is None:
        return ("completed", None) if paused is None else ("waiting", paused)
    if isinstance(error, SystemExit):
        ok = error.code in (None, 0, False)
        return ("completed", None) if ok else ("failed", f"exited: {error.code}")
    if reason := _comes_back(error):
        return "waiting", reason
    return "failed", last_line(error)


def _comes_back(error: BaseException) -> str | None:
    """The reason if the session waits after this error; None if it failed."""
    if isinstance(error, (EffectInDoubt, ApprovalRequired)):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "its generator was closed"
    if type(error).__name__ == "CancelledError" and not isinstance(error, Exception):
        return "cancelled"
    if isinstance(error.__cause__, (EffectInDoubt, ApprovalRequired)):
        return error.__cause__.message  # a framework wrapped it in its own error
    if isinstance(error, BaseExceptionGroup):
        reasons = [_comes_back(one) for one in error.exceptions]
        return "; ".join(filter(None, reasons)) if all(reasons) else None
    return None


def last_line(error: BaseException) -> str:
    """The last line of a traceback: the type of the error and the first line of its message."""
    said = error.message if isinstance(error, StandfastError) else str(error)
    kind = type(error).__qualname__
    line = next((line for line in said.splitlines() if line.strip()), "")
    return serial.clean(f"{kind}: {line}" if line else kind, REASON_MAX)
