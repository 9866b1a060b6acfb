"""Kill the nine-part system on standfast, on DBOS and on JSON files; count at the outside system; print one table.

    python examples/comparison/run.py --runs 30 --seed 0

A run starts the coder, the reviewer and a person, then the nightly job, each in its own process. Two kills are drawn
by the seed: a process, one of its moments (`world.py`) and up to 60 ms after it. Killed processes are started again
until the work is done or the run is stuck. "Without care" is the same program without its lookups: `careless` removes
them. DBOS comes from PyPI into a directory of its own; without it, its rows are left out, and the script exits with 1.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import world

HERE = Path(__file__).resolve().parent
DBOS = "dbos==3.3.0"
SYSTEMS = ("standfast", "dbos", "json")
MOMENTS = {"coder": 6, "reviewer": 2, "nightly": 2}
EXPECTED = (
    "pull-request branch of plan for issue 42",
    "review pull-request branch of plan for issue 42",
    "deployment v42",
    "report monday",
)
KILLS = 2
DELAY_S = 0.06
LIMIT_S = 90.0
NOTICE_S = 10.0
LOOKUPS = re.compile(r", find=world\.\w+|world\.find_\w+\([^)]*\) or ")
SIGKILLED = -9

Kill = tuple[str, str]
"""The process, and its moment with the delay after it: ("coder", "4:0.02")."""


@dataclass
class Tally:
    """The outcome of one run, or of all runs of one row."""

    kills: int = 0
    duplicates: int = 0
    missing: int = 0
    asked: int = 0
    never_ended: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.kills += other.kills
        self.duplicates += other.duplicates
        self.missing += other.missing
        self.asked += other.asked
        self.never_ended += other.never_ended
        self.errors += other.errors


def careless(source: str) -> str:
    """The program without `find=` and without a lookup before each request."""
    return LOOKUPS.sub("", source)


def code_lines(source: str) -> int:
    """Lines with code: no blank lines, comments and docstrings."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        if token.type not in skipped and not docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return len(lines)


def system_lines(system: str) -> int:
    """All lines of code of one system, with its crash test where it has one."""
    return sum(code_lines(file.read_text()) for file in HERE.glob(f"*on_{system}.py"))


class Run:
    """One run of one system in a directory of its own."""

    def __init__(self, system: str, directory: Path, *, care: bool, kills: list[Kill], path: list[str]) -> None:
        self.directory = directory
        self.tally = Tally()
        self._script = directory / f"on_{system}.py"
        source = (HERE / self._script.name).read_text()
        self._script.write_text(source if care else careless(source))
        self._system = system
        self._kills = list(kills)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STANDFAST_")}
        self._environment = kept | {
            "PYTHONPATH": os.pathsep.join([str(HERE), *path]),
            "STANDFAST_DATA_DIR": str(directory / "standfast"),
            "STANDFAST_REMEMBER": "0",
            "WORLD": str(directory),
            "WORLD_NIGHT": "monday",
        }

    def play(self) -> Tally:
        person = self._start(HERE / "person.py", self._system)
        roles = {"reviewer": self._role("reviewer"), "coder": self._role("coder")}
        try:
            ended = self._until_ended(roles, "coder")
            roles["nightly"] = self._role("nightly")
            ended = self._until_ended(roles, "nightly") and ended
        finally:
            for process in (person, *roles.values()):
                process.kill()
                process.wait()
        arrived = Counter(world.requests(self.directory))
        self.tally.asked = int((self.directory / "asked").exists())
        self.tally.never_ended = int(not ended and not self.tally.asked)
        self.tally.duplicates = sum(arrived.values()) - len(arrived)
        self.tally.missing = sum(one not in arrived for one in EXPECTED) if ended else 0
        return self.tally

    def _until_ended(self, roles: dict[str, subprocess.Popen[bytes]], awaited: str) -> bool:
        """Start again what was killed, until `awaited` has ended with 0; False if the run is stuck."""
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            for role, process in roles.items():
                code = process.poll()
                if code == 0 and role == awaited:
                    return True
                if code == SIGKILLED:
                    self.tally.kills += 1
                    roles[role] = self._role(role)
                elif code and role == awaited:
                    return self._failed(role)
            if (self.directory / "asked").exists() and awaited == "coder":
                return False
            time.sleep(0.02)
        return False

    def _failed(self, role: str) -> bool:
        """It ended with an error: either the person notices that the run asks, or the error is reported."""
        asked = self.directory / "asked"
        until_s = time.monotonic() + NOTICE_S
        while not asked.exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        if not asked.exists():
            last = (self.directory / "stderr").read_text().strip().splitlines()[-1:]
            self.tally.errors.append(f"{self._system} {role}: {' '.join(last)}")
        return False

    def _role(self, role: str) -> subprocess.Popen[bytes]:
        planned = next((kill for kill in self._kills if kill[0] == role), None)
        if planned:
            self._kills.remove(planned)
        return self._start(self._script, role, WORLD_KILL=planned[1] if planned else "")

    def _start(self, script: Path, role: str, **variables: str) -> subprocess.Popen[bytes]:
        with (self.directory / "stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, str(script), role],
                cwd=self.directory,
                env=self._environment | variables,
                stdout=errors,
                stderr=errors,
            )


