"""sqlite-vec, the extra `vectors`: the function `vec_distance_cosine`, loaded into a connection on first use."""

from __future__ import annotations

import importlib.util
import os

import apsw

_THERE = "SELECT count(*) FROM pragma_function_list WHERE name = 'vec_distance_cosine'"


def loaded(connection: apsw.Connection) -> bool:
    """Whether the connection has the function. False if the extra is not installed."""
    if connection.execute(_THERE).get:
        return True
    # Importing the package would import `sqlite3`, a second SQLite library.
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or spec.origin is None:
        return False
    connection.enable_load_extension(True)
    try:
        connection.load_extension(os.path.join(os.path.dirname(spec.origin), "vec0"))
    except apsw.ExtensionLoadingError:
        return False
    finally:
        connection.enable_load_extension(False)
    return True
