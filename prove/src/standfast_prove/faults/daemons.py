"""Daemons that tests start, kill and stop.

Each command of their loops appends one line to a file with O_APPEND. That file is the only oracle.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import standfast
from standfast import config, handle
from standfast.clock import HOUR_US, SECOND_US, SYSTEM, SystemClock
from standfast.daemon.keeper_client import RunOutputs
from standfast.daemon.tick import Daemon, Options
from standfast.record.loops.models import Run
from standfast_prove.faults.proxy import _Server

PATIENCE_S = 60.0
MAIN = "import sys; from standfast.cli import main; sys.exit(main())"
HOST = """
import os, sys
from collections import namedtuple
real = os.uname()
Name = namedtuple("Name", "sysname nodename release version machine")
os.uname = lambda: Name(real.sysname, {name!r}, real.release, real.version, real.machine)
import standfast.clock
standfast.clock.SYSTEM._boot_id = {boot!r}
"""
"""Call this first: it gives the process another host name and boot id."""
HASTE = """
from standfast.daemon import leader_lease
from standfast.core import leases
leases.PROCESS_US, leases.MARGIN_US, leases.RENEW_EVERY_S, leader_lease.RENEW_US = 4_000_000, 1_000_000, 1.0, 1_000_000
"""
"""Leases of 4 s instead of 60 s, so that a test is 15 times as fast."""


class Later(SystemClock):
    """The real clock plus one hour: every lease has ended."""

    def now_us(self) -> int:
        return super().now_us() + HOUR_US


def noting(witness: Path, then: str = "true") -> list[str]:
    """A command that appends one line to the file, and then continues to run."""
    return ["sh", "-c", f'echo "$STANDFAST_LOOP $STANDFAST_SLOT_US $STANDFAST_ATTEMPT" >> {witness}; {then}']


def noted(witness: Path) -> Counter[tuple[str, int]]:
    """The number of times that each slot really ran."""
    if not witness.exists():
        return Counter()
    lines = [line.split() for line in witness.read_text().splitlines()]
    return Counter((line[0], int(line[1])) for line in lines)


def opened(url: str, data: Path, *, clock: SystemClock = SYSTEM, scope: str = "") -> standfast.Standfast:
    return handle.connect(config.load(url, data_dir=data, scope=scope, actor="daemon:test"), clock=clock)


def daemon(sf: standfast.Standfast, said: list[str] | None = None, **options: Any) -> Daemon:
    """A daemon whose `tick` the test calls."""
    assert sf._store.data_dir is not None
    os.makedirs(sf._store.data_dir, exist_ok=True)
    say = (said if said is not None else []).append
    return Daemon(sf, RunOutputs(sf._store.data_dir, sf._store.caller.clock), Options(**options), say)


def until(
    what: Callable[[], object],
    act: Callable[[], object] = lambda: None,
    *,
    every_s: float = 0.005,
    patience_s: float = PATIENCE_S,
) -> None:
    """Wait until a condition holds. With `act`, act again before each check."""
    end = time.monotonic() + patience_s
    while not what():
        act()
        assert time.monotonic() < end, "it did not come"
        time.sleep(every_s)


class Running:
    """`standfast daemon run` in its own process, which may pretend to be on another machine."""

    def __init__(
        self,
        data: Path,
        *words: str,
        host: str | None = None,
        haste: bool = False,
        before: str = "",
        within: tuple[str, ...] = (),
        accounts: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self.data = data
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if accounts:
            (data / "config.toml").write_text(f"[daemon]\naccounts = {json.dumps(list(accounts))}\n")
        boot = HOST.format(name=host, boot=f"{host:>08}-boot") if host else ""
        boot += (HASTE if haste else "") + before
        self.words = open(data / "words", "ab")  # noqa: SIM115  closed at the end of the block
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", boot + MAIN, "daemon", "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=self.words,
            stderr=self.words,
            cwd=data,
            env={**os.environ, "STANDFAST_DATA_DIR": str(data), **environment},
        )
        self.pid = self.process.pid

    def status(self) -> dict[str, Any]:
        """The state in the daemon's file, if this process wrote it."""
        try:
            found: dict[str, Any] = json.loads((self.data / "daemon" / "status.json").read_text())
        except (OSError, ValueError):
            return {"state": "starting"}
        return found if found["pid"] == self.pid else {"state": "starting"}

    def wait(self, state: str = "active") -> Self:
        until(lambda: self.status()["state"] == state or self.process.poll() is not None)
        assert self.status()["state"] == state, self.said()
        return self

    def said(self) -> str:
        return (self.data / "words").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self.words.close()


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


