"""Daemons are killed, cut off and locked out while loops fire and mail arrives.

The commands of the loops append to a file, which is the oracle. Each slot has exactly one row, runs at most once, and
has run whenever its row says so. Nothing is left behind, and a daemon that runs for long does not grow.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import standfast
from standfast.config.actor import account
from standfast_prove.faults import mounts
from standfast_prove.faults.daemons import (
    Line,
    Running,
    all_runs,
    check_slots,
    descriptors,
    fill,
    memory_kb,
    noting,
    opened,
    until,
    way,
)
from standfast_prove.outcome import Outcome

SLOWER = ("true", "sleep 0.3; echo some output", "sleep 1.4")
WAL_MAX_BYTES = 16 * 1024 * 1024
READER_FDS = 6
"""A second thread may need its own reader once. The store keeps that reader."""


CARELESS = """
from standfast.daemon.runner import Work
Work._take = lambda self, run: self._sf.runs.requeue(run.id, run.attempt, reason="its worker is gone")
"""
"""The control: runs of a dead daemon are handed out again without a check of their keepers."""


def kills(place: Path, *, seconds: float, seed: int, every_s: float = 1.0, careless: bool = False) -> Outcome:
    """A daemon is killed with kill -9 about every second, and the next one starts at once."""
    outcome, random_ = Outcome("daemon-kills"), random.Random(seed)
    url, data, before = str(place / "standfast.db"), place / "data", CARELESS if careless else ""
    with opened(url, data) as sf, _Post(sf) as post:
        firsts = loops(sf, place, SLOWER)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with Running(data, before=before, STANDFAST_DB_URL=url) as running:
                if random_.random() < 0.7:  # otherwise it may be killed while it starts
                    until(lambda: running.status()["state"] == "active")
                time.sleep(every_s * random_.uniform(0.1, 0.9))
                running.kill()
                outcome.count("kills")
        with Running(data, before=before, STANDFAST_DB_URL=url) as running:
            running.wait()
            settled_us = settle(sf, firsts)
            small = _size(running.pid)
            time.sleep(min(seconds / 4, 10.0))
            after = _size(running.pid)
            outcome.refuse(after[0] > small[0] + READER_FDS, f"descriptors grew from {small[0]} to {after[0]}")
            outcome.refuse(after[1] > small[1] * 1.2, f"memory grew from {small[1]} to {after[1]} kB")
            outcome.refuse(running.stop(), "it did not end well")
        post.stop()
        outcome.refuse(post.wrong(), "mail was lost or doubled")
        outcome.count("mails", len(post.sent))
        judge(outcome, sf, place, firsts, settled_us, answered=True)
        outcome.refuse(os.listdir(data / "daemon" / "runs"), "places of keepers were left behind")
        outcome.refuse(_keepers(data), "keepers were left behind")
        wal = os.path.getsize(url + "-wal")
        outcome.refuse(wal > WAL_MAX_BYTES, f"the log has {wal:,} bytes")
    return outcome


def keepers(place: Path, *, seconds: float, seed: int) -> Outcome:
    """Daemons and their keepers are killed. The outcome of a command may be lost, but no command runs twice."""
    outcome, random_ = Outcome("daemon-keepers"), random.Random(seed)
    url, data = str(place / "standfast.db"), place / "data"
    with opened(url, data) as sf:
        firsts = loops(sf, place, SLOWER)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with Running(data, STANDFAST_DB_URL=url):
                for _ in range(random_.randint(2, 12)):
                    time.sleep(random_.uniform(0.05, 0.5))
                    for pid in _keepers(data):
                        if random_.random() < 0.4:
                            with suppress(ProcessLookupError):
                                os.kill(int(pid), signal.SIGKILL)
                                outcome.count("keepers killed")
            outcome.count("kills")
        with Running(data, STANDFAST_DB_URL=url) as running:
            settled_us = settle(sf, firsts)
            outcome.refuse(running.stop(), "it did not end well")
        judge(outcome, sf, place, firsts, settled_us, answered=False)
        outcome.refuse(os.listdir(data / "daemon" / "runs"), "places of keepers were left behind")
        outcome.refuse(_keepers(data), "keepers were left behind")
    return outcome


def rivals(place: Path, *, seconds: float, seed: int) -> Outcome:
    """Two daemons with two data directories use one store and are killed, stopped and paused in turn."""
    outcome, random_ = Outcome("daemon-rivals"), random.Random(seed)
    url, hosts = str(place / "standfast.db"), ("one", "other")
    with opened(url, place / "own") as sf, ExitStack() as stack:
        firsts = loops(sf, place, SLOWER)
        running = {host: stack.enter_context(Running(place / host, STANDFAST_DB_URL=url)) for host in hosts}
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(random_.uniform(0.3, 1.5))
            host, blow = random_.choice(hosts), random_.choice(("kill", "kill", "kill", "stop", "pause"))
            outcome.count(f"{blow}s")
            if blow == "pause":
                running[host].process.send_signal(signal.SIGSTOP)
                time.sleep(0.5)
                running[host].process.send_signal(signal.SIGCONT)
                continue
            running[host].kill() if blow == "kill" else running[host].stop()
            running[host] = stack.enter_context(Running(place / host, STANDFAST_DB_URL=url))
        settled_us = settle(sf, firsts)
        for one in running.values():
            outcome.refuse(one.stop(), "it did not end well")
        judge(outcome, sf, place, firsts, settled_us, answered=False)
    return outcome


def lives(place: Path, *, seconds: float, seed: int = 0) -> Outcome:
    """One daemon works without a pause. Its memory and its number of open files must not grow."""
    outcome = Outcome("daemon-lives")
    url, data = str(place / "standfast.db"), place / "data"
    with opened(url, data) as sf, Running(data, STANDFAST_DB_URL=url) as running:
        firsts = loops(sf, place, ("true", "echo x", "head -c 300000 /dev/zero", "exit 1"))
        running.wait()
        time.sleep(seconds / 4)
        small, pages_kb = _size(running.pid), os.path.getsize(url) // 1024
        time.sleep(seconds * 3 / 4)
        settled_us = settle(sf, firsts)
        after = _size(running.pid)
        outcome.refuse(after[0] > small[0] + READER_FDS, f"descriptors grew from {small[0]} to {after[0]}")
        pages_kb = os.path.getsize(url) // 1024 - pages_kb
        grown = f"memory grew from {small[1]} to {after[1]} kB, the store by {pages_kb} kB"
        # Each connection keeps pages of the store in memory, up to a bound, so memory may grow with the store.
        outcome.refuse(after[1] > small[1] * 1.05 + 3 * pages_kb, grown)
        outcome.refuse(os.path.getsize(url + "-wal") > WAL_MAX_BYTES, "the log has grown")
        outcome.refuse(running.stop(), "it did not end well")
        judge(outcome, sf, place, firsts, settled_us, answered=False)
        outcome.count("kB of memory", after[1])
    return outcome


def locked_out(place: Path, *, seconds: float, seed: int = 0) -> Outcome:
    """Another process holds the write lock. No slot is lost, and the same daemon continues."""
    outcome = Outcome("daemon-locked-out")
    url, data = str(place / "standfast.db"), place / "data"
    with opened(url, data) as sf, Running(data, STANDFAST_DB_URL=url) as running:
        firsts = loops(sf, place, ("true", "echo x"))
        running.wait()
        until(lambda: any(run.state == "done" for run in sf.runs.list()))
        lock = os.open(url + ".lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = time.monotonic()
        time.sleep(seconds)
        os.close(lock)
        outcome.count("seconds locked", round(time.monotonic() - held))
        settled_us = settle(sf, firsts)
        outcome.refuse(running.process.poll() is not None, "it did not survive")
        outcome.refuse(running.stop(), "it did not end well")
        judge(outcome, sf, place, firsts, settled_us, answered=True)
    return outcome


def full_disk(place: Path, *, seconds: float, seed: int = 0) -> Outcome:
    """The disk is full for a while. The daemon waits, reports it, and loses no slot."""
    outcome, small = Outcome("daemon-full-disk"), place / "small"
    with mounts.memory(small, size="16m"):
        url, data = str(small / "standfast.db"), small / "data"
        with opened(url, data) as sf, Running(data, STANDFAST_DB_URL=url) as running:
            firsts = loops(sf, place, ("true", "head -c 40000 /dev/urandom"))
            running.wait()
            until(lambda: any(run.state == "done" for run in sf.runs.list()))
            filling = fill(small)
            until(lambda: any(part["state"] == "waiting" for part in running.status()["parts"]))
            time.sleep(seconds)
            filling.unlink()
            settled_us = settle(sf, firsts)
            outcome.refuse(running.process.poll() is not None, "it did not survive")
            outcome.refuse(running.stop(), "it did not end well")
            judge(outcome, sf, place, firsts, settled_us, answered=True)
    return outcome


def server_away(place: Path, *, url: str, seconds: float) -> Outcome:
    """The server cannot be reached for a while, including the time when the daemon starts."""
    outcome = Outcome("daemon-server-away")
    with Line(urlsplit(url).port or 5432) as line, opened(url, place / "own") as sf:
        firsts = loops(sf, place, ("true",))
        line.break_off()
        with Running(place / "data", STANDFAST_DB_URL=line.url(url)) as running:
            running.wait("waiting")
            line.mend()
            running.wait()
            until(lambda: any(run.state == "done" for run in sf.runs.list()))
            line.break_off()
            time.sleep(seconds)
            line.mend()
            settled_us = settle(sf, firsts)
            outcome.refuse(running.process.poll() is not None, "it did not survive")
            outcome.refuse(running.stop(), "it did not end well")
        judge(outcome, sf, place, firsts, settled_us, answered=False)
    return outcome


def machines(place: Path, *, url: str, rounds: int, seed: int, haste: bool) -> Outcome:
    """Two machines use one server. The leading daemon is cut off, later killed, and the other daemon takes over."""
    outcome, random_ = Outcome("daemon-machines"), random.Random(seed)
    port, lease_s = urlsplit(url).port or 5432, 4.0 if haste else 60.0
    with opened(url, place / "own") as sf, way(port) as line_a, way(port) as line_b:
        firsts = loops(sf, place, ("true", "sleep 0.4"))
        lines = {"alpha": line_a, "beta": line_b}
        here = account()
        accounts = [here, *(f"{here.partition('@')[0]}@{host}" for host in lines)]
        outcome.count("network namespaces", sum(bool(line.within) for line in lines.values()))

        def start(host: str) -> Running:
            line = lines[host]
            how: dict[str, Any] = {"host": host, "haste": haste, "within": line.within, "accounts": accounts}
            return Running(place / host, **how, STANDFAST_DB_URL=line.url(url))

        running = {host: start(host) for host in lines}
        try:
            for _ in range(rounds):
                for blow in ("cut", "pause", "silence", "kill") if rounds > 1 else ("cut", "kill"):
                    until(lambda: _leader(running) is not None)
                    leader = _leader(running)
                    assert leader is not None
                    other = next(host for host in lines if host != leader)
                    until(lambda: running[other].status()["state"] in ("standby", "active"))  # noqa: B023
                    time.sleep(random_.uniform(0.2, 1.2))
                    if blow == "cut":
                        lines[leader].break_off()
                        outcome.count("partitions")
                    elif blow == "silence":
                        lines[leader].fall_silent()
                        outcome.count("silences")
                    elif blow == "pause":
                        running[leader].process.send_signal(signal.SIGSTOP)
                        outcome.count("pauses")
                    else:
                        running[leader].kill()
                        outcome.count("kills")
                    until(lambda: running[other].status()["state"] == "active", patience_s=3 * lease_s + 60)  # noqa: B023
                    time.sleep(random_.uniform(0.5, lease_s / 4))
                    if blow in ("cut", "silence"):
                        lines[leader].mend()
                    elif blow == "pause":
                        running[leader].process.send_signal(signal.SIGCONT)
                        until(lambda: running[leader].status()["state"] in ("standby", "active"))  # noqa: B023
                    else:
                        running[leader].words.close()
                        running[leader] = start(leader)
            settled_us = settle(sf, firsts)
            for one in running.values():
                outcome.refuse(one.stop(), "it did not end well")
        finally:
            for one in running.values():
                one.__exit__()
        judge(outcome, sf, place, firsts, settled_us, answered=False)
        hosts = {run.host for name in firsts for run in sf.runs.list(name, limit=1000) if run.host}
        outcome.refuse(hosts != set(lines), f"only {hosts} ran anything")
    return outcome


# -- small parts ---------------------------------------------------------------------------------------------


def loops(sf: standfast.Standfast, place: Path, commands: tuple[str, ...]) -> dict[str, int]:
    """Add a loop with one slot per second for each command. Returns the first slot of each."""
    firsts = {}
    for n, then in enumerate(commands):
        added = sf.loops.add(
            f"loop{n}",
            noting(place / "witness", then),
            every="1s",
            cwd="/",
            catch_up="all",
            catch_up_max=1000,
            overlap="queue",
            failures_max=0,
        )
        assert added.next_slot_us is not None
        firsts[added.name] = added.next_slot_us
    return firsts


def settle(sf: standfast.Standfast, firsts: dict[str, int]) -> int:
    """Wait until every slot up to now has ended. Returns the current time: later slots are not checked."""
    until_us = sf.read(lambda tx: tx.now_us())

    def over() -> bool:
        return all(
            (sf.loops.get(name).last_slot_us or 0) > until_us
            and all(run.ended_us for run in all_runs(sf, name) if run.slot_us <= until_us)
            for name in firsts
        )

    until(over, every_s=0.1, patience_s=300)
    return until_us


def judge(
    outcome: Outcome, sf: standfast.Standfast, place: Path, firsts: dict[str, int], until_us: int, *, answered: bool
) -> None:
    try:
        slots, states = check_slots(sf, place / "witness", firsts, until_us, answered=answered)
    except AssertionError as error:
        outcome.bad.append(str(error)[:600])
        return
    outcome.count("slots", slots)
    for state, number in states.items():
        outcome.count(state, number)


def _size(pid: int) -> tuple[int, int]:
    """Number of descriptors and memory in kB: the least of a few samples, because extra readers are opened for a short
    time.
    """
    seen = []
    for _ in range(10):
        seen.append((descriptors(pid), memory_kb(pid)))
        time.sleep(0.05)
    return min(fds for fds, _ in seen), min(kb for _, kb in seen)


def _leader(running: dict[str, Running]) -> str | None:
    leading = [
        host for host, one in running.items() if one.process.poll() is None and one.status()["state"] == "active"
    ]
    return leading[0] if len(leading) == 1 else None


def _keepers(data: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"keeper.py" in command and os.fsencode(data) in command:
                found.append(name)
    return found


class _Post:
    """Two agents that send each other mail during the campaign."""

    def __init__(self, sf: standfast.Standfast) -> None:
        self._sf = sf
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: list[str] = []
        self.got: Counter[str] = Counter()

    def _run(self) -> None:
        n = 0
        while not self._stop.wait(0.05):
            n += 1
            self.sent.append(self._sf.mail.send("reviewer", {"n": n}, key=f"mail{n}").id)
            self._take()

    def _take(self) -> None:
        while mail := self._sf.mail.read(to="reviewer"):
            self._sf.mail.done(mail)
            self.got[mail.id] += 1

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
            self._take()

    def wrong(self) -> list[str]:
        return [id for id in self.sent if self.got[id] != 1]

    def __enter__(self) -> _Post:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
