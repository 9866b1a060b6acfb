"""The options of a declaration: by, find, leave_out, approve, wait, retry. On both engines."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.clock import SECOND_US, ManualClock
from standfast.ledger.effects.declared import declared
from standfast_prove.scenes import PullRequest, only, told
from tests import frameworks


class Lost(Exception):
    """The connection broke: the request may have arrived."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(engine_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[standfast.Standfast]:
    with standfast.open(engine_url, data_dir=tmp_path / "data", clock=clock) as store:
        yield store


# -- by ------------------------------------------------------------------------------------------------


def test_by_is_required_and_all_means_all_arguments(sf: standfast.Standfast) -> None:
    """002-10: without `by`, text written by the LLM would be part of the identity."""
    undeclared: Any = standfast.effect
    with pytest.raises(standfast.InvalidInput, match="by is missing"):
        undeclared("push")

    sent: list[str] = []

    @standfast.effect("push", by=standfast.ALL)
    def push(branch: str, head: str, force: bool = False) -> None:
        sent.append(f"{branch} {head}")

    with sf.session("a"):
        push("main", "1")
        push("main", head="2")
    with sf.session("a"):
        push("main", "1", force=False)
    assert sent == ["main 1", "main 2"]
    assert repr(standfast.ALL) == "standfast.ALL"


def test_a_parameter_is_in_by_or_left_out(sf: standfast.Standfast) -> None:
    with pytest.raises(standfast.InvalidInput, match="'client' is both in by and in leave_out"):
        standfast.effect("t", by=("client",), leave_out="client")(lambda client: None)
    with pytest.raises(standfast.InvalidInput, match="leave_out names 'clint'"):
        standfast.effect("t", by=(), leave_out="clint")(lambda client: None)


# -- find ----------------------------------------------------------------------------------------------


def lost_after(find: Callable[..., Any] | None, sent: list[str], **options: Any) -> Any:
    @standfast.effect("github.open_pr", by=("repo", "branch"), find=find, **options)
    def open_pr(repo: str, branch: str, title: str) -> PullRequest:
        sent.append(title)
        if len(sent) == 1:
            raise Lost
        return PullRequest(len(sent), title)

    return open_pr


def test_find_returns_the_result_of_what_happened(sf: standfast.Standfast) -> None:
    """000-22, 002-11: the effect is found, with the arguments that were recorded, and not sent again."""
    sent: list[str] = []
    asked: list[tuple[str, str]] = []

    def find_pr(branch: str, title: str) -> PullRequest:
        asked.append((branch, title))
        return PullRequest(7, "found")

    open_pr = lost_after(find_pr, sent)
    with sf.session("a"):
        with pytest.raises(Lost):
            open_pr("a/b", "fix", "the first title")
        assert open_pr("a/b", "fix", "another title") == PullRequest(7, "found")
    assert (sent, asked) == (["the first title"], [("fix", "the first title")])
    assert (only(sf).context["probe"], only(sf).evidence) == (
        find_pr.__qualname__,
        f"its probe found it: {find_pr.__qualname__}",
    )


def test_a_declaration_that_has_ended_leaves_the_one_before_it() -> None:
    """000-22: a dead program left a doubt. A later declaration of the same name must not replace its probe."""

    @standfast.effect("shared.push", by=("branch",), find=lambda branch: "found")
    def push(branch: str) -> str:
        raise Lost

    later = standfast.effect("shared.push", by=("branch",))(lambda branch: None)
    assert declared("shared.push") is later
    del later
    gc.collect()
    assert declared("shared.push") is push


def test_find_that_returns_none_means_that_it_did_not_happen(timed: standfast.Standfast) -> None:
    """000-22: a negative answer counts after `settle`. This call then sends the effect."""
    sent: list[str] = []
    asked: list[int] = []
    open_pr = lost_after(lambda repo: asked.append(1), sent)
    with timed.session("a"):
        with pytest.raises(Lost):
            open_pr("a/b", "fix", "one")
        assert open_pr("a/b", "fix", "two") == PullRequest(2, "two")
    assert (sent, len(asked)) == (["one", "two"], 2)


def test_find_that_raises_cannot_tell(sf: standfast.Standfast) -> None:
    sent: list[str] = []

    def find() -> PullRequest:
        raise ConnectionError("no route")

    open_pr = lost_after(find, sent)
    with sf.session("a"):
        with pytest.raises(Lost):
            open_pr("a/b", "fix", "one")
        with pytest.raises(standfast.EffectInDoubt, match=r"could not tell .ConnectionError: no route"):
            open_pr("a/b", "fix", "one")
    assert sent == ["one"]


