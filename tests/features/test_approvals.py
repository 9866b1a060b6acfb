"""Approvals: a person approves exactly these bytes, and one effect consumes the approval."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import crash
from standfast.clock import DAY_US, HOUR_US, ManualClock
from standfast.errors import (
    ApprovalRequired,
    Conflict,
    IllegalTransition,
    InvalidInput,
    NotFound,
    StandfastError,
)
from standfast.ledger import approvals
from standfast_prove.planned import dispatch, dispatching, plan, reword, set_state


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sf(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with standfast.open(engine_url, data_dir=tmp_path / "data", agent="agent:7", clock=clock) as store:
        yield store


def asked(sf: standfast.Standfast, effect: str, **more: Any) -> str:
    """Request an approval as an effect does. Returns its id."""
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(sf, effect, **more)
    return caught.value.approval_id


def events(sf: standfast.Standfast) -> list[str]:
    return [event.type for event in sf.journal.tail(limit=1000).events if event.type.startswith("approval.")]


def test_the_first_call_records_the_request_and_names_the_command_for_a_person(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    with pytest.raises(ApprovalRequired) as caught:
        dispatch(sf, effect, why="the test names it", gate="git push*")
    error = caught.value
    (found,) = sf.approvals.list()
    assert error.code == "approval_required"
    assert error.exit_code == 5
    assert (error.approval_id, error.fresh) == (found.id, True)
    assert found.id in str(error)
    assert f"standfast approve {found.id[-6:]}" in error.hint
    assert found == approvals.Approval(
        id=found.id,
        scope=sf.scope,
        session_id=None,
        effect_id=effect,
        gate="git push*",
        tool="github.open_pr",
        intent_hash=found.intent_hash,
        question_hash=found.question_hash,
        state="requested",
        requester="agent:7",
        why="the test names it",
        approver=None,
        rationale=None,
        method=None,
        requested_us=ManualClock().now_us(),
        expires_us=ManualClock().now_us() + DAY_US,
        answered_us=None,
        consumed_us=None,
        attempt=None,
        attempts=1,
        attempts_used=0,
    )


def test_repeated_calls_add_no_second_request(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    first = asked(sf, effect)
    with pytest.raises(ApprovalRequired, match="requested at 2026-01-01") as caught:
        dispatch(sf, effect)
    assert (caught.value.approval_id, caught.value.fresh) == (first, False)
    assert sf.approvals.request(effect).id == first
    assert events(sf) == ["approval.requested"]


def test_one_dispatch_consumes_an_approval(sf: standfast.Standfast, clock: ManualClock) -> None:
    effect = plan(sf)
    id = asked(sf, effect)
    granted = sf.approvals.grant(id[-6:], approver="ada", rationale="read it")
    assert (granted.state, granted.approver, granted.rationale) == ("granted", "ada", "read it")
    clock.advance("1h")
    assert dispatch(sf, effect) == 1
    used = sf.approvals.get(id)
    assert (used.state, used.attempt, used.attempts_used, used.consumed_us) == ("consumed", 1, 1, clock.now_us())
    (row,) = sf.rows("SELECT approval_id FROM effect")
    assert row["approval_id"] == id
    assert asked(sf, effect) != id
    assert sf.approvals.get(id) == used
    assert events(sf) == ["approval.requested", "approval.granted", "approval.consumed", "approval.requested"]


def test_an_approval_belongs_to_one_effect(sf: standfast.Standfast) -> None:
    one, other = plan(sf, {"title": "the same"}), plan(sf, {"title": "the same"})
    sf.approvals.grant(asked(sf, one), approver="ada")
    asked(sf, other)
    assert dispatch(sf, one) == 1


def test_other_arguments_need_another_approval_of_the_effect(sf: standfast.Standfast) -> None:
    """The approval covers the whole intent, including text written by the LLM."""
    effect = plan(sf, {"body": "fixes the parser"})
    first = asked(sf, effect)
    sf.approvals.grant(first, approver="ada")
    reword(sf, effect, {"body": "fixes the parser and deletes the tests"})
    second = asked(sf, effect)
    assert second != first
    assert sf.approvals.get(first).state == "expired"
    last = [event for event in sf.journal.about(first) if event.type == "approval.expired"]
    assert "changed after it was asked for" in (last[0].summary or "")
    with pytest.raises(IllegalTransition):
        sf.approvals.grant(first, approver="ada")
    sf.approvals.grant(second, approver="ada")
    assert dispatch(sf, effect) == 1


def test_an_approval_that_was_used_does_not_cover_other_arguments(sf: standfast.Standfast) -> None:
    effect = plan(sf, {"body": "one"})
    sf.approvals.grant(asked(sf, effect), approver="ada")
    assert dispatch(sf, effect) == 1
    reword(sf, effect, {"body": "two"})
    sf.approvals.deny(asked(sf, effect), approver="ada")
    reword(sf, effect, {"body": "one"})
    asked(sf, effect)


def test_a_request_is_withdrawn_when_the_arguments_change(sf: standfast.Standfast) -> None:
    effect = plan(sf, {"body": "one"})
    first = asked(sf, effect)
    reword(sf, effect, {"body": "two"})
    asked(sf, effect)
    with pytest.raises(IllegalTransition, match="expired"):
        sf.approvals.grant(first, approver="ada")


def test_a_denial_is_returned_with_its_reason_until_it_expires(sf: standfast.Standfast, clock: ManualClock) -> None:
    effect = plan(sf)
    id = asked(sf, effect)
    sf.approvals.deny(id, approver="ada", rationale="not on a Friday")
    with pytest.raises(ApprovalRequired, match=r"denied by ada at .*: not on a Friday") as caught:
        dispatch(sf, effect)
    assert (caught.value.code, caught.value.approval_id, caught.value.fresh) == ("approval_denied", id, False)
    assert sf.approvals.request(effect).state == "denied"
    clock.advance("24h")
    assert asked(sf, effect) != id


def test_after_a_no_one_may_ask_once_more_on_purpose(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    no = asked(sf, effect)
    sf.approvals.deny(no, approver="ada")
    again = sf.approvals.request(effect, again=True, why="it is Monday")
    assert (again.state, again.id != no) == ("requested", True)
    assert sf.approvals.request(effect, again=True).id == again.id
    sf.approvals.grant(again.id, approver="ada")
    assert dispatch(sf, effect) == 1


def test_the_first_answer_wins_and_the_second_names_it(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf))
    sf.approvals.deny(id, approver="ada")
    with pytest.raises(IllegalTransition, match=r"already denied by ada at 2026-01-01T.*the first answer wins"):
        sf.approvals.grant(id, approver="bob")
    with pytest.raises(IllegalTransition, match="already denied by ada"):
        sf.approvals.deny(id, approver="ada")
    assert sf.approvals.get(id).approver == "ada"


def test_of_many_answers_at_once_one_counts(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf))
    won: list[str] = []
    lost: list[IllegalTransition] = []

    def answer(name: str) -> None:
        verb = sf.approvals.grant if int(name[1:]) % 2 else sf.approvals.deny
        try:
            won.append(verb(id, approver=name).approver or "")
        except IllegalTransition as error:
            lost.append(error)

    threads = [threading.Thread(target=answer, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert len(lost) == 7
    assert all(f"by {won[0]} at" in error.message for error in lost)
    assert sf.approvals.get(id).approver == won[0]
    assert len(events(sf)) == 2


def test_concurrent_calls_add_one_request_and_one_of_them_consumes_the_approval(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    outcomes: list[int | StandfastError] = []

    def call() -> None:
        try:
            outcomes.append(dispatch(sf, effect))
        except StandfastError as error:
            outcomes.append(error)

    def together() -> None:
        outcomes.clear()
        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    together()
    assert sum(isinstance(error, ApprovalRequired) and error.fresh for error in outcomes) == 1
    (found,) = sf.approvals.list()
    sf.approvals.grant(found.id, approver="ada")
    together()
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [1]
    assert sum(isinstance(error, ApprovalRequired) for error in outcomes) == 7
    assert events(sf)[:3] == ["approval.requested", "approval.granted", "approval.consumed"]
    assert events(sf).count("approval.consumed") == 1


def test_an_expired_request_cannot_be_answered_and_is_requested_again(
    sf: standfast.Standfast, clock: ManualClock
) -> None:
    effect = plan(sf)
    id = asked(sf, effect, for_us=HOUR_US)
    clock.advance("1h")
    assert sf.approvals.get(id).state == "expired"
    assert sf.approvals.list(state="requested") == []
    assert [found.id for found in sf.approvals.list(state="expired")] == [id]
    assert events(sf) == ["approval.requested"], "reading writes nothing"
    with pytest.raises(IllegalTransition, match=r"expired at 2026-01-01T01:00") as caught:
        sf.approvals.grant(id, approver="ada")
    assert caught.value.code == "expired"
    assert events(sf) == ["approval.requested", "approval.expired"]
    assert asked(sf, effect) != id


def test_an_approval_that_expired_before_its_use_does_not_count(sf: standfast.Standfast, clock: ManualClock) -> None:
    effect = plan(sf)
    id = asked(sf, effect)
    sf.approvals.grant(id, approver="ada")
    clock.advance("24h")
    assert sf.approvals.get(id).state == "expired"
    assert asked(sf, effect) != id
    assert events(sf)[-2:] == ["approval.expired", "approval.requested"]


def test_a_dispatch_that_is_rolled_back_consumes_nothing(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    id = asked(sf, effect)
    sf.approvals.grant(id, approver="ada")

    def fails(tx: Any) -> None:
        dispatching(effect)(tx)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        sf._store.write(fails)
    assert sf.approvals.get(id).state == "granted"
    assert dispatch(sf, effect) == 1


def test_an_effect_that_was_planned_with_approve_needs_approval_in_every_call(sf: standfast.Standfast) -> None:
    never, once = plan(sf), plan(sf)
    sf.approvals.request(once)
    assert sf._store.read(lambda tx: (approvals.asked(tx, never), approvals.asked(tx, once))) == (False, True)


def test_a_planned_effect_is_requested_by_id_by_the_end_of_its_id_or_by_key(sf: standfast.Standfast) -> None:
    effect = plan(sf, key="deploy:42")
    made = sf.approvals.request("deploy:42", why="release day", for_="1h")
    assert made.receipt is not None
    assert made.effect_id == effect
    again = sf.approvals.request(effect[-8:])
    assert (again.id, again.receipt) == (made.id, None)
    assert sf.journal.verify(str(made.receipt)).type == "approval.requested"


@pytest.mark.parametrize("state", ["dispatched", "acknowledged", "compensated", "superseded"])
def test_an_effect_that_needs_no_approval_any_more_is_refused(sf: standfast.Standfast, state: str) -> None:
    effect = plan(sf)
    set_state(sf, effect, state)
    with pytest.raises(IllegalTransition, match=f"is {state}: there is nothing to ask for"):
        sf.approvals.request(effect)


def test_bad_input_is_refused_by_name_and_changes_nothing(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    id = asked(sf, effect)
    refused: list[tuple[type[StandfastError], Any]] = [
        (NotFound, lambda: sf.approvals.get("apr_01m7ge4f73e2trv2wvj3vzy3c4")),
        (NotFound, lambda: sf.approvals.grant("zzzzzz", approver="ada")),
        (NotFound, lambda: sf.approvals.deny("what?", approver="ada")),
        (NotFound, lambda: sf.approvals.get(effect)),
        (NotFound, lambda: sf.approvals.request("no such key")),
        (NotFound, lambda: sf.approvals.wait("zzzzzz")),
        (NotFound, lambda: sf.approvals.question("zzzzzz")),
        (InvalidInput, lambda: sf.approvals.grant(id, approver="")),
        (InvalidInput, lambda: sf.approvals.grant(id, approver="a\nb")),
        (InvalidInput, lambda: sf.approvals.grant(id, approver="ada", rationale="a\0b")),
        (InvalidInput, lambda: sf.approvals.deny(id, approver="ada", rationale="\ud800")),
        (InvalidInput, lambda: sf.approvals.deny(id, approver="ada", rationale="x" * 4001)),
        (InvalidInput, lambda: sf.approvals.request(effect, for_=0)),
        (InvalidInput, lambda: sf.approvals.request(effect, for_="31d")),
        (InvalidInput, lambda: sf.approvals.list(state="perhaps")),
    ]
    for kind, call in refused:
        with pytest.raises(kind):
            call()
    assert sf.approvals.get(id).state == "requested"
    assert events(sf) == ["approval.requested"]


def test_the_newest_are_listed_first_by_state_session_and_scope(sf: standfast.Standfast) -> None:
    from standfast.db.sql import statement

    def session(tx: Any) -> None:
        tx.run(
            statement(
                "INSERT INTO session (id, scope, key, state, openings, fence, created_us, updated_us)"
                " VALUES ('ses_x', :scope, 'fix-42', 'waiting', 1, 1, 0, 0)"
            ),
            scope=sf.scope,
        )

    sf._store.write(session)
    ids = [asked(sf, plan(sf, session_id="ses_x" if n == 1 else None)) for n in range(4)]
    elsewhere = asked(sf, plan(sf, scope="github.com/a/other"))
    sf.approvals.grant(ids[0], approver="ada")

    def listed(**filters: Any) -> list[str]:
        return [found.id for found in sf.approvals.list(**filters)]

    assert listed() == ids[::-1]
    assert listed(limit=2) == [ids[3], ids[2]]
    assert listed(limit=2, after=ids[2]) == [ids[1], ids[0]]
    assert listed(state="requested") == [ids[3], ids[2], ids[1]]
    assert listed(state="requested", after=ids[3], limit=1) == [ids[2]]
    assert listed(state="granted") == [ids[0]]
    assert listed(session="fix-42") == listed(session="ses_x") == [ids[1]]
    assert listed(state="requested", session="fix-42") == [ids[1]]
    assert listed(scope="github.com/a/other") == [elsewhere]
    assert listed(everywhere=True) == [elsewhere, *ids[::-1]]
    assert listed(everywhere=True, state="requested")[0] == elsewhere


def test_what_waits_is_found_by_its_index_however_long_the_history_is(tmp_path: Path) -> None:
    asked = {"now_us": 1, "after": "apr_z", "everywhere": 0, "scope": "", "session": "", "limit": 50, "here": ""}
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path / "data") as sf:
        plan = [row["detail"] for row in sf.rows(f"EXPLAIN QUERY PLAN {approvals.SQL.waiting.sqlite}", asked)]
    assert "approval_waiting" in plan[0], plan


def test_the_answer_is_recorded_in_the_scope_of_the_effect(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf, scope="github.com/a/other"))
    sf.approvals.grant(id, approver="ada")
    assert {event.scope for event in sf.journal.about(id)} == {"github.com/a/other"}


# -- waiting ---------------------------------------------------------------------------------------


def test_waiting_ends_with_the_answer(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf))
    answered: list[approvals.Approval] = []
    waiting = threading.Thread(target=lambda: answered.append(sf.approvals.wait(id[-6:], timeout=30)))
    waiting.start()
    sf.approvals.deny(id, approver="ada", rationale="no")
    waiting.join()
    assert [(found.state, found.rationale) for found in answered] == [("denied", "no")]


def test_a_wait_that_times_out_names_the_missing_approval(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf))
    with pytest.raises(ApprovalRequired, match=id) as caught:
        sf.approvals.wait(id, timeout=0.01)
    assert caught.value.approval_id == id


def test_waiting_ends_when_the_request_expires(sf: standfast.Standfast, clock: ManualClock) -> None:
    id = asked(sf, plan(sf))
    clock.advance("24h")
    assert sf.approvals.wait(id).state == "expired"


def test_waiting_is_refused_inside_a_transaction(sf: standfast.Standfast) -> None:
    id = asked(sf, plan(sf))
    with sf.transaction() as tx, pytest.raises(InvalidInput, match="inside a transaction"):
        tx.approvals.wait(id)


def test_a_wait_continues_after_the_waiting_process_died(engine_url: str, tmp_path: Path) -> None:
    """A wait is only a row, so another process continues waiting."""
    code = (
        "import sys, standfast\n"
        "with standfast.open(sys.argv[1], data_dir=sys.argv[2]) as sf:\n"
        "    print('waiting', flush=True)\n"
        "    print(sf.approvals.wait(sys.argv[3]).state)\n"
    )
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        id = asked(sf, plan(sf))

        def wait() -> subprocess.Popen[str]:
            command = [sys.executable, "-c", code, engine_url, str(tmp_path / "data"), id]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            return process

        first = wait()
        first.kill()
        first.communicate()
        second = wait()
        sf.approvals.grant(id, approver="ada")
        assert second.communicate(timeout=60)[0] == "granted\n"


# -- the question ------------------------------------------------------------------------------------


def test_the_question_holds_the_exact_bytes(sf: standfast.Standfast) -> None:
    effect = plan(sf, {"body": "b", "a": 1}, key="pr:1", context={"cwd": "/srv/app"})
    question = sf.approvals.pose(asked(sf, effect))
    assert question.intent == '{"a":1,"body":"b"}'
    assert question.exact
    assert (question.effect_key, question.effect_state, question.directory) == ("pr:1", "planned", "/srv/app")
    assert sf.approvals.question(question.approval.id) == question


def test_a_question_about_changed_bytes_is_not_shown(sf: standfast.Standfast) -> None:
    effect = plan(sf, {"body": "harmless"})
    id = asked(sf, effect)
    reword(sf, effect, {"body": "rm -rf /"})
    with pytest.raises(Conflict, match="was changed after") as caught:
        sf.approvals.pose(id)
    assert caught.value.code == "intent_changed"
    question = sf.approvals.question(id)
    assert (question.exact, question.intent) == (True, '{"body":"harmless"}')
    assert question.current_hash != question.approval.intent_hash


def test_an_answered_or_expired_question_is_not_shown(sf: standfast.Standfast, clock: ManualClock) -> None:
    answered, over = asked(sf, plan(sf)), asked(sf, plan(sf), for_us=HOUR_US)
    sf.approvals.grant(answered, approver="ada")
    clock.advance("2h")
    for id, word in ((answered, "granted"), (over, "expired")):
        with pytest.raises(IllegalTransition, match=word):
            sf.approvals.pose(id)
    assert events(sf).count("approval.expired") == 1


# -- transactions and crash points -----------------------------------------------------------------


def test_several_answers_in_one_transaction_are_all_stored_or_none(sf: standfast.Standfast) -> None:
    one, other = asked(sf, plan(sf)), asked(sf, plan(sf))
    sf.approvals.deny(other, approver="bob")

    def both() -> None:
        with sf.transaction() as tx:
            tx.approvals.grant(one, approver="ada")
            tx.approvals.grant(other, approver="ada")

    with pytest.raises(IllegalTransition):
        both()
    assert sf.approvals.get(one).state == "requested"
    with sf.transaction() as tx:
        assert tx.approvals.grant(one, approver="ada").state == "granted"
        assert tx.approvals.get(one).state == "granted"
    assert sf.approvals.get(one).state == "granted"


def test_each_window_has_its_crash_point(sf: standfast.Standfast) -> None:
    effect = plan(sf)
    with crash.record() as names:
        made = sf.approvals.request(effect)
        sf.approvals.grant(made.id, approver="ada")
        dispatch(sf, effect)
    passed = [name for name in names if name.startswith("approval.")]
    assert passed == [
        "approval.before_request",
        "approval.after_request",
        "approval.before_answer",
        "approval.before_consume",
    ]
