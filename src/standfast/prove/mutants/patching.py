"""Attributes exchanged for the length of a block: what a mutant is made with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self


class Setter(Protocol):
    """What a patch needs: ours below, or pytest's."""

    def setattr(self, target: Any, name: str, value: object, /) -> object: ...


Patch = Callable[[Setter], object]


class Patching:
    """`with Patching() as patch: patch.setattr(module, "name", value)`; everything is put back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, object]] = []

    def setattr(self, target: Any, name: str, value: object, /) -> None:
        """Fails if there is no such name: then the patch no longer applies."""
        own = vars(target) if hasattr(target, "__dict__") else {}
        self._before.append((target, name, own[name] if name in own else getattr(target, name)))
        setattr(target, name, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for target, name, value in reversed(self._before):
            setattr(target, name, value)
