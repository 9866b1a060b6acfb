"""Known actions are killed at random and then settled by their ready probes, without a person.

Each try runs `standfast once KEY -- COMMAND` and kills it after a random time: the command alone, `once` alone, or
both. A first, undisturbed try measures how long the action takes, so kills fall before, during and after it. Remotes
carry requests out late and answer late. Then the same `standfast once` runs again, undisturbed. Counted at the
outside system:

- The action has happened exactly once, if the second call ends with exit 0.
- It has happened at most once, if the second call stops with exit 6 (in doubt).

`doubts` are tries that left the effect in doubt. `settled` are those whose second call ended with exit 0.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from standfast_prove.faults import Unavailable
from standfast_prove.outcome import Outcome
from standfast_prove.probes.registries import search_path
from standfast_prove.probes.scenes import SCENES, Scene, staged

LATE_S = 0.6
"""A remote waits up to this time before it carries a request out, and again before it answers."""
SETTLE_S = 3.0
"""Longer than both delays together, so a probe asks only after the request has arrived or was lost."""
LIMIT_S = 120.0
IN_DOUBT = 6


def run(place: Path, *, seed: int = 0, scenes: Sequence[str] = tuple(SCENES), tries: int = 8, url: str = "") -> Outcome:
    """Play `tries` tries of each scene. A scene whose server is not installed is counted as not run."""
    outcome = Outcome("probes")
    for name in scenes:
        try:
            outcome.add(play(place / name, name, tries=tries, seed=seed)[0])
        except Unavailable as missing:
            outcome.count(f"scenes not run: {name} ({missing})")
    return outcome


def play(place: Path, name: str, *, tries: int, seed: int) -> tuple[Outcome, Scene]:
    """Play `tries` tries of one scene. Raises Unavailable where its server is not installed."""
    with staged(name, place, LATE_S, seed) as scene:
        return Tries(scene, place, random.Random(f"{seed} {name}")).play(tries), scene


class Tries:
    """The tries of one scene, each with a key of its own."""

    def __init__(self, scene: Scene, place: Path, chance: random.Random) -> None:
        self.scene = scene
        self.chance = chance
        self.outcome = Outcome(scene.name)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
        variables = {"PATH": search_path(), "STANDFAST_DATA_DIR": str(place / "data"), "STANDFAST_REMEMBER": "0"}
        self.environment = {**kept, **variables, "STANDFAST_ACTOR": "prover", **scene.variables}

    def play(self, tries: int) -> Outcome:
        took_s = self._unharmed()
        for n in range(1, tries + 1):
            self._try(n, took_s)
        return self.outcome

    def _unharmed(self) -> float:
        """Run the command undisturbed and return its duration. This also shows that the command works."""
        command = self.scene.command(0)
        process = self._started(0, command)
        start_s = self._begun(process, command)
        process.wait(LIMIT_S)
        took_s = time.monotonic() - start_s
        if process.returncode != 0 or self.scene.happened(0) != 1:
            again = self._once(0, command)
            raise Unavailable(f"{' '.join(command)} ended with {again.returncode}: {again.stderr[-400:]}")
        return took_s

    def _try(self, n: int, took_s: float) -> None:
        command = self.scene.command(n)
        self._killed(n, command, self.chance.uniform(-0.1, 1.05) * took_s)
        doubt = self._in_doubt(n)
        self._remove_lock(n)
        again = self._once(n, command)
        happened = self.scene.happened(n)
        self.outcome.count("tries")
        self.outcome.count("doubts", int(doubt))
        self.outcome.count("settled", int(doubt and again.returncode == 0))
        self.outcome.count("asked a person", int(again.returncode == IN_DOUBT))
        wrong = happened > 1 or (again.returncode == 0 and happened != 1)
        self.outcome.count("wrong", int(wrong))
        said = f"{self.scene.name}, try {n}: happened {happened} times; {again.stderr[-300:]}"
        self.outcome.refuse(wrong, said)
        self.outcome.refuse(again.returncode not in (0, IN_DOUBT), f"exit {again.returncode}: {said}")

    def _remove_lock(self, n: int) -> None:
        """After a kill git leaves its lock file, and the next git refuses to write. Remove the file, as git's message
        says, and count it.
        """
        for lock in (self.scene.directory(n) / ".git").rglob("*.lock"):
            lock.unlink()
            self.outcome.count("locks of git removed")

    def _words(self, n: int, command: list[str]) -> list[str]:
        return [sys.executable, "-P", "-m", "standfast", "once", f"try {n}", "--settle", f"{SETTLE_S}s", "--", *command]

    def _started(self, n: int, command: list[str]) -> subprocess.Popen[bytes]:
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        words, there = self._words(n, command), self.scene.directory(n)
        return subprocess.Popen(words, cwd=there, env=self.environment, start_new_session=True, **quiet)

    def _begun(self, process: subprocess.Popen[bytes], command: list[str]) -> float:
        """Wait until the command has started, or everything has ended."""
        tail = b"\0".join(word.encode() for word in command[1:]) + b"\0"
        title = " ".join(command[:2]).encode()  # npm replaces its own command line
        while process.poll() is None:
            for pid in _descendants(process.pid):
                line = _command_line(pid)
                if (line.endswith(tail) and b"\0standfast\0once\0" not in line) or line.startswith(title):
                    return time.monotonic()
            time.sleep(0.002)
        return time.monotonic()

    def _killed(self, n: int, command: list[str], after_s: float) -> None:
        """Kill it this number of seconds after the command has begun. Less than zero: a random time before that."""
        process = self._started(n, command)
        if after_s < 0:
            after_s = self.chance.uniform(0, 1.0)
        else:
            self._begun(process, command)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            victims = self.chance.choice(("all", "command", "once"))
            children = _descendants(process.pid)
            for pid in {"all": [process.pid, *children], "command": children, "once": [process.pid]}[victims]:
                _kill(pid)
        process.wait(LIMIT_S)
        _wait_for(children_left=lambda: _session(process.pid))

    def _in_doubt(self, n: int) -> bool:
        words = [sys.executable, "-P", "-m", "standfast", "effect", "show", f"try {n}", "--json"]
        there = self.scene.directory(n)
        shown = subprocess.run(words, cwd=there, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S)
        return shown.returncode == 0 and bool(json.loads(shown.stdout)["data"]["in_doubt"])

    def _once(self, n: int, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words(n, command),
            cwd=self.scene.directory(n),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )


def _processes() -> list[tuple[int, int, int, str]]:
    """Pid, parent, session and state of every process."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        found.append((int(name), int(fields[1]), int(fields[3]), fields[0]))
    return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _descendants(pid: int) -> list[int]:
    among = _processes()
    found, left = [], [pid]
    while left:
        parent = left.pop()
        children = [one[0] for one in among if one[1] == parent]
        found += children
        left += children
    return found


def _session(leader: int) -> list[int]:
    """The command of a killed `once` continues. It must end before the probe looks it up."""
    return [pid for pid, _, session, state in _processes() if session == leader and state != "Z"]


def _wait_for(children_left: Any) -> None:
    until_s = time.monotonic() + LIMIT_S
    while children_left() and time.monotonic() < until_s:
        time.sleep(0.05)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
