"""The manifest of a copy: its contents, with the hash of each file.

A manifest is JSON with its own hash, so that damage is detected. `format` increases when an older standfast cannot
restore the copy.
"""

from __future__ import annotations

import json
import re
from typing import Any

from standfast import modules, serial
from standfast.clock import iso
from standfast.errors import Corrupt, SchemaTooNew, StorageError
from standfast.ids import is_id
from standfast.models import Model

FORMAT = 1
MAX_BYTES = 256 << 20
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FILE = re.compile(r"(cpy_[0-9a-z]{26})\.(db|rows)\.(zst|gz)")


class File(Model):
    """The one compressed file of a copy."""

    name: str
    size_bytes: int
    sha256: str
    raw_bytes: int
    raw_sha256: str


class Rows(Model):
    """One table of a copy."""

    rows: int
    hash: str | None = None
    """The sum of its row hashes; only in copies by rows."""


class Manifest(Model):
    """The description of a copy."""

    id: str
    store_id: str
    epoch: int
    engine: str
    schema: int
    seq: int
    """The highest sequence number of the journal in it."""
    digest: str | None
    """The sequence number, rows and digest of the journal, for `verify --against`.

    None in a copy before a migration or a destructive command: it is taken without opening the store.
    """
    taken_us: int
    host: str
    version: str
    """The version of standfast that took the copy."""
    why: str
    note: str | None
    file: File
    tables: dict[str, Rows]
    artifacts: dict[str, int]
    """Digest and size of each artifact."""
    unreadable: list[str]
    """Artifacts that the store could not read when the copy was taken."""

    @property
    def size_bytes(self) -> int:
        """The compressed file. Artifacts are shared with other copies."""
        return self.file.size_bytes

    @property
    def by_rows(self) -> bool:
        return ".rows." in self.file.name

    def dumps(self) -> bytes:
        data: dict[str, Any] = {
            "format": FORMAT,
            **self.as_dict(),
            "taken": iso(self.taken_us),
            "file": self.file.as_dict(),
            "tables": {name: rows.as_dict() for name, rows in self.tables.items()},
        }
        return json.dumps({**data, "sha256": _own_hash(data)}, indent=1).encode() + b"\n"


def name_of(copy_id: str) -> str:
    return f"{copy_id}.json"


def loads(text: bytes, copy_id: str, place: str) -> Manifest:
    """Read a manifest. Raises Corrupt or SchemaTooNew naming the copy."""
    try:
        data = json.loads(text)
        format = data.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise damaged(copy_id, place, "its manifest is not readable") from None
    if isinstance(format, int) and format > FORMAT:
        raise SchemaTooNew(
            f"the copy {copy_id} in {place} has format {format}; this standfast reads formats up to {FORMAT}",
            modules.UPGRADE,
            code="copy_too_new",
        )
    try:
        if data.pop("sha256") != _own_hash({"format": format, **data}):
            raise damaged(copy_id, place, "its manifest was changed")
        del data["taken"]
        file, tables = File(**data.pop("file")), {name: Rows(**rows) for name, rows in data.pop("tables").items()}
        found = Manifest(file=file, tables=tables, **data)
    except (KeyError, TypeError, AttributeError):
        raise damaged(copy_id, place, "its manifest lacks fields") from None
    named = _FILE.fullmatch(found.file.name)
    digests = all(DIGEST.fullmatch(digest) for digest in found.artifacts)
    if found.id != copy_id or not is_id(found.store_id) or named is None or named[1] != copy_id or not digests:
        raise damaged(copy_id, place, "its manifest names another copy")
    return found


def damaged(copy_id: str, place: str, fact: str) -> Corrupt:
    return Corrupt(
        f"the copy {copy_id} in {place} is damaged: {fact}",
        "the other copies are not affected: standfast backup list",
        code="copy_damaged",
    )


def failed(copy_id: str, place: str, doing: str, reason: str) -> StorageError:
    """The error for a place that cannot be read or written."""
    return StorageError(
        f"the copy {copy_id} was not {doing} {place}: {reason}",
        "the other copies are not affected: standfast backup list",
        code="copy_failed",
    )


def _own_hash(data: dict[str, Any]) -> str:
    return serial.hash_text(serial.canonical(data))
