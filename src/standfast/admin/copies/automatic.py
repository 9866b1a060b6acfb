"""Copies that standfast takes by itself.

It takes one before a migration and before a destructive command. The daemon takes one every hour. If the files of a
store are removed while a process has it open, that process takes one.

`[copies] enabled = false` turns them off. A store that this host does not remember (a temporary one, or with
STANDFAST_REMEMBER=0) gets none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from standfast import log
from standfast.admin.copies.manifest import Manifest
from standfast.admin.copies.places import configured
from standfast.admin.copies.take import Order, Source, take
from standfast.clock import MINUTE_US, SECOND_US, SYSTEM
from standfast.config import Settings
from standfast.core import artifact_files
from standfast.core.progress import quiet
from standfast.db import store_memory
from standfast.errors import StandfastError, StorageError

if TYPE_CHECKING:
    from standfast.admin.copies.resource import Copies

EVERY = "1h"
LOOK_EVERY_US = MINUTE_US


def before(settings: Settings, store_id: str, why: str) -> Manifest | None:
    """Take a copy without opening the store. Returns None if copies are disabled or the store is not remembered.

    The table `copy` gets no row, because the store may have an older schema or be moving.
    """
    if not settings.options.copies.enabled or store_memory.place_of(settings.target) is None:
        return None
    source = Source(settings.target.engine, settings.target.location, store_id)
    return take(source, configured(settings.options.copies.to), Order(why, None, SYSTEM.now_us(), quiet))


def before_migration(settings: Settings, store_id: str, found: int, latest: int) -> None:
    """Take a copy before a migration. Raises StorageError if that fails: then the store is not migrated."""
    try:
        before(settings, store_id, f"before migration {found} to {latest}")
    except StorageError as error:
        raise StorageError(
            f"the store was not migrated: {error.message}",
            "free some space, or migrate without a copy: [copies] enabled = false in config.toml",
            code=error.code,
        ) from error


def before_command(settings: Settings, store_id: str, command: str) -> None:
    """Take a copy before a destructive command. If that fails, log a warning: the command deletes no store."""
    try:
        before(settings, store_id, f"before {command}")
    except StorageError as error:
        log.warning(f"no copy was taken before {command}: {error.message}")


def rescue(settings: Settings, store_id: str, save: Callable[[str], object]) -> str:
    """Take a verified copy of a store whose files were removed. `save` writes the rows that an open connection reads.

    Returns the id of the copy, or "" if copies are disabled. Raises StorageError if the store is not sound.
    """
    if not settings.options.copies.enabled or store_memory.place_of(settings.target) is None:
        return ""
    from standfast.admin.copies import check, resource
    from standfast.db.sqlite import copies, integrity

    root = configured(settings.options.copies.to)
    place = root.of(store_id)
    with place.working() as work:
        path = os.path.join(work, "rescued.db")
        save(path)
        found = copies.identified(path)
        complaints = integrity.check(path, quick=True, progress=quiet)
        if found is None or found[0] != store_id or complaints:
            raise StorageError(f"its open connection reads {complaints[0] if complaints else 'another store'}")
        source = Source("sqlite", path, store_id, artifact_files.directory(settings.target.location))
        made = take(source, root, Order("the files were removed", None, SYSTEM.now_us(), quiet))
    check.verify(made, place, quiet)
    resource.note(place, made.id, "verified", SYSTEM.now_us())
    log.warning(
        f"the files of the store at {settings.target.shown} were removed; it is saved in the copy {made.id}: "
        "standfast restore --here"
    )
    return made.id


class Hourly:
    """The part of the daemon that takes copies. A copy may take minutes, so it runs in its own thread."""

    def __init__(self, copies: Copies, is_wanted: Callable[[], bool]) -> None:
        self._copies = copies
        self._is_wanted = is_wanted
        self._thread: threading.Thread | None = None
        self._error: StandfastError | None = None

    def step(self) -> int:
        """Start a copy if one is due. Raises the error of the last copy, once. Returns the µs until the next call."""
        if self._thread is not None and self._thread.is_alive():
            return SECOND_US
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._is_wanted() and self._copies.due(EVERY):
            self._thread = threading.Thread(target=self._take, name="standfast-copy", daemon=True)
            self._thread.start()
            return SECOND_US
        return LOOK_EVERY_US

    def wait(self) -> None:
        """Return when the copy under way is finished."""
        if self._thread is not None:
            self._thread.join()

    def _take(self) -> None:
        try:
            self._copies.take(why="hourly")
            self._copies.apply_rule()
        except StandfastError as error:
            self._error = error
