"""Durable steps and effects in one session, against a raw row each and against DBOS; and what a resume costs.

Each contestant works in its own process, which stays ready between the rounds. A round opens one session (for DBOS, one
workflow) and calls a trivial function in it repeatedly. Only the calls are timed, and each of them writes the same 200
characters to disk.

DBOS comes from PyPI, see `peers`, and is used as its documentation recommends: a `@DBOS.workflow` that
calls a `@DBOS.step`, in its default configuration. On SQLite the syncs of every process are counted by a
small library between it and the system; on PostgreSQL the server counts transactions.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.db.sql import statement
from standfast_prove.bench import peers
from standfast_prove.bench.measure import Plan, Reach, Table, at_least, at_most, interleaved, ratios
from standfast_prove.bench.postgres import server
from standfast_prove.bench.ways import BODY, BUSY_TIMEOUT_MS, INSERT, TABLE

if TYPE_CHECKING:
    from standfast import Standfast

DBOS = "dbos==3.3.0"
PATIENCE_S = 120.0
SLICES = 4
"""Each window is split into this number of rounds, so that other load for a second affects fewer ratios."""
COUNTED = 100
MESSAGES = 100_000
LAST = 50

LABELS = {
    "raw": "raw row",
    "raw twice": "intent and result by hand",
    "step": "step",
    "effect": "effect",
    "dbos": f"{DBOS.replace('==', ' ')} step",
}


def steps(plan: Plan) -> list[Table]:
    """On SQLite: DBOS makes its file in the working directory, in its default journal mode."""
    with ExitStack() as stack:
        counter = _counter(plan.directory)
        workers = {
            way: stack.enter_context(Worker(way, plan.fresh(way.replace(" ", "-")), counter=counter, path=path))
            for way, path in _contestants().items()
        }
        rounds = _rounds(plan, workers)
    table = Table(
        "SQLite, durable steps and effects in one session",
        "A raw row is one apsw insert and sync; by hand: an insert and an update, a sync each. " + _said(rounds),
    )
    _compared(table, rounds, at_least(6.0))
    _syncs(table, rounds, counter)
    return [table]


def steps_postgres(plan: Plan) -> list[Table]:
    """On PostgreSQL: each contestant has its own database on one server, whose data is on the measured disk."""
    with server(plan.directory) as url, ExitStack() as stack:
        own = {way: stack.enter_context(_database(url, way)) for way in _contestants()}
        with ExitStack() as working:
            workers = {
                way: working.enter_context(Worker(way, plan.fresh(way.replace(" ", "-")), url=own[way], path=path))
                for way, path in _contestants().items()
            }
            rounds = _rounds(plan, workers)
        counted = {way: path for way, path in _contestants().items() if "raw" not in way}
        commits = {way: _transactions(plan, url, way, own[way], path) for way, path in counted.items()}
        resumed = _resumed(plan, own["step"], plan.fresh("resume"))
    table = Table(
        "PostgreSQL, durable steps and effects in one session",
        "A raw row is one psycopg insert and commit; by hand: an insert and an update, a commit each. " + _said(rounds),
    )
    _compared(table, rounds, at_least(3.0))
    for way, each in commits.items():
        table.add(f"{LABELS[way]}: transactions each", [each], "")
    return [table, _resume_table("PostgreSQL", resumed)]


def resume(plan: Plan) -> list[Table]:
    """Open a session with many messages and read the last ones, compared with a session with few."""
    place = plan.fresh("resume")
    return [_resume_table("SQLite", _resumed(plan, str(place / "standfast.db"), place))]


# -- tables -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Did:
    """The calls of one worker in one round."""

    count: int
    took_s: float
    cpu_s: float
    syncs: array[int]
    """The number of fsyncs of each call; empty if they were not counted."""

    @property
    def rate(self) -> float:
        return self.count / self.took_s


Rounds = dict[str, list[Did]]


def _contestants() -> dict[str, str | None]:
    """All contestants that can run here, with the directory of their packages."""
    path = peers.installed(DBOS)
    return {"raw": None, "raw twice": None, "step": None, "effect": None} | ({"dbos": path} if path else {})


def _said(rounds: Rounds) -> str:
    if "dbos" in rounds:
        return "DBOS writes nothing before a step runs, so effects are also compared with its steps."
    said = f"{DBOS} could not be installed: NOT COMPARED with it."
    print(said, file=sys.stderr, flush=True)
    return said


def _rounds(plan: Plan, workers: Mapping[str, Worker]) -> Rounds:
    contestants = {way: partial(worker.round, plan.window_s / SLICES) for way, worker in workers.items()}
    interleaved(1, contestants)  # afterwards WALs have their final size and statements are prepared
    return interleaved(plan.rounds * SLICES, contestants, patience_s=plan.patience_s)


def _compared(table: Table, rounds: Rounds, reach: Reach) -> None:
    rates = {way: [did.rate for did in dids] for way, dids in rounds.items()}
    for way, rate in rates.items():
        table.add(LABELS[way], rate, "/s")
    if "dbos" in rates:
        table.add(f"step / {LABELS['dbos']}", ratios(rates["step"], rates["dbos"]), "x", reach)
        table.add(f"effect / {LABELS['dbos']}", ratios(rates["effect"], rates["dbos"]), "x")
        table.add(f"raw row / {LABELS['dbos']}", ratios(rates["raw"], rates["dbos"]), "x")
    table.add("step / raw row", ratios(rates["step"], rates["raw"]), "x")
    table.add("effect / intent and result by hand", ratios(rates["effect"], rates["raw twice"]), "x")
    for way, dids in rounds.items():
        table.add(f"{LABELS[way]}: CPU each", [did.cpu_s / did.count for did in dids], "s")


def _syncs(table: Table, rounds: Rounds, counter: Path | None) -> None:
    if counter is None:
        table.note += " There is no C compiler here: only our own syncs are COUNTED, and not those of checkpoints."
    reach = {"step": at_most(1), "effect": at_most(2)}
    for way, dids in rounds.items():
        if all(did.syncs for did in dids):
            typical = [statistics.median(did.syncs) for did in dids]
            table.add(f"{LABELS[way]}: syncs each", typical, "", reach.get(way))
            mean = [round(statistics.mean(did.syncs), 3) for did in dids]
            table.add(f"{LABELS[way]}: syncs each, those of checkpoints shared out", mean, "")


# -- workers ------------------------------------------------------------------------------------------


class Worker:
    """A process that has opened its store in `place`, or at `url`, and waits for a signal to work."""

    def __init__(
        self, way: str, place: Path, *, url: str | None = None, path: str | None = None, counter: Path | None = None
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, way, str(place), url, path), daemon=True)
        with _preloaded(counter):
            self._process.start()
        theirs.close()
        self._answer()

    def round(self, window_s: float, most: int = sys.maxsize) -> Did:
        """Makes as many calls as fit into the window, in one session."""
        self._pipe.send((window_s, most))
        did: Did = self._answer()
        return did

    def _answer(self) -> Any:
        if not self._pipe.poll(PATIENCE_S):
            raise RuntimeError(f"a benchmark process gave no answer in {PATIENCE_S:.0f} s")
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.is_alive():
            self._pipe.send(None)
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def work(pipe: Connection, way: str, place: str, url: str | None, path: str | None) -> None:
    """The main function of a worker process."""
    sys.path[:0] = [path] if path else []
    os.chdir(place)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT, 0o600)  # DBOS prints a greeting
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        with WAYS[way](url) as one_session:
            counted = _counted_syncs()
            pipe.send(None)
            while (order := pipe.recv()) is not None:
                window_s, most = order
                pace = Pace(window_s, most, counted)
                one_session(pace.run)
                pipe.send(pace.did)
    except BaseException as error:
        pipe.send(RuntimeError(f"{way}: {type(error).__name__}: {error}"))
        raise


class Pace:
    """The timed loop of every contestant."""

    def __init__(self, window_s: float, most: int, counted: Callable[[], int] | None) -> None:
        self._window_s = window_s
        self._most = most
        self._counted = counted
        self.did: Did | None = None

    def run(self, one: Callable[[int], object]) -> None:
        clock, counted, syncs, count = time.monotonic, self._counted, array("q"), 0
        cpu_s, start = time.process_time(), clock()
        end = start + self._window_s
        before = counted() if counted else 0
        while not count or (count < self._most and clock() < end):
            one(count)
            count += 1
            if counted:
                after = counted()
                syncs.append(after - before)
                before = after
        self.did = Did(count, clock() - start, time.process_time() - cpu_s, syncs)


# -- the ways -----------------------------------------------------------------------------------------

Loop = Callable[[Callable[[int], object]], None]
OneSession = Callable[[Loop], None]
"""Open a session and pass the loop the function that it calls."""


def worked(number: int) -> str:
    """The value that a step computes."""
    return BODY


@contextmanager
def _raw(url: str | None, *, twice: bool = False) -> Iterator[OneSession]:
    execute = _raw_psycopg(url) if url else _raw_apsw()

    def one(number: int) -> None:
        execute(INSERT, (BODY,))
        if twice:
            execute("UPDATE row SET body = ? WHERE n = (SELECT max(n) FROM row)", (BODY.upper(),))

    yield lambda loop: loop(one)


def _raw_apsw() -> Callable[[str, tuple[str]], object]:
    import apsw

    connection = apsw.Connection("rows.sqlite")
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
    connection.execute(TABLE)
    return connection.execute


def _raw_psycopg(url: str) -> Callable[[str, tuple[str]], object]:
    import psycopg

    connection = psycopg.connect(url)
    connection.execute("CREATE TABLE IF NOT EXISTS row (n BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)")
    connection.commit()

    def execute(text: str, values: tuple[str]) -> None:
        connection.execute(text.replace("?", "%s").encode(), values)
        connection.commit()

    return execute


@contextmanager
def _ours(url: str | None, *, effect: bool = False) -> Iterator[OneSession]:
    import standfast

    sent = standfast.effect("bench.work", by=standfast.ALL)(worked)
    with standfast.open(url or "standfast.db", data_dir=".") as store:

        def one_session(loop: Loop) -> None:
            with store.session(f"session {time.monotonic_ns()}") as s:
                loop(lambda number: sent(number) if effect else s.step("worked", worked, number))

        yield one_session


@contextmanager
def _dbos(url: str | None) -> Iterator[OneSession]:
    from dbos import DBOS  # type: ignore[import-not-found,unused-ignore]  # from PyPI, see peers

    quiet = {"name": "benchmark", "log_level": "WARNING"}
    DBOS(config={**quiet, "system_database_url": url} if url else quiet)
    step = DBOS.step()(worked)
    loops: list[Loop] = []

    @DBOS.workflow()  # type: ignore[untyped-decorator,unused-ignore]
    def workflow() -> None:
        loops[-1](step)

    def one_session(loop: Loop) -> None:
        loops.append(loop)
        workflow()

    DBOS.launch()
    yield one_session
    DBOS.destroy()


WAYS: dict[str, Callable[[str | None], Any]] = {
    "raw": _raw,
    "raw twice": partial(_raw, twice=True),
    "step": _ours,
    "effect": partial(_ours, effect=True),
    "dbos": _dbos,
}


# -- counting syncs -----------------------------------------------------------------------------------

COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
static long count;
long benchmark_syncs(void) { return __atomic_load_n(&count, __ATOMIC_RELAXED); }
static int pass(const char *name, int fd) {
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return ((int (*)(int)) dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return pass("fsync", fd); }
int fdatasync(int fd) { return pass("fdatasync", fd); }
"""


