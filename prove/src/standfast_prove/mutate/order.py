"""pytest plugin: run the tests that a file lists, in its order, and no others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

LIST_VARIABLE = "STANDFAST_TEST_LIST"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = {name: number for number, name in enumerate(Path(os.environ[LIST_VARIABLE]).read_text().splitlines())}
    items[:] = sorted((item for item in items if item.nodeid in wanted), key=lambda item: wanted[item.nodeid])
