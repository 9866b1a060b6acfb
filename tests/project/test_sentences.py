"""The docs are plain English: short sentences, one idea each, one word per concept."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import blocks, sentences

GLOSSARY = blocks.ROOT / "docs" / "internals" / "glossary.md"
WORDS_MAX = 35_000
SHORT = 180
"""A page of fewer words is mostly code and tables: one sentence changes a share by several percent."""
RECORDS = "docs/internals/decisions"
"""Records of decisions give reasons and have no code. They meet the limits of a sentence like every other page."""


@pytest.mark.parametrize("page", sentences.pages(), ids=lambda page: str(page.relative_to(blocks.ROOT)))
def test_a_page_does_not_miss_the_targets_by_far(page: Path) -> None:
    """The limits for each page. `python -m tests.sentences` prints all figures."""
    one = sentences.measured(page)
    assert one.median <= 13, one
    assert one.ninth <= 23, one
    assert one.subjects == 0, one
    assert one.joined <= 0.15 or one.words < SHORT, one
    assert one.passive <= 0.22 or one.words < SHORT, one


def test_the_pages_address_the_reader_and_show_code() -> None:
    """The limits per 1,000 words come from the documentation of httpx, sqlite-utils, Oban and Litestream."""
    pages = [sentences.measured(page) for page in sentences.pages() if RECORDS not in str(page)]
    words = sum(page.words for page in pages)
    assert 11 <= sum(page.you * page.words for page in pages) / words <= 23
    assert 10 <= sum(page.code * page.words for page in pages) / words <= 27


def test_the_pages_are_not_too_long() -> None:
    assert sum(sentences.measured(page).words for page in sentences.pages()) <= WORDS_MAX


def test_the_glossary_defines_each_word_once() -> None:
    defined = re.findall(r"^\| \*\*([^*]+)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)
    words = [word.strip() for one in defined for word in one.split(",")]
    assert sorted(words) == sorted(set(words))
    assert len(words) <= 40


def test_the_changelog_has_one_line_per_change() -> None:
    lines = (blocks.ROOT / "CHANGELOG.md").read_text().splitlines()
    sections = {line.removeprefix("### ") for line in lines if line.startswith("### ")}
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    entries = lines[next(n for n, line in enumerate(lines) if line.startswith("## ")) :]
    wrong = [line for line in entries if line and not line.startswith(("- ", "## ", "### "))]
    assert wrong == [], "write each change as one line of at most 120 characters that starts with `- `"
    assert [line for line in entries if len(line) > 120] == []
