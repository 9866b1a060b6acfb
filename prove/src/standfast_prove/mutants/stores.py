"""Bugs of the pin and of the memory of stores, found by the vandal and by a scene."""

from __future__ import annotations

from typing import Any

from standfast import handle
from standfast.db import store, store_memory
from standfast.db.sqlite import engine
from standfast.db.store import Store
from standfast_prove.mutants.patching import Mutant, both, swapped, without


def creating(open_engine: Any) -> Any:
    """A store is created without asking."""
    return lambda settings, location, caller, on_create: open_engine(settings, location, caller)


def _acts(*kinds: str) -> dict[str, Any]:
    return {"acts": 4, "kinds": kinds}


MUTANTS: dict[str, Mutant] = {
    "another store is not noticed": Mutant(
        "a handle continues in any store that it finds",
        "campaign vandal",
        without(Store, "_check_pin"),
        _acts("replace"),
    ),
    "a missing store is created": Mutant(
        "after rm a reopen makes an empty store",
        "campaign vandal",
        swapped(handle, "_open_engine", creating),
        _acts("rm"),
    ),
    "stores are not remembered": Mutant(
        "a new process begins again after rm",
        "campaign vandal",
        swapped(store_memory, "at", lambda _: lambda place: []),
        _acts("rm"),
    ),
    "lost rows are not noticed": Mutant(
        "a handle continues although rows that it acknowledged are gone",
        "check lost_rows",
        both(without(store, "refuse_lost"), without(engine, "refuse_lost")),
    ),
    "an older state is not noticed": Mutant(
        "a handle sends again what the store has no record of",
        "campaign vandal",
        both(without(Store, "note"), swapped(store_memory.Memory, "seq", lambda _: lambda self: 0)),
        _acts("unlink wal"),
    ),
}
