"""`standfast where`: one path answers "where is my data"; nothing is created to answer it."""

from __future__ import annotations

import os

from standfast.cli.frame import command
from standfast.cli.output import Out


@command("where", examples=("standfast where", "standfast where --json"))
def where(out: Out) -> None:
    """Print the data directory, the store and its engine. Creates nothing."""
    from standfast.config import load

    settings = load()
    target = settings.target
    data = {
        "data_dir": settings.data_dir,
        "engine": target.engine,
        "store": target.shown,
        "exists": None if target.engine == "postgres" else os.path.exists(target.location),
        "source": settings.source,
        "decided_by": settings.where,
        "scope": settings.scope,
        "git_dir": settings.label.git_dir,
        "origin": settings.label.origin,
        "actor": settings.actor,
    }
    out.record(data, out.pairs([("data", settings.data_dir), ("store", target.shown), ("engine", target.engine)]))
