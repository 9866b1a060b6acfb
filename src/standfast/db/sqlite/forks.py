"""The number of forks between this process and the first one. It shows whether a forked child inherited a transaction.

A forked child has no writer thread, and SQLite's account of its locks is wrong there. Every transaction stores the
count when it begins. In a child the count differs, so its statements are refused before SQLite is called.
"""

from __future__ import annotations

import os

from standfast.errors import StorageError

_count = 0


def count() -> int:
    return _count


def refused() -> StorageError:
    return StorageError(
        "this transaction belongs to the parent process",
        "fork outside transactions, or start children with exec or spawn",
        code="forked",
    )


def _forked() -> None:
    global _count
    _count += 1


os.register_at_fork(after_in_child=_forked)
