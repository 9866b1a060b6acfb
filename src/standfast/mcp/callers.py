"""The actor of each call. One server may serve several sessions of an agent, and a call may say which it is.

`STANDFAST_ACTOR` decides, here as everywhere. Without it the session in the call's `_meta` is the actor, in
the same form as the agent's hooks write it. Without that it is the actor of this process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.to_thread

from standfast import handle
from standfast.config.actor import ACTOR_MAX
from standfast.handle import Standfast

OPEN_MAX = 256
"""Actors whose handles stay open, all on one engine; then the one that was not used for longest is closed."""
_current: ContextVar[Standfast | None] = ContextVar("standfast_mcp_caller", default=None)


def session_in(meta: Mapping[str, Any]) -> str | None:
    """The session of Codex that a call names, as its hooks do: the root session before the thread."""
    turn = meta.get("x-codex-turn-metadata")
    if isinstance(turn, str):
        try:
            turn = json.loads(turn)
        except json.JSONDecodeError:
            turn = None
    said = turn if isinstance(turn, dict) else {}
    for value in (said.get("session_id"), said.get("thread_id"), meta.get("sessionId"), meta.get("threadId")):
        if isinstance(value, str) and value and value.isprintable() and " " not in value:
            return f"codex:{value}"[:ACTOR_MAX]
    return None


class Callers:
    """A handle of the store for each actor."""

    def __init__(self, own: Standfast) -> None:
        self.own = own
        self._others: dict[str, Standfast] = {}
        self._opening = anyio.Lock()

    @property
    def sf(self) -> Standfast:
        """The store for the actor of the call that runs."""
        return _current.get() or self.own

    async def acting(self, meta: Mapping[str, Any]) -> AbstractContextManager[None]:
        """A block in which `sf` is the store for the actor of this call."""
        named = None if os.environ.get("STANDFAST_ACTOR", "").strip() else session_in(meta)
        if named is None or named == self.own.agent:
            return _acting(self.own)
        async with self._opening:
            found = self._others.pop(named, None)
            if found is None:
                found = await anyio.to_thread.run_sync(self._open, named)
            self._others[named] = found  # the one used last is at the end
            if len(self._others) > OPEN_MAX:
                self._others.pop(next(iter(self._others))).close()
        return _acting(found)

    def close(self) -> None:
        """Close the handles that were opened here; the process's own is its owner's to close."""
        for sf in self._others.values():
            sf.close()
        self._others.clear()

    def _open(self, actor: str) -> Standfast:
        from standfast.interchange.hooks.record import Hooks, work_in

        sf = handle.connect(self.own.settings._replace(actor=actor), as_actor=True)
        named = os.environ.get("STANDFAST_SESSION", "").strip()
        session_id = self.own._store.caller.session_id if named else Hooks(sf._store).session_of(actor)
        if session_id is not None:
            work_in(sf._store, session_id, adopt=not sf.settings.outside)
        return sf


@contextmanager
def _acting(sf: Standfast) -> Iterator[None]:
    token = _current.set(sf)
    try:
        yield
    finally:
        _current.reset(token)
