"""Exceptions hit one caller on PostgreSQL, at every point and at random, beside callers that are not hit.

A caller that is not hit must get no error, must read only its own rows, and must never hang. The exception comes from a
signal handler or from `PyThreadState_SetAsyncExc`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import standfast
from standfast.db.postgres.wire import Wire
from standfast_prove.campaigns.interrupts import Interrupt, raise_in, use_a_block, write_counted
from standfast_prove.faults.children import Child, say
from standfast_prove.faults.rows import VALUE, count_up, keys, put
from standfast_prove.outcome import Outcome

HANG_S = 40.0
"""A write waits up to 30 s for a row. Then its error names the process that holds the row."""
HOW = {"signal": "SIGUSR1", "thread": "asynchronous"}
OURS = (os.path.join(os.path.dirname(standfast.__file__), ""), threading.__file__, contextlib.__file__)
OTHERS = 3


class Hit(Exception):
    """The foreign exception. It derives from Exception, because code that catches Exception must not swallow it."""


def run(place: Path, *, url: str, seed: int = 0, every: int = 1, acts: int = 400, careless: bool = False) -> Outcome:
    """Hit a fifth of the places of an open, then every place of a write, a block and a read. A storm at random places
    follows.

    The open is hit first: it reads all of `meta`, and the other steps add thousands of rows there.
    """
    outcome = Outcome("interrupts-postgres")
    kinds = [(what, how) for what in ("write", "block", "read") for how in HOW]
    child = partial(_child, outcome, place, url=url, careless=careless)
    if not careless:
        child(f"{__name__}:open_everywhere", every=5 * every, first=1 + seed % (5 * every))
    for n, (what, how) in enumerate(kinds[:1] if careless else kinds):
        child(f"{__name__}:interrupt_everywhere", what=what, how=how, every=every, first=1 + (seed + n) % every)
    if not careless:
        child(f"{__name__}:storm", seed=seed, acts=acts)
    return outcome


def _child(outcome: Outcome, place: Path, target: str, *, careless: bool, **asked: Any) -> None:
    with Child(target, directory=str(place), careless=careless, **asked) as child:
        try:
            hits, complaints = child.end(600)
        except AssertionError as error:
            outcome.refuse(error, f"{target.rpartition(':')[2]} {asked.get('what', '')}")
            return
    outcome.count("interrupts", int(hits))
    for complaint in json.loads(complaints):
        outcome.refuse(True, complaint)


def return_every_connection() -> None:
    """The control: a connection returns to the pool even after an interrupted statement."""
    Wire.reusable = property(lambda self: not self.broken)  # type: ignore[assignment]


def _raise_from_handler(*_: object) -> None:
    raise Hit


def _where(error: BaseException) -> str:
    """The error and the last frames of its traceback. They show whether the interpreter or our code caused it."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{os.path.basename(one.filename)}:{one.lineno}" for one in reversed(frames))
    return f"{type(error).__name__}: {error} ({places})"


def _interrupt(nth: int, how: str) -> Interrupt:
    return Interrupt(nth, HOW[how], files=OURS, hit=Hit)


# -- callers that are not hit ---------------------------------------------------------------------------------


class Others:
    """Threads that write, read their rows again, and report anything unexpected."""

    def __init__(self, sf: standfast.Standfast, complaints: list[str], names: list[str]) -> None:
        self._sf, self._complaints = sf, complaints
        self.done = dict.fromkeys(names, 0)
        self._stop = False
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def _run(self, name: str) -> None:
        while not self._stop and not self._complaints:
            n = self.done[name] + 1
            try:
                write_counted(self._sf, f"k-{name}-{n}", f"n:{name}")
                if n % 4 == 0:
                    use_a_block(self._sf, f"b-{name}-{n}")
                row = self._sf.read(lambda tx: tx.maybe(VALUE, key=f"n:{name}"))
                if row != {"value": str(n)}:
                    self._complaints.append(f"{name} wrote {n} rows and read {row}")
            except BaseException as error:  # noqa: BLE001  nothing may hit this thread
                self._complaints.append(f"{name} was not hit and got {_where(error)}")
            self.done[name] = n

    def all_move_on(self) -> None:
        """Wait until each has written one more row."""
        before, end = dict(self.done), time.monotonic() + HANG_S
        while any(self.done[name] <= then for name, then in before.items()):
            if self._complaints:
                return
            if time.monotonic() > end:
                self._complaints.append(f"threads that were not hit hang: {before} {self.done}")
                return
            time.sleep(0.0005)

    def stop(self) -> None:
        self._stop = True
        for thread in self._threads:
            thread.join(HANG_S)
            if thread.is_alive():
                self._complaints.append("a thread that was not hit does not end")
                return


def _opened(url: str, directory: str, careless: bool) -> standfast.Standfast:
    if careless:
        return_every_connection()
    signal.signal(signal.SIGUSR1, _raise_from_handler)
    sf = standfast.open(url, data_dir=directory)
    for warm in (lambda: sf.leases.acquire("k-warm"), lambda: count_up(sf, "n:warm"), lambda: keys(sf)):
        warm()
    return sf


