"""The network to a PostgreSQL server is cut, slowed down or loses answers while agents work.

Four agents write in every way there is (`writing.py`), through a proxy that breaks the connection at seeded moments:

    cut         every connection is closed, and new ones work at once
    swallowed   the server has committed; its answer is lost with the connection
    broken off  no client reaches the server for a while
    silent      packets are dropped for a while, without an error

A refused agent asks again with the same key. An effect in doubt is settled by reading the outside system. In the end
everything has happened, every acknowledged row is there, and nothing was sent twice or written in part. In the control
the agents use another key after an unknown outcome, as an agent without keys would.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import standfast
from standfast_prove.campaigns import writing
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.proxy import CuttableLine
from standfast_prove.faults.rows import Oracle, noted
from standfast_prove.outcome import Outcome

SELF = "standfast_prove.campaigns.partitions"
AGENTS = 4
TRIES_MAX = 400
KINDS = ("row", "effect", "effect", "step", "say", "checkpoint", "artifact", "mail", "task", "state")
PATIENCE_S = 120.0


def run(place: Path, *, url: str, partitions: int = 60, seed: int = 0, careless: bool = False) -> Outcome:
    """Break the connection `partitions` times while the agents work."""
    outcome, chance = Outcome("partitions"), random.Random(seed)
    port = urlsplit(url).port
    assert port is not None
    names, stop = [f"k{seed}-{n}" for n in range(AGENTS)], place / "stop"
    with (
        standfast.open(url, data_dir=place, agent="judge") as near,
        CuttableLine(port) as line,
        Nursery(words=place / "words") as nursery,
    ):
        agents = [
            nursery.start(
                f"{SELF}:work", url=line.url(url), place=str(place), name=name, stop=str(stop), careless=careless
            )
            for name in names
        ]
        _until(lambda: all(noted(place / f"{name}.acked") for name in names), PATIENCE_S)
        acked = [place / f"{name}.acked" for name in names]
        _break(line, outcome, chance, partitions, lambda: sum(path.stat().st_size for path in acked))
        line.mend()
        stop.touch()
        for pid in agents:
            code = nursery.wait(pid, PATIENCE_S)
            outcome.refuse(code != 0, f"an agent ended with {code}: " + (place / "words").read_text()[-1500:])
        if not outcome.bad:
            _judge(outcome, near, place, names, careless=careless)
    return outcome


def _break(
    line: CuttableLine, outcome: Outcome, chance: random.Random, partitions: int, progress: Callable[[], int]
) -> None:
    for _ in range(partitions):
        # Even on a slow machine the agents do some work between two partitions.
        goal = progress() + chance.randint(1, 120)
        _until(lambda: progress() >= goal, 2.0)  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.02))
        kind = chance.choice(("cut", "swallowed", "swallowed", "broken off", "silent"))
        if kind == "cut":
            line.cut()
        elif kind == "swallowed":
            before = line.cuts
            line.cut_at("COMMIT")
            swallowed = _until(lambda: line.cuts > before, PATIENCE_S)  # noqa: B023
            outcome.refuse(not swallowed, f"no agent committed within {PATIENCE_S:g} s")
        elif kind == "broken off":
            line.break_off()
            time.sleep(chance.uniform(0.0, 0.1))
        else:
            line.fall_silent()
            time.sleep(chance.uniform(0.0, 0.2))
            if chance.random() < 0.5:
                line.cut()
        line.mend()
        outcome.count(kind)
        outcome.count("partitions")


def _until(come: Callable[[], bool], patience_s: float) -> bool:
    end = time.monotonic() + patience_s
    while not come():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _judge(outcome: Outcome, sf: standfast.Standfast, place: Path, names: list[str], *, careless: bool) -> None:
    noted_lines = [line for name in names for line in noted(place / f"{name}.acked")]
    lines, half = sf._store.write(writing.found)
    there, acked = Counter(lines), {line for line in noted_lines if not line.startswith(("sent ", "begun "))}
    outcome.count("acknowledged", len(acked))
    outcome.refuse(sorted(acked - set(there)), "acknowledged and not there")
    outcome.refuse(half, "half of something is there")
    sent = Counter(line.partition("#")[0] for line in noted_lines if line.startswith("sent "))
    outcome.count("effects sent", len(sent))
    outcome.refuse([line for line, times in sent.items() if times > 1], "sent twice")
    happened = Counter(line.partition("#")[0] for line in lines)
    once = ("row ", "done ", "said ", "state ")
    outcome.refuse([line for line, times in happened.items() if times > 1 and line.startswith(once)], "happened twice")
    begun = {line.removeprefix("begun ") for line in noted_lines if line.startswith("begun ")}
    outcome.refuse(sorted(begun - set(happened)), "never happened")
    for name in names:
        for code, times in json.loads((place / f"{name}.json").read_text()).items():
            outcome.count(f"refused: {code}", times)


# -- in the children -----------------------------------------------------------------------------------


def work(*, url: str, place: str, name: str, stop: str, careless: bool) -> None:
    agent = _Agent(url, place, name, careless=careless)
    n = 0
    while not os.path.exists(stop):
        agent.do(agent.chance.choice(KINDS), f"{name}-{n}")
        n += 1
    Path(place, f"{name}.json").write_text(json.dumps(agent.refusals))


class _Agent:
    """Does one thing after another, and repeats each until it is done."""

    def __init__(self, url: str, place: str, name: str, *, careless: bool) -> None:
        self._url, self._place, self._name, self._careless = url, place, name, careless
        self._told = Oracle(os.path.join(place, f"{name}.acked"))
        self._sent: set[str] = set()
        self._sf: Any = None
        self.chance = random.Random(name)
        self.refusals: Counter[str] = Counter()

    def do(self, kind: str, key: str) -> None:
        if kind in ("row", "state"):
            self._told.note(f"begun {kind} {key}")
        for attempt in range(TRIES_MAX):
            try:
                self._write(kind, f"{key}#{attempt}" if self._careless and attempt else key)
                return
            except standfast.EffectInDoubt:
                self.refusals["in doubt"] += 1
                self._settle(key)
            except standfast.InProgress as refusal:
                self.refusals[refusal.code] += 1
                time.sleep(0.05)
            except standfast.StorageError as refusal:
                self.refusals[refusal.code] += 1
        raise AssertionError(f"{kind} {key} did not end in {TRIES_MAX} tries: {self.refusals}")

    def _write(self, kind: str, key: str) -> None:
        if self._sf is None:
            self._sf = standfast.open(self._url, data_dir=self._place, agent=self._name)
        writing.Writer(self._sf, self._note, self.chance, data_dir=self._place).write(kind, key)

    def _note(self, line: str) -> None:
        if line.startswith("sent "):
            self._sent.add(line)
        self._told.note(line)

    def _settle(self, key: str) -> None:
        """Resolve the doubt as a person who looks at the outside system."""
        try:
            for effect in self._sf.effects.in_doubt(limit=100):
                if effect.key == key:
                    there = f"sent {key}" in self._sent
                    answer, result = ("applied", "x" * 100) if there else ("not_applied", None)
                    self._sf.effects.resolve(effect.id, answer, evidence="the world's books", result=result)
        except standfast.StandfastError as refusal:
            self.refusals[refusal.code] += 1
