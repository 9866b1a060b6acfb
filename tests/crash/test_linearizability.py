"""The checker of histories accepts every linearizable history and no other."""

from __future__ import annotations

import random
from math import inf

from standfast_prove.linearizability import Call, linearizable


def register(state: int, asked: tuple[str, int], result: int | None, seen: bool) -> int | None:
    kind, value = asked
    if kind == "write":
        return value
    return state if not seen or result == state else None


def test_calls_that_overlap_may_have_happened_in_either_order() -> None:
    write, read_old = Call(1, 4, ("write", 1), None), Call(2, 3, ("read", 0), 0)
    assert linearizable([write, read_old], 0, register)
    assert linearizable([write, read_old._replace(result=1)], 0, register)
    assert not linearizable([write, read_old._replace(result=2)], 0, register)


def test_a_call_that_ended_before_another_began_happened_first() -> None:
    assert not linearizable([Call(1, 2, ("write", 1), None), Call(3, 4, ("read", 0), 0)], 0, register)
    assert linearizable([Call(1, 2, ("write", 1), None), Call(3, 4, ("read", 0), 1)], 0, register)


def test_a_call_without_an_end_happened_at_some_time_or_never() -> None:
    lost = Call(1, inf, ("write", 1), None)
    assert linearizable([lost, Call(3, 4, ("read", 0), 0)], 0, register)
    assert linearizable([lost, Call(3, 4, ("read", 0), 1)], 0, register)
    assert linearizable([lost, Call(3, 4, ("read", 0), 0), Call(5, 6, ("read", 0), 1)], 0, register)
    assert not linearizable([lost, Call(3, 4, ("read", 0), 1), Call(5, 6, ("read", 0), 0)], 0, register)


def test_every_history_of_one_register_is_accepted_and_a_stale_read_in_it_is_not() -> None:
    draw = random.Random(7)
    for _ in range(200):
        calls, state, now = [], 0, 0.0
        for number in range(1, 15):
            now += 1
            asked = ("write", number) if draw.random() < 0.5 else ("read", 0)
            state = asked[1] if asked[0] == "write" else state
            calls.append(Call(now - draw.random() * 3, now + draw.random() * 3, asked, state))
        assert linearizable(calls, 0, register)
        assert not linearizable([*calls, Call(100, 101, ("read", 0), -1)], 0, register)
