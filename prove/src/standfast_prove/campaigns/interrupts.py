"""Exceptions hit callers at every point where Python can raise one, beside threads that must not be affected.

There are three kinds: Ctrl-C (SIGINT), a signal whose handler raises (SIGPROF), and an asynchronous exception
(`PyThreadState_SetAsyncExc`, as debuggers and timeouts use it). Each is raised at the first point of a write, a held
transaction and a read at which the interpreter checks for it, then at the next point. Storms follow: exceptions at
random moments in four of eight threads, and in the main thread beside three others.

A caller that is hit may fail. Every other caller must continue without an error. Every acknowledged row is there once
(RULES §15). The control lets callers lead their group commits: then an exception in one of them hangs or fails others.
"""

from __future__ import annotations

import ctypes
import dis
import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import standfast
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.rows import COUNT_UP, INSERT, Oracle, keys, put, value
from standfast_prove.faults.threads import Task
from standfast_prove.outcome import Outcome

KINDS = ("SIGINT", "SIGPROF", "asynchronous")
HIT_MAX_S = 0.004
"""The longest pause between two exceptions of a storm."""
PATIENCE_S = 12.0
"""A thread that is not hit and does not answer for this time hangs."""
HANG_S = 90.0
"""One place takes less than a second on a quiet machine: a child that takes this long hangs."""
TRY_MAX_S = 1200.0
"""The time limit for all places of one act, also on a machine where 20 programs share a processor."""


class Hit(BaseException):
    """The exceptions of a signal handler, and asynchronous ones."""


def run(
    place: Path, *, seed: int = 0, acts: int = 400, leading: bool = False, patience_s: float = PATIENCE_S
) -> Outcome:
    """Hit every place of a write, of a held transaction, of a read and of an open. Then run both storms.

    With `leading`, the control, only the storms run.
    """
    outcome = Outcome("interrupts" if not leading else "interrupts with leading callers")
    if not leading:
        for kind in KINDS:
            for what in ("write", "block", "read"):
                _everywhere(outcome, place, kind, what)
        with Child(
            "standfast_prove.campaigns.interrupts:open_under_interrupts", path=str(place / "open.db"), every=1
        ) as child:
            outcome.count("interrupts", int(child.hear(TRY_MAX_S)))
        _withdrawn(outcome, place / "waiting.db")
    for storm in ("asynchronous", "signal"):
        _storm(
            outcome,
            place / f"{storm}.db",
            storm,
            {"seed": seed, "acts": acts, "leading": leading, "patience_s": patience_s},
        )
    return outcome


def _everywhere(outcome: Outcome, place: Path, kind: str, what: str) -> None:
    path, oracle = place / f"{kind}-{what}.db", place / f"{kind}-{what}.oracle"
    with Child(
        "standfast_prove.campaigns.interrupts:interrupt_everywhere",
        path=str(path),
        oracle=str(oracle),
        what=what,
        every=1,
        kind=kind,
    ) as child:
        try:
            hits, counted = child.end(TRY_MAX_S)
        except AssertionError as error:
            outcome.refuse(error, f"{kind} in a {what}")
            return
    outcome.count("interrupts", int(hits))
    outcome.refuse(counted != "[True]", f"{kind} in a {what}: a write was made twice, or not at all")


def _withdrawn(outcome: Outcome, path: Path) -> None:
    with Child("standfast_prove.campaigns.interrupts:interrupt_waiting", path=str(path), acts=20) as child:
        hit, made = child.end(120)
    outcome.count("interrupts", int(hit))
    outcome.refuse(made if made != "[]" else "", "writes were made after they had raised")


def _storm(outcome: Outcome, path: Path, storm: str, asked: dict[str, Any]) -> None:
    with Child(f"standfast_prove.campaigns.interrupts:{storm}_storm", path=str(path), **asked) as child:
        try:
            hit, hurt, acknowledged = child.end(300)
        except (AssertionError, ValueError) as error:
            outcome.refuse(error, f"a storm ({storm})")
            return
    outcome.count("interrupts", int(hit))
    outcome.count("acknowledged in storms", int(acknowledged))
    outcome.refuse(hurt if hurt != "[]" else "", f"a storm ({storm}) hurt others")