class Line(_Server):
    """The network from one machine to the server. A test can break and repair it."""

    within: tuple[str, ...] = ()
    """The command prefix that starts a program on that machine."""

    def __init__(self, target_port: int, address: str = "127.0.0.1") -> None:
        super().__init__(target_port, address)
        self._broken = False
        self._flows = threading.Event()
        self._flows.set()

    def serve(self, client: socket.socket) -> None:
        if self._broken:
            return
        server = self.dial()
        threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
        self._carry(server, client)

    def _carry(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                to.sendall(data)
        for line in (source, to):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def break_off(self) -> None:
        self._broken = True
        self.cut()

    def fall_silent(self) -> None:
        """Hold all packets back without an error. They arrive when the line is repaired."""
        self._flows.clear()

    def mend(self) -> None:
        self._broken = False
        self._flows.set()


class Wire(Line):
    """The same with a network namespace whose only link can be taken down. Needs root."""

    def __init__(self, target_port: int) -> None:
        number = next(_wires)
        self._name, self._cable = f"standfast-{os.getpid()}-{number}", f"sf{os.getpid() % 100_000}-{number}"
        net = f"10.231.{os.getpid() % 250}"
        ours, theirs = f"{net}.{number * 4 % 250 + 1}", f"{net}.{number * 4 % 250 + 2}"
        _ip("netns", "add", self._name)
        try:
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", "cable", "netns", self._name)
            _ip("addr", "add", f"{ours}/30", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            _ip("-n", self._name, "addr", "add", f"{theirs}/30", "dev", "cable")
            _ip("-n", self._name, "link", "set", "cable", "up")
            _ip("-n", self._name, "link", "set", "lo", "up")
            super().__init__(target_port, ours)
        except BaseException:
            self._remove()
            raise
        self.within = ("ip", "netns", "exec", self._name)

    def break_off(self) -> None:
        """Take the link down: packets are lost without an error."""
        _ip("link", "set", self._cable, "down")
        super().break_off()

    def fall_silent(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")
        super().mend()

    def close(self) -> None:
        super().close()
        self._remove()

    def _remove(self) -> None:
        subprocess.run(["ip", "netns", "del", self._name], capture_output=True)
        subprocess.run(["ip", "link", "del", self._cable], capture_output=True)


_wires = itertools.count()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def way(target_port: int) -> Line:
    """The network of one machine to the server: a network namespace where this system allows one, else a proxy."""
    try:
        return Wire(target_port)
    except (OSError, subprocess.CalledProcessError):
        return Line(target_port)


def check_slots(
    sf: standfast.Standfast, witness: Path, firsts: dict[str, int], until_us: int, *, answered: bool
) -> tuple[int, dict[str, int]]:
    """Check the loops, which have one slot per second: each slot has one row and was run as often as the row says.

    With `answered`, each slot must be done. Returns the number of slots by their end.
    """
    ran, states, slots = noted(witness), Counter[str](), 0
    for name, first_us in firsts.items():
        rows = [run for run in all_runs(sf, name) if run.slot_us <= until_us]
        found = sorted(run.slot_us for run in rows)
        wanted = list(range(first_us, until_us + 1, SECOND_US))
        assert found == wanted, f"{name}: {len(found)} rows for {len(wanted)} slots: {set(found) ^ set(wanted)}"
        slots += len(found)
        for run in rows:
            states[run.state] += 1
            times = ran.pop((name, run.slot_us), 0)
            assert times <= 1, f"{name} was run {times} times for one slot: {run}"
            # If a keeper is killed, its command dies too, perhaps before it wrote its line.
            cut_short = run.state == "failed" and run.exit_code is None and "keeper was killed" in (run.reason or "")
            assert times == 1 or cut_short or run.state not in ("done", "failed"), f"{name} was never run: {run}"
            assert not answered or run.state == "done", run
    stray = {key: times for key, times in ran.items() if key[1] <= until_us or times > 1}
    assert not stray, f"run without a row, or twice: {stray}"
    return slots, dict(states)


def all_runs(sf: standfast.Standfast, name: str) -> list[Run]:
    rows: list[Run] = []
    after: str | None = None
    while page := sf.runs.list(name, limit=1000, after=after):
        rows += page
        after = page[-1].place
    return rows


def fill(directory: Path) -> Path:
    """Write until no space is left, and return the file."""
    filling = directory / "filling"
    with suppress(OSError), open(filling, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filling
