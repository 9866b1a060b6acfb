"""The driver, which is an extra: callers get the module or an error with the install command."""

from __future__ import annotations

from standfast import modules
from standfast.errors import StorageError

try:
    import psycopg
    from psycopg import pq
    from psycopg.pq.abc import PGconn, PGresult
except ImportError as error:
    raise StorageError(
        f"PostgreSQL needs psycopg: {modules.install('postgres')}",
        f"psycopg is there but cannot start: {error}" if "libpq" in str(error) else "",
        code="extra_missing",
    ) from None

__all__ = ["PGconn", "PGresult", "pq", "psycopg"]
