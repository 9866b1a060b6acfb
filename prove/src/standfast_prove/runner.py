"""Runs each campaign for its share of the time, one seed after another, and reports the results."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast import hints
from standfast.errors import InvalidInput
from standfast_prove import places
from standfast_prove.catalogue import POSTGRES, Campaign
from standfast_prove.extras import PACKAGES, needs, wanting
from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome
from standfast_prove.results import WENT_WRONG, Result
from standfast_prove.sizes import shortened
from standfast_prove.versions import of_server

if TYPE_CHECKING:
    from standfast_prove.mutants.hunting import Hunter

Say = Callable[[str], None]
Keep = Callable[[Result], None]

MEMORY = "/dev/shm"
KEPT_EVERY_S = 60.0
CONTROL_S = 60.0
"""A control may run for this time until it fails, even if its share is shorter."""


class Runner:
    """One run of `standfast prove`. `say` receives each line of progress."""

    def __init__(self, stack: ExitStack, *, say: Say = lambda line: None, short: bool = False) -> None:
        if not __debug__:
            raise InvalidInput(
                "the oracles are assertions, and `python -O` ignores assertions",
                "start it without -O (PYTHONOPTIMIZE)",
            )
        self._stack = stack
        self._say = say
        self._short = short
        self._server = ""
        self._root = stack.enter_context(_moved_in())
        self.interrupted = False
        """Whether Ctrl-C was pressed. The results until then count."""
        self.postgres = ""
        """The version of the server, once it has started."""

    def run(
        self, campaign: Campaign, engine: str, *, seed: int, seconds: float, keep: Keep = lambda result: None
    ) -> Result:
        """Play one seed after another until the time is over or a seed fails, but at least one.

        `keep` gets the results so far every minute, so that a crash does not lose the results of a long run.
        """
        total, last, start = Outcome(campaign.name), seed - 1, time.monotonic()
        first, not_run, kept = seed, "", start
        while True:
            try:
                self._say(f"{campaign.name} on {engine}, seed {seed}: {total.figures or 'begun'}")
                played = self._once(campaign, engine, seed)
                not_run = said_by_a_child(played.bad)
                total.add(played)
                last = seed
            except Unavailable as missing:
                not_run = str(missing)
            except KeyboardInterrupt:
                self.interrupted = True
            except Exception as error:  # noqa: BLE001  any error is a failure of the campaign
                not_run = missing_extra(error)
                total.bad += [] if not_run else [f"{type(error).__name__}: {str(error)[-600:]}"]
                last = seed
            wait_s = max(seconds, CONTROL_S) if campaign.control and not wrong(total) else seconds
            if not_run or self.interrupted or total.bad or time.monotonic() - start >= wait_s:
                break
            seed += 1
            if time.monotonic() - kept >= KEPT_EVERY_S:
                kept = time.monotonic()
                keep(_result(campaign, engine, (first, last), start, total, ""))
        if not_run:
            total = Outcome()
        elif campaign.control and not self.interrupted:
            total.bad = _judged(campaign, total)
        elif not total.bad and not self.interrupted and not total.seen.get(campaign.unit):
            total.bad.append(f"it counted no {campaign.unit}: nothing was shown")
        elif total.bad:
            words = ("prove", "--only", campaign.name, "--engine", engine, "--seed", str(seed), "--minutes", "0")
            total.bad.append(f"again with: {hints.command(*words, *('--short',) * self._short)}")
        return _result(campaign, engine, (first, last), start, total, not_run)

    def _once(self, campaign: Campaign, engine: str, seed: int) -> Outcome:
        with ExitStack() as stack:
            more = {"url": stack.enter_context(self.database())} if engine == POSTGRES else {}
            directory = stack.enter_context(self.place())
            return play(campaign, directory, seed=seed, short=self._short, **more)

    def place(self) -> AbstractContextManager[Path]:
        return place(self._root)

    def database(self) -> AbstractContextManager[str]:
        """A new database on the server of this run. Raises Unavailable if there is no server."""
        needs("psycopg")
        from standfast_prove.postgres import TemporaryPostgres, fresh_database

        if not self._server:
            self._server = os.environ.get("STANDFAST_TEST_PG_URL", "")
            try:
                self._server = self._server or self._stack.enter_context(TemporaryPostgres()).url
            except (RuntimeError, OSError) as error:
                raise Unavailable(f"no PostgreSQL could be started: {error}") from None
            self.postgres = of_server(self._server)
        return fresh_database(self._server)

    def hunter(self) -> AbstractContextManager[Hunter]:
        from standfast_prove.mutants.hunting import Hunter

        return Hunter(self.place, self.database)


def play(campaign: Campaign, directory: Path, *, seed: int, short: bool = False, **more: Any) -> Outcome:
    """Run one seed of a campaign in an empty directory. `more` replaces its own arguments."""
    module, _, name = campaign.place.partition(":")
    run = getattr(import_module(f"standfast_prove.campaigns.{module}"), name)
    arguments = shortened(run, campaign.arguments) if short and not campaign.control else campaign.arguments
    outcome: Outcome = run(directory, seed=seed, **{**arguments, **more})
    return outcome


def wrong(outcome: Outcome) -> str:
    """The violation, in one sentence, or ""."""
    if outcome.bad:
        return outcome.bad[0]
    stopped = outcome.seen.get("stopped by the check of the log")
    return f"{stopped} processes were stopped by the check of the log" if stopped else ""


def missing_extra(error: BaseException) -> str:
    """The reason why it could not run, if only a package is missing; otherwise ""."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in PACKAGES:
        return wanting((error.name or "").partition(".")[0])
    return ""


