"""Late endings: each method refuses a holder whose lease ended long ago, and changes nothing.

The tests call every method that ends, renews or gives back a hold. They pass the first hold after a second one was
taken, by another actor or by the same actor with a newer fencing token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from tests.holds import HOLDS
from tests.rows import snapshot
from tests.walks import Names, opened

ENDINGS = [(kind, ending) for kind, hold in HOLDS.items() for ending in hold.ends]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ann(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with opened(engine_url, tmp_path, Names(actor="ann"), clock=clock) as sf:
        yield sf


@pytest.fixture
def bob(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with opened(engine_url, tmp_path, Names(actor="bob"), clock=clock) as sf:
        yield sf


def take_over(sf: standfast.Standfast, kind: str, id: str, clock: ManualClock) -> object:
    """Take the hold after the lease of its holder has ended."""
    clock.advance("16m")
    HOLDS[kind].free(sf)
    clock.advance(1)
    held = HOLDS[kind].take(sf, id)
    assert held is not None
    return held


@pytest.mark.parametrize(("kind", "ending"), ENDINGS)
def test_a_late_holder_cannot_end_what_another_has(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock, kind: str, ending: str
) -> None:
    """002-9: the second holder has the lease when the first one returns with its old fencing token."""
    id = HOLDS[kind].make(ann)
    first = HOLDS[kind].take(ann, id)
    take_over(bob, kind, id, clock)
    before = snapshot(ann)
    with pytest.raises(standfast.LeaseLost):
        HOLDS[kind].ends[ending](ann, first)
    assert snapshot(ann) == before


@pytest.mark.parametrize(("kind", "ending"), ENDINGS)
def test_a_holder_cannot_end_its_newer_hold_with_its_older_fence(
    ann: standfast.Standfast, bob: standfast.Standfast, clock: ManualClock, kind: str, ending: str
) -> None:
    """002-9: the holder is the same, so only the fencing token distinguishes the two holds."""
    id = HOLDS[kind].make(ann)
    first = HOLDS[kind].take(ann, id)
    take_over(bob, kind, id, clock)
    take_over(ann, kind, id, clock)
    before = snapshot(ann)
    with pytest.raises(standfast.LeaseLost):
        HOLDS[kind].ends[ending](ann, first)
    assert snapshot(ann) == before


@pytest.mark.parametrize("kind", HOLDS)
def test_what_one_holder_has_another_is_refused_and_the_row_stays(
    ann: standfast.Standfast, bob: standfast.Standfast, kind: str
) -> None:
    """002-9: a refusal writes nothing."""
    id = HOLDS[kind].make(ann)
    HOLDS[kind].take(ann, id)
    before = snapshot(ann)
    refused = (standfast.InProgress, standfast.IllegalTransition) if kind == "run" else standfast.InProgress
    with pytest.raises(refused):
        HOLDS[kind].take(bob, id)
    assert snapshot(ann) == before
