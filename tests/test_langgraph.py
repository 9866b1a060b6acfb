"""LangGraph's checkpointer over a store of standfast: its own conformance suite, and the faults of other savers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="pip install '.[dev]' brings LangGraph")

from langgraph.checkpoint.conformance import checkpointer_test, validate

from standfast.adapters.langgraph import Saver


def test_the_conformance_suite_of_langgraph_passes_whole(engine_url: str) -> None:
    """All 81 of langgraph-checkpoint-conformance 0.0.2: the counts, never the label, which forgets what is missing."""

    @checkpointer_test(name="standfast")
    async def made() -> AsyncIterator[Saver]:
        async with Saver.from_conn_string(engine_url) as saver:
            yield saver

    results = asyncio.run(validate(made)).to_dict()["results"]
    failures = [words for result in results.values() for words in result["failures"]]
    assert failures == []
    assert sum(result["tests_passed"] for result in results.values()) == 81
    assert sum(result["tests_skipped"] for result in results.values()) == 0
