"""Threads that take turns: only one of them runs at any time.

A process of the simulation may stop in the middle of library code, so it needs its own stack. Only one of these
threads runs at any time, and it chooses the next one. So the seed decides the order of events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Strand:
    """A thread that plays one process after another. It runs when its lock is released."""

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self._body: Callable[[], None] | None = None
        threading.Thread(target=self._live, name="standfast-strand", daemon=True).start()

    def begin(self, body: Callable[[], None] | None) -> None:
        """Set the function for the next turn. None ends the strand."""
        self._body = body

    def _live(self) -> None:
        while True:
            self.baton.acquire()
            body, self._body = self._body, None
            if body is None:
                return
            body()


class Strands:
    """Idle strands for reuse, because starting a thread costs more than a step."""

    def __init__(self) -> None:
        self._idle: list[Strand] = []

    def take(self, body: Callable[[], None]) -> Strand:
        strand = self._idle.pop() if self._idle else Strand()
        strand.begin(body)
        return strand

    def give_back(self, strand: Strand) -> None:
        self._idle.append(strand)

    def close(self) -> None:
        for strand in self._idle:
            strand.begin(None)
            strand.baton.release()
        self._idle.clear()
