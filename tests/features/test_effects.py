"""Effects: done once, never sent blindly twice, and an unknown outcome is reported. On both engines."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

import standfast
from standfast import crash, serial
from standfast.clock import ManualClock
from standfast.core import leases
from standfast.ledger.effects import models, one_at_a_time, resource, transitions
from standfast_prove.scenes import Github, PullRequest, elsewhere, gone, only, orphan, outside, prune, told
from tests.others import Other


class Boom(Exception):
    """An exception of foreign code."""


def boom(call: standfast.Call) -> None:
    raise Boom("no answer")


@pytest.fixture
def github(tmp_path: Path) -> Github:
    return Github(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Any:
    """A store whose time the test moves."""
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as store:
        yield store


def declared(github: Github, **options: Any) -> Any:
    """The example of the documentation, with a remote of the test."""

    @standfast.effect("github.open_pr", by=("repo", "branch"), **options)
    def open_pr(repo: str, branch: str, title: str, body: str = "") -> PullRequest:
        return github.post(f"{repo} {branch} {title}")

    return open_pr


# -- done once -----------------------------------------------------------------------------------------


def test_an_effect_is_done_once_and_answered_from_the_record_ever_after(
    sf: standfast.Standfast, github: Github
) -> None:
    """001-34: what was done is not done again by the next process."""
    open_pr = declared(github)
    with sf.session("fix-42"):
        first = open_pr(repo="a/b", branch="fix-42", title="fix")
    with sf.session("fix-42"):
        second = open_pr(repo="a/b", branch="fix-42", title="fix")
    assert first == second == PullRequest(1, "https://example.org/pull/1")
    assert github.lines == ["a/b fix-42 fix"]
    assert told(sf, only(sf).id) == ["planned", "dispatched", "acknowledged"]


def test_the_intent_is_stored_before_the_function_runs_and_the_result_before_it_is_returned(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    """002-6: planned and dispatched before, acknowledged after."""
    seen = []

    def act(call: standfast.Call) -> str:
        with standfast.open(engine_url, data_dir=tmp_path / "data") as other:
            seen.append((only(other).state, only(other).intent, told(other, only(other).id)))
        return "done"

    with sf.session("a") as s:
        assert s.effect("deploy", {"to": "prod"}, do=act) == "done"
        assert (only(sf).state, only(sf).result) == ("acknowledged", "done")
    assert seen == [("dispatched", {"to": "prod"}, ["planned", "dispatched"])]


def test_an_effect_costs_two_commits_and_a_replay_none(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, crash.record() as first:
        s.effect("deploy", {"to": "prod"}, do=lambda call: 1)
    with sf.session("a") as s, crash.record() as replay:
        s.effect("deploy", {"to": "prod"}, do=lambda call: 1)
    assert first.count("commit.before_commit") == 2
    assert first.count("commit.after_commit") == 2
    assert replay.count("commit.before_commit") == 0


def test_the_stored_result_is_returned_also_the_first_time(sf: standfast.Standfast) -> None:
    results = []
    for _ in range(2):
        with sf.session("a") as s:
            results.append(s.effect("t", do=lambda call: {"pair": (1, 2), "path": Path("x/y")}))
    assert results == [{"pair": [1, 2], "path": "x/y"}] * 2


def test_dataclass_and_pydantic_results_are_typed_on_first_run_and_replay(sf: standfast.Standfast) -> None:
    class Release(BaseModel):
        tag: str
        parts: list[int]

    @standfast.effect("release", by=standfast.ALL, returns=Release)
    def release(tag: str):
        return Release(tag=tag, parts=[1, 2])

    @standfast.effect("open", by=standfast.ALL)
    def open_pr(number: int) -> PullRequest:
        return PullRequest(number, "u")

    for _ in range(2):
        with sf.session("a") as s:
            assert release(tag="v1") == Release(tag="v1", parts=[1, 2])
            assert open_pr(number=7) == PullRequest(7, "u")
            form = s.effect("plain", {"n": 1}, do=lambda call: PullRequest(call.intent["n"], "u"), returns=PullRequest)
            assert form == PullRequest(1, "u")


def test_a_result_too_long_for_a_row_is_stored_as_an_artifact(sf: standfast.Standfast) -> None:
    """002-25, 002-32: no huge rows: large values are kept apart from hot rows."""
    long = "x" * (3 * 1024 * 1024)
    for _ in range(2):
        with sf.session("a") as s:
            assert s.effect("fetch", do=lambda call: long) == long
    assert only(sf).artifact_id is not None
    assert only(sf).result is None


def test_plain_is_the_plain_function(github: Github) -> None:
    open_pr = declared(github)
    assert open_pr.plain("a/b", "fix", title="t").number == 1
    assert open_pr.__name__ == "open_pr"

    @standfast.effect("pay", by=standfast.ALL)
    def pay(cents: int, call: standfast.Call) -> str:
        return call.key

    assert pay.plain(3, standfast.Call("mine", 1, None)) == "mine"
    assert pay.plain(3).startswith("sf_")  # a fresh one: nothing is recorded


# -- identity ------------------------------------------------------------------------------------------


def test_an_llm_that_words_the_body_differently_after_a_crash_sends_one_request(
    sf: standfast.Standfast, github: Github
) -> None:
    """The effect's identity does not include the body text. The journal records the difference."""
    open_pr = declared(github)
    with sf.session("fix-42"):
        open_pr(repo="a/b", branch="fix-42", title="Fix the parser", body="One way to say it.")
    with sf.session("fix-42"):
        again = open_pr(repo="a/b", branch="fix-42", title="Parser fix", body="Another way.")
    assert again.number == 1
    assert len(github.lines) == 1
    (replayed,) = [e for e in sf.journal.about(only(sf).id) if e.type == "effect.replayed"]
    assert replayed.data["fields"] == ["body", "title"]


def test_push_fix_push_is_two_pushes(sf: standfast.Standfast, github: Github) -> None:
    """`by` includes the commit, so the two pushes are two effects."""

    @standfast.effect("git.push", by=("branch", "head"))
    def push(branch: str, head: str, message: str) -> int:
        return github.post(f"{branch} {head}").number

    for _ in range(2):  # the second run from the beginning, after a later crash
        with sf.session("fix-42"):
            assert push(branch="fix", head="aaa", message="first") == 1
            assert push(branch="fix", head="bbb", message="second") == 2
    assert github.lines == ["fix aaa", "fix bbb"]


