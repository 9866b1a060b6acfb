"""Called effects and steps: the current session of a context. On both engines."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast_prove.scenes import only

SENT: list[str] = []


@standfast.effect("mail.send", by=("to",))
def send(to: str, body: str = "") -> str:
    SENT.append(to)
    return f"sent to {to}"


@standfast.effect("mail.asend", by=("to",))
async def asend(to: str) -> str:
    await asyncio.sleep(0)
    SENT.append(to)
    return f"sent to {to}"


@standfast.step
def plan(issue: str) -> list[str]:
    SENT.append(f"planned {issue}")
    return [issue]


@standfast.step
async def aplan(issue: str) -> list[str]:
    await asyncio.sleep(0)
    SENT.append(f"planned {issue}")
    return [issue]


@pytest.fixture(autouse=True)
def nothing_sent() -> None:
    SENT.clear()


@pytest.fixture
def aopened(engine_url: str, tmp_path: Path) -> Callable[[], standfast.AsyncStandfast]:
    return lambda: standfast.aopen(engine_url, data_dir=tmp_path / "data")


def sessions(sf: standfast.Standfast) -> list[tuple[str, str | None]]:
    """The tool and the session of every effect, oldest first."""
    keys = {record.id: record.key for record in sf.sessions.list()}
    return [(effect.intent["to"], keys.get(effect.session_id or "")) for effect in reversed(sf.effects.list())]


# -- calling -----------------------------------------------------------------------------------------


def test_a_call_inside_a_session_is_recorded_once(sf: standfast.Standfast) -> None:
    """001-34, 002-10: a call is an effect of the session; a second run returns the recorded result."""
    for _ in range(2):
        with sf.session("a"):
            assert send("ann", body="hello") == "sent to ann"
    assert SENT == ["ann"]
    assert (only(sf).tool, only(sf).state, only(sf).intent) == (
        "mail.send",
        "acknowledged",
        {"to": "ann", "body": "hello"},
    )


def test_a_call_outside_a_session_is_refused_and_sends_nothing(sf: standfast.Standfast) -> None:
    """002-10: nothing is ever sent unrecorded."""
    with pytest.raises(standfast.NoSession, match=r"mail.send was called outside a session") as error:
        send("ann")
    assert (error.value.code, error.value.exit_code) == ("no_session", 1)
    assert "s.bind" in error.value.hint
    with pytest.raises(standfast.NoSession):
        asend("ann")
    assert SENT == []


def test_plain_runs_the_function_without_a_record(sf: standfast.Standfast) -> None:
    assert send.plain("ann") == "sent to ann"
    with sf.session("a"):
        assert send.plain("ann") == "sent to ann"
    assert sf.effects.list() == []


def test_a_step_is_the_plain_function_outside_a_session_and_a_step_inside(sf: standfast.Standfast) -> None:
    """001-6: inside a session it runs once; a second run returns the stored result."""
    assert plan("42") == plan("42") == ["42"]
    for _ in range(2):
        with sf.session("a") as s:
            assert plan("43") == ["43"]
    with sf.session("a") as s:
        assert s.step("plan", lambda issue: ["not run"], "43") == ["43"], "the explicit form of the same step"
    assert SENT == ["planned 42", "planned 42", "planned 43"]


def test_an_effect_and_a_step_show_their_name_and_signature() -> None:
    """The repr of an effect or a step shows its fields."""

    @standfast.effect("mail.send", by=("to",))
    def send_mail(call: standfast.Call, to: str) -> int:
        return 1

    @standfast.step
    def plan_it(issue: int) -> str:
        return ""

    assert repr(send_mail) == "<effect mail.send(to: 'str') -> 'int'>"
    assert repr(plan_it).endswith("plan_it(issue: 'int') -> 'str'>")


def test_a_step_has_the_name_of_its_class_or_its_own(sf: standfast.Standfast) -> None:
    ran: list[str] = []

    class Planner:
        @standfast.step
        def plan(self, issue: str) -> str:
            ran.append(issue)
            return f"plan of {issue}"

    @standfast.step("other")
    def local(issue: str) -> str:
        ran.append(f"other {issue}")
        return issue

    assert (Planner.plan.name, Planner().plan.name, local.name) == ("Planner.plan", "Planner.plan", "other")
    for _ in range(2):
        with sf.session("a"):
            assert Planner().plan("42") == "plan of 42"
            assert local("42") == "42"
    assert ran == ["42", "other 42"]


def test_the_explicit_form_takes_a_declared_step(sf: standfast.Standfast) -> None:
    for _ in range(2):
        with sf.session("a") as s:
            assert s.step("plan", plan, "42") == ["42"]
            assert s.step("other", plan, "42") == ["42"]
    assert SENT == ["planned 42"] * 2
    with sf.session("a") as s:
        assert s.resumed is not None
        assert s.resumed.steps == 2


def test_a_step_without_a_name_is_refused() -> None:
    for nameless in (lambda: 1, functools.partial(int), 3):
        declare: Any = standfast.step
        with pytest.raises(standfast.InvalidInput, match="a step needs a name"):
            declare(nameless)


def test_a_method_is_called_in_the_session_too(sf: standfast.Standfast) -> None:
    class Client:
        def __init__(self) -> None:
            self.sent: list[str] = []

        @standfast.effect("client.post", by="to")
        def post(self, to: str) -> int:
            self.sent.append(to)
            return len(self.sent)

    client = Client()
    with sf.session("a"):
        assert client.post("ann") == 1
    with sf.session("a"):
        assert client.post(to="ann") == 1
    assert client.sent == ["ann"]
    assert only(sf).intent == {"to": "ann"}


def test_a_wrong_argument_is_refused_before_anything_is_recorded(sf: standfast.Standfast) -> None:
    call: Any = send
    with (
        sf.session("a"),
        pytest.raises(standfast.InvalidInput, match=r"mail.send: .*'again'(?s:.*)options go to send.with_options"),
    ):
        call("ann", again=True)
    assert sf.effects.list() == []


def test_generator_functions_are_refused_at_declaration() -> None:
    """002-10: a generator's body would run after the call was recorded."""

    def lines() -> Iterator[str]:
        yield "a"

    async def alines() -> AsyncIterator[str]:
        yield "a"

    for function in (lines, alines):
        with pytest.raises(standfast.InvalidInput, match="is a generator function"):
            standfast.effect("lines", by=())(function)
        with pytest.raises(standfast.InvalidInput, match="is a generator function"):
            standfast.step(function)


