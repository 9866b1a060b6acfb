"""The history of a text export: events from `git log`, and records from these events.

`import text DIR --log STREAM` appends one event for each record that a commit added, changed or removed. It reads the
history of DIR along the first parents and continues after the last event of the stream. `import text --events STREAM`
restores the newest version of each record in the stream.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from standfast import serial
from standfast.errors import InvalidInput, NotFound
from standfast.interchange import text_records
from standfast.interchange.plain_files import BATCH, into_stream
from standfast.interchange.text_records import FOLDERS, SINGLE, Record
from standfast.record.events import Events

TYPE = "text.change"
GIT_MAX_S = 600
_LOG = (
    *("git", "--no-pager", "log", "--reverse", "--first-parent", "-m", "--no-color", "--no-ext-diff", "--no-textconv"),
    *("--no-renames", "--relative", "-p", "-U0", "--format=%x00%H%x09%aI%x09%an", "--", "."),
)
_KINDS = {folder: kind for kind, folder in FOLDERS.items()}


def append(events: Events, directory: str, stream: str, *, dry_run: bool) -> tuple[int, int]:
    """Append the history of the directory. Returns the number of new events and of events that the stream had."""
    return into_stream(events, stream, list(changes(directory)), directory, dry_run, TYPE)


def changes(directory: str) -> Iterator[dict[str, Any]]:
    """A mapping for each record that a commit added, changed or removed, the oldest first."""
    for part in _log(directory).split("\0")[1:]:
        head, _, diff = part.partition("\n")
        commit, time, author = head.split("\t", 2)
        was, now = _lines(diff)
        for key in [*now, *(one for one in was if one not in now)]:
            change = "removed" if key not in now else "changed" if key in was else "added"
            record = (now.get(key) or was[key]).fields
            yield {"commit": commit, "time": time, "author": author, "change": change, "kind": key[0], "record": record}


def _log(directory: str) -> str:
    if not os.path.isdir(directory):
        raise NotFound(f"there is no directory {directory}", "standfast export --text DIR writes one")
    try:
        done = subprocess.run(_LOG, cwd=directory, capture_output=True, check=False, timeout=GIT_MAX_S)
    except FileNotFoundError:
        raise NotFound("git is not installed, and the history of a text export is in git") from None
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"git log in {directory} did not end within {GIT_MAX_S} s", "run: git gc") from None
    if done.returncode:
        reason = serial.clean(done.stderr.decode(errors="replace"), 200)
        raise InvalidInput(
            f"git has no history of {directory}: {reason}", "commit the directory first: git add, git commit"
        )
    return done.stdout.decode(errors="replace")


def _lines(diff: str) -> tuple[dict[tuple[str, str], Record], dict[tuple[str, str], Record]]:
    """The records in the removed and in the added lines of a diff. Other lines are skipped."""
    kind = ""
    sides: tuple[dict[tuple[str, str], Record], dict[tuple[str, str], Record]] = ({}, {})
    for line in diff.split("\n"):
        if line.startswith(("--- ", "+++ ")):
            kind = kind if line.endswith("/dev/null") else _kind(line[6:].strip())
        elif kind and line[:2] in ("-{", "+{"):
            with suppress(InvalidInput):
                one = text_records.of_line(kind, line[1:].encode(), "")
                sides[line[0] == "+"][kind, one.name] = one
    return sides


def _kind(path: str) -> str:
    folder = path.partition("/")[0]
    return _KINDS.get(folder) or next((kind for kind, file in SINGLE.items() if file == path), "")


def records(events: Events, stream: str) -> list[Record]:
    """The newest version of each record in a stream, also of records that a commit removed."""
    found: dict[tuple[str, str], Record] = {}
    after = 0
    while page := events.read(stream, after=after, limit=BATCH):
        for event in page:
            data = event.data
            if event.type != TYPE or not isinstance(data, dict) or data.get("kind") not in text_records.KINDS:
                raise InvalidInput(
                    f"event {event.version} of {stream!r} is not a change of a record",
                    "standfast import text DIR --log STREAM",
                )
            one = text_records.checked(str(data["kind"]), data.get("record"))
            found[one.kind, one.name] = one
        after += len(page)
    return sorted(found.values(), key=lambda one: (text_records.KINDS.index(one.kind), one.name))
