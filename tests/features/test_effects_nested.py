"""Nested effects: refused before anything is recorded. On both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast_prove.scenes import orphan

INNER: dict[str, Callable[[standfast.Standfast, Any], object]] = {
    "effect": lambda sf, s: s.effect("inner", do=lambda call: 1),
    "approval": lambda sf, s: s.effect("inner", do=lambda call: 1, approve=True),
    "tool": lambda sf, s: s.tools(inner)[0](),
    "step": lambda sf, s: s.step("inner", lambda: 1),
    "ask": lambda sf, s: s.ask("reviewer", 1, key="inner"),
    "begin": lambda sf, s: sf.effects.begin("inner"),
    "plan": lambda sf, s: sf.effects.plan("inner"),
    "request": lambda sf, s: sf.approvals.request("done"),
    "wait": lambda sf, s: sf.approvals.wait("done", timeout=0),
    "compensate": lambda sf, s: sf.effects.compensate("done", lambda result: None),
}


@standfast.effect("inner", by=())
def inner() -> int:
    return 1


def refused(error: pytest.ExceptionInfo[standfast.InvalidInput]) -> None:
    assert error.value.code == "nested_effect"
    assert "inside effect 'outer'" in error.value.message


@pytest.mark.parametrize("kind", list(INNER))
def test_nothing_is_recorded_inside_the_body_of_an_effect(sf: standfast.Standfast, kind: str) -> None:
    """000-19: otherwise two effects, one inside the other, could be in doubt together."""
    with sf.session("a") as s:
        s.effect("done", key="done", do=lambda call: 1)
        with pytest.raises(standfast.InvalidInput) as error:
            s.effect("outer", do=lambda call: INNER[kind](sf, s))
    refused(error)
    assert {effect.tool for effect in sf.effects.list()} == {"done", "outer"}
    assert sf.approvals.list() == []
    assert [effect.tool for effect in sf.effects.in_doubt()] == ["outer"]


@pytest.mark.parametrize("kind", list(INNER))
def test_a_body_that_sends_and_then_nests_is_not_sent_again(sf: standfast.Standfast, kind: str) -> None:
    """000-19: after the refusal, the outer function may have sent its request already, so it stays in doubt."""
    sent: list[int] = []

    def outer(call: standfast.Call) -> object:
        sent.append(call.attempt)
        return INNER[kind](sf, s)

    with sf.session("a") as s:
        s.effect("done", key="done", do=lambda call: 1)
        with pytest.raises(standfast.InvalidInput) as error:
            s.effect("outer", do=outer)
    refused(error)
    with sf.session("a") as s, pytest.raises(standfast.EffectInDoubt):
        s.effect("outer", do=outer)
    assert sent == [1]
    assert sf.sessions.get("a").state == "waiting"


@pytest.mark.parametrize("kind", ["effect", "approval", "step", "ask"])
def test_only_the_outer_effect_waits_for_a_person(sf: standfast.Standfast, kind: str) -> None:
    """000-19: no row of the nested call is stored, and the error names both solutions."""
    with pytest.raises(standfast.InvalidInput) as error, sf.session("a") as s:
        s.effect("outer", do=lambda call: INNER[kind](sf, s))
    refused(error)
    assert "inner" in error.value.message
    assert "not_applied=(standfast.InvalidInput,)" in error.value.hint
    (note,) = error.value.__notes__
    id = sf.effects.in_doubt()[0].id
    assert f"standfast effect resolve {id[-6:]} --not-applied" in note
    items = [(item.kind, item.id) for item in sf.recovery.report().items if item.here]
    assert [item for item in items if item[0] != "session_failed"] == [("effect_in_doubt", id)]
    assert (sf.approvals.list(), sf.mail.list()) == ([], [])
    with sf.session("a") as s:
        assert s.resumed is not None
        assert [doubt.tool for doubt in s.resumed.in_doubt] == ["outer"]
        sf.effects.resolve(id, "not_applied", evidence="nothing was sent")
        assert s.effect("outer", do=lambda call: 1) == 1


def test_an_approval_of_the_outer_effect_leaves_nothing_in_doubt(sf: standfast.Standfast) -> None:
    """000-19: approval is requested before the function runs. If a person denies it, nothing was dispatched."""
    sent: list[int] = []

    def outer(call: standfast.Call) -> None:
        sent.append(call.attempt)

    for _ in range(2):
        with sf.session("a") as s, pytest.raises(standfast.ApprovalRequired) as caught:
            s.effect("outer", do=outer, approve=True, wait=0)
        assert [effect.state for effect in sf.effects.list()] == ["planned"]
        assert sf.effects.in_doubt() == []
    sf.approvals.grant(str(caught.value.approval_id), approver="ada")
    with sf.session("a") as s:
        s.effect("outer", do=outer, approve=True)
    assert sent == [1]


@pytest.mark.parametrize("found", [standfast.Applied(7), standfast.NotApplied()])
def test_a_probe_settles_the_outer_effect_without_a_person(sf: standfast.Standfast, found: Any) -> None:
    """000-19: the next call of the corrected program asks the probe first."""
    sent: list[int] = []
    probe: Any = lambda call: found  # noqa: E731
    with pytest.raises(standfast.InvalidInput), sf.session("a") as s:
        s.effect("outer", do=lambda call: s.step("inner", lambda: 1), probe=probe, settle=0)
    with sf.session("a") as s:
        assert s.step("inner", lambda: 1) == 1
        assert s.effect("outer", do=lambda call: sent.append(call.attempt) or 7, probe=probe, settle=0) == 7
    assert sent == ([] if isinstance(found, standfast.Applied) else [2])
    assert sf.effects.in_doubt() == []
    assert sf.sessions.get("a").state == "completed"


def test_a_function_whose_inner_call_comes_first_may_declare_that_nothing_was_sent(sf: standfast.Standfast) -> None:
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput) as error:
        s.effect("outer", do=lambda call: s.step("plan", lambda: 1), not_applied=(standfast.InvalidInput,))
    refused(error)
    assert [effect.state for effect in sf.effects.list()] == ["failed"]


def test_a_planned_effect_is_not_dispatched_inside_another(sf: standfast.Standfast) -> None:
    planned = sf.effects.plan("inner")
    with sf.session("a") as s, pytest.raises(standfast.InvalidInput) as error:
        s.effect("outer", do=lambda call: sf.effects.dispatch(planned.id))
    refused(error)
    assert sf.effects.get(planned.id).state == "planned"


def test_a_probe_and_a_compensation_are_inside_their_effect(sf: standfast.Standfast) -> None:
    caught: list[str] = []

    def nest(*_: Any) -> Any:
        try:
            with sf.session("b") as s:
                s.effect("inner", do=lambda call: 1)
        except standfast.InvalidInput as error:
            caught.append(error.code)
        return standfast.Applied("found")

    sf.effects.begin("outer", key="k")
    orphan(sf, "k")
    with sf.session("a") as s:
        assert s.effect("outer", key="k", do=lambda call: 1, probe=nest) == "found"
    sf.effects.compensate("k", lambda result: nest() and None)
    assert caught == ["nested_effect", "nested_effect"]
    assert "inner" not in {effect.tool for effect in sf.effects.list()}


def test_after_the_function_effects_are_allowed_again_even_if_it_raised(sf: standfast.Standfast) -> None:
    def no(call: standfast.Call) -> None:
        raise standfast.NotApplied("no")

    with sf.session("a") as s:
        with pytest.raises(standfast.NotApplied):
            s.effect("outer", do=no)
        assert s.effect("inner", do=lambda call: 1) == 1
        assert s.step("plan", lambda: 1) == 1


def test_a_body_may_read_and_say(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        assert s.effect("outer", do=lambda call: s.say("user", "hello") and len(sf.effects.list())) == 1


def test_an_effect_inside_a_step_is_not_nested_in_an_effect(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        assert s.step("plan", lambda: s.effect("inner", do=lambda call: 1)) == 1


def test_nested_coroutines_are_refused_too(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("a") as s:

            async def outer(call: standfast.Call) -> Any:
                return await s.effect("inner", do=lambda call: 1)

            with pytest.raises(standfast.InvalidInput) as error:
                await s.effect("outer", do=outer)
            refused(error)
            assert [effect.tool for effect in await sf.effects.list()] == ["outer"]
            await s.proceed()
            assert await s.effect("inner", do=lambda call: 1) == 1

    asyncio.run(main())


def test_a_thread_of_the_body_s_own_context_is_inside_too(sf: standfast.Standfast) -> None:
    import contextvars
    import threading

    seen: list[object] = []

    def outer(call: standfast.Call) -> None:
        def run() -> None:
            try:
                s.effect("inner", do=lambda call: 1)
            except standfast.InvalidInput as error:
                seen.append(error.code)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(run,))
        thread.start()
        thread.join()

    with sf.session("a") as s:
        s.effect("outer", do=outer)
    assert seen == ["nested_effect"]