# -- who inherits the session ---------------------------------------------------------------------------


def test_tasks_threads_of_to_thread_and_copied_contexts_inherit_the_session(sf: standfast.Standfast) -> None:
    """001-27: sub-tasks of an agent are part of its session."""

    async def main() -> None:
        await asyncio.gather(asyncio.create_task(asend("task")), asyncio.to_thread(send, "to_thread"))

    with sf.session("a"):
        asyncio.run(main())
        thread = threading.Thread(target=contextvars.copy_context().run, args=(send, "copied"))
        thread.start()
        thread.join()
    assert sorted(sessions(sf)) == [("copied", "a"), ("task", "a"), ("to_thread", "a")]


def test_a_bare_executor_does_not_inherit_the_session_and_bind_carries_it(sf: standfast.Standfast) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # its thread is older than the session
        with sf.session("a") as s:
            with pytest.raises(standfast.NoSession):
                pool.submit(send, "ann").result()
            assert pool.submit(s.bind(send), "ann").result() == "sent to ann"
            assert pool.submit(s.bind(plan), "42").result() == ["42"]
    assert sessions(sf) == [("ann", "a")]


def test_bind_carries_the_session_into_a_loop_of_its_own(sf: standfast.Standfast) -> None:
    async def work(to: str) -> str:
        return await asend(to)

    with ThreadPoolExecutor(1) as pool, sf.session("a") as s:
        assert pool.submit(lambda: asyncio.run(s.bind(work)("ann"))).result() == "sent to ann"
    assert sessions(sf) == [("ann", "a")]


def test_the_innermost_session_counts(sf: standfast.Standfast) -> None:
    with sf.session("outer"):
        with sf.session("inner"):
            send("one")
        send("two")
    with pytest.raises(standfast.NoSession):
        send("three")
    assert sessions(sf) == [("one", "inner"), ("two", "outer")]


def test_a_sub_agent_binds_its_effects_and_steps(sf: standfast.Standfast) -> None:
    """001-27: effects and steps of a sub-agent belong to the sub-agent."""
    with sf.session("a") as s:
        with s.subagent("reviewer") as reviewer:
            send("ann")
            plan("42")
        send("bob")
        plan("42")
        nodes = {"ann": reviewer.node_id, "bob": s.node_id}
    assert {effect.intent["to"]: effect.node_id for effect in sf.effects.list()} == nodes
    assert SENT == ["ann", "planned 42", "bob", "planned 42"]


def test_two_tasks_enter_two_sub_agents_at_once(sf: standfast.Standfast) -> None:
    async def review(s: standfast.Session, name: str) -> None:
        with s.subagent(name):
            await asend(name)

    async def main(s: standfast.Session) -> None:
        await asyncio.gather(review(s, "one"), review(s, "two"), review(s, "one more"))

    with sf.session("a") as s:
        asyncio.run(main(s))
        nodes = {name: s.subagent(name).node_id for name in ("one", "two", "one more")}
    assert {effect.intent["to"]: effect.node_id for effect in sf.effects.list()} == nodes


