"""The lease of the leading daemon: one per store and set of accounts. It is in the store, so every machine sees it.

A daemon runs the loops of its own account and of those its configuration lists. A second daemon of the same set waits
and takes over when the first has ended: immediately on the same machine, on another machine when the lease ends. The
lease only saves work. Double runs are prevented by the store: a slot is one row, and a run is claimed with a fencing
token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from standfast import serial
from standfast.clock import SECOND_US
from standfast.core.checks import NAME_MAX
from standfast.core.leases import holder_text, renewer
from standfast.errors import InProgress, LeaseLost, NotFound

if TYPE_CHECKING:
    from standfast.handle import Standfast

NAME = "daemon"
RENEW_US = 10 * SECOND_US
"""The interval of renewal. It is shorter than that of the renewal thread, which renews only if this thread waits for
the store."""


def name_of(accounts: Iterable[str]) -> str:
    """The lease of the daemons that run the loops of exactly these accounts."""
    text = f"{NAME}:{','.join(sorted(set(accounts)))}"
    return text if len(text) <= NAME_MAX else f"{NAME}:{serial.hash(text)}"


class Lead:
    """Whether this process is the leader, which fires loops and runs commands."""

    def __init__(self, sf: Standfast, note: str, accounts: Iterable[str]) -> None:
        self._sf = sf
        self._note = note
        self._name = name_of(accounts)
        self._fence: int | None = None
        self._renewed_us = 0
        self._renewer = renewer(sf._store)
        self.other: str | None = None
        """The name of the leader, if it is another process."""

    @property
    def held(self) -> bool:
        return self._fence is not None

    @property
    def trusted(self) -> bool:
        """Whether the lease of this process is still valid by its own clock."""
        return self._renewer.trusted

    @property
    def good_until_us(self) -> int:
        return self._renewer.good_until_us

    def step(self) -> bool:
        """Take or renew the lease; False if another daemon has it. Raises the errors of the store."""
        if self._fence is not None:
            self._keep()
        if self._fence is None:
            self._take()
        return self.held

    def _keep(self) -> None:
        now_us = self._sf._store.caller.clock.mono_us()
        if now_us - self._renewed_us < RENEW_US and self.trusted:
            return
        self._renewer.renew()
        try:
            assert self._fence is not None
            self._sf.leases.renew(self._name, self._fence)
            self._renewed_us = now_us
        except (LeaseLost, NotFound):
            self._fence = None

    def _take(self) -> None:
        before_us = self._sf._store.caller.clock.mono_us()
        try:
            found = self._sf.leases.get(self._name)
        except NotFound:
            found = None
        if found is not None and found.standing == "live":
            if found.holder != self._sf._store.caller.holder:
                self.other = holder_text(found.holder)
                return
            self._fence = found.fence  # this process holds it: only the answer to its claim was lost
        else:
            try:
                self._fence = self._sf.leases.acquire(self._name, note=self._note).fence
            except InProgress:
                return  # another daemon took it first, and the next step reads its name
        self.other = None
        self._renewed_us = before_us
        self._renewer.start()

    def give_back(self) -> None:
        if self._fence is not None:
            self._sf.leases.release(self._name, self._fence)
            self._fence = None
