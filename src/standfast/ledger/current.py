"""The current session of a context: a called effect or step is recorded in it.

One context variable. Tasks, `asyncio.to_thread` and copied contexts inherit it; a bare thread or executor does not
(`s.bind`). Sessions, sub-agents and decisions bind on entry. The innermost counts.

A block can be left in another context than it was entered in, for example by an async generator that another task
closes. `unbind` then has nothing to reset there. The context of the entry keeps a binding whose opening has ended,
and a call there is refused: it may be a task that outlived the block.

Bindings hold sessions weakly: a session that a program dropped without leaving its block can be opened again.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from standfast.errors import NoSession
from standfast.ledger.opening_counts import Opening


class Current(NamedTuple):
    """One binding."""

    owner: ReferenceType[object]
    """The session, sub-agent or decision that bound it."""
    opening: Opening
    bound_node: ReferenceType[Any]
    reason: str | None
    """The enclosing decision, for a request of approval."""
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
"""True inside `standfast.testing.unrecorded()`: a called effect or step is the plain function."""


def bind(node: Any, opening: Opening) -> None:
    """Make a session or sub-agent the current one of this context, until `unbind(node)`."""
    bound = ref(node)
    _current.set(Current(bound, opening, bound, reason(opening), _open(_current.get())))


def explain(owner: object, opening: Opening, reason: str) -> None:
    """Add the reason of a decision, if its session is the current one; until `unbind(owner)`."""
    found = _current.get()
    if found is not None and found.opening.session_id == opening.session_id:
        _current.set(found._replace(owner=ref(owner), reason=reason, outer=found))


def unbind(owner: object) -> None:
    """Return to the binding outside; nothing happens in a context where `owner` is not the innermost."""
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
    """The decision that encloses a call in this session."""
    found = _current.get()
    return found.reason if found is not None and found.opening.session_id == opening.session_id else None


def _open(found: Current | None) -> Current | None:
    """Skip bindings whose block has ended: a context that lives long would collect them."""
    while found is not None and (found.opening.ended or found.bound_node() is None):
        found = found.outer
    return found
