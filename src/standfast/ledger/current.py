"""The current session of a context. A called effect or step is recorded in it.

A context variable has it. Tasks, `asyncio.to_thread` and copied contexts inherit the variable; a bare thread or
executor does not (`s.bind`). Sessions, sub-agents and decisions bind themselves on entry. The innermost binding
counts.

A program may leave a block in another context than it entered it, for example if another task closes an async
generator. Then `unbind` resets nothing there, and the context of the entry keeps the binding. A call in that context is
refused, because its opening has ended: the caller may be a task that outlived the block.

Bindings are weak references. So a program that dropped a session without leaving its block can open it again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from standfast.errors import NoSession
from standfast.ledger.openings import Opening


class Current(NamedTuple):
    """One binding."""

    owner: ReferenceType[object]
    """The session, sub-agent or decision that made the binding."""
    opening: Opening
    bound_node: ReferenceType[Any]
    reason: str | None
    """The enclosing decision and its reason, which a request for approval shows."""
    outer: Current | None

    @property
    def node(self) -> Any:
        """The session or sub-agent. Raises NoSession if the program dropped it."""
        found = self.bound_node()
        if found is None:
            raise NoSession(
                f"session {self.opening.session_key!r} was dropped", "open it again: standfast.session(key)"
            )
        return found


_current: ContextVar[Current | None] = ContextVar("standfast_session", default=None)
UNRECORDED: ContextVar[bool] = ContextVar("standfast_unrecorded", default=False)
"""True inside `standfast.testing.unrecorded()`: a call of an effect or a step runs the plain function."""


def bind(node: Any, opening: Opening) -> None:
    """Make a session or sub-agent the current one of this context, until `unbind(node)`."""
    bound = ref(node)
    _current.set(Current(bound, opening, bound, reason(opening), _open(_current.get())))


def explain(owner: object, opening: Opening, reason: str) -> None:
    """Add the reason of a decision until `unbind(owner)`, if its session is the current one."""
    found = _current.get()
    if found is not None and found.opening.session_id == opening.session_id:
        _current.set(found._replace(owner=ref(owner), reason=reason, outer=found))


def unbind(owner: object) -> None:
    """Return to the binding outside. Does nothing in a context where `owner` is not the innermost binding."""
    found = _current.get()
    if found is not None and found.owner() is owner:
        _current.set(_open(found.outer))


def get() -> Current | None:
    """The current session; None outside any. Raises NoSession after its block has ended, and in a forked child."""
    found = _current.get()
    if found is not None:
        found.opening.usable()
        _ = found.node
    return found


def required(name: str) -> Current:
    """The current session. Raises NoSession outside any."""
    found = get()
    if found is None:
        raise NoSession(
            f"{name} was called outside a session: nothing was sent",
            "call it inside `with standfast.session(key) as s:`; in a thread or executor pass s.bind(function); "
            "`.plain(…)` runs the function without a record",
        )
    return found


def reason(opening: Opening) -> str | None:
    """The reason of the decision that encloses a call in this session."""
    found = _current.get()
    return found.reason if found is not None and found.opening.session_id == opening.session_id else None


def _open(found: Current | None) -> Current | None:
    """The first binding whose block has not ended. Without this, a long-lived context would collect ended ones."""
    while found is not None and (found.opening.ended or found.bound_node() is None):
        found = found.outer
    return found
