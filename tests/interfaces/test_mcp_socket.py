"""`standfast mcp --socket`: an agent in other namespaces works on the host's store."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import standfast
from standfast.mcp import sockets
from tests.hooks import PROGRAM, environment

pytest.importorskip("mcp", reason="mcp is not installed")

# A client as in another language: a socket, lines of JSON, no standfast. /run/host is the mounted directory.
CLIENT = """
import json, os, socket, sys
path, calls = sys.argv[1], json.loads(sys.argv[2])
link = socket.socket(socket.AF_UNIX); link.connect(path); file = link.makefile("rw")
def ask(id, method, params):
    file.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\\n"); file.flush()
    return json.loads(file.readline())
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "container", "version": "1"}}
ask(0, "initialize", hello)
file.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\\n'); file.flush()
asked = [{"name": name, "arguments": given} for name, given in calls]
answers = [ask(n + 1, "tools/call", params)["result"] for n, params in enumerate(asked)]
print(json.dumps({"answers": answers, "pid": os.getpid()}))
"""
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--mount-proc")


class Served:
    """A server, and clients that can reach only the server's socket on the host."""

    def __init__(self, tmp_path: Path) -> None:
        self.data = tmp_path / "data"
        self.directory = Path(tempfile.mkdtemp(prefix="run-", dir="/tmp"))  # a socket's path has at most 107 bytes
        self.path = self.directory / "s.sock"
        self.env = environment(self.data)
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        words = [PROGRAM, "mcp", "--socket", str(self.path)]
        started = subprocess.Popen(words, env=self.env, stderr=subprocess.PIPE, text=True, cwd=self.data.parent)
        assert started.stderr is not None
        assert "serving" in started.stderr.readline()
        return started

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def container(self, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """Run the client where the data directory is hidden and the directory of the socket is mounted."""
        hidden = self.directory.with_name(self.directory.name + "-hidden")
        hidden.mkdir(exist_ok=True)
        script = (
            f"mount --bind {self.directory} {hidden} && mount -t tmpfs none {self.data} && "
            f'exec {sys.executable} -I -c "$0" {hidden}/s.sock "$1"'
        )
        words = [*NAMESPACES, "sh", "-c", script, CLIENT, json.dumps(calls)]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd="/")
        assert ran.returncode == 0, ran.stderr
        found: dict[str, Any] = json.loads(ran.stdout)
        return found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.kill()
    shutil.rmtree(made.directory)
    shutil.rmtree(made.directory.with_name(made.directory.name + "-hidden"), ignore_errors=True)


def test_containers_work_on_the_store_of_the_host(served: Served) -> None:
    """000-38: claims and effects need answers. A second container learns that the effect was done."""
    made = served.container(("task_add", {"title": "flaky test"}), ("task_claim", {}))
    assert made["pid"] == 1  # of the client's namespace
    assert [answer.get("isError", False) for answer in made["answers"]] == [False, False]
    effect = {"tool": "github.open_pr", "intent": {"branch": "fix-42"}, "key": "pr"}
    first = served.container(("effect_begin", effect))["answers"][0]["structuredContent"]
    assert first["act"] is True
    done = served.container(("effect_done", {"id": first["id"], "result": {"pr": 7}}), ("effect_begin", effect))
    assert done["answers"][1]["structuredContent"]["act"] is False
    with standfast.open(data_dir=served.data) as sf:
        assert [task.title for task in sf.tasks.list(everywhere=True)] == ["flaky test"]
        actors = {row["actor"] for row in sf.rows("SELECT actor FROM event WHERE type = 'task.claimed'")}
    assert actors == {"mcp:s.sock"}


def test_only_this_account_may_connect_and_the_socket_is_removed(served: Served) -> None:
    """Decision 13: a Unix socket with mode 0600."""
    assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0
    assert not served.path.exists()


def test_a_killed_server_leaves_a_socket_that_the_next_one_replaces(served: Served) -> None:
    words = [PROGRAM, "mcp", "--socket", str(served.path)]
    second = subprocess.run(words, env=served.env, capture_output=True, text=True, timeout=120)
    assert second.returncode == 4
    assert "another process serves" in second.stderr
    served.kill()
    assert served.path.exists()
    served.process = served.start()
    assert served.container(("brief", {}))["answers"]


def test_a_file_or_a_long_path_is_refused(tmp_path: Path) -> None:
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    words = [PROGRAM, "mcp", "--socket", str(mine)]
    assert subprocess.run(words, env=environment(tmp_path / "data"), capture_output=True, timeout=120).returncode == 2
    for path in (mine, tmp_path / "no" / "s.sock", tmp_path / ("a" * 120)):
        with pytest.raises(standfast.InvalidInput), sockets.listening(str(path)):
            pass
    assert mine.read_text() == "mine"


def test_a_socket_whose_server_accepts_nothing_is_in_use() -> None:
    """002-11: the probe has a deadline; the queue of this socket is full."""
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "full.sock")
        listener.bind(path)
        listener.listen(0)
        for _ in range(2):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(path)
        with pytest.raises(standfast.Conflict, match="another process serves"), sockets.listening(path):
            pass


def test_garbage_ends_one_connection_and_no_other(served: Served) -> None:
    with socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(served.path))
        rude.sendall(b"\xff\xfe{garbage\n" + b"no line end")
    assert served.container(("brief", {}))["answers"]
