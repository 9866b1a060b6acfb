"""Write the fixture of the newest schema from the previous one's fixture: `python -m tests.schema_fixtures`."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import apsw

import standfast
from standfast.db.migrations import LATEST

FIXTURES = Path(__file__).parent / "fixtures" / "schemas"


def write() -> Path:
    made = FIXTURES / f"{LATEST:04d}.db"
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "standfast.db"
        shutil.copy(FIXTURES / f"{LATEST - 1:04d}.db", path)
        with standfast.open(path, data_dir=Path(place) / "data") as sf:
            task = sf.tasks.add("a task of the fixture")
            sf.tasks.edit(task.id, title="edited")
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        shutil.copy(path, made)
    return made


if __name__ == "__main__":
    print(write())
