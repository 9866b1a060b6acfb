"""Opening the store for one command, as the actor: what a command leases outlives its process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast.config import Settings, load
from standfast.errors import NotFound

if TYPE_CHECKING:
    from standfast.handle import Standfast


def opened(settings: Settings | None = None, *, create: bool = True) -> Standfast:
    """The configured store. With `create=False`, NotFound where reading would have to make it first."""
    settings = settings or load()
    if not create and not exists(settings):
        raise NotFound(f"there is no store at {settings.target.shown} yet", "the first write makes it: standfast demo")
    from standfast.handle import connect

    return connect(settings, as_actor=True)


def exists(settings: Settings) -> bool:
    """Whether opening would find something; a server is only known by asking it."""
    target = settings.target
    return target.engine == "postgres" or target.is_memory or os.path.exists(target.location)