def test_a_forked_child_is_refused(sf: standfast.Standfast, tmp_path: Path) -> None:
    """001-47: sessions are not inherited by a forked process."""
    with sf.session("a"):
        child = os.fork()
        if child == 0:
            try:
                send("child")
            except standfast.StandfastError as error:
                (tmp_path / "code").write_text(error.code)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        send("parent")
    assert (tmp_path / "code").read_text() == "forked"
    assert sessions(sf) == [("parent", "a")]


def test_work_that_outlives_the_block_is_refused(sf: standfast.Standfast) -> None:
    """001-47: a call after the block has ended sends nothing, also inside another open session."""

    async def main() -> None:
        left = asyncio.Event()

        async def late() -> str:
            await left.wait()
            return await asend("late")

        with sf.session("outer"):
            with sf.session("a"):
                task = asyncio.create_task(late())
                await asyncio.sleep(0)
            left.set()
            with pytest.raises(standfast.NoSession, match="session 'a' has ended"):
                await task
            with pytest.raises(standfast.NoSession):
                await asyncio.create_task(late(), context=contextvars.Context())

    asyncio.run(main())
    assert SENT == []


def test_a_late_step_and_a_tool_are_refused_too(sf: standfast.Standfast) -> None:
    with sf.session("a") as s:
        late = contextvars.copy_context()
        (tool,) = s.tools(send)
        bound = s.bind(send)
    for call in (lambda: late.run(plan, "42"), lambda: tool("ann"), lambda: bound("ann")):
        with pytest.raises(standfast.NoSession, match="has ended"):
            call()
    with sf.session("a"), pytest.raises(standfast.NoSession, match="has ended"):
        late.run(send, "ann")  # another opening of the same key
    assert SENT == []


def test_a_dropped_session_is_no_session(sf: standfast.Standfast) -> None:
    def run() -> None:
        sf.session("a").__enter__()
        gc.collect()
        with pytest.raises(standfast.NoSession, match="was dropped"):
            send("ann")

    contextvars.copy_context().run(run)
    with sf.session("a"):
        send("ann")


# -- blocks that end in another task ----------------------------------------------------------------------


def test_an_async_generator_that_another_task_closes_leaves_nothing_bound(sf: standfast.Standfast) -> None:
    """A dependency of a web framework: entered in one task, closed in another."""

    async def dependency(key: str) -> AsyncIterator[standfast.Session]:
        with sf.session(key) as s:
            yield s

    async def main() -> None:
        with sf.session("outer"):
            generator = dependency("request")
            await anext(generator)
            await asend("one")
            await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
            with pytest.raises(standfast.NoSession, match="session 'request' has ended"):
                await asend("two")
            async with asynccontextmanager(dependency)("next"):
                await asend("three")
        with pytest.raises(standfast.NoSession):
            await asend("four")

    asyncio.run(main())
    assert sessions(sf) == [("one", "request"), ("three", "next")]
    assert {record.key: record.state for record in sf.sessions.list()}["request"] == "waiting"


def test_a_generator_fixture_binds_for_the_test_between(sf: standfast.Standfast) -> None:
    """A yield fixture: entered and left by the test runner, around the test."""

    @contextmanager
    def fixture() -> Iterator[None]:
        with sf.session("a"):
            yield

    made = fixture()
    made.__enter__()
    send("ann")
    made.__exit__(None, None, None)
    with pytest.raises(standfast.NoSession):
        send("bob")
    assert sessions(sf) == [("ann", "a")]


def test_blocks_that_are_left_in_another_order_bind_the_block_that_is_still_open(sf: standfast.Standfast) -> None:
    first, second = sf.session("first"), sf.session("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    send("one")
    second.__exit__(None, None, None)
    with pytest.raises(standfast.NoSession, match="outside a session"):
        send("two")
    assert sessions(sf) == [("one", "second")]


# -- async ----------------------------------------------------------------------------------------------


def test_an_async_session_binds_async_and_plain_effects(aopened: Callable[[], standfast.AsyncStandfast]) -> None:
    """002-11: an `async def` effect is awaited; a plain one blocks, or leaves the loop with s.effect."""

    async def main() -> None:
        for _ in range(2):
            async with aopened() as sf, sf.session("a") as s:
                assert await asend("ann") == "sent to ann"
                assert send("bob") == "sent to bob"
                assert await s.effect(send, "cid") == "sent to cid"
                assert await aplan("42") == plan("42") == ["42"]
                async with s.subagent("reviewer"):
                    assert await aplan("42") == ["42"]
            with pytest.raises(standfast.NoSession):
                await asend("dan")

    asyncio.run(main())
    assert SENT == ["ann", "bob", "cid", "planned 42", "planned 42", "planned 42"]


def test_an_async_session_that_another_task_left_has_ended(aopened: Callable[[], standfast.AsyncStandfast]) -> None:
    async def dependency(sf: Any) -> AsyncIterator[Any]:
        async with sf.session("request") as s:
            yield s

    async def main() -> None:
        async with aopened() as sf:
            generator = dependency(sf)
            await anext(generator)
            await asend("one")
            await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]
            with pytest.raises(standfast.NoSession, match="session 'request' has ended"):
                await asend("two")
            async with sf.session("next"):
                await asend("three")

    asyncio.run(main())
    assert SENT == ["one", "three"]


