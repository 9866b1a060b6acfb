"""The async facade: the same verbs, awaited, on both engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import standfast
from standfast.footings import foreign


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
        foreign.call(fetch)


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
