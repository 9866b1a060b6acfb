"""The documentation site builds without a warning, and its pages load nothing from other machines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)\s*=\s*["']?([^"'\s>]+)""", re.IGNORECASE
)
STYLES = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return directory


def external(urls: list[str]) -> list[str]:
    return [url for url in urls if re.match(r"[a-z]+:|//", url) and not url.startswith("data:")]


def test_no_page_loads_anything_from_another_machine(site: Path) -> None:
    """000-4: a reader needs no network. Links that a reader may click do not count."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert {page.name: urls for page in pages if (urls := external(LOADED.findall(page.read_text())))} == {}
    sheets = {sheet.name: external(STYLES.findall(sheet.read_text())) for sheet in site.rglob("*.css")}
    assert {name: urls for name, urls in sheets.items() if urls} == {}


def test_a_page_with_a_diagram_has_mermaid_before_the_theme_asks_a_cdn_for_it(site: Path) -> None:
    script = site / "assets" / "mermaid.js"
    for page in site.rglob("*.html"):
        text = page.read_text()
        sources = [source for source in LOADED.findall(text) if source.endswith(".js")]
        with_diagram = 'class="mermaid"' in text
        assert any(source.endswith("assets/mermaid.js") for source in sources) is with_diagram, page.name
        if with_diagram:
            bundle = next(source for source in sources if "/bundle." in source)
            assert (page.parent / sources[0]).resolve() == script
            assert sources.index(bundle) > 0


def test_search_knows_every_page(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    listed = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert {page for page in listed if f'"location":"{page}' not in index} == set()


def test_search_lists_the_page_that_explains_a_word_before_its_reference(site: Path) -> None:
    """A search for `in doubt` lists concepts/effects first, then the commands."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    boosts = {entry["location"]: entry.get("boost", 1) for entry in index["docs"]}
    assert boosts["concepts/effects.html#settle-a-doubt"] > boosts["start/operator.html"] > boosts["guides/mcp.html"]
    assert boosts["guides/mcp.html"] > boosts["reference/commands.html#standfast-budget-doubt"]
    assert boosts["operating/backup.html"] > boosts["operating/screens.html"]
