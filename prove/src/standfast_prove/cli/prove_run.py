"""The steps of `standfast prove`: run the campaigns, then the seeded bugs, then write one small file and a page."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from standfast import hints
from standfast.cli import exits
from standfast.cli.output import Out
from standfast.cli.render import Column
from standfast.errors import InvalidInput
from standfast_prove import catalogue, results
from standfast_prove.catalogue import Campaign
from standfast_prove.results import Result, Run
from standfast_prove.runner import Runner, engines
from standfast_prove.versions import versions

MUTANTS_SHARE = 0.4
"""The share of the time for seeded bugs. All of them are tried, even in a short run."""


WHOLE_MINUTES = 30
"""If all campaigns together have less than this time, each is played in its short form."""


class Wanted(NamedTuple):
    minutes: float
    seed: int | None
    go_on: bool
    only: tuple[str, ...]
    engine: tuple[str, ...]
    short: bool
    mutants: bool
    directory: Path

    @property
    def is_short(self) -> bool:
        """Whether to play short tries. Every campaign is played at least once, so a run of a few minutes needs short
        tries.
        """
        return self.short or (not self.only and 0 < self.minutes < WHOLE_MINUTES)


# -- without a run -----------------------------------------------------------------------------------------------


def listing(out: Out, *, mutants: bool) -> None:
    if mutants:
        from standfast_prove.mutants import registry

        bugs = [{"mutant": name, "what": one.what, "harness": one.harness} for name, one in registry.every().items()]
        out.rows(bugs, [Column("mutant"), Column("what"), Column("harness")])
        return
    rows = [
        {
            "workload": one.workload,
            "campaign": one.name,
            "engines": " ".join(one.engines),
            "counts": one.unit,
            "without": one.control,
        }
        for one in catalogue.CAMPAIGNS
    ]
    out.rows(rows, [Column(name) for name in ("workload", "campaign", "engines", "counts", "without")])


def report(out: Out, directory: Path) -> None:
    from standfast_prove.report import page

    if not results.read(directory):
        raise InvalidInput(
            f"there is no result in {directory}", hints.command("prove", "--minutes", "5", "--results", str(directory))
        )
    out.text(page(directory).rstrip("\n"))


# -- a run -------------------------------------------------------------------------------------------------------


def prove(out: Out, wanted: Wanted) -> int:
    """Run it. Returns the exit code: 0 if every promise held and every mutant was found."""
    _check_names(wanted)
    _check_place(wanted.directory)
    run = _Proof(out, wanted)
    with ExitStack() as stack, _ended_by_a_signal():
        run.play(Runner(stack, say=run.shown.say, short=wanted.is_short))
    if not run.played and not run.bugs:
        raise KeyboardInterrupt  # before any result
    return run.acked()


class _Proof:
    """One run from its first campaign to its file."""

    def __init__(self, out: Out, wanted: Wanted) -> None:
        self.out = out
        self.wanted = wanted
        self.shown = _Progress(out)
        self.started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.begun = time.monotonic()
        self.versions = versions()
        self.played: list[Result] = []
        self.bugs: list[dict[str, Any]] = []
        self.interrupted = False
        self._path: Path | None = None

    def play(self, runner: Runner) -> None:
        try:
            if not self.wanted.mutants:
                self._campaigns(runner)
            if not runner.interrupted and (self.wanted.mutants or not self.wanted.only):
                self._mutants(runner)
        except KeyboardInterrupt:
            self.interrupted = True
        self.interrupted = self.interrupted or runner.interrupted
        self.shown.clear()
        if runner.postgres:
            self.versions["postgresql"] = runner.postgres

    def _campaigns(self, runner: Runner) -> None:
        wanted = self.wanted
        earlier = results.read(wanted.directory) if wanted.go_on else []
        chosen = [(one, engine) for one in catalogue.named(wanted.only) for engine in engines(one, wanted.engine)]
        minutes = wanted.minutes * (1 if wanted.only else 1 - MUTANTS_SHARE)
        share_s = minutes * 60 / sum(campaign.share for campaign, _ in chosen) if chosen else 0.0
        for number, (campaign, engine) in enumerate(chosen, 1):
            self.shown.part = f"{number}/{len(chosen)}"
            seed = results.next_seed(earlier, campaign.name, engine) if wanted.go_on else wanted.seed or 0
            result = runner.run(campaign, engine, seed=seed, seconds=campaign.share * share_s, keep=self._keep)
            self.shown.clear()
            if result.seen or result.bad or result.not_run:
                self.played.append(result)  # before any output, because Ctrl-C may come at any moment
                _tell(self.out, campaign, result)
            if runner.interrupted:
                return

    def _mutants(self, runner: Runner) -> None:
        """Look for every seeded bug without a time limit. A campaign counts only if it finds its own bugs."""
        names = _bugs(self.wanted)
        with runner.hunter() as hunter:
            for number, name in enumerate(names, 1):
                self.shown.part = f"bug {number}/{len(names)}"
                self.shown.say(name)
                found = hunter.hunt(name)
                self.bugs.append(found._asdict())
                if found.survived:
                    self.shown.clear()
                    self.out.say(f"{self.out.styled('BAD', 'red')} {name}: SURVIVED {found.harness} {found.complaint}")

    def _written(self, *more: Result) -> tuple[Run, Path]:
        seconds = round(time.monotonic() - self.begun, 1)
        run = Run(self.started, _command(), self.versions, [*self.played, *more], self.bugs, seconds)
        self._path = results.write(self.wanted.directory, run, self._path)
        return run, self._path

    def _keep(self, result: Result) -> None:
        """Called in the middle of a campaign: write the results so far. Controls are judged only at their end."""
        if not result.control:
            self._written(result)

    def acked(self) -> int:
        run, path = self._written()
        _write_page(self.wanted.directory)
        good = all(one.held for one in self.played) and not any(_survived(bug) for bug in self.bugs)
        document = {**run._asdict(), "results": [one._asdict() for one in self.played]}
        about = {"held": good, "interrupted": self.interrupted, "file": str(path)}
        self.out.record(about | document, text=self._summary(run, path))
        if self.interrupted:
            return exits.INTERRUPTED
        return exits.OK if good else exits.FAILED

    def _summary(self, run: Run, path: Path) -> Iterator[str]:
        if self.wanted.mutants:
            yield from self.out.table(map(_shown, run.mutants), [Column(name) for name in _BUG_COLUMNS])
        if self.interrupted:
            yield "ended early: what was played until then counts"
        ran = [one for one in run.results if not one.not_run]
        if ran:
            tries = sum(one.tries for one in run.results if not one.control)
            bad = [one.campaign for one in run.results if not one.held]
            yield f"{len(ran)} campaigns: {tries:,} tries, " + (f"WRONG in {', '.join(bad)}" if bad else "all held")
        if run.mutants:
            survived = [bug["mutant"] for bug in run.mutants if _survived(bug)]
            asked = [bug for bug in run.mutants if not bug["not_run"]]
            found = f"{len(asked) - len(survived)} of {len(asked)} seeded bugs found"
            yield f"{found}; SURVIVED: {', '.join(survived)}" if survived else found
        not_run = sorted({one.not_run for one in run.results if one.not_run})
        not_run += sorted({bug["not_run"] for bug in run.mutants if bug["not_run"]} - set(not_run))
        yield from (f"not run here: {why}" for why in not_run)
        yield f"written to {path}; to read: {path.parent / PAGE}"


PAGE = "report.md"
_BUG_COLUMNS = ("mutant", "harness", "found", "what")


def _write_page(directory: Path) -> None:
    from standfast_prove.report import page

    (directory / PAGE).write_text(page(directory))


def _shown(bug: dict[str, Any]) -> dict[str, Any]:
    if bug["not_run"]:
        said = f"not run: {bug['not_run']}"
    elif bug["found"]:
        said = f"after {bug['tries']} tries, {bug['seconds']} s"
    else:
        said = f"SURVIVED {bug['tries']} tries {bug['complaint']}"
    return {**bug, "found": said}


def _survived(bug: dict[str, Any]) -> bool:
    return not bug["found"] and not bug["not_run"]


def _tell(out: Out, campaign: Campaign, result: Result) -> None:
    what = f"{campaign.name} on {result.engine}"
    if result.not_run:
        out.say(f"{out.styled('--', 'yellow')}  {what}: not run: {result.not_run}")
        return
    figures = ", ".join(f"{number:,} {name}" for name, number in result.seen.items())
    mark = out.styled("ok ", "green") if result.held else out.styled("BAD", "red")
    out.say(f"{mark} {what}: {figures} ({result.seconds:.0f} s)", *(f"    {sentence}" for sentence in result.bad))


# -- what was asked for --------------------------------------------------------------------------------------------


def _check_names(wanted: Wanted) -> None:
    known = catalogue.known()
    if wanted.mutants and wanted.only:
        known += _bug_words()
    for name in wanted.only:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?  all of them: " if near else "these there are: "
            raise InvalidInput(f"no campaign or workload is named {name!r}", hint + "standfast prove --list")


def _check_place(directory: Path) -> None:
    """Check before the run that the result files can be read, and that the directory can be written."""
    import tempfile

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            results.read(directory)
            results.tables(directory)
    except OSError as error:
        raise InvalidInput(f"nothing can be written to {directory}: {error.strerror}", "--results DIR") from None


def _bugs(wanted: Wanted) -> list[str]:
    """The seeded bugs with these names, or those that the named campaign, resource or model has to find."""
    from standfast_prove.mutants import registry

    return [
        name
        for name, one in registry.every().items()
        if (not wanted.only or {name, *_words(one.harness)} & set(wanted.only))
        and (not wanted.engine or one.engine in wanted.engine)
    ]


def _bug_words() -> list[str]:
    from standfast_prove.mutants import registry

    return [word for name, one in registry.every().items() for word in (name, *_words(one.harness))]


def _words(harness: str) -> list[str]:
    """The names that select a harness: "effects" also selects "sweep effects:OnlyPlain"."""
    kind, _, name = harness.partition(" ")
    return [harness, name.partition(":")[0] or kind]


def _command() -> str:
    words = sys.argv[sys.argv.index("prove") + 1 :] if "prove" in sys.argv else []
    return hints.command("prove", *words)


@contextmanager
def _ended_by_a_signal() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C: children, mounts and servers are removed, and finished runs count."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """One line of progress, on a terminal only."""

    def __init__(self, out: Out) -> None:
        self._shows = out.for_people and sys.stderr.isatty()
        self._start = time.monotonic()
        self.part = ""

    def say(self, line: str) -> None:
        if self._shows:
            gone_s = int(time.monotonic() - self._start)
            sys.stderr.write(f"\r\x1b[K{f'{gone_s // 60}:{gone_s % 60:02} [{self.part}] {line}'[:110]}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
