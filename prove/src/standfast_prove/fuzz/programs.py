"""Entry points of a program: its command line, its hooks, its MCP server, and the store file that it opens.

Each input gets its own process, forked from one that has imported everything. These are failures: a signal that ends
the process, a traceback, an exit code that is not in the table, a changed home directory or working directory.
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import apsw

import standfast
from standfast import modules
from standfast.errors import StandfastError
from standfast_prove.faults import Unavailable
from standfast_prove.fuzz import CPU_MAX_S
from standfast_prove.fuzz.garbage import Garbage
from standfast_prove.fuzz.samples import COMMANDS, HOOK, REQUESTS

PATIENCE_S = 60.0
"""Elapsed time for one input. Even a busy machine needs far less."""
EXIT_CODES = {0, 1, 2, 3, 4, 5, 6, 7, 75, 78, 126, 127}
"""The last two are a shell's exit codes for a command that cannot run."""
NEVER = {
    "daemon",
    "prove",
    "bench",
    "demo",
    "mcp",
    "hook",
    "install",
    "db",
    "import",
    "ui",
    "web",
    "follow",
    "wait",
    "tail",
}
"""Commands that wait, start a process that stays, write into the home directory, or have their own entry point here."""


class Ended(NamedTuple):
    code: int
    """The exit code, or the negative number of the signal."""
    cpu_s: float
    out: str
    err: str


def knock(door: str, place: str, seed: int, inputs: int, url: None = None) -> None:
    """In a child: the same as `doors.knock`."""
    from standfast_prove.faults.children import say

    last = os.open(os.path.join(place, "last"), os.O_RDWR | os.O_CREAT, 0o600)
    thrown = DOORS[door](Path(place), Garbage(seed), inputs)
    for number, shown in enumerate(thrown):
        os.pwrite(last, f"{number}: {shown!r}"[:2000].ljust(2000).encode("utf-8", "replace"), 0)
    say(inputs)


def forked(act: Callable[[], int], place: Path, data: bytes = b"") -> Ended:
    """Run `act` in a fork with `data` on its stdin. Returns its output and its exit status."""
    files = {name: os.open(place / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600) for name in ("in", "out", "err")}
    os.write(files["in"], data)
    os.lseek(files["in"], 0, os.SEEK_SET)
    pid = os.fork()
    if pid == 0:
        _live(act, files)
    watch = os.pidfd_open(pid)
    if not select.select([watch], [], [], PATIENCE_S)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(watch)
    _, status, used = os.wait4(pid, 0)
    said = {name: os.pread(file, 1 << 20, 0).decode("utf-8", "replace") for name, file in files.items()}
    for file in files.values():
        os.close(file)
    return Ended(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, said["out"], said["err"])