# -- at every place ------------------------------------------------------------------------------------------


DATABASE = (os.path.join(os.path.dirname(standfast.__file__), "db", ""),)


_KEPT: list[object] = []
"""Keeps every trace function alive: Python 3.11 once called a freed one, after 6,000 hits."""


class Interrupt:
    """Raises one exception at the nth place in these files where the interpreter looks for signals.

    The interpreter looks only after a call, at the start of a function and at the end of a loop's round. For example,
    no signal can hit between a lock's `__enter__` and the block that the lock protects. `files` are prefixes of file
    names. An asynchronous exception is a `hit`.
    """

    def __init__(
        self, nth: int, kind: str = "SIGINT", *, files: tuple[str, ...] = DATABASE, hit: type[BaseException] = Hit
    ) -> None:
        self.left = nth
        self._kind, self._files, self._hit = kind, files, hit
        self._traced = self._enter_frame
        _KEPT.append(self._traced)

    def __enter__(self) -> Interrupt:
        sys.settrace(self._traced)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    @property
    def raised(self) -> bool:
        return self.left <= 0

    def _enter_frame(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._files):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        code, last = frame.f_code.co_code, [-1]

        def at_instruction(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                before, last[0] = last[0], frame.f_lasti
                if before >= 0 and dis.opname[code[before]] in LOOKS_FOR_SIGNALS:
                    self._pass()
            return at_instruction

        return at_instruction

    def _pass(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self._kind == "asynchronous":
                raise_in(threading.get_ident(), self._hit)
            else:
                signal.raise_signal(signal.Signals[self._kind])


def raise_in(ident: int, hit: type[BaseException] = Hit) -> None:
    """Make the interpreter raise the exception in that thread at its next instruction."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(hit))


def raise_hit(*_: object) -> None:
    raise Hit


LOOKS_FOR_SIGNALS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


class Others:
    """Threads that write all the time and count their rows."""

    def __init__(self, sf: standfast.Standfast, acked: Oracle, threads: int) -> None:
        self._sf, self._told = sf, acked
        self._moved = threading.Condition()
        self._written = [0] * threads
        self._stop = False
        self._tasks = [Task(self._write, n) for n in range(threads)]

    def _write(self, n: int) -> None:
        while not self._stop:
            key = f"k-{n}-{self._written[n]}"
            write_counted(self._sf, key, f"n:{n}")
            self._told.note(key)
            with self._moved:
                self._written[n] += 1
                self._moved.notify_all()

    def all_move_on(self) -> None:
        """Wait until each has written one more row."""
        with self._moved:
            before = list(self._written)
            moved = self._moved.wait_for(
                lambda: all(now > then for now, then in zip(self._written, before, strict=True)), 20
            )
        assert moved, f"threads hang: {self._written}, {[task.error for task in self._tasks]}"

    def stop(self) -> list[int]:
        self._stop = True
        assert [task.done() for task in self._tasks] == [None] * len(self._tasks)
        return self._written


def write_counted(sf: standfast.Standfast, key: str, counter: str) -> None:
    def body(tx: Any) -> None:
        tx.run(INSERT, key=key, value="1")
        tx.run(COUNT_UP, key=counter)

    sf._store.write(body)


def use_a_block(sf: standfast.Standfast, key: str) -> None:
    with sf.transaction() as tx:
        tx.leases.acquire(key)


def interrupt_everywhere(path: str, oracle: str, what: str, every: int, kind: str = "SIGINT") -> None:
    """In a child: interrupt the main thread at each place in `what`, one after the other."""
    signal.signal(signal.SIGPROF, raise_hit)
    sf, acked = standfast.open(path, data_dir=os.path.dirname(path)), Oracle(oracle)
    others = Others(sf, acked, threads=3)
    signal.signal(signal.SIGTERM, lambda *_: None)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    hits = quiet = 0
    for nth in range(1, 10_000, every):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        key = f"k-main-{nth}"
        acts: dict[str, Callable[[], object]] = {
            "write": partial(write_counted, sf, key, "n:main"),
            "block": partial(use_a_block, sf, key),
            "read": partial(keys, sf, "n:"),
        }
        interrupt = Interrupt(nth, kind)
        try:
            with interrupt:
                acts[what]()
                time.sleep(0)  # an asynchronous exception of the last place is raised here
            acked.note(key if what == "write" else "-")
            assert not interrupt.raised, f"the exception at place {nth} was swallowed"
        except (KeyboardInterrupt, Hit):
            hits += 1
        quiet = 0 if interrupt.raised else quiet + 1
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers, nth
        others.all_move_on()
        put(sf, f"k-after-{nth}")
        if quiet == 5:  # the path has fewer places than n, even if it had to wait
            break
    written = others.stop()
    say(hits)
    assert in_a_fork(lambda: put(sf, "k-fork")) == 0, "something was left in use"
    say([written == [int(value(sf, f"n:{n}") or 0) for n in range(3)]])
    sf.close()


def open_under_interrupts(path: str, every: int) -> None:
    directory = os.path.dirname(path)
    hits = 0
    for nth in range(1, 10_000, every):
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        interrupt = Interrupt(nth)
        try:
            with interrupt:
                standfast.open(path, data_dir=directory).close()
        except KeyboardInterrupt:
            hits += 1
        with standfast.open(path, data_dir=directory) as sf:
            put(sf, f"k-{nth}")
        if not interrupt.raised:
            break
    say(hits)
    descriptors = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(fd)]
    say([name for name in descriptors if directory in name])
    heard()


def interrupt_waiting(path: str, acts: int) -> None:
    """In a child: a signal hits a caller whose write waits for another process's lock. The write must not be made."""
    from standfast.db.sqlite.lock import FileLock

    sf = standfast.open(path, data_dir=os.path.dirname(path))
    put(sf, "k-first")
    signal.signal(signal.SIGPROF, raise_hit)
    lock = FileLock(f"{path}.lock")
    hit = 0
    for n in range(acts):
        lock.acquire(30)
        try:
            threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGPROF)).start()
            put(sf, f"k-waiting-{n}")
        except Hit:
            hit += 1
        lock.release()
        put(sf, f"k-after-{n}")
    say(hit)
    say(keys(sf, "k-waiting"))
    sf.close()


