"""The actor of each call. One server may serve several sessions of an agent, and a call may name its session.

The actor is `STANDFAST_ACTOR`, else the session in the call's `_meta`, in the form that the agent's hooks use, else the
actor of this process.
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
"""The most open handles, all on one engine. If there are more, the server closes the least recently used one."""
_current: ContextVar[Standfast | None] = ContextVar("standfast_mcp_caller", default=None)


def session_in(meta: Mapping[str, Any]) -> str | None:
    """The Codex session that a call names, in the form of its hooks: the root session, else the thread."""
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
        """The handle for the actor of the running call."""
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
        """Close the handles that `acting` opened. The caller closes `own`."""
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
