"""Modules that others import and hardly ever use: loaded when somebody asks them for something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def later(name: str) -> Iterator[None]:
    """Whoever imports module `name` in here gets it when it is first used. Everybody else gets it as ever."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = standing_in = _StandIn(name)
    try:
        yield
    finally:
        standing_in.leave()


class _StandIn(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        self.leave()
        return getattr(import_module(self.__name__), attribute)

    def leave(self) -> None:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
