"""Installs the frameworks from PyPI that the tests of the adapters need, see `standfast_prove.bench.peers`.

Without a package registry these tests are skipped with a message.
"""

from __future__ import annotations

import sys

import pytest

from standfast_prove.bench import peers

OPENAI_AGENTS = "openai-agents[sqlalchemy]==0.24.0"
ANTHROPIC = "anthropic==2.9.0"
PYDANTIC_AI = "pydantic-ai-slim==2.66.0"
FASTAPI = "fastapi==0.162.7"
HARNESS = "pydantic-ai-harness==0.62.0"


def places(*requirements: str) -> list[str]:
    """The directories that hold the frameworks. Skips the test with a message if they cannot be installed."""
    found = {one: peers.installed(one) for one in requirements}
    absent = [one for one, place in found.items() if place is None]
    if absent:
        pytest.skip(f"NOT TESTED: {', '.join(absent)} could not be installed from the registry")
    return [place for place in found.values() if place is not None]


def importable(*requirements: str) -> None:
    """Append the directories to `sys.path`, so that packages of the environment come first."""
    sys.path.extend(place for place in places(*requirements) if place not in sys.path)
