"""Hooks that cannot reach the store write to a spool; other processes import it and are killed at any time.

Every record that the spool accepted is in the store once, no matter which process was killed during the import.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import standfast
from standfast.interchange.hooks import payloads, spool
from standfast_prove.faults.children import Nursery
from standfast_prove.outcome import Outcome

WRITERS, DRAINERS = 3, 2
SELF = "standfast_prove.campaigns.spools"


def run(place: Path, *, url: str | None = None, seed: int = 0, kills: int = 30, records: int = 200) -> Outcome:
    outcome = Outcome("spools")
    chance, acked = random.Random(seed), place / "acked"
    asked = {"there": str(place / "spool"), "data": str(place / "data")}
    where = url or str(place / "standfast.db")
    with Nursery(words=place / "words") as nursery:
        with standfast.open(where, data_dir=asked["data"]):
            pass
        os.makedirs(asked["data"], 0o700, exist_ok=True)
        assert spool.key(asked["data"])
        starters: list[dict[str, object]] = [
            {**asked, "name": f"{place.name}-{n}", "records": records, "acked": str(acked)} for n in range(WRITERS)
        ]
        draining = [nursery.start(f"{SELF}:drain", url=where, **asked) for _ in range(DRAINERS)]
        writing = nursery.race(f"{SELF}:write", starters)
        for _ in range(kills):
            time.sleep(chance.uniform(0.001, 0.05))
            victim = chance.randrange(DRAINERS)
            nursery.kill(draining[victim])
            outcome.count("kills")
            draining[victim] = nursery.start(f"{SELF}:drain", url=where, **asked)
        codes = [nursery.wait(pid, 120) for pid in writing]
        for pid in draining:
            nursery.kill(pid)
    outcome.refuse(any(codes), "writers failed: " + (place / "words").read_text()[-1500:])
    _judge(outcome, where, asked, set(acked.read_text().split()))
    return outcome


def _judge(outcome: Outcome, url: str, asked: dict[str, str], acked: set[str]) -> None:
    with standfast.open(url, data_dir=asked["data"]) as sf:
        spool.drain(sf._store, [asked["there"]], asked["data"], limit=100_000)
        rows = sf.rows("SELECT summary FROM event WHERE type = 'prompt.submitted'")
        found = Counter(row["summary"] for row in rows)
    outcome.count("records", len(acked))
    outcome.refuse(sorted(acked - found.keys())[:5], "taken, and lost")
    outcome.refuse([name for name, count in found.items() if count > 1][:5], "there more than once")
    outcome.refuse(os.listdir(asked["there"]), "left behind")


# -- in the children -----------------------------------------------------------------------------------


def write(there: str, data: str, name: str, records: int, acked: str) -> None:
    notes = os.open(acked, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for n in range(records):
        text = f"{name}-{n}"
        payload = {"session_id": name, "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": text}
        heard = payloads.heard("codex", payload, n)
        assert heard is not None
        if spool.append([there], data, f"codex:{name}", "", heard):
            os.write(notes, f"{text}\n".encode())


def drain(url: str, there: str, data: str) -> None:
    """Import a few records at a time until the process is killed."""
    with standfast.open(url, data_dir=data) as sf:
        while True:
            spool.drain(sf._store, [there], data, limit=7)
