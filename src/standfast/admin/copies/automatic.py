"""Copies that standfast takes by itself: before a migration or a destructive command, of a store whose files were
removed under a live process, and hourly by the daemon.

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
    """Take a copy before something is done to the store; None where no copies are taken.

    The table `copy` does not get a row: the store may be of an older schema, or about to be moved.
    """
    if not settings.options.copies.enabled or store_memory.place_of(settings.target) is None:
        return None
    source = Source(settings.target.engine, settings.target.location, store_id)
    return take(source, configured(settings.options.copies.to), Order(why, None, SYSTEM.now_us(), quiet))


def before_migration(settings: Settings, store_id: str, found: int, latest: int) -> None:
    """Refuses the migration if its copy cannot be taken."""
    try:
        before(settings, store_id, f"before migration {found} to {latest}")
    except StorageError as error:
        raise StorageError(
            f"the store was not migrated: {error.message}",
            "free some space, or migrate without a copy: [copies] enabled = false in config.toml",
            code=error.code,
        ) from error


def before_command(settings: Settings, store_id: str, command: str) -> None:
    """Before a destructive command. Without a copy it continues with a warning: it moves the store and deletes none."""
    try:
        before(settings, store_id, f"before {command}")
    except StorageError as error:
        log.warning(f"no copy was taken before {command}: {error.message}")


def rescue(settings: Settings, store_id: str, save: Callable[[str], object]) -> str:
    """Take a verified copy of a store whose files were removed: `save` writes what an open connection still reads.

    Returns the id of the copy; empty where no copies are taken. Raises StorageError if the store is not sound.
    """
    if not settings.options.copies.enabled or store_memory.place_of(settings.target) is None:
        return ""
    from standfast.admin.copies import check, resource
    from standfast.db.sqlite import copying, integrity

    root = configured(settings.options.copies.to)
    place = root.of(store_id)
    with place.working() as work:
        path = os.path.join(work, "rescued.db")
        save(path)
        found = copying.identified(path)
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
    """A part of the daemon. A copy may take minutes, so it has a thread of its own and loops fire meanwhile."""

    def __init__(self, copies: Copies, is_wanted: Callable[[], bool]) -> None:
        self._copies = copies
        self._is_wanted = is_wanted
        self._thread: threading.Thread | None = None
        self._error: StandfastError | None = None

    def step(self) -> int:
        """Start a copy if one is due. Raises the error of the last one, once."""
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
