"""The parts of a mutant: attributes replaced inside a block, and its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from standfast.db.sql import Statement

_NONE: Mapping[str, Any] = MappingProxyType({})


class Setter(Protocol):
    """What a patch needs: ours below, or pytest's."""

    def setattr(self, target: Any, name: str, value: object, /) -> object: ...


Patch = Callable[[Setter], object]


class Mutant(NamedTuple):
    """One bug: what it does, which test must find it, and the patch that makes it."""

    what: str
    harness: str
    """ "sweep FEATURE:WORLD", "check SCENE", "soak", "model NAME" or "campaign NAME"."""
    patch: Patch
    arguments: Mapping[str, Any] = _NONE
    """Of the campaign, in the place of those of the catalogue: shorter ones."""
    engine: str = "sqlite"


class Patching:
    """`with Patching() as patch: patch.setattr(module, "name", value)`; everything is put back."""

    def __init__(self) -> None:
        self.changed: list[tuple[Any, str, object]] = []
        """What stood where, before."""

    def setattr(self, target: Any, name: str, value: object, /) -> None:
        """Fails if there is no such name: then the patch no longer applies."""
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
    """A function in the place of another; it is given the other."""
    return lambda m: m.setattr(target, name, make(getattr(target, name)))


def without(target: Any, name: str) -> Patch:
    """A function that does nothing."""
    return swapped(target, name, lambda _: lambda *args, **more: None)


def reworded(queries: Any, name: str, old: str, new: str) -> Patch:
    """A statement with a piece of it missing, or another in its place."""

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
