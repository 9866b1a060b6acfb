"""Bodies from event loops: one thread leads for all of them, one pass over the answers per batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from standfast.db.contract import BATCH_MAX, Done
from standfast.db.sqlite.queue import Op


class Inbox:
    def __init__(self, commit: Callable[[list[Op]], None]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self._waiting: list[tuple[Op, Done[Any]]] = []
        self._call = threading.Semaphore(0)
        self._stopped = False
        threading.Thread(target=self._run, name="standfast-inbox", daemon=True).start()

    def put(self, op: Op, done: Done[Any]) -> bool:
        """False if this inbox is no longer served."""
        with self._mutex:
            if self._stopped:
                return False
            self._waiting.append((op, done))
            first = len(self._waiting) == 1
        if first:
            self._call.release()
        return True

    def _run(self) -> None:
        while True:
            self._call.acquire()
            while self._serve():
                pass
            if self._stopped:
                return

    def _serve(self) -> bool:
        with self._mutex:
            taken, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
        if not taken:
            return False
        try:
            self._commit([op for op, _ in taken])
        except BaseException as error:  # noqa: BLE001  # the waiting loops must hear of it, whatever it is
            for op, _ in taken:
                op.error = op.error or error
        # A loop that is woken takes the interpreter at once: not before all its answers are there.
        for wake in {done(op.result if op.error is None else None, op.error) for op, done in taken}:
            if wake is not None:
                wake()
        return True

    def stop(self) -> None:
        """What was put before is still served."""
        with self._mutex:
            self._stopped = True
        self._call.release()
