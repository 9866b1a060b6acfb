"""pgvector: whether the database has it, and an HNSW index of vectors.

The extension may be in any schema. `READY` adds that schema to the search path of one transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast.db.postgres.connect import connect
from standfast.db.postgres.faults import Fault, spoken, translated
from standfast.db.sql import statement
from standfast.errors import StorageError

if TYPE_CHECKING:
    from standfast.db.postgres.address import Address

READY = statement(
    # Without iterative scans an HNSW index returns too few rows under a filter (pgvector 0.8 and later).
    # With 400 candidates the recall of texts is above 0.95; with 40, the default, it was 0.91 of 15,000.
    "SELECT set_config('search_path', current_setting('search_path') || ', ' || quote_ident(n.nspname), true),"
    " set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', '400', true)"
    " FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'",
    name="vectors_ready",
)
"""Returns one row if pgvector is installed. Afterwards this transaction finds its type and operators."""


def index(address: Address, table: str, dimensions: int) -> tuple[str, int]:
    """Create the HNSW index of a table's vectors without blocking writers.

    Returns its name and the number of vectors.
    """
    name = f"{table}_hnsw_{dimensions}"
    try:
        connection = connect(address)
    except Fault as fault:
        raise translated(fault, address) from None
    with connection, spoken(address):
        connection.execute(b"CREATE EXTENSION IF NOT EXISTS vector")
        schema = connection.execute(
            b"SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace"
            b" WHERE e.extname = 'vector'"
        ).fetchone()
        if schema is None:
            raise StorageError("this server has no extension vector", "install pgvector on the server")
        connection.commit()
        connection.autocommit = True
        connection.execute(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON standfast.{table}"
            f" USING hnsw ((CAST(embedding AS {schema[0]}.vector({dimensions}))) {schema[0]}.vector_cosine_ops)"
            f" WHERE dimensions = {dimensions}".encode()
        )
        count = connection.execute(
            f"SELECT count(*) FROM standfast.{table} WHERE dimensions = {dimensions}".encode()
        ).fetchone()
    return name, int(count[0]) if count else 0
