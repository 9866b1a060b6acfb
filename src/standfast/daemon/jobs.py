"""The daemon's work besides running commands: fire due loops, sweep, read its own settings.

All work uses public methods that any caller of the store could call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from standfast import crash
from standfast.clock import HOUR_US, MINUTE_US, SECOND_US
from standfast.core.journal import remember
from standfast.errors import StandfastError
from standfast.record.loops.fire import who_runs

if TYPE_CHECKING:
    from standfast.config import Settings
    from standfast.daemon.instance import Instance
    from standfast.handle import Standfast

FIRE_EVERY_US = 10 * SECOND_US
"""The longest time between two checks, because the clock may have been set."""
FIRE_ROUNDS = 100
SWEEP_EVERY_US = 30 * SECOND_US
COLLECT_EVERY_US = 6 * HOUR_US
CARE_EVERY_US = MINUTE_US
REMEMBER_EVERY_US = MINUTE_US
WATCH_EVERY_US = 2 * SECOND_US


class Firing:
    """Write a row for every slot of these accounts' loops, as soon as the slot is due."""

    def __init__(
        self, sf: Standfast, counts: dict[str, int], accounts: Sequence[str], foreign: list[dict[str, str]]
    ) -> None:
        self._sf = sf
        self._counts = counts
        self._accounts = accounts
        self._foreign = foreign
        self._look_us: int | None = None

    def step(self) -> int:
        self._look_around()
        for _ in range(FIRE_ROUNDS):
            # Read before the write that fires loops: each write sends a notification that would wake this thread
            # again.
            due_us = self._sf.loops.next_due_us(runs=False, accounts=self._accounts)
            now_us = self._sf.read(lambda tx: tx.now_us())
            if due_us is None:
                return FIRE_EVERY_US
            if due_us > now_us:
                return min(due_us - now_us, FIRE_EVERY_US)
            crash.point("daemon.before_fire")
            self._counts["fired"] += len(self._sf.loops.fire_due(accounts=self._accounts))
            crash.point("daemon.after_fire")
        return 0

    def _look_around(self) -> None:
        """Loops that are late because no daemon of their account runs; for `daemon status`."""
        now_us = self._sf._store.caller.clock.mono_us()
        if self._look_us is not None and now_us - self._look_us < FIRE_EVERY_US:
            return
        self._look_us = now_us
        late = self._sf.loops.absent(everywhere=True)
        of_others = [one for one in late if one.account not in self._accounts]
        self._foreign[:] = [
            dict(zip(("loop", "why", "then"), (one.name, *who_runs(one.account)), strict=True)) for one in of_others
        ]


class Sweeping:
    """Remove expired rows and unused rows. A failed sweep does not delay the others."""

    def __init__(self, sf: Standfast) -> None:
        self._clock = sf._store.caller.clock
        self._sweeps: list[tuple[int, Callable[[], object]]] = [
            (SWEEP_EVERY_US, sf.state.expire),
            (SWEEP_EVERY_US, sf.mail.sweep),
            (SWEEP_EVERY_US, lambda: _bring_home(sf)),
            (CARE_EVERY_US, lambda: sf.engine.care()),  # noqa: PLW0108  the store may have a new engine by then
            (COLLECT_EVERY_US, sf.artifacts.collect),
            (REMEMBER_EVERY_US, lambda: remember(sf._store)),
        ]
        now_us = self._clock.mono_us()
        self._due_us = [now_us + every_us // 2 for every_us, _ in self._sweeps]

    def step(self) -> int:
        failed: StandfastError | None = None
        for index, (every_us, sweep) in enumerate(self._sweeps):
            if self._clock.mono_us() < self._due_us[index]:
                continue
            crash.point("daemon.before_sweep")
            try:
                sweep()
            except StandfastError as error:
                failed = error
                continue
            self._due_us[index] = self._clock.mono_us() + every_us
        if failed is not None:
            raise failed
        return max(SECOND_US, min(self._due_us) - self._clock.mono_us())


def _bring_home(sf: Standfast) -> None:
    """Import the records that hooks left in spools."""
    from standfast.interchange.hooks.spool import drain_everywhere

    drain_everywhere(sf._store, sf.settings.data_dir)


class Watching:
    """Whether this process still serves the configured store and still holds its lock."""

    def __init__(self, settings: Settings, reload: Callable[[], Settings], guard: Instance) -> None:
        self._target = settings.target
        self._accounts = settings.options.accounts
        self._reload = reload
        self._guard = guard
        self.ended: str | None = None
        """Why the daemon should end, so that systemd starts it again."""

    def step(self) -> int:
        if not self._guard.valid():
            self.ended = f"{self._guard.path} was taken away"
            return 0
        try:
            found = self._reload()
        except StandfastError as error:
            # A person may be editing the file: keep the settings that were read before.
            raise RuntimeError(f"the configuration cannot be read: {error.message}") from error
        if found.target != self._target:
            self.ended = f"the store is {found.target.shown} now"
        elif found.options.accounts != self._accounts:
            self.ended = "the configuration lists other accounts now"
        return 0 if self.ended else WATCH_EVERY_US
