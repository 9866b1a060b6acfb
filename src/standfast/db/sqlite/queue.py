"""The queue inside one process: who leads, who is served, who goes next.

The first thread to come leads and is not made to wait for anybody. Whoever comes while it is
at work queues; the leader takes the queue along. When it is done committing it hands the lead
to the next in the queue, before it syncs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from standfast.db.contract import BATCH_MAX, DEADLINE_S, Caller, Tx
from standfast.db.sqlite.signals import HeldBack


class Op:
    """One body on its way to the disk."""

    __slots__ = ("body", "caller", "durable", "error", "result")

    def __init__(self, body: Callable[[Tx], Any], caller: Caller, durable: bool) -> None:
        self.body = body
        self.caller = caller
        self.durable = durable
        self.result: Any = None
        self.error: BaseException | None = None


class Entry:
    """One thread's place in the queue, with the bodies it brings. Without any, it wants the lead itself."""

    __slots__ = ("_end", "leads", "ops", "turn")

    def __init__(self, ops: list[Op]) -> None:
        self.ops = ops
        self.leads = False
        self._end: float | None = None
        self.turn: threading.Lock | None = None

    def deadline(self) -> float:
        """Counted from the first moment anybody had to wait: who finds all free never looks at the clock."""
        if self._end is None:
            self._end = time.monotonic() + DEADLINE_S
        return self._end

    def wake(self) -> None:
        """Served, or told to lead."""
        assert self.turn is not None
        self.turn.release()


class Queue:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Entry] = deque()
        self._leading = False
        self._settling = 0
        self._settled = threading.Condition(self._mutex)
        self._closing = 0  # threads in wait_settled

    def lead_alone(self) -> bool:
        """Lead at once if nobody does; then nobody waits either."""
        with self._mutex:
            if self._leading:
                return False
            self._leading = True
            return True

    def enter(self, entry: Entry, signals: HeldBack) -> bool:
        """Lead at once, or wait until served or told to lead: True for those who lead, as `entry.leads` says."""
        with self._mutex:
            if not self._leading:
                self._leading = entry.leads = True
                return True
            entry.deadline()
            entry.turn = turn = threading.Lock()
            turn.acquire()
            self._waiting.append(entry)
        try:
            signals.wait(turn)
        except BaseException:
            self._leave(entry)
            raise
        return entry.leads

    def _leave(self, entry: Entry) -> None:
        """The waiting thread was interrupted: take its work back, or give the lead on."""
        with self._mutex:
            if entry in self._waiting:
                self._waiting.remove(entry)
            lead = entry.leads
        if lead:
            self.hand_over()

    def gather(self, leader: Entry) -> list[Entry]:
        """The leader and whoever may share its commit."""
        batch = [leader]
        if not self._waiting:  # whoever comes this very moment leads the next commit, or shares it
            return batch
        with self._mutex:
            while self._waiting and self._waiting[0].ops and len(batch) < BATCH_MAX:
                batch.append(self._waiting.popleft())
        return batch

    def put_back(self, entries: list[Entry]) -> None:
        with self._mutex:
            self._waiting.extendleft(reversed(entries))

    def hand_over(self, *, settling: bool = False) -> None:
        """Let the next one lead. `settling`: this thread still has to sync and answer; see `settled`."""
        with self._mutex:
            self._settling += settling
            if not self._waiting:
                self._leading = False
                return
            following = self._next()
        following.wake()

    def _next(self) -> Entry:
        """Whoever leads from now on; the caller holds the mutex, and wakes it."""
        following = self._waiting.popleft()
        following.leads = True
        return following

    def hand_over_early(self) -> bool:
        """Give the lead on before the sync, unless another sync is under way: then keep it and let the queue grow.

        One commit and one sync overlap; more of them would only make the batches smaller.
        """
        with self._mutex:
            self._settling += 1
            if self._settling > 1:
                return False
            if not self._waiting:
                self._leading = False
                return True
            following = self._next()
        following.wake()
        return True

    def hold_files(self) -> None:
        """Somebody outside the queue uses the files for a moment; `settled` ends it."""
        with self._mutex:
            self._settling += 1

    def settled(self, *, hand_over: bool = False) -> None:
        """This thread is done with the files; `hand_over` if it kept the lead until now."""
        with self._mutex:
            self._settling -= 1
            if self._closing:
                self._settled.notify_all()
        if hand_over:
            self.hand_over()

    def wait_settled(self) -> None:
        with self._mutex:
            self._closing += 1
            try:
                self._settled.wait_for(lambda: self._settling == 0)
            finally:
                self._closing -= 1


def ops(batch: list[Entry]) -> Iterator[Op]:
    return (op for entry in batch for op in entry.ops)
