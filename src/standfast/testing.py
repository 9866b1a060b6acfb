"""For the tests of your own agents: a pytest plugin, loaded because standfast is installed.

    sf          a fresh store in the test's directory; any other store is refused meanwhile
    sf_clock    the clock that store runs on, once a test asks for it: sf_clock.advance("3h")
    sf_crash    run your agent in child processes, kill it at every crash point it passes, run it
                again, and hand you the ends: your own oracle says whether they are right

    def test_one_pull_request_whatever_happens(sf_crash):
        for end in sf_crash(my_agent, "fix-42"):
            assert (end.directory / "server.log").read_text().count("POST /pulls") == 1, end

An agent is a function or a coroutine function, which each child runs with `asyncio.run`. A generator is refused.
Each schedule runs in an empty directory of its own, which is also its working directory and
the home of its store. `STANDFAST_CRASH_AT=effect.before_done:2` does the same once, in a shell.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import standfast
from standfast import crash, handle
from standfast.clock import ManualClock
from standfast.errors import InvalidInput
from standfast.ledger.effects import identity

_VARIABLES = ("STANDFAST_DB_URL", "STANDFAST_SESSION", "STANDFAST_ACTOR")
_OUTCOME = ".standfast-outcome.json"


class End(NamedTuple):
    """How one schedule ended: where the agent was killed, and what its last run came to."""

    at: str
    """`killed at effect.before_done:1`, or `not killed`"""
    directory: Path
    """What the agent left behind: its working directory, with its store in `.standfast`."""
    result: Any
    """What the last run returned, as JSON."""
    error: str | None
    """The class of the exception the last run ended in: "EffectInDoubt"; None if it returned."""
    message: str | None

    def open(self) -> standfast.Standfast:
        """The store of this end, to be looked into, in the scope the agent worked in."""
        from standfast import config, handle

        data = self.directory / ".standfast"
        return handle.connect(config.load(data / "standfast.db", data_dir=data, cwd=self.directory))


@pytest.fixture
def sf_clock() -> ManualClock:
    """A clock that stands until the test moves it."""
    return ManualClock()


@pytest.fixture
def sf(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[standfast.Standfast]:
    """A fresh store in the test's directory, open; `standfast.open()` finds the same one."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STANDFAST_DATA_DIR", str(tmp_path / ".standfast"))
    monkeypatch.setenv("STANDFAST_REMEMBER", "0")
    monkeypatch.setattr(handle, "_open_engine", _only_inside(tmp_path, handle._open_engine))
    clock = request.getfixturevalue("sf_clock") if "sf_clock" in request.fixturenames else None
    with standfast.open(clock=clock) as store:
        yield store


def _only_inside(directory: Path, open_engine: Callable[..., Any]) -> Callable[..., Any]:
    def checked(settings: Any, location: str, caller: Any, on_create: Any) -> Any:
        inside = settings.target.engine == "sqlite" and Path(location).resolve().is_relative_to(directory.resolve())
        if not inside and not settings.target.is_memory:
            raise InvalidInput(
                f"this test may not open {settings.target.shown}: only stores in {directory}",
                "leave out the url, or use the fixture's own store",
            )
        return open_engine(settings, location, caller, on_create)

    return checked


Crash = Callable[..., list[End]]


@pytest.fixture
def sf_crash(tmp_path: Path) -> Crash:
    """`sf_crash(agent, *args)`: every crash, one after another, each followed by a second run."""

    def run_all(
        agent: Callable[..., Any], *args: Any, double: bool = False, max_schedules: int = 500, **kwargs: Any
    ) -> list[End]:
        _refuse_generators(agent)
        load_everything()
        lives = _Lives(tmp_path / "crash", lambda: agent(*args, **kwargs), agent)
        crash.sweep(lives.live, lives.live, lives.check, reset=lives.reset, double=double, max_schedules=max_schedules)
        return lives.ends()

    return run_all


def _refuse_generators(agent: Callable[..., Any]) -> None:
    """Nobody would run its body: the test would pass whatever the agent does."""
    for function in (agent, getattr(agent, "__call__", agent)):  # noqa: B004  # the function behind an object
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise _generator(agent)


def _generator(agent: object) -> InvalidInput:
    name = getattr(agent, "__qualname__", type(agent).__qualname__)
    return InvalidInput(
        f"{name} returns a generator, which sf_crash would never run",
        f"give it a function that consumes it: async def agent(): return [item async for item in {name}()]",
    )


async def _awaited(result: Any) -> Any:
    return await result


def load_everything() -> None:
    """Load what an agent may use, once, and not again in each of hundreds of forked children."""
    from importlib import import_module

    for name in (
        "checkpoint.checkpoints",
        "db.sqlite.registry",
        "footings.artifacts",
        "ledger.approvals",
        "ledger.decisions",
        "ledger.effects.performing",
        "ledger.effects.room",
        "record.agents",
        "record.live",
        "record.state",
    ):
        import_module(f"standfast.{name}")


class _Lives:
    """The schedules of one sweep, each in a directory of its own."""

    def __init__(self, root: Path, agent: Callable[[], Any], named: Callable[..., Any]) -> None:
        self._root = root
        self._agent = agent
        self._named = named
        self._count = 0

    @property
    def _directory(self) -> Path:
        return self._root / f"{self._count:04d}"

    def reset(self) -> None:
        self._count += 1
        self._directory.mkdir(parents=True)

    def live(self) -> None:
        """In a child process: the agent, in its own directory and home."""
        os.chdir(self._directory)
        for name in _VARIABLES:
            os.environ.pop(name, None)
        os.environ["STANDFAST_DATA_DIR"] = str(self._directory / ".standfast")
        os.environ["STANDFAST_REMEMBER"] = "0"
        identity.SETTLE_US = 0  # what a killed life sent has arrived, or never will: nothing is on its way
        outcome: dict[str, Any] = {"result": None, "error": None, "message": None}
        try:
            result = self._agent()
            if inspect.isawaitable(result):
                import asyncio

                result = asyncio.run(_awaited(result))
            outcome["result"] = result
            outcome["generator"] = inspect.isasyncgen(result) or inspect.isgenerator(result)
        except Exception as error:  # noqa: BLE001  # how an agent ends is the user's to judge
            outcome |= {"error": type(error).__name__, "message": str(error)}
        (self._directory / _OUTCOME).write_text(json.dumps(outcome, default=str))

    def check(self, schedule: crash.Schedule) -> None:
        file = self._directory / _OUTCOME
        file.write_text(json.dumps({**json.loads(file.read_text()), "at": str(schedule)}))

    def ends(self) -> list[End]:
        found = []
        for directory in sorted(self._root.iterdir()):
            outcome = json.loads((directory / _OUTCOME).read_text())
            if outcome.get("generator"):
                raise _generator(self._named)
            found.append(End(outcome["at"], directory, outcome["result"], outcome["error"], outcome["message"]))
        return found
