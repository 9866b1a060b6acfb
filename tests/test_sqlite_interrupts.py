"""Ctrl-C at any place: the caller is interrupted, nobody else is.

A real SIGINT is raised at the first place of the write path where one can strike, then at the next, in the
main thread, while other threads write through the same engine. After each one the queue must
work, the lock must be free, nothing acknowledged may be missing and nothing may be there twice.
"""

from __future__ import annotations

import dis
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import standfast
from standfast.prove.faults.children import Child, heard, say
from standfast.prove.faults.disk import Disk
from standfast.prove.faults.rows import COUNT_UP, INSERT, Oracle, keys, noted, put, value
from tests.skipping import or_skip
from tests.test_sqlite_faults import in_a_fork
from tests.test_sqlite_write import Task


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
        act: Callable[[], object] = {
            "write": lambda key=key: write_counted(sf, key, "n:main"),
            "block": lambda key=key: use_a_block(sf, key),
            "read": lambda: keys(sf, "n:"),
        }[what]
        interrupt = Interrupt(nth)
        try:
            with interrupt:
                act()
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


@pytest.mark.parametrize("what", ["write", "block", "read"])
def test_an_interrupt_at_any_place_strikes_its_caller_alone(tmp_path: Path, what: str) -> None:
    """000-1: nobody hangs, nothing acknowledged is missing, nothing is there twice."""
    path, oracle = tmp_path / "standfast.db", tmp_path / "oracle"
    with Child(
        "tests.test_sqlite_interrupts:interrupt_everywhere", path=str(path), oracle=str(oracle), what=what, every=2
    ) as child:
        struck, counted = child.end(120)
    assert int(struck) > 10
    assert counted == "[True]"
    with standfast.open(path, data_dir=tmp_path) as sf:
        there = keys(sf)
        assert {key for key in noted(oracle) if key != "-"} <= set(there)
        main = [key for key in there if key.startswith("k-main")]
        assert len(main) == int(value(sf, "n:main") or 0)


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


def test_an_interrupt_at_any_place_of_opening_and_closing_leaves_the_store_free(tmp_path: Path) -> None:
    """000-1, 003-33: the next opening works, in this process and in another."""
    path = tmp_path / "standfast.db"
    with Child("tests.test_sqlite_interrupts:open_under_interrupts", path=str(path), every=5) as child:
        assert int(child.hear(120)) > 20
        child.hear()
        with standfast.open(path, data_dir=tmp_path) as sf:  # the child is alive and must not hold anything
            put(sf, "k-other")


# -- where it takes time ---------------------------------------------------------------------------------------


def lead_and_sync_slowly(path: str, oracle: str) -> None:
    """The main thread leads a batch of others and is interrupted while the disk works."""
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)

    def follow(n: int) -> None:
        put(sf, f"k-follower-{n}")
        told.note(f"k-follower-{n}")

    tasks: list[Task] = []

    def body(tx: Any) -> None:
        # Runs in the leading main thread: those who come now are the leader's next batch, or share this one.
        if not tasks:
            tasks.extend(Task(follow, n) for n in range(6))
        tx.run(INSERT, key="k-leader", value="1")

    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        sf._store.write(body)
        say("not interrupted")
    except KeyboardInterrupt:
        say("interrupted")
    say([task.done() for task in tasks])
    put(sf, "k-after")
    say(keys(sf))


def test_an_interrupt_while_the_leader_syncs_leaves_its_followers_served(tmp_path: Path) -> None:
    """000-1: a sync is where a writer spends its time, so that is where Ctrl-C strikes."""
    with or_skip():
        disk = Disk(tmp_path, sync_us=100_000)
    with Child(
        "tests.test_sqlite_interrupts:lead_and_sync_slowly",
        env=disk.env,
        path=str(disk.path),
        oracle=str(tmp_path / "oracle"),
    ) as child:
        said = child.end()
    assert said[:2] == ["interrupted", str([None] * 6)]
    assert all(f"k-follower-{n}" in said[2] for n in range(6))


def wait_at_the_lock(path: str) -> None:
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    say("open")
    heard()
    try:
        put(sf, "k-never")
        say("written")
    except KeyboardInterrupt:
        say("interrupted")
    heard()
    put(sf, "k-later")
    say("works again")
    heard()


def waits_in_the_kernel(pid: int, lock: Path) -> bool:
    """Whether a thread of that process stands in the kernel's queue for this lock."""
    inode = str(os.stat(lock).st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(
        fields[1] == "->" and fields[5] == str(pid) and fields[6].endswith(":" + inode)
        for fields in lines
        if len(fields) > 6
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[standfast.Standfast]:
    with standfast.open(tmp_path / "standfast.db", data_dir=tmp_path) as sf:
        yield sf


def test_an_interrupt_while_waiting_for_the_lock_leaves_the_lock_to_others(
    store: standfast.Standfast, tmp_path: Path
) -> None:
    """003-33: an idle process that was interrupted once must not own the store's lock."""
    path = tmp_path / "standfast.db"
    with Child("tests.test_sqlite_interrupts:wait_at_the_lock", path=str(path)) as child:
        child.expect("open")
        with store.transaction():
            child.tell("write")
            while not waits_in_the_kernel(child.pid, Path(f"{path}.lock")):
                os.sched_yield()
            child.signal(signal.SIGINT)
            child.expect("interrupted")
        for n in range(20):
            put(store, f"k{n}")
        child.tell("again")
        child.expect("works again")
        put(store, "k-last")
    assert "k-never" not in keys(store)
    assert {"k-later", "k-last"} <= set(keys(store))
