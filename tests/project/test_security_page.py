"""The security page: each of its promises has a test, and it lists everything that agents are refused."""

from __future__ import annotations

import re
from pathlib import Path

from standfast.config import people

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating" / "security.md"


def test_each_promise_names_a_test_that_exists() -> None:
    """The page promises only what a test shows."""
    promised = PAGE.read_text().partition("## What is promised")[2].partition("\n## ")[0]
    promises = re.split(r"^- (?=\*\*)", promised, flags=re.MULTILINE)[1:]
    assert len(promises) >= 14
    for promise in promises:
        cited = re.findall(r"`(tests/\w+/test_\w+\.py)`", promise)
        assert cited, promise
        assert all((ROOT / path).is_file() for path in cited), promise


def test_the_page_lists_what_is_refused_to_agents() -> None:
    """R29: the table of the page is equal to the list in the code."""
    rows = re.findall(r"^  \| ([a-z][^|]+) \| `", PAGE.read_text(), flags=re.MULTILINE)
    assert set(rows) == people.REFUSED


def test_the_page_names_every_attacker_of_the_threat_model() -> None:
    text = PAGE.read_text()
    for who in ("prompt-injected agent", "hostile repository", "hostile imports", "another local user"):
        assert f"| {who}" in text or f"| a {who}" in text
    assert "| a lesser PostgreSQL role |" in text
    assert "| an MCP neighbour |" in text
    assert "docs/operating/security.md" in (ROOT / "SECURITY.md").read_text()
