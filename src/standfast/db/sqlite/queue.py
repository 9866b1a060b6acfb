"""The queue inside one process: who leads, who is served, who goes next.

The first thread to come leads and is not made to wait for anybody. Whoever comes while it is
at work queues; the leader takes the queue along. When it is done committing it hands the lead
to the next in the queue, before it syncs.

Those who were served are woken one by one, each by the one before it, and nobody leads until
the last of them runs again: most come straight back, and then all of them share the next commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from standfast.db.contract import BATCH_MAX, DEADLINE_S, Caller, Tx
from standfast.db.sqlite.signals import HeldBack

PATIENCE_S = 0.005
"""How long a leader waits at most for those who were just answered to come back."""
SLOW_LINK_S = 0.004
"""A thread that takes longer to get going has company: somebody else computes, and one by one would take for ever."""


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

    __slots__ = ("_end", "answer", "awake", "gone", "leads", "ops", "struck", "turn")

    def __init__(self, ops: list[Op]) -> None:
        self.ops = ops
        self.leads = False
        self.answer: Answer | None = None
        self.awake = False  # woken, to be told the answer
        self.gone = False  # interrupted: nobody is there to be woken
        self.struck: BaseException | None = None  # what struck it when its work was done, and is raised in the end
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


class Answer:
    """Those who were served together and still sleep. Each wakes the next one.

    Only one thread of Python's runs at a time. Woken all at once, they push each other off the processors,
    and whoever leads next loses its place between any two statements.
    """

    __slots__ = ("asleep", "over", "since")

    def __init__(self, served: list[Entry]) -> None:
        self.asleep = deque(served)
        self.since = time.monotonic()
        self.over = False
        for entry in served:
            entry.answer = self


class Queue:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[Entry] = deque()
        self._leading = False
        self._patient: Entry | None = None
        self._coming = 0  # answers that have not reached everybody yet
        self._settling = 0
        self._settled = threading.Condition(self._mutex)
        self._closing = 0  # threads in wait_settled

    def lead_alone(self) -> bool:
        """Lead at once if nobody does; then nobody waits either."""
        with self._mutex:
            if self._leading or self._coming:
                return False
            self._leading = True
            return True

    def enter(self, entry: Entry, signals: HeldBack) -> bool:
        """Lead at once, or wait until served or told to lead: True for those who lead, as `entry.leads` says."""
        with self._mutex:
            first = not self._leading
            if first:
                self._leading = entry.leads = True
                if not self._coming:
                    return True
            else:
                entry.deadline()
                self._waiting.append(entry)
            entry.turn = turn = threading.Lock()
            turn.acquire()
        try:
            if not first:
                signals.wait(turn)
            if entry.leads:
                self._await_answered(entry, turn, signals)
            elif entry.answer is not None:
                self._wake_next(entry.answer)
        except BaseException:
            self._leave(entry)
            raise
        return entry.leads

    def _await_answered(self, entry: Entry, turn: threading.Lock, signals: HeldBack) -> None:
        """Let those come back first who were just answered: what they bring next shares this commit."""
        with self._mutex:
            if not self._coming:
                return
            self._patient = entry
        signals.wait(turn, PATIENCE_S)
        self._patient = None

    def answer(self, served: list[Entry]) -> None:
        """Wake those who were served."""
        if served:
            with self._mutex:
                self._coming += 1
            self._wake_next(Answer(served))

    def _wake_next(self, answer: Answer) -> None:
        """Wake one more of those who were served; all that are left, if the last one took long.

        Without the mutex: a thread that slept on it would hold up all that come after it. So whoever leaves says that
        it is gone before it looks whether it was woken, and whoever wakes it does the two the other way round.
        """
        now = time.monotonic()
        slow, answer.since = now - answer.since > SLOW_LINK_S, now
        while True:
            try:
                entry = answer.asleep.popleft()
            except IndexError:
                self._reached_all(answer)
                return
            entry.awake = True
            if not entry.gone:
                entry.wake()
                if not slow:
                    return

    def _reached_all(self, answer: Answer) -> None:
        with self._mutex:
            if not answer.over:
                answer.over = True
                self._coming -= 1
            patient = None if self._coming else self._patient
            if patient is not None:
                self._patient = None
        if patient is not None:
            patient.wake()

    def _leave(self, entry: Entry) -> None:
        """The waiting thread was interrupted: take its work back, or give the lead on."""
        with self._mutex:
            entry.gone = True
            if entry in self._waiting:
                self._waiting.remove(entry)
            if self._patient is entry:
                self._patient = None
            lead = entry.leads
        if entry.awake and entry.answer is not None:
            self._wake_next(entry.answer)
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
        """They were taken along and not served; whoever was interrupted meanwhile has taken its work back."""
        with self._mutex:
            self._waiting.extendleft(entry for entry in reversed(entries) if not entry.gone)

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
