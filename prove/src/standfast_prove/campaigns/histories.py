"""Short recorded histories of processes that are killed, paused or given wrong dates are checked for linearizability.

Each call is written to a file before it is made and after it was answered, with one clock for all processes. A call
without a recorded end may have happened at any later time, or never.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import signal
import time
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from standfast import config, handle
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.clocks import SharedClock
from standfast_prove.histories import KINDS, Approval, State, Thing, stepping
from standfast_prove.linearizability import Call, linearizable
from standfast_prove.outcome import Outcome

GROUP = 2
"""The number of things that a group of processes uses at the same time."""
TURNS = 14
"""Calls of one process for a group."""


def made(number: int) -> list[Thing]:
    kinds = list(KINDS.items())
    return [kind(f"{name} {n}") for n in range(number) for name, kind in [kinds[n % len(kinds)]]]


def work(url: str, data: str, scope: str, clock: str, acked: str, number: int, things: int, careless: bool) -> None:
    """In a child: work on one group of things after the other, with one call at a time."""
    shared, draw, who = SharedClock(Path(clock)), random.Random(f"{scope} {number}"), f"p{number}"
    State.careless = careless
    fd = os.open(acked, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def tell(**line: object) -> None:
        os.write(fd, json.dumps({"at": time.monotonic(), **line}).encode() + b"\n")

    shared_things, memory, calls = made(things), [dict[str, Any]() for _ in range(things)], 0
    with handle.connect(config.load(url, data_dir=data, actor=who, scope=scope), clock=shared) as sf:
        for first in range(0, things, GROUP):
            for _ in range(TURNS):
                which = draw.randrange(first, min(first + GROUP, things))
                # A wrong date ends leases that end by date. On PostgreSQL only the server's clock counts.
                dated = isinstance(shared_things[which], Approval)
                shared.jump_us = 0 if dated or url.startswith("postgres") else draw.randrange(-(10**13), 10**13)
                asked, call = shared_things[which].play(sf, who, draw, memory[which])
                calls += 1
                tell(call=f"{who}.{calls}", thing=which, asked=asked)
                tell(call=f"{who}.{calls}", result=call())


def run(
    place: Path,
    *,
    seed: int,
    url: str | None = None,
    crews: int = 3,
    things: int = 18,
    kills: int = 10,
    careless: bool = False,
) -> Outcome:
    """Run several groups of three to eight processes, one after the other."""
    outcome, draw = Outcome("histories"), random.Random(seed)
    where = url or str(place / "standfast.db")
    with (
        handle.connect(config.load(where, data_dir=place / "data")),
        Nursery(words=place / "words", postgres=url is not None) as nursery,
    ):
        for crew in range(crews):
            scope = f"{place.parent.name}/{place.name} {crew}"
            acked = place / f"acked {crew}"
            asked: dict[str, object] = {"url": where, "data": str(place / "data"), "scope": scope, "acked": str(acked)}
            asked |= {"clock": str(place / "clock"), "things": things, "careless": careless}
            with handle.connect(
                config.load(where, data_dir=place / "data", scope=scope), clock=SharedClock(place / "clock")
            ) as sf:
                for thing in made(things):
                    thing.made(sf)
            deaths = _crew(nursery, asked, acked, draw, kills)
            outcome.count("processes", len(deaths))
            outcome.count("kills", sum(death.killed for death in deaths))
            _judge(outcome, acked, deaths, made(things), served=url is not None)
    if outcome.bad:
        outcome.refuse((place / "words").read_text()[-300:], "the children said")
    return outcome


class Death(NamedTuple):
    """The two times between which a process ended."""

    who: str
    after: float
    before: float
    killed: bool


def _crew(nursery: Nursery, asked: dict[str, object], acked: Path, draw: random.Random, kills: int) -> list[Death]:
    """Run one group until all processes that were not killed are done."""
    alive: dict[int, str] = {}
    deaths: list[Death] = []
    numbers = count()

    def start() -> None:
        number = next(numbers)
        alive[nursery.start("standfast_prove.campaigns.histories:work", **asked, number=number)] = f"p{number}"

    for _ in range(draw.randint(3, 8)):
        start()
    end = time.monotonic() + 600
    while alive:
        assert time.monotonic() < end, "the work was not done in ten minutes"
        _progress(acked)
        busy = _begun(acked)
        pid = draw.choice([pid for pid, who in alive.items() if who in busy] or list(alive))
        if kills and alive[pid] in busy and draw.random() < 0.4:
            kills -= 1
            since = time.monotonic()
            killed = nursery.kill(pid) == -signal.SIGKILL  # otherwise it had ended earlier, at an unknown time
            deaths.append(Death(alive.pop(pid), since if killed else 0, time.monotonic(), killed=killed))
            start()
        elif draw.random() < 0.3:
            os.kill(pid, signal.SIGSTOP)
            _progress(acked)
            os.kill(pid, signal.SIGCONT)
        for pid in list(alive):
            if (code := nursery.wait(pid, 0)) is not None:
                assert code == 0, f"a process ended with {code}"
                deaths.append(Death(alive.pop(pid), 0, time.monotonic(), killed=False))
    return deaths


def _begun(acked: Path) -> set[str]:
    """Processes that have made a call. A process killed earlier proves nothing."""
    return set(re.findall(r'"call": "(p[0-9]+)\.', acked.read_text())) if acked.exists() else set()


def _progress(acked: Path) -> None:
    """Wait until the processes have noted a few more answers, or for a short time if they cannot."""
    size = acked.stat().st_size if acked.exists() else 0
    end = time.monotonic() + 0.05
    while (not acked.exists() or acked.stat().st_size < size + 3_000) and time.monotonic() < end:
        select.select([], [], [], 0.001)


def _judge(outcome: Outcome, acked: Path, deaths: list[Death], things: list[Thing], *, served: bool) -> None:
    calls = recorded(acked)
    last = {call.asked[1]: call.ended for _, call in calls if call.ended != inf}
    for which, thing in enumerate(things):
        mine = [call for number, call in calls if number == which]
        outcome.count("histories")
        outcome.count("calls", len(mine))
        outcome.count("ends that were not seen", sum(call.ended == inf for call in mine))
        # A process that ended by itself did so some time after its last call.
        mine += [Call(max(one.after, last.get(one.who, 0)), one.before, ("dies", one.who), None) for one in deaths]
        if linearizable(mine, thing.start, stepping(thing)):
            continue
        if served and linearizable(mine, thing.start, stepping(thing, served=True)):
            outcome.count("where a server went on for the dead")
        else:
            outcome.refuse(thing.name, f"no order of {len(mine)} calls explains them")


def recorded(acked: Path) -> list[tuple[int, Call]]:
    """Every call with its subject. A read without a recorded end proves nothing."""
    asked: dict[str, dict[str, Any]] = {}
    for line in acked.read_text().splitlines():
        entry = json.loads(line)
        if "asked" in entry:
            asked[entry["call"]] = entry
        else:
            asked[entry["call"]] |= {"ended": entry["at"], "result": entry["result"]}
    return [
        (one["thing"], Call(one["at"], one.get("ended", inf), tuple(one["asked"]), one.get("result")))
        for one in asked.values()
        if "ended" in one or one["asked"][0] != "get"
    ]
