"""A move between the engines, every row read back and compared, against raw COPY and INSERT of the same rows.

The copy that `db move` takes before it is switched off here: the area `copies` measures it.
"""

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
INDEXES = (
    "CREATE UNIQUE INDEX event_key ON event (seq)",
    "CREATE INDEX event_by_time ON event (occurred_us)",
    "CREATE INDEX event_by_subject ON event (subject, seq)",
)
"""The tables of our schema that have all rows."""
ROWS_MAX = 5_000_000
"""With fewer rows, most of the time would be the 0.3 s in which PostgreSQL creates the tables."""


def moves(plan: Plan) -> list[Table]:
    """One store moves to PostgreSQL and back, in turns with a plain copy of its rows."""
    from standfast_prove.postgres import fresh_database

    place = plan.fresh("moves")
    file = str(place / "standfast.db")
    with standfast.open(file, data_dir=place) as sf:
        _grow(sf, min(ROWS_MAX, 12 * plan.rows) * BYTES_PER_ROW)
        rows = int(next(iter(sf.rows("SELECT count(*) AS n FROM event")))["n"])
    (place / "config.toml").write_text("[copies]\nenabled = false\n")
    with server(plan.directory) as url, fresh_database(url) as database, fresh_database(url) as raw:
        # A move and the move back are one contestant, because every second round runs the contestants in reverse order.
        contestants: dict[str, Callable[[], tuple[float, float]]] = {
            "floor": lambda: (
                rows / _timed(lambda: _raw_copy(place, raw, whole=True)),
                rows / _timed(lambda: _raw_insert(place, raw, whole=True)),
            ),
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
        "copy whole": [copy for copy, _ in pairs["floor"]],
        "insert whole": [insert for _, insert in pairs["floor"]],
    }
    table = Table(
        "a move of rows", f"{rows:,} journal rows of about 1 kB; ours have indexes, are read back, and are compared."
    )
    table.add("raw COPY into PostgreSQL", found["copy"], "/s")
    table.add("SQLite to PostgreSQL", found["there"], "/s")
    table.add("ours / raw COPY", ratios(found["there"], found["copy"]), "x", at_least(0.4))
    table.add("raw COPY with the indexes, read back / raw COPY", ratios(found["copy whole"], found["copy"]), "x")
    table.add("raw INSERT into SQLite", found["insert"], "/s")
    table.add("PostgreSQL to SQLite", found["back"], "/s")
    table.add("ours / raw INSERT", ratios(found["back"], found["insert"]), "x", at_least(0.4))
    table.add(
        "raw INSERT with the indexes, read back / raw INSERT", ratios(found["insert whole"], found["insert"]), "x"
    )
    return [table]


def _moved(source: str, target: str, place: Path) -> float:
    plan = standfast.move(target, url=source, data_dir=place)
    return _timed(lambda: standfast.move(target, url=source, data_dir=place, confirm=plan.hash))


def _raw_copy(place: Path, url: str, *, whole: bool = False) -> None:
    """Copy the rows of the sealed source into a table without an index. With `whole`, create the indexes and read the
    rows back.
    """
    import psycopg

    with closing(apsw.Connection(str(place / "standfast.db"))) as source, psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS event")
        types = {"salt": "bytea", "seq": "bigint", "occurred_us": "bigint", "xid": "bigint"}
        names = ", ".join(f"{column} {types.get(column, 'text')}" for column in _EVENT.columns)
        for text in (f"CREATE TABLE event ({names})", *(INDEXES if whole else ())):
            connection.execute(text.encode())
        with connection.cursor().copy(f"COPY event ({_COLUMNS}) FROM STDIN".encode()) as copy:
            for row in source.execute(f"SELECT {_COLUMNS} FROM event"):
                copy.write_row(row)
        if whole:
            with connection.cursor(name="raw") as cursor:
                cursor.execute(f"SELECT {_COLUMNS} FROM event ORDER BY seq".encode())
                while cursor.fetchmany(2000):
                    pass


def _raw_insert(place: Path, url: str, *, whole: bool = False) -> None:
    """Insert the same rows from PostgreSQL into a table without an index, in one synced transaction."""
    import psycopg

    path = place / "raw.db"
    path.unlink(missing_ok=True)
    with closing(apsw.Connection(str(path))) as target, psycopg.connect(url) as connection:
        for text in (f"CREATE TABLE event ({_COLUMNS})", *(INDEXES if whole else ())):
            target.execute(text)
        marks = ", ".join("?" * len(_EVENT.columns))
        with target, connection.cursor(name="raw") as cursor:
            cursor.itersize = 2000
            cursor.execute(f"SELECT {_COLUMNS} FROM event".encode())
            target.executemany(f"INSERT INTO event VALUES ({marks})", cursor)
        if whole:
            target.execute(f"SELECT {_COLUMNS} FROM event ORDER BY seq").fetchall()


def _timed(act: Callable[[], object]) -> float:
    os.sync()
    start = time.monotonic()
    act()
    return time.monotonic() - start