def _counter(directory: Path) -> Path | None:
    """The preloaded library that delays fsync; None if it cannot be compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        print("no C compiler: the syncs of others are NOT COUNTED", file=sys.stderr, flush=True)
        return None
    target = directory / "syncs.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", str(target), "-ldl"]
    subprocess.run(command, input=COUNTER, text=True, check=True)
    return target


@contextmanager
def _preloaded(counter: Path | None) -> Iterator[None]:
    if counter is None:
        yield
        return
    before = os.environ.get("LD_PRELOAD")
    os.environ["LD_PRELOAD"] = str(counter)
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"]
        if before is not None:
            os.environ["LD_PRELOAD"] = before


def _counted_syncs() -> Callable[[], int] | None:
    """In a worker: the count of the preloaded library, or without it the calls of our own engine."""
    everything = ctypes.CDLL(None)
    if hasattr(everything, "benchmark_syncs"):
        everything.benchmark_syncs.restype = ctypes.c_long
        return lambda: int(everything.benchmark_syncs())
    if "standfast.db.sqlite.wal" not in sys.modules:
        return None
    calls, sync = [0], os.fdatasync

    def counted(fd: Any) -> None:
        calls[0] += 1
        sync(fd)

    os.fdatasync = counted
    return lambda: calls[0]


# -- counting transactions ------------------------------------------------------------------------------


@contextmanager
def _database(url: str, way: str) -> Iterator[str]:
    """A database for one contestant, dropped afterwards."""
    import psycopg

    name = f"benchmark_{way.replace(' ', '_')}_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield psycopg.conninfo.make_conninfo(url, dbname=name) if "://" not in url else _renamed(url, name)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _renamed(url: str, name: str) -> str:
    from urllib.parse import urlsplit, urlunsplit

    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _transactions(plan: Plan, url: str, way: str, own: str, path: str | None) -> float:
    """Transactions per call, by the server's count, without those of opening and closing."""
    few, many = (_committed(plan, url, way, own, path, count) for count in (COUNTED, 3 * COUNTED))
    return (many - few) / (2 * COUNTED)


