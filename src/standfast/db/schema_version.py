"""The schema version of a store, read without creating or migrating it: for commands that must not write.

Call it only if this process does not have the store open, because closing the file would drop its locks.
"""

from __future__ import annotations

import os

from standfast.errors import StorageError


def schema_version(engine: str, location: str) -> int:
    """The schema version; 0 without a store. Raises StorageError if it cannot be read."""
    return _postgres(location) if engine == "postgres" else _sqlite(location)


def _sqlite(path: str) -> int:
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return 0
    import apsw

    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return int(connection.execute("PRAGMA user_version").get)
        finally:
            connection.close()
    except apsw.Error as error:
        raise StorageError(f"{path} cannot be read: {error}", "standfast doctor") from error


def _postgres(url: str) -> int:
    from standfast.db.postgres.address import Address
    from standfast.db.postgres.connect import connect
    from standfast.db.postgres.faults import spoken
    from standfast.db.postgres.migrate import version

    address = Address(url)
    with spoken(address), connect(address) as connection:
        return version(connection)
