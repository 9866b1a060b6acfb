"""One call at a time in this process, for each identity.

The lease of an effect names the process that runs it, not the call. A caller inside `alone` may find a row that its own
process holds. Then an interrupted call left that lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from standfast.db.store import Store
from standfast.errors import InProgress
from standfast.ledger.effects import begin, transitions

_mutex = threading.Lock()
_under_way: set[tuple[str, str, str]] = set()
_store_ids: WeakKeyDictionary[Store, str] = WeakKeyDictionary()


def _forked() -> None:
    """A forked child runs none of its parent's calls."""
    global _mutex
    _mutex = threading.Lock()
    _under_way.clear()
    begin.BEGUN.clear()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def alone(store: Store, scope: str, key: str, tool: str) -> Iterator[None]:
    """Inside the block, no other call of this process has this identity. Raises InProgress if one has."""
    mark = (store_id(store), scope, key)
    with _mutex:
        taken = mark in _under_way
        _under_way.add(mark)
    if taken:
        raise InProgress(f"{tool} is under way in another thread of this process", "wait for that call")
    try:
        yield
    finally:
        with _mutex:
            _under_way.discard(mark)


def store_id(store: Store) -> str:
    """The id of the store, read once."""
    found = _store_ids.get(store)
    if found is None:
        found = _store_ids[store] = store.read(lambda tx: tx.one(transitions.SQL.store_id))["value"]
    return found
