"""`sf.state.hot`: values that may be lost at any moment: progress, heartbeats, caches.

With `STANDFAST_HOT_URL` they live in Valkey, and a lost value reads as None. Without it the same calls use the store.
"""

from __future__ import annotations

from standfast import serial
from standfast.clock import Duration, duration_us
from standfast.core import keys
from standfast.core.checks import bounded_us
from standfast.db import hot
from standfast.db.store import Resource
from standfast.errors import NotFound
from standfast.record.state.resource import State

NAMESPACE = "standfast.hot"
FOR_US = 3_600_000_000


class HotState(Resource):
    """Values that may be lost: set, get, expire. Keep nothing here that you cannot compute again."""

    __slots__ = ("_server",)

    def set(self, key: str, value: serial.Json, *, for_: Duration | None = None) -> bool:
        """Set a value that expires, by default after one hour. Returns False if no server confirmed it.

        - `for_`: the time until it expires.
        """
        keys.checked(key, "key")
        for_us = bounded_us(FOR_US if for_ is None else duration_us(for_, "for_"), "for_")
        server = self._hot()
        if server is not None:
            return server.set(self._named(key), serial.dumps(value, what=key), for_us)
        State(self.store, self.tx).set(key, value, namespace=NAMESPACE, for_=for_us / 1_000_000)
        return True

    def get(self, key: str) -> serial.Json:
        """The value, or None if it has ended or was lost."""
        keys.checked(key, "key")
        server = self._hot()
        if server is not None:
            found = server.get(self._named(key))
            return None if found is None else serial.read(found)
        try:
            return State(self.store, self.tx).get(key, namespace=NAMESPACE).value
        except NotFound:
            return None

    def expire(self, key: str) -> bool:
        """End a value now. True if it was there."""
        keys.checked(key, "key")
        server = self._hot()
        if server is not None:
            return server.delete(self._named(key))
        try:
            State(self.store, self.tx).delete(key, namespace=NAMESPACE)
        except NotFound:
            return False
        return True

    def _hot(self) -> hot.Hot | None:
        """The Valkey server of STANDFAST_HOT_URL, or None."""
        if not hot.url():
            return None
        if not hasattr(self, "_server"):
            self._server = hot.Hot(self.store.engine.store_id)
        return self._server

    def _named(self, key: str) -> str:
        space = self.keyspace
        return serial.canonical([space.scope, space.repository, key])
