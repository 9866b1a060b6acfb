"""A PostgreSQL server on a real ext4 is shut down again and again while several processes write.

This is `power.run_cuts` with a server. The server is killed together with its file system. Then the file system is
mounted again, and the server recovers from its own WAL. Every acknowledged row is there. In the control the writers do
not wait for the commit (`synchronous_commit = off`).
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import standfast
from standfast_prove.faults import Unavailable
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.mounts import Ext4
from standfast_prove.faults.rows import Oracle, keys, noted, put
from standfast_prove.outcome import Outcome
from standfast_prove.postgres import TemporaryPostgres

SELF = "standfast_prove.campaigns.server_cuts"
PROCESSES = 3
PAUSE_S = 0.15
ROOM_MB = 400
CONF = "max_wal_size = 64MB\nmin_wal_size = 32MB\nwal_recycle = off\n"


def run(place: Path, *, url: str = "", losses: int = 8, seed: int = 0, waits: bool = True) -> Outcome:
    """Cut the file system off `losses` times. `url` is not used: this server has its own disk."""
    chance, outcome = random.Random(seed), Outcome("server-cuts")
    conf = CONF + ("" if waits else "wal_writer_delay = 2s\n")
    with Ext4(place / "ext4", size_mb=ROOM_MB) as disk, Nursery(words=place / "words") as nursery:
        os.chmod(disk.point, 0o755)
        try:
            server = TemporaryPostgres(conf, place=disk.point)
        except RuntimeError as missing:
            raise Unavailable(str(missing)) from None
        with server:
            database = _make_database(server)
            os.sync()  # the first files of the server were copied, not written by a server
            acknowledged: set[str] = set()
            for loss in range(losses):
                acknowledged |= _write_until_cut(nursery, place, database, disk, server, loss, chance, waits=waits)
                disk.restart()
                server.restart()
                with standfast.open(database, data_dir=place) as sf:
                    missing_rows = acknowledged - set(keys(sf))
                outcome.count("cuts")
                outcome.count("lost rows", len(missing_rows))
                outcome.refuse(sorted(missing_rows), f"{len(missing_rows)} acknowledged rows are lost")
                acknowledged -= missing_rows
            outcome.count("acknowledged", len(acknowledged))
    return outcome


def _make_database(server: TemporaryPostgres) -> str:
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE proof")
    return server.database_url("proof")


def _write_until_cut(
    nursery: Nursery,
    place: Path,
    database: str,
    disk: Ext4,
    server: TemporaryPostgres,
    loss: int,
    chance: random.Random,
    *,
    waits: bool,
) -> set[str]:
    """Writes that were acknowledged before the cut. The kernel may still answer during the cut."""
    oracles = [place / f"oracle.{loss}.{n}" for n in range(PROCESSES)]
    pids = [
        nursery.start(f"{SELF}:write", url=database, oracle=str(oracle), name=f"k{loss}-{n}", waits=waits)
        for n, oracle in enumerate(oracles)
    ]
    end = time.monotonic() + 60
    while not all(noted(oracle) for oracle in oracles) and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(chance.uniform(0.0, PAUSE_S))
    acked = {line for oracle in oracles for line in noted(oracle)}
    disk.cut()
    server.kill()
    for pid in pids:
        nursery.kill(pid)
    _bury(disk.point)
    return acked


def _bury(point: Path) -> None:
    """Kill backends that still run. One may wait permanently for another that was killed."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if os.readlink(process / "cwd").startswith(f"{point}/"):
                    os.kill(int(process.name), signal.SIGKILL)


# -- in the children -----------------------------------------------------------------------------------


def write(*, url: str, oracle: str, name: str, waits: bool) -> None:
    if not waits:
        _wait_for_nobody()
    sf = standfast.open(url, data_dir=os.path.dirname(oracle))
    acked, n = Oracle(oracle), 0
    while True:
        try:
            put(sf, f"{name}-{n}", "x" * 300)
        except standfast.StorageError:
            continue  # the server was killed, and this process will be killed too
        acked.note(f"{name}-{n}")
        n += 1


def _wait_for_nobody() -> None:
    """In this process only: commit every write without waiting for fsync."""
    from standfast.db.store import Store

    write = Store.write
    Store.write = lambda self, body, *, durable=True: write(self, body, durable=False)  # type: ignore[method-assign]
