"""Many processes open one store at the same moment: a fresh one, or one of an old schema.

All succeed, each migration runs once in one of them, and every one of them can write at once.
"""

from __future__ import annotations

import os
from pathlib import Path

from standfast.db.migrations import LATEST, MIGRATIONS
from standfast.db.migrations.migration import Migration
from standfast.prove.faults.children import Nursery
from standfast.prove.faults.rows import Oracle, inserting, integrity, noted
from standfast.prove.outcome import Outcome

LATER = tuple(
    Migration(
        version=LATEST + n,
        name=f"later_{n}",
        text=f"CREATE TABLE later_{n} (a BIGINT NOT NULL) STRICT;\nINSERT INTO later_{n} (a) VALUES ({n});",
    )
    for n in (1, 2, 3)
)
"""What a coming version might bring."""


def run(place: Path, *, rounds: int, seed: int = 0, old: bool = False, processes: int = 8) -> Outcome:
    outcome = Outcome("first opening of " + ("an old store" if old else "a fresh store"))
    expected = MIGRATIONS + LATER if old else MIGRATIONS
    with Nursery(words=place / "words") as nursery:
        for round in range(rounds):
            path, oracle = place / f"round-{round}" / "standfast.db", place / f"oracle.{round}"
            if old:
                assert nursery.wait(nursery.start("standfast.prove.campaigns.boot:open_once", path=str(path))) == 0
            starters: list[dict[str, object]] = [
                {"path": str(path), "oracle": str(oracle), "key": f"k{n}", "later": old} for n in range(processes)
            ]
            codes = [nursery.wait(pid) for pid in nursery.race("standfast.prove.campaigns.boot:open_once", starters)]
            outcome.count("openings", processes)
            outcome.refuse([code for code in codes if code != 0], "openings failed: " + _words(place))
            _look(outcome, path, oracle, expected, old=old, processes=processes)
    return outcome


def _words(place: Path) -> str:
    return (place / "words").read_text()[-2000:]


def _look(
    outcome: Outcome, path: Path, oracle: Path, expected: tuple[Migration, ...], *, old: bool, processes: int
) -> None:
    import apsw

    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    ledger = list(connection.execute("SELECT version, checksum FROM migration ORDER BY version"))
    found = [key for (key,) in connection.execute("SELECT key FROM meta WHERE key LIKE 'k%' ORDER BY key")]
    connection.close()
    applied = len([line for line in noted(oracle) if line == "migrate.after_step"])
    outcome.count("migrations applied", applied)
    outcome.refuse(ledger != [(m.version, m.checksum) for m in expected] and ledger, "the ledger says")
    outcome.refuse(applied != len(LATER if old else expected) and applied, "steps were applied this often")
    outcome.refuse(found != [f"k{n}" for n in range(processes)] and found, "rows of the first moment")
    state = integrity(path)
    outcome.refuse(state != "ok" and state, "integrity")


# -- in the children -----------------------------------------------------------------------------------


def open_once(*, path: str, oracle: str | None = None, key: str | None = None, later: bool = False) -> None:
    """Open, write one row, and say which steps of migrations this process passed."""
    from standfast import crash
    from standfast.clock import SYSTEM
    from standfast.db.contract import Caller
    from standfast.db.sqlite.engine import SqliteEngine

    caller = Caller(actor="test", holder="p:test", scope="test", clock=SYSTEM)
    with crash.record() as passed:
        engine = SqliteEngine(path, caller, migrations=MIGRATIONS + LATER if later else MIGRATIONS)
        if key is not None:
            engine.write(inserting(key), caller)
    if oracle is not None:
        told = Oracle(oracle)
        for name in passed:
            told.note(name)
    engine.close()
    assert os.path.exists(path)
