"""pydantic-ai: its conversation store and the step store of its harness, both on standfast."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.errors import Conflict, EffectInDoubt, InProgress
from tests import frameworks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

pytestmark = pytest.mark.slow  # test_agent_loops.py has the sample


@pytest.fixture(autouse=True)
def pydantic_ai() -> None:
    frameworks.importable(frameworks.PYDANTIC_AI, frameworks.HARNESS)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def conversations(store: Any) -> Any:
    from standfast.adapters.pydantic_ai import ConversationStore

    return ConversationStore(store)


def steps(store: Any) -> Any:
    from standfast.adapters.pydantic_ai import StepStore

    return StepStore(store)


def agent(**options: Any) -> Any:
    from pydantic_ai import Agent  # type: ignore[import-not-found,unused-ignore]
    from pydantic_ai.models.test import TestModel  # type: ignore[import-not-found,unused-ignore]

    return Agent(TestModel(), **options)


def new(key: str) -> Any:
    from pydantic_ai.conversation import Conversation  # type: ignore[import-not-found,unused-ignore]

    return Conversation(conversation_id=key)


# -- conversations -----------------------------------------------------------------------------------------------


def test_a_conversation_continues_from_its_saved_state(sf: standfast.Standfast) -> None:
    async def work() -> None:
        store = conversations(sf)
        assert await store.load("a") is None
        for turn in range(3):
            talk = await store.load("a") or new("a")
            assert len(talk.messages) == 2 * turn
            saved = await store.save(await agent().run(f"turn {turn}", conversation=talk))
            assert len(saved) == 2, "only the new ones"
        whole = await store.load_entries("a")
        assert [entry.parent_id for entry in whole] == [None, *(entry.id for entry in whole[:-1])]
        assert await store.read_entry(whole[3].id) == whole[3]
        assert (await store.load("a", limit=2)).messages == [entry.message for entry in whole[-2:]]
        with pytest.raises(KeyError):
            await store.read_entry("missing")

    run(work())
    assert len(sf.sessions.messages("a")) == 6
    assert sf.sessions.get("a").preview == "turn 0"


def test_of_two_writers_of_one_conversation_the_second_is_refused(sf: standfast.Standfast) -> None:
    """001-72: no turn is lost, and the second writer gets an error."""
    from pydantic_ai.conversation_store import ConversationConflict  # type: ignore[import-not-found,unused-ignore]

    async def work() -> None:
        store = conversations(sf)
        await store.save(await agent().run("0", conversation=new("a")))
        with pytest.raises(ConversationConflict):
            await store.save(await agent().run("another", conversation=new("a")))
        talks = [await store.load("a") for _ in range(8)]
        results = [await agent().run(str(n), conversation=talk) for n, talk in enumerate(talks)]
        told = await asyncio.gather(*(store.save(result) for result in results), return_exceptions=True)
        assert sorted(type(one) is ConversationConflict for one in told) == [False] + [True] * 7
        assert len((await store.load("a")).messages) == 4
        stale = await store.load("a")
        await store.delete("a")
        with pytest.raises(ConversationConflict):
            await store.save(await agent().run("late", conversation=stale))
        assert await store.load("a") is None

    run(work())


def test_a_fork_and_a_branch_copy_nothing(sf: standfast.Standfast) -> None:
    async def work() -> None:
        store = conversations(sf)
        for turn in range(2):
            await store.save(await agent().run(str(turn), conversation=await store.load("a") or new("a")))
        fork = await store.fork("a", at=2, new_conversation_id="b")
        assert sf.sessions.messages("b") == []
        await store.save(await agent().run("elsewhere", conversation=fork))
        whole = await store.load("a")
        branch = await store.branch("a", at=2, expected_revision=whole.revision)
        await store.save(await agent().run("instead", conversation=branch))
        a, b = await store.load("a"), await store.load("b")
        assert len(a.messages) == len(b.messages) == 4
        assert a.messages[:2] == b.messages[:2] == whole.messages[:2]
        assert len({str(talk.messages[2]) for talk in (a, b, whole)}) == 3
        (record,) = [one for one in await store.list_conversations() if one.conversation_id == "a"]
        back = await store.branch("a", from_entry=record.branches[0], expected_revision=record.revision)
        assert back.messages == whole.messages
        await store.delete("a")
        assert len((await store.load("b")).messages) == 4, "messages that a fork needs stay"
        assert [one.conversation_id for one in await store.list_conversations()] == ["b"]

    run(work())


def test_conversations_of_one_owner_are_listed_the_newest_first(sf: standfast.Standfast) -> None:
    async def work() -> None:
        store = conversations(sf)
        for key, scope in (("a", "ann"), ("b", "bob"), ("c", "ann")):
            await store.save(await agent().run("hi", conversation=new(key)), scope=scope)
        assert [one.conversation_id for one in await store.list_conversations(scope="ann")] == ["c", "a"]
        assert [one.conversation_id for one in await store.list_conversations(limit=2)] == ["c", "b"]
        assert await store.load("a", scope="bob") is None

    run(work())


# -- steps -------------------------------------------------------------------------------------------------------


def call(status: str, **fields: Any) -> Any:
    from pydantic_ai_harness.step_persistence import (  # type: ignore[import-not-found,unused-ignore]
        ToolEffectRecord,
    )

    return ToolEffectRecord(**{"tool_call_id": "c1", "tool_name": "push", "run_id": "r1", "status": status} | fields)


def test_a_run_of_the_harness_is_recorded_whole(sf: standfast.Standfast) -> None:
    from pydantic_ai_harness.step_persistence import StepPersistence, StepStore, continue_run

    def push(branch: str) -> str:
        """Push a branch."""
        return f"pushed {branch}"

    async def work() -> None:
        store = steps(sf)
        assert isinstance(store, StepStore)
        result = await agent(tools=[push], capabilities=[StepPersistence(store=store)]).run("go")
        (record,) = await store.list_runs()
        run_id = record.run_id
        assert await store.get_run(run_id=run_id) == record
        assert await store.get_run(run_id="missing") is None
        kinds = [event.kind for event in await store.list_events(run_id=run_id)]
        assert kinds[0] == "run_started"
        assert kinds[-1] == "run_completed"
        assert kinds.count("tool_call_started") == kinds.count("tool_call_completed") == 1
        snapshot = await store.latest_snapshot(run_id=run_id)
        assert snapshot.messages == result.all_messages()
        assert await store.list_unresolved_tool_effects(run_id=run_id) == []
        kept = sf.sessions.messages(f"pydantic-ai:{run_id}")
        changed = 1  # the last request finishes after the first snapshot
        assert len(kept) <= len(result.all_messages()) + changed, "each once, however many snapshots hold it"
        assert len(await store.list_snapshots(run_id=run_id)) > 1
        assert continue_run is not None

    run(work())


def test_of_two_that_start_the_same_call_one_is_refused(sf: standfast.Standfast) -> None:
    """002-10: in the harness, a second `started` overwrites the first. Here the call is an effect with one holder."""

    async def work() -> None:
        store = steps(sf)
        assert await store.get_tool_effect(run_id="r1", tool_call_id="c1") is None
        await store.record_tool_effect(call("started"))
        with pytest.raises(InProgress):
            await store.record_tool_effect(call("started"))
        (open_call,) = await store.list_unresolved_tool_effects(run_id="r1")
        assert (open_call.status, open_call.tool_name, open_call.tool_call_id) == ("started", "push", "c1")
        done = call("completed", effect_summary="pushed")
        await store.record_tool_effect(done)
        assert await store.get_tool_effect(run_id="r1", tool_call_id="c1") == done
        assert await store.list_unresolved_tool_effects(run_id="r1") == []
        with pytest.raises(Conflict, match="has ended already"):
            await store.record_tool_effect(call("started"))
        await store.record_tool_effect(call("started", tool_call_id="c2"))
        await store.record_tool_effect(call("failed", tool_call_id="c2", effect_summary="no network"))
        assert (await store.get_tool_effect(run_id="r1", tool_call_id="c2")).status == "failed"

    run(work())


def test_a_call_of_a_dead_process_is_in_doubt(tmp_path: Path) -> None:
    """000-1, 002-10: a process is killed during a call. The next process finds the call in doubt and does not
    repeat it.
    """
    path = tmp_path / "a.db"
    pid = os.fork()
    if pid == 0:
        run(steps(path).record_tool_effect(call("started")))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    async def work() -> None:
        store = steps(path)
        with pytest.raises(EffectInDoubt):
            await store.record_tool_effect(call("started"))
        (unresolved,) = await store.list_unresolved_tool_effects(run_id="r1")
        assert unresolved.tool_call_id == "c1"
        store.close()

    run(work())


def test_a_retried_call_is_stored_once(sf: standfast.Standfast) -> None:
    from pydantic_ai.messages import ModelRequest, UserPromptPart  # type: ignore[import-not-found,unused-ignore]
    from pydantic_ai_harness.step_persistence import ContinuableSnapshot, StepEvent

    async def work() -> None:
        store = steps(sf)
        for _ in range(2):
            await store.append_event(StepEvent(run_id="r", kind="run_started", step_index=0, idempotency_key="1"))
        await store.append_event(StepEvent(run_id="r", kind="run_completed", step_index=1))
        assert [event.kind for event in await store.list_events(run_id="r")] == ["run_started", "run_completed"]
        messages = [ModelRequest(parts=[UserPromptPart(str(n))]) for n in range(3)]

        async def save(count: int, key: str, state: str = "complete") -> None:
            await store.save_snapshot(
                ContinuableSnapshot(
                    run_id="r", step_index=count, messages=messages[:count], state=state, idempotency_key=key
                )
            )

        for count, key in ((1, "1:a"), (2, "2:b"), (2, "2:b"), (1, "1:late")):
            await save(count, key)
        await save(3, "3:c", "interrupted")
        assert (await store.latest_snapshot(run_id="r")).messages == messages[:2]
        assert (await store.latest_snapshot(run_id="r", include_interrupted=True)).messages == messages
        assert len(await store.list_snapshots(run_id="r", include_interrupted=True)) == 3

    run(work())
    assert len(sf.sessions.messages("pydantic-ai:r")) == 3
