"""Functions that the async adapters share: open a store from any accepted argument, report a missing framework."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast import modules
from standfast.errors import InvalidInput

if TYPE_CHECKING:
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast


def missing(extra: str, package: str) -> ImportError:
    """The error of an adapter whose framework is not installed."""
    return ImportError(f"this adapter needs {package}, which is not installed\n{modules.install(extra)}")


def opened(store: Standfast | AsyncStandfast | str | os.PathLike[str] | None) -> tuple[Standfast, bool]:
    """An open store, and whether it was opened here, so that the adapter has to close it."""
    from standfast.aio import AsyncStandfast
    from standfast.handle import Standfast, open

    if isinstance(store, Standfast):
        return store, False
    if isinstance(store, AsyncStandfast):
        sync = store.sync
        assert isinstance(sync, Standfast)
        return sync, False
    if store is None or isinstance(store, (str, os.PathLike)):
        return open(store), True
    raise InvalidInput(
        f"a store is a path, a URL or an open store, not {type(store).__name__}", 'Session("fix-42", standfast.open())'
    )