@pytest.mark.parametrize(("answer", "sends"), [(True, 1), (False, 2)])
def test_find_of_an_effect_without_a_result_returns_a_bool(
    timed: standfast.Standfast, answer: bool, sends: int
) -> None:
    sent: list[str] = []

    @standfast.effect("git.push", by=("branch",), find=lambda branch: answer)
    def push(branch: str) -> None:
        sent.append(branch)
        if len(sent) == 1:
            raise Lost

    with timed.session("a"):
        with pytest.raises(Lost):
            push("main")
        push("main")
    assert len(sent) == sends
    assert only(timed).state == "acknowledged"


@pytest.mark.parametrize("value", [True, False, "pull/7", {"number": 7}])
def test_find_that_returns_something_else_is_an_error_and_changes_nothing(
    sf: standfast.Standfast, value: object
) -> None:
    """RULES 4: a bool from `find` is ambiguous if the effect has a result. A value of another type cannot be
    returned.
    """
    sent: list[str] = []
    open_pr = lost_after(lambda: value, sent)
    with sf.session("a"):
        with pytest.raises(Lost):
            open_pr("a/b", "fix", "one")
        with pytest.raises(standfast.InvalidInput, match=r"github.open_pr: (find returned|result of its probe)"):
            open_pr("a/b", "fix", "one")
    assert sent == ["one"]
    assert [effect.tool for effect in sf.effects.in_doubt()] == ["github.open_pr"]


def test_find_without_a_result_that_returns_no_bool_is_an_error(sf: standfast.Standfast) -> None:
    @standfast.effect("git.push", by=(), find=lambda: "yes")
    def push() -> None:
        raise Lost

    with sf.session("a"):
        with pytest.raises(Lost):
            push()
        with pytest.raises(standfast.InvalidInput, match="find returned str, and the effect has no result"):
            push()


def test_a_find_that_cannot_work_is_refused_at_the_declaration() -> None:
    def declare(function: Callable[..., Any], find: Callable[..., Any]) -> Any:
        return standfast.effect("t", by=(), find=find)(function)

    def untyped(a: int):
        return a

    def typed(a: int) -> int:
        return a

    with pytest.raises(standfast.InvalidInput, match=r"find= needs to know what .*untyped.* returns"):
        declare(untyped, lambda a: 1)
    with pytest.raises(standfast.InvalidInput, match=r"use the long form: @is_up.probe"):

        @standfast.effect("t", by=(), find=lambda: True)
        def is_up() -> bool:
            return True

    with pytest.raises(standfast.InvalidInput, match="retry is a whole number from 1 to 10"):
        standfast.effect("t", by=(), retry=11)
    with pytest.raises(standfast.InvalidInput, match=r"its find .* has the parameter 'b'"):
        declare(typed, lambda b: 1)
    declared = declare(typed, lambda a: 1)
    with pytest.raises(standfast.InvalidInput, match="has find= already"):
        declared.probe(lambda a: standfast.Unknown())
    with pytest.raises(standfast.InvalidInput, match="its compensate function t is an effect"):
        declared.compensate(declared)


def test_another_call_of_the_session_asks_the_find_of_the_effect_in_doubt(sf: standfast.Standfast) -> None:
    """RULES 4, stopped session: `find` resolves the doubt before the next effect is sent."""
    sent: list[str] = []
    open_pr = lost_after(lambda: PullRequest(7, "found"), sent)
    with sf.session("a"):
        with pytest.raises(Lost):
            open_pr("a/b", "fix", "one")
        assert open_pr("a/b", "other", "two") == PullRequest(2, "two")
        assert open_pr("a/b", "fix", "one") == PullRequest(7, "found")
    assert sent == ["one", "two"]


# -- leave_out -------------------------------------------------------------------------------------------


def test_a_left_out_parameter_reaches_the_function_and_is_not_recorded(sf: standfast.Standfast) -> None:
    """002-10: a client object cannot be JSON, so it is not part of the intent."""
    clients: list[object] = []

    @standfast.effect("pay", by=standfast.ALL, leave_out=("client",))
    def pay(client: object, cents: int) -> int:
        clients.append(client)
        return cents

    first, second = object(), object()
    with sf.session("a"):
        assert pay(first, 5) == 5
    with sf.session("a"):
        assert pay(second, cents=5) == 5
    assert clients == [first]
    assert only(sf).intent == {"cents": 5}