def test_an_async_effect_in_a_plain_session_is_awaited_and_s_effect_refuses_it(sf: standfast.Standfast) -> None:
    async def main() -> None:
        assert await asend("ann") == "sent to ann"
        assert await aplan("42") == ["42"]

    with sf.session("a") as s:
        asyncio.run(main())
        with pytest.raises(standfast.InvalidInput, match="asend is async; this session is not"):
            s.effect(asend, "bob")
    assert sessions(sf) == [("ann", "a")]


def test_a_cancelled_call_is_in_doubt(sf: standfast.Standfast) -> None:
    """002-11: the record has the doubt before the cancellation is raised again."""

    async def main() -> None:
        started = asyncio.Event()

        @standfast.effect("slow", by=())
        async def slow() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(slow())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with sf.session("a"):
        asyncio.run(main())
    assert [effect.tool for effect in sf.effects.in_doubt()] == ["slow"]


def test_many_async_steps_that_call_effects_do_not_wait_for_each_other(sf: standfast.Standfast) -> None:
    """A step holds a thread while its effect needs another, so a small pool would deadlock."""

    @standfast.step
    async def work(n: int) -> str:
        await both.wait()
        return await asend(str(n))

    async def main() -> None:
        nonlocal both
        both = asyncio.Barrier(80)
        await asyncio.gather(*(work(n) for n in range(80)))

    both: Any = None
    with sf.session("a"):
        asyncio.run(main())
    assert len(SENT) == 80


def test_many_explicit_steps_that_call_effects_do_not_wait_for_each_other(
    aopened: Callable[[], standfast.AsyncStandfast],
) -> None:
    """The same with s.step and s.effect of an async session."""

    async def main() -> None:
        both = asyncio.Barrier(80)
        async with aopened() as sf, sf.session("a") as s:

            async def work(n: int) -> str:
                await both.wait()
                sent: str = await s.effect(send, str(n))
                return sent

            await asyncio.gather(*(s.step("work", work, n) for n in range(80)))

    asyncio.run(main())
    assert len(SENT) == 80


# -- nesting --------------------------------------------------------------------------------------------


NESTED: dict[str, Callable[[], object]] = {"effect": lambda: send("inner"), "step": lambda: plan("inner")}


@pytest.mark.parametrize("kind", list(NESTED))
def test_a_call_inside_a_body_a_find_or_a_compensation_is_refused(sf: standfast.Standfast, kind: str) -> None:
    """000-19: otherwise two effects, one inside the other, could be in doubt together."""
    caught: list[str] = []

    def nest() -> None:
        try:
            NESTED[kind]()
        except standfast.InvalidInput as error:
            caught.append(error.code)

    def found() -> str:
        nest()
        return "found"

    @standfast.effect("outer", by=(), find=found)
    def outer() -> str:
        nest()
        raise TimeoutError("no answer")

    @outer.compensate
    def back(result: str) -> None:
        nest()

    with sf.session("a"):
        with pytest.raises(TimeoutError):
            outer()
        assert outer() == "found"
        sf.effects.compensate(only(sf).id, outer)
    assert caught == ["nested_effect"] * 3
    assert SENT == []


def test_an_effect_inside_a_step_is_allowed(sf: standfast.Standfast) -> None:
    @standfast.step
    def work() -> str:
        return send("ann")

    with sf.session("a"):
        assert work() == "sent to ann"


# -- two declarations under one name ------------------------------------------------------------------------


def test_two_functions_under_one_name_warn_and_a_reload_does_not(tmp_path: Path, monkeypatch: Any) -> None:
    """001-47: calls of one function would return the recorded results of the other."""
    import importlib
    import sys

    source = 'import standfast\n@standfast.effect("twice.send", by=())\ndef send() -> None: ...\n'
    (tmp_path / "declares_once.py").write_text(source)
    (tmp_path / "declares_again.py").write_text(source + "@standfast.step('twice')\ndef one() -> None: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("declares_once")
    importlib.reload(module)
    with pytest.warns(
        UserWarning, match=r"'twice.send' is declared twice, by declares_once.send and by declares_again"
    ):
        again = importlib.import_module("declares_again")
    with pytest.warns(UserWarning, match="step 'twice' is declared twice, by declares_again.one and by"):
        standfast.step("twice")(globals()["sessions"])
    del sys.modules["declares_once"], sys.modules["declares_again"], module, again
