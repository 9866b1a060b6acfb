"""`sf.export(text=DIR)`: write the record of one repository as text for people and git.

    decisions/2026-11.jsonl  tasks/2026-11.jsonl  state.jsonl  gates.jsonl     records; `import text` reads them
    orders.jsonl  loops.jsonl  events/2026-11.tsv                             for reading
    README.md  DECISIONS.md  TASKS.md                                         generated for people
    head.json                                                                 form, store and digest of the journal

The export replaces only files that changed. `.base.json` has the hash of each record at the last export. It is written
after all other files and is not in git. `import text` compares the files with it (text_import.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256

from standfast import crash, files
from standfast.clock import iso
from standfast.config import regular_files
from standfast.core import digests, journal
from standfast.core.progress import Progress, each, quiet
from standfast.db.store import Store
from standfast.errors import InvalidInput, StorageError
from standfast.ids import short, time_us
from standfast.interchange import text_records
from standfast.interchange.bundle_pages import plain
from standfast.interchange.text_records import SINGLE, Fields, Record, month
from standfast.models import Model
from standfast.serial.redaction import redacted

FORM = "standfast.text/1"
HEAD, BASE, IGNORE = "head.json", ".base.json", ".gitignore"
FILE_MAX_BYTES = 64 << 20
LISTED_MAX = 200
"""TASKS.md lists at most this many closed tasks, and DECISIONS.md as many ended decisions, the newest first."""


class TextExport(Model):
    """The result of one export. With `check` nothing was written."""

    directory: str
    records: int
    files: int
    changed: list[str]
    """The files that were written, or with `check` the files that differ."""


def export(store: Store, directory: str, *, check: bool = False, progress: Progress = quiet) -> TextExport:
    """Write the files that differ from the store. With `check`, only list them."""
    _refuse_foreign(directory)
    records, loops = store.read(lambda tx: (text_records.of_store(tx), text_records.loops(tx)))
    made = dict(_files(each("exporting records", records, progress), loops))
    made |= {path: "".join(lines) for path, lines in _events(store, progress).items()}
    changed = [path for path, content in made.items() if _there(directory, path) != content.encode()]
    complete = os.path.exists(os.path.join(directory, HEAD))
    if not check:
        for path in changed:
            _put(directory, path, made[path])
        if changed or not complete:
            _put(directory, HEAD, _head(store))
        put_base(directory, {(one.kind, one.name): one.line for one in records})
    return TextExport(directory, len(records), len(made), changed if changed or complete else [HEAD])


def _refuse_foreign(directory: str) -> None:
    """Refuse a directory that has other files, because an export replaces files."""
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise InvalidInput(f"{directory} is not a directory", "standfast export --text DIR")
    if os.path.isdir(directory) and os.listdir(directory) and not os.path.lexists(os.path.join(directory, HEAD)):
        raise InvalidInput(
            f"{directory} has files and no {HEAD}: it is not a text export",
            "name an empty or a new directory: standfast export --text DIR",
        )


def _head(store: Store) -> str:
    head = {"form": FORM, "store": store.pin[0], "digest": str(digests.extend(store))}
    return json.dumps(head, indent=2, sort_keys=True) + "\n"


# -- files ---------------------------------------------------------------------------------------------


def member(directory: str, path: str) -> bytes:
    """The content of a file of an export. Raises OSError, also for a link, a FIFO or a device."""
    content = regular_files.read(os.path.join(directory, path), FILE_MAX_BYTES + 1, follow=False)
    if len(content) > FILE_MAX_BYTES:
        raise InvalidInput(f"{path} has more than {FILE_MAX_BYTES:,} bytes, which is the limit")
    return content


def _there(directory: str, path: str) -> bytes | None:
    try:
        return member(directory, path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{os.path.join(directory, path)} cannot be replaced: {error.strerror}") from None


def _put(directory: str, path: str, content: str) -> None:
    place = os.path.join(directory, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if os.path.islink(os.path.dirname(place)) and os.path.dirname(path):
        raise StorageError(f"{os.path.dirname(place)} is a symbolic link, and an export writes no file through one")
    crash.point("export.before_file")
    files.replace(place, content.encode())


def base_of(directory: str) -> dict[str, str]:
    """The hash of each record at the last export; empty if this machine never exported."""
    try:
        found = json.loads(member(directory, BASE))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def put_base(directory: str, lines: Mapping[tuple[str, str], str]) -> None:
    put_hashes(directory, {f"{kind}:{name}": hash_of(line) for (kind, name), line in lines.items()})


def put_hashes(directory: str, hashes: Mapping[str, str]) -> None:
    if base_of(directory) != hashes:
        _put(directory, BASE, json.dumps(hashes, sort_keys=True, indent=0) + "\n")


def hash_of(line: str) -> str:
    return sha256(line.encode()).hexdigest()[:24]


# -- contents ------------------------------------------------------------------------------------------


def _files(records: Iterable[Record], loops: Iterable[Fields]) -> Iterator[tuple[str, str]]:
    made: dict[str, list[str]] = {path: [] for path in SINGLE.values()}
    by_kind: dict[str, list[Record]] = {"decision": [], "task": []}
    for one in records:
        made.setdefault(one.file, []).append(one.line + "\n")
        by_kind.setdefault(one.kind, []).append(one)
    yield from ((path, "".join(lines)) for path, lines in made.items())
    orders = [one for one in by_kind["decision"] if one.fields["state"] == "standing"]
    yield "orders.jsonl", "".join(one.line + "\n" for one in orders)
    yield "loops.jsonl", "".join(text_records.text(one) + "\n" for one in loops)
    yield "DECISIONS.md", redacted(_decisions(by_kind["decision"]))
    yield "TASKS.md", redacted(_tasks(by_kind["task"]))
    yield "README.md", _README
    yield IGNORE, f"{BASE}\n"


def _events(store: Store, progress: Progress) -> dict[str, list[str]]:
    """The journal as lines by month. Separate pages are consistent, because the journal is append-only."""
    made: dict[str, list[str]] = {}
    after, last = 0, store.read(journal.last_seq)
    while page := store.read(lambda tx, after=after: text_records.events(tx, after)):  # type: ignore[misc]
        for row in page:
            lines = made.setdefault(f"events/{month(row['time_us'])}.tsv", [_EVENT_HEAD])
            cells = (row["seq"], iso(row["time_us"]), *(row[name] for name in _EVENT[2:]))
            lines.append(redacted(files.tsv_line(cells)))
        after = page[-1]["seq"]
        progress("exporting events", after, last)
    return made


_EVENT = ("seq", "time", "actor", "type", "subject", "state", "summary")
_EVENT_HEAD = "\t".join(_EVENT) + "\n"


def _decisions(found: list[Record]) -> str:
    states = {"standing": "Standing orders", "open": "Open", "": "Done, failed or withdrawn"}
    lines = ["# Decisions", ""]
    for state, title in states.items():
        wanted = [one for one in found if (one.fields["state"] if one.fields["state"] in states else "") == state]
        shown = wanted if state else wanted[-LISTED_MAX:]
        lines += [f"## {title} ({len(wanted):,})", "", *(_decision(one) for one in reversed(shown)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _decision(one: Record) -> str:
    said = one.fields
    parts = [f"- {plain(said['what'])} ({_day(one)}, {plain(said['agent'])}, {short(one.name)})"]
    for name, word in (("why", "because"), ("then", "then"), ("outcome", said["state"])):
        parts += [f"{word}: {plain(said[name])}"] if said.get(name) else []
    return "; ".join(parts)


def _tasks(found: list[Record]) -> str:
    lines = ["# Tasks", ""]
    for state in ("open", "snoozed", "accepted", "closed"):
        wanted = [one for one in found if one.fields["state"] == state]
        shown = sorted(wanted, key=lambda one: (one.fields["priority"], one.name))
        shown = shown if state != "closed" else wanted[: -LISTED_MAX - 1 : -1]
        lines += [f"## {state.capitalize()} ({len(wanted):,})", "", *(_task(one) for one in shown), ""]
    return "\n".join(lines).rstrip() + "\n"


def _task(one: Record) -> str:
    labels = "".join(f", {plain(label)}" for label in one.fields["labels"])
    reason = f": {plain(one.fields['reason'])}" if one.fields["reason"] else ""
    return f"- {plain(one.fields['title'])}{reason} (p{one.fields['priority']}, {_day(one)}, {short(one.name)}{labels})"


def _day(one: Record) -> str:
    return iso(time_us(one.name))[:10]


_README = """# Record of this repository

`standfast export --text DIR` wrote these files. Commit them. The store stays the authority.

| file | content | read by `import text` |
|---|---|---|
| `decisions/YYYY-MM.jsonl` | decisions, by the month of the decision | yes |
| `tasks/YYYY-MM.jsonl` | tasks, by the month of the first report | yes |
| `state.jsonl` | values that do not expire | yes |
| `gates.jsonl` | gates; only a person brings one back | yes |
| `orders.jsonl` | standing orders | no |
| `loops.jsonl` | loops | no |
| `events/YYYY-MM.tsv` | the journal without payloads | no |
| `DECISIONS.md`, `TASKS.md` | the same for people | no |
| `head.json` | form, store and digest of the journal | yes |

One record is one line with sorted keys. Known forms of secrets are replaced by `[redacted:KIND]`.

Go back to an old commit:

    git checkout COMMIT -- DIR
    standfast import text DIR             # shows what would change
    standfast import text DIR --commit    # changes it

Compare files and store: `standfast export --text DIR --check` exits 1 on a difference.
"""
