"""docs/operating/screens.md shows the real output of the screens, at 80 and at 120 columns."""

from __future__ import annotations

import re

import pytest

from standfast.cli.render import width_of
from tests import blocks, captures


@pytest.fixture(scope="module")
def screens() -> dict[tuple[str, int], str]:
    return captures.made()


def test_the_page_shows_what_the_screens_print(screens: dict[tuple[str, int], str]) -> None:
    """000-17, 003-40: the captures in the docs are real."""
    assert captures.words(captures.PAGE.read_text()) == captures.words(captures.page(screens)), "make captures"


@pytest.mark.parametrize("width", captures.WIDTHS)
@pytest.mark.parametrize("line", captures.SCREENS)
def test_a_screen_fits_its_terminal_and_cuts_no_name(
    screens: dict[tuple[str, int], str], line: str, width: int
) -> None:
    """003-40: no line is wider than the terminal; times, ids, keys and repositories are whole."""
    text = screens[line, width]
    wide = [row for row in text.splitlines() if width_of(row) > width and "standfast" not in row]
    assert wide == []
    named = {"": "github.com/acme/site", "top --once": "acme/shop", "loop runs": "nightly"}
    assert named.get(line, "release-42" if "session" in line else "github.com/acme/shop") in text
    assert re.search(blocks.SHORT_ID, text)
    if line != "top --once":  # one line per session, so that rows do not move: the line cuts the reason
        assert "…" not in text
