"""The asynchronous handle: the same methods, awaited, on both engines."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast import aio
from standfast.core import user_code
from standfast.db.postgres.engine import SUBMITTED_MAX


def test_many_tasks_write_at_once_and_each_is_answered(engine_url: str, tmp_path: Path) -> None:
    async def main() -> int:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            leases = await asyncio.gather(*(sf.leases.acquire(f"lock-{n}") for n in range(200)))
            assert {lease.fence for lease in leases} == {1}
            return len(await sf.leases.list(limit=1000))

    assert asyncio.run(main()) == 200


def test_a_refusal_is_raised_where_it_is_awaited(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            await sf.leases.acquire("one")
            with pytest.raises(standfast.InProgress):
                await sf.leases.acquire("one")

    asyncio.run(main())


def test_a_context_manager_is_entered_with_async_with(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            async with sf.leases.hold("one") as lease:
                assert lease.fence == 1
            assert (await sf.leases.get("one")).holder is None

    asyncio.run(main())


def test_a_transaction_is_a_plain_function(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            fences = await sf.transaction(lambda tx: [tx.leases.acquire(name).fence for name in "ab"])
            assert fences == [1, 1]
            with pytest.raises(ZeroDivisionError):
                await sf.transaction(lambda tx: [tx.leases.acquire("c"), 1 / 0])
            with pytest.raises(standfast.NotFound):
                await sf.leases.get("c")

    asyncio.run(main())


def test_a_coroutine_without_an_event_loop_is_refused_by_name() -> None:
    async def fetch() -> int:
        return 1

    with pytest.raises(standfast.InvalidInput, match="fetch is async"):
        user_code.call(fetch)


def test_a_cancelled_task_does_not_stop_a_write_under_way(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:

            async def acquire() -> None:
                await sf.leases.acquire("one")

            task = asyncio.create_task(acquire())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await sf.leases.acquire("two")  # queued behind the first
            assert (await sf.leases.get("two")).fence == 1

    asyncio.run(main())


def test_many_tasks_at_once_each_get_their_own_answers(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:

            async def take(name: str) -> list[int]:
                return [(await sf.leases.acquire(f"{name}-{n}")).fence for n in range(5)]

            fences = await asyncio.gather(*(take(f"task-{n}") for n in range(20)))
            assert fences == [[1] * 5] * 20
            assert len(await sf.leases.list(limit=1000)) == 100

    asyncio.run(main())


def test_a_body_that_was_cancelled_while_it_waits_in_the_engine_is_not_run(engine_url: str, tmp_path: Path) -> None:
    """RULES 15: an operation that has not begun can be withdrawn, also by a cancelled task."""
    begun, release = threading.Semaphore(0), threading.Event()

    def busy(tx: object) -> None:
        begun.release()
        assert release.wait(30)

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            assert isinstance(sf.sync, standfast.Standfast)
            threads = SUBMITTED_MAX if sf.sync.engine.name == "postgres" else 1
            for _ in range(threads):
                sf.sync._store.submit(busy, lambda result, error: None)
            for _ in range(threads):
                assert begun.acquire(timeout=30)
            task = asyncio.create_task(sf.leases.acquire("one"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            release.set()
            await sf.leases.acquire("two")
            with pytest.raises(standfast.NotFound):
                await sf.leases.get("one")

    asyncio.run(main())


def test_a_call_on_a_closed_store_is_refused(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            sf.sync.close()
            with pytest.raises(standfast.InvalidInput, match="closed"):
                await sf.leases.acquire("one")

    asyncio.run(main())


def test_a_call_is_a_coroutine_that_can_become_a_task(engine_url: str, tmp_path: Path) -> None:
    """000-1: calls work in every function of asyncio that accepts a coroutine."""

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            assert (await asyncio.create_task(sf.tasks.add("x"))).title == "x"
            added = sf.tasks.add("y")
            assert asyncio.iscoroutine(added)
            assert inspect.isawaitable(added)
            assert (await asyncio.wait_for(added, 30)).title == "y"
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(sf.leases.acquire(f"lock-{n}")) for n in range(3)]
            assert [task.result().fence for task in tasks] == [1, 1, 1]
            async with sf.session("k") as s:
                step, effect = await asyncio.gather(
                    asyncio.create_task(s.step("plan", lambda: 1)),
                    asyncio.wait_for(s.effect("deploy", {}, do=lambda call: 2), 30),
                )
                assert (step, effect) == (1, 2)
            titles = [task.title for task in await sf.tasks.list()]
            assert sorted(titles) == ["x", "y"]

    asyncio.run(main())


def test_a_call_that_is_not_awaited_warns_and_writes_nothing(engine_url: str, tmp_path: Path) -> None:
    """000-1: a missing `await` gives a warning, for methods and for calls that run foreign code."""

    async def main() -> list[str]:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("k") as s:
            gc.collect()  # sessions that other tests dropped warn now
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                sf.tasks.add("x")
                sf.leases.acquire("other")
                s.step("plan", lambda: 1)
                sf.leases.hold("one")
                gc.collect()
            assert {one.category for one in caught} == {RuntimeWarning}
            assert await sf.tasks.list() == []
            return [str(one.message) for one in caught]

    assert asyncio.run(main()) == [
        "coroutine 'Tasks.add' was never awaited",
        "coroutine 'Leases.acquire' was never awaited",
        "coroutine 'NodeMethods.step' was never awaited",
        "coroutine 'Leases.hold' was never awaited",
    ]


def test_an_entered_or_iterated_call_gives_no_warning(engine_url: str, tmp_path: Path) -> None:
    """000-1: `async with` and `async for` work as before."""
    gc.collect()  # calls that other tests dropped warn before

    async def main() -> None:
        gc.collect()  # sessions that other tests dropped warn now
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
                async with sf.session("k") as s, s.decide("go", then="now"), sf.leases.hold("one"):
                    await s.say("user", "hello")
                assert [mail async for mail in sf.mail.follow("bob", timeout=0)] == []
                gc.collect()

    asyncio.run(main())


def test_a_cancelled_call_that_became_a_task_still_lets_its_write_end(engine_url: str, tmp_path: Path) -> None:
    """000-1: cancelling a task made of a call is cancelling a task that awaits it."""

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            task = asyncio.create_task(sf.leases.acquire("one"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await sf.leases.acquire("two")).fence == 1
            async with sf.session("k") as s:
                begun = asyncio.Event()

                async def forever() -> None:
                    begun.set()
                    await asyncio.Event().wait()

                working = asyncio.create_task(s.effect("deploy", {}, do=lambda call: forever()))
                await begun.wait()
                working.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await working
                assert [effect.tool for effect in await sf.effects.in_doubt()] == ["deploy"]

    asyncio.run(main())


def test_a_wrong_use_is_refused_with_the_right_one(engine_url: str, tmp_path: Path) -> None:
    """R44: the refusal says whether a call is awaited, entered or iterated."""

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            with pytest.raises(standfast.InvalidInput, match=r"Mails.follow is iterated, not awaited") as refused:
                await sf.mail.follow("me")  # type: ignore[misc]
            assert refused.value.hint == "async for one in ….follow(…): …"
            with pytest.raises(standfast.InvalidInput, match=r"Leases.hold is entered, not awaited"):
                await sf.leases.hold("one")  # type: ignore[misc]
            with pytest.raises(standfast.InvalidInput, match=r"Standfast.session is entered, not awaited"):
                await sf.session("k")  # type: ignore[misc]
            with pytest.raises(standfast.InvalidInput, match=r"Tasks.list is awaited, not iterated") as refused:
                [one async for one in sf.tasks.list()]  # type: ignore[attr-defined]
            assert refused.value.hint == "for one in await ….list(…): …"
            with pytest.raises(standfast.InvalidInput, match=r"Tasks.list is not entered"):
                async with sf.tasks.list():  # type: ignore[attr-defined]
                    pass
            entered = pytest.raises(standfast.InvalidInput, match=r"Standfast.session is entered with `async with`")
            with entered, sf.session("k"):  # type: ignore[attr-defined]
                pass
            with pytest.raises(standfast.InvalidInput, match=r"Mails.follow is iterated with `async for`"):
                list(sf.mail.follow("me"))  # type: ignore[call-overload]
            with pytest.raises(standfast.NotFound):
                await sf.leases.get("one")

    asyncio.run(main())


def test_a_handle_that_is_not_open_raises() -> None:
    with pytest.raises(standfast.InvalidInput, match="this handle is not open"):
        standfast.aopen().tasks  # noqa: B018


def test_the_state_of_a_session_is_awaited_and_subscripts_are_refused(engine_url: str, tmp_path: Path) -> None:
    """R44: an operation that would block on the disk names the method to await instead."""

    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.session("k") as s:
            await s.state.set("plan", {"n": 1}, for_="1h")
            assert await s.state.get("plan") == {"n": 1}
            assert await s.state.setdefault("other", 2) == 2
            assert sorted(await s.state.keys()) == ["other", "plan"]
            assert sorted(await s.state.items()) == [("other", 2), ("plan", {"n": 1})]
            assert sorted(map(str, await s.state.values())) == ["2", "{'n': 1}"]
            assert await s.state.pop("other") == 2
            state: Any = s.state
            refused = {
                "await s.state.get('plan')": lambda: state["plan"],
                "await s.state.set('plan', …)": lambda: state.__setitem__("plan", 1),
                "await s.state.delete('plan')": lambda: state.__delitem__("plan"),
                "await s.state.entry('plan') is not None": lambda: "plan" in state,
                "for key in await s.state.keys()": lambda: list(iter(state)),
                "len(await s.state.keys())": lambda: len(state),
            }
            for instead, use in refused.items():
                with pytest.raises(standfast.InvalidInput, match="would block the event loop") as caught:
                    use()
                assert caught.value.hint == instead

    asyncio.run(main())


def test_rows_and_followers_are_iterated(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf:
            for n in range(aio.ROWS_AT_ONCE + 3):
                await sf.leases.acquire(f"lock-{n:03}")
            names = [row["name"] async for row in sf.rows("SELECT name FROM lease ORDER BY name")]
            assert names == [f"lock-{n:03}" for n in range(aio.ROWS_AT_ONCE + 3)]
            for n in range(3):
                await sf.events.append("orders", "placed", n)
            async with sf.events.consume("mailer", "orders") as events:
                seen = []
                async for event in events:
                    seen.append(event.data)
                    await events.commit()
                    if len(seen) == 2:
                        break
            assert seen == [0, 1]
            assert [event.data async for event in sf.events.consume("mailer", "orders")] == [2]

    asyncio.run(main())


def test_a_block_gives_a_model_as_it_is(engine_url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with standfast.aopen(engine_url, data_dir=tmp_path / "data") as sf, sf.leases.hold("one") as lease:
            assert type(lease).__name__ == "Lease"

    asyncio.run(main())
