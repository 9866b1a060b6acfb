"""Open the store for one command.

A command holds leases in the name of its actor, because they outlive its process. Each command renews the leases of
its actor, brings in records that hooks left in a spool, and works in the session of the agent that runs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from standfast.config import Settings, load
from standfast.errors import InvalidInput, NotFound, StorageError

if TYPE_CHECKING:
    from standfast.handle import Standfast


class NoStore(NotFound):
    """The store does not exist yet: lists are empty, and single items are not found."""


def opened(
    settings: Settings | None = None, *, scope_choice: str | None = None, create: bool = True, pid: int | None = None
) -> Standfast:
    """Open the configured store.

    - `scope_choice` is "all" or "global", as the option of the same name; "global" leaves the repository out.
    - `create=False` raises NoStore if the store does not exist.
    - With `pid`, leases end with that process (`--while`). Raises InvalidInput if it does not run.
    """
    settings = settings or load(outside=scope_choice == "global")
    if pid is not None:
        _require_running(pid)
    there = exists(settings)
    if not there and not create:
        refuse_missing(settings)
        raise NoStore(f"there is no store at {settings.target.shown} yet", "the first write makes it: standfast demo")
    from standfast.handle import connect

    sf = connect(settings, as_actor=pid is None, pid=pid)
    if there and pid is None:
        _attempt(sf, _renew_leases)
    _attempt(sf, _drain_spools)
    if there:
        _attempt(sf, _work_in_session)
    return sf


def _require_running(pid: int) -> None:
    from standfast.clock import SYSTEM
    from standfast.core.leases import is_gone, process

    if is_gone(str(process(pid, SYSTEM)), SYSTEM):
        raise InvalidInput(f"there is no process {pid}", "--while takes the pid of a process that runs: --while $$")


def _attempt(sf: Standfast, step: Callable[[Standfast], None]) -> None:
    """Run a step that the command does not need. The command itself reports an error of the storage."""
    try:
        step(sf)
    except StorageError:
        pass
    except BaseException:
        sf.close()
        raise


def _renew_leases(sf: Standfast) -> None:
    from standfast.core.leases import renew_actor_leases

    renew_actor_leases(sf._store)


def _drain_spools(sf: Standfast) -> None:
    """Bring in records that hooks left in a spool while the store could not be written."""
    from standfast.interchange.hooks.spool_paths import places, waiting

    found = waiting(places(sf.settings.data_dir, sf.settings.project_dir))
    if found:
        from standfast.interchange.hooks.spool import DRAINED_MAX_S, drain

        drain(sf._store, found, sf.settings.data_dir, within_s=DRAINED_MAX_S)


def _work_in_session(sf: Standfast) -> None:
    """Bind the command to the session in STANDFAST_SESSION, else to the session of the agent that runs it."""
    named = os.environ.get("STANDFAST_SESSION", "").strip()
    if named:
        from standfast.interchange.hooks.record import Hooks

        session_id = Hooks(sf._store).session_called(named)
    else:
        session_id = agent_session(sf)
    if session_id is not None:
        from standfast.interchange.hooks.record import work_in

        work_in(sf._store, session_id, adopt=not sf.settings.outside)


def agent_session(sf: Standfast) -> str | None:
    """The session of the agent that runs this command, if its hooks or transcripts recorded one.

    The agent's own variables name it, even if STANDFAST_ACTOR has another name.
    """
    from standfast.config.actor import actor

    own = actor({name: value for name, value in os.environ.items() if name != "STANDFAST_ACTOR"})
    names = [name for name in dict.fromkeys((own, sf.settings.actor)) if ":" in name]
    names = [name for name in names if "@" not in name.partition(":")[0]]  # a person at a terminal
    if not names:
        return None
    from standfast.interchange.hooks.record import Hooks

    hooks = Hooks(sf._store)
    return next((found for name in names if (found := hooks.session_of(name)) is not None), None)


def refuse_missing(settings: Settings) -> None:
    """Raise StorageError("store_missing") if no store is there and this host remembers one there."""
    from standfast.db.store_memory import place_of, refuse_missing

    if not exists(settings):
        refuse_missing(place_of(settings.target))


def exists(settings: Settings) -> bool:
    """Whether a store is there. For a server it is True, because only a connection can find out."""
    target = settings.target
    if target.engine == "postgres" or target.is_memory:
        return True
    return os.path.exists(target.location) or os.path.lexists(f"{target.location}.restored")