# -- storms --------------------------------------------------------------------------------------------------


class Storm:
    """Threads that write all the time. Exceptions hit some of them and must not affect the others."""

    def __init__(self, path: str, *, threads: int, hit: int, leading: bool, patience_s: float) -> None:
        if leading:
            let_callers_lead()
        self.sf = standfast.open(path, data_dir=os.path.dirname(path))
        put(self.sf, "k-first")
        self._patience_s = patience_s
        self._stop = False
        self._hit = hit
        self.acknowledged: list[list[str]] = [[] for _ in range(threads)]
        self.errors: list[str] = []
        self.hits = 0
        self._inside = [False] * threads
        self._moved = [time.monotonic()] * threads
        self.threads = [threading.Thread(target=self._live, args=(n,), daemon=True) for n in range(threads)]
        self._blocks = not leading
        self._ending = threading.Lock()
        for thread in self.threads:
            thread.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """If the main thread hangs, end the storm and report."""
        while not self.hanging:
            time.sleep(0.1)
        self.end()

    def _live(self, n: int) -> None:
        """Call `_write` until the end. After an exception outside `_write`, begin again."""
        count = [0]
        while not self._stop:
            try:
                while not self._stop:
                    self._write(n, count)
            except Hit:
                self.hits += 1

    def _write(self, n: int, count: list[int]) -> None:
        count[0] += 1
        key = f"k-{n}-{count[0]}"
        try:
            self._inside[n] = True
            if self._blocks and count[0] % 5 == 0:
                with self.sf.transaction():
                    held = self.sf._store.held
                    assert held is not None
                    held.run(INSERT, key=key, value="1")
            else:
                put(self.sf, key)
            self.acknowledged[n].append(key)
        except Exception as error:  # noqa: BLE001  # judged below
            if n >= self._hit:
                self.errors.append(f"thread {n}: {error!r}"[:200])
        finally:
            self._inside[n] = False
            self._moved[n] = time.monotonic()

    def hit_one(self, chance: random.Random) -> bool:
        n = chance.randrange(self._hit)
        ident = self.threads[n].ident
        if not self._inside[n] or ident is None:
            return False
        raise_in(ident)
        return True

    @property
    def hanging(self) -> list[int]:
        return [n for n, moved in enumerate(self._moved) if time.monotonic() - moved > self._patience_s]

    def end(self) -> None:
        """Stop and check the store. Returns the number of hits, the violations and the number of acknowledged rows."""
        self._ending.acquire()
        wrong = [f"thread {n} hangs" for n in self.hanging]
        self._stop = True
        for thread in self.threads:
            thread.join(self._patience_s if not wrong else 0.1)
        wrong += [
            f"thread {n} does not end" for n, thread in enumerate(self.threads) if thread.is_alive() and not wrong
        ]
        acked = [key for one in self.acknowledged for key in one]
        if not wrong:
            there = keys(self.sf)
            wrong += [f"lost {key}" for key in sorted(set(acked) - set(there))[:3]]
            wrong += ["rows are there twice"] * (len(there) != len(set(there)))
            put(self.sf, "k-after")
        say(self.hits)
        say((wrong + self.errors)[:5])
        say(len(acked))
        sys.stdout.flush()
        os._exit(0)  # a thread that hangs would keep this process alive


