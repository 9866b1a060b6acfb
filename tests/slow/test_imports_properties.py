"""An agent changes its file between two imports: `standfast_prove.models.imports`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast.serial import redaction
from standfast_prove.models.playing import play


def test_what_was_finished_is_there_once_in_order(engine_url: str, tmp_path: Path) -> None:
    """000-9, 002-3: the file is appended to, cut, copied, moved or rewritten. Each record is imported once."""
    play("imports", engine_url, tmp_path / "data", examples=5 if engine_url.startswith("postgres") else 25)


@pytest.mark.parametrize("shape", redaction.SHAPES, ids=lambda shape: f"{shape.name}-{shape.prefixes[0]}")
def test_the_quick_search_finds_every_secret_that_a_pattern_matches(shape: redaction.Shape) -> None:
    """Patterns run only on lines that the quick search finds. It may find too many lines but must miss none."""
    pattern = re.compile(shape.pattern, re.ASCII)

    @settings(max_examples=15, deadline=None, database=None)
    @given(st.from_regex(pattern, alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
    def found(text: str) -> None:
        if pattern.search(text):
            assert redaction.suspicious(text.encode()), text

    found()
