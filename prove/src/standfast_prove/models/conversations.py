"""Conversations compared with a list: after any add, remove, clear and fork, both have the same items."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from standfast.record.conversations import Conversations, line
from standfast_prove.models.opening import opened

STEPS = 25

MOVES = st.lists(st.one_of(st.integers(1, 3), st.sampled_from(["pop", "clear", "fork"])), max_size=25)


def said(*items: Any) -> list[Any]:
    return [line(item, role="user", summary=str(item), redact=True) for item in items]


def program_on(url: str, data: Path) -> Callable[..., None]:
    numbers = count(1)

    @given(moves=MOVES)
    def talked(moves: list[Any]) -> None:
        with opened(url, data, f"conversations {next(numbers)}") as sf:
            talks, name, floor, last = Conversations(sf._store), "0", 0, 0
            model: dict[str, list[int]] = {name: []}
            for move in moves:
                if move == "pop" and len(model[name]) > floor:
                    assert talks.take_back(name) == (model[name].pop(),)
                elif move == "clear":
                    talks.clear(name)
                    model[name], floor = [], 0
                elif move == "fork" and last:
                    new = str(len(model))
                    sf.sessions.fork(name, new)
                    model[new], floor, name = list(model[name]), len(model[name]), new
                elif isinstance(move, int):
                    items = list(range(last, last + move))
                    talks.add(name, said(*items))
                    model[name], last = model[name] + items, last + move
                for key, items in model.items():
                    assert talks.items(key) == items
                    assert talks.items(key, last=2) == items[-2:]

    return talked