def test_a_repeat_in_one_opening_warns_with_the_next_step(sf: standfast.Standfast, github: Github) -> None:
    open_pr = declared(github)
    with sf.session("a"):
        open_pr(repo="r", branch="b", title="t")
        with pytest.warns(standfast.RepeatedEffect, match="repo, branch.*again=True") as caught:
            open_pr(repo="r", branch="b", title="t")
    assert caught[0].filename == __file__
    assert len(github.lines) == 1


def test_again_numbers_repeats_in_order_and_a_restarted_program_gets_the_same_ones(
    sf: standfast.Standfast, github: Github
) -> None:
    def run(s: Any) -> list[int]:
        return [s.effect("post", {"n": 1}, do=lambda call: github.post("x").number, again=True) for _ in range(3)]

    for _ in range(2):
        with sf.session("a") as s:
            assert run(s) == [1, 2, 3]
    assert len(github.lines) == 3
    assert [effect.n for effect in sf.effects.list()] == [3, 2, 1]


def test_a_failed_number_is_tried_again_as_the_same_number(sf: standfast.Standfast) -> None:
    def refuse(call: standfast.Call) -> None:
        raise standfast.NotApplied("not now")

    with sf.session("a") as s:
        s.effect("post", do=lambda call: 1, again=True)
        with pytest.raises(standfast.NotApplied):
            s.effect("post", do=refuse, again=True)
        assert s.effect("post", do=lambda call: call.attempt, again=True) == 2
    assert [(effect.n, effect.attempt) for effect in sf.effects.list()] == [(2, 2), (1, 1)]


def test_without_by_all_arguments_identify_and_a_parameter_added_later_changes_nothing(
    sf: standfast.Standfast, github: Github
) -> None:
    @standfast.effect("notify", by=standfast.ALL)
    def notify(channel: str, text: str) -> int:
        return github.post(f"{channel} {text}").number

    @standfast.effect("notify", by=standfast.ALL)
    def notify_with_more(channel: str, text: str, colour: str = "red") -> int:
        return github.post(f"{channel} {text} {colour}").number

    with sf.session("a"):
        assert notify(channel="ops", text="hello") == 1
        assert notify(channel="ops", text="bye") == 2
    with sf.session("a"):
        assert notify_with_more("ops", "hello") == 1
        assert notify_with_more("ops", "hello", colour="blue") == 3


def test_two_sessions_do_their_own_and_a_key_is_known_to_both(sf: standfast.Standfast, github: Github) -> None:
    for key in ("a", "b"):
        with sf.session(key) as s:
            s.effect("post", {"n": 1}, do=lambda call: github.post("own").number)
            assert s.effect("tag", {"v": 1}, key="release:1", do=lambda call: github.post("shared").number) == 2
    assert github.lines == ["own", "shared", "own"]


