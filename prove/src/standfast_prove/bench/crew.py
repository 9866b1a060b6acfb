"""Processes, threads and tasks that write at the same time, and the waiting time of each call.

A crew starts its processes and opens their stores once. Each round gives all of them the same start time and the same
duration. So rounds of different crews can alternate without new starts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NamedTuple

from standfast_prove.bench.measure import percentile
from standfast_prove.bench.ways import WAYS, AsyncWrite, Way, Write

HEAD_START_S = 0.05
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One window of one crew."""

    window_s: float
    counts: list[int]
    """The number of writes that each caller finished inside the window."""
    waits: list[float]
    """The duration of each call, sorted, with the calls that the end of the window cut off."""
    errors: int
    cpu_s: float

    @property
    def rate(self) -> float:
        return sum(self.counts) / self.window_s

    @property
    def share(self) -> float:
        """The throughput of the slowest caller as a share of the fastest caller's."""
        return min(self.counts) / max(self.counts) if max(self.counts) else 0.0

    def wait(self, share: float) -> float:
        return percentile(self.waits, share)

    @property
    def wait_max(self) -> float:
        return self.waits[-1] if self.waits else float("nan")


class Order(NamedTuple):
    """An order to a crew: from this time on, write for a duration, or write a number of rows per caller."""

    window_s: float = float("inf")
    rows_each: int = sys.maxsize


class Told(NamedTuple):
    """The measurements of one process."""

    counts: list[int]
    waits: array[float]
    errors: int
    cpu_s: float
    done: float


class Crew:
    """`processes` × `callers` writers of one way on one place; the callers are threads or tasks."""

    def __init__(
        self,
        way: str,
        place: str,
        *,
        processes: int = 1,
        callers: int = 1,
        tasks: bool = False,
        path: Sequence[str] = (),
    ) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        context = multiprocessing.get_context("spawn")
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, way, place, callers, tasks, list(path)), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
            # The processes open the store one after the other. Opening together is another benchmark.
            self._receive(ours)

    def round(self, window_s: float) -> Sample:
        """All callers write as many rows as they can until the window ends."""
        _, parts = self._ordered(Order(window_s=window_s))
        return Sample(
            window_s,
            [count for part in parts for count in part.counts],
            sorted(wait for part in parts for wait in part.waits),
            sum(part.errors for part in parts),
            sum(part.cpu_s for part in parts),
        )

    def served(self, rows_each: int) -> float:
        """Each caller writes that many rows. The rate counts until the slowest caller is done."""
        start, parts = self._ordered(Order(rows_each=rows_each))
        rows = rows_each * sum(len(part.counts) for part in parts)
        return rows / (max(part.done for part in parts) - start)

    def _ordered(self, order: Order) -> tuple[float, list[Told]]:
        start = time.monotonic() + HEAD_START_S
        for pipe in self._pipes:
            pipe.send((start, order))
        return start, [self._receive(pipe) for pipe in self._pipes]

    def _receive(self, pipe: Connection) -> Told:
        if not pipe.poll(PATIENCE_S):
            raise RuntimeError(f"a benchmark process gave no answer in {PATIENCE_S:.0f} s")
        answer = pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        for pipe in self._pipes:
            with suppress(OSError):  # a process that died reported it in its last round
                pipe.send(None)
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# -- in the other process ---------------------------------------------------------------------------


def way_of(name: str) -> type[Way]:
    """A way of `ways`, or "module:Class" for a way of one area."""
    module, _, kind = name.partition(":")
    way: type[Way] = getattr(import_module(module), kind) if kind else WAYS[name]
    return way


def work(pipe: Connection, way: str, place: str, callers: int, tasks: bool, path: list[str]) -> None:
    sys.path[:0] = path
    try:
        opened = way_of(way)(place)
        if tasks:
            asyncio.run(_work_with_tasks(pipe, opened, callers))
        else:
            _work_with_threads(pipe, opened, callers)
    except BaseException as error:
        pipe.send(RuntimeError(f"{way}: {type(error).__name__}: {error}"))
        raise


class Caller:
    """The writes of one thread or task after one order."""

    __slots__ = ("count", "errors", "waits")

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.waits = array("d")

    def run(self, write: Write, start: float, order: Order) -> None:
        clock, note, end = time.monotonic, self.waits.append, start + order.window_s
        while clock() < start:
            time.sleep(0.001)
        before = clock()
        while before < end and self.count < order.rows_each:
            try:
                write()
            except Exception as error:  # noqa: BLE001  each driver raises its own error at a timeout
                self._give_up(error)
            after = clock()
            note(after - before)
            self.count += after <= end
            before = after

    async def run_task(self, write: AsyncWrite, start: float, order: Order) -> None:
        clock, note, end = time.monotonic, self.waits.append, start + order.window_s
        await asyncio.sleep(max(0.0, start - clock()))
        before = clock()
        while before < end and self.count < order.rows_each:
            await write()
            after = clock()
            note(after - before)
            self.count += after <= end
            before = after

    def _give_up(self, error: Exception) -> None:
        """Handle an error of a caller. A timeout counts as a wait and an error. Any other error ends the benchmark."""
        if "Busy" not in type(error).__name__:
            raise error
        self.errors += 1
        self.count -= 1


def _work_with_threads(pipe: Connection, way: Way, callers: int) -> None:
    writers = way.writers(callers)
    pipe.send(None)
    while (message := pipe.recv()) is not None:
        start, order = message
        present = [Caller() for _ in writers]
        cpu_s = time.process_time()
        if callers == 1:
            present[0].run(writers[0], start, order)
        else:
            threads = [
                threading.Thread(target=caller.run, args=(write, start, order))
                for caller, write in zip(present, writers, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        pipe.send(_told(present, cpu_s))
    way.close()


async def _work_with_tasks(pipe: Connection, way: Way, callers: int) -> None:
    writers = await way.async_writers(callers)
    pipe.send(None)
    while (message := pipe.recv()) is not None:
        start, order = message
        present = [Caller() for _ in writers]
        cpu_s = time.process_time()
        pairs = zip(present, writers, strict=True)
        await asyncio.gather(*(caller.run_task(write, start, order) for caller, write in pairs))
        pipe.send(_told(present, cpu_s))
    await way.aclose()


def _told(callers: list[Caller], cpu_before_s: float) -> Told:
    done, cpu_s = time.monotonic(), time.process_time() - cpu_before_s
    waits = array("d")
    for caller in callers:
        waits.extend(caller.waits)
    return Told([caller.count for caller in callers], waits, sum(caller.errors for caller in callers), cpu_s, done)
