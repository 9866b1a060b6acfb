"""Every code block of README.md and docs/ runs as printed, or is marked as a sketch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import blocks, picture

RUNNABLE = {"console", "python", "sh"}
PAGES = [
    page
    for page in blocks.pages()
    if any(block["kind"] in RUNNABLE and not block["mark"] for block in blocks.blocks(page.read_text()))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(blocks.ROOT)))
def test_a_page_does_what_it_says(page: Path) -> None:
    """001-81, 003-40: what the reader types works, and prints what the page shows."""
    text, problems = blocks.follow(page)
    assert problems == []
    assert text == page.read_text(), f"make blocks PAGES={page.relative_to(blocks.ROOT)}"


def test_the_picture_shows_what_the_demo_prints() -> None:
    shown = picture.lines_of(picture.PICTURE.read_text())
    assert picture.shape(shown) == picture.shape(picture.printed()), "make picture"
