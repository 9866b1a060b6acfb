"""Kill the nine-part system that has no probe of its own, and count at the outside system.

    python examples/comparison/run_ready.py --runs 30 --seed 0

The outside system is a small HTTP server of ours with the part of GitHub's API that is needed and payments by key
(`standfast_prove.probes.server`). It carries a request out up to 40 ms after it has come, and answers up to 40 ms after
that. Kills are drawn as in `run.py`; a moment of a request is seen by the server, which kills its sender.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import world
from run import KILLS, Kill, Run, Tally, draw_kill

from standfast_prove.probes.server import Outside

EXPECTED = ("pull a:fix-42", "comment 1 looks good", "payment v42", "payment monday")
SENDERS = {"comments": "reviewer", "reports": "nightly", "pulls": "coder", "deployments": "coder"}
"""Which process sends a request, by a word of its path."""
COMPUTED = {"coder": 2}
"""Moments of a process before its first request: its steps."""


class World(Outside):
    """The server. It kills the process that has sent a request, at a moment that was drawn."""

    def __init__(self, seed: int) -> None:
        super().__init__(late_s=world.LATENCY_S, seed=seed)
        self._planned: dict[str, tuple[int, int, float]] = {}
        self._moments: Counter[str] = Counter()

    def aim(self, role: str, pid: int, moment: int, delay_s: float) -> None:
        """Kill the process so long after that moment of its requests."""
        with self.lock:
            self._planned[role], self._moments[role] = (pid, moment, delay_s), 0

    def wait(self, path: str = "") -> None:
        role = next(role for word, role in SENDERS.items() if word in path)
        with self.lock:
            self._moments[role] += 1
            pid, moment, delay_s = self._planned.get(role, (0, 0, 0.0))
            due = self._moments[role] == moment
        if due:
            threading.Timer(delay_s, _kill, (pid,)).start()
        super().wait(path)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class ReadyRun(Run):
    """A run whose outside system is the server."""

    def __init__(self, directory: Path, *, kills: list[Kill], seed: int) -> None:
        super().__init__("ready", directory, care=True, kills=kills, path=[])
        self.world = World(seed)
        self._system = "standfast"  # of the person
        self._environment |= {"WORLD_URL": self.world.url, "GITHUB_API_URL": self.world.url, "GITHUB_TOKEN": "t"}

    def play(self) -> Tally:
        with self.world:
            tally = super().play()
        arrived = Counter(self.world.log)
        ended = not tally.asked and not tally.never_ended and not tally.errors
        tally.duplicates = sum(arrived.values()) - len(arrived)
        tally.missing = sum(one not in arrived for one in EXPECTED) if ended else 0
        return tally

    def _role(self, role: str) -> subprocess.Popen[bytes]:
        planned = next((kill for kill in self._kills if kill[0] == role), None)
        if planned:
            self._kills.remove(planned)
        moment, _, delay_s = planned[1].partition(":") if planned else ("0", "", "0")
        computed = COMPUTED.get(role, 0)
        inside = planned is not None and int(moment) <= computed
        process = self._start(self._script, role, WORLD_KILL=planned[1] if planned and inside else "")
        if planned and not inside:
            self.world.aim(role, process.pid, int(moment) - computed, float(delay_s))
        return process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()

    def one(number: int) -> Tally:
        with tempfile.TemporaryDirectory(prefix="comparison-ready-") as directory:
            draw = random.Random(f"{options.seed} {number}")
            kills = [draw_kill(draw) for _ in range(KILLS)]
            return ReadyRun(Path(directory), kills=kills, seed=number).play()

    with ThreadPoolExecutor(options.jobs) as pool:
        tallies = list(pool.map(one, range(options.runs)))
    total = Tally()
    for tally in tallies:
        total.add(tally)
    right = sum(not (t.asked or t.never_ended or t.errors or t.missing or t.duplicates) for t in tallies)
    print("| runs | right | kills | duplicates | missing | asked a person | never ended |")
    print("|---|---|---|---|---|---|---|")
    cells = (options.runs, right, total.kills, total.duplicates, total.missing, total.asked, total.never_ended)
    print(f"| {' | '.join(map(str, cells))} |")
    print("\n".join(total.errors), file=sys.stderr)
    return int(total.duplicates > 0 or right < 0.9 * options.runs)


if __name__ == "__main__":
    sys.exit(main())
