"""A session as a FastAPI dependency with `yield`. FastAPI may close the generator in another task or thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import standfast
from tests import frameworks

SENT: list[tuple[str, str]] = []


@standfast.effect("fastapi.open_pr", by=("branch",))
def open_pr(call: standfast.Call, branch: str) -> str:
    SENT.append((str(call.session), branch))
    return f"pull/{branch}"


@standfast.effect("fastapi.open_pr_awaited", by=("branch",))
async def open_pr_awaited(call: standfast.Call, branch: str) -> str:
    await asyncio.sleep(0)
    SENT.append((str(call.session), branch))
    return f"pull/{branch}"


@standfast.effect("fastapi.lost", by=("branch",))
def lose(branch: str) -> str:
    SENT.append(("lost", branch))
    raise ConnectionError("the line is dead")


@pytest.fixture
def app(engine_url: str, tmp_path: Path) -> Any:
    frameworks.importable(frameworks.FASTAPI)
    from fastapi import Depends, FastAPI, HTTPException

    SENT.clear()
    data = tmp_path / "data"

    async def awaited(issue: str) -> AsyncIterator[Any]:
        async with standfast.aopen(engine_url, data_dir=data) as sf, sf.session(f"fix-{issue}") as s:
            yield s

    def plain(issue: str) -> Iterator[Any]:
        with standfast.open(engine_url, data_dir=data) as sf, sf.session(f"fix-{issue}") as s:
            yield s

    made, from_awaited, from_plain = FastAPI(), Depends(awaited), Depends(plain)

    async def in_a_coroutine(s: Any, branch: str) -> list[str]:
        return [await open_pr_awaited(branch), await s.effect(open_pr, branch), s.key]

    async def of_awaited(branch: str, s: Any = from_awaited) -> list[str]:
        return await in_a_coroutine(s, branch)

    def of_plain(branch: str, s: Any = from_plain) -> list[str]:
        return [s.effect(open_pr, branch), s.key]

    async def failing(s: Any = from_awaited) -> None:
        raise HTTPException(418, "no")

    async def losing(s: Any = from_awaited) -> None:
        await s.effect(lose, "x")

    for path, endpoint in {"awaited": of_awaited, "plain": of_plain, "failing": failing, "losing": losing}.items():
        made.get(f"/{path}/{{issue}}")(endpoint)
    return made


async def asked(app: Any, *paths: str) -> list[httpx.Response]:
    """The responses to requests that this process handles concurrently."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return list(await asyncio.gather(*map(client.get, paths)))


def states(engine_url: str, tmp_path: Path) -> dict[str, str]:
    with standfast.open(engine_url, data_dir=tmp_path / "data") as sf:
        return {one.key: one.state for one in sf.sessions.list()}


def test_effects_of_concurrent_requests_belong_to_the_session_of_their_request(
    app: Any, engine_url: str, tmp_path: Path
) -> None:
    """002-10: with async dependencies, a repeated request returns the recorded results."""
    for _ in range(2):
        one, two = asyncio.run(asked(app, "/awaited/1?branch=a", "/awaited/2?branch=b"))
        assert (one.json(), two.json()) == (["pull/a", "pull/a", "fix-1"], ["pull/b", "pull/b", "fix-2"])
    assert sorted(SENT) == [("fix-1", "a")] * 2 + [("fix-2", "b")] * 2
    assert states(engine_url, tmp_path) == {"fix-1": "completed", "fix-2": "completed"}


def test_a_dependency_that_runs_in_threads_opens_and_closes_its_session(
    app: Any, engine_url: str, tmp_path: Path
) -> None:
    """002-10: FastAPI enters and leaves a plain generator in worker threads, possibly in different ones."""
    one, two = asyncio.run(asked(app, "/plain/1?branch=a", "/plain/2?branch=b"))
    assert (one.json(), two.json()) == (["pull/a", "fix-1"], ["pull/b", "fix-2"])
    assert states(engine_url, tmp_path) == {"fix-1": "completed", "fix-2": "completed"}


def test_an_error_of_the_endpoint_reaches_the_session(app: Any, engine_url: str, tmp_path: Path) -> None:
    """002-11: the session fails. The next request finds the effect in doubt, and its session waits."""
    for _ in range(2):
        refused, lost = asyncio.run(asked(app, "/failing/1", "/losing/2"))
        assert (refused.status_code, lost.status_code) == (418, 500)
    assert SENT == [("lost", "x")]
    assert states(engine_url, tmp_path) == {"fix-1": "failed", "fix-2": "waiting"}


@pytest.mark.slow
def test_no_session_stays_bound_in_the_task_of_the_next_request(app: Any) -> None:
    """002-10: after the response, an effect outside a session is refused."""

    async def both() -> None:
        await asked(app, "/awaited/1?branch=a")
        with pytest.raises(standfast.NoSession):
            open_pr("b")

    asyncio.run(both())
