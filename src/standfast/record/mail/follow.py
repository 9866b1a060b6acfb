"""Following a box: mail as it comes, one at a time.

A follower sleeps until the store notifies it, then takes ready mail. Asking for the next
mail says that the one before was read, in the same transaction that takes the next; whether it is
done is for the reader to say. What was read and not done comes back after its lease, because
a reader that continued has stopped renewing it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from standfast import crash
from standfast.db.contract import Watch
from standfast.errors import StandfastError
from standfast.record.mail.models import Mail

if TYPE_CHECKING:
    from standfast.record.mail.resource import Mails

LOOK_AGAIN_S = 1.0
"""The bell is only a hint, and a deferred mail rings none: the box is looked into at least this often."""


class Follow:
    """An iterator over the mail of one box. Leaving it early gives the mail in hand back after its lease."""

    def __init__(
        self,
        resource: Mails,
        claim: Callable[[Mail | None], Mail | None],
        ready: Callable[[], bool],
        timeout_s: float | None,
    ) -> None:
        self._resource = resource
        self._claim = claim
        self._ready = ready
        self.patience_s = timeout_s
        """How long to wait for the next mail before it is over; None permanently."""
        self._watch: Watch | None = None
        self._held: Mail | None = None
        self._begun = self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Mail:
        end = float("inf") if self.patience_s is None else time.monotonic() + self.patience_s
        while not self._closed:
            left_s = max(0.0, end - time.monotonic())
            found = self.within(min(LOOK_AGAIN_S, left_s))
            if found is not None:
                return found
            if left_s <= 0:
                self.close()
        raise StopIteration

    def within(self, timeout_s: float) -> Mail | None:
        """The next mail if there is one, or comes within `timeout_s`. Asking says that the last one was read."""
        if self._closed:
            return None
        if self._watch is None:
            self._watch = self._resource.store.watch()  # before the first look: what comes after it rings
        if self._held is not None or not self._begun or self._ready():
            found = self._take()
            if found is not None:
                return found
        # Always through here before the next look: another reader may have been faster every time.
        self._watch.wait(timeout_s)
        return self._take() if self._ready() else None

    def _take(self) -> Mail | None:
        self._held = self._claim(self._held)
        self._begun = True
        if self._held is not None:
            crash.point("mail.after_claim")
        return self._held

    def close(self) -> None:
        """Stop. Mail in hand is not renewed any more: unless it is done, it comes back after its lease."""
        if self._closed:
            return
        self._closed = True
        held, self._held = self._held, None
        if self._watch is not None:
            self._watch.close()
        if held is not None and not self._resource.store.closed:
            # Nothing depends on it: the lease ends by itself, at the latest with the process.
            with suppress(StandfastError):
                self._resource._leave(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
