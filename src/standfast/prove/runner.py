"""Runs campaigns: each for its share of the time, one seed after another, and says what was seen."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

from standfast.errors import InvalidInput
from standfast.prove.catalogue import POSTGRES, Campaign
from standfast.prove.faults import Unavailable
from standfast.prove.outcome import Outcome
from standfast.prove.results import Result

Say = Callable[[str], None]


class Runner:
    """One run. `say` is told what is going on, for a progress display."""

    def __init__(self, stack: ExitStack, *, say: Say = lambda line: None) -> None:
        if not __debug__:
            raise InvalidInput("the oracles are assertions, and Python was told to ignore those", "without -O, then")
        self._stack = stack
        self._say = say
        self._server = ""
        self._root = Path(stack.enter_context(_moved_in()))

    def run(self, campaign: Campaign, engine: str, *, seed: int, seconds: float) -> Result:
        """Seed after seed until the time is over, at least one; a bad one ends it."""
        total, first, start = Outcome(campaign.name), seed, time.monotonic()
        while True:
            self._say(f"{campaign.name} on {engine}, seed {seed}: {total.figures or 'begun'}")
            try:
                total.add(self._once(campaign, engine, seed))
            except Unavailable as missing:
                return _result(campaign, engine, (first, seed), start, Outcome(), str(missing))
            except Exception as error:  # noqa: BLE001  whatever it was, it was not what must be
                total.bad.append(f"{type(error).__name__}: {str(error)[-600:]}")
            if total.bad or time.monotonic() - start >= seconds:
                break
            seed += 1
        if campaign.control:
            total.bad = _judged(campaign, total)
        elif total.bad:
            again = f"standfast prove --only {campaign.name} --engine {engine} --seed {seed} --minutes 0"
            total.bad.append(f"again with: {again}")
        return _result(campaign, engine, (first, seed), start, total)

    def _once(self, campaign: Campaign, engine: str, seed: int) -> Outcome:
        module, _, name = campaign.place.partition(":")
        run = getattr(import_module(f"standfast.prove.campaigns.{module}"), name)
        more = {"url": self._database()} if engine == POSTGRES else {}
        with place(self._root) as directory:
            outcome: Outcome = run(directory, seed=seed, **more, **campaign.arguments)
        return outcome

    def _database(self) -> str:
        """A database of its own on the one server of this run."""
        from standfast.prove.postgres import TemporaryPostgres, fresh_database

        if not self._server:
            try:
                self._server = (
                    os.environ.get("STANDFAST_TEST_PG_URL") or self._stack.enter_context(TemporaryPostgres()).url
                )
            except RuntimeError as error:
                raise Unavailable(str(error)) from None
        return self._stack.enter_context(fresh_database(self._server))


def engines(campaign: Campaign, wanted: Sequence[str]) -> list[str]:
    return [engine for engine in campaign.engines if not wanted or engine in wanted]


def versions() -> dict[str, str]:
    import apsw

    from standfast import __version__

    return {
        "standfast": __version__,
        "sqlite": apsw.sqlite_lib_version(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": str(os.cpu_count()),
    }


def _judged(campaign: Campaign, total: Outcome) -> list[str]:
    """A control that holds shows that its campaign sees nothing."""
    went_wrong = bool(total.bad or total.seen.get("stopped by the check of the log"))
    total.count("times it went wrong, as it must", int(went_wrong))
    return [] if went_wrong else [f"without {campaign.control} it held: this campaign could not have seen anything"]


def _result(
    campaign: Campaign, engine: str, seeds: tuple[int, int], start: float, seen: Outcome, not_run: str = ""
) -> Result:
    seconds = round(time.monotonic() - start, 1)
    return Result(
        campaign.name,
        campaign.workload,
        engine,
        campaign.unit,
        campaign.control,
        seeds,
        seconds,
        seen.seen,
        seen.bad,
        not_run,
    )


@contextmanager
def place(root: Path) -> Iterator[Path]:
    """An empty directory, in memory where there is some: it is syncs that are counted, not the disk's speed."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else root
    with tempfile.TemporaryDirectory(prefix="standfast-prove-", dir=memory) as directory:
        yield Path(directory)


@contextmanager
def _moved_in() -> Iterator[str]:
    """No campaign may touch the home, or the settings, of whoever starts it."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="standfast-prove-") as root:
        for name in [name for name in os.environ if name.startswith("STANDFAST_") and "TEST" not in name]:
            del os.environ[name]
        for name in ("HOME", "STANDFAST_DATA_DIR"):
            os.environ[name] = os.path.join(root, name.lower())
            os.mkdir(os.environ[name], 0o700)
        try:
            yield root
        finally:
            os.environ.clear()
            os.environ.update(before)
