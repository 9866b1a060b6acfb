"""Settings and fixtures of all tests: an own home, both engines, a random order, no network beyond this machine.

This module moves HOME and the data directory into a temporary place while it is imported, before
any test or fixture exists, so that this process and every child of it agree. The variables that
steer standfast, libpq, git or a coding agent are removed for the same reason: a test must not
depend on whose terminal it was started from.

    sf           a fresh store, once on SQLite and once on PostgreSQL
    engine_url   the URL of a fresh store on each engine, not opened yet
    pg_database  the URL of a fresh store on PostgreSQL, not opened yet
    pg_url       the URL of the server: one per test process, started when a test first needs it

The order of modules, and of the tests in each, is shuffled by a seed that is printed first. `--seed N` repeats it.
The seed also picks the one set of parameters with which `make test` runs a test on PostgreSQL. SQLite gets all of them.
"""

from __future__ import annotations

import atexit
import errno
import gc
import ipaddress
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import standfast

FOREIGN_PREFIXES = ("STANDFAST_", "XDG_", "PG", "GIT_", "CLAUDE", "CODEX", "GEMINI", "OPENCODE", "CURSOR_")
FOREIGN_NAMES = (
    "AGENT",
    "AI_AGENT",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "PYTHONDONTWRITEBYTECODE",  # without this cache, each of hundreds of child processes would compile all modules
)
KEPT_PREFIX = "STANDFAST_TEST_"
ROOT_VARIABLE = "STANDFAST_TEST_ROOT"
REAL_HOME_VARIABLE = "STANDFAST_TEST_REAL_HOME"
SEED_VARIABLE = "STANDFAST_TEST_SEED"
HAD_STORE_VARIABLE = "STANDFAST_TEST_REAL_HOME_HAD_STORE"


def _move_into_a_home_of_our_own() -> Path:
    root = _shared_root() / os.environ.get("PYTEST_XDIST_WORKER", "main")
    # a background job ignores SIGINT, and child processes would inherit this setting
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # under nohup SIGHUP is ignored; exec resets a handler
        signal.signal(signal.SIGHUP, lambda *_: None)
    for name in list(os.environ):
        foreign = name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES
        if foreign and not name.startswith(KEPT_PREFIX):
            del os.environ[name]
    sys.dont_write_bytecode = False  # Python reads the variable only at its start; pytest would rewrite 400 files
    for variable, place in (("HOME", root / "home"), ("STANDFAST_DATA_DIR", root / "data")):
        place.mkdir(mode=0o700, parents=True)
        os.environ[variable] = str(place)
    # new test servers reuse the port of old ones; tests of the memory unset this
    os.environ["STANDFAST_REMEMBER"] = "0"
    return root


def _shared_root() -> Path:
    """The first process of a run makes this directory; the workers of pytest-xdist inherit its name."""
    if "PYTEST_XDIST_WORKER" in os.environ and ROOT_VARIABLE in os.environ:
        return Path(os.environ[ROOT_VARIABLE])
    shared = Path(tempfile.mkdtemp(prefix="standfast-tests-", dir=_fast_place())).resolve()
    # Thousands of crash schedules make thousands of stores. In memory a sync does not wait for a disk.
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(shared)
    real_home = Path.home()
    os.environ[ROOT_VARIABLE] = str(shared)
    os.environ[REAL_HOME_VARIABLE] = str(real_home)
    os.environ[HAD_STORE_VARIABLE] = str(int((real_home / ".standfast").exists()))
    atexit.register(_remove, shared, os.getpid())
    return shared


def _fast_place() -> str | None:
    """A memory-backed directory if it has enough space. The campaigns, not these tests, show durability."""
    try:
        space = os.statvfs("/dev/shm")
    except OSError:
        return None
    return "/dev/shm" if space.f_bavail * space.f_frsize > 2**31 and os.access("/dev/shm", os.W_OK) else None


def _remove(shared: Path, owner_pid: int) -> None:
    if os.getpid() == owner_pid:  # a forked child runs this function too, and must not delete anything
        shutil.rmtree(shared, ignore_errors=True)


TEST_ROOT = _move_into_a_home_of_our_own()

# These imports are here so that the modules find the new home.
import hypothesis  # noqa: E402  the lines above have to run first
import pytest  # noqa: E402  as above

from standfast_prove.postgres import TemporaryPostgres, fresh_database  # noqa: E402  as above
from tests.neighbours import DatabaseTemplate, FileTemplate, has_neighbours  # noqa: E402  as above


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="repeat the order of tests that this seed gives")
    parser.addoption("--quick", action="store_true", help="only the features on SQLite")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        config.option.seed = int(os.environ.get(SEED_VARIABLE, random.randrange(10**6)))
    os.environ[SEED_VARIABLE] = str(config.option.seed)  # the workers of pytest-xdist inherit this variable


