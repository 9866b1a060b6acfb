"""Power is lost again and again while several processes write. Every acknowledged row must survive.

`run` uses a model of a disk (`faults/disk.c`). After a loss it has what was synced, in files whose names were synced,
and of everything else a random part of the sectors, or nothing. `run_cuts` uses a real ext4 that the kernel shuts
down while it is in use. The WAL wraps all the time, so that each loss falls into checkpoints and restarts of the WAL.
Each round begins with the files that the last one left. Acknowledged writes are recorded outside the store.

In the control fsync does nothing, which is SQLite with synchronous=NORMAL: consistent, but rows are lost. If the
control lost nothing, these campaigns could not see a loss.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from standfast_prove.faults.children import Nursery
from standfast_prove.faults.disk import Disk, fail_next_sync
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.mounts import Ext4
from standfast_prove.faults.rows import Oracle, integrity, keys, noted, put
from standfast_prove.outcome import Outcome

WRAP_EVERY_PAGES = (20, 60, 400)
PROCESSES = 3
LIVES_MAX = 12
"""After this number of power losses a new store begins, because a small file is synced, copied and lost more often."""


def run(place: Path, *, losses: int, seed: int = 0, synced: bool = True) -> Outcome:
    """Lose the power of the modelled disk `losses` times."""
    chance, disk = random.Random(seed), Disk(place)

    def lose() -> None:
        disk.lose_power(chance, kept=chance.choice([0.0, 0.0, 0.5, 0.9]))

    with Nursery(env=disk.env, words=place / "words") as nursery:
        lives = _Lives(nursery, place, disk.path, chance, synced=synced)
        outcome = lives.live(losses, begin=disk.wipe, cut=None, restart=lose)
    outcome.name = "power loss, modelled disk" + ("" if synced else ", without our sync")
    return outcome


def run_cuts(place: Path, *, losses: int, seed: int = 0, synced: bool = True) -> Outcome:
    """The kernel shuts down a real ext4 again and again while processes write.

    Raises Unavailable where that is not allowed.
    """
    chance = random.Random(seed)
    with Ext4(place / "ext4") as disk, Nursery(words=place / "words") as nursery:
        lives = _Lives(
            nursery, place, disk.point / "store" / "standfast.db", chance, synced=synced, unit="cuts", pause_s=0.1
        )
        outcome = lives.live(losses, begin=disk.format, cut=disk.cut, restart=disk.restart)
    outcome.name = "power loss, ext4 cut off" + ("" if synced else ", without our sync")
    return outcome


def run_failing(place: Path, *, losses: int, seed: int = 0) -> Outcome:
    """Power is lost on a disk whose fsync sometimes fails. Every acknowledged row must survive."""
    chance, disk = random.Random(seed), Disk(place)

    def lose() -> None:
        disk.lose_power(chance, kept=chance.choice([0.0, 0.5]))

    with Nursery(env=disk.env, words=place / "words") as nursery:
        lives = _Lives(nursery, place, disk.path, chance, synced=True, target="write_failing")
        outcome = lives.live(losses, begin=disk.wipe, cut=None, restart=lose)
    outcome.name = "power loss, failing disk"
    return outcome


class _Lives:
    """Repeats this: start writers, lose the power, open the store again and compare it."""

    def __init__(
        self,
        nursery: Nursery,
        place: Path,
        path: Path,
        chance: random.Random,
        *,
        synced: bool,
        target: str = "write",
        unit: str = "losses",
        pause_s: float = 0.4,
    ) -> None:
        self._nursery = nursery
        self._target = f"standfast_prove.campaigns.power:{target}"
        self._place = place
        self._path = path
        self._chance = chance
        self._synced = synced
        self._unit = unit
        self._pause_s = pause_s
        self._outcome = Outcome("")
        self._acknowledged: set[str] = set()
        self._late: set[str] = set()

    def live(
        self, losses: int, *, begin: Callable[[], None], cut: Callable[[], None] | None, restart: Callable[[], None]
    ) -> Outcome:
        for loss in range(losses):
            if loss % LIVES_MAX == 0:
                begin()
                self._acknowledged.clear()
            lines = self._write_until(loss, cut)
            acked = [line for line in lines if line != UNKNOWN]
            self._outcome.count("acknowledged", len(acked))
            self._outcome.count("unknown", len(lines) - len(acked))
            self._acknowledged.update(acked)
            restart()
            self._look()
        self._outcome.count(self._unit, losses)
        return self._outcome

    def _write_until(self, loss: int, cut: Callable[[], None] | None) -> list[str]:
        """The writes that were acknowledged before the power loss."""
        oracles = [self._place / f"oracle.{loss}.{n}" for n in range(PROCESSES)]
        wrap = self._chance.choice(WRAP_EVERY_PAGES)
        pids = [self._start(oracle, f"k{loss}-{n}", wrap) for n, oracle in enumerate(oracles)]
        _until_told(oracles)
        time.sleep(self._chance.uniform(0.0, self._pause_s))
        acked = _all_told(oracles)
        if cut is not None:
            cut()
        codes = [self._nursery.kill(pid) for pid in pids]
        # A writer that survived the shutdown may have got an error. It ends with that error.
        self._outcome.refuse(set(codes) - {-9, NOTICED}, "writers died: " + self._words())
        if cut is None:
            return _all_told(oracles)
        # The kernel can answer "synced" to a call that was under way when it cut the file system off.
        # A machine without power sends no answer, so acknowledgements during the cut are counted apart.
        self._late = set(_all_told(oracles)) - set(acked)
        self._outcome.count("answers during a cut", len(self._late))
        return acked

    def _start(self, oracle: Path, name: str, wrap: int) -> int:
        return self._nursery.start(
            self._target,
            path=str(self._path),
            oracle=str(oracle),
            name=name,
            synced=self._synced,
            wrap=wrap,
        )

    def _look(self) -> None:
        """The state after a restart, as a process on the same disk reads it."""
        answer = self._place / "found.json"
        answer.unlink(missing_ok=True)
        code = self._nursery.wait(
            self._nursery.start("standfast_prove.campaigns.power:look", path=str(self._path), answer=str(answer))
        )
        if code != 0:
            self._outcome.refuse(True, "the store cannot be opened: " + self._words())
            return
        found = json.loads(answer.read_text())
        there = set(found["keys"])
        missing = self._acknowledged - there
        if self._late:
            self._outcome.count("of these gone", len(self._late - there))
            self._late.clear()
        self._outcome.count("lost rows", len(missing))
        self._outcome.refuse(sorted(missing), f"{len(missing)} acknowledged rows are lost")
        self._outcome.refuse(found["integrity"] != "ok", f"integrity: {found['integrity']}")
        self._acknowledged -= missing  # count each violation once

    def _words(self) -> str:
        return (self._place / "words").read_text()[-1500:]


def _until_told(oracles: list[Path]) -> None:
    end = time.monotonic() + 30
    while oracles and time.monotonic() < end:
        oracles = [oracle for oracle in oracles if not noted(oracle)]
        time.sleep(0.002)


def _all_told(oracles: list[Path]) -> list[str]:
    return [line for oracle in oracles for line in noted(oracle)]


# -- in the children -----------------------------------------------------------------------------------

UNKNOWN = "?"
"""The note of a writer whose commit has an unknown outcome."""
NOTICED = 9
"""The exit code of a writer that was refused by the store."""


def write(*, path: str, oracle: str, name: str, synced: bool, wrap: int) -> None:
    import standfast

    if not synced:
        os.fdatasync = lambda fd: None  # in this process only
    sf = standfast.open(path, data_dir=os.path.dirname(oracle))
    acked = Oracle(oracle)
    set_limit("CHECKPOINT_FRAMES", wrap)
    n = 0
    while True:
        try:
            put(sf, f"{name}-{n}", "x" * 300)
        except standfast.StorageError:
            os._exit(NOTICED)
        acked.note(f"{name}-{n}")
        n += 1


def write_failing(*, path: str, oracle: str, name: str, synced: bool, wrap: int) -> None:
    """Three threads write on a disk that sometimes refuses a sync."""
    import standfast

    sf = standfast.open(path, data_dir=os.path.dirname(oracle))
    acked, chance = Oracle(oracle), random.Random(name)
    set_limit("CHECKPOINT_FRAMES", wrap)

    def write(thread: int) -> None:
        for n in range(1_000_000):
            try:
                put(sf, f"{name}-{thread}-{n}", "x" * 300)
            except standfast.StorageError:
                acked.note(UNKNOWN)
            else:
                acked.note(f"{name}-{thread}-{n}")

    for thread in range(3):
        threading.Thread(target=write, args=(thread,), daemon=True).start()
    # One process injects the failures, and every process gets each one. Before the next failure each process has
    # opened the store again and acknowledged a write: a process that opens the store during a failure cannot detect
    # it (docs/internals/durability.md).
    others = [Path(oracle).with_suffix(f".{n}") for n in range(PROCESSES)]
    seen: dict[Path, int] = {}
    while True:
        time.sleep(chance.uniform(0.05, 0.2))
        if name.endswith("-0") and all(_over_it(other, seen.get(other)) for other in others):
            seen = {other: other.stat().st_size for other in others}
            fail_next_sync("-wal", chance.randint(1, 5))


def _over_it(oracle: Path, before: int | None) -> bool:
    """Whether this writer has got the error of the failure and an acknowledgement since."""
    lines = oracle.read_text()[before or 0 :].splitlines() if oracle.exists() else []
    return bool(lines) and lines[-1] != UNKNOWN and (before is None or UNKNOWN in lines)


def look(*, path: str, answer: str) -> None:
    import standfast

    with standfast.open(path, data_dir=os.path.dirname(answer)) as sf:
        found = keys(sf)
    Path(answer).write_text(json.dumps({"keys": found, "integrity": integrity(path)}))
