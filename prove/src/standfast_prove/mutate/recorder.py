"""pytest plugin: appends to a file which functions and statements of the product each passed test executed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

from standfast_prove.mutate.calls import RECORDER, SEEN_VARIABLE

MAP_VARIABLE = "STANDFAST_TEST_MAP"
_REPORTS = pytest.StashKey[list[pytest.TestReport]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests that were recorded already, so that an interrupted run continues."""
    known = set(Path(os.environ[MAP_VARIABLE], "recorded.txt").read_text().splitlines())
    items[:] = [item for item in items if f"{item.nodeid} {digest(item.path)}" not in known]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    place = Path(os.environ[MAP_VARIABLE])
    seen = place / f"{os.getpid()}.seen"
    os.environ[SEEN_VARIABLE] = str(seen)
    item.stash[_REPORTS] = []
    RECORDER.begin()
    RECORDER.start()
    try:
        return (yield)
    finally:
        sys.settrace(None)
        names = set(RECORDER.names)
        if seen.exists():
            names |= set(seen.read_text().splitlines())
            seen.unlink()
        reports = item.stash[_REPORTS]
        passed = bool(reports) and all(report.passed for report in reports)
        seconds = round(sum(report.duration for report in reports), 3)
        line = {"test": item.nodeid, "hash": digest(item.path), "seconds": seconds, "passed": passed}
        with open(place / f"{os.getpid()}.jsonl", "a") as lines:
            lines.write(json.dumps(line | {"names": sorted(names)}) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_REPORTS].append(report)
    return report


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
