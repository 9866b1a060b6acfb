"""Processes take, renew and release one lock while the clock of their machine jumps.

The processes are real: they are forked, killed and reaped. The clocks are simulated:

- The date jumps by a second up to ten years in either direction, for all processes or for one.
- The machine is suspended, and its time awake does not advance.
- The machine reboots, and all processes are gone.

After each step the store must agree with a model of a few lines. No process gets a lease that a live process holds. A
lease that expired, or whose holder is dead, can be taken at once. A fencing token is never used twice, and a replaced
holder is refused. In the control a lease ends by the date, so a jump hands it out twice.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
from pathlib import Path
from typing import NamedTuple, NoReturn

import standfast
from standfast.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from standfast_prove.outcome import Outcome

PROCESSES = 4
YEAR_US = 365 * DAY_US
JUMPS_US = (SECOND_US, MINUTE_US, HOUR_US, DAY_US, 30 * DAY_US, YEAR_US, 10 * YEAR_US)
LASTS_US = (2 * SECOND_US, MINUTE_US, HOUR_US)
BEGIN_US = 1_767_225_600 * SECOND_US
NAME = "the lock"
_TIMES = struct.Struct("<qqq")


class MachineClock:
    """One machine's clocks, in memory that all its processes share. Each process may have another date."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_TIMES.pack(SECOND_US, BEGIN_US, 1))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _TIMES.size)
        self.ahead_us = 0

    def _read(self) -> tuple[int, int, int]:
        mono_us, date_us, boots = _TIMES.unpack_from(self._map)
        return mono_us, date_us, boots

    def mono_us(self) -> int:
        return self._read()[0]

    def now_us(self) -> int:
        return max(SECOND_US, self._read()[1] + self.ahead_us)

    def boot_id(self) -> str:
        return f"{self._read()[2]:08}-boot"

    def move(self, *, awake_us: int = 0, date_us: int = 0) -> None:
        mono_us, now_us, boots = self._read()
        _TIMES.pack_into(self._map, 0, mono_us + awake_us, max(SECOND_US, now_us + awake_us + date_us), boots)

    def reboot(self) -> None:
        _, now_us, boots = self._read()
        _TIMES.pack_into(self._map, 0, SECOND_US, now_us + MINUTE_US, boots + 1)


class Held(NamedTuple):
    """The lock, as the model knows it."""

    by: int
    fence: int
    until_us: int


def run(place: Path, *, seed: int = 0, steps: int = 400, awake: bool = True) -> Outcome:
    """Play `steps` steps of one machine. The control does not use the time awake: leases end by the date."""
    machine = _Machine(place, random.Random(seed), Outcome("clocks"), awake=awake)
    try:
        for _ in range(steps):
            machine.step()
            if machine.outcome.bad:
                break
    finally:
        machine.off()
    return machine.outcome


