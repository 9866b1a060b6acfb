"""A move between the engines, every hash compared, against raw COPY and raw INSERT of the same journal rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw

import standfast
from standfast.db.tables import carried
from standfast_prove.bench.copies import BYTES_PER_ROW, _grow
from standfast_prove.bench.measure import Plan, Table, at_least, interleaved, ratios
from standfast_prove.bench.postgres import server

_EVENT = next(table for table in carried(10**6) if table.name == "event")
_COLUMNS = ", ".join(_EVENT.columns)


def moves(plan: Plan) -> list[Table]:
    """One store goes to PostgreSQL and back, in turns with its rows alone."""
    from standfast_prove.postgres import fresh_database

    place = plan.fresh("moves")
    file = str(place / "standfast.db")
    with standfast.open(file, data_dir=place) as sf:
        _grow(sf, plan.rows * BYTES_PER_ROW)
        rows = int(next(iter(sf.rows("SELECT count(*) AS n FROM event")))["n"])
    with server(plan.directory) as url, fresh_database(url) as database, fresh_database(url) as raw:
        # There and back is one contestant, because every second round runs backwards.
        contestants: dict[str, Callable[[], tuple[float, float]]] = {
            "ours": lambda: (rows / _moved(file, database, place), rows / _moved(database, file, place)),
            "raw": lambda: (
                rows / _timed(lambda: _raw_copy(place, raw)),
                rows / _timed(lambda: _raw_insert(place, raw)),
            ),
        }
        pairs = interleaved(plan.rounds, contestants, patience_s=plan.patience_s)
    found = {
        "there": [there for there, _ in pairs["ours"]],
        "back": [back for _, back in pairs["ours"]],
        "copy": [copy for copy, _ in pairs["raw"]],
        "insert": [insert for _, insert in pairs["raw"]],
    }
    table = Table(
        "a move of rows", f"{rows:,} journal rows of about 1 kB; ours are read back, and every hash is compared."
    )
    table.add("raw COPY into PostgreSQL", found["copy"], "/s")
    table.add("SQLite to PostgreSQL", found["there"], "/s")
    table.add("ours / raw COPY", ratios(found["there"], found["copy"]), "x", at_least(0.4))
    table.add("raw INSERT into SQLite", found["insert"], "/s")
    table.add("PostgreSQL to SQLite", found["back"], "/s")
    table.add("ours / raw INSERT", ratios(found["back"], found["insert"]), "x", at_least(0.4))
    return [table]


def _moved(source: str, target: str, place: Path) -> float:
    plan = standfast.move(target, url=source, data_dir=place)
    return _timed(lambda: standfast.move(target, url=source, data_dir=place, confirm=plan.hash))


def _raw_copy(place: Path, url: str) -> None:
    """The rows of the sealed source, into a table without an index."""
    import psycopg

    with closing(apsw.Connection(str(place / "standfast.db"))) as source, psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS event")
        names = ", ".join(f"{column} bytea" if column == "salt" else f"{column} text" for column in _EVENT.columns)
        connection.execute(f"CREATE TABLE event ({names})".encode())
        with connection.cursor().copy(f"COPY event ({_COLUMNS}) FROM STDIN".encode()) as copy:
            for row in source.execute(f"SELECT {_COLUMNS} FROM event"):
                copy.write_row(row)


def _raw_insert(place: Path, url: str) -> None:
    """The same rows from PostgreSQL, into a table without an index, in one transaction and synced."""
    import psycopg

    path = place / "raw.db"
    path.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path))) as target, psycopg.connect(url) as connection:
        target.execute(f"CREATE TABLE event ({_COLUMNS})")
        marks = ", ".join("?" * len(_EVENT.columns))
        with target, connection.cursor(name="raw") as cursor:
            cursor.itersize = 2000
            cursor.execute(f"SELECT {_COLUMNS} FROM event".encode())
            target.executemany(f"INSERT INTO event VALUES ({marks})", cursor)


def _timed(act: Callable[[], object]) -> float:
    os.sync()
    start = time.monotonic()
    act()
    return time.monotonic() - start
