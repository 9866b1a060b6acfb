"""`Follow`: the mail of one box as it comes, one at a time.

A follower sleeps until the store notifies it, then claims the next mail. Asking for another mail marks the one before
as read, in the transaction that claims the next. The reader calls `done`. Mail that is read and not done returns to its
box when its lease ends, because the follower no longer renews it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from standfast import crash
from standfast.errors import StandfastError
from standfast.record.followers import LOOK_AGAIN_S, Waiting
from standfast.record.mail.models import Mail

if TYPE_CHECKING:
    from standfast.record.mail.resource import Mails


class Follow(Waiting[Mail]):
    """An iterator over the mail of one box. If you leave it early, the mail in hand returns when its lease ends."""

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
        self._held: Mail | None = None
        self._begun = self._closed = False

    def within(self, timeout_s: float | None) -> Mail | None:
        """The next mail, or None if none comes in this time. The mail before is marked as read."""
        end = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while not self._closed:
            if self._watch is None:
                self._watch = self._resource.store.watch()  # before the first query, so that no notification is missed
            if self._held is not None or not self._begun or self._ready():
                found = self._take()
                if found is not None:
                    return found
            left_s = end - time.monotonic()
            if left_s <= 0:
                return None
            # Wait also if another reader took the mail first: otherwise two readers could query without a pause.
            self._watch.wait(min(LOOK_AGAIN_S, left_s))
        return None

    def _take(self) -> Mail | None:
        self._held = self._claim(self._held)
        self._begun = True
        if self._held is not None:
            crash.point("mail.after_claim")
        return self._held

    def close(self) -> None:
        """Stop. The mail in hand is not renewed any more: unless it is done, it returns when its lease ends."""
        super().close()
        held, self._held, self._closed = self._held, None, True
        if held is not None and not self._resource.store.closed:
            # The lease ends by itself, at the latest with the process: a refusal here changes nothing.
            with suppress(StandfastError):
                self._resource._leave(held)
