"""No text of this project tells a user to install a name that is not registered on the package index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from standfast import modules

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
INSTALLS = r"(?:pip|pipx|uv|uvx|poetry) (?:tool )?(?:install|add|run)\b"


def test_an_extra_is_installed_by_the_packages_that_it_brings() -> None:
    """002-49: the list is that of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, packages in modules.PACKAGES.items():
        brought = [part for wanted in extras[name] for part in _resolved(wanted, extras)]
        assert list(packages) == brought
        assert "standfast" not in modules.install(name)
    assert modules.install("mcp") == "pip install 'mcp>=2.3,<3'"


def _resolved(wanted: str, extras: dict[str, list[str]]) -> list[str]:
    own = re.fullmatch(r"standfast\[(.*)\]", wanted)
    return [part for name in own[1].split(",") for part in extras[name]] if own else [wanted]


def test_no_text_installs_standfast_by_a_name_of_the_index() -> None:
    """Until the name is registered, anyone may register it."""
    unsafe = re.compile(INSTALLS + r"[^\n`]*?[ '\"]standfast(?![\w/.-])")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in TEXTS
        if path.is_file() and "results" not in path.parts
        for match in unsafe.finditer(path.read_text(errors="replace"))
    ]
    assert found == []
