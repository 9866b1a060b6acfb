"""Readers search the page for the message on their terminal, so the product must print each quoted message."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operating" / "troubleshooting.md"


def test_each_message_in_a_heading_is_in_the_product() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "standfast").rglob("*.py"))
    headings = re.findall(r"^## `([^`]+)`", PAGE.read_text(), re.MULTILINE)
    parts = [part.strip(" ';") for heading in headings for part in heading.split("…")]
    assert len(headings) >= 10
    assert [part for part in parts if part not in source] == []