def interrupt_everywhere(
    url: str, directory: str, what: str, how: str, every: int, first: int, careless: bool = False
) -> None:
    """In a child: hit the main thread at each place in `what`, one after the other."""
    sf, complaints = _opened(url, directory, careless), list[str]()
    prefix = f"{what}-{how}"
    others = Others(sf, complaints, [f"{prefix}-{n}" for n in range(OTHERS)])
    hits = quiet = 0
    for nth in range(first, 10_000, every):
        faulthandler.dump_traceback_later(3 * HANG_S, exit=True)
        key = f"k-{prefix}-main-{nth}"
        acts: dict[str, Callable[[], object]] = {
            "write": partial(write_counted, sf, key, f"n:{prefix}-main"),
            "block": partial(use_a_block, sf, key),
            "read": partial(keys, sf, f"n:{prefix}"),
        }
        interrupt = _interrupt(nth, how)
        try:
            with interrupt:
                acts[what]()
                time.sleep(0)  # an asynchronous exception of the last place is raised here, not in `__exit__`
            if interrupt.raised:
                complaints.append(f"the exception at place {nth} of a {what} was swallowed")
        except Hit:
            hits += 1
        except standfast.StandfastError as error:  # the exception hit inside one of our own handlers
            hits += 1
            if not isinstance(error, standfast.CommitUnknown):
                complaints.append(f"place {nth} of a {what}: {_where(error)}")
        quiet = 0 if interrupt.raised else quiet + 1
        others.all_move_on()
        if not complaints:
            put(sf, f"k-{prefix}-after-{nth}")
        if complaints or quiet == 3:  # the path has fewer places than n, even if it had to wait
            break
    _end(sf, others, hits, complaints, first=f"k-{prefix}-main")


def open_everywhere(url: str, directory: str, every: int, first: int, careless: bool = False) -> None:
    """In a child: hit the main thread at each place of opening and closing; then a thread opens and writes."""
    signal.signal(signal.SIGUSR1, _raise_from_handler)
    hits, complaints = 0, list[str]()

    def open_and_write(nth: int) -> None:
        try:
            with standfast.open(url, data_dir=directory) as sf:
                count_up(sf, "n:opened")
        except BaseException as error:  # noqa: BLE001  nothing may hit this thread
            complaints.append(f"after place {nth} of opening: {_where(error)}")

    for nth in range(first, 20_000, every):
        faulthandler.dump_traceback_later(3 * HANG_S, exit=True)
        interrupt = _interrupt(nth, "signal")
        try:
            with interrupt:
                standfast.open(url, data_dir=directory).close()
        except Hit:
            hits += 1
        thread = threading.Thread(target=open_and_write, args=(nth,), daemon=True)
        thread.start()
        thread.join(HANG_S)
        if thread.is_alive():
            complaints.append(f"after place {nth} of opening, a thread hangs")
        if complaints or not interrupt.raised:
            break
    say(hits)
    say(json.dumps(complaints))
    if complaints:
        os._exit(0)


def storm(url: str, directory: str, seed: int, acts: int, careless: bool = False) -> None:
    """In a child: hit four threads at random bytecodes; four others are never hit."""
    sf, complaints, chance = _opened(url, directory, careless), list[str](), random.Random(seed)
    others = Others(sf, complaints, [f"storm-{n}" for n in range(4)])
    stop, inside, acked, hits = False, [False] * 4, list[str](), [0]

    def work(n: int) -> None:
        count = 0
        while not stop:
            count += 1
            key = f"k-hit-{n}-{count}"
            try:
                try:
                    inside[n] = True
                    if count % 5 == 0:
                        use_a_block(sf, key)
                    else:
                        write_counted(sf, key, f"n:hit-{n}")
                        acked.append(key)
                    keys(sf, f"k-hit-{n}-")
                finally:
                    inside[n] = False
            except (Hit, standfast.CommitUnknown):
                hits[0] += 1

    def guarded(n: int) -> None:
        while not stop:
            try:
                work(n)
            except Hit:  # the exception arrived outside the inner block
                hits[0] += 1
            except BaseException as error:  # noqa: BLE001  it becomes a complaint
                complaints.append(f"a thread that was hit got {_where(error)}")
                return

    threads = [threading.Thread(target=guarded, args=(n,), daemon=True) for n in range(4)]
    for thread in threads:
        thread.start()
    sent = 0
    while sent < acts and not complaints:
        faulthandler.dump_traceback_later(3 * HANG_S, exit=True)
        time.sleep(chance.random() * 0.004)
        n = chance.randrange(4)
        if inside[n]:
            raise_in(threads[n].ident or 0, Hit)
            sent += 1
            if sent % 20 == 0:
                others.all_move_on()
    stop = True
    for thread in threads:
        thread.join(HANG_S)
        if thread.is_alive():
            complaints.append("a thread that was hit hangs")
    lost = set(acked) - set(keys(sf, "k-hit-")) if not complaints else ()
    if lost:
        complaints.append(f"acknowledged and not there: {sorted(lost)[:3]}")
    _end(sf, others, hits[0], complaints, first="k-hit-")


def _end(sf: standfast.Standfast, others: Others, hits: int, complaints: list[str], *, first: str) -> None:
    others.stop()
    for name, count in others.done.items():
        there = len(keys(sf, f"k-{name}-")) if not complaints else count
        if there != count:
            complaints.append(f"{name} got {count} acknowledgements, but {there} rows are there")
    say(hits)
    say(json.dumps(complaints[:5]))
    if complaints:
        os._exit(0)  # a thread that hangs would keep this process alive
    sf.close()
