"""`standfast where`: print the paths of the data. It creates nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast.cli.frame import command
from standfast.cli.output import Out

if TYPE_CHECKING:
    from standfast.config import Settings


@command("where", examples=("standfast where", "standfast where --json"))
def where(out: Out) -> None:
    """Print the paths and sizes of the data directory, the store, its copies, the spool and the configuration."""
    from standfast.config import load
    from standfast.config.target import COPIES_VARIABLE, copies_dir
    from standfast.interchange.hooks import spool_paths

    settings = load()
    target = settings.target
    named = os.environ.get(COPIES_VARIABLE, "").strip()
    copies = (not named and settings.options.copies.to) or copies_dir(os.environ)
    spool = spool_paths.places(settings.data_dir, None)[0]
    configuration = os.path.join(settings.data_dir, "config.toml")
    sizes = {
        "store": _store_bytes(settings),
        "copies": None if "://" in copies else _bytes(copies),
        "spool": spool_paths.size_bytes(spool),
        "config": _bytes(configuration),
    }
    data = {
        "data_dir": settings.data_dir,
        "engine": target.engine,
        "store": target.shown,
        "exists": None if target.engine == "postgres" else os.path.exists(target.location),
        "copies": copies,
        "spool": spool,
        "config": configuration,
        "size_bytes": sizes,
        "source": settings.source,
        "decided_by": settings.where,
        "scope": settings.scope,
        "git_dir": settings.label.git_dir,
        "origin": settings.label.origin,
        "actor": settings.actor,
    }
    shown = {"data": settings.data_dir, "store": target.shown, "engine": target.engine, "copies": copies}
    shown |= {"spool": spool, "config": configuration}
    out.record(data, out.pairs((name, f"{text}{_size(sizes.get(name))}") for name, text in shown.items()))


def _size(count: int | None) -> str:
    from standfast.core.units import size

    return f" ({size(count)})" if count else ""


def _store_bytes(settings: Settings) -> int | None:
    """The size of the file, its WAL and its artifacts; None for a server, because that needs a connection."""
    if settings.target.engine == "postgres" or settings.target.is_memory:
        return None
    from standfast.core.artifact_files import directory

    path = settings.target.location
    return sum(_bytes(name) for name in (path, f"{path}-wal", directory(path)))


def _bytes(path: str) -> int:
    """The size of a file, or of everything in a directory; 0 if there is none."""
    if not os.path.isdir(path):
        return os.path.getsize(path) if os.path.isfile(path) else 0
    return sum(
        os.lstat(os.path.join(directory, name)).st_size for directory, _, names in os.walk(path) for name in names
    )