def draw_kill(draw: random.Random) -> Kill:
    role, moment = draw.choice([(role, n + 1) for role, count in MOMENTS.items() for n in range(count)])
    return role, f"{moment}:{draw.uniform(0, DELAY_S):.4f}"


def played(system: str, template: Path, options: argparse.Namespace, path: list[str], *, care: bool) -> Tally:
    def one(number: int) -> Tally:
        with tempfile.TemporaryDirectory(prefix=f"comparison-{system}-") as directory:
            shutil.copytree(template, directory, dirs_exist_ok=True)
            draw = random.Random(f"{options.seed} {number}")
            kills = [draw_kill(draw) for _ in range(KILLS)]
            return Run(system, Path(directory), care=care, kills=kills, path=path).play()

    total = Tally()
    with ThreadPoolExecutor(options.jobs) as pool:
        for tally in pool.map(one, range(options.runs)):
            total.add(tally)
    return total


def row(system: str, version: str, tally: Tally, *, care: bool, lines: int) -> str:
    cells = [f"{system} {version}".strip(), "yes" if care else "no", tally.kills, tally.duplicates, tally.missing]
    return "| " + " | ".join(map(str, [*cells, tally.asked, tally.never_ended, lines])) + " |"


def prepared(system: str, template: Path, path: list[str]) -> Path:
    """DBOS on SQLite cannot create its tables from two processes at once: one process creates them before the runs."""
    template.mkdir()
    if system == "dbos":
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *path])}
        command = [sys.executable, str(HERE / "on_dbos.py"), "what_happened"]
        subprocess.run(command, cwd=template, env=environment, check=True, capture_output=True)
    return template


def installed(system: str) -> list[str] | None:
    """Where the packages of a system are; None if they cannot be installed."""
    if system != "dbos":
        return []
    from standfast_prove.bench import peers

    found = peers.installed(DBOS)
    return None if found is None else [found]


def version(system: str) -> str:
    return {"standfast": metadata.version("standfast"), "dbos": DBOS.partition("==")[2]}.get(system, "")


def main() -> int:
    options = _options()
    print("| | with care | kills | duplicates | missing | asked a person | never ended | lines of code |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    failed = 0
    for system in options.only or SYSTEMS:
        path = installed(system)
        if path is None:
            print(f"NOT RUN: {DBOS} could not be installed; its rows are left out", file=sys.stderr, flush=True)
            failed = 1
            continue
        lines = system_lines(system)
        with tempfile.TemporaryDirectory(prefix="comparison-") as directory:
            template = prepared(system, Path(directory) / "template", path)
            for care in (True, False):
                tally = played(system, template, options, path, care=care)
                print(row(system, version(system), tally, care=care, lines=lines), flush=True)
                print("\n".join(tally.errors), end="\n" if tally.errors else "", file=sys.stderr, flush=True)
    return failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="runs of each row (30)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (2)")
    parser.add_argument("--only", action="append", choices=SYSTEMS, help="this system; may be repeated")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
