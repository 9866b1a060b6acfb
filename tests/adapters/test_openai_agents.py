"""The session protocol of the OpenAI Agents SDK, implemented with conversations of standfast."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import standfast
from standfast import crash
from standfast.crash import Schedule
from standfast.errors import InvalidInput
from tests import frameworks

if TYPE_CHECKING:
    from standfast.adapters.openai_agents import Session

CALL = {"type": "function_call", "call_id": "c1", "name": "push", "arguments": "{}"}
ANSWER = {"type": "function_call_output", "call_id": "c1", "output": "pushed"}

pytestmark = pytest.mark.slow  # test_agent_loops.py has the sample


@pytest.fixture(autouse=True)
def agents() -> None:
    frameworks.importable(frameworks.OPENAI_AGENTS)


def session(*given: Any, **options: Any) -> Session:
    from standfast.adapters.openai_agents import Session

    return Session(*given, **options)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_it_is_a_session_of_the_sdk(sf: standfast.Standfast) -> None:
    from agents.memory import Session as Protocol  # type: ignore[import-not-found,unused-ignore]

    async def work() -> None:
        s = session("fix-42", sf)
        assert isinstance(s, Protocol)
        await s.add_items([user("a"), user("b")])
        await s.add_items([])
        assert await s.get_items() == [user("a"), user("b")]
        assert await s.get_items(limit=1) == [user("b")]
        assert await s.pop_item() == user("b")
        await s.clear_session()
        assert (await s.get_items(), await s.pop_item()) == ([], None)

    run(work())
    assert [m.content["content"] for m in sf.sessions.messages("fix-42")] == ["a", "b"], "kept, and marked"
    assert sf.sessions.get("fix-42").preview == "a"


def test_the_limit_of_the_settings_holds_where_none_is_given(sf: standfast.Standfast) -> None:
    async def work() -> None:
        s = session("a", sf, session_settings={"limit": 2})
        await s.add_items([user(str(n)) for n in range(5)])
        assert await s.get_items() == [user("3"), user("4")]
        assert len(await s.get_items(limit=4)) == 4

    run(work())


def test_calls_without_an_answer_are_visible_and_a_repaired_view_can_be_sent(sf: standfast.Standfast) -> None:
    """A conversation interrupted during a call can be continued, and none of its items is rewritten."""
    from standfast.adapters.openai_agents import INTERRUPTED

    shell = {"type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}}

    async def work() -> None:
        plain, repaired = session("a", sf), session("a", sf, repair=True)
        await plain.add_items([user("go"), CALL, shell, user("hello?")])
        assert [(o.call_id, o.name) for o in await plain.orphans()] == [("c1", "push"), ("c2", None)]
        told = {"type": "function_call_output", "call_id": "c1", "output": INTERRUPTED}
        assert await repaired.get_items() == [user("go"), CALL, told, user("hello?")]
        assert await plain.get_items() == [user("go"), CALL, shell, user("hello?")]
        await plain.add_items([ANSWER])
        assert [o.call_id for o in await plain.orphans()] == ["c2"]
        assert await repaired.get_items(limit=2) == [user("hello?")], "its call lies before the limit"

    run(work())


def test_a_fork_and_its_parent_do_not_change_each_other(sf: standfast.Standfast) -> None:
    async def work() -> None:
        s = session("a", sf)
        await s.add_items([user("1")])
        other = await s.fork("b")
        await other.add_items([user("2")])
        await s.pop_item()
        assert (await s.get_items(), await other.get_items()) == ([], [user("1"), user("2")])

    run(work())


def test_a_cancelled_writer_leaves_once_the_outcome_is_known(sf: standfast.Standfast) -> None:
    """The write happens completely or not at all, and no lock stays: other writers continue immediately."""

    async def work() -> None:
        s = session("a", sf)
        for n in range(30):
            task = asyncio.create_task(s.add_items([[n, 0], [n, 1]]))
            for _ in range(n % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await s.add_items([[n, 2]])
        items = await s.get_items()
        for n in range(30):
            assert [part for at, part in items if at == n] in ([0, 1, 2], [2]), "no half of a batch, none late"

    run(work())


def test_a_store_that_was_opened_here_is_closed_here(tmp_path: Path) -> None:
    async def work() -> None:
        async with session("a", tmp_path / "a.db") as s:
            await s.add_items([user("1")])
        for verb in (s.get_items(), s.add_items([]), s.add_items([user("2")]), s.pop_item()):
            with pytest.raises(InvalidInput, match="closed"):
                await verb
        async with session("a", str(tmp_path / "a.db")) as again:
            assert await again.get_items() == [user("1")]
        with pytest.raises(InvalidInput, match="not int"):
            session("a", 3)

    run(work())


class Program:
    """A program that adds, removes and clears items. Each process continues at the end of the conversation."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.number = directory, 0

    def reset(self) -> None:
        self.number += 1

    def run(self) -> None:
        run(self._run())

    async def _run(self) -> None:
        async with session(f"s{self.number}", self.directory / "a.db") as s:
            items = await s.get_items()
            if not items:
                await s.add_items([[1, 1], [1, 2]])
                items = await s.get_items()
            if items == [[1, 1], [1, 2]]:
                await s.pop_item()
                items = [[1, 1]]
            if items == [[1, 1]]:
                await s.clear_session()
                await s.add_items([[2, 1], [2, 2], [2, 3]])

    def check(self, schedule: Schedule) -> None:
        async def look() -> None:
            async with session(f"s{self.number}", self.directory / "a.db") as s:
                assert await s.get_items() == [[2, 1], [2, 2], [2, 3]]

        run(look())


def test_killed_at_every_point_no_batch_is_split_and_no_removed_item_returns(tmp_path: Path) -> None:
    """000-1: `kill -9` at each write while items are added, removed and cleared."""
    program = Program(tmp_path)
    crash._live(program.run, 0, Schedule(), 60.0)  # a child process creates the store: the parent must never open it
    schedules = crash.sweep(program.run, program.run, program.check, reset=program.reset, max_schedules=20)
    assert schedules == 20, "a sample of every crash, and of every second crash"


def test_a_process_killed_while_it_adds_leaves_whole_batches(tmp_path: Path) -> None:
    """000-1: every acknowledged batch is stored completely, and no batch is stored in part."""
    path = tmp_path / "a.db"
    session("a", path).close()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:

        async def add() -> None:
            s = session("a", path)
            for n in range(1_000_000):
                await s.add_items([[n, 0], [n, 1], [n, 2]])
                os.write(write, b".")

        asyncio.run(add())
        os._exit(1)
    acknowledged = 0
    while acknowledged < 20:
        acknowledged += len(os.read(read, 1))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(write)
    acknowledged += len(os.read(read, 1_000_000))
    os.close(read)
    items = run(session("a", path).get_items())
    assert len(items) >= 3 * acknowledged
    assert items == [[n, part] for n in range(len(items) // 3) for part in range(3)]
