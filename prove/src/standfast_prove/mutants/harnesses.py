"""The harnesses for seeded bugs. Each plays tries until one ends in an error or a violation."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast import crash
from standfast_prove.faults import Unavailable
from standfast_prove.mutants.patching import Mutant
from standfast_prove.runner import play, wrong

LIMIT_S = 15.0
"""No new try starts after this number of seconds. The running try may finish."""
SECOND_CRASHES = 100
BRIEFLY = 6
"""The number of first crashes in a sweep without a bug. Such a sweep must report nothing."""
PROGRAMS = 15
BUSY = 10
"""A call may be slower than alone by this factor."""


@dataclass
class Look:
    """The state of one running harness."""

    mutant: Mutant
    name: str
    place: Path
    url: str | None
    brief: bool
    tries: int = 0
    complaint: str = ""


def looked(mutant: Mutant, place: Path, url: str | None = None, *, limit_s: float = LIMIT_S) -> Look:
    """Run the harness of `mutant` in this process. Without a limit, only check that it reports nothing.

    Raises Unavailable, or ModuleNotFoundError for a package that is not installed.
    """
    kind, _, name = mutant.harness.partition(" ")
    look, clock = Look(mutant, name, place, url, brief=not limit_s), _Clock(limit_s)
    try:
        for said in _HARNESSES[kind](look):
            look.tries += kind != "sweep" or not look.tries  # a sweep counts its own processes
            look.complaint = _short(said)
            if said or clock.over:
                break
    except (Unavailable, ModuleNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001  however it falls over, it was noticed
        look.tries += kind != "sweep" or not look.tries
        look.complaint = _short(f"{type(error).__name__}: {error}") if len(str(error)) > 30 else _where(error)
    return look


class _Clock:
    """Ends after a number of CPU seconds, which take longer on a busy machine."""

    def __init__(self, limit_s: float) -> None:
        self._spent_s, self._until_s = self._now_s() + limit_s, time.monotonic() + limit_s * BUSY

    @property
    def over(self) -> bool:
        return self._now_s() >= self._spent_s or time.monotonic() >= self._until_s

    @staticmethod
    def _now_s() -> float:
        return sum(os.times()[:4])


def _short(words: str) -> str:
    """The last line of the output, which has the reason. If it is short, the line before it is added."""
    lines = [line.strip() for line in words.splitlines() if line.strip(" ^~")]
    return " ".join(lines[-1:] if lines and len(lines[-1]) > 30 else lines[-2:])[:160]


def _where(error: BaseException) -> str:
    """The source line of an assertion without a message."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _short(f"{traceback.extract_tb(error.__traceback__)[-1].line}: {type(error).__name__} {error}")


# -- the harnesses ---------------------------------------------------------------------------------------------


def _sweep(look: Look) -> Iterator[str]:
    """Play every first crash, then a sample of second crashes."""
    from standfast_prove.crashes.resources import world
    from standfast_prove.crashes.sweeping import sweep

    live = crash._live

    def counted(*args: Any) -> Any:
        look.tries += 1
        return live(*args)

    crash._live = counted  # type: ignore[assignment]  # in this process, which looks at nothing else
    for firsts, seconds in ((BRIEFLY, 0),) if look.brief else ((None, 0), (None, SECOND_CRASHES)):
        sweep(world(look.name, look.place / str(seconds), look.url), firsts=firsts, seconds=seconds)
        yield ""


def _check(look: Look) -> Iterator[str]:
    from standfast_prove.mutants import effect_scenes, view_scenes

    scenes = effect_scenes.SCENES | view_scenes.SCENES
    effect_scenes.play(scenes[look.name], look.place)
    yield ""


def _soak(look: Look) -> Iterator[str]:
    from standfast_prove.mutants.loops import soaked

    for _ in soaked(look.place):
        yield ""


def _model(look: Look) -> Iterator[str]:
    from standfast_prove.models.playing import play as played

    for seed in range(1000):
        where = look.url or str(look.place / "standfast.db")
        played(look.name, where, look.place / "data", examples=3 if look.brief else PROGRAMS, seed=seed, small=False)
        yield ""


def _campaign(look: Look) -> Iterator[str]:
    """Play one seed after another, with shorter runs than `prove`."""
    from standfast_prove.catalogue import named

    (campaign,) = (one for one in named((look.name,)) if one.name == look.name)
    more = {"url": look.url} if look.url else {}
    for seed in range(1000):
        (look.place / str(seed)).mkdir()
        yield wrong(play(campaign, look.place / str(seed), seed=seed, **{**more, **look.mutant.arguments}))


_HARNESSES: dict[str, Callable[[Look], Iterator[str]]] = {
    "sweep": _sweep,
    "check": _check,
    "soak": _soak,
    "model": _model,
    "campaign": _campaign,
}