def test_the_same_key_for_something_else_is_refused_with_the_fields_that_differ(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("tag", {"v": 1, "note": "x"}, by="v", key="k", do=lambda call: 1)
        with pytest.raises(standfast.KeyConflict, match="v was 1, is 2") as refused:
            s.effect("tag", {"v": 2, "note": "x"}, by="v", key="k", do=lambda call: 1)
        assert "note" not in str(refused.value)
        with pytest.raises(standfast.KeyConflict, match="used for tag and not for push"):
            s.effect("push", {"v": 1}, key="k", do=lambda call: 1)
    assert len(sf.effects.list()) == 1


def test_a_key_does_not_care_that_by_names_other_fields_now(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("tag", {"v": 1, "note": "x"}, by="v", key="k", do=lambda call: 1)
    with sf.session("a") as s:
        assert s.effect("tag", {"v": 1, "note": "x"}, by=("v", "note"), key="k", do=lambda call: 2) == 1


@pytest.mark.parametrize("key", ["by:mine", "deploy #2", "", "x" * 501, "a\0b", 7])
def test_a_key_that_could_be_ours_or_no_key_at_all_is_refused(sf: standfast.Standfast, key: Any) -> None:
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput):
        s.effect("t", do=lambda call: 1, key=key)
    assert sf.effects.list() == []


def test_the_remote_sees_the_same_hashed_key_for_every_attempt_and_never_the_raw_one(sf: standfast.Standfast) -> None:
    seen = []

    def act(call: standfast.Call) -> int:
        seen.append((call.key, call.attempt, call.session, call.intent))
        if call.attempt == 1:
            raise standfast.NotApplied
        return 1

    with sf.session("a") as s:
        with pytest.raises(standfast.NotApplied):
            s.effect("pay", {"cents": 3}, key="invoice:7", do=act)
        s.effect("pay", {"cents": 3}, key="invoice:7", do=act)
    assert [(attempt, session, intent) for _, attempt, session, intent in seen] == [
        (1, "a", {"cents": 3}),
        (2, "a", {"cents": 3}),
    ]
    keys = {key for key, *_ in seen}
    assert len(keys) == 1
    (key,) = keys
    assert key.startswith("sf_")
    assert len(key) == 35
    assert "invoice" not in key


def test_a_fork_sees_the_effects_from_before_its_cut(sf: standfast.Standfast, github: Github) -> None:
    def post(s: Any, text: str) -> int:
        number: int = s.effect("post", {"text": text}, do=lambda call: github.post(text).number)
        return number

    with sf.session("parent") as s:
        assert post(s, "before") == 1
        s.say("user", "cut here")
    sf.sessions.fork("parent", "child")
    with sf.session("parent") as s:
        assert post(s, "after") == 2
    with sf.session("child") as s:
        assert post(s, "before") == 1
        assert post(s, "after") == 3


# -- another process runs it ----------------------------------------------------------------------------


def test_a_second_thread_of_the_same_process_is_refused(sf: standfast.Standfast) -> None:
    inside, finish = threading.Event(), threading.Event()
    results: list[int] = []

    def slow(call: standfast.Call) -> int:
        inside.set()
        assert finish.wait(30)
        return 1

    with sf.session("a") as s:
        thread = threading.Thread(target=lambda: results.append(s.effect("t", do=slow)))
        thread.start()
        assert inside.wait(30)
        with pytest.raises(standfast.InProgress):
            s.effect("t", do=lambda call: 2)
        with pytest.raises(standfast.InProgress):
            s.effect("t", do=lambda call: 2, again=True)
        finish.set()
        thread.join()
    assert results == [1]
    assert only(sf).attempt == 1


def test_a_process_that_runs_the_effect_is_named_and_after_its_death_the_effect_is_in_doubt_at_once(
    sf: standfast.Standfast, engine_url: str, tmp_path: Path
) -> None:
    code = """
    with sf.session("theirs") as s:
        s.effect("deploy", {"to": "prod"}, key="deploy", do=lambda call: (say("sending"), wait()))
    """
    with Other(engine_url, tmp_path / "data", code) as other, sf.session("ours") as s:
        other.hear("sending")
        with pytest.raises(standfast.InProgress, match=f"process {other.pid}"):
            s.effect("deploy", {"to": "prod"}, key="deploy", do=lambda call: 1)
        assert sf.effects.in_doubt() == []
        other.kill()
        assert [effect.key for effect in sf.effects.in_doubt()] == ["deploy"]
        with pytest.raises(standfast.EffectInDoubt, match="its process is gone"):
            s.effect("deploy", {"to": "prod"}, key="deploy", do=lambda call: 1)


def test_a_running_effect_keeps_its_lease(timed: standfast.Standfast, clock: ManualClock) -> None:
    def act(call: standfast.Call) -> bool:
        for _ in range(4):
            clock.advance("30s")
            timed._store.write(leases.renew_all, durable=False)
        return timed.effects.in_doubt() == []

    with timed.session("a") as s:
        assert s.effect("slow", do=act) is True


def test_a_session_that_was_taken_over_begins_nothing(sf: standfast.Standfast, github: Github) -> None:
    with sf.session("a") as s:
        sf.sessions.take("a")
        with pytest.raises(standfast.LeaseLost):
            s.effect("post", do=lambda call: github.post("late"))
        s._opening_now = None  # nothing to release
    assert github.lines == []
    assert sf.effects.list() == []


def test_an_effect_inside_a_transaction_is_refused(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, sf.transaction(), pytest.raises(standfast.InvalidInput, match="inside a transaction"):
        s.effect("t", do=lambda call: 1)


def test_the_split_form_is_planned_inside_a_transaction_and_sent_after_it(sf: standfast.Standfast) -> None:
    """000-19: if the transaction rolled back after sending, the effect would have no record."""
    with sf.transaction() as tx:
        with pytest.raises(standfast.InvalidInput, match=r"effects\.begin cannot run inside a transaction"):
            tx.effects.begin("pay", {"n": 1}, key="a")
        planned = tx.effects.plan("pay", {"n": 1}, key="a")
        with pytest.raises(standfast.InvalidInput, match=r"tx\.effects\.plan.*after the block: sf\.effects\.dispatch"):
            tx.effects.dispatch(planned.id)
    assert [effect.state for effect in sf.effects.list()] == ["planned"]
    assert sf.effects.dispatch(planned.id).state == "dispatched"
    with sf.transaction() as tx:
        tx.effects.done(planned.id, "paid")
    assert sf.effects.get(planned.id).result == "paid"


# -- it went wrong ---------------------------------------------------------------------------------------


def test_an_error_proves_nothing_it_passes_unchanged_and_names_the_command_that_settles_it(
    sf: standfast.Standfast,
) -> None:
    """A typo in `do` must not be taken for "nothing was sent"."""
    with sf.session("a") as s:
        with pytest.raises(NameError) as caught:
            s.effect("deploy", {"to": "prod"}, do=lambda call: depoy())  # noqa: F821
        (note,) = caught.value.__notes__
        assert "deploy to=prod is in doubt" in note
        assert f"standfast effect resolve {only(sf).id[-6:]} --applied --evidence TEXT" in note
        assert f"standfast effect resolve {only(sf).id[-6:]} --not-applied --evidence TEXT" in note
        assert only(sf).in_doubt
        assert only(sf).error == "NameError: name 'depoy' is not defined"
        assert told(sf, only(sf).id) == ["planned", "dispatched", "gave_up"]
        with pytest.raises(standfast.EffectInDoubt, match="standfast effect resolve"):
            s.effect("deploy", {"to": "prod"}, do=lambda call: 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_an_interrupted_do_leaves_its_effect_in_doubt(sf: standfast.Standfast, error: type[BaseException]) -> None:
    def act(call: standfast.Call) -> None:
        raise error

    with sf.session("a") as s, pytest.raises(error):
        s.effect("deploy", do=act)
    assert only(sf).in_doubt


def test_after_not_applied_the_next_call_acts(sf: standfast.Standfast) -> None:
    class Refused(Exception):
        pass

    def refused(call: standfast.Call) -> int:
        if call.attempt == 1:
            raise standfast.NotApplied("no route")
        if call.attempt == 2:
            raise Refused("connection refused")
        return call.attempt

    with sf.session("a") as s:
        for error in (standfast.NotApplied, Refused):
            with pytest.raises(error):
                s.effect("post", do=refused, not_applied=(Refused, TimeoutError))
            assert only(sf).state == "failed"
            assert not only(sf).in_doubt
        assert s.effect("post", do=refused, not_applied=Refused) == 3
    assert told(sf, only(sf).id) == ["planned", *["dispatched", "failed"] * 2, "dispatched", "acknowledged"]


def test_a_result_that_cannot_be_stored_leaves_the_effect_in_doubt(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput, match=r"result\.price: NaN") as caught:
        s.effect("buy", do=lambda call: {"price": float("nan")})
    assert "in doubt" in caught.value.__notes__[0]
    assert only(sf).in_doubt


def test_a_late_writer_with_an_old_attempt_is_refused_and_its_result_discarded(sf: standfast.Standfast) -> None:
    """A paused process resumes after another process has taken over its effect."""

    def asleep(call: standfast.Call) -> str:
        one_at_a_time._under_way.clear()  # another process sleeps
        orphan(sf, "k")
        outside(taken_over)
        return "too late"

    def taken_over() -> None:
        with sf.session("b") as other:
            other.effect("pay", key="k", do=lambda call: f"attempt {call.attempt}", idempotent=True)

    with sf.session("a") as s, pytest.raises(standfast.LeaseLost, match=r"attempt 1 is done too late.*not stored"):
        s.effect("pay", key="k", do=asleep)
    assert sf.effects.get("k").result == "attempt 2"
    assert told(sf, "k")[-2:] == ["acknowledged", "late"]


# -- in doubt: the order -----------------------------------------------------------------------------------


def begun(sf: standfast.Standfast, *, holder: str | None = None) -> str:
    """An effect of session "a" whose holder died while sending."""
    with sf.session("a"):
        effect = sf.effects.begin("pay", {"cents": 3, "text": "first words"}, by="cents", session="a")
    orphan(sf, effect.id, holder)
    return effect.id


def pay(s: Any, answers: list[Any], **options: Any) -> Any:
    """The next call, with a given answer of the probe."""

    def probe(call: standfast.Call) -> Any:
        answers.append(("probed", call.attempt, call.intent["text"]))
        answer = answers.pop(0)
        if isinstance(answer, Exception) and not isinstance(answer, standfast.NotApplied):
            raise answer
        return answer

    def do(call: standfast.Call) -> str:
        answers.append(("sent", call.attempt, call.intent["text"]))
        return f"paid by attempt {call.attempt}"

    intent = {"cents": 3, "text": "other words"}
    return s.effect("pay", intent, by="cents", do=do, probe=probe if answers else None, **options)


def test_a_probe_that_finds_it_settles_the_doubt_with_its_result(sf: standfast.Standfast) -> None:
    id = begun(sf)
    world: list[Any] = [standfast.Applied("found")]
    with sf.session("a") as s:
        assert pay(s, world) == "found"
    assert world == [("probed", 1, "first words")]
    effect = sf.effects.get(id)
    assert (effect.state, effect.result, effect.attempt) == ("acknowledged", "found", 1)
    assert "probe" in (effect.evidence or "")


def test_a_probe_that_finds_nothing_lets_the_next_attempt_go(timed: standfast.Standfast, clock: ManualClock) -> None:
    """001-37: the action is replayed if its probe answers that it did not happen."""
    sf = timed
    id = begun(sf)
    clock.advance("70s")
    world: list[Any] = [standfast.NotApplied("no such payment")]
    with sf.session("a") as s:
        assert pay(s, world) == "paid by attempt 2"
    assert world == [("probed", 1, "first words"), ("sent", 2, "other words")]
    assert told(sf, id) == ["planned", "dispatched", "failed", "dispatched", "acknowledged"]
    assert sf.effects.get(id).intent["text"] == "other words"


@pytest.mark.parametrize("answer", [standfast.Unknown(), standfast.Unknown, Boom("timeout")], ids=repr)
def test_a_probe_that_answers_unknown_or_raises_sends_nothing(sf: standfast.Standfast, answer: Any) -> None:
    id = begun(sf)
    with pytest.raises(standfast.EffectInDoubt, match="could not tell"), sf.session("a") as s:
        pay(s, world := [answer])
    assert [what for what, *_ in world] == ["probed"]
    assert sf.effects.get(id).in_doubt
    assert sf.sessions.get("a").state == "waiting"
    assert "probed" in told(sf, id)


def test_a_probe_that_answers_anything_else_is_named(sf: standfast.Standfast) -> None:
    begun(sf)
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput, match=r"probe .* returned str"):
        pay(s, ["yes"])
    assert only(sf).in_doubt


def test_idempotent_sends_the_first_arguments_again_with_the_same_key(sf: standfast.Standfast) -> None:
    """001-37: an effect that is declared safe to repeat is sent again."""
    id = begun(sf)
    keys = [sf.effects.get(id).key]
    with sf.session("a") as s:
        assert pay(s, world := [], idempotent=True) == "paid by attempt 2"
    assert world == [("sent", 2, "first words")]
    assert [sf.effects.get(id).key] == keys
    assert sf.effects.get(id).intent["text"] == "first words"


def test_a_repetition_that_was_not_sent_leaves_the_doubt_about_the_attempt_before_it(sf: standfast.Standfast) -> None:
    """The refusal of the repeated attempt does not prove that the first attempt was never sent."""
    id = begun(sf)

    def refused(call: standfast.Call) -> None:
        raise standfast.NotApplied("no route")

    with sf.session("a") as s, pytest.raises(standfast.NotApplied):
        s.effect("pay", {"cents": 3, "text": "other words"}, by="cents", do=refused, idempotent=True)
    assert (sf.effects.get(id).attempt, sf.effects.get(id).in_doubt) == (2, True)
    with sf.session("a") as s:
        assert pay(s, world := [], idempotent=True) == "paid by attempt 3"
    assert world == [("sent", 3, "first words")]


def test_with_both_the_probe_runs_first_and_after_unknown_the_key_is_used(sf: standfast.Standfast) -> None:
    begun(sf)
    with sf.session("a") as s:
        pay(s, world := [standfast.Unknown("timeout")], idempotent=True)
    assert [what for what, *_ in world] == ["probed", "sent"]


@pytest.mark.parametrize("window", [lambda h: timedelta(hours=h), "{}h".format, lambda h: h * 3600])
def test_past_its_window_the_remote_has_forgotten_the_key(
    timed: standfast.Standfast, clock: ManualClock, window: Callable[[int], Any]
) -> None:
    begun(timed)
    clock.advance("25h")
    with timed.session("a") as s:
        with pytest.raises(standfast.EffectInDoubt):
            pay(s, [], idempotent=window(24))
        assert pay(s, [], idempotent=window(26)) == "paid by attempt 2"


def test_not_applied_counts_at_once_only_if_the_holder_is_known_to_be_dead(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    """RULES §4: a holder that may only be paused gets one more lease of time."""
    begun(timed, holder=elsewhere(timed))
    with timed.session("a") as s:
        with pytest.raises(standfast.InProgress):
            pay(s, [standfast.NotApplied()])
        clock.advance("61s")
        with pytest.raises(standfast.EffectInDoubt, match="may be asleep"):
            pay(s, world := [standfast.NotApplied()])
        assert [what for what, *_ in world] == ["probed"]
        clock.advance("60s")
        assert pay(s, [standfast.NotApplied()]) == "paid by attempt 2"


def test_a_plain_effect_in_doubt_waits_for_a_person(sf: standfast.Standfast, github: Github) -> None:
    """001-37: without probe or key, the effect is in doubt and a person decides."""
    id = begun(sf)
    with pytest.raises(standfast.EffectInDoubt, match="its process is gone"), sf.session("a") as s:
        pay(s, [])
    assert sf.sessions.get("a").state == "waiting"
    sf.effects.resolve(id, "applied", evidence="seen in the bank's books", result="by hand")
    with sf.session("a") as s:
        assert pay(s, []) == "by hand"
    assert told(sf, id) == ["planned", "dispatched", "gave_up", "resolved", "replayed"]


def test_resolved_as_not_applied_it_is_sent_by_the_next_call(sf: standfast.Standfast) -> None:
    id = begun(sf)
    sf.effects.resolve(id, "not_applied", evidence="not in the books")
    assert sf.effects.get(id).state == "failed"
    with sf.session("a") as s:
        assert pay(s, []) == "paid by attempt 2"


def test_an_interrupted_call_of_this_very_process_is_in_doubt_for_its_next_call(
    sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store failed while recording the doubt: this process still has the lease, but runs no call."""

    def full(*_: object) -> None:
        raise standfast.StorageError("the disk is full")

    with sf.session("a") as s:
        with monkeypatch.context() as broken:
            broken.setattr(transitions, "give_up", full)
            with pytest.raises(Boom) as caught:
                s.effect("pay", do=boom)
        assert any("the disk is full" in note for note in caught.value.__notes__)
        assert only(sf).in_doubt  # other processes see its holder as alive
        with pytest.raises(standfast.EffectInDoubt, match="interrupted"):
            s.effect("pay", do=lambda call: 1)
        assert only(sf).in_doubt


# -- refused calls -------------------------------------------------------------------------------------------


def test_a_pruned_result_is_not_done_again(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("pay", {"cents": 3}, key="k", do=lambda call: 1)
        prune(sf, "k")
        with pytest.raises(standfast.Conflict, match="pruned") as refused:
            s.effect("pay", {"cents": 3}, key="k", do=lambda call: 1)
        assert refused.value.code == "result_pruned"
        with pytest.raises(standfast.KeyConflict):
            s.effect("pay", {"cents": 4}, key="k", do=lambda call: 1)


def test_what_was_planned_can_be_superseded_and_names_its_successor(sf: standfast.Standfast) -> None:
    sf.effects.plan("pay", {"cents": 3}, key="old")
    new = sf.effects.plan("pay", {"cents": 4}, key="new")
    assert sf.effects.supersede("old", by="new", reason="the price changed").state == "superseded"
    with sf.session("a") as s, pytest.raises(standfast.Conflict, match=new.id[-6:]):
        s.effect("pay", {"cents": 3}, key="old", do=lambda call: 1)
    sf.effects.dispatch("new")
    with pytest.raises(standfast.IllegalTransition, match="only a planned"):
        sf.effects.supersede("new")


def test_compensate_compensates_once_and_the_effect_is_not_done_again_by_itself(
    sf: standfast.Standfast, github: Github
) -> None:
    open_pr = declared(github)

    @open_pr.compensate
    def close_pr(pr: PullRequest, branch: str) -> None:
        github.post(f"close {pr.number} {branch}")

    with sf.session("a"):
        open_pr(repo="r", branch="b", title="t")
        id = only(sf).id
        assert sf.effects.compensate(id, open_pr).state == "compensated"
        assert sf.effects.compensate(id, open_pr).state == "compensated"
        with pytest.raises(standfast.Conflict, match="compensated by"):
            open_pr(repo="r", branch="b", title="t")
    assert github.lines == ["r b t", "close 1 b"]
    compensation = sf.effects.list(tool="compensate:github.open_pr")[0]
    assert sf.effects.get(id).successor_id == compensation.id
    assert compensation.state == "acknowledged"
    assert told(sf, id)[-1] == "compensated"


def test_a_compensation_in_doubt_is_settled_like_any_other_and_compensates_with_it(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("pay", {"cents": 3}, key="k", do=lambda call: "paid")

    def refund(result: str) -> None:
        raise Boom(result)

    with pytest.raises(Boom):
        sf.effects.compensate("k", refund)
    assert sf.effects.get("k").state == "acknowledged"
    with pytest.raises(standfast.EffectInDoubt):
        sf.effects.compensate("k", refund)
    (compensation,) = sf.effects.in_doubt()
    assert compensation.tool == "compensate:pay"
    sf.effects.resolve(compensation.id, "applied", evidence="seen")
    assert sf.effects.get("k").state == "compensated"


def test_only_what_was_done_can_be_compensated(sf: standfast.Standfast, github: Github) -> None:
    sf.effects.begin("pay", key="k")
    with pytest.raises(standfast.IllegalTransition, match="is dispatched and cannot be compensated"):
        sf.effects.compensate("k", lambda result: None)
    sf.effects.done("k", 1)
    with pytest.raises(standfast.InvalidInput, match="another tool"):
        sf.effects.compensate("k", declared(github))


# -- approvals ---------------------------------------------------------------------------------------------


def test_an_effect_that_needs_approval_waits_for_it_and_acts_once(sf: standfast.Standfast, github: Github) -> None:
    open_pr = declared(github, approve=True)

    def run(title: str = "t") -> PullRequest:
        with sf.session("a"):
            pr: PullRequest = open_pr(repo="r", branch="b", title=title)
            return pr

    with pytest.raises(standfast.ApprovalRequired):
        run()
    assert (only(sf).state, sf.sessions.get("a").state, github.lines) == ("planned", "waiting", [])
    with pytest.raises(standfast.ApprovalRequired):
        run()
    (asked,) = sf.approvals.list()
    sf.approvals.grant(asked.id, approver="anna")
    assert run().number == 1
    assert run("other words").number == 1
    assert sf.approvals.get(asked.id).state == "consumed"
    assert len(github.lines) == 1


def test_other_arguments_need_another_approval_of_the_effect(sf: standfast.Standfast, github: Github) -> None:
    open_pr = declared(github, approve=True)
    with sf.session("a"):
        with pytest.raises(standfast.ApprovalRequired):
            open_pr(repo="r", branch="b", title="one")
        sf.approvals.grant(sf.approvals.list()[0].id, approver="anna")
        with pytest.raises(standfast.ApprovalRequired):
            open_pr(repo="r", branch="b", title="two")
        assert github.lines == []
        assert only(sf).intent["title"] == "two"
        sf.approvals.grant(sf.approvals.list(state="requested")[0].id, approver="anna")
        open_pr(repo="r", branch="b", title="two")
    assert github.lines == ["r b two"]


def test_after_a_request_code_without_approve_waits_too(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        with pytest.raises(standfast.ApprovalRequired):
            s.effect("pay", do=lambda call: 1, approve=True)
        with pytest.raises(standfast.ApprovalRequired):
            s.effect("pay", do=lambda call: 1)


# -- tools and async ---------------------------------------------------------------------------------------


def test_tools_keep_their_signature_and_every_call_is_an_effect(sf: standfast.Standfast, github: Github) -> None:
    @standfast.effect("git.push", by="branch")
    def push(call: standfast.Call, branch: str, force: bool = False) -> PullRequest:
        """Push a branch."""
        return github.post(f"{branch} {call.key[:3]}")

    with sf.session("a") as s:
        (tool,) = s.tools(push)
        assert tool("fix") == PullRequest(1, "https://example.org/pull/1")
        assert list(inspect.signature(tool).parameters) == ["branch", "force"]
        assert inspect.signature(tool).return_annotation is PullRequest
        assert get_type_hints(tool) == {"branch": str, "force": bool, "return": PullRequest}
        assert tool.__doc__ == "Push a branch."
        assert tool.__name__ == "push"
        assert inspect.unwrap(tool) is tool
        with pytest.raises(standfast.InvalidInput, match="not declared"):
            s.tools(boom)
    assert github.lines == ["fix sf_"]
    assert only(sf).intent == {"branch": "fix", "force": False}


def test_an_async_function_in_a_synchronous_session_is_refused_by_name_and_nothing_is_recorded(
    sf: standfast.Standfast,
) -> None:
    @standfast.effect("t", by=standfast.ALL)
    async def fetch(n: int) -> int:
        return n

    async def do(call: standfast.Call) -> int:
        return 1

    with sf.session("a") as s:
        for refused in (lambda: s.effect(fetch, n=1), lambda: s.effect("t", do=do), lambda: s.tools(fetch)):
            with pytest.raises(standfast.InvalidInput, match=r"fetch|do"):
                refused()
        assert sf.effects.list() == []
        with pytest.raises(standfast.InvalidInput, match="is async"):
            s.effect("t", do=lambda call: do(call=call))
        assert only(sf).state == "failed"  # it is known that the tool never ran


async def _async_story(url: str, data: Path, github: Github) -> None:
    @standfast.effect("post", by="text")
    async def post(text: str, call: standfast.Call) -> PullRequest:
        """Post it."""
        await asyncio.sleep(0)
        return github.post(text)

    async with standfast.aopen(url, data_dir=data) as sf:
        async with sf.session("a") as s:
            assert await s.effect(post, text="one") == PullRequest(1, "https://example.org/pull/1")
            (tool,) = s.tools(post)
            assert inspect.iscoroutinefunction(tool)
            assert list(inspect.signature(tool).parameters) == ["text"]
            assert (await tool(text="two")).number == 2
        async with sf.session("b") as s:
            started = asyncio.Event()

            async def never(call: standfast.Call) -> None:
                started.set()
                await asyncio.sleep(60)

            task = asyncio.create_task(_awaited(s.effect("slow", do=never)))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        (doubt,) = await sf.effects.in_doubt()
        assert doubt.tool == "slow"


async def _awaited(call: Any) -> Any:
    return await call


def test_the_async_facade_awaits_functions_and_a_cancelled_do_is_in_doubt(
    engine_url: str, tmp_path: Path, github: Github
) -> None:
    asyncio.run(_async_story(engine_url, tmp_path / "data", github))
    assert github.lines == ["one", "two"]


# -- the resource ------------------------------------------------------------------------------------------------


def test_the_split_form_begins_acts_and_ends_in_as_many_processes(sf: standfast.Standfast) -> None:
    begun = sf.effects.begin("deploy", {"to": "prod"}, key="d")
    assert (begun.state, begun.attempt, begun.call_key[:3]) == ("dispatched", 1, "sf_")
    with pytest.raises(standfast.InProgress):
        sf.effects.begin("deploy", {"to": "prod"}, key="d")
    done = sf.effects.done("d", {"ok": True}, external_ref="run/7")
    assert (done.state, done.result, done.external_ref) == ("acknowledged", {"ok": True}, "run/7")
    assert done.receipt is not None
    assert sf.journal.verify(str(done.receipt)).type == "effect.acknowledged"
    assert sf.effects.done("d", {"ok": True}).state == "acknowledged"
    with pytest.raises(standfast.LeaseLost):
        sf.effects.done("d", {"ok": False})
    again = sf.effects.begin("deploy", {"to": "prod"}, key="d")
    assert (again.done, again.result) == (True, {"ok": True})


def test_a_plan_stops_before_it_is_sent_and_a_failure_lets_the_next_one_go(sf: standfast.Standfast) -> None:
    plan = sf.effects.plan("deploy", {"to": "prod"}, key="d")
    assert (plan.state, plan.attempt, plan.holder) == ("planned", 0, None)
    assert sf.effects.plan("deploy", {"to": "prod"}, key="d").id == plan.id
    assert sf.effects.dispatch(plan.id[-6:]).attempt == 1
    failed = sf.effects.fail("d", "no route")
    assert (failed.state, failed.error) == ("failed", "no route")
    assert sf.effects.dispatch("d").attempt == 2
    with pytest.raises(standfast.LeaseLost, match="attempt 1 is done too late"):
        sf.effects.done("d", 1, attempt=1)
    assert sf.effects.done("d", 1, attempt=2).state == "acknowledged"


def test_a_session_performs_what_was_planned_for_it(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        plan = sf.effects.plan("deploy", {"to": "prod"}, session="a")
        assert s.effect("deploy", {"to": "prod"}, do=lambda call: 1) == 1
    assert sf.effects.get(plan.id).state == "acknowledged"


def test_an_actor_holds_what_it_began_until_its_time_is_up(engine_url: str, tmp_path: Path, clock: ManualClock) -> None:
    from standfast import config, handle

    def actor(name: str) -> standfast.Standfast:
        settings = config.load(engine_url, data_dir=tmp_path / "data", actor=name)
        return handle.connect(settings, clock=clock, as_actor=True)

    with actor("anna") as anna, actor("bert") as bert:
        anna.effects.begin("deploy", key="d")
        with pytest.raises(standfast.InProgress, match=r"standfast effect done \w+\nif it did not happen: ") as busy:
            anna.effects.begin("deploy", key="d")
        assert "standfast effect fail " in busy.value.hint
        with pytest.raises(standfast.LeaseLost, match="held by anna"):
            bert.effects.done("d", 1)
        with pytest.raises(standfast.InProgress, match="anna"):
            bert.effects.resolve("d", "applied", evidence="x")
        clock.advance("16m")
        assert bert.effects.get("d").in_doubt
        with pytest.raises(standfast.EffectInDoubt, match="its lease ran out"):
            bert.effects.begin("deploy", key="d")
        assert anna.effects.done("d", 1).result == 1  # a late answer, but the first one


def test_a_probe_of_one_attempt_does_not_settle_the_next(sf: standfast.Standfast) -> None:
    """002-15: two people look at attempt 1. One settles it, the effect is sent and lost again, then the other
    answers.
    """
    sf.effects.begin("d", key="d")
    orphan(sf, "d")
    seen = sf.effects.in_doubt()[0]
    sf.effects.resolve("d", "not_applied", evidence="not there", attempt=seen.attempt)
    sf.effects.dispatch("d")
    orphan(sf, "d")
    with pytest.raises(standfast.LeaseLost, match=r"attempt 1 of .* as attempt 2"):
        sf.effects.resolve("d", "not_applied", evidence="not there", attempt=seen.attempt)
    assert sf.effects.resolve("d", "applied", evidence="there", attempt=2).state == "acknowledged"


def test_resolve_needs_evidence_and_settles_only_effects_in_doubt(sf: standfast.Standfast) -> None:
    """001-57: what was done about an error is on record, with its evidence."""
    sf.effects.begin("deploy", key="d")
    with pytest.raises(standfast.InProgress):
        sf.effects.resolve("d", "applied", evidence="x")
    orphan(sf, "d")
    with pytest.raises(standfast.InvalidInput, match="evidence"):
        sf.effects.resolve("d", "applied", evidence=" ")
    with pytest.raises(standfast.InvalidInput, match="no answer"):
        sf.effects.resolve("d", "maybe", evidence="x")
    settled = sf.effects.resolve("d", "applied", evidence="the site says so", result=1)
    assert (settled.state, settled.evidence, settled.result) == ("acknowledged", "the site says so", 1)
    assert sf.effects.resolve("d", "applied", evidence="again", result=1).evidence == "the site says so"
    with pytest.raises(standfast.IllegalTransition, match="only an effect in doubt"):
        sf.effects.resolve("d", "not_applied", evidence="x")


def test_the_ledger_answers_whether_replay_is_safe(sf: standfast.Standfast) -> None:
    """002-7, 002-15: the answer is replay, skip, probe, or ask a person, with the reason."""

    def verdict(key: str) -> str:
        return sf.effects.may_replay(key).action

    sf.effects.plan("t", key="planned")
    assert verdict("planned") == "replay"
    sf.effects.begin("t", key="live")
    assert verdict("live") == "wait"
    sf.effects.begin("t", key="failed")
    sf.effects.fail("failed", "no route")
    assert verdict("failed") == "replay"
    sf.effects.begin("t", key="done")
    sf.effects.done("done")
    assert verdict("done") == "skip"
    sf.effects.begin("t", key="plain")
    orphan(sf, "plain")
    assert verdict("plain") == "ask"
    assert "effect resolve" in sf.effects.may_replay("plain").reason
    sf.effects.begin("t", key="idempotent", idempotent=True)
    orphan(sf, "idempotent")
    assert verdict("idempotent") == "replay"
    with sf.session("a") as s, pytest.raises(Boom):
        s.effect("t", key="probed", do=boom, probe=lambda call: standfast.Unknown())
    assert verdict("probed") == "probe"
    prune(sf, "done")
    assert verdict("done") == "skip"
    with pytest.raises(standfast.NotFound):
        verdict("nothing")


def test_effects_are_listed_newest_first_by_state_tool_and_session(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("one", do=lambda call: 1)
        s.effect("two", do=lambda call: 1)
    sf.effects.begin("two", key="k")
    assert [effect.tool for effect in sf.effects.list()] == ["two", "two", "one"]
    assert [effect.key for effect in sf.effects.list(tool="two", state="dispatched")] == ["k"]
    assert [effect.tool for effect in sf.effects.list(session="a")] == ["two", "one"]
    first = sf.effects.list(limit=1)
    assert [effect.tool for effect in sf.effects.list(limit=1, after=first[0].id)] == ["two"]
    assert sf.effects.get(first[0].id[-6:]) == sf.effects.get("k") == first[0]
    assert "two" in first[0].shown
    with pytest.raises(standfast.InvalidInput, match="the state of an effect is one of"):
        sf.effects.list(state="gone")


# -- bad input -----------------------------------------------------------------------------------------------


def test_what_cannot_be_an_effect_is_refused_by_name_before_anything_is_recorded(sf: standfast.Standfast) -> None:
    @standfast.effect("t", by="n")
    def t(n: Any) -> None: ...

    with sf.session("a") as s:
        for match, call in {
            "intent.n: NaN": lambda: t(n=float("nan")),
            "intent.n: object is not a value": lambda: t(n=object()),
            "missing a required argument: 'n'": t,
            "unexpected keyword argument 'm'": lambda: t(n=1, m=2),
            "boom is not declared": lambda: s.effect(boom),
            "do= is the function": lambda: s.effect("t", {"n": 1}),
            "by names 'm', which the intent does not have": lambda: s.effect("t", {"n": 1}, by="m", do=boom),
            "must be an object": lambda: s.effect("t", [1], by="m", do=boom),
            "no option 'idempotnt'": lambda: s.effect("t", do=boom, idempotnt=True),
            "longer than 0 s": lambda: s.effect("t", do=boom, idempotent=timedelta(0)),
            r"idempotent is a duration, not \[\]": lambda: s.effect("t", do=boom, idempotent=[]),
            "not_applied lists exceptions": lambda: s.effect("t", do=boom, not_applied=("Timeout",)),
            "a tool's name": lambda: s.effect(" ", do=boom),
            "are reserved": lambda: s.effect("compensate:t", do=boom),
            "bytes, and the limit is": lambda: s.effect("t", "x" * serial.PAYLOAD_MAX_BYTES, do=boom),
        }.items():
            with pytest.raises(standfast.InvalidInput, match=match):
                call()
    assert sf.effects.list() == []


def test_an_invalid_declaration_is_refused_at_the_decorator() -> None:
    with pytest.raises(standfast.InvalidInput, match=r"by names 'brunch', which .*push.* does not have"):

        @standfast.effect("push", by=("brunch",))
        def push(branch: str) -> None: ...

    @standfast.effect("push", by=standfast.ALL)
    def push_too(branch: str) -> None: ...

    with pytest.raises(standfast.InvalidInput, match="has the parameter 'remote'"):

        @push_too.probe
        def pushed(remote: str) -> None: ...


def test_a_parameter_named_like_an_option_belongs_to_the_function(sf: standfast.Standfast) -> None:
    @standfast.effect("s3.put", by=("bucket", "key"))
    def put(bucket: str, key: str) -> str:
        return f"{bucket}/{key}"

    with sf.session("a") as s:
        assert put(bucket="b", key="k") == "b/k"
        assert only(sf).key.startswith("by:")
        assert s.effect(put.with_options(key="mine"), bucket="b", key="k") == "b/k"
    assert sf.effects.get("mine").intent == {"bucket": "b", "key": "k"}


@dataclass
class Money:
    cents: int


def test_a_method_is_an_effect_without_its_self(sf: standfast.Standfast) -> None:
    class Client:
        def __init__(self) -> None:
            self.seen: list[str] = []

        @standfast.effect("post", by="text")
        def post(self, text: str, call: standfast.Call) -> str:
            self.seen.append(text)
            raise Boom

        @post.probe
        def posted(self, text: str) -> Any:
            return standfast.Applied("found") if text in self.seen else standfast.NotApplied()

        @post.compensate
        def unpost(self, result: str, text: str) -> None:
            self.seen.remove(text)

    client = Client()
    with sf.session("a") as s:
        with pytest.raises(Boom):
            s.effect(client.post, text="hi")
        assert s.effect(client.post, text="hi") == "found"
    assert client.seen == ["hi"]
    assert only(sf).intent == {"text": "hi"}
    sf.effects.compensate(only(sf).id, client.post)
    assert client.seen == []


def test_reported_rows_are_said_and_recorded_rows_are_seen(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        s.effect("t", do=lambda call: 1)
    seen = only(sf).id
    sf.effects.begin("t", key="k")
    sf.effects.done("k", 1)
    said = sf.effects.get("k").id
    assert [event.source for event in sf.journal.about(seen)] == ["seen"] * 3
    assert [event.source for event in sf.journal.about(said)] == ["seen", "seen", "said"]


def test_recorded_arguments_are_rebuilt_by_the_annotations(sf: standfast.Standfast) -> None:
    sent: list[Any] = []

    @standfast.effect("pay", by="to", idempotent=True)
    def pay(to: str, money: Money, *notes: str, **more: int) -> int:
        sent.append((to, money, notes, more))
        if len(sent) == 1:
            raise Boom
        return 1

    with sf.session("a") as s:
        with pytest.raises(Boom):
            s.effect(pay, "anna", Money(3), "x", "y", tax=1)
        assert s.effect(pay, "anna", Money(4), "z", tax=2) == 1
    assert sent == [("anna", Money(3), ("x", "y"), {"tax": 1})] * 2


def test_nothing_warns_in_an_ordinary_run(sf: standfast.Standfast) -> None:
    with warnings.catch_warnings(record=True) as caught, sf.session("a") as s:
        warnings.simplefilter("always")
        s.effect("t", {"n": 1}, do=lambda call: 1)
        s.effect("t", {"n": 2}, do=lambda call: 1)
    assert caught == []


def test_a_dead_holder_is_recognised_and_one_in_another_pid_namespace_is_not_judged(sf: standfast.Standfast) -> None:
    assert leases.is_gone(gone(sf), sf._store.caller.clock)
    assert not leases.is_gone(elsewhere(sf), sf._store.caller.clock)


# -- what it costs -------------------------------------------------------------------------------------------


def test_no_question_about_effects_reads_the_table_from_end_to_end(tmp_path: Path) -> None:
    with standfast.open(tmp_path / "db", data_dir=tmp_path) as sf:
        for one in (*transitions.SQL, *resource.SQL, *models.SQL):
            asked = sf.engine.connection.execute("EXPLAIN QUERY PLAN " + one.sqlite, dict.fromkeys(one.params))
            plan = [row[3] for row in asked]
            scans = [line for line in plan if line.startswith("SCAN") and line != "SCAN CONSTANT ROW"]
            assert scans == [], (one.name, plan)


def test_numbers_of_a_key_are_found_however_high_they_are(sf: standfast.Standfast) -> None:
    for n in range(1, 12):
        begun = sf.effects.begin("post", key="k", again=True)
        assert (begun.n, begun.key) == (n, "k" if n == 1 else f"k #{n}")
        sf.effects.done(begun.id)
    failed = sf.effects.begin("post", key="k", again=True)
    sf.effects.fail(failed.id, "not now")
    assert sf.effects.begin("post", key="k", again=True).id == failed.id


def test_an_effect_names_the_task_it_is_done_for(sf: standfast.Standfast) -> None:
    """002-40: the task is given by its id, the end of its id or its fingerprint. It is not part of the effect's
    identity.
    """
    task, other = sf.tasks.add("deploy it"), sf.tasks.add("something else")
    for n, name in enumerate((task.id, task.id[-6:], task.fingerprint)):
        assert sf.effects.begin("deploy", n, task=name).task_id == task.id
    sf.effects.done(sf.effects.list(limit=1)[0].id, "deployed")
    again = sf.effects.begin("deploy", 2, task=other.id)
    assert (again.state, again.task_id) == ("acknowledged", task.id)
    with pytest.raises(standfast.NotFound, match="no task 'nowhere'"):
        sf.effects.begin("deploy", 3, task="nowhere")
    assert len(sf.effects.list()) == 3


def test_a_condition_that_is_no_function_is_refused(sf: standfast.Standfast) -> None:
    """A `still` that cannot be called is an error of the caller, and nothing is recorded."""
    with pytest.raises(standfast.InvalidInput, match="still is a function without arguments, not bool"):
        sf.effects.begin("deploy", {"to": "prod"}, key="deploy-1", still=True)  # type: ignore[arg-type]
    assert sf.effects.list() == []
