"""LangGraph: a checkpointer and a store over `sf.threads` and `sf.items`.

    from standfast.adapters.langgraph import Saver

    with Saver.from_conn_string("app.db") as saver:          # or postgresql://…
        graph = builder.compile(checkpointer=saver)

One class each, sync and async. Acknowledged means durable. Only changes are stored; a value that is read back
is made only of types on an allow-list, and nothing is ever unpickled. Two runs of one thread: the one
that comes second gets Conflict. A deleted thread stays deleted.
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
