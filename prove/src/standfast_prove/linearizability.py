"""Whether a recorded history of calls could have happened one call after another.

This is Wing and Gong's search, with Lowe's cache of tried states. Each step takes one of the calls that began before
any other remaining call ended, and the model says whether its result fits. A call without a recorded end (its process
was killed) may have happened at any later time, or never.

    calls = [Call(1, 4, "claim", fence_1), Call(2, inf, "done 1", None)]
    assert linearizable(calls, start, step)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Call(NamedTuple):
    """One call: the times of its begin and end by one clock, the request and the result."""

    began: float
    ended: float
    """inf if the end was not recorded. Then `result` has no meaning."""
    asked: Any
    result: Any


def linearizable(calls: Iterable[Call], start: S, step: Callable[[S, Any, Any, bool], S | None]) -> bool:
    """`step(state, asked, result, seen)` is the state after a call, or None if its result does not fit.

    `seen` is False for a call without a recorded end. Any answer fits it.
    """
    ordered = sorted(calls, key=lambda call: (call.began, call.ended))
    must = sum(1 << number for number, call in enumerate(ordered) if call.ended != inf)
    tried: set[tuple[int, S]] = set()
    ahead = [(0, start)]
    while ahead:
        done, state = ahead.pop()
        if done & must == must:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        open_ = [number for number in range(len(ordered)) if not done >> number & 1]
        first_end = min(ordered[number].ended for number in open_)
        for number in open_:
            call = ordered[number]
            if call.began > first_end:
                break
            after = step(state, call.asked, call.result, call.ended != inf)
            if after is not None:
                ahead.append((done | 1 << number, after))
    return False
