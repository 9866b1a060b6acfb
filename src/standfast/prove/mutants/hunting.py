"""Looking for seeded bugs: each harness runs in a child that has one, and has to complain.

A campaign counts only if it finds its own. What is not found within `LIMIT_S` has survived.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from standfast.prove.catalogue import POSTGRES
from standfast.prove.faults import Unavailable
from standfast.prove.faults.children import Nursery
from standfast.prove.mutants import registry
from standfast.prove.mutants.patching import Mutant

LIMIT_S = 20.0
SCHEDULES = 400
"""Of a sweep: every single crash, and the first of the second ones."""


class Found(NamedTuple):
    """What became of one mutant."""

    mutant: str
    what: str
    harness: str
    found: bool
    tries: int
    """Seeds, soaks or lives that were played, the one that noticed included."""
    seconds: float
    complaint: str = ""
    not_run: str = ""
    """Why this machine could not look; then it neither survived nor was found."""

    @property
    def survived(self) -> bool:
        return not self.found and not self.not_run


class Hunter:
    """Hunts one mutant after another; each in a child, so that no patch stays behind."""

    def __init__(
        self,
        place: Callable[[], AbstractContextManager[Path]],
        database: Callable[[], AbstractContextManager[str]],
    ) -> None:
        """Blocks: `place()` with an empty directory, `database()` with the address of an empty database."""
        self._place = place
        self._database = database
        self._nursery = Nursery()

    def hunt(self, name: str) -> Found:
        mutant, start = registry.named(name), time.monotonic()
        said = Found(name, mutant.what, mutant.harness, False, 0, 0.0)
        with ExitStack() as stack:
            try:
                url = stack.enter_context(self._database()) if mutant.engine == POSTGRES else None
            except Unavailable as missing:
                return said._replace(not_run=str(missing))
            told = self._sent(name, stack.enter_context(self._place()), url)
        return said._replace(seconds=round(time.monotonic() - start, 1), found=bool(told["complaint"]), **told)

    def _sent(self, name: str, directory: Path, url: str | None) -> dict[str, Any]:
        answer = directory / "answer.json"
        (directory / "place").mkdir()
        arguments: dict[str, object] = {"name": name, "place": str(directory / "place"), "answer": str(answer)}
        pid = self._nursery.start(f"{__name__}:stalk", **arguments, url=url)
        if self._nursery.wait(pid, LIMIT_S * 3) is None:
            self._nursery.kill(pid)
        told: dict[str, Any] = json.loads(answer.read_text()) if answer.exists() else {"complaint": "", "tries": 0}
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._nursery.close()


# -- in the child ------------------------------------------------------------------------------------------------


def stalk(*, name: str, place: str, answer: str, url: str | None) -> None:
    """Become the mutant, run its harness, write down what it said."""
    mutant = registry.named(name)
    look = _harness(mutant, Path(place), url)
    registry.become(name)
    told: dict[str, object] = {"complaint": "", "tries": 0}
    try:
        told["tries"], told["complaint"] = _looked(look)
    except Unavailable as missing:
        told["not_run"] = str(missing)
    Path(answer).write_text(json.dumps(told))


def complaint(mutant: Mutant, place: Path, url: str | None = None) -> str:
    """What its harness says in this process, patched or not; "" for nothing."""
    return _looked(_harness(mutant, place, url))[1]


def _looked(look: Iterator[str]) -> tuple[int, str]:
    tries, end = 0, time.monotonic() + LIMIT_S
    try:
        for tries, said in enumerate(look, 1):
            if said:
                return tries, _first(said)
            if time.monotonic() > end:
                break
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001  however it falls over, it was noticed
        return tries + 1, _first(f"{type(error).__name__}: {error}")
    return tries, ""


def _first(words: str) -> str:
    """The end of what was said, on one line: that is where the reason stands."""
    return " ".join(words.split())[-200:] or "without a word"


def _harness(mutant: Mutant, place: Path, url: str | None) -> Iterator[str]:
    kind, _, name = mutant.harness.partition(" ")
    made: Iterator[str] = _HARNESSES[kind](mutant, name, place, url)
    return made


def _sweep(mutant: Mutant, name: str, place: Path, url: str | None) -> Iterator[str]:
    from standfast.prove.crashes.effects import swept

    swept(place, name, SCHEDULES)
    yield ""


def _check(mutant: Mutant, name: str, place: Path, url: str | None) -> Iterator[str]:
    from standfast.prove.mutants.effect_scenes import play

    play(name, place)
    yield ""


def _soak(mutant: Mutant, name: str, place: Path, url: str | None) -> Iterator[str]:
    from standfast.prove.mutants.loops import soaked

    for _ in soaked(place):
        yield ""


def _campaign(mutant: Mutant, name: str, place: Path, url: str | None) -> Iterator[str]:
    """Seed after seed, shorter than `prove` alone would play them."""
    from standfast.prove.catalogue import named
    from standfast.prove.runner import play, wrong

    (campaign,) = (one for one in named((name,)) if one.name == name)
    for seed in range(1000):
        (place / str(seed)).mkdir()
        more = {"url": url} if url else {}
        yield wrong(play(campaign, place / str(seed), seed=seed, **more, **mutant.arguments))


_HARNESSES: dict[str, Callable[[Mutant, str, Path, str | None], Iterator[str]]] = {
    "sweep": _sweep,
    "check": _check,
    "soak": _soak,
    "campaign": _campaign,
}
