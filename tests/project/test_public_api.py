"""The public API: results are frozen dataclasses, and durations and times are given in the public forms."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

import standfast
from standfast.actions import git, github, http
from standfast.db.store import Resource
from standfast.handle import Resources
from standfast.models import Model
from tests.aio_stub import ITERATED, _modules, _origin
from tests.public import HANDED, methods

OTHERS = (standfast.StandfastError, standfast.AsyncStandfast, Resources, Resource, *HANDED, *ITERATED)
"""What methods give that is no model: errors that the decorator raises, and objects with methods on the store."""
PLAIN = {"standfast.core.receipts.Receipt", "standfast.ledger.effects.types.Decorator"}
"""The `seq` of a receipt comes with the commit, after the model that carries it was made."""
POSITIONS = {"Sessions.fork(at)", "Removed.list(before)"}
"""Parameters that take a number in a list, and in other methods a time has their name."""


def functions() -> dict[str, Callable[..., Any]]:
    """The public methods, the functions of the package, and the effects that it defines."""
    named = {name: getattr(standfast, name) for name in standfast.__all__}
    found = {name: one for name, one in named.items() if inspect.isfunction(one)}
    for module in (git, github, http):
        own = {name: one for name, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__}
        found |= {f"{module.__name__}.{name}": one for name, one in own.items() if public(name, one)}
    return {**methods(), **found}


def public(name: str, one: object) -> bool:
    return callable(one) and not inspect.isclass(one) and not name.startswith("_")


def classes(module: str, annotation: str) -> Iterator[type]:
    """The classes in an annotation, also those inside an alias such as `TaskList`."""
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        found = named(module, node)
        yield from (found,) if isinstance(found, type) else within(found)


def named(module: str, node: ast.AST) -> Any:
    """The object that a name such as `Task` or `check.Check` has in a module. None for other parts of an annotation."""
    if isinstance(node, ast.Attribute):
        return getattr(named(module, node.value), node.attr, None)
    if not isinstance(node, ast.Name) or hasattr(builtins, node.id) or node.id in _modules(module):
        return None
    home, name = _origin(module, node.id)
    return getattr(import_module(home), name)


def within(alias: Any) -> Iterator[type]:
    for one in getattr(alias, "__args__", ()):
        yield from (one,) if isinstance(one, type) else within(one)


def reached(kind: type, seen: dict[type, None]) -> None:
    """Add `kind` and the classes of its fields and properties to `seen`."""
    if kind in seen or not kind.__module__.startswith("standfast."):
        return
    seen[kind] = None
    if not issubclass(kind, Model):
        return
    texts = dict(kind.__annotations__)
    properties = {name: one.fget for name, one in vars(kind).items() if isinstance(one, property)}
    texts |= {name: one.__annotations__["return"] for name, one in properties.items() if one is not None}
    for name, text in texts.items():
        if not name.startswith("_"):
            for one in classes(kind.__module__, text):
                reached(one, seen)


def results() -> list[type]:
    seen: dict[type, None] = {}
    unwrapped = [inspect.unwrap(getattr(one, "function", one)) for one in functions().values()]
    for function in (one for one in unwrapped if one.__module__.startswith("standfast.")):
        for one in classes(function.__module__, function.__annotations__["return"]):
            reached(one, seen)
    return list(seen)


def test_every_public_result_is_a_frozen_dataclass() -> None:
    """A caller cannot unpack a result, compare it as a tuple, or change it."""
    found = results()
    assert len(found) > 100
    blocks = [one for one in found if hasattr(one, "__enter__")]
    plain = {f"{one.__module__}.{one.__name__}" for one in found if not issubclass(one, (Model, *OTHERS, *blocks))}
    assert plain == PLAIN
    for model in (one for one in found if issubclass(one, Model)):
        assert dataclasses.is_dataclass(model), model
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(object.__new__(model), model.field_names()[0], None)
        assert not issubclass(model, tuple), model


def test_no_public_signature_shows_an_object_of_ours() -> None:
    """`help()` and editors show readable signatures: no default value is a bare object."""
    shown = {name: str(inspect.signature(one)) for name, one in functions().items()}
    assert {name: text for name, text in shown.items() if "<object object" in text and name != "SessionState.pop"} == {}
    assert "by: 'str | Iterable[str] | All' = <not given>" in shown["effect"]


def test_every_public_duration_and_time_takes_the_public_forms() -> None:
    """A duration is "2h", a timedelta or seconds. A time is a datetime or a text."""
    given = [(name, p) for name, one in functions().items() for p in inspect.signature(one).parameters.values()]
    timed = {p.name for _, p in given if re.search("Duration|Time", str(p.annotation))}
    assert {"at", "before", "due", "for_", "since", "timeout", "until", "wait", "window"} <= timed
    numbers = {f"{name}({p.name})" for name, p in given if re.search(r"\b(int|float)\b", str(p.annotation))}
    assert {one for one in numbers if re.findall(r"\w+", one)[-1] in timed} == POSITIONS
    raw = {f"{name}({p.name})" for name, p in given if re.search("timedelta|datetime", str(p.annotation))}
    assert raw == set(), "write Duration or Time"