def _live(act: Callable[[], int], files: dict[str, int]) -> None:
    code = 99
    try:
        for number, name in enumerate(("in", "out", "err")):
            os.dup2(files[name], number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  this process ends with it
        resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
        code = act()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  any error is reported
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def judge(ended: Ended, shown: object) -> None:
    what = f"{str(shown)[:500]!r}"
    assert ended.code >= 0, f"ended by signal {-ended.code}: {what}"
    assert "Traceback (most recent" not in ended.err, f"a traceback for {what}: {ended.err[-1500:]}"
    assert ended.code in EXIT_CODES, f"exit {ended.code} for {what}: {ended.err[-500:]}"
    assert ended.cpu_s < CPU_MAX_S, f"{ended.cpu_s:.1f} s of CPU for {what}"


# -- the command line -----------------------------------------------------------------------------------------


def commands(place: Path, garbage: Garbage, inputs: int) -> Iterator[object]:
    """Mutated command lines. A refused command must not change the store."""
    run = _command_line(place)
    outside = _listed(place)
    for number in range(inputs):
        words = garbage.words(garbage.random.choice(COMMANDS).split())
        if NEVER & {word.lower() for word in words} or any(word.startswith(("--f", "--w")) for word in words):
            words = garbage.words(["task", "list"])
        yield words
        before = _written(place)
        ended = forked(lambda words=words: run(words), place, garbage.text().encode("utf-8", "replace"))  # type: ignore[misc]
        judge(ended, words)
        if ended.code == 2:
            assert _written(place) == before, f"refused, and written all the same: {words}"
        if number % 50 == 49 or number == inputs - 1:
            assert _listed(place) == outside, f"written outside of the data directory: {_listed(place) ^ outside}"


def hooks(place: Path, garbage: Garbage, inputs: int) -> Iterator[object]:
    """Payloads for `standfast hook`: it exits 0 and prints nothing for any input."""
    run = _command_line(place)
    for _ in range(inputs):
        agent = garbage.random.choice(("claude-code", "codex", "gemini-cli", "opencode", "emacs"))
        good = garbage.random.random() < 0.5
        data = garbage.mutated(json.dumps(HOOK).encode()) if good else json.dumps(garbage.replaced(HOOK)).encode()
        yield agent, data
        ended = forked(lambda agent=agent: run(["hook", agent]), place, data)  # type: ignore[misc]
        judge(ended, data)
        assert (ended.code, ended.out, ended.err) == (0, "", ""), f"{ended} for {data[:300]!r}"


def _command_line(place: Path) -> Callable[[list[str]], int]:
    """Runs the program as `python -m standfast`, with an empty PATH, so that it cannot start other programs."""
    main = import_module("standfast.cli").main
    for name in ("standfast.cli.app", "standfast.db.sqlite.registry", "standfast.cli.hook", "standfast.cli.task"):
        import_module(name)
    for entry in import_module("standfast.cli.registry").ENTRIES:
        import_module(entry.place.partition(":")[0])
    for name in ("home", "cwd", "data"):
        (place / name).mkdir(mode=0o700)
    os.chdir(place / "cwd")
    os.environ.update(HOME=str(place / "home"), STANDFAST_DATA_DIR=str(place / "data"), PATH="", NO_COLOR="1")

    def run(words: list[str]) -> int:
        sys.argv = ["standfast", *words]
        return int(main())

    forked(lambda: run(["task", "add", "the first"]), place)
    return run


def _written(place: Path) -> int:
    with closing(apsw.Connection(str(place / "data" / "standfast.db"))) as connection:
        return int(connection.execute("SELECT max(seq) FROM event").get)


def _listed(place: Path) -> set[str]:
    return {str(path) for name in ("home", "cwd") for path in (place / name).rglob("*")}


# -- a broken file ----------------------------------------------------------------------------------------------


def stores(place: Path, garbage: Garbage, inputs: int) -> Iterator[object]:
    """Stores with foreign bytes. Each one works, or standfast refuses it with its own error and does not change it."""
    good = _good_store(place)
    file = place / "broken" / "standfast.db"
    for _ in range(inputs):
        data = _damaged(garbage, good)
        yield "a broken store"
        ended = _met(file, data, place)
        if ended.cpu_s >= CPU_MAX_S:  # only an input that is slow twice counts
            ended = _met(file, data, place)
        judge(ended, "a broken store")
        if ended.out.startswith("refused at opening"):
            assert file.read_bytes() == data, f"refused, and changed all the same: {ended.out}"


def _met(file: Path, data: bytes, place: Path) -> Ended:
    shutil.rmtree(file.parent, ignore_errors=True)
    file.parent.mkdir(mode=0o700)
    file.write_bytes(data)
    file.chmod(0o600)
    return forked(lambda: _use(file), place)


def _good_store(place: Path) -> bytes:
    file = place / "good" / "standfast.db"

    def make() -> int:
        with standfast.open(file, data_dir=file.parent) as sf:
            for number in range(30):
                sf.tasks.add(f"task {number}", body="x" * 200)
                sf.events.append("s", "said", {"number": number})
            sf.mail.send("b", {"words": "y" * 500})
            sf.effects.begin("pay", key="k")
        with closing(apsw.Connection(str(file))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return 0

    ended = forked(make, place)
    assert ended.code == 0, ended.err
    return file.read_bytes()


def _damaged(garbage: Garbage, good: bytes) -> bytes:
    made = bytearray(good)
    for _ in range(garbage.random.choice((1, 2, 8, 40))):
        page = garbage.random.randrange(len(good) // 4096) * 4096
        at = page + garbage.random.randrange(garbage.random.choice((12, 100, 4096)))  # often damage a header
        match garbage.random.randrange(5):
            case 0:
                made[at : at + 1] = bytes([garbage.random.randrange(256)])
            case 1:
                made[at : at + 4] = garbage.random.randbytes(4)
            case 2:
                made[page : page + 4096] = bytes(4096)
            case 3:
                other = garbage.random.randrange(len(good) // 4096) * 4096
                made[page : page + 4096] = good[other : other + 4096]
            case _:
                del made[len(made) - garbage.random.randrange(5000) :]
                break
        if len(made) < len(good):
            break
    return bytes(made)


def _use(file: Path) -> int:
    """A sequence of calls on a store; returns where it was refused."""
    try:
        with standfast.open(file, data_dir=file.parent) as sf:
            for look in (sf.tasks.list, sf.effects.list, sf.mail.list, lambda: sf.events.read("s"), sf.loops.list):
                _refusable(look)
            _refusable(lambda: sf.tasks.add("one more"))
            _refusable(sf.tasks.claim)
    except StandfastError as error:
        print("refused at opening:", error)
    return 0


def _refusable(act: Callable[[], Any]) -> None:
    with suppress(StandfastError):
        act()


# -- MCP ----------------------------------------------------------------------------------------------------------


def requests(place: Path, garbage: Garbage, inputs: int) -> Iterator[object]:
    """Mutated requests over stdio. The server answers or refuses each, and continues."""
    try:
        import_module("mcp")
    except ImportError:
        raise Unavailable(f"mcp is not installed: {modules.install('mcp')}") from None
    (place / "data").mkdir(mode=0o700)
    environment = {**os.environ, "STANDFAST_DATA_DIR": str(place / "data"), "HOME": str(place)}
    with (
        open(place / "words", "wb") as words,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "standfast", "mcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            env=environment,
        ) as server,
    ):
        talk = _Talk(server)
        try:
            talk.begin()
            for number in range(inputs):
                request = garbage.random.choice(REQUESTS)
                if garbage.random.random() < 0.5:
                    line = json.dumps(garbage.replaced(request)).encode()
                else:
                    line = garbage.mutated(json.dumps(request).encode()).replace(b"\n", b" ")
                yield line
                talk.send(line)
                if number % 20 == 19 or number == inputs - 1:
                    talk.ping(f"ping {number}")
            talk.end()
        finally:
            server.kill()


class _Talk:
    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._server, self._in, self._out = server, server.stdin, server.stdout
        self._rest = b""

    def begin(self) -> None:
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "0"}}
        self.send(json.dumps({"jsonrpc": "2.0", "id": "begin", "method": "initialize", "params": asked}).encode())
        self._until("begin")
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def send(self, line: bytes) -> None:
        self._in.write(line + b"\n")
        self._in.flush()

    def ping(self, id: str) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": "ping"}).encode())
        self._until(id)

    def end(self) -> None:
        self._in.close()
        code = self._server.wait(PATIENCE_S)
        assert code == 0, f"the server ended with {code}"

    def _until(self, id: str) -> None:
        while True:
            while b"\n" not in self._rest:
                ready, _, _ = select.select([self._out], [], [], PATIENCE_S)
                assert ready, "the server says nothing any more"
                part = os.read(self._out.fileno(), 1 << 16)
                assert part, "the server has gone"
                self._rest += part
            line, _, self._rest = self._rest.partition(b"\n")
            if json.loads(line).get("id") == id:
                return


DOORS: dict[str, Callable[[Path, Garbage, int], Iterator[object]]] = {
    "commands": commands,
    "hook": hooks,
    "stores": stores,
    "mcp": requests,
}
