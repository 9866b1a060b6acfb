"""One engine per process and file, and what a fork does with it. SQLite tracks the locks of a process per file. Two
engines would drop each other's locks, and in a forked child the tracked locks are wrong. So all handles share one
engine. It closes before a fork, and parent and child each open their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from standfast.db.contract import Caller, OnMigrate, OnRemoved, no_copy, no_rescue
from standfast.db.sqlite.engine import SqliteEngine
from standfast.errors import StorageError

_engines: dict[str, SqliteEngine] = {}
_registry_lock = threading.RLock()


_parents: list[SqliteEngine] = []
"""Engines that could not be closed. They are kept, because garbage collection in a forked child would close the
parent's files."""
_forked: set[str] = set()
"""Files that were in use when this process was forked. It must not open them."""


def open_engine(
    path: str,
    caller: Caller,
    *,
    allow_unsafe: bool = False,
    on_create: Callable[[], None] = lambda: None,
    on_migrate: OnMigrate = no_copy,
    on_removed: OnRemoved = no_rescue,
) -> SqliteEngine:
    """The engine of this process for this file: the open one, or a new one."""
    real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
    if real in _forked:
        raise StorageError(
            f"this process was forked while {real} was in use",
            "fork outside transactions and before reading, or start children with exec or spawn",
            code="forked",
        )
    with _registry_lock:
        found = _engines.get(real)
        if found is not None and found.dead is not None:
            if not found.close(timeout_s=5.0):
                raise StorageError("the old connection to this store is still in use", "restart this process")
            found = None
        if found is None:
            found = _engines[real] = SqliteEngine(
                real,
                caller,
                allow_unsafe=allow_unsafe,
                on_idle=_close,
                on_create=on_create,
                on_migrate=on_migrate,
                on_removed=on_removed,
            )
        found.retain()
        return found


def _close(engine: SqliteEngine) -> None:
    """Close the engine after its last handle was closed."""
    with _registry_lock:
        if engine.handles > 0:
            return  # another handle opened it meanwhile
        if _engines.get(engine.path) is engine:
            del _engines[engine.path]
    if engine.inside or not engine.close():
        _parents.append(engine)  # kept, because garbage collection in a forked child must not close it
        engine.close_later()


def _before_fork() -> None:
    """Close every engine, because the forked child would get a wrong copy of SQLite's lock state."""
    _registry_lock.acquire()
    why = StorageError("this connection was closed because the process forked", code="forked")
    for path, engine in list(_engines.items()):
        if not engine.inside and engine.close(timeout_s=2.0, why=why):
            del _engines[path]


def _after_fork_in_child() -> None:
    """Keep a connection that cannot be closed and never use it: it belongs to the parent process."""
    for path, engine in _engines.items():
        engine.dead = StorageError("this connection belongs to the parent process", code="forked")
        engine.lock.close()
        _forked.add(path)
        _parents.append(engine)
    _engines.clear()
    _registry_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_registry_lock.release, after_in_child=_after_fork_in_child)
