"""Many processes write while they are killed, and while other programs drop SQLite's file locks.

Four processes of six threads write rows, each row with its journal row and a counter. One write in 17 fails on
purpose. A process is killed every 0.4 s, and another one starts. Inside each process the database file is opened and
closed, which drops the locks that SQLite believes it holds. Outside, an old SQLite opens and closes the same file all
the time, and would delete the WAL if only those locks protected it.

Afterwards every acknowledged row is there, no row of a failed write is, and counters, rows and journal agree. In the
control the guard of the locks is off: then rows are lost, the store is damaged, or the identity check stops the
writers.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from standfast.errors import Corrupt
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import COUNT_UP, INSERT, Oracle, integrity, keys, noted
from standfast_prove.outcome import Outcome

LOG_LOST = 9
"""The exit code of a process that was stopped by the check of the log."""
FAILS_EVERY = 17


class OnPurpose(Exception):
    """A write that fails on request."""


def run(
    place: Path,
    *,
    seconds: float,
    seed: int = 0,
    guard: bool = True,
    processes: int = 4,
    threads: int = 6,
    kill_every_s: float = 0.4,
) -> Outcome:
    """Torture a fresh store in `place` for a while, then compare its rows with the oracle."""
    chance, path = random.Random(seed), place / "store" / "standfast.db"
    outcome = Outcome("torture" if guard else "torture without the guard")
    born = 0

    def give_birth() -> int:
        nonlocal born
        born += 1
        oracle = str(place / f"oracle.{born}")
        return nursery.start(
            "standfast_prove.campaigns.torture:write",
            path=str(path),
            oracle=oracle,
            name=f"k{born}",
            guard=guard,
            threads=threads,
        )

    with Nursery(words=place / "words") as nursery:
        alive = [give_birth() for _ in range(processes)]
        foreign = [nursery.start("standfast_prove.campaigns.torture:visit", path=str(path)) for _ in range(2)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(kill_every_s * chance.uniform(0.5, 1.5))
            victim = chance.randrange(processes)
            for n, pid in enumerate(alive):
                code = nursery.kill(pid) if n == victim else nursery.wait(pid, 0)
                if code is not None:
                    outcome.count(_ended(code))
                    alive[n] = give_birth()
        for pid in [*alive, *foreign]:
            nursery.kill(pid)
    try:
        _look(outcome, place, path)
    except Corrupt as error:  # without the guard the file may be too damaged to read
        outcome.refuse(error, "the store is damaged")
    return outcome


def _ended(code: int) -> str:
    return {-9: "kills", LOG_LOST: "stopped by the check of the log"}.get(code, "died of something else")


def _look(outcome: Outcome, place: Path, path: Path) -> None:
    """Compare the store with the oracle files."""
    import standfast

    lines = [line for oracle in place.glob("oracle.*") for line in noted(oracle)]
    failed = {line[1:] for line in lines if line.startswith("!")}
    acknowledged = {line for line in lines if not line.startswith("!")}
    with standfast.open(path, data_dir=place) as sf:
        found = keys(sf)
        events = [row["subject"] for row in sf.rows("SELECT subject FROM event WHERE type = 'torture.op'")]
        counted = {row["key"]: int(row["value"]) for row in sf.rows("SELECT key, value FROM meta WHERE key LIKE 'n:%'")}
    outcome.count("acknowledged", len(acknowledged))
    outcome.count("failed on purpose", len(failed))
    outcome.count("rows", len(found))
    missing = acknowledged - set(found)
    outcome.count("lost rows", len(missing))
    outcome.refuse(sorted(missing), f"{len(missing)} acknowledged rows are missing")
    outcome.refuse(sorted(failed & set(found)), "rows of failed writes are there")
    outcome.refuse(sorted(events) != found, "journal and rows differ")
    outcome.refuse(sum(counted.values()) != len(found), "counters and rows differ")
    outcome.refuse(outcome.seen.get("died of something else"), "writers died: " + _words(place))
    state = integrity(path)
    outcome.refuse(state != "ok", f"integrity: {state}")


def _words(place: Path) -> str:
    return (place / "words").read_text()[-2000:]


# -- in the children -----------------------------------------------------------------------------------


def write(*, path: str, oracle: str, name: str, guard: bool, threads: int) -> None:
    """Write from many threads, and open and close the file as a careless tool in this process would."""
    import standfast

    if not guard:
        from standfast.db.sqlite import wal as guards

        guards._share = lambda *_: None  # in this process only: the product has no such switch
    sf = standfast.open(path, data_dir=os.path.dirname(path))
    acked = Oracle(oracle)
    for n in range(threads):
        threading.Thread(target=_write_for_ever, args=(sf, acked, f"{name}-{n}", name), daemon=True).start()
    while True:
        time.sleep(random.uniform(0.02, 0.1))
        for file in (path, path + "-shm"):
            with suppress(FileNotFoundError), open(file, "rb"):
                pass


def _write_for_ever(sf: object, acked: Oracle, name: str, counter: str) -> None:
    import traceback

    import standfast

    assert isinstance(sf, standfast.Standfast)
    try:
        n = 0
        while True:
            _write_one(sf, acked, f"{name}-{n}", counter, fails=n % FAILS_EVERY == 5)
            n += 1
    except standfast.CommitUnknown:
        os._exit(LOG_LOST)
    except BaseException:  # noqa: BLE001  the campaign counts how its writers ended
        traceback.print_exc()
        os._exit(1)


def _write_one(sf: object, acked: Oracle, key: str, counter: str, *, fails: bool) -> None:
    import standfast
    from standfast.core import journal
    from standfast.db.contract import Tx

    assert isinstance(sf, standfast.Standfast)

    def body(tx: Tx) -> None:
        tx.run(INSERT, key=key, value="1")
        tx.run(COUNT_UP, key=f"n:{counter}")
        journal.append(tx, "torture.op", key)
        if fails:
            raise OnPurpose

    try:
        sf._store.write(body)
        acked.note(key)
    except OnPurpose:
        acked.note("!" + key)


def visit(*, path: str) -> None:
    """A foreign program: every 30 ms it opens the file with the interpreter's own SQLite, reads and closes it."""
    import sqlite3

    while True:
        # If the file is missing or locked, the visitor tries again later. It never creates the file.
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=5)) as connection,
        ):
            connection.execute("SELECT 1 FROM meta LIMIT 1").fetchall()
        time.sleep(0.03)
