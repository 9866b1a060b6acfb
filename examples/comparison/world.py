"""The outside system of the comparison: pull requests, reviews, deployments and reports, with its own log.

Each request that arrives is one line of `requests.log`, appended in one write. The log is the oracle: no program under
test reads it, except through the `find_` functions. `WORLD` names the directory.

A request takes 40 ms to arrive and its answer 40 ms to come back. `moment` marks the start of both. `WORLD_KILL=4:0.02`
kills the process with SIGKILL 0.02 s after its fourth moment.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

LATENCY_S = 0.04
_moments = count(1)


def plan(issue: str) -> str:
    """An LLM plans."""
    return _computed(f"plan for {issue}")


def edit(plan: str) -> str:
    """An LLM edits a branch of its own."""
    return _computed(f"branch of {plan}")


def open_pr(branch: str) -> str:
    return _send("pull-request", branch)


def find_pr(branch: str) -> str | None:
    return _found("pull-request", branch)


def post_review(pr: str) -> str:
    return _send("review", pr)


def find_review(pr: str) -> str | None:
    return _found("review", pr)


def deploy(version: str) -> str:
    return _send("deployment", version)


def find_deployment(version: str) -> str | None:
    return _found("deployment", version)


def send_report(night: str) -> str:
    return _send("report", night)


def find_report(night: str) -> str | None:
    return _found("report", night)


def tonight() -> str:
    return os.environ.get("WORLD_NIGHT") or f"{datetime.now(UTC):%Y-%m-%d}"


def requests(directory: Path) -> list[str]:
    """The requests that arrived, in order."""
    log = directory / "requests.log"
    return log.read_text().splitlines() if log.exists() else []


def _computed(result: str) -> str:
    _moment()
    time.sleep(LATENCY_S)
    return result


def _send(kind: str, name: str) -> str:
    _moment()
    time.sleep(LATENCY_S)
    log = os.open(_directory() / "requests.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, f"{kind} {name}\n".encode())
    os.close(log)
    _moment()
    time.sleep(LATENCY_S)
    return f"{kind} {name}"


def _found(kind: str, name: str) -> str | None:
    return f"{kind} {name}" if f"{kind} {name}" in requests(_directory()) else None


def _directory() -> Path:
    return Path(os.environ.get("WORLD", "."))


def _moment() -> None:
    planned, _, delay_s = os.environ.get("WORLD_KILL", "").partition(":")
    if planned != str(next(_moments)):
        return
    if float(delay_s) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Timer(float(delay_s), os.kill, (os.getpid(), signal.SIGKILL)).start()
