"""The parts of a mutant: attributes replaced inside a block, and its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from standfast.db.sql import Statement

_NONE: Mapping[str, Any] = MappingProxyType({})


class Setter(Protocol):
    """The methods that a patch calls: of `Patching` below, or of pytest's monkeypatch."""

    def setattr(self, target: Any, name: str, value: object, /) -> object: ...


Patch = Callable[[Setter], object]


class Mutant(NamedTuple):
    """One bug: its description, the harness that must find it, and its patch."""

    what: str
    harness: str
    """ "sweep FEATURE:WORLD", "check SCENE", "soak", "model NAME" or "campaign NAME"."""
    patch: Patch
    arguments: Mapping[str, Any] = _NONE
    """Options of the campaign that replace those of the catalogue, for shorter runs."""
    engine: str = "sqlite"


class Patching:
    """`with Patching() as patch: patch.setattr(module, "name", value)`. The block restores the old values."""

    def __init__(self) -> None:
        self.changed: list[tuple[Any, str, object]] = []
        """The replaced attributes with their old values."""

    def setattr(self, target: Any, name: str, value: object, /) -> None:
        """Raises if the name does not exist, because then the patch no longer applies."""
        own = vars(target) if hasattr(target, "__dict__") else {}
        self.changed.append((target, name, own[name] if name in own else getattr(target, name)))
        setattr(target, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for target, name, value in reversed(self.changed):
            setattr(target, name, value)


# -- kinds of patches -----------------------------------------------------------------------------------------


def swapped(target: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Replace a function. The replacement gets the original function as an argument."""
    return lambda m: m.setattr(target, name, make(getattr(target, name)))


def without(target: Any, name: str) -> Patch:
    """A function that does nothing."""
    return swapped(target, name, lambda _: lambda *args, **more: None)


def reworded(queries: Any, name: str, old: str, new: str) -> Patch:
    """Remove or replace a part of an SQL statement."""

    def patch(m: Setter) -> None:
        found: Statement = getattr(queries, name)
        texts = found._texts
        assert any(old in text for text in texts.values()), f"{name} has no {old!r} any more"
        sqlite, postgres = (texts[engine].replace(old, new) for engine in ("sqlite", "postgres"))
        m.setattr(queries, name, Statement(name, sqlite, postgres))

    return patch


def both(*patches: Patch) -> Patch:
    def patch(m: Setter) -> None:
        for one in patches:
            one(m)

    return patch
