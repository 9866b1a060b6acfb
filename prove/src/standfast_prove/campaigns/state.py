"""Eight processes that are killed, paused and given wrong dates compare and set values; each key is linearizable.

Each call is written to a file before it is made and after it was answered, with one clock for all processes. A call
without a recorded end may have happened at any later time, or never.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from standfast import config, handle
from standfast.errors import NotFound, VersionConflict
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.clocks import SharedClock
from standfast_prove.linearizability import Call, linearizable
from standfast_prove.outcome import Outcome

PROCESSES = 8
KEYS = ("leader", "limits")


class Value(NamedTuple):
    """The model of one key: its version and its value."""

    version: int = 0
    value: str | None = None


def step(state: Value, asked: tuple[str, str, int], result: Any, seen: bool) -> Value | None:
    """A swap succeeds only over its version, and version 0 means that there is no value."""
    kind, value, version = asked
    if kind == "get":
        return state if not seen or result == [state.version if state.value else 0, state.value] else None
    allowed = kind == "set" or (state.value is not None and kind == "delete") or _may_swap(state, kind, version)
    if seen and (result > 0) != allowed:
        return None
    if not allowed:
        return state
    after = Value(state.version + 1, None if kind == "delete" else value)
    return after if not seen or result == after.version else None


def _may_swap(state: Value, kind: str, version: int) -> bool:
    return kind == "swap" and version == (state.version if state.value is not None else 0)


def work(url: str, scope: str, data: str, clock: str, history: str, number: int, calls: int, jumps: bool) -> None:
    """In a child: read and write two keys, and write down each call and its answer."""
    draw, clock_ = random.Random(number), SharedClock(Path(clock))
    settings = config.load(url, data_dir=data, actor=f"worker {number}", scope=scope)
    acked = os.open(history, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(**line: object) -> None:
        os.write(acked, json.dumps({"at": time.monotonic(), **line}).encode() + b"\n")

    with handle.connect(settings, clock=clock_) as sf:
        read = dict.fromkeys(KEYS, 0)
        for n in range(calls):
            clock_.jump_us = draw.randrange(-(10**15), 10**15) if jumps else 0
            key, value = draw.choice(KEYS), f"{number}.{n}"
            kind = draw.choice(["get", "get", "swap", "swap", "swap", "set", "delete"])
            version = read[key] if draw.random() < 0.8 else draw.randrange(3)
            tell(call=value, key=key, asked=[kind, value, version])
            answer = _asked(sf, key, kind, value, version)
            read[key] = answer[0] if kind == "get" else max(answer, 0)
            tell(call=value, result=answer)


def _asked(sf: Any, key: str, kind: str, value: str, version: int) -> Any:
    """Make one call. A read returns [version, value], a write its version, or 0 if it was refused."""
    try:
        match kind:
            case "get":
                found = sf.state.get(key)
                return [found.version, found.value]
            case "set":
                return sf.state.set(key, value).version
            case "delete":
                return sf.state.delete(key).version
            case _:
                return sf.state.swap(key, value, version=version).version
    except NotFound:
        return [0, None] if kind == "get" else 0
    except VersionConflict:
        return 0


def histories(path: Path) -> dict[str, list[Call]]:
    """The calls and answers of each key. A read without a recorded end proves nothing."""
    asked: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if "asked" in entry:
            asked[entry["call"]] = entry
        else:
            asked[entry["call"]] |= {"ended": entry["at"], "result": entry["result"]}
    found: dict[str, list[Call]] = {key: [] for key in KEYS}
    for one in asked.values():
        if "ended" in one or one["asked"][0] != "get":
            call = Call(one["at"], one.get("ended", inf), tuple(one["asked"]), one.get("result"))
            found[one["key"]].append(call)
    return found


def run(place: Path, *, seed: int, calls: int = 60, kills: int = 8, url: str | None = None) -> Outcome:
    outcome = Outcome("state")
    where, history, clock = url or str(place / "standfast.db"), place / "history", SharedClock(place / "clock")
    asked: dict[str, object] = {"url": where, "data": str(place / "data"), "clock": str(place / "clock")}
    asked["scope"] = f"{place.parent.name}/{place.name}"  # a server may have seen this seed before
    # On PostgreSQL only the server's clock counts, so no client's date can jump.
    asked |= {"history": str(history), "calls": calls, "jumps": url is None}
    with handle.connect(config.load(where, data_dir=place / "data"), clock=clock):
        pass
    with Nursery() as nursery:
        numbers = iter(range(seed * 1_000, seed * 1_000 + 999))

        def start() -> int:
            return nursery.start("standfast_prove.campaigns.state:work", **asked, number=next(numbers))

        outcome.count("kills", torment(nursery, start, history, random.Random(seed), kills))
    for key, recorded in histories(history).items():
        outcome.count("calls", len(recorded))
        outcome.count("ends that were not seen", sum(call.ended == inf for call in recorded))
        outcome.refuse(
            not linearizable(recorded, Value(), step), f"{key}: no order of {len(recorded)} calls explains it"
        )
    return outcome


def torment(nursery: Nursery, start: Any, history: Path, draw: random.Random, kills: int) -> int:
    """Kill and pause processes until all other callers have made their calls."""
    alive, killed = [start() for _ in range(PROCESSES)], 0
    end = time.monotonic() + 120
    while alive:
        assert time.monotonic() < end, "the work was not done in two minutes"
        _progress(history)
        pid = draw.choice(alive)
        if killed < kills and draw.random() < 0.5:
            nursery.kill(pid)
            alive.remove(pid)
            alive.append(start())
            killed += 1
        else:
            os.kill(pid, signal.SIGSTOP)
            _progress(history)
            os.kill(pid, signal.SIGCONT)
        for pid in list(alive):
            if (code := nursery.wait(pid, 0)) is not None:
                assert code == 0
                alive.remove(pid)
    return killed


def _progress(history: Path) -> None:
    """Wait until the processes have recorded a few more answers, or for a moment if they cannot."""
    size = history.stat().st_size if history.exists() else 0
    end = time.monotonic() + 0.1
    while (not history.exists() or history.stat().st_size < size + 2_000) and time.monotonic() < end:
        select.select([], [], [], 0.002)
