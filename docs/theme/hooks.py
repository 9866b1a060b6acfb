"""Hooks of the documentation build: the generated reference, and Mermaid from this directory instead of a CDN."""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# A page that explains a word comes before pages that only list it. The longest prefix applies; other pages have 1.
BOOSTS = {
    "concepts/": 3.0,
    "operating/": 2.0,
    "operating/screens": 0.5,
    "start/": 1.5,
    "reference/": 0.5,
    "internals/": 0.5,
}

# dist/mermaid.tiny.js of the npm package @mermaid-js/tiny 11.17.2 (MIT): flowcharts, state and sequence diagrams.
MERMAID = Path(__file__).with_name("mermaid.tiny.js.gz")
MERMAID_SHA256 = "7a644017d37f93c8359790884e6b67fb1f747c78eb20475952404bd87190a3f8"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))
    import reference

    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Weigh the page in the search results: a front matter of `search: boost:`, kept out of the pages."""
    found = [prefix for prefix in BOOSTS if page.file.src_uri.startswith(prefix)]
    if found:
        page.meta.setdefault("search", {}).setdefault("boost", BOOSTS[max(found, key=len)])
    return markdown


def on_post_build(config: Any, **_: Any) -> None:
    script = gzip.decompress(MERMAID.read_bytes())
    if hashlib.sha256(script).hexdigest() != MERMAID_SHA256:
        raise SystemExit(f"{MERMAID} is not the file whose hash is in {__file__}")
    (Path(config["site_dir"]) / "assets" / "mermaid.js").write_bytes(script)
