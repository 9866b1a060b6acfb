"""Valkey, for values that may be lost and for wake-ups behind a connection pooler. Optional: the extra `valkey`.

`STANDFAST_HOT_URL=valkey://host:6379/0` names the server. No call fails because of Valkey: an unreachable server counts
as an empty one. Nothing that standfast acknowledges is stored only here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from standfast import modules
from standfast.errors import InvalidInput, StorageError

if TYPE_CHECKING:
    import valkey

VARIABLE = "STANDFAST_HOT_URL"
TIMEOUT_S = 0.25
"""The longest wait for an answer. A server that is slower counts as unreachable."""
LOOK_S = 0.25


def url() -> str:
    """The server that the environment names; empty if none."""
    return os.environ.get(VARIABLE, "").strip()


class Hot:
    """The values and the channel of one store on one server."""

    def __init__(self, store_id: str) -> None:
        self._client = _connect()
        self._prefix = f"standfast:{store_id}"

    def get(self, key: str) -> str | None:
        found: bytes | None = self._try(lambda: self._client.get(self._named(key)))
        return None if found is None else found.decode()

    def set(self, key: str, value: str, for_us: int) -> bool:
        return bool(self._try(lambda: self._client.set(self._named(key), value, px=max(1, for_us // 1000))))

    def delete(self, key: str) -> bool:
        return bool(self._try(lambda: self._client.delete(self._named(key))))

    def publish(self, tag: str) -> None:
        self._try(lambda: self._client.publish(self._prefix, tag))

    def listen(self, heard: Callable[[str], None]) -> Listener:
        return Listener(self._client, self._prefix, heard)

    def _named(self, key: str) -> str:
        return f"{self._prefix}:{key}"

    def _try(self, call: Callable[[], Any]) -> Any:
        import valkey

        try:
            return call()
        except valkey.ValkeyError:
            return None


class Listener:
    """A thread that receives the wake-ups of other processes. It connects again as long as it runs."""

    def __init__(self, client: valkey.Valkey, channel: str, heard: Callable[[str], None]) -> None:
        self._client, self._channel, self._heard = client, channel, heard
        self.ready = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standfast-hot", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        import valkey

        while not self._stopped.is_set():
            try:
                with self._client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
                    channel.subscribe(self._channel)
                    self.ready.set()
                    self._heard("")  # earlier wake-ups did not reach this connection
                    while not self._stopped.is_set():
                        message = channel.get_message(timeout=LOOK_S)
                        if message is not None:
                            self._heard(message["data"].decode())
            except valkey.ValkeyError:
                self.ready.clear()
                self._stopped.wait(LOOK_S)


def _connect() -> valkey.Valkey:
    try:
        import valkey
    except ImportError:
        raise StorageError(
            f"{VARIABLE} is set, and the client for it is not installed",
            f"{modules.install('valkey')}, or unset {VARIABLE}",
            code="configuration",
        ) from None
    try:
        return valkey.Valkey.from_url(url(), socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
    except ValueError:
        raise InvalidInput(
            f"{VARIABLE} is not a URL of a Valkey server", f"{VARIABLE}=valkey://localhost:6379/0", code="configuration"
        ) from None
