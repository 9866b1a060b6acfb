"""Bugs of the identity check and of the host's memory of stores. The campaign `vandal` and a scene find them."""

from __future__ import annotations

from typing import Any

from standfast import handle
from standfast.core import journal
from standfast.db import store, store_memory
from standfast.db.sqlite import group_commit, location, wal
from standfast.db.store import Store
from standfast_prove.mutants.patching import Mutant, both, swapped, without


def creating(open_engine: Any) -> Any:
    """A store is created without asking."""
    return lambda settings, location, caller, on_create: open_engine(settings, location, caller)


def _acts(*kinds: str) -> dict[str, Any]:
    return {"acts": 4, "kinds": kinds}


MUTANTS: dict[str, Mutant] = {
    "a lost receipt verifies": Mutant(
        "`verify` accepts a receipt whose row is gone",
        "campaign vandal",
        without(journal.Journal, "verify"),
        _acts("unlink wal"),
    ),
    "another store in its place is not noticed": Mutant(
        "a new process sends again the effects of the replaced store",
        "campaign vandal",
        swapped(store_memory.Memory, "in_place_of", lambda _: lambda self: ""),
        _acts("replace"),
    ),
    "another store is not noticed": Mutant(
        "an open handle continues in the store that replaced its own",
        "check another_store",
        without(Store, "_check_pin"),
    ),
    "a missing store is created": Mutant(
        "after `rm` a reopen creates an empty store",
        "check missing_store",
        swapped(handle, "_open_engine", creating),
    ),
    "stores are not remembered": Mutant(
        "a new process starts from zero after `rm`",
        "campaign vandal",
        swapped(store_memory, "at", lambda _: lambda place: []),
        _acts("rm"),
    ),
    "a mounted database file is opened": Mutant(
        "two paths of one file have a WAL each",
        "campaign vandal",
        both(
            swapped(location, "mounted_file", lambda _: lambda path: None),
            swapped(wal, "_is_marked", lambda _: lambda fd: False),
        ),
        _acts("mount file"),
    ),
    "lost rows are not noticed": Mutant(
        "a handle continues although rows that it acknowledged are gone",
        "check lost_rows",
        both(without(store, "refuse_lost"), without(group_commit, "refuse_lost")),
    ),
    "an older state is not noticed": Mutant(
        "a handle continues in a store that lost the effect of another process",
        "check older_state",
        both(without(Store, "note"), swapped(store_memory.Memory, "seq", lambda _: lambda self: 0)),
    ),
    "neither lost rows nor an older state are noticed": Mutant(
        "a handle sends again an effect that the store has lost",
        "campaign vandal",
        both(
            without(Store, "note"),
            swapped(store_memory.Memory, "seq", lambda _: lambda self: 0),
            without(store, "refuse_lost"),
            without(group_commit, "refuse_lost"),
        ),
        _acts("unlink wal"),
    ),
}
