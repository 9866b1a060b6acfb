"""One call at a time in this process, for each identity.

The lease of an effect says which process runs it, not which call. So a caller that is inside `alone` and
finds a row that this very process holds knows that an interrupted call left it behind.
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
    """A forked child has none of its parent's calls."""
    global _mutex
    _mutex = threading.Lock()
    _under_way.clear()
    begin.BEGUN.clear()


os.register_at_fork(after_in_child=_forked)


@contextmanager
def alone(store: Store, scope: str, key: str, tool: str) -> Iterator[None]:
    """The caller inside is the only call of this process for this identity. Raises InProgress."""
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
    """The name a store was born with, read once."""
    found = _store_ids.get(store)
    if found is None:
        found = _store_ids[store] = store.read(lambda tx: tx.one(transitions.SQL.store_id))["value"]
    return found
