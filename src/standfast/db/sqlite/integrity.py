"""SQLite's own check of a file, in a child process: `python -P -m standfast.db.sqlite.integrity PATH full|quick`.

The check reads every page and may take minutes. Our own reads may pin a snapshot for 5 s only. A process that has the
file open may not open it a second time: closing that descriptor would drop its locks. A child may.

The quick check reads every page, also those that no table uses. The full check then compares the indexes of each
table with its rows, one table after the other: SQLite reports no progress within one check of the whole file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

FULL, QUICK = "full", "quick"
COMPLAINTS_MAX = 10
REPORT_EVERY_S = 0.2
STEPS = 10_000
"""SQLite's progress handler runs each time that many pages or instructions are done."""
Progress = Callable[[str, int, int], object]


def check(path: str, *, quick: bool, progress: Progress) -> list[str]:
    """The errors that SQLite reports. Empty for a sound file. `progress` is called five times a second."""
    command = [sys.executable, "-P", "-m", __name__, path, QUICK if quick else FULL]
    last: list[str] | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            for text in child.stdout:
                match json.loads(text):
                    case {"doing": doing, "done": done, "total": total}:
                        progress(doing, done, total)
                    case found:
                        last = found
        except BaseException:
            child.kill()
            raise
        words = child.stderr.read().strip().rpartition("\n")[2]
    if child.returncode != 0 or last is None:
        return [words or f"the check ended with exit code {child.returncode}"]
    return last


def main(path: str, ways: str) -> None:
    import apsw

    from standfast.db.sqlite import wal

    assert ways in (FULL, QUICK)
    with suppress(OSError):  # a copy has no WAL: there is nothing to compare
        if wal.foreign(path):
            print(json.dumps([wal.foreign_log(path).message]))
            return
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    said = [line for line in _complaints(connection, ways) if line != "ok"]
    print(json.dumps(said[:COMPLAINTS_MAX]))


def _complaints(connection: Any, ways: str) -> Iterator[str]:
    import apsw

    pages = connection.pragma("page_count")
    report = _Report()

    def reading() -> bool:
        return report("pages read", min(connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0], pages), pages)

    connection.set_progress_handler(reading, STEPS)
    for row in connection.execute("PRAGMA quick_check"):
        yield str(row[0])
    if ways == QUICK:
        return
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for done, table in enumerate(tables):
        connection.set_progress_handler(partial(report, "tables compared with their indexes", done, len(tables)), STEPS)
        for row in connection.execute("SELECT * FROM pragma_integrity_check(?)", (table,)):
            yield str(row[0])


class _Report:
    """Print the progress five times a second, and let the check continue."""

    def __init__(self) -> None:
        self._next_s = time.monotonic() + REPORT_EVERY_S

    def __call__(self, doing: str, done: int, total: int) -> bool:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + REPORT_EVERY_S
            print(json.dumps({"doing": doing, "done": done, "total": total}), flush=True)
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
