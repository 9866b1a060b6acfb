"""The SQLite library that apsw includes, and whether it is safe for a store.

Two bugs of older libraries lose committed rows: the WAL-reset race (fixed in 3.51.3 and 3.50.7) and frames without
checksums after a savepoint rollback (fixed in 3.50.2). `check` looks at the library that is linked at run time, which
may differ from the installed one.
"""

from __future__ import annotations

import time

import apsw

from standfast.errors import StorageError, UnsafeStorage


def check(version: str | None = None) -> None:
    """Refuse a linked SQLite with a known bug that loses committed rows."""
    found = version or apsw.sqlite_lib_version()
    if not safe(found):
        raise UnsafeStorage(
            f"the linked SQLite {found} has bugs that lose committed rows",
            "install a current one: pip install --upgrade 'apsw>=3.54.1'",
        )


def safe(version: str) -> bool:
    """3.51.3 and later, or 3.50.7 and later in its branch."""
    parts = tuple(int(part) for part in version.split(".")[:3])
    return parts >= (3, 51, 3) or (3, 50, 7) <= parts < (3, 51, 0)


RETRYABLE = (apsw.BusyError, apsw.ProtocolError)
"""Another connection blocks this one: BUSY in all variants, and PROTOCOL. Wait and try again."""


SCHEMA_DAMAGED = ("no such table", "no such column", "has no column named")
"""The messages of SQLite after a table or column of ours was dropped."""


def translated(error: apsw.Error, path: str) -> StorageError:
    """Our error for an error of SQLite. Callers handle RETRYABLE errors before."""
    from standfast.errors import Busy, Corrupt, schema_damaged

    match error:
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{path} is damaged: {error}",
                "stop writing, keep the files, and run: standfast doctor",
            )
        case apsw.SQLError() if any(words in str(error) for words in SCHEMA_DAMAGED):
            return schema_damaged(f"{path}: {error}")
        case apsw.FullError():
            return StorageError(
                f"the disk is full: {path} cannot grow; nothing of this write was kept",
                "free some space and try again; standfast where lists the sizes",
                code="disk_full",
            )
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return StorageError(
                f"{path} cannot be written: {error}",
                "check who owns the directory: standfast doctor",
                code="not_writable",
            )
        case apsw.BusyError() | apsw.ProtocolError():
            return Busy(f"{path} is busy: {error}", "try again, or see who holds it: standfast doctor")
        case apsw.InterruptError():
            return StorageError("a read took too long and was ended", "narrow it down, or use: standfast sql")
        case _:
            return StorageError(f"{path}: {error}", "for details: standfast doctor", code="io_error")


def pause(longest_s: float) -> None:
    """Sleep for a random time, so that two processes that wait for each other do not collide again."""
    from random import uniform

    time.sleep(uniform(0.001, longest_s))
