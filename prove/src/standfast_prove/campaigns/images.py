"""One run is recorded operation by operation. Power is then lost after each operation, in many ways.

Two processes of three threads write in every way there is (`writing.py`), into a WAL so small that it wraps and is
checkpointed all the time. `faults/operations.c` records each write, truncation, rename and sync, together with the
program's acknowledgements. `faults/platter.py` makes contents that a disk may hold after power loss at that point. The
product's engine opens each, reads it and writes to it:

- All acknowledged rows are there. All requests that were sent have their intent.
- Journal and rows agree, counters and rows agree, and an artifact with a row has its bytes.
- In every fourth image SQLite checks the whole file. Every fortieth is opened by the product as a user would.

Two images with the same bytes count as one. It is opened again only if more had been acknowledged by then.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from standfast_prove.campaigns import writing
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.limits import set_limit
from standfast_prove.faults.operations import Operation, Operations, Told
from standfast_prove.faults.platter import Image, Platter
from standfast_prove.faults.rows import INSERT, integrity
from standfast_prove.outcome import Outcome

if TYPE_CHECKING:
    from standfast.db.contract import Caller, Tx

DATABASE = "standfast.db"
PROCESSES, THREADS, ROUNDS = 2, 3, 12
KINDS = ("row", "row", "row", *(kind for kind in writing.KINDS if kind != "spool"))
"""Records of the spool are outside of the database."""
WRAP_EVERY_PAGES = (12, 30, 90)
FRESH_EVERY = 8
"""One of this many recordings begins before the store exists."""
CHECKED_EVERY, OPENED_EVERY = 4, 40
BAD_MAX = 3
SELF = "standfast_prove.campaigns.images"


def run(place: Path, *, images: int, seed: int = 0, protection: str = "") -> Outcome:
    """Check about `images` different images of one recording. The named `protection` is switched off."""
    chance = random.Random(seed)
    operations = Operations(place)
    fresh = chance.randrange(FRESH_EVERY) == 0
    before = {} if fresh else _made(operations.directory)
    with Nursery(env=operations.env, words=place / "words") as nursery:
        wrap = chance.choice(WRAP_EVERY_PAGES)
        starters: list[dict[str, object]] = [
            {
                "path": str(operations.directory / DATABASE),
                "log": str(operations.log),
                "name": f"k{seed}-{n}",
                "wrap": wrap,
                "without": protection,
            }
            for n in range(PROCESSES)
        ]
        codes = [nursery.wait(pid) for pid in nursery.race(f"{SELF}:work", starters)]
    outcome = Outcome("images")
    outcome.refuse(any(codes), "writers died: " + (place / "words").read_text()[-1500:])
    if outcome.bad:
        return outcome
    recorded = list(operations.recorded())
    outcome.count("operations", len(recorded))
    looker = _Looker(place / "image", outcome)
    _cut_everywhere(recorded, Platter(before, []), looker, images, chance)
    return outcome


def _made(directory: Path) -> dict[str, bytes]:
    """Make a store of which every byte is synced."""
    import apsw

    import standfast

    with standfast.open(directory / DATABASE, data_dir=directory):
        pass
    connection = apsw.Connection(str(directory / DATABASE))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    (directory / f"{DATABASE}-wal").touch(0o600)
    return {path.name: path.read_bytes() for path in directory.iterdir() if not path.name.endswith("-shm")}


def _cut_everywhere(
    recorded: list[Operation], platter: Platter, looker: _Looker, images: int, chance: random.Random
) -> None:
    """Lose the power after every operation, in several ways for each, and check the images."""
    acked: list[str] = []
    seen: dict[int, int] = {}
    tries = 0
    for n, operation in enumerate(recorded, 1):
        if operation.kind == "a":
            acked.append(operation.data.decode())
        else:
            platter.apply(operation)
        due = images * n // len(recorded)
        while tries < due:
            tries += 1
            image = platter.image(chance)
            before = seen.get(image.sum)
            if before == len(acked):
                looker.outcome.count("equal images")
                continue
            seen[image.sum] = len(acked)
            looker.look(image, acked, n)
            looker.outcome.count("images" if before is None else "opened again")
            if len(looker.outcome.bad) >= BAD_MAX:
                return


class _Looker:
    """Opens images as a process would after the reboot."""

    def __init__(self, place: Path, outcome: Outcome) -> None:
        self.outcome = outcome
        self._place = place
        self._path = str(place / DATABASE)
        self._on_disk: dict[str, int] = {}
        self._looked = 0
        place.mkdir(mode=0o700)

    def look(self, image: Image, acked: list[str], cut: int) -> None:
        self._looked += 1
        where = f"after operation {cut}, image {self._looked}"
        try:
            if self._looked % OPENED_EVERY == 0:
                found, wrong = self._open(image)
            else:
                found, wrong = self._start(image)
        except Exception as error:  # noqa: BLE001  the store does not open
            self.outcome.bad.append(f"{where}: it does not open: {type(error).__name__}: {error}")
            self._on_disk.clear()
            return
        missing = set(acked) - found
        self.outcome.count("acknowledged and looked for", len(acked))
        self.outcome.count("lost", len(missing))
        self.outcome.refuse(sorted(missing)[:5], f"{where}: {len(missing)} of {len(acked)} acknowledged are lost")
        self.outcome.refuse(sorted(wrong)[:5], f"{where}: half of something is there")
        self.outcome.refuse(_without_bytes(found, image), f"{where}: artifacts without their bytes")

    def _start(self, image: Image) -> tuple[set[str], list[str]]:
        """Open, read everything and write a row, with the engine alone."""
        from standfast.db.sqlite.engine import SqliteEngine

        self._lay_out(image, (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-journal"))
        # The last recording begins before the store exists.
        made_us = os.stat(self._path).st_mtime_ns if os.path.exists(self._path) else 0
        caller, checked = _caller(), self._looked % CHECKED_EVERY == 0
        engine = SqliteEngine(self._path, caller, allow_unsafe=True)  # without the search for network disks
        try:
            found, wrong = engine.write(lambda tx: _seen(tx, checked), caller)
        finally:
            engine.close()
        if os.stat(self._path).st_mtime_ns != made_us:
            self._on_disk.pop(DATABASE, None)
        for log in ("wal", "journal"):
            self._on_disk.pop(f"{DATABASE}-{log}", None)
        return found, wrong

    def _open(self, image: Image) -> tuple[set[str], list[str]]:
        """Open the image as a user does, with all files, and read the artifacts."""
        import standfast

        shutil.rmtree(self._place)
        self._place.mkdir(mode=0o700)
        self._on_disk.clear()
        for directory in image.directories:
            os.mkdir(self._place / directory, 0o700)
        self._lay_out(image, tuple(image.files))
        with standfast.open(self._path, data_dir=self._place) as sf:
            found, wrong = sf._store.write(lambda tx: _seen(tx, False))
            for artifact in sf.artifacts.list(limit=1000):
                sf.artifacts.read(artifact.id)
        state = integrity(self._path)
        self._on_disk.clear()
        return found, wrong + ([] if state == "ok" else [state])

    def _lay_out(self, image: Image, names: tuple[str, ...]) -> None:
        """Write only the files that differ: the database file is the same in most images."""
        for name in names:
            content, path = image.files.get(name), self._place / name
            if content is None:
                path.unlink(missing_ok=True)
                self._on_disk.pop(name, None)
            elif self._on_disk.get(name) != content.sum:
                path.write_bytes(content.data)
                path.chmod(0o600)
                self._on_disk[name] = content.sum
        (self._place / f"{DATABASE}-shm").unlink(missing_ok=True)  # the WAL index was in memory


def _caller() -> Caller:
    from standfast.clock import SYSTEM
    from standfast.db.contract import Caller

    return Caller(actor="prove", holder="p:prove", scope="/", clock=SYSTEM)


def _seen(tx: Tx, checked: bool) -> tuple[set[str], list[str]]:
    """Return whole rows and torn rows. Check that the store accepts a write."""
    lines, half = writing.found(tx, checked=checked)
    tx.run(INSERT, key="proof", value="")
    return set(lines), half


def _without_bytes(found: set[str], image: Image) -> list[str]:
    digests = [line.partition(":")[2] for line in found if line.startswith("artifact ")]
    files = {digest: image.files.get(f"artifacts/{digest[:2]}/{digest[2:]}") for digest in digests}
    return [digest for digest, file in files.items() if file is None or sha256(file.data).hexdigest() != digest]


# -- in the children -----------------------------------------------------------------------------------


def work(*, path: str, log: str, name: str, wrap: int, without: str) -> None:
    import standfast

    writing.take_away(without)
    sf = standfast.open(path, data_dir=os.path.dirname(log))
    set_limit("CHECKPOINT_FRAMES", wrap)  # the WAL is checkpointed and restarted all the time
    ended: list[int] = []

    def live(thread: int) -> None:
        chance = random.Random(f"{name}-{thread}")
        writer = writing.Writer(sf, Told(log).note, chance, data_dir=os.path.dirname(log))
        for n in range(ROUNDS):
            writer.write(chance.choice(KINDS), f"{name}-{thread}-{n}")
        ended.append(thread)

    threads = [threading.Thread(target=live, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == THREADS
