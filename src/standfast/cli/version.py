"""`standfast --version`: this package and the libraries that hold the data."""

from __future__ import annotations

import sys

from standfast.cli.output import Out


def print_version(out: Out) -> None:
    found = versions()
    rest = ", ".join(f"{name} {version or 'not installed'}" for name, version in found.items() if name != "standfast")
    out.record(found, [f"standfast {found['standfast']} ({rest})"])


def versions() -> dict[str, str | None]:
    """Name → version; None for a package that is not installed. SQLite's is the one linked at run time."""
    from standfast import __version__
    from standfast.db.versions import library_versions

    python = ".".join(str(part) for part in sys.version_info[:3])
    return {"standfast": __version__, "python": python, **library_versions()}