def pytest_sessionstart(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:  # `-q` would hide the report header
        session.config.get_terminal_writer().line(f"order of tests: --seed {session.config.option.seed}")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in repeats_on_postgres(items, config.option.seed):
        item.add_marker("slow")
    if config.option.quick:
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = filter(is_quick, items)
    items[:] = shuffled(items, config.option.seed, groups=shared_by)


def pytest_collection_finish() -> None:
    """Freeze tests and imported modules: they are never freed, so the garbage collector need not scan them."""
    gc.collect()
    gc.freeze()


# These tests start processes or simulate a week. They took a third of the time of `make quick`.
NOT_QUICK = {"test_approvals_screen", "test_hostile", "test_locks", "test_mcp", "test_people", "test_places"}
NOT_QUICK |= {"test_tasks_episodes", "test_traps"}


def is_quick(item: pytest.Item) -> bool:
    """Whether `make quick` runs a test: features on SQLite in this process, and the project's tests."""
    name = item.path.stem
    if name == "test_project":
        return True
    fixtures = set(getattr(item, "fixturenames", ()))
    engine = getattr(item, "callspec", None) and item.callspec.params.get("engine_url")
    long = item.get_closest_marker("slow") or name.endswith(("_properties", "_storm", "_cli"))
    long = long or name.startswith(("test_daemon", "test_prove")) or name in NOT_QUICK
    return bool(fixtures & {"sf", "engine_url"}) and engine != "postgres" and "pg_url" not in fixtures and not long


def repeats_on_postgres(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """The tests that `make slow` runs on PostgreSQL: all sets of parameters of a function except one."""
    order = random.Random(seed)
    sets: dict[str, list[pytest.Item]] = {}
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("engine_url") == "postgres" and not item.get_closest_marker("slow"):
            sets.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for same in sets.values() for item in order.sample(same, len(same) - 1)]


def shuffled(items: list[Any], seed: int, *, groups: Callable[[Any], Sequence[object]]) -> list[Any]:
    """Shuffle the modules, the groups in a module and the tests in a group, so that a shared fixture is set up once."""
    order = random.Random(seed)

    def shuffle(items: list[Any], level: int) -> list[Any]:
        parts: dict[object, list[Any]] = {}
        for item in items:
            key = groups(item)
            parts.setdefault(key[level] if level < len(key) else item, []).append(item)
        mixed = order.sample(list(parts.values()), len(parts))
        return [item for part in mixed for item in (shuffle(part, level + 1) if len(part) > 1 else part)]

    return shuffle(items, 0)


def shared_by(item: pytest.Item) -> tuple[object, ...]:
    """The group of a test: its module, and the engine of the fixture `full`, which is set up once per engine."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return item.path, params.get("full")


CONNECTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
connects_refused: list[str] = []


def _refuse_the_network(event: str, args: tuple[object, ...]) -> None:
    if event in CONNECTS and isinstance(args[1], tuple) and not _is_loopback(str(args[1][0])):
        connects_refused.append(f"{event} to {args[1]}")
        raise OSError(errno.ENETUNREACH, "the tests have no network")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


sys.addaudithook(_refuse_the_network)


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """000-4: a connection from this process to another machine fails, and the test fails. libpq is not covered."""
    connects_refused.clear()
    yield
    assert connects_refused == []


def store_appeared_in_the_real_home() -> bool:
    had_store = os.environ[HAD_STORE_VARIABLE] == "1"
    return not had_store and (Path(os.environ[REAL_HOME_VARIABLE]) / ".standfast").exists()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # A test sees only the connections made before it. This hook sees all connections of the run.
    if store_appeared_in_the_real_home():
        print("\nthe tests created .standfast in the real home directory")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def pg_url() -> Iterator[str]:
    """The administrator's URL of the server. `STANDFAST_TEST_PG_URL` names an existing server instead of a new one."""
    if existing := os.environ.get("STANDFAST_TEST_PG_URL"):
        yield existing
        return
    with TemporaryPostgres() as server:
        yield server.url


@pytest.fixture(scope="session")
def file_templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], FileTemplate]:
    """The stores that are copied for each test: an empty one, and one with neighbours."""

    @cache
    def made(neighbours: bool) -> FileTemplate:
        place = tmp_path_factory.mktemp("template")
        return FileTemplate(str(place / "standfast.db"), place, neighbours=neighbours)

    return made


@pytest.fixture(scope="session")
def database_templates(
    pg_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bool], DatabaseTemplate]]:
    with ExitStack() as databases:

        @cache
        def made(neighbours: bool) -> DatabaseTemplate:
            url = databases.enter_context(fresh_database(pg_url))
            return DatabaseTemplate(url, tmp_path_factory.mktemp("template"), neighbours=neighbours)

        yield made


def creates_its_store(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("without_store") is not None and "sf" not in request.fixturenames


@pytest.fixture
def pg_database(request: pytest.FixtureRequest, pg_url: str) -> Iterator[str]:
    """A database with an empty store for one test. It is dropped afterwards, even if connections are open.

    For a test with the mark `without_store` the database is empty.
    """
    if creates_its_store(request):
        with fresh_database(pg_url) as url:
            yield url
    else:
        template: DatabaseTemplate = request.getfixturevalue("database_templates")(False)
        with template.copy(pg_url) as url:
            yield url


@pytest.fixture(params=["sqlite", "postgres"])
def engine_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store, once on each engine. It is copied from a template, so no migration runs.

    For the modules that `neighbours.py` names, the store also has rows of other callers. None of these may have changed
    when the test ends. For a test with the mark `without_store` the URL has no store yet.
    """
    beside = has_neighbours(request.module.__name__, request.function.__name__)
    if request.param == "sqlite":
        url = str(tmp_path / "standfast.db")
        if creates_its_store(request):
            yield url
            return
        template: FileTemplate = request.getfixturevalue("file_templates")(beside)
        yield template.copy(Path(url))
        template.unchanged(url)
    elif beside:
        filled: DatabaseTemplate = request.getfixturevalue("database_templates")(True)
        with filled.copy(request.getfixturevalue("pg_url")) as url:
            yield url
            filled.unchanged(url)
    else:
        yield request.getfixturevalue("pg_database")


@pytest.fixture
def sf(engine_url: str, tmp_path: Path) -> Iterator[standfast.Standfast]:
    """A fresh store on each engine. Every test with this fixture is part of the contract between the engines."""
    import standfast

    store = standfast.open(engine_url, data_dir=tmp_path / "data")
    try:
        yield store
    finally:
        store.close()


# On a busy machine one example may take seconds, so hypothesis has no deadline.
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")