class _Machine:
    def __init__(self, place: Path, chance: random.Random, outcome: Outcome, *, awake: bool) -> None:
        self.outcome = outcome
        self._place, self._chance, self._awake = place, chance, awake
        self._clock = MachineClock(place / "clock")
        self._held: Held | None = None
        self._fences: list[int] = [0]
        self._known: dict[int, int] = {}  # the fencing token that each process holds, as it believes
        self._processes = [self._start() for _ in range(PROCESSES)]

    def _start(self) -> _Process:
        return _Process(self._place, awake=self._awake)

    def off(self) -> None:
        for process in self._processes:
            process.kill()

    def step(self) -> None:
        act = self._chance.choices(
            (self._take, self._renew, self._give_back, self._pass, self._jump, self._suspend, self._kill, self._reboot),
            (10, 5, 3, 4, 8, 2, 2, 0.3),
        )[0]
        act()

    # -- the clocks ------------------------------------------------------------------------------------------

    def _pass(self) -> None:
        self._clock.move(awake_us=self._chance.choice((1, SECOND_US, 30 * SECOND_US, HOUR_US)))

    def _jump(self) -> None:
        us = self._chance.choice(JUMPS_US) * self._chance.choice((-1, 1))
        if self._chance.random() < 0.3:
            self._any().tell(f"date {us}")
        else:
            self._clock.move(date_us=us)
        self.outcome.count("jumps")

    def _suspend(self) -> None:
        self._clock.move(date_us=self._chance.choice((MINUTE_US, 8 * HOUR_US, 3 * DAY_US)))
        self.outcome.count("jumps")
        self.outcome.count("suspended")

    def _reboot(self) -> None:
        self.off()
        self._clock.reboot()
        self._held = None
        self._processes = [self._start() for _ in range(PROCESSES)]
        self.outcome.count("jumps")
        self.outcome.count("reboots")

    def _kill(self) -> None:
        n = self._chance.randrange(PROCESSES)
        if self._held is not None and self._held.by == self._processes[n].pid:
            self._held = None  # the holder is known to be dead: its lease has ended
        self._processes[n].kill()
        self._processes[n] = self._start()
        self.outcome.count("kills")

    # -- the lock --------------------------------------------------------------------------------------------

    def _any(self) -> _Process:
        return self._chance.choice(self._processes)

    def _live(self) -> Held | None:
        held = self._held
        return held if held is not None and held.until_us > self._clock.mono_us() else None

    def _take(self) -> None:
        process, lasts_us, live = self._any(), self._chance.choice(LASTS_US), self._live()
        answer = process.tell(f"take {lasts_us}")
        if live is not None:
            self.outcome.refuse(answer != "in_progress", f"{live} is alive, and {process.pid} got {answer}")
            return
        self.outcome.refuse(not answer.isdigit(), f"it is free, and {process.pid} got {answer}")
        if answer.isdigit():
            self.outcome.count("grants")
            self.outcome.refuse(int(answer) <= max(self._fences), f"the fence {answer} came before")
            self._fences.append(int(answer))
            self._known[process.pid] = int(answer)
            self._held = Held(process.pid, int(answer), self._clock.mono_us() + lasts_us)

    def _renew(self) -> None:
        process, lasts_us, held = self._any(), self._chance.choice(LASTS_US), self._held
        fence = self._known.get(process.pid)
        if fence is None:
            return
        answer = process.tell(f"renew {fence} {lasts_us}")
        if answer.isdigit():
            wrong = held is None or held.fence != fence
            self.outcome.refuse(wrong, f"{process.pid} renewed with the fence {fence}, and {held} holds it")
            self._held = Held(process.pid, fence, self._clock.mono_us() + lasts_us)
        else:
            wrong = self._live() is not None and self._live() == held and held is not None and held.fence == fence
            self.outcome.refuse(wrong, f"{held} is alive, and got {answer}")

    def _give_back(self) -> None:
        process, held = self._any(), self._held
        fence = self._known.get(process.pid)
        if fence is None:
            return
        answer = process.tell(f"give {fence}")
        if answer == "given":
            self.outcome.refuse(held is None or held.fence != fence, f"{process.pid} gave back what {held} holds")
            self._held = None
        del self._known[process.pid]


class _Process:
    """One process of that machine. It answers each line with one line."""

    def __init__(self, place: Path, *, awake: bool) -> None:
        (there, self._write), (self._read, back) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._write)
            os.close(self._read)
            _live(place, there, back, awake)
        os.close(there)
        os.close(back)

    def tell(self, line: str) -> str:
        os.write(self._write, f"{line}\n".encode())
        answer = b""
        while not answer.endswith(b"\n"):
            part = os.read(self._read, 200)
            assert part, f"{self.pid} died of {line!r}"
            answer += part
        return answer.decode().strip()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._write)
        os.close(self._read)


# -- in the children -----------------------------------------------------------------------------------


def _live(place: Path, acked: int, answers: int, awake: bool) -> NoReturn:
    try:
        if not awake:
            _end_by_date()
        clock = MachineClock(place / "clock")
        sf = standfast.open(place / "store" / "standfast.db", data_dir=place, agent=f"p{os.getpid()}", clock=clock)
        with os.fdopen(acked) as lines:
            for line in lines:
                os.write(answers, f"{_answer(sf, clock, *line.split())}\n".encode())
    finally:
        os._exit(1)


def _answer(sf: standfast.Standfast, clock: MachineClock, what: str, *words: str) -> str:
    try:
        match what:
            case "date":
                clock.ahead_us += int(words[0])
                return "ok"
            case "take":
                return str(sf.leases.acquire(NAME, for_=int(words[0]) / 1_000_000).fence)
            case "renew":
                return str(sf.leases.renew(NAME, int(words[0]), for_=int(words[1]) / 1_000_000).fence)
            case _:
                sf.leases.release(NAME, int(words[0]))
                return "given"
    except standfast.StandfastError as refusal:
        return refusal.code


def _end_by_date() -> None:
    """In this process only: the product has no such switch."""
    from standfast.core import leases

    leases._ran_out = lambda tx, row: row["lease_until_us"] <= tx.now_us()
