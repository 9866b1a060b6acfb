"""Other people's frameworks, for the tests of the adapters: from PyPI, see `standfast_prove.bench.peers`.

Without a registry the tests that need one are skipped, and say so.
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
    """The directories that hold them; skips the test, loudly, where they cannot be had."""
    found = {one: peers.installed(one) for one in requirements}
    absent = [one for one, place in found.items() if place is None]
    if absent:
        pytest.skip(f"NOT TESTED: {', '.join(absent)} could not be installed from the registry")
    return [place for place in found.values() if place is not None]


def importable(*requirements: str) -> None:
    """Behind what the environment has itself, so that nothing of ours is replaced."""
    sys.path.extend(place for place in places(*requirements) if place not in sys.path)