def asynchronous_storm(path: str, seed: int, acts: int, leading: bool = False, patience_s: float = PATIENCE_S) -> None:
    """In a child: asynchronous exceptions in four of eight threads."""
    chance = random.Random(seed)
    storm = Storm(path, threads=8, hit=4, leading=leading, patience_s=patience_s)
    sent, end = 0, time.monotonic() + 120
    while sent < acts and time.monotonic() < end and not storm.hanging and not (leading and storm.errors):
        time.sleep(chance.random() * HIT_MAX_S)
        sent += storm.hit_one(chance)
    storm.end()


def signal_storm(path: str, seed: int, acts: int, leading: bool = False, patience_s: float = PATIENCE_S) -> None:
    """In a child: SIGPROF, whose handler raises, in the main thread while it writes beside three others."""
    chance, armed = random.Random(seed), [False]

    def handler(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise Hit

    signal.signal(signal.SIGPROF, handler)
    storm = Storm(path, threads=3, hit=0, leading=leading, patience_s=patience_s)
    over = threading.Event()

    def shoot() -> None:
        while not over.wait(chance.random() * HIT_MAX_S):
            os.kill(os.getpid(), signal.SIGPROF)

    threading.Thread(target=shoot, daemon=True).start()
    written, end = 0, time.monotonic() + 120
    while storm.hits < acts and time.monotonic() < end and not storm.hanging and not (leading and storm.errors):
        try:
            written, armed[0] = written + 1, True
            put(storm.sf, f"k-main-{written}")
            armed[0] = False
        except Hit:
            storm.hits += 1
        except Exception as error:  # noqa: BLE001  # the main thread may fail once it was hit, the others may not
            if not leading:
                storm.errors.append(f"main: {error!r}"[:200])
    over.set()
    signal.signal(signal.SIGPROF, signal.SIG_IGN)
    storm.end()


def let_callers_lead() -> None:
    """The control, in this process only: a caller serves the queue itself, so its exception can hit there."""
    from standfast.db.sqlite.operations import Operation
    from standfast.db.sqlite.writer import Writer

    def lead(self: Any, operation: Operation, timeout_s: float | None = None) -> None:
        self._waiting.append(operation)
        while not operation.wait(0.0):
            if self._claim.acquire(timeout=0.01):
                try:
                    if operation.begun or self._waiting:
                        self._serve()
                finally:
                    self._claim.release()
        if operation.error is not None:
            raise operation.error

    Writer.run = lead  # type: ignore[method-assign]


def in_a_fork(function: Callable[[], object]) -> int:
    """Run it in a forked child with a time limit. Returns the exit code."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            function()
            os._exit(0)
        except BaseException:  # noqa: BLE001  the parent sees the code
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
