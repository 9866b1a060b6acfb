"""For the tests of your own agents: a pytest plugin, loaded because standfast is installed.

    sf          a fresh store in the test's directory; any other store is refused meanwhile
    sf_session  a fresh session in that store: the code under test calls its effects and steps
    sf_clock    the clock that store runs on, once a test asks for it: sf_clock.advance("3h")
    sf_crash    run your agent in child processes, kill it at every crash point it passes, run it
                again, and yield each end: your own oracle says whether it is right

    def test_one_pull_request_whatever_happens(sf_crash):
        for end in sf_crash(my_agent, "fix-42"):
            assert (end.directory / "server.log").read_text().count("POST /pulls") == 1, end

The first assert that fails ends the sweep. `sf_crash(my_agent, points="effect.*")` selects crash points.
`OfflineModel` is a model without a network, for a `standfast.governor`. `with unrecorded():` makes declared effects and
steps plain functions, for tests of the functions themselves.

An agent is a function or a coroutine function, which each child runs with `asyncio.run`. A generator is refused.
Each schedule runs in an empty directory of its own, which is also its working directory and
the home of its store. `STANDFAST_CRASH_AT=effect.before_done:2` does the same once, in a shell.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import standfast
from standfast import crash, handle
from standfast.clock import ManualClock
from standfast.errors import InvalidInput
from standfast.ledger import current
from standfast.ledger.effects import identity
from standfast.ledger.effects.call import NotApplied
from standfast.models import Model

if TYPE_CHECKING:
    import pytest

    fixture = pytest.fixture
else:
    try:
        import pytest

        fixture = pytest.fixture
    except ImportError:  # a program may use `End`, `Crash` and `unrecorded` without pytest

        def fixture(function):
            return function


_VARIABLES = ("STANDFAST_DB_URL", "STANDFAST_STORE", "STANDFAST_SESSION", "STANDFAST_ACTOR")
_OUTCOME = ".standfast-outcome.json"


class End(Model):
    """How one schedule ended: where the agent was killed, and the result of its last run."""

    at: str
    """`killed at effect.before_done:1`, or `not killed`"""
    directory: Path
    """The working directory of the agent, with its store in `.standfast`."""
    result: Any
    """The result of the last run, as JSON."""
    error: str | None
    """The class of the exception the last run ended in: "EffectInDoubt"; None if it returned."""
    message: str | None

    def open(self) -> standfast.Standfast:
        """Open the store of this end, in the scope in which the agent worked."""
        from standfast import config, handle

        data = self.directory / ".standfast"
        return handle.connect(config.load(data / "standfast.db", data_dir=data, cwd=self.directory))


@fixture
def sf_clock() -> ManualClock:
    """A clock that moves only when the test moves it."""
    return ManualClock()


@fixture
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


@fixture
def sf_session(sf: standfast.Standfast) -> Iterator[standfast.Session]:
    """A fresh session in the store of `sf`, open: effects and steps that the test calls are recorded in it."""
    with sf.session("test") as session:
        yield session


@contextmanager
def unrecorded() -> Iterator[None]:
    """Inside the block, a called effect or step is the plain function: no session, no record.

    The block ignores an open session, also one that is opened inside it. `s.effect(…)`, `s.step(…)` and `s.tools`
    name their session and still record.
    """
    token = current.UNRECORDED.set(True)
    try:
        yield
    finally:
        current.UNRECORDED.reset(token)


def hashing_embedder(text: str, dimensions: int = 384) -> list[float]:
    """A vector of a text without a model: each word and each pair of words adds to one place, by its hash.

    Texts that share words are near each other. It is deterministic, and it knows no synonyms.
    """
    from hashlib import blake2b
    from itertools import pairwise

    from standfast.checkpoint.search_index import words

    vector, listed = [0.0] * dimensions, words(text).split()
    for part in (*listed, *map(" ".join, pairwise(listed))):
        number = int.from_bytes(blake2b(part.encode(), digest_size=8).digest())
        vector[number % dimensions] += 1.0 if number >> 63 else -1.0
    return vector if any(vector) else [1.0] * dimensions


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


Crash = Callable[..., Iterator[End]]


@fixture
def sf_crash(tmp_path: Path) -> Iterator[Crash]:
    """`for end in sf_crash(agent, *args)`: every crash, one after another, each followed by a second run."""
    made: list[_Lives] = []

    def ends(
        agent: Callable[..., Any],
        *args: Any,
        points: str = "*",
        double: bool = False,
        max_schedules: int = 500,
        **kwargs: Any,
    ) -> Iterator[End]:
        _refuse_generators(agent)
        crash.matching(points)
        lives = _Lives(tmp_path / f"crash-{len(made)}", lambda: agent(*args, **kwargs), agent)
        made.append(lives)
        return lives.ends(points=points, double=double, max_schedules=max_schedules)

    yield ends
    for lives in made:
        lives.require_started()


def _refuse_generators(agent: Callable[..., Any]) -> None:
    """Refuse a generator function: its body would not run, so the test would pass for any agent."""
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
    """Import the modules that an agent may use, once for hundreds of forked children."""
    from importlib import import_module

    for name in (
        "checkpoint.checkpoints",
        "db.sqlite.registry",
        "core.artifacts",
        "ledger.approvals",
        "ledger.decisions",
        "ledger.effects.perform",
        "ledger.effects.resource",
        "record.agents",
        "record.open_session",
        "record.state",
    ):
        import_module(f"standfast.{name}")


class _Lives:
    """The schedules of one sweep, each in a separate directory."""

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
        identity.SETTLE_US = 0  # a request of a killed process has arrived or never will: none is in flight
        outcome: dict[str, Any] = {"result": None, "error": None, "message": None}
        try:
            result = self._agent()
            if inspect.isawaitable(result):
                import asyncio

                result = asyncio.run(_awaited(result))
            outcome["result"] = result
            outcome["generator"] = inspect.isasyncgen(result) or inspect.isgenerator(result)
        except Exception as error:  # noqa: BLE001  # the user's test checks how the agent ended
            outcome |= {"error": type(error).__name__, "message": str(error)}
        (self._directory / _OUTCOME).write_text(json.dumps(outcome, default=str))

    def ends(self, **options: Any) -> Iterator[End]:
        load_everything()
        for schedule in crash.schedules(self.live, self.live, reset=self.reset, **options):
            outcome = json.loads((self._directory / _OUTCOME).read_text())
            if outcome.get("generator"):
                raise _generator(self._named)
            yield End(str(schedule), self._directory, outcome["result"], outcome["error"], outcome["message"])

    def require_started(self) -> None:
        """A test that never reads the ends has tested nothing."""
        if not self._count:
            name = getattr(self._named, "__qualname__", type(self._named).__qualname__)
            raise InvalidInput(
                f"sf_crash({name}) ran nothing, because its ends were not read",
                f"for end in sf_crash({name}): assert …",
            )


# -- a model without a network ---------------------------------------------------------------------------


FATES = ("answers", "refuses", "times out", "overruns", "dies")
"""The possible outcomes of a call of an OfflineModel."""


class OfflineModel:
    """A model without a network or a key: the fate of a call follows from the seed and the prompt alone.

    It answers, refuses (`NotApplied`: nothing is billed), times out after it was billed, or uses twice as much as was
    reserved. It kills its process only if `fates` has "dies". A prompt fails at most once: the next call with it is
    answered. With `bill`, each call that was made is a line of that file: key, prompt and tokens.
    """

    def __init__(self, seed: int = 0, *, bill: Path | None = None, fates: Sequence[str] = FATES[:4]) -> None:
        self._seed, self._bill, self._fates = seed, bill, tuple(fates)
        self._asked: set[str] = set()
        self._answers: dict[str, tuple[str, dict[str, int]]] = {}

    def __call__(self, prompt: str, /, *, max_tokens: int, key: str) -> tuple[str, dict[str, int]]:
        """The text and its usage. `key` names the call on the bill."""
        fate = self.fate(prompt)
        self._asked.add(prompt)
        if fate == "refuses":
            self._note("refused", prompt, 0)
            raise NotApplied("the provider is overloaded")
        output = 1 + self._number(prompt, "output") % max(1, max_tokens // 2)
        used = 2 * max_tokens if fate == "overruns" else output
        answer = f"answer {self._number(prompt, 'text') % 10_000}", {"input_tokens": 0, "output_tokens": used}
        self._answers[key] = answer
        self._note(key, prompt, used)
        if fate == "times out":
            raise TimeoutError("the provider did not answer in time")
        if fate == "dies":
            import signal

            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    def fate(self, prompt: str) -> str:
        """The outcome of the next call with this prompt."""
        if prompt in self._asked or any(line[1] == prompt for line in self.billed()):
            return "answers"
        return self._fates[self._number(prompt, "fate") % len(self._fates)]

    def find(self, key: str) -> tuple[str, dict[str, int]] | None:
        """The answer of the call with this key, as the provider knows it; None if it was not made."""
        for found, prompt, tokens in self.billed():
            if found == key:
                return f"answer {self._number(prompt, 'text') % 10_000}", {"input_tokens": 0, "output_tokens": tokens}
        return self._answers.get(key)

    def billed(self) -> list[tuple[str, str, int]]:
        """The lines of the bill: key, prompt, tokens."""
        if self._bill is None or not self._bill.exists():
            return []
        lines = (json.loads(line) for line in self._bill.read_text().splitlines())
        return [(key, prompt, tokens) for key, prompt, tokens in lines]

    def _note(self, key: str, prompt: str, tokens: int) -> None:
        if self._bill is not None:
            with self._bill.open("a") as file:
                file.write(json.dumps([key, prompt, tokens]) + "\n")

    def _number(self, prompt: str, what: str) -> int:
        from standfast.serial.digests import sha256

        return int.from_bytes(sha256(f"{self._seed}\n{what}\n{prompt}".encode()).digest()[:8])
