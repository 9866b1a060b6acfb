"""Shared by the state machines of all models: a store, and a scope that no other program uses."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from standfast.clock import Clock
from standfast.handle import Standfast
from standfast_prove.models.opening import opened

_numbers = count(1)


class Machine(RuleBasedStateMachine):
    """One program. `url` and `data` are the store of the run, which all its programs share."""

    url: ClassVar[str]
    data: ClassVar[Path]
    played: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        type(self).played += 1
        self.number = next(_numbers)
        self.scope = f"program {self.number}"

    def opened(self, *, clock: Clock | None = None, actor: str | None = None, as_actor: bool = False) -> Standfast:
        return opened(self.url, self.data, self.scope, clock=clock, actor=actor, as_actor=as_actor)
