"""Supervision inside the daemon: a failing part is restarted alone, after a delay that grows with each failure.

A part does its work and returns the time until its next call. If the store is busy, its server is away or the disk is
full, the part waits. After any other error the supervisor replaces the part by a new one. The other parts continue
meanwhile.

There is one thread and no timer: `step` runs all work that is due by the given clock. So a test runs a year in
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from standfast.clock import SECOND_US
from standfast.errors import Corrupt, SchemaTooNew, StandfastError, StorageError, UnsafeStorage

if TYPE_CHECKING:
    from standfast.clock import Clock

BACKOFF_MIN_US = SECOND_US // 10
BACKOFF_MAX_US = 30 * SECOND_US
ERROR_MAX = 300


class Part(Protocol):
    """One part of the daemon, such as firing loops or sweeping."""

    def step(self) -> int:
        """Do the due work. Returns the most microseconds until the next call."""


class PartState(NamedTuple):
    """The state of a part, for other processes."""

    name: str
    state: str
    """ok, waiting (for the store), or failing (restarted after a while)."""
    since_us: int
    failures: int
    error: str | None


class Supervised:
    """A part and its failures so far."""

    def __init__(self, name: str, make: Callable[[], Part], clock: Clock, say: Callable[[str], None]) -> None:
        self.name = name
        self._make = make
        self._clock = clock
        self._say = say
        self._part: Part | None = None
        self._due_us = 0
        self.state = PartState(name, "ok", clock.now_us(), 0, None)

    def step(self, *, woken: bool) -> int:
        """Run the part if it is due, or if it is not failing and an event has come. Returns the microseconds until it
        is due again."""
        now_us = self._clock.mono_us()
        if now_us >= self._due_us or (woken and self.state.state == "ok"):
            self._due_us = self._clock.mono_us() + self._run()
        return max(0, self._due_us - self._clock.mono_us())

    def _run(self) -> int:
        try:
            if self._part is None:
                self._part = self._make()
            delay_us = self._part.step()
        except StorageError as error:
            return self._wait("failing" if isinstance(error, _LASTING) else "waiting", error)
        except Exception as error:  # noqa: BLE001  the other parts continue
            self._part = None
            return self._wait("failing", error)
        if self.state.state != "ok":
            self._say(f"{self.name}: well again after {self.state.failures} failures")
            self.state = PartState(self.name, "ok", self._clock.now_us(), 0, None)
        return delay_us

    def _wait(self, state: str, error: BaseException) -> int:
        words = _words(error)
        if (state, words) != (self.state.state, self.state.error):  # report it once, not at each try
            self._say(f"{self.name}: {state}: {words}")
        since_us = self.state.since_us if self.state.state == state else self._clock.now_us()
        failures = self.state.failures + 1
        self.state = PartState(self.name, state, since_us, failures, words)
        return backoff_us(failures)


def backoff_us(failures: int, most_us: int = BACKOFF_MAX_US) -> int:
    """The delay after this number of failures. Each failure doubles the delay, up to a limit."""
    return min(BACKOFF_MIN_US << min(failures - 1, 20), most_us)


_LASTING = (Corrupt, SchemaTooNew, UnsafeStorage)
"""Errors of the store that waiting does not repair. They count as failures and are retried too."""


class Supervisor:
    """All the parts, in their order."""

    def __init__(self, parts: dict[str, Callable[[], Part]], clock: Clock, say: Callable[[str], None]) -> None:
        self._parts = [Supervised(name, make, clock, say) for name, make in parts.items()]

    def step(self, *, woken: bool = False) -> int:
        """Run the due work; the microseconds until something is due again."""
        return min(part.step(woken=woken) for part in self._parts)

    def states(self) -> list[PartState]:
        return [part.state for part in self._parts]


def _words(error: BaseException) -> str:
    if isinstance(error, StandfastError):
        return error.message.splitlines()[0][:ERROR_MAX]
    return f"{type(error).__name__}: {error}".splitlines()[0][:ERROR_MAX]
