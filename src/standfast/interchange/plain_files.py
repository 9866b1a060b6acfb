"""Import plain files (`standfast.files`): a mapping becomes state, a list of rows becomes a stream of events.

The name of the file, or `name`, is the namespace of the state or the name of the stream. Another import continues after
the last imported record and adds nothing twice. It keeps a key that has another value in the store. It refuses a stream
whose events are not the first rows of the file. The file is only read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import crash, files, serial
from standfast.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from standfast.record.events import Events
    from standfast.record.state import Entry, State

BATCH = 500
STATE_BATCH = 100
"""Keys in one transaction. On PostgreSQL each key takes a few round trips, and a transaction may last 5 s."""
TYPE = "file.row"


class Taken(NamedTuple):
    """The result of one import of a file."""

    path: str
    dry_run: bool
    to: str
    """`state` or `events`."""
    name: str
    records: int
    added: int
    known: int
    different: list[str]
    """Keys that have another value in the store. The import did not change them."""


def run(sf: Any, path: str, *, name: str | None = None, dry_run: bool = False) -> Taken:
    """Import the records of `path`. Raises NotFound, or InvalidInput if the file is neither a mapping nor a list."""
    if not os.path.isfile(path):
        raise NotFound(f"there is no file at {path}", "standfast import files PATH")
    value = _silently(path)
    name = name or os.path.splitext(os.path.basename(path))[0]
    match value:
        case dict():
            added, known, different = _into_state(sf, name, value, dry_run)
            return Taken(path, dry_run, "state", name, len(value), added, known, different)
        case list():
            added, known = into_stream(sf.events, name, value, path, dry_run)
            return Taken(path, dry_run, "events", name, len(value), added, known, [])
    raise InvalidInput(f"{path} holds one {type(value).__name__}; only a mapping or a list can be imported")


def summary(taken: Taken) -> list[str]:
    to = f"state, namespace {taken.name!r}" if taken.to == "state" else f"the stream {taken.name!r}"
    done = "would add" if taken.dry_run else "added"
    lines = [
        f"{taken.records:,} records in {taken.path}: {done} {taken.added:,} to {to}, {taken.known:,} known already"
    ]
    if taken.different:
        some = ", ".join(taken.different[:10])
        lines.append(f"{len(taken.different):,} keys have another value in the store and were left: {some}")
    return lines


def _silently(path: str) -> Any:
    """The file's value, without the warning that recommends this import."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", files.FileStoreLimit)
        return files.read(path)


def _into_state(sf: Any, namespace: str, value: dict[str, Any], dry_run: bool) -> tuple[int, int, list[str]]:
    for key, one in value.items():
        serial.canonical({key: one})  # every value fits before the first is written
    there = {entry.key: serial.canonical(entry.value) for entry in _entries(sf.state, namespace)}
    new = [key for key in value if key not in there]
    different = [key for key in value if key in there and there[key] != serial.canonical(value[key])]
    if not dry_run:
        for start in range(0, len(new), STATE_BATCH):
            with sf.transaction() as tx:
                for key in new[start : start + STATE_BATCH]:
                    tx.state.swap(key, value[key], version=0, namespace=namespace)
            crash.point("import.after_batch")
    return len(new), len(value) - len(new) - len(different), different


def _entries(state: State, namespace: str) -> Iterator[Entry]:
    after = ""
    while page := state.list(namespace=namespace, after=after, limit=BATCH):
        yield from page
        after = page[-1].key


def into_stream(
    events: Events, stream: str, rows: list[Any], path: str, dry_run: bool, type: str = TYPE
) -> tuple[int, int]:
    """Append the rows that the stream lacks. Returns the number of new rows and of rows it had."""
    for row in rows:
        serial.canonical(row)
    known = _known(events, stream, rows, path, type)
    if not dry_run:
        for start in range(known, len(rows), BATCH):
            batch = [(type, row) for row in rows[start : start + BATCH]]
            events.append_many(stream, batch, expected_version=start)
            crash.point("import.after_batch")
    return len(rows) - known, known


def _known(events: Events, stream: str, rows: list[Any], path: str, type: str) -> int:
    """The number of rows in the stream. Raises Conflict unless they are the first rows of the file."""
    try:
        version = events.stream(stream).version
    except NotFound:
        return 0
    for start in range(0, version, BATCH):
        for n, event in enumerate(events.read(stream, after=start, limit=BATCH), start=start):
            if n >= len(rows) or event.type != type or serial.canonical(event.data) != serial.canonical(rows[n]):
                raise Conflict(
                    f"event {n + 1} of the stream {stream!r} is not row {n + 1} of {path}",
                    "import into a new stream: standfast import files PATH --name NAME",
                )
    return version
