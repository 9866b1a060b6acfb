"""A stopped session sends no new effect while one of its effects is in doubt. On both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import crash
from standfast.clock import ManualClock
from standfast.ledger.effects import begin
from standfast_prove.scenes import orphan, told
from tests.others import Other


class Lost(Exception):
    """The answer did not arrive."""


class World:
    """An outside system that counts what arrives."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def post(self, call: standfast.Call) -> str:
        self.sent.append(call.intent["what"])
        return f"sent {call.intent['what']}"

    def lose(self, call: standfast.Call) -> None:
        self.sent.append(call.intent["what"])
        raise Lost(call.intent["what"])

    def fail_before(self, call: standfast.Call) -> None:
        raise Lost(call.intent["what"])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as store:
        yield store


def lose(s: Any, world: World, what: str = "a", **options: Any) -> None:
    """An effect that is in doubt; the program swallows the error."""
    with pytest.raises(Lost):
        s.effect("post", {"what": what}, do=world.lose, **options)


# -- stopped -------------------------------------------------------------------------------------------


def test_a_swallowed_doubt_stops_every_new_effect_of_the_session(sf: standfast.Standfast, world: World) -> None:
    """000-19, 000-36: an agent loop that continues after an error cannot send a variation."""
    with sf.session("fix-42") as s:
        lose(s, world)
        for what in ("b", "c"):
            with pytest.raises(standfast.EffectInDoubt, match="post what=a is in doubt") as refused:
                s.effect("post", {"what": what}, do=world.post)
            assert "s.proceed()" in str(refused.value)
    assert world.sent == ["a"]
    assert [effect.intent for effect in sf.effects.list()] == [{"what": "a"}]