def _committed(plan: Plan, url: str, way: str, own: str, path: str | None, count: int) -> int:
    before = _commits(url, own)
    with Worker(way, plan.fresh("counted"), url=own, path=path) as worker:
        worker.round(PATIENCE_S, count)
    return _commits(url, own) - before


def _commits(url: str, own: str) -> int:
    """Commits by the server's count, which is complete after the connections that did the work are closed."""
    import psycopg

    name = own.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as admin:
        while (admin.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [name]).fetchone() or [0])[0]:
            time.sleep(0.05)
        row = admin.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = %s", [name]).fetchone()
        assert row is not None
        return int(row[0])


# -- resuming -------------------------------------------------------------------------------------------

FILL = statement(
    "WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < :count)"
    " INSERT INTO message (id, session_id, node_id, position, role, format, content, hash, actor, created_us,"
    " occurred_us) SELECT :node_id || '-' || n, :session_id, :node_id, n, 'user', 'text', 'message ' || n, 'h',"
    " 'worker', 1, 1 FROM i",
    name="fill",
)
FILLED = statement("UPDATE node SET next_position = :count + 1 WHERE id = :node_id", name="filled")


def _resumed(plan: Plan, url: str, data_dir: Path) -> dict[int, list[float]]:
    """The duration of a resume, by the number of messages."""
    import standfast

    sizes = (100, min(MESSAGES, plan.rows))
    with standfast.open(url, data_dir=data_dir) as store:
        for size in sizes:
            _fill(store, size)
        contestants = {str(size): partial(_resume, store, size) for size in sizes}
        interleaved(3, contestants)
        took = interleaved(plan.starts * SLICES, contestants, patience_s=plan.patience_s)
    return {size: took[str(size)] for size in sizes}


def _fill(store: Standfast, size: int) -> None:
    with store.session(f"of {size}") as s:
        node = {"node_id": s.node_id, "count": size}
        store._store.write(lambda tx: (tx.run(FILL, session_id=s.id, **node), tx.run(FILLED, **node)))


def _resume(store: Standfast, size: int) -> float:
    start = time.monotonic()
    with store.session(f"of {size}") as s:
        last = s.messages(last=LAST)
        took = time.monotonic() - start
        assert s.resumed is not None
        assert last[-1].position == s.resumed.messages == size
    return took


def _resume_table(engine: str, resumed: dict[int, list[float]]) -> Table:
    table = Table(f"{engine}, a session resumed", f"Opened by its key, and its last {LAST} messages read.")
    (small, few), (large, many) = resumed.items()
    table.add(f"of {small:,} messages", few, "s")
    table.add(f"of {large:,} messages", many, "s")
    table.add("large / small", ratios(many, few), "x", at_most(2.0))
    return table
