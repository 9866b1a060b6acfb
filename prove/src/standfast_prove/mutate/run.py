"""Run the tests of each mutant in a copied tree, two mutants at a time. Each result is appended to a file."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from standfast_prove.mutate import order, tree
from standfast_prove.mutate.call_map import CallMap, Recorded
from standfast_prove.mutate.mutants import PACKAGE, Mutant
from standfast_prove.postgres import TemporaryPostgres

WORKERS = 2
NO_TESTS = 5
"""pytest's exit code if the listed tests do not exist any more."""
LIMIT_S, LIMIT_FACTOR = 60.0, 4.0
TIME_LIMIT = "time limit of"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    mutant: str
    identity: tuple[str, str, str, str]
    result: str
    """caught, survived, or untested if no test executes the mutant."""
    by: str
    seconds: float
    tests: int


class Results:
    """A file of results, one line each. A run that was interrupted continues where it ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_identity: dict[tuple[str, ...], Result] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            found = json.loads(line)
            result = Result(**{**found, "identity": tuple(found["identity"])})
            self.by_identity[result.identity] = result

    def add(self, result: Result) -> None:
        self.by_identity[result.identity] = result
        with open(self._path, "a") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")


def run_all(
    mutants: Iterable[Mutant],
    tests: CallMap,
    *,
    root: Path,
    place: Path,
    seconds: float,
    say: Callable[[Result], None],
) -> None:
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    lock = threading.Lock()

    def work(number: int) -> None:
        copy = tree.make(root, place / f"tree-{number}")
        with TemporaryPostgres() as server:
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                result = run_one(mutant, tests.rounds(mutant, seconds=seconds), copy=copy, server=server.url)
                with lock:
                    say(result)

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def run_one(mutant: Mutant, rounds: list[list[Recorded]], *, copy: Path, server: str | None = None) -> Result:
    """Change the copy, run the rounds of tests up to the first failure, and restore the copy."""
    path = copy / PACKAGE / mutant.file
    source = path.read_bytes()
    began = time.monotonic()
    tree.put(path, mutant.applied(source))
    result, by = "untested", ""
    try:
        for tests in rounds:
            result, by = _confirmed(tests, copy, server)
            if result == "caught":
                break
    finally:
        tree.put(path, source)
    return Result(
        mutant=mutant.name,
        identity=mutant.identity,
        result=result,
        by=by,
        seconds=round(time.monotonic() - began, 1),
        tests=sum(map(len, rounds)),
    )


def _confirmed(tests: list[Recorded], copy: Path, server: str | None) -> tuple[str, str]:
    """A mutant is caught only if the test fails twice. On a busy machine a test may fail once without a cause, or be
    killed.
    """
    while tests:
        result, by = _tested(tests, copy, server)
        failed = [recorded for recorded in tests if recorded.test == by] or tests
        if result == "survived" or by.startswith(TIME_LIMIT) or _tested(failed, copy, server)[0] == "caught":
            return result, by
        tests = [recorded for recorded in tests if recorded not in failed]
    return "survived", ""


def _tested(tests: list[Recorded], copy: Path, server: str | None) -> tuple[str, str]:
    listed = copy / ".mutate-tests"
    listed.write_text("\n".join(recorded.test for recorded in tests))
    files = list(dict.fromkeys(recorded.file for recorded in tests))
    limit_s = LIMIT_S + LIMIT_FACTOR * sum(recorded.seconds for recorded in tests)
    arguments = ["-p", "standfast_prove.mutate.order", *files]
    code, output = pytest(copy, arguments, limit_s=limit_s, server=server, **{order.LIST_VARIABLE: str(listed)})
    if code is None:
        return "caught", f"{TIME_LIMIT} {limit_s:.0f} s"
    if code in (0, NO_TESTS):
        return "survived", ""
    return "caught", failed(output) or f"exit code {code}: {output[-300:]}"


def failed(output: str) -> str:
    """The first test that failed, by pytest's output."""
    found = _FAILED.search(output)
    return found.group(1) if found else ""


def pytest(
    copy: Path, arguments: Iterable[str], *, limit_s: float, server: str | None, **variables: str
) -> tuple[int | None, str]:
    """Run pytest in the copy up to the first failure. Returns its exit code and output; the code is None after the time
    limit.
    """
    environment = tree.environment(**variables)
    if server is not None:
        environment["STANDFAST_TEST_PG_URL"] = server
    command = [tree.python(copy), "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, ""
    return process.returncode, output
