"""Effects that need approval: requested once and sent once, with exactly the approved bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import standfast
from standfast.clock import ManualClock
from standfast.errors import ApprovalRequired

SENT: list[tuple[str, str]] = []


@standfast.effect("shop.refund", by=("order",), approve=True)
def refund(order: str, reason: str) -> str:
    SENT.append((order, reason))
    return f"refunded {order}"


refund_carelessly = refund.with_options(approve=False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sf(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    SENT.clear()
    with standfast.open(engine_url, data_dir=tmp_path / "data", agent="agent:7", clock=clock) as store:
        yield store


def call(sf: standfast.Standfast, reason: str = "broken", *, key: str = "night") -> str:
    with sf.session(key):
        return refund(order="1042", reason=reason)


def asked(sf: standfast.Standfast, reason: str = "broken") -> str:
    with pytest.raises(ApprovalRequired) as caught:
        call(sf, reason)
    return caught.value.approval_id


def test_the_first_call_asks_and_the_session_waits(sf: standfast.Standfast) -> None:
    id = asked(sf)
    assert SENT == []
    question = sf.approvals.pose(id)
    assert question.exact
    assert question.intent == '{"order":"1042","reason":"broken"}'
    assert (question.session_key, question.effect_state) == ("night", "planned")
    (row,) = sf.rows("SELECT state FROM session")
    assert row["state"] == "waiting"


def test_a_call_after_the_approval_acts_once(sf: standfast.Standfast) -> None:
    id = asked(sf)
    assert asked(sf) == id
    sf.approvals.grant(id, approver="ada")
    assert call(sf) == call(sf) == "refunded 1042"
    assert SENT == [("1042", "broken")]
    used = sf.approvals.get(id)
    (row,) = sf.rows("SELECT id, approval_id FROM effect")
    assert (used.state, used.attempt, used.effect_id) == ("consumed", 1, row["id"])
    assert row["approval_id"] == id


def test_an_llm_that_words_it_differently_needs_another_approval(sf: standfast.Standfast) -> None:
    first = asked(sf, "broken")
    sf.approvals.grant(first, approver="ada")
    second = asked(sf, "broken, and they were rude")
    assert second != first
    assert sf.approvals.get(first).state == "expired"
    assert sf.approvals.pose(second).intent == '{"order":"1042","reason":"broken, and they were rude"}'
    sf.approvals.grant(second, approver="ada")
    assert call(sf, "broken, and they were rude") == "refunded 1042"
    assert SENT == [("1042", "broken, and they were rude")]


def test_after_a_no_nothing_is_sent(sf: standfast.Standfast) -> None:
    sf.approvals.deny(asked(sf), approver="ada", rationale="no")
    with pytest.raises(ApprovalRequired, match="denied by ada") as caught:
        call(sf)
    assert caught.value.code == "approval_denied"
    assert SENT == []


def test_an_approval_that_came_too_late_is_requested_again(sf: standfast.Standfast, clock: ManualClock) -> None:
    id = asked(sf)
    sf.approvals.grant(id, approver="ada")
    clock.advance("25h")
    assert asked(sf) != id
    assert SENT == []


def test_code_that_no_longer_asks_does_not_get_around_it(sf: standfast.Standfast) -> None:
    asked(sf)
    with sf.session("night"), pytest.raises(ApprovalRequired):
        refund_carelessly(order="1042", reason="broken")
    assert SENT == []


def test_an_effect_that_was_planned_explicitly_needs_its_approval(sf: standfast.Standfast) -> None:
    """With plan, request and dispatch, a call without `approve` still needs the approval."""
    planned = sf.effects.plan("deploy", {"to": "production"}, key="deploy:1")
    made = sf.approvals.request("deploy:1", why="release day")
    with pytest.raises(ApprovalRequired, match=made.id):
        sf.effects.begin("deploy", {"to": "production"}, key="deploy:1")
    with pytest.raises(ApprovalRequired, match=made.id):
        sf.effects.dispatch(planned.id)
    sf.approvals.grant(made.id, approver="ada")
    assert sf.effects.dispatch(planned.id).state == "dispatched"
    assert sf.approvals.get(made.id).state == "consumed"


def test_a_second_effect_of_the_same_kind_needs_its_own_approval(sf: standfast.Standfast) -> None:
    sf.approvals.grant(asked(sf), approver="ada")
    call(sf)
    with sf.session("night") as s:
        refund(order="1042", reason="broken")
        with pytest.raises(ApprovalRequired):
            s.effect(refund.with_options(again=True), order="1042", reason="broken")
    assert len(SENT) == 1
