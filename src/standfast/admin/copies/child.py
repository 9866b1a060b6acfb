"""The process that reads a SQLite file for a copy: `python -P -m standfast.admin.copies.child PATH DIRECTORY NAME`.

The parent process has the file open. It must not open the file again, because closing the second descriptor would drop
its locks. The child prints JSON lines: its progress, then the file that it made, or the error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from standfast.admin.copies import compression
from standfast.admin.copies.manifest import File
from standfast.core.progress import Progress
from standfast.db.sqlite import copies
from standfast.errors import StandfastError, StorageError

NICENESS = 10
"""Writers of the store get the CPU first."""


def run(path: str, work: str, name: str, progress: Progress) -> tuple[File, copies.Facts]:
    """Make the file `name` in `work` from one snapshot of the database at `path`, in a child process."""
    command = [sys.executable, "-P", "-m", __name__, path, work, name]
    last: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            for text in child.stdout:
                last = json.loads(text)
                if "doing" in last:
                    progress(last["doing"], last["done"], last["total"])
        except BaseException:
            child.kill()
            raise
        words = child.stderr.read().strip().rpartition("\n")[2]
    if "file" not in last:
        raise StorageError(last.get("error") or words or f"the reading process ended with code {child.returncode}")
    return File(**last["file"]), copies.Facts(**last["facts"])


def main(path: str, work: str, name: str) -> None:
    raw = os.path.join(work, "raw")
    try:
        os.close(os.open(raw, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        facts = copies.snapshot(path, raw, lambda done, total: _report("reading", done, total))
        made = compression.packed(_blocks(raw), os.path.join(work, name), name)
        os.unlink(raw)
    except StandfastError as error:
        _tell({"error": error.message})
    except OSError as error:
        _tell({"error": error.strerror})
    else:
        _tell({"file": made.as_dict(), "facts": facts._asdict()})


def _blocks(path: str) -> Iterator[bytes]:
    done, total = 0, os.stat(path).st_size
    with open(path, "rb", buffering=0) as file:
        while block := file.read(compression.BLOCK_BYTES):
            done += len(block)
            _report("compressing", done, total)
            yield block


def _report(doing: str, done: int, total: int) -> None:
    _tell({"doing": doing, "done": done, "total": total})


def _tell(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    os.umask(0o077)
    os.nice(NICENESS)
    main(*sys.argv[1:])
