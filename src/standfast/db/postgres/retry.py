"""Retries of one write: full jitter up to a deadline, so that competing writers do not collide again."""

from __future__ import annotations

import os
import time

from standfast.db.contract import DEADLINE_S
from standfast.db.postgres.faults import FEW, Fault

_FIRST_S = 0.01
_LAST_S = 1.0


def uniform(least: float, most: float) -> float:
    """A random number between the two arguments. Importing `random` would take longer than importing this folder."""
    return least + (most - least) * int.from_bytes(os.urandom(4), "big") / 2**32


class RetryBudget:
    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._began = time.monotonic()
        self._deadline_s = deadline_s
        self.tries = 0
        self._few = 0

    def waited_s(self) -> float:
        return time.monotonic() - self._began

    def left_s(self) -> float:
        return max(0.0, self._deadline_s - self.waited_s())

    def few(self) -> bool:
        """Count an error that is retried at most FEW times. Returns whether a retry is left."""
        self._few += 1
        return self._few <= FEW

    def pause(self, fault: Fault) -> bool:
        """Sleep before the next attempt; False if there is no time for one."""
        self.tries += 1
        left_s = self.left_s()
        if left_s <= 0:
            return False
        most_s = min(_LAST_S, _FIRST_S * 2**self.tries)
        # Do not flood a server that has just restarted with connections.
        least_s = 0.05 if fault.lost and self.tries > 1 else 0.0
        time.sleep(min(left_s, uniform(least_s, max(least_s, most_s))))
        return True
