"""Opening the store for one command, as the actor: what a command leases outlives its process.

Any command shows that its actor is alive: the tasks and locks it holds are renewed in passing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from standfast.config import Settings, load
from standfast.errors import InvalidInput, NotFound, StorageError

if TYPE_CHECKING:
    from standfast.handle import Standfast


def opened(settings: Settings | None = None, *, create: bool = True) -> Standfast:
    """The configured store. With `create=False`, NotFound where reading would have to make it first."""
    settings = settings or load()
    there = exists(settings)
    if not create and not there:
        raise _no_store(settings)
    from standfast.handle import connect

    sf = connect(settings, as_actor=True)
    if there:
        _keep(sf)
    _bring_home(sf)
    if there:
        attribute(sf)
    return sf


def held_while(settings: Settings, pid: int, *, create: bool = True) -> Standfast:
    """The store for a command that takes something for a process: what it takes ends with that process."""
    from standfast.clock import SYSTEM
    from standfast.core.leases import is_gone, process
    from standfast.handle import connect

    if is_gone(str(process(pid, SYSTEM)), SYSTEM):
        raise InvalidInput(f"there is no process {pid}", "--while takes the pid of a process that runs: --while $$")
    if not create and not exists(settings):
        raise _no_store(settings)
    return connect(settings, pid=pid)


def _keep(sf: Standfast) -> None:
    from standfast.core.leases import renew_actor_leases

    try:
        renew_actor_leases(sf._store)
    except StorageError:
        pass  # the command itself will report the error; a lease that was not renewed only ages
    except BaseException:
        sf.close()
        raise


def _bring_home(sf: Standfast) -> None:
    """What hooks left in a spool while the store could not be written. One look each, when there is none."""
    from standfast.interchange.hooks.spool_paths import places, waiting

    found = waiting(places(sf.settings.data_dir, sf.settings.project_dir))
    if found:
        from standfast.interchange.hooks.spool import DRAINED_MAX_S, drain

        try:
            drain(sf._store, found, sf.settings.data_dir, within_s=DRAINED_MAX_S)
        except StorageError:
            pass  # it stays where it is, and the command itself will report the error
        except BaseException:
            sf.close()
            raise


def agent_session(sf: Standfast) -> str | None:
    """The session of the agent that runs this command, if its hooks or transcripts recorded it.

    By the agent's own variables, also where STANDFAST_ACTOR gives it another name.
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


def attribute(sf: Standfast) -> None:
    """What this command does belongs to the session it is run in: the one named, else the agent's own."""
    named = os.environ.get("STANDFAST_SESSION", "").strip()
    try:
        if named:
            from standfast.interchange.hooks.record import Hooks

            session_id = Hooks(sf._store).session_called(named)
        else:
            session_id = agent_session(sf)
        if session_id is not None:
            from standfast.interchange.hooks.record import work_in

            work_in(sf._store, session_id, adopt=not sf.settings.outside)
    except StorageError:
        pass  # the command itself will report the error
    except BaseException:
        sf.close()
        raise


class NoStore(NotFound):
    """There is no store yet: lists are empty, and single items are not found."""


def refuse_missing(settings: Settings) -> None:
    """Raise StorageError("store_missing") if the place is empty and a store is remembered there."""
    from standfast.db.store_memory import place_of, refuse_missing

    if not exists(settings):
        refuse_missing(place_of(settings.target))


def _no_store(settings: Settings) -> NoStore:
    refuse_missing(settings)
    return NoStore(f"there is no store at {settings.target.shown} yet", "the first write makes it: standfast demo")


def exists(settings: Settings) -> bool:
    """Whether opening would find something; a server is only known by asking it."""
    target = settings.target
    if target.engine == "postgres" or target.is_memory:
        return True
    return os.path.exists(target.location) or os.path.lexists(f"{target.location}.restored")
