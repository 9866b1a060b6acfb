"""Real servers on loopback, each in a process of its own. Raises Unavailable where one is not installed.

`STANDFAST_PROBES_PATH` names directories with programs that are not on PATH: verdaccio, pypi-server, docker-registry,
gh, podman, dockerd, twine, uv, sshd.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from standfast_prove.faults import Unavailable
from standfast_prove.faults.children import die_with_parent
from standfast_prove.probes.late import late

READY_S = 120.0
END_S = 10.0


def search_path() -> str:
    return os.pathsep.join(filter(None, (os.environ.get("STANDFAST_PROBES_PATH"), os.environ.get("PATH"))))


def program(name: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(words: list[str], url: str, directory: Path, **variables: str) -> Iterator[str]:
    """Start a server, and wait until its URL answers."""
    log = (directory / "server.log").open("wb")
    process = subprocess.Popen(
        words,
        cwd=directory,
        env={**os.environ, "PATH": search_path(), **variables},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        preexec_fn=die_with_parent,  # noqa: PLW1509  one call of prctl
    )
    try:
        until_s = time.monotonic() + READY_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > until_s:
                raise Unavailable(f"{words[0]} did not start: {(directory / 'server.log').read_text()[-300:]}")
            time.sleep(0.1)
        yield url
    finally:
        process.terminate()  # the daemon ends its own children
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()
        log.close()


def _answers(url: str) -> bool:
    at = urllib.parse.urlsplit(url)
    try:
        if at.scheme == "tcp":
            socket.create_connection((at.hostname or "", at.port or 0), timeout=5).close()
            return True
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def verdaccio(directory: Path, late_s: float, seed: int) -> Iterator[str]:
    """The npm registry `verdaccio`; everyone may publish."""
    found, port = program("verdaccio"), free_port()
    packages = "  '**':\n    access: $all\n    publish: $all\n"
    (directory / "config.yaml").write_text(
        f"storage: {directory}/storage\nuplinks: {{}}\npackages:\n{packages}log: {{type: stdout, level: warn}}\n"
    )
    words = [found, "--config", str(directory / "config.yaml"), "--listen", f"127.0.0.1:{port}"]
    with serving(words, f"http://127.0.0.1:{port}/-/ping", directory), late(port, late_s, seed) as slow:
        yield f"http://127.0.0.1:{slow}/"


@contextmanager
def pypiserver(directory: Path, late_s: float, seed: int) -> Iterator[str]:
    """The Python index `pypiserver`; everyone may upload."""
    found, port = program("pypi-server"), free_port()
    (directory / "index").mkdir()
    words = [found, "run", "-i", "127.0.0.1", "-p", str(port), "-P", ".", "-a", ".", str(directory / "index")]
    with serving(words, f"http://127.0.0.1:{port}/simple/", directory), late(port, late_s, seed) as slow:
        yield f"http://127.0.0.1:{slow}/"


@contextmanager
def docker_registry(directory: Path, late_s: float, seed: int) -> Iterator[str]:
    """Debian's `docker-registry`, without TLS."""
    found, port = program("docker-registry"), free_port()
    storage = f"storage:\n  filesystem:\n    rootdirectory: {directory}/registry\n"
    (directory / "registry.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\n{storage}http: {{addr: '127.0.0.1:{port}'}}\n"
    )
    words = [found, "serve", str(directory / "registry.yml")]
    with serving(words, f"http://127.0.0.1:{port}/v2/", directory), late(port, late_s, seed) as slow:
        yield f"localhost:{slow}"


@contextmanager
def docker_daemon(directory: Path) -> Iterator[str]:
    """A docker daemon of our own that runs no container; needs root."""
    found, port = program("dockerd"), free_port()
    places = [f"--{name}={directory}/{name}" for name in ("data-root", "pidfile")]
    network = ["--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs"]
    # Its sockets are in exec-root, and the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="dockerd-", ignore_cleanup_errors=True) as short:
        words = [found, *places, *network, f"--exec-root={short}", "--tls=false", "-H", f"tcp://127.0.0.1:{port}"]
        with serving(words, f"http://127.0.0.1:{port}/_ping", directory):
            yield f"tcp://127.0.0.1:{port}"


@contextmanager
def git_over_ssh(root: Path) -> Iterator[tuple[str, str]]:
    """Debian's `sshd` for the repositories under `root`. Yields their URL, and the ssh command with the key."""
    port, keygen = free_port(), program("ssh-keygen")
    host, caller = root / "host_key", root / "key"
    for key in (host, caller):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    settings = {"Port": port, "ListenAddress": "127.0.0.1", "HostKey": host, "AuthorizedKeysFile": f"{caller}.pub"}
    settings |= {"PidFile": "none", "UsePAM": "no", "StrictModes": "no", "PasswordAuthentication": "no"}
    (root / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    known = root / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {Path(f'{host}.pub').read_text()}")
    ssh = f"ssh -F none -i {caller} -o IdentitiesOnly=yes -o UserKnownHostsFile={known}"
    words = [program("sshd"), "-D", "-e", "-f", str(root / "sshd_config")]
    with serving(words, f"tcp://127.0.0.1:{port}", root):
        yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}{root}", ssh


@contextmanager
def git_over_http(root: Path) -> Iterator[str]:
    """`git http-backend` behind Python's CGI server: the bare repositories under `root`, for everyone."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    backend = subprocess.run(["git", "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

        def do_GET(self) -> None:
            self._run(b"")

        def do_POST(self) -> None:
            self._run(_body(self))

        def _run(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            variables = {
                **os.environ,
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type") or "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
                "REMOTE_USER": "anyone",
            }
            ended = subprocess.run([f"{backend}/git-http-backend"], input=body, capture_output=True, env=variables)
            head, _, data = ended.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
            with suppress(OSError):
                self.send_response(int(headers.pop("Status", "200").split(" ")[0]))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _body(request: object) -> bytes:
    """The body of a request. It may be chunked, as git sends a large pack."""
    headers, stream = request.headers, request.rfile  # type: ignore[attr-defined]
    if "chunked" not in (headers.get("Transfer-Encoding") or ""):
        return bytes(stream.read(int(headers.get("Content-Length") or 0)))
    parts = []
    while size := int(stream.readline().strip() or b"0", 16):
        parts.append(stream.read(size))
        stream.readline()
    stream.readline()
    return b"".join(parts)
