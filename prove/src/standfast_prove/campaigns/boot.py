"""Many processes open one store at the same moment: a new store, or one of an old schema.

All of them succeed and can write. Each migration runs once, in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast.db.contract import no_copy
from standfast.db.migrations import LATEST, MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast_prove.campaigns.warm import warmed
from standfast_prove.faults.children import Nursery
from standfast_prove.faults.rows import Oracle, inserting, integrity, noted
from standfast_prove.outcome import Outcome

if TYPE_CHECKING:
    from standfast.db.contract import Caller, OnMigrate
    from standfast.db.postgres.engine import PostgresEngine
    from standfast.db.sqlite.engine import SqliteEngine

PATIENCE_S = 300.0
LATER = tuple(
    Migration(
        version=LATEST + n,
        name=f"later_{n}",
        text=f"CREATE TABLE later_{n} (a BIGINT NOT NULL) STRICT;\nINSERT INTO later_{n} (a) VALUES ({n});",
    )
    for n in (1, 2, 3)
)
"""Migrations that a later version might add."""


def run(
    place: Path, *, rounds: int, seed: int = 0, url: str | None = None, old: bool = False, processes: int = 8
) -> Outcome:
    outcome = Outcome("first opening of " + ("an old store" if old else "a fresh store"))
    expected = MIGRATIONS + LATER if old else MIGRATIONS
    with Nursery(words=place / "words") as nursery:
        warmed(nursery, postgres=url is not None)
        for round in range(rounds):
            path, oracle = url or str(place / f"round-{round}" / "standfast.db"), place / f"oracle.{round}"
            if url is not None:
                _empty(url)
            upto = LATEST + (seed + round) % len(LATER) if old else 0
            if old:
                made = nursery.start("standfast_prove.campaigns.boot:open_once", path=path, upto=upto)
                assert nursery.wait(made, PATIENCE_S) == 0
            starters: list[dict[str, object]] = [
                {"path": path, "oracle": str(oracle), "key": f"k{n}", "later": old} for n in range(processes)
            ]
            codes = [
                nursery.wait(pid, PATIENCE_S)
                for pid in nursery.race("standfast_prove.campaigns.boot:open_once", starters)
            ]
            outcome.count("rounds")
            outcome.count("openings", processes)
            outcome.refuse([code for code in codes if code != 0], "openings failed: " + _words(place))
            _look(outcome, path, oracle, expected, pending=len(expected) - upto, processes=processes)
            if outcome.bad:
                break
    return outcome


def _words(place: Path) -> str:
    return (place / "words").read_text()[-2000:]


def _empty(url: str) -> None:
    """An empty database, as before the first open."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS standfast CASCADE")


def _look(
    outcome: Outcome, path: str, oracle: Path, expected: tuple[Migration, ...], *, pending: int, processes: int
) -> None:
    ledger = [tuple(row) for row in _rows(path, "SELECT version, checksum FROM migration ORDER BY version")]
    found = [row[0] for row in _rows(path, "SELECT key FROM meta WHERE key LIKE 'k%' ORDER BY key")]
    applied = len([line for line in noted(oracle) if line == "migrate.after_step"])
    outcome.count("migrations applied", applied)
    outcome.refuse(ledger != [(m.version, m.checksum) for m in expected] and ledger, "the ledger says")
    # A server may refuse a step that another process has just applied. The refused process reads the schema again and
    # applies nothing.
    wrong = applied < pending if "://" in path else applied != pending
    outcome.refuse(wrong and applied, f"{pending} steps were pending, and applied this often")
    outcome.refuse(found != [f"k{n}" for n in range(processes)] and found, "rows of the first moment")
    if "://" not in path:
        state = integrity(path)
        outcome.refuse(state != "ok" and state, "integrity")


def _rows(path: str, text: str) -> list[tuple[Any, ...]]:
    if "://" in path:
        import psycopg

        with psycopg.connect(path, options="-c search_path=standfast", autocommit=True) as server:
            return server.execute(text.encode()).fetchall()
    import apsw

    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return list(connection.execute(text))
    finally:
        connection.close()


# -- in the children -----------------------------------------------------------------------------------


def open_once(
    *, path: str, oracle: str | None = None, key: str | None = None, later: bool = False, upto: int | None = None
) -> None:
    """Open, write one row, and return the migration steps that this process ran. `upto` is the schema of an old
    version.
    """
    from standfast import crash
    from standfast.clock import SYSTEM
    from standfast.db.contract import Caller

    caller = Caller(actor="test", holder="p:test", scope="test", clock=SYSTEM)
    migrations = (MIGRATIONS + LATER)[: upto or None] if later or upto else MIGRATIONS
    with crash.record() as passed:
        engine = engine_of(path, caller, migrations)
        if key is not None:
            engine.write(inserting(key), caller)
    if oracle is not None:
        acked = Oracle(oracle)
        for name in passed:
            acked.note(name)
    engine.close()


def engine_of(
    path: str, caller: Caller, migrations: Sequence[Migration], *, on_migrate: OnMigrate = no_copy
) -> SqliteEngine | PostgresEngine:
    """The engine alone, with the schema of a version that has these migrations."""
    if "://" in path:
        from standfast.db.postgres.engine import PostgresEngine

        return PostgresEngine(path, caller, migrations=migrations, on_migrate=on_migrate)
    from standfast.db.sqlite.engine import SqliteEngine

    return SqliteEngine(path, caller, migrations=migrations, on_migrate=on_migrate)