@pytest.mark.parametrize("point", ["effect.before_give_up", "effect.before_done"])
def test_ctrl_c_while_the_end_is_recorded_stops_the_session_too(
    sf: standfast.Standfast, world: World, point: str
) -> None:
    """000-36: the call has ended without a record of its end. This process knows that and sends no variation."""

    def interrupt(passed: str) -> None:
        if passed == point:
            raise KeyboardInterrupt

    with sf.session("fix-42") as s:
        crash.arm(interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                s.effect("post", {"what": "a"}, do=world.lose if "give_up" in point else world.post)
        finally:
            crash.disarm()
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            s.effect("post", {"what": "A"}, do=world.post)
    assert world.sent == ["a"]
    assert sf.sessions.get("fix-42").state == "waiting"


def test_recorded_results_steps_and_messages_work_in_a_stopped_session(sf: standfast.Standfast, world: World) -> None:
    """000-20: only new effects are stopped."""
    with sf.session("fix-42") as s:
        s.effect("post", {"what": "before"}, do=world.post)
        lose(s, world)
        assert s.step("plan", lambda: 1) == 1
        s.say("user", "go on")
    with sf.session("fix-42") as s:
        assert s.effect("post", {"what": "before"}, do=world.post) == "sent before"
    assert world.sent == ["before", "a"]


@pytest.mark.parametrize("state", ["planned", "failed"])
def test_a_stopped_session_sends_no_planned_or_failed_effect_either(
    sf: standfast.Standfast, world: World, state: str
) -> None:
    with sf.session("fix-42") as s:
        if state == "planned":
            sf.effects.plan("post", {"what": "b"}, session="fix-42")
        else:
            with pytest.raises(standfast.NotApplied):
                s.effect("post", {"what": "b"}, do=refuse)
        lose(s, world)
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            s.effect("post", {"what": "b"}, do=world.post)
    assert world.sent == ["a"]
    (other,) = [effect for effect in sf.effects.list() if effect.intent == {"what": "b"}]
    assert other.state == state


def refuse(call: standfast.Call) -> None:
    raise standfast.NotApplied("no route")


def test_a_session_that_was_killed_is_stopped_when_it_is_opened_again(
    engine_url: str, tmp_path: Path, world: World
) -> None:
    """000-2, 000-36: kill -9 in the middle of an effect. The next process varies the arguments, and nothing is sent."""
    code = """
    with sf.session("fix-42") as s:
        def do(call):
            say("sent")
            wait()
        s.effect("post", {"what": "a"}, do=do)
    """
    with Other(engine_url, tmp_path / "data", code) as other:
        other.hear("sent")
        other.kill()
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        for _ in range(2):
            with sf.session("fix-42") as s, pytest.raises(standfast.EffectInDoubt, match="its process is gone"):
                s.effect("post", {"what": "A"}, do=world.post)
            assert sf.sessions.get("fix-42").state == "waiting"
    assert world.sent == []


def test_resolving_the_doubt_lets_the_session_continue(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s, world)
        (doubt,) = sf.effects.in_doubt()
        sf.effects.resolve(doubt.id, "applied", evidence="it is there", result="sent a")
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    assert sf.sessions.get("fix-42").state == "completed"


def test_a_call_of_the_effect_in_doubt_itself_follows_its_own_rules(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s, world, "a")
        (doubt,) = sf.effects.in_doubt()
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            s.effect("post", {"what": "a"}, do=world.post)
        assert s.effect("post", {"what": "a"}, do=world.post, idempotent=True) == "sent a"
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    assert told(sf, doubt.id)[-1] == "acknowledged"


def test_an_effect_under_way_in_another_thread_does_not_stop_the_session(sf: standfast.Standfast, world: World) -> None:
    """An effect with a live holder is not in doubt, because agents run tools at the same time."""
    import threading

    inside, finish = threading.Event(), threading.Event()

    def slow(call: standfast.Call) -> str:
        inside.set()
        assert finish.wait(30)
        return "slow"

    with sf.session("fix-42") as s:
        thread = threading.Thread(target=lambda: s.effect("post", {"what": "slow"}, do=slow))
        thread.start()
        assert inside.wait(30)
        try:
            assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
        finally:
            finish.set()
            thread.join()
    assert {effect.state for effect in sf.effects.list()} == {"acknowledged"}


def test_a_sub_agent_counts_as_its_session_and_another_session_does_not(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s.subagent("coder"), world)
        for speaker in (s, s.subagent("reviewer")):
            with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
                speaker.effect("post", {"what": "b"}, do=world.post)
        with sf.session("another") as other:
            assert other.effect("post", {"what": "b"}, do=world.post) == "sent b"


def test_an_agent_s_tools_and_the_split_form_are_stopped_too(sf: standfast.Standfast, world: World) -> None:
    @standfast.effect("mail.send", by="what")
    def send(what: str) -> str:
        world.sent.append(what)
        return what

    with sf.session("fix-42") as s:
        lose(s, world)
        (tool,) = s.tools(send)
        with pytest.raises(standfast.EffectInDoubt):
            tool("b")
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            sf.effects.begin("mail.send", {"what": "c"}, session="fix-42")
        planned = sf.effects.plan("mail.send", {"what": "d"}, session="fix-42")
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            sf.effects.dispatch(planned.id)
    assert world.sent == ["a"]
    assert sf.effects.get(planned.id).state == "planned"


def test_a_doubt_before_the_cut_stops_a_fork_too(sf: standfast.Standfast, world: World) -> None:
    """000-19: a program that forks after a doubt must not send a variation of it."""
    with sf.session("fix-42") as s:
        lose(s, world)
    sf.sessions.fork("fix-42", "fork")
    sf.sessions.fork("fork", "fork of the fork")
    for key in ("fork", "fork of the fork"):
        with sf.session(key) as s:
            with pytest.raises(standfast.EffectInDoubt, match=rf"post what=a is in doubt.*session '{key}' is stopped"):
                s.effect("post", {"what": "b"}, do=world.post)
            with pytest.raises(standfast.EffectInDoubt, match="post what=a is in doubt"):
                s.effect("post", {"what": "a"}, do=world.post)
        with pytest.raises(standfast.EffectInDoubt, match="post what=a is in doubt"):
            sf.effects.begin("post", {"what": "b"}, session=key)
        assert sf.effects.plan("post", {"what": "c"}, session=key).state == "planned"
        assert sf.sessions.get(key).state == "waiting"
    assert world.sent == ["a"]


def test_proceed_in_a_fork_counts_only_for_the_fork(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s, world)
    sf.sessions.fork("fix-42", "fork")
    with sf.session("fork") as s:
        assert [doubt.tool for doubt in s.proceed("another way")] == ["post"]
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    with sf.session("fix-42") as s:
        with pytest.raises(standfast.EffectInDoubt):
            s.effect("post", {"what": "c"}, do=world.post)
        s.proceed()
    sf.sessions.fork("fix-42", "after the parent went on")
    with sf.session("after the parent went on") as s:
        assert s.effect("post", {"what": "d"}, do=world.post) == "sent d"
    assert world.sent == ["a", "b", "d"]


def test_a_doubt_after_the_cut_does_not_stop_a_fork(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        s.say("user", "try it")
    sf.sessions.fork("fix-42", "fork")
    with sf.session("fix-42") as s:
        lose(s, world)
    with sf.session("fork") as s:
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    assert world.sent == ["a", "b"]


# -- the probe of the effect in doubt ----------------------------------------------------------------------


def test_a_new_effect_first_asks_the_declared_probe_of_the_one_in_doubt(
    timed: standfast.Standfast, world: World
) -> None:
    """000-20: the declared probe settles the doubt, and the new effect is sent."""

    @standfast.effect("mail.send", by="what")
    def send(what: str) -> str:
        world.sent.append(what)
        raise Lost(what)

    @send.probe
    def look(what: str) -> standfast.Applied | standfast.NotApplied:
        return standfast.Applied(f"found {what}") if what in world.sent else standfast.NotApplied()

    with timed.session("fix-42") as s:
        with pytest.raises(Lost):
            send("a")
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    first = next(effect for effect in timed.effects.list() if effect.tool == "mail.send")
    assert (first.state, first.result) == ("acknowledged", "found a")
    assert timed.sessions.get("fix-42").state == "completed"


def test_a_probe_that_finds_nothing_settles_the_doubt_as_failed_after_the_settle_time(
    timed: standfast.Standfast, clock: ManualClock, world: World
) -> None:
    before_us = clock.now_us()
    with timed.session("fix-42") as s:
        with pytest.raises(Lost):
            s.effect("post", {"what": "a"}, do=world.fail_before, probe=lambda call: standfast.NotApplied("nothing"))
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    states = {effect.intent["what"]: effect.state for effect in timed.effects.list()}
    assert states == {"a": "failed", "b": "acknowledged"}
    assert clock.now_us() - before_us >= 10_000_000


def test_a_probe_passed_for_one_effect_is_not_called_for_another(timed: standfast.Standfast, world: World) -> None:
    """A probe that captures its own order must not answer for another one."""
    with timed.session("fix-42") as s:
        lose(s, world, "a")
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            s.effect("post", {"what": "b"}, do=world.post, probe=lambda call: standfast.Applied("mine"))
    assert world.sent == ["a"]


@pytest.mark.parametrize("answer", [standfast.Unknown("no answer"), Lost("the probe broke")])
def test_a_probe_that_answers_unknown_leaves_the_session_stopped(
    timed: standfast.Standfast, world: World, answer: Any
) -> None:
    def probe(call: standfast.Call) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with timed.session("fix-42") as s:
        lose(s, world, probe=probe)
        with pytest.raises(standfast.EffectInDoubt, match="its probe could not tell"):
            s.effect("post", {"what": "b"}, do=world.post)
    assert world.sent == ["a"]


def test_a_declared_probe_is_also_called_by_the_next_process(timed: standfast.Standfast, world: World) -> None:
    @standfast.effect("mail.send", by="what")
    def send(what: str) -> str:
        return what

    @send.probe
    def look(what: str) -> standfast.Applied:
        return standfast.Applied(f"found {what}")

    begun = timed.effects.begin("mail.send", {"what": "a"}, by="what", session=opened(timed, "fix-42"))
    orphan(timed, begun.id)
    with timed.session("fix-42"):
        assert send("b") == "b"
    assert timed.effects.get(begun.id).result == "found a"


def opened(sf: standfast.Standfast, key: str) -> str:
    with sf.session(key):
        return key


# -- going on ----------------------------------------------------------------------------------------------


def test_proceed_passes_over_the_doubts_there_are_and_is_journalled(sf: standfast.Standfast, world: World) -> None:
    """000-36: the program calls `proceed`, and the journal records the call."""
    with sf.session("fix-42") as s:
        lose(s, world)
        passed = s.proceed("the customer was called")
        assert [effect.tool for effect in passed] == ["post"]
        assert s.effect("post", {"what": "b"}, do=world.post) == "sent b"
    (doubt,) = sf.effects.in_doubt()
    (event,) = [event for event in sf.journal.about(doubt.id) if event.type == "effect.proceeded"]
    assert "the customer was called" in (event.summary or "")
    assert sf.sessions.get("fix-42").state == "completed"
    with sf.session("fix-42") as s:  # this also holds in later openings
        assert s.effect("post", {"what": "c"}, do=world.post) == "sent c"
        assert s.proceed() == ()


def test_proceed_is_for_one_doubt_and_a_later_one_stops_again(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s, world, "a")
        s.proceed()
        lose(s, world, "b")
        with pytest.raises(standfast.EffectInDoubt, match="post what=b"):
            s.effect("post", {"what": "c"}, do=world.post)
        s.proceed()
        with pytest.raises(Lost):  # another attempt of the first effect is in doubt again
            s.effect("post", {"what": "a"}, do=world.lose, idempotent=True)
        with pytest.raises(standfast.EffectInDoubt, match="post what=a"):
            s.effect("post", {"what": "c"}, do=world.post)
    assert sf.sessions.get("fix-42").state == "waiting"


def test_a_doubt_behind_a_page_of_doubts_that_were_passed_over_stops_the_session(
    sf: standfast.Standfast, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begin, "PAGE", 2)
    with sf.session("fix-42") as s:
        for what in ("a", "b", "c", "d"):
            lose(s, world, what)
            s.proceed()
        lose(s, world, "e")
        with pytest.raises(standfast.EffectInDoubt, match="post what=e"):
            s.effect("post", {"what": "f"}, do=world.post)
    assert world.sent == ["a", "b", "c", "d", "e"]
    assert sf.sessions.get("fix-42").state == "waiting"


def test_proceed_does_not_send_the_effect_in_doubt_again(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        lose(s, world)
        s.proceed()
        with pytest.raises(standfast.EffectInDoubt):
            s.effect("post", {"what": "a"}, do=world.post)
    assert world.sent == ["a"]


def test_proceed_in_a_session_that_was_taken_is_refused(sf: standfast.Standfast, world: World) -> None:
    s = sf.session("fix-42").__enter__()
    lose(s, world)
    sf.sessions.take("fix-42")
    with pytest.raises(standfast.LeaseLost):
        s.proceed()
    (doubt,) = sf.effects.in_doubt()
    assert "proceeded" not in told(sf, doubt.id)


# -- leaving the block -------------------------------------------------------------------------------------


def test_a_swallowed_error_leaves_the_session_waiting_with_its_reason(sf: standfast.Standfast, world: World) -> None:
    """000-36: the block ended without an exception, but a person has to resolve the doubt."""
    with sf.session("fix-42") as s:
        lose(s, world)
    left = sf.sessions.get("fix-42")
    assert (left.state, left.ended_us) == ("waiting", None)
    assert "post" in (left.reason or "")
    assert "in doubt" in (left.reason or "")


def test_a_swallowed_approval_leaves_the_session_waiting(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s, pytest.raises(standfast.ApprovalRequired):
        s.effect("post", {"what": "a"}, do=world.post, approve=True)
    assert sf.sessions.get("fix-42").state == "waiting"
    sf.approvals.grant(sf.approvals.list(state="requested")[0].id, approver="a person")
    with sf.session("fix-42") as s:
        assert s.effect("post", {"what": "a"}, do=world.post, approve=True) == "sent a"
    assert sf.sessions.get("fix-42").state == "completed"


def test_a_denied_approval_that_was_swallowed_leaves_the_session_waiting(sf: standfast.Standfast, world: World) -> None:
    with sf.session("fix-42") as s:
        with pytest.raises(standfast.ApprovalRequired) as asked:
            s.effect("post", {"what": "a"}, do=world.post, approve=True)
        sf.approvals.deny(asked.value.approval_id, approver="a person")
        with pytest.raises(standfast.ApprovalRequired, match="was denied"):
            s.effect("post", {"what": "a"}, do=world.post, approve=True)
    assert sf.sessions.get("fix-42").state == "waiting"
    with sf.session("fix-42"):
        pass
    assert sf.sessions.get("fix-42").state == "completed"


def test_a_doubt_that_was_settled_before_the_end_leaves_the_session_completed(
    sf: standfast.Standfast, world: World
) -> None:
    with sf.session("fix-42") as s:
        lose(s, world)
        with pytest.raises(standfast.EffectInDoubt):
            s.effect("post", {"what": "a"}, do=world.post)
        sf.effects.resolve(sf.effects.in_doubt()[0].id, "not_applied", evidence="nothing there")
    assert sf.sessions.get("fix-42").state == "completed"


def test_an_exception_still_fails_the_session_and_sys_exit_waits(sf: standfast.Standfast, world: World) -> None:
    def leave(key: str, error: BaseException) -> None:
        with sf.session(key) as s:
            lose(s, world, key)
            raise error

    with pytest.raises(ZeroDivisionError):
        leave("one", ZeroDivisionError())
    assert sf.sessions.get("one").state == "failed"
    with pytest.raises(SystemExit):
        leave("two", SystemExit(0))
    assert sf.sessions.get("two").state == "waiting"


def test_a_command_of_session_run_that_swallowed_a_doubt_leaves_it_waiting(sf: standfast.Standfast) -> None:
    opened = sf.sessions.open("fix-42").record
    begun = sf.effects.begin("post", {"what": "a"}, session="fix-42")
    orphan(sf, begun.id)
    assert opened.holder is not None
    left = sf.sessions.exited("fix-42", holder=opened.holder, code=0)
    assert (left.state, left.reason) == ("waiting", "post is in doubt")


def test_async_sessions_stop_and_continue_in_the_same_way(engine_url: str, tmp_path: Path, world: World) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            async with sf.session("fix-42") as s:
                with pytest.raises(Lost):
                    await s.effect("post", {"what": "a"}, do=world.lose)
                with pytest.raises(standfast.EffectInDoubt):
                    await s.effect("post", {"what": "b"}, do=world.post)
            assert (await sf.sessions.get("fix-42")).state == "waiting"
            async with sf.session("fix-42") as s:
                await s.proceed()
                assert await s.effect("post", {"what": "b"}, do=world.post) == "sent b"
            assert (await sf.sessions.get("fix-42")).state == "completed"

    asyncio.run(main())
