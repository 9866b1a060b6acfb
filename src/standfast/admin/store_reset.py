"""`store reset`: move the store aside and forget it, so that the next open starts with an empty one.

Nothing is deleted. A plan lists what will be moved. Without a terminal a person confirms its hash.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from standfast.admin.plans import plan_hash
from standfast.config import Settings
from standfast.config.people import for_people
from standfast.db import store_memory
from standfast.errors import InvalidInput, NotFound

ARTIFACTS = "artifacts"
GATES = "gates.json"


class Plan(NamedTuple):
    """The plan of a reset."""

    place: str
    store_ids: list[str]
    """The stores that this host remembers at this place, and the id of the present store if it can be read."""
    moves: list[str]
    """Files and directories, or the schema on PostgreSQL."""
    identity: list[int]
    """Device and inode of the database file: the plan is for this file and no other."""
    to: str
    """The new directory or schema. Its name has the time, so it is not part of the hash."""

    @property
    def hash(self) -> str:
        return plan_hash({name: value for name, value in self._asdict().items() if name != "to"})


def plan(settings: Settings) -> Plan:
    """The plan that `reset` would follow now. Raises NotFound if there is no store and none is remembered."""
    target = settings.target
    if target.is_memory:
        raise InvalidInput("a store in memory ends with its process; there is nothing to reset")
    place = store_memory.place_of(target)
    known = [one.store_id for one in store_memory.at(place)] if place is not None else []
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    if target.engine == "postgres":
        made = _server(target.location, target.shown, known, stamp)
    else:
        made = _file(settings, known, stamp)
    if not made.moves and not made.store_ids:
        raise NotFound(f"there is no store at {target.shown}, and none is remembered", "standfast store list")
    return made


def _server(url: str, shown: str, known: list[str], stamp: str) -> Plan:
    from standfast.db.postgres.move_aside import store_id

    found = store_id(url)
    ids = list(dict.fromkeys([*([found] if found else []), *known]))
    return Plan(shown, ids, ["standfast"] if found else [], [], f"standfast_reset_{stamp.lower()}")


def _file(settings: Settings, known: list[str], stamp: str) -> Plan:
    from standfast.db.sqlite.move_aside import files

    path = settings.target.location
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    moves = files(path) + _beside(path, settings)
    status = os.stat(path) if os.path.exists(path) else None
    identity = [status.st_dev, status.st_ino] if status else []
    return Plan(path, known, moves, identity, f"{path}.reset-{stamp}")


def _beside(path: str, settings: Settings) -> list[str]:
    """Other files in the data directory that belong to its own store."""
    if settings.target.location != settings.default_path:
        return []
    found = [os.path.join(os.path.dirname(path), name) for name in (ARTIFACTS, GATES)]
    return [name for name in found if os.path.lexists(name)]


@for_people("resets the store")
def reset(settings: Settings, what: Plan) -> None:
    """Take a copy of the store if it can be read, then carry out the plan. The caller has asked a person."""
    from standfast.admin.copies.automatic import before_command

    if what.moves and what.store_ids:
        before_command(settings, what.store_ids[0], "store reset")
    if what.moves and settings.target.engine == "postgres":
        from standfast.db.postgres.move_aside import move_aside

        move_aside(settings.target.location, what.to)
    elif what.moves:
        from standfast.db.sqlite.move_aside import SUFFIXES
        from standfast.db.sqlite.move_aside import move_aside as move_files

        own = {what.place + suffix for suffix in SUFFIXES}
        move_files(what.place, what.to, [name for name in what.moves if name not in own])
    place = store_memory.place_of(settings.target)
    if place is not None:
        store_memory.forget(place)
