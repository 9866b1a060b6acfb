"""Threads for callers who do not wait: an event loop queues a body and gets a callback when the commit is on disk.

A few are enough: each holds one connection while it works. They start when they are needed and
end when they have been idle for a while.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

WORKERS_MAX = 8
IDLE_S = 10.0

Job = Callable[[], None]


class Workers:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = False

    def put(self, job: Job) -> None:
        with self._mutex:
            self._jobs.put(job)
            if self._idle < self._jobs.qsize() and len(self._threads) < WORKERS_MAX:
                thread = threading.Thread(target=self._run, name="standfast-worker", daemon=True)
                self._threads.add(thread)
                thread.start()

    def _run(self) -> None:
        while True:
            job = self._next()
            if job is not None:
                job()
                continue
            with self._mutex:  # callers that queued meanwhile expect this thread to run their work
                if self._closed or self._jobs.empty():
                    self._threads.discard(threading.current_thread())
                    return

    def _next(self) -> Job | None:
        with self._mutex:
            self._idle += 1
        try:
            return self._jobs.get(timeout=IDLE_S)
        except queue.Empty:
            return None
        finally:
            with self._mutex:
                self._idle -= 1

    def close(self, timeout_s: float) -> None:
        """Wait until they have finished the queued work."""
        with self._mutex:
            self._closed = True
            threads = list(self._threads)
            for _ in threads:
                self._jobs.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