def test_the_context_of_a_framework_is_left_out_automatically(sf: standfast.Standfast) -> None:
    """002-20: parameters that LangGraph passes are not part of the intent."""
    from typing import Annotated

    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import InjectedToolCallId
    from langgraph.prebuilt import InjectedState

    def pay(
        cents: int,
        config: RunnableConfig,
        state: Annotated[dict[str, Any], InjectedState],
        call_id: Annotated[str, InjectedToolCallId],
    ) -> list[Any]:
        return [cents, config["tags"], state["messages"], call_id]

    pay.__annotations__ = {
        "cents": int,
        "config": RunnableConfig,
        "state": Annotated[dict[str, Any], InjectedState],
        "call_id": Annotated[str, InjectedToolCallId],
        "return": list[Any],
    }
    declared = standfast.effect("pay", by=standfast.ALL)(pay)
    for tags in (["one"], ["two"]):
        with sf.session("a") as s:
            (tool,) = s.tools(declared)
            assert tool(5, config={"tags": tags}, state={"messages": []}, call_id="c1") == [5, ["one"], [], "c1"]
    assert only(sf).intent == {"cents": 5}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requirement", "module", "name"),
    [
        (frameworks.OPENAI_AGENTS, "agents", "RunContextWrapper"),
        (frameworks.OPENAI_AGENTS, "agents.tool_context", "ToolContext"),
        (frameworks.PYDANTIC_AI, "pydantic_ai", "RunContext"),
    ],
)
def test_the_context_of_other_frameworks_is_left_out_too(
    sf: standfast.Standfast, requirement: str, module: str, name: str
) -> None:
    """002-20: the framework passes this parameter, which cannot be JSON."""
    import importlib

    frameworks.importable(requirement)
    kind = getattr(importlib.import_module(module), name)

    def pay(ctx: Any, cents: int) -> bool:
        return ctx is context

    pay.__annotations__ = {"ctx": kind[Any], "cents": int, "return": bool}
    context = object()
    declared = standfast.effect("pay", by=standfast.ALL)(pay)
    with sf.session("a") as s:
        assert s.tools(declared)[0](context, 5) is True
    assert only(sf).intent == {"cents": 5}


# -- approve, wait -----------------------------------------------------------------------------------------


def test_approve_as_a_function_of_the_arguments(sf: standfast.Standfast) -> None:
    """002-20: only a large refund needs a person."""

    @standfast.effect("refund", by=("order",), approve=lambda cents: cents > 1000)
    def refund(order: str, cents: int) -> int:
        return cents

    with sf.session("a"):
        assert refund("1", 500) == 500
        with pytest.raises(standfast.ApprovalRequired):
            refund("2", 5000)
    assert [approval.tool for approval in sf.approvals.list()] == ["refund"]


def test_approve_that_returns_no_bool_is_refused(sf: standfast.Standfast) -> None:
    """A forgotten `return` must not send without an approval."""

    def forgotten(cents):
        return None

    @standfast.effect("refund", by=(), approve=forgotten)
    def refund(cents: int) -> int:
        return cents

    with sf.session("a"), pytest.raises(standfast.InvalidInput, match="returned NoneType"):
        refund(1)
    assert sf.effects.list() == []
    wrong: Any = "yes"
    with pytest.raises(standfast.InvalidInput, match="neither a bool nor a function"):
        standfast.effect("refund", by=(), approve=wrong)


def test_s_effect_takes_approve_as_a_function_of_the_call(sf: standfast.Standfast) -> None:
    def send(cents: int) -> Any:
        return s.effect("refund", {"cents": cents}, do=lambda call: 1, approve=lambda call: call.intent["cents"] > 9)

    with sf.session("a") as s:
        assert send(1) == 1
        with pytest.raises(standfast.ApprovalRequired):
            send(10)


def test_wait_waits_for_the_answer_inside_the_call(sf: standfast.Standfast) -> None:
    """002-20: another thread of the program, or a person elsewhere, answers."""

    @standfast.effect("refund", by=("order",), approve=True, wait="1h")
    def refund(order: str) -> str:
        return f"refunded {order}"

    def answer() -> None:
        with sf._store.watch() as watch:
            while not (found := sf.approvals.list()):
                watch.wait(1)
        sf.approvals.grant(found[0].id, approver="ann")

    thread = threading.Thread(target=answer)
    thread.start()
    with sf.session("a"):
        assert refund("1") == "refunded 1"
    thread.join()
    assert only(sf).attempt == 1


def test_wait_raises_after_its_time_and_the_session_waits(sf: standfast.Standfast) -> None:
    @standfast.effect("refund", by=("order",), approve=True, wait=0)
    def refund(order: str) -> str:
        return f"refunded {order}"

    with sf.session("a"), pytest.raises(standfast.ApprovalRequired) as error:
        refund("1")
    assert error.value.effect_id == only(sf).id
    assert sf.sessions.get("a").state == "waiting"
    sf.approvals.grant(error.value.approval_id, approver="ann")
    with sf.session("a"):
        assert refund("1") == "refunded 1"


