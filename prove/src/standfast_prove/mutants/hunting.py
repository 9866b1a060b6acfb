"""Looks for seeded bugs: each harness runs in a child process with a bug and has to report it.

It also runs in a child without a bug and has to report nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from standfast_prove.catalogue import POSTGRES
from standfast_prove.faults import Unavailable
from standfast_prove.faults.children import Nursery
from standfast_prove.mutants import registry
from standfast_prove.mutants.harnesses import LIMIT_S, looked
from standfast_prove.runner import missing_extra

PATIENCE_S = 400.0


class Found(NamedTuple):
    """The result for one mutant."""

    mutant: str
    what: str
    harness: str
    found: bool = False
    tries: int = 0
    """The number of processes, seeds or programs that were played, up to and including the one that found the bug."""
    seconds: float = 0.0
    complaint: str = ""
    not_run: str = ""
    """The reason why this machine cannot run the harness. Then the mutant counts neither as survived nor as found."""

    @property
    def survived(self) -> bool:
        return not self.found and not self.not_run


class Hunter:
    """Hunts one mutant after another, each in its own child process, so that no patch remains."""

    def __init__(
        self,
        place: Callable[[], AbstractContextManager[Path]],
        database: Callable[[], AbstractContextManager[str]],
    ) -> None:
        """Both arguments return context managers: `place()` gives an empty directory, `database()` the URL of an empty
        database.
        """
        self._place = place
        self._database = database
        self._quiet: dict[tuple[str, str], str] = {}
        self._words = tempfile.NamedTemporaryFile(prefix="standfast-words-")  # noqa: SIM115  closed with the hunter
        self._nursery = Nursery(words=Path(self._words.name))

    def hunt(self, name: str) -> Found:
        mutant, start = registry.named(name), time.monotonic()
        said = Found(name, mutant.what, mutant.harness)
        try:
            acked = self._sent(name, bug=True)
            if acked["complaint"] and (noise := self._noise(name)):
                acked["complaint"], acked["found"] = f"complains without the bug too: {noise}", False
        except Unavailable as missing:
            return said._replace(not_run=str(missing))
        return said._replace(seconds=round(time.monotonic() - start, 1), **acked)

    def _noise(self, name: str) -> str:
        """The result of this mutant's harness without the bug, computed once per harness."""
        mutant = registry.named(name)
        key = (mutant.harness, mutant.engine)
        if key not in self._quiet:
            self._quiet[key] = self._sent(name, bug=False)["complaint"]
        return self._quiet[key]

    def _sent(self, name: str, *, bug: bool) -> dict[str, Any]:
        with ExitStack() as stack:
            url = stack.enter_context(self._database()) if registry.named(name).engine == POSTGRES else None
            directory = stack.enter_context(self._place())
            answer = directory / "answer.json"
            (directory / "place").mkdir()
            asked: dict[str, object] = {"name": name, "place": str(directory / "place"), "answer": str(answer)}
            pid = self._nursery.start(f"{__name__}:stalk", **asked, url=url, bug=bug)
            if self._nursery.wait(pid, PATIENCE_S) is None:
                self._nursery.kill(pid)
            acked: dict[str, Any] = {"complaint": "", "tries": 0, "found": False}
            return acked | (json.loads(answer.read_text()) if answer.exists() else {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._nursery.close()
        self._words.close()


def stalk(*, name: str, place: str, answer: str, url: str | None, bug: bool) -> None:
    """In the child: apply the mutation, run its harness, record its report."""
    if bug:
        registry.become(name)
    acked: dict[str, object]
    try:
        seen = looked(registry.named(name), Path(place), url, limit_s=LIMIT_S if bug else 0.0)
        acked = {"tries": seen.tries, "complaint": seen.complaint, "found": bool(seen.complaint)}
    except Unavailable as missing:
        acked = {"not_run": str(missing)}
    except ModuleNotFoundError as missing:
        acked = {"not_run": missing_extra(missing) or f"this harness is broken: {missing}"}
    Path(answer).write_text(json.dumps(acked))
