"""SQLite's own check of a file, in a child process: `python -P -m standfast.db.sqlite.integrity PATH STATEMENT`.

The check reads every page and may take minutes, longer than a read of ours may pin its snapshot. A process that
has the file open may not open it a second time: closing that descriptor would drop its locks. A child may.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

FULL, QUICK = "PRAGMA integrity_check(10)", "PRAGMA quick_check(10)"
"""Both read every page; only the full check compares each index with the rows of its table."""


def check(path: str, *, quick: bool, progress: Callable[[float], None]) -> list[str]:
    """What SQLite complains about; nothing for a sound file. `progress` gets the seconds so far, once a second."""
    command = [sys.executable, "-P", "-m", __name__, path, QUICK if quick else FULL]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            while (ended := _ended(child)) is None:
                progress(time.monotonic() - began)
        except BaseException:
            child.kill()
            raise
    out, err = ended
    if child.returncode != 0:
        return [err.strip().rpartition("\n")[2] or f"the check ended with exit code {child.returncode}"]
    said: list[str] = json.loads(out)
    return said


def _ended(child: subprocess.Popen[str]) -> tuple[str, str] | None:
    """What it said, or None if it still runs after a second."""
    try:
        return child.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        return None


def main(path: str, statement: str) -> None:
    import apsw

    assert statement in (FULL, QUICK)
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(10_000)
    said = [str(row[0]) for row in connection.execute(statement)]
    print(json.dumps([] if said == ["ok"] else said))


if __name__ == "__main__":
    main(*sys.argv[1:])