def test_a_denied_request_is_not_waited_for(sf: standfast.Standfast) -> None:
    @standfast.effect("refund", by=("order",), approve=True, wait="1h")
    def refund(order: str) -> str:
        return f"refunded {order}"

    with sf.session("a"), pytest.raises(standfast.ApprovalRequired) as error:
        refund.with_options(wait=None)("1")
    sf.approvals.deny(error.value.approval_id, approver="ann", rationale="too late")
    with sf.session("a"), pytest.raises(standfast.StandfastError, match="denied"):
        refund("1")


def test_a_request_takes_its_reason_from_the_enclosing_decision(sf: standfast.Standfast) -> None:
    """002-20: the approver reads the decision's reason."""

    @standfast.effect("refund", by=("order",), approve=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    def reasons() -> list[str | None]:
        return [approval.why for approval in reversed(sf.approvals.list())]

    with sf.session("a") as s:
        with pytest.raises(standfast.ApprovalRequired), s.decide("refund 1", why="it arrived broken"):
            refund("1")
        with pytest.raises(standfast.ApprovalRequired), s.decide("refund 2"), s.subagent("till"):
            refund("2")
        with pytest.raises(standfast.ApprovalRequired):
            refund("3")
        with pytest.raises(standfast.ApprovalRequired), s.decide("refund 4", why="asked twice"):
            s.effect(refund, "4", why="its own")
    assert reasons() == ["refund 1: it arrived broken", "refund 2", None, "its own"]


def test_the_reason_is_found_in_an_async_session_too(engine_url: str, tmp_path: Path) -> None:
    @standfast.effect("refund", by=("order",), approve=True)
    async def refund(order: str) -> str:
        return f"refunded {order}"

    async def main() -> list[str | None]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("a") as s:
            async with s.decide("refund 1", why="broken"):
                with pytest.raises(standfast.ApprovalRequired):
                    await refund("1")
            with pytest.raises(standfast.ApprovalRequired):
                await refund("2")
            return [approval.why for approval in reversed(await sf.approvals.list())]

    assert asyncio.run(main()) == ["refund 1: broken", None]


# -- retry ---------------------------------------------------------------------------------------------


def test_retry_sends_again_after_an_exception_that_proves_not_applied(
    timed: standfast.Standfast, clock: ManualClock
) -> None:
    """002-6: each attempt is recorded. The pauses are 1 s, 2 s and 4 s."""
    at: list[int] = []

    @standfast.effect("post", by=(), not_applied=(ConnectionRefusedError,), retry=4)
    def post(call: standfast.Call) -> int:
        at.append(clock.now_us())
        if len(at) < 4:
            raise ConnectionRefusedError
        return call.attempt

    with timed.session("a"):
        assert post() == 4
    assert [(b - a) // SECOND_US for a, b in itertools.pairwise(at)] == [1, 2, 4]
    assert told(timed, only(timed).id) == ["planned", *["dispatched", "failed"] * 3, "dispatched", "acknowledged"]


def test_retry_ends_at_its_number_and_its_count_survives(timed: standfast.Standfast) -> None:
    attempts: list[int] = []

    @standfast.effect("post", by=(), retry=3)
    def post(call: standfast.Call) -> None:
        attempts.append(call.attempt)
        raise standfast.NotApplied("no route")

    for _ in range(2):
        with timed.session("a"), pytest.raises(standfast.NotApplied, match="no route"):
            post()
    assert attempts == [1, 2, 3, 4], "a later call sends once more"


def test_retry_sends_nothing_again_that_may_have_arrived(timed: standfast.Standfast) -> None:
    attempts: list[int] = []

    @standfast.effect("post", by=(), not_applied=(ConnectionRefusedError,), retry=5)
    def post(call: standfast.Call) -> None:
        attempts.append(call.attempt)
        raise ConnectionRefusedError if call.attempt == 1 else TimeoutError

    with timed.session("a"), pytest.raises(TimeoutError):
        post()
    assert attempts == [1, 2]
    assert [effect.tool for effect in timed.effects.in_doubt()] == ["post"]


def test_one_grant_allows_the_attempts_of_retry(timed: standfast.Standfast) -> None:
    """R14, 002-20: one grant allows as many dispatches as its question names."""
    attempts: list[int] = []

    @standfast.effect("post", by=(), approve=True, retry=3)
    def post(call: standfast.Call) -> None:
        attempts.append(call.attempt)
        raise standfast.NotApplied

    with timed.session("a"), pytest.raises(standfast.ApprovalRequired) as error:
        post()
    assert timed.approvals.get(error.value.approval_id).attempts == 3
    timed.approvals.grant(error.value.approval_id, approver="ann")
    with timed.session("a"), pytest.raises(standfast.NotApplied):
        post()
    assert attempts == [1, 2, 3]
    with timed.session("a"), pytest.raises(standfast.ApprovalRequired):
        post()
