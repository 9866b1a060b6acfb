"""Which parameter of a function receives the Call: by its annotation, as a class or as text."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import standfast
from standfast.ledger.effects.signatures import call_slot


@pytest.mark.parametrize(
    ("annotation", "slot"),
    [(standfast.Call, "to"), ("standfast.Call", "to"), ("Call", "to"), (str, None), ("str", None), (Any, None)],
    ids=str,
)
def test_the_parameter_annotated_with_call_receives_it(annotation: object, slot: str | None) -> None:
    def act(to: object) -> None: ...

    act.__annotations__["to"] = annotation
    assert call_slot(act, inspect.signature(act)) == slot
