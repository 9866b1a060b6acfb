"""Ctrl-C at every place where one can strike, again and again, beside threads that write."""

from __future__ import annotations

import dis
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import standfast
from standfast.prove.faults.children import Child, heard, say
from standfast.prove.faults.rows import COUNT_UP, INSERT, Oracle, keys, put, value
from standfast.prove.faults.threads import Task
from standfast.prove.outcome import Outcome


def run(place: Path, *, seed: int = 0) -> Outcome:
    """Every place of a write, of a transaction in the caller's hands, of a read, and of opening."""
    outcome = Outcome("interrupts")
    for what in ("write", "block", "read"):
        path, oracle = place / f"{what}.db", place / f"{what}.oracle"
        with Child(
            "standfast.prove.campaigns.interrupts:interrupt_everywhere",
            path=str(path),
            oracle=str(oracle),
            what=what,
            every=1,
        ) as child:
            try:
                struck, counted = child.end(300)
            except AssertionError as error:
                outcome.refuse(error, f"an interrupted {what}")
                continue
        outcome.count("interrupts", int(struck))
        outcome.refuse(counted != "[True]", "something was done twice, or not at all")
    with Child(
        "standfast.prove.campaigns.interrupts:open_under_interrupts", path=str(place / "open.db"), every=1
    ) as child:
        outcome.count("interrupts", int(child.hear(300)))
    return outcome


class Interrupt:
    """Raises SIGINT at the nth place in `standfast.db` where the interpreter looks for signals, once.

    It looks after a call, at the start of a function and at the end of a loop's round, and nowhere
    else: between a lock's `__enter__` and the block it protects, for one, no signal can strike.
    """

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __enter__(self) -> Interrupt:
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.settrace(None)

    @property
    def struck(self) -> bool:
        return self.left <= 0

    def _enter_frame(self, frame: FrameType, event: str, _: Any) -> Any:
        if f"{os.sep}standfast{os.sep}db{os.sep}" not in frame.f_code.co_filename:
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
            signal.raise_signal(signal.SIGINT)


LOOKS_FOR_SIGNALS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


class Others:
    """Threads that write all the time, and say how far they are."""

    def __init__(self, sf: standfast.Standfast, told: Oracle, threads: int) -> None:
        self._sf, self._told = sf, told
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


def interrupt_everywhere(path: str, oracle: str, what: str, every: int) -> None:
    """In a child: interrupt the main thread at each place in `what`, one after the other."""
    faulthandler.dump_traceback_later(60, exit=True)
    sf, told = standfast.open(path, data_dir=os.path.dirname(path)), Oracle(oracle)
    others = Others(sf, told, threads=3)
    signal.signal(signal.SIGTERM, lambda *_: None)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    struck = quiet = 0
    for nth in range(1, 10_000, every):
        key = f"k-main-{nth}"
        acts: dict[str, Callable[[], object]] = {
            "write": partial(write_counted, sf, key, "n:main"),
            "block": partial(use_a_block, sf, key),
            "read": partial(keys, sf, "n:"),
        }
        interrupt = Interrupt(nth)
        try:
            with interrupt:
                acts[what]()
            told.note(key if what == "write" else "-")
            assert not interrupt.struck, f"the signal at place {nth} was swallowed"
        except KeyboardInterrupt:
            struck += 1
        quiet = 0 if interrupt.struck else quiet + 1
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers, nth
        others.all_move_on()
        put(sf, f"k-after-{nth}")
        if quiet == 5:  # the path has fewer places than that, even when it had to wait
            break
    written = others.stop()
    say(struck)
    assert in_a_fork(lambda: put(sf, "k-fork")) == 0, "something was left in use"
    say([written == [int(value(sf, f"n:{n}") or 0) for n in range(3)]])
    sf.close()


def open_under_interrupts(path: str, every: int) -> None:
    faulthandler.dump_traceback_later(100, exit=True)
    directory = os.path.dirname(path)
    struck = 0
    for nth in range(1, 10_000, every):
        interrupt = Interrupt(nth)
        try:
            with interrupt:
                standfast.open(path, data_dir=directory).close()
        except KeyboardInterrupt:
            struck += 1
        with standfast.open(path, data_dir=directory) as sf:
            put(sf, f"k-{nth}")
        if not interrupt.struck:
            break
    say(struck)
    descriptors = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(fd)]
    say([name for name in descriptors if directory in name])
    heard()


def in_a_fork(function: Callable[[], object]) -> int:
    """Run it in a forked child that dies rather than hang; its exit code."""
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
