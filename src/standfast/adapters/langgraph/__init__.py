"""LangGraph: a checkpointer and a store over `sf.threads` and `sf.items`.

    from standfast.adapters.langgraph import Saver

    with Saver.from_conn_string("app.db") as saver:          # or postgresql://…
        graph = builder.compile(checkpointer=saver)

Each class has sync and async methods. A write is on disk when it returns. A checkpoint stores only what changed.
Decoding creates only types on an allow-list and never unpickles. If two runs write to one thread, the second gets
Conflict. A deleted thread stays deleted.
"""

from __future__ import annotations

from standfast import modules
from standfast.errors import InvalidInput

try:
    from standfast.adapters.langgraph.saver import Saver, strict
    from standfast.adapters.langgraph.store import Store
except ImportError as error:
    raise InvalidInput(
        f"LangGraph's checkpoint package is not installed ({error.name})", modules.install("langgraph")
    ) from error

__all__ = ["Saver", "Store", "strict"]
