"""Late results: after a takeover, the old attempt changes no row, however it ends. On both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import standfast
from standfast.core import leases
from standfast.db.contract import Row
from standfast.ledger.effects import one_at_a_time, transitions
from standfast_prove.scenes import orphan, outside, prune, told


def row_of(sf: standfast.Standfast, key: str = "k") -> Row:
    return sf._store.read(lambda tx: tx.one(transitions.SQL.by_key, scope=sf.scope, key=key))


def taken_over(sf: standfast.Standfast) -> Row:
    """Attempt 1 was lost and attempt 2 is in flight. Returns the row that attempt 1 still has."""
    sf.effects.begin("pay", key="k", idempotent=True)
    first = row_of(sf)
    orphan(sf, "k")
    sf.effects.begin("pay", key="k", idempotent=True)
    assert row_of(sf)["attempt"] == 2
    return first


ENDINGS: dict[str, Callable[[Any, Row], Any]] = {
    "done": lambda tx, first: transitions.acknowledge(tx, first, '"late"'),
    "fail": lambda tx, first: transitions.fail(tx, first, "nothing was sent"),
    "give up": lambda tx, first: transitions.give_up(tx, first, "no answer"),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
def test_every_ending_of_an_old_attempt_leaves_the_new_one_as_it_is(sf: standfast.Standfast, ending: str) -> None:
    """000-38, test-gaps 2 and 3: the attempt is the fence of every ending."""
    first = taken_over(sf)
    before = row_of(sf)
    (answer,) = sf._store.write(lambda tx: [ENDINGS[ending](tx, first)])
    assert answer is None or isinstance(answer, standfast.LeaseLost)
    assert row_of(sf) == before


@pytest.mark.parametrize("ending", ["done", "fail"])
def test_an_old_attempt_that_is_ended_by_hand_is_refused(sf: standfast.Standfast, ending: str) -> None:
    taken_over(sf)
    before = row_of(sf)
    say = {"done": lambda: sf.effects.done("k", 1, attempt=1), "fail": lambda: sf.effects.fail("k", "no", attempt=1)}
    with pytest.raises(standfast.LeaseLost, match="too late"):
        say[ending]()
    assert row_of(sf) == before


def test_the_renewal_of_an_old_holder_does_not_renew_the_new_one(sf: standfast.Standfast) -> None:
    taken_over(sf)
    orphan(sf, "k", "p:another")
    before = row_of(sf)
    leases.renewer(sf._store).renew()
    assert row_of(sf) == before


@pytest.mark.parametrize("error", [standfast.NotApplied("no route"), ConnectionError("no answer")], ids=repr)
def test_a_function_that_returns_late_with_an_error_changes_nothing(sf: standfast.Standfast, error: Exception) -> None:
    """test-gaps 2, 3: attempt 1 sleeps, attempt 2 is dispatched, attempt 1 gets LeaseLost. Attempt 2 stays
    dispatched.
    """

    def asleep(call: standfast.Call) -> None:
        one_at_a_time._under_way.clear()  # another process sleeps
        orphan(sf, "k")
        outside(lambda: sf.effects.begin("pay", key="k", idempotent=True))
        raise error

    with sf.session("a") as s, pytest.raises(standfast.LeaseLost, match=r"attempt 1 is .* too late") as lost:
        s.effect("pay", key="k", do=asleep)
    assert lost.value.__cause__ is error
    found = row_of(sf)
    assert (found["state"], found["attempt"], found["gave_up_us"]) == ("dispatched", 2, None)
    assert found["holder"] == sf._store.caller.holder
    assert told(sf, "k")[-1] == "late"


def test_ctrl_c_in_a_function_that_was_taken_over_stays_ctrl_c(sf: standfast.Standfast) -> None:
    def asleep(call: standfast.Call) -> None:
        one_at_a_time._under_way.clear()
        orphan(sf, "k")
        outside(lambda: sf.effects.begin("pay", key="k", idempotent=True))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, sf.session("a") as s:
        s.effect("pay", key="k", do=asleep)
    assert any("too late" in note for note in caught.value.__notes__)
    assert row_of(sf)["gave_up_us"] is None


# -- dispatch by hand --------------------------------------------------------------------------------------


def dispatched(sf: standfast.Standfast) -> None:
    sf.effects.begin("pay", key="k")


def in_doubt(sf: standfast.Standfast) -> None:
    dispatched(sf)
    orphan(sf, "k")


def acknowledged(sf: standfast.Standfast) -> None:
    dispatched(sf)
    sf.effects.done("k", 1)


def compensated(sf: standfast.Standfast) -> None:
    acknowledged(sf)
    sf.effects.compensate("k", lambda result: None)


def superseded(sf: standfast.Standfast) -> None:
    sf.effects.plan("pay", key="k")
    sf.effects.supersede("k")


@pytest.mark.parametrize("state", [dispatched, in_doubt, acknowledged, compensated, superseded])
def test_dispatch_accepts_only_planned_or_failed_effects(
    sf: standfast.Standfast, state: Callable[[standfast.Standfast], None]
) -> None:
    """test-gaps 4: a dispatch from any other state would send the effect twice."""
    state(sf)
    before = row_of(sf)
    with pytest.raises(standfast.IllegalTransition, match="only a planned or failed effect can be"):
        sf.effects.dispatch("k")
    assert row_of(sf) == before


def test_what_was_pruned_is_not_dispatched_by_hand(sf: standfast.Standfast) -> None:
    sf.effects.begin("pay", key="k")
    sf.effects.fail("k", "no")
    prune(sf, "k")
    with pytest.raises(standfast.Conflict) as error:
        sf.effects.dispatch("k")
    assert error.value.code == "result_pruned"


@pytest.mark.parametrize("begin", ["begin", "dispatch"])
def test_what_was_begun_by_hand_is_in_progress_for_the_next_call(sf: standfast.Standfast, begin: str) -> None:
    """The process is alive although its call has ended."""
    if begin == "begin":
        sf.effects.begin("pay", key="k", idempotent=True)
    else:
        sf.effects.dispatch(sf.effects.plan("pay", key="k", idempotent=True).id)
    with sf.session("a") as s, pytest.raises(standfast.InProgress):
        s.effect("pay", key="k", do=lambda call: 1, idempotent=True)
    assert row_of(sf)["attempt"] == 1
    assert leases.renewer(sf._store).trusted, "what a process holds is renewed"


# -- whose session it is -------------------------------------------------------------------------------------


def test_a_lost_session_sends_nothing_although_the_process_has_another_one(sf: standfast.Standfast) -> None:
    """test-gaps 5: two sessions of one process have the same fence and the same holder."""
    sent: list[str] = []
    with sf.session("b") as b:
        a = sf.session("a").__enter__()
        sf.sessions.take("a")
        assert (a.fence, b.fence) == (1, 1)
        with pytest.raises(standfast.LeaseLost):
            a.effect("post", do=lambda call: sent.append("a"))
        b.effect("post", do=lambda call: sent.append("b"))
    assert sent == ["b"]
    assert len(sf.effects.list()) == 1


def test_a_key_that_is_given_in_a_fork_is_another_effect(sf: standfast.Standfast) -> None:
    """test-gaps 29: a fork takes over only results of effects without a key."""
    sent: list[str] = []
    with sf.session("a") as s:
        s.effect("post", {"what": 1}, do=lambda call: sent.append("ancestor") or "ancestor")
        s.say("user", "fork here")
    sf.sessions.fork("a", "fork")
    with sf.session("fork") as s:
        assert s.effect("post", {"what": 1}, do=lambda call: sent.append("fork")) == "ancestor"
        assert s.effect("post", {"what": 1}, key="mine", do=lambda call: sent.append("fork") or "fork") == "fork"
    assert sent == ["ancestor", "fork"]
