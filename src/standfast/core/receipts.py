"""Receipts: the number and the hash of a journal row. With a receipt, `verify` proves later that the row is unchanged.

The hash of a row includes its salt (`h2:`), so that no one can guess the contents from it. Rows without a salt have
`h1:` hashes.
"""

from __future__ import annotations

import re
from operator import itemgetter

from standfast import serial
from standfast.db.contract import Row
from standfast.errors import InvalidInput
from standfast.serial.digests import sha256

_HASHED = (
    "time_us",
    "occurred_us",
    "scope",
    "actor",
    "holder",
    "source",
    "type",
    "subject",
    "session_id",
    "state",
    "stream",
    "version",
    "summary",
    "data",
)
_SALTED = (*_HASHED, "git_dir", "origin")
"""The columns that the hash of a row with a salt covers."""


class Receipt:
    """Proof that a journal row was written: its number and its hash.

    `seq` is None until the transaction has been committed.
    """

    __slots__ = ("_fields", "_salt", "seq")

    def __init__(self, fields: tuple[object, ...], salt: bytes) -> None:
        self._fields = fields
        self._salt = salt
        self.seq: int | None = None

    @property
    def hash(self) -> str:
        return _hash(self._fields, self._salt)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    def __repr__(self) -> str:
        return f"<Receipt {self.seq}>"

    def as_json(self) -> dict[str, serial.Json]:
        return {"seq": self.seq, "hash": self.hash}


_SAID = itemgetter(*_SALTED)


def row_hash(row: Row) -> str:
    """The hash of a journal row."""
    return _hash(_SAID(row), row["salt"])


def _hash(fields: tuple[object, ...], salt: bytes | None) -> str:
    # No text may contain NUL, so NUL separates the fields.
    if salt is None:
        return serial.hash_text(_joined(fields[: len(_HASHED)]))
    return "h2:" + sha256(salt + _joined(fields).encode()).hexdigest()


def _joined(fields: tuple[object, ...]) -> str:
    return "\0".join("" if field is None else f"={field}" for field in fields)


_RECEIPT = r"(\d{1,18}):(h[12]:[0-9a-f]{64})"  # compiled on first use


def parse_receipt(text: str) -> tuple[int, str]:
    """The number and the hash in `4711:h2:…`, or in the JSON object that commands print. Raises InvalidInput."""
    plain = text.strip()
    if plain.startswith("{"):
        found = serial.loads(plain, what="receipt", limit_bytes=10_000)
        found = found.get("receipt", found)
        plain = f"{found.get('seq')}:{found.get('hash')}" if isinstance(found, dict) else plain
    match = re.fullmatch(_RECEIPT, plain)
    if not match:
        raise InvalidInput(
            f"{serial.clean(text, 60)!r} is not a receipt",
            'a receipt is what --json prints: {"seq": 4711, "hash": "h2:…"}, or 4711:h2:…',
        )
    return int(match.group(1)), match.group(2)
