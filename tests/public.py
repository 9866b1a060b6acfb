"""The public classes and their methods: the handle, its resources, sessions, sub-agents and the objects they return."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from standfast.db.store import Resource
from standfast.handle import LazyResource, Resources, Standfast
from standfast.ledger.decisions import Deciding
from standfast.record.node_methods import SessionArtifacts, Subagent
from standfast.record.open_session import Session
from standfast.record.state import SessionState

HANDED = (Session, Subagent, SessionArtifacts, SessionState, Deciding)
"""What methods and properties give, with methods of its own."""


def resources() -> dict[str, type[Resource]]:
    """The class of each resource, by its name on the handle."""
    handle = Resources(None)  # type: ignore[arg-type]  # no store is opened: only the classes are asked for
    found = {name: getattr(handle, name) for name, one in vars(Resources).items() if isinstance(one, LazyResource)}
    return {name: type(one) for name, one in found.items()}


def methods() -> dict[str, Callable[..., Any]]:
    """Every public method that a caller can reach, by its class and name."""
    classes: list[type] = [Standfast, *resources().values(), *HANDED]
    return {f"{one.__name__}.{name}": method for one in classes for name, method in of(one).items()}


def of(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of one class, including inherited ones, without those that every resource has."""
    found = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {name: one for name, one in found.items() if inspect.isroutine(one) and name not in vars(Resource)}
