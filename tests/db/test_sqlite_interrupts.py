"""Ctrl-C at any place in the code interrupts only its caller.

The test raises a real SIGINT in the main thread at the first line of the write path, then at the next, and so on, while
other threads write through the same engine. After each SIGINT the queue must work, the lock must be free, and no
acknowledged row may be missing or stored twice.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast_prove.faults.children import Child, heard, say
from standfast_prove.faults.disk import Disk
from standfast_prove.faults.rows import INSERT, Oracle, keys, noted, put, value
from standfast_prove.faults.threads import Task
from tests.skipping import or_skip


@pytest.mark.parametrize("what", ["write", "block", "read"])
def test_an_interrupt_at_any_point_hits_only_its_caller(tmp_path: Path, what: str) -> None:
    """000-1: no caller hangs, no acknowledged row is missing, and no row is stored twice."""
    path, oracle = tmp_path / "standfast.db", tmp_path / "oracle"
    with Child(
        "standfast_prove.campaigns.interrupts:interrupt_everywhere",
        path=str(path),
        oracle=str(oracle),
        what=what,
        every=1,
    ) as child:
        struck, counted = child.end(120)
    assert int(struck) > 10
    assert counted == "[True]"
    with standfast.open(path, data_dir=tmp_path) as sf:
        there = keys(sf)
        assert {key for key in noted(oracle) if key != "-"} <= set(there)
        main = [key for key in there if key.startswith("k-main")]
        assert len(main) == int(value(sf, "n:main") or 0)


def test_an_interrupt_at_any_point_of_opening_and_closing_leaves_the_store_free(tmp_path: Path) -> None:
    """000-1, 003-33: the store can then be opened in this process and in another."""
    path = tmp_path / "standfast.db"
    with Child("standfast_prove.campaigns.interrupts:open_under_interrupts", path=str(path), every=5) as child:
        assert int(child.hear(120)) > 20
        child.hear()
        with standfast.open(path, data_dir=tmp_path) as sf:  # the child is alive and must hold no lock
            put(sf, "k-other")


# -- slow places -----------------------------------------------------------------------------------------------


def lead_and_sync_slowly(path: str, oracle: str) -> None:
    """The main thread leads a batch of others and is interrupted while the disk works."""
    sf, told = standfast.open(path, data_dir=os.path.dirname(oracle)), Oracle(oracle)

    def follow(n: int) -> None:
        put(sf, f"k-follower-{n}")
        told.note(f"k-follower-{n}")

    tasks: list[Task] = []

    def body(tx: Any) -> None:
        # This runs in the leading main thread: callers that arrive now join this batch or the leader's next one.
        if not tasks:
            tasks.extend(Task(follow, n) for n in range(6))
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        tx.run(INSERT, key="k-leader", value="1")

    try:
        sf._store.write(body)
        say("not interrupted")
    except KeyboardInterrupt:
        say("interrupted")
    say([task.done() for task in tasks])
    put(sf, "k-after")
    say(keys(sf))


def test_an_interrupt_while_the_leader_syncs_leaves_its_followers_served(tmp_path: Path) -> None:
    """000-1: a writer spends most time in fsync, so Ctrl-C most often arrives there."""
    with or_skip():
        disk = Disk(tmp_path, sync_us=400_000)
    with Child(
        "tests.db.test_sqlite_interrupts:lead_and_sync_slowly",
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
    """Whether a thread of that process waits for this lock in the kernel."""
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
    with Child("tests.db.test_sqlite_interrupts:wait_at_the_lock", path=str(path)) as child:
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
