"""`settle`: a probe's negative answer counts only this long after the last attempt could send. On both engines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import SECOND_US, ManualClock
from standfast_prove.scenes import elsewhere, orphan


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as store:
        yield store


class Late:
    """An outside system that shows a request only some time after it was sent."""

    def __init__(self, clock: ManualClock, after_s: int) -> None:
        self.clock = clock
        self.arrives_us = clock.now_us() + after_s * SECOND_US
        self.asked: list[int] = []
        self.sent = 0

    def probe(self, call: standfast.Call) -> Any:
        self.asked.append(self.clock.now_us())
        return standfast.Applied("late") if self.clock.now_us() >= self.arrives_us else standfast.NotApplied()

    def send(self, call: standfast.Call) -> str:
        self.sent += 1
        return "sent"


def killed(sf: standfast.Standfast) -> None:
    sf.effects.begin("pay", key="k")
    orphan(sf, "k")


def test_a_request_that_arrives_late_is_found_because_the_call_waits(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    """000-22: the program restarts 2 s after the kill. The outside system shows the request 4 s after the kill."""
    killed(timed)
    world = Late(clock, after_s=4)
    clock.advance("2s")
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=world.send, probe=world.probe) == "late"
    assert world.sent == 0
    assert len(world.asked) == 2
    assert world.asked[1] - world.asked[0] == 10 * SECOND_US, "it may have sent just before it was found dead"


def test_a_function_that_worked_before_it_sent_and_was_killed_is_not_sent_again(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    """000-22: the kill comes 30 seconds after the dispatch, the request arrives 4 seconds after the kill."""
    killed(timed)
    world = Late(clock, after_s=34)
    clock.advance("30s")
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=world.send, probe=world.probe) == "late"
    assert world.sent == 0


def test_a_request_that_timed_out_may_arrive_after_its_error(timed: standfast.Standfast, clock: ManualClock) -> None:
    """000-22: the client gives up after 30 seconds; the outside system finishes 4 seconds later."""
    world = Late(clock, after_s=34)

    def slow(call: standfast.Call) -> None:
        clock.advance("30s")
        raise TimeoutError("no answer after 30 s")

    with timed.session("a") as s:
        with pytest.raises(TimeoutError):
            s.effect("pay", key="k", do=slow, probe=world.probe)
        assert s.effect("pay", key="k", do=world.send, probe=world.probe) == "late"
    assert world.sent == 0


def test_an_effect_that_is_absent_after_the_settle_time_is_sent(timed: standfast.Standfast, clock: ManualClock) -> None:
    killed(timed)
    world = Late(clock, after_s=10_000)
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=world.send, probe=world.probe) == "sent"
    assert (world.sent, timed.effects.get("k").attempt) == (1, 2)
    assert len(world.asked) == 2


def test_after_the_lease_and_the_settle_time_one_question_is_enough(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    killed(timed)
    world = Late(clock, after_s=10_000)
    clock.advance("70s")
    with timed.session("a") as s:
        s.effect("pay", key="k", do=world.send, probe=world.probe)
    assert len(world.asked) == 1


@pytest.mark.parametrize("settle", ["30s", 30, 30.0, timedelta(seconds=30)])
def test_settle_is_a_duration_as_everywhere(timed: standfast.Standfast, clock: ManualClock, settle: Any) -> None:
    killed(timed)
    world = Late(clock, after_s=25)
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=world.send, probe=world.probe, settle=settle) == "late"
    assert world.sent == 0


def test_settle_is_declared_beside_the_function_or_set_with_options(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    world = Late(clock, after_s=10_000)
    asked: list[int] = []

    @standfast.effect("pay", by=(), settle="1m")
    def pay() -> str:
        world.sent += 1
        return "sent"

    @pay.probe
    def look() -> standfast.NotApplied:
        asked.append(clock.now_us())
        return standfast.NotApplied()

    given: dict[str, Any]
    for given, waited_us in (({}, 60 * SECOND_US), ({"settle": 0}, 0)):
        begun = timed.effects.begin("pay", {}, by=(), key=f"k{waited_us}")
        orphan(timed, begun.id)
        asked.clear()
        with timed.session("a") as s:
            s.effect(pay.with_options(**given), key=f"k{waited_us}")
        assert asked[-1] - asked[0] == waited_us


@pytest.mark.parametrize("settle", ["soon", -1, True, object()])
def test_an_invalid_settle_time_is_refused_before_anything_is_recorded(sf: standfast.Standfast, settle: Any) -> None:
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput):
        s.effect("pay", do=lambda call: 1, settle=settle)
    with pytest.raises(standfast.InvalidInput):
        standfast.effect("pay", by=standfast.ALL, settle=settle)
    assert sf.effects.list() == []


def test_not_applied_raised_in_the_function_counts_at_once(timed: standfast.Standfast, clock: ManualClock) -> None:
    def no(call: standfast.Call) -> None:
        raise standfast.NotApplied("no route")

    before_us = clock.now_us()
    with timed.session("a") as s:
        with pytest.raises(standfast.NotApplied):
            s.effect("pay", key="k", do=no)
        assert s.effect("pay", key="k", do=lambda call: "sent") == "sent"
    assert clock.now_us() == before_us


def test_applied_counts_at_once(timed: standfast.Standfast, clock: ManualClock) -> None:
    killed(timed)
    before_us = clock.now_us()
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=lambda call: "no", probe=lambda call: standfast.Applied("yes")) == "yes"
    assert clock.now_us() == before_us


def test_a_holder_that_may_be_alive_counts_as_silent_one_lease_after_its_lease(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    """RULES 4: the holder may be suspended on another host, so the settle time alone is not enough."""
    timed.effects.begin("pay", key="k")
    orphan(timed, "k", elsewhere(timed))
    world = Late(clock, after_s=10_000)
    clock.advance("100s")
    with timed.session("a") as s, pytest.raises(standfast.EffectInDoubt, match="may be asleep"):
        s.effect("pay", key="k", do=world.send, probe=world.probe)
    clock.advance("21s")
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=world.send, probe=world.probe) == "sent"


def test_a_wall_clock_that_was_set_back_makes_the_call_wait_no_longer_than_settle(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    killed(timed)
    clock.jump("-3h")
    before_us = clock.mono_us()
    with timed.session("a") as s:
        assert s.effect("pay", key="k", do=lambda call: "sent", probe=lambda call: standfast.NotApplied()) == "sent"
    assert clock.mono_us() - before_us == 10 * SECOND_US
