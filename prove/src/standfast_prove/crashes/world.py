"""A program that is killed and started again, and an oracle outside the store that checks its end.

A crash program ("world") is a class. `live` runs the program from the top, in every process. `recover` runs after a
crash; by default it is the same program. `check` compares the store with the oracle files, into which the program wrote
each answer. Everything that survives a crash of one schedule is in one directory, which can be copied and put back. On
a server each schedule has its own name instead.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import standfast
from standfast import config, handle
from standfast.crash import Schedule
from standfast_prove.faults.rows import Oracle, checkpoint, integrity, noted

T = TypeVar("T")


class World:
    """The store of one schedule, and the oracle files beside it."""

    on_a_server: ClassVar[bool] = True
    """Whether the program can also run on a server."""

    def __init__(self, place: Path, url: str | None = None) -> None:
        self.place = place
        self.now = place / "now"
        self.server = url is not None
        self.url = url or str(self.now / "standfast.db")
        self.number = 0
        self._kept = 0
        self.now.mkdir(parents=True)

    # -- the program, and its judge --------------------------------------------------------------------------

    def live(self) -> None:
        raise NotImplementedError

    def recover(self) -> None:
        self.live()

    def check(self, schedule: Schedule) -> None:
        raise NotImplementedError

    # -- one schedule after another --------------------------------------------------------------------------

    def warm(self) -> None:
        """Run the whole program once in this process before any kill, so that forked children load no module.

        It also creates the store of every schedule. Afterwards the store is closed.
        """
        self.make()
        self._made()
        self.live()
        self.recover()
        self.check(Schedule())

    def _made(self) -> None:
        if not self.server:
            checkpoint(self.url)  # otherwise every process would first read the WAL with the creation of the store
            shutil.copytree(self.now, self.place / "made")

    def make(self) -> None:
        """Prepare the store before the first `live`."""
        self.open().close()

    def reset(self) -> None:
        """Start with empty oracle files."""
        self.number += 1
        self._put_back("made")

    def keep(self) -> None:
        """Keep a copy of the directory as the crash left it."""
        self._kept = self.number
        if not self.server:
            shutil.rmtree(self.place / "kept", ignore_errors=True)
            shutil.copytree(self.now, self.place / "kept")

    def restore(self) -> bool:
        """Put the kept copy back. Returns False on a server, where the first crash must be played again."""
        if self.server:
            return False
        self.number = self._kept
        self._put_back("kept")
        return True

    def _put_back(self, name: str) -> None:
        shutil.rmtree(self.now)
        if self.server:
            self.now.mkdir()
        else:
            shutil.copytree(self.place / name, self.now)

    # -- what worlds are made of -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """A name for this schedule that no other schedule on the server has, also of other sweeps."""
        return f"{self.place.name}-{self.number:05}" if self.server else self.place.name

    @property
    def data(self) -> Path:
        return self.now / "data"

    @property
    def oracle(self) -> Path:
        return self.now / "oracle"

    def open(self) -> standfast.Standfast:
        return handle.connect(config.load(self.url, data_dir=self.data, scope=self.name))

    def tell(self, line: str) -> None:
        acked = Oracle(self.oracle)
        acked.note(line)
        acked.close()

    def acked(self, what: str, act: Callable[[], T]) -> T:
        """Note the try, make the write, and note the acknowledgement."""
        self.tell(f"tried {what}")
        result = act()
        self.tell(f"acked {what}")
        return result

    def lines(self) -> list[str]:
        return noted(self.oracle)

    def noted(self) -> Counter[str]:
        return Counter(self.lines())

    def sound(self) -> None:
        if not self.server:
            assert os.path.getsize(self.url) > 0
            assert integrity(self.url) == "ok"
