"""One engine per process and URL, and what a fork does with it.

After a fork the child leaves the parent's connections alone: it neither closes them nor writes to
them, and opens its own on first use.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from standfast.db.contract import Caller, OnMigrate, no_copy
from standfast.db.postgres.engine import PostgresEngine
from standfast.errors import StorageError

_engines: dict[str, PostgresEngine] = {}
_registry_lock = threading.RLock()
_parents: list[PostgresEngine] = []
"""Engines of the parent, kept in a forked child: garbage collection would close the parent's sessions on the server."""


def open_engine(
    url: str,
    caller: Caller,
    *,
    allow_unsafe: bool = False,
    on_create: Callable[[], None] = lambda: None,
    on_migrate: OnMigrate = no_copy,
) -> PostgresEngine:
    """The engine of this process for this URL: the open one, or a new one. Give it back with `release`."""
    with _registry_lock:
        found = _engines.get(url)
        if found is None or found.dead is not None:
            found = _engines[url] = PostgresEngine(
                url, caller, allow_unsafe=allow_unsafe, on_idle=_close, on_create=on_create, on_migrate=on_migrate
            )
        found.retain()
        return found


def _close(engine: PostgresEngine) -> None:
    """Close the engine after its last handle was closed."""
    with _registry_lock:
        if engine.handles > 0:
            return  # another caller opened it again meanwhile
        if _engines.get(engine.address.url) is engine:
            del _engines[engine.address.url]
    engine.close()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.RLock()  # another thread of the parent may have held the old one
    for engine in _engines.values():
        engine.dead = StorageError("this connection belongs to the parent process", code="forked")
        _parents.append(engine)
    _engines.clear()


def _at_exit() -> None:
    for engine in list(_engines.values()):
        engine.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
