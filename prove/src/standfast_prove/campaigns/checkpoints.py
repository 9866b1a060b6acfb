"""Checkpoints race with writers whose WAL wraps all the time. Run this before any change of the SQLite library.

SQLite before 3.51.3 damages the file here: a checkpoint that has read an old WAL header continues while a writer
restarts the WAL. standfast refuses such a library at open. This campaign shows whether the linked library is safe.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import integrity, keys, noted
from standfast_prove.outcome import Outcome


def run(place: Path, *, seconds: float, seed: int = 0) -> Outcome:
    import standfast

    outcome, chance, path = Outcome("checkpoints"), random.Random(seed), place / "standfast.db"
    with Nursery(words=place / "words") as nursery:
        writers = [
            nursery.start(
                "standfast_prove.campaigns.power:write",
                path=str(path),
                oracle=str(place / f"oracle.{n}"),
                name=f"k{n}",
                synced=True,
                wrap=chance.choice([5, 20]),
            )
            for n in range(3)
        ]
        checkpointers = [
            nursery.start("standfast_prove.campaigns.checkpoints:checkpoint", path=str(path)) for _ in range(2)
        ]
        time.sleep(seconds)
        codes = [nursery.kill(pid) for pid in [*writers, *checkpointers]]
    outcome.refuse(set(codes) - {-9}, "a process ended by itself: " + (place / "words").read_text()[-1500:])
    acknowledged = {line for n in range(3) for line in noted(place / f"oracle.{n}")}
    with standfast.open(path, data_dir=place) as sf:
        outcome.refuse(sorted(acknowledged - set(keys(sf))), "acknowledged rows are missing")
    outcome.count("rows", len(acknowledged))
    state = integrity(path)
    outcome.refuse(state != "ok", f"integrity: {state}")
    return outcome


def checkpoint(*, path: str) -> None:
    """In a child: run passive checkpoints, one after the other, while the writers write."""
    import apsw

    while True:
        try:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
            connection.set_busy_timeout(1000)
            for _ in range(1000):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except (apsw.BusyError, apsw.CantOpenError, apsw.ProtocolError):
            time.sleep(0.005)  # the file does not exist yet, or another process is creating it
