"""Copies: CPU of a copy compared with `.backup` and zstd, writers beside copies, and the salt of journal rows."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import standfast
from standfast.core import journal
from standfast.db.sql import statement
from standfast_prove.bench.measure import Plan, Table, at_least, at_most, interleaved, ratios

BYTES_PER_ROW = 53
"""A share of the plan's rows: 5 million rows give a store of 265 MB."""
TEXT_BYTES = 800
CHUNK = 2000
RECORDS = 400
SALT_ROUNDS = 25
"""Many short rounds, because two rounds of one side differ by more than the salt costs."""
WRITER_ROUNDS = 15
"""Rounds of 1 to 2 s, because the speed of an fsync changes from one second to the next."""
EVENT = statement(
    "INSERT INTO event (time_us, occurred_us, scope, actor, holder, source, type, subject, data)"
    " VALUES (:n, :n, '', 'bench', 'bench', 'seen', 'row.added', :subject, :data)",
    name="bench_text",
)
BY_HAND = """
import sys, apsw, zstandard
source, target = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY), apsw.Connection(sys.argv[2])
target.execute("PRAGMA synchronous=OFF")
with target.backup("main", source, "main") as backup:
    backup.step(-1)
target.close()
with open(sys.argv[2], "rb") as raw, open(sys.argv[2] + ".zst", "wb") as packed:
    zstandard.ZstdCompressor(level=3).copy_stream(raw, packed)
"""
"""A copy by a script, with the default level of zstd. It computes no hashes and does not read the copy back."""


def copies(plan: Plan) -> list[Table]:
    """Both copy one store in turns. Then threads write to the same store, with and without copies beside them."""
    place = plan.fresh("copies")
    with standfast.open(place / "standfast.db", data_dir=place) as sf:
        _grow(sf, plan.rows * BYTES_PER_ROW)
        sf.engine.care()
        return [_cpu(plan, sf, place), _writers(plan, sf, place), _salt(plan, sf)]


def _cpu(plan: Plan, sf: standfast.Standfast, place: Path) -> Table:
    def ours() -> float:
        return _cpu_s(lambda: sf.copies.take(to=_emptied(place / "ours")))

    def by_hand() -> float:
        target = os.path.join(_emptied(place / "hand"), "copy.db")
        command = [sys.executable, "-P", "-c", BY_HAND, str(place / "standfast.db"), target]
        return _cpu_s(lambda: subprocess.run(command, check=True))

    contestants: dict[str, Callable[[], float]] = {"ours": ours, "by hand": by_hand}
    interleaved(1, contestants)
    found = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    size = os.path.getsize(place / "standfast.db")
    note = f"A store of {size / 1e6:.0f} MB. Ours is compressed, hashed, read back and compared."
    table = Table("SQLite, a copy: CPU", note)
    table.add("`.backup` and zstd by hand", found["by hand"], "s")
    table.add("standfast backup", found["ours"], "s")
    table.add("ours / by hand", ratios(found["ours"], found["by hand"]), "x", at_most(1.5))
    return table


def _writers(plan: Plan, sf: standfast.Standfast, place: Path) -> Table:
    """One thread writes durable records, first without a copy, then during one whole copy."""

    def alone() -> float:
        end_s = time.monotonic() + plan.window_s
        return _rate(sf, lambda: time.monotonic() < end_s)

    def beside() -> float:
        to = _emptied(place / "ours")
        thread = threading.Thread(target=lambda: sf.copies.take(to=to))
        thread.start()
        try:
            return _rate(sf, thread.is_alive)
        finally:
            thread.join()

    def by_hand() -> float:
        target = os.path.join(_emptied(place / "hand"), "copy.db")
        command = [sys.executable, "-P", "-c", BY_HAND, str(place / "standfast.db"), target]
        with subprocess.Popen(command) as process:
            return _rate(sf, lambda: process.poll() is None)

    def busy() -> float:
        with subprocess.Popen([sys.executable, "-P", "-c", "while True: pass"]) as process:
            try:
                return alone()
            finally:
                process.kill()

    contestants: dict[str, Callable[[], float]] = {
        "alone": alone,
        "busy": busy,
        "by hand": by_hand,
        "beside": beside,
    }
    interleaved(1, contestants)
    found = interleaved(plan.at_least(WRITER_ROUNDS), contestants, patience_s=plan.patience_s)
    note = (
        "One caller, from the start of a copy until it is verified. On some virtual machines an fsync is several times "
        "faster while another process computes; the second ratio leaves that out."
    )
    table = Table("SQLite, writers during a copy", note)
    table.add("no copies", found["alone"], "/s")
    table.add("beside a process that only computes", found["busy"], "/s")
    table.add("during `.backup` and zstd by hand", found["by hand"], "/s")
    table.add("during a copy", found["beside"], "/s")
    table.add("during / without", ratios(found["beside"], found["alone"]), "x", at_least(0.7))
    table.add("by hand / without", ratios(found["by hand"], found["alone"]), "x")
    table.add("during / beside a process that only computes", ratios(found["beside"], found["busy"]), "x")
    return table


def _salt(plan: Plan, sf: standfast.Standfast) -> Table:
    """CPU of the same durable records with a salt in each journal row, and with an empty one."""

    def records(salt_bytes: int) -> float:
        kept, journal.SALT_BYTES = journal.SALT_BYTES, salt_bytes
        try:
            return _cpu_s(lambda: [sf.state.set("bench", {"n": n}) for n in range(RECORDS)])
        finally:
            journal.SALT_BYTES = kept

    contestants = {"salted": lambda: records(16), "plain": lambda: records(0)}
    interleaved(1, contestants)
    found = interleaved(plan.at_least(SALT_ROUNDS), contestants, patience_s=plan.patience_s)
    table = Table("SQLite, the salt of a journal row: CPU", f"{RECORDS} durable records by one caller.")
    table.add("without a salt", found["plain"], "s")
    table.add("with 16 bytes", found["salted"], "s")
    table.add("with / without", ratios(found["salted"], found["plain"]), "x", at_most(1.02))
    return table


def _rate(sf: standfast.Standfast, goes_on: Callable[[], bool]) -> float:
    os.sync()  # otherwise the first fsync also writes the pages that the previous measurement left in the page cache
    count, start = 0, time.monotonic()
    while goes_on():
        sf.state.set("bench", {"n": count})
        count += 1
    return count / (time.monotonic() - start)


def _cpu_s(act: Callable[[], object]) -> float:
    """CPU time of this process and of its ended children."""
    before = _used_s()
    act()
    return _used_s() - before


def _used_s() -> float:
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in found)


def _emptied(path: Path) -> str:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
    return str(path)


def _grow(sf: standfast.Standfast, size_bytes: int) -> None:
    """Text of a few thousand words, as in transcripts. It compresses to about a fifth."""
    chance = random.Random(0)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(4000)]

    def rows(first: int, last: int) -> Iterator[dict[str, object]]:
        for n in range(first, last):
            text = " ".join(chance.choices(words, k=TEXT_BYTES // 6))
            yield {"n": n, "subject": f"msg_{n:026}", "data": f'{{"text":"{text}"}}'}

    for first in range(0, size_bytes // (TEXT_BYTES + 250) + 1, CHUNK):
        made = list(rows(first, first + CHUNK))
        sf._store.write(lambda tx, made=made: tx.many(EVENT, made), durable=False)  # type: ignore[misc]