def said_by_a_child(bad: Sequence[str]) -> str:
    """The reason why it could not run, if a child of the campaign reported one; otherwise ""."""
    acked = (re.search(rf"^{Unavailable.__module__}\.Unavailable: (.+)", sentence, re.MULTILINE) for sentence in bad)
    return next((match.group(1)[:200] for match in acked if match), "")


def engines(campaign: Campaign, wanted: Sequence[str]) -> list[str]:
    return [engine for engine in campaign.engines if not wanted or engine in wanted]


def _judged(campaign: Campaign, total: Outcome) -> list[str]:
    """Add a violation for a control that did not fail, because then its campaign cannot detect the failure."""
    went_wrong = bool(wrong(total))
    total.count(WENT_WRONG, int(went_wrong))
    return [] if went_wrong else [f"without {campaign.control} it held: this campaign could not have seen anything"]


def _result(
    campaign: Campaign, engine: str, seeds: tuple[int, int], start: float, seen: Outcome, not_run: str
) -> Result:
    seconds = round(time.monotonic() - start, 1)
    about = (campaign.name, campaign.workload, engine, campaign.unit, campaign.control, seeds, seconds)
    return Result(*about, dict(seen.seen), list(seen.bad), not_run)


@contextmanager
def place(root: Path) -> Iterator[Path]:
    """An empty directory, in memory if there is enough. Campaigns count syncs and do not measure the disk."""
    memory = MEMORY if os.access(MEMORY, os.W_OK) else root
    with places.kept(str(memory)) as directory:
        yield directory


@contextmanager
def _moved_in() -> Iterator[Path]:
    """Set another home directory: no campaign may touch the home or the settings of its user."""
    before = dict(os.environ)
    places.clear(MEMORY, tempfile.gettempdir())
    with places.kept() as root:
        for name in [name for name in os.environ if name.startswith("STANDFAST_") and "TEST" not in name]:
            del os.environ[name]
        for name in ("HOME", "STANDFAST_DATA_DIR"):
            os.environ[name] = os.path.join(root, name.lower())
            os.mkdir(os.environ[name], 0o700)
        os.environ["STANDFAST_REMEMBER"] = "0"  # the next run's server may have the same port
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.path.join(root, "hypothesis")  # not the user's own directory
        try:
            yield root
        finally:
            os.environ.clear()
            os.environ.update(before)
