"""Values in segments: which row a new value becomes, how a value is rebuilt from its rows, and the cache.

A segment begins with a whole value. Each later row has the difference from the row before. When the differences are
CHANGES_MAX times as large as the first value, a new segment begins. So a value is read by one short scan, and all
segments together are not much larger than the data that was new.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from standfast.db.contract import Row
from standfast.errors import Corrupt, InvalidInput
from standfast.record.threads import deltas
from standfast.record.threads.encryption import Seal, opened, shut
from standfast.record.threads.models import Value

ROW_BYTES = 100
"""The overhead of a row."""
CHANGES_MAX = 4
"""The size of all differences in a segment, in sizes of its first value. More makes reads longer, less takes space."""
PIECES_MAX = 4000
SPARE_BYTES = 1024
"""A first value smaller than this counts as this size, so that a small value does not begin segments often."""
CACHE_BYTES = 64 * 1024 * 1024
VALUE_MAX_BYTES = 256 * 1024 * 1024


class Known(NamedTuple):
    """A value, the size of the first value of its segment, and the size of the differences up to it."""

    type: str
    data: bytes
    base_bytes: int
    spent_bytes: int


class Part(NamedTuple):
    """One row to be written: a whole value (n = 0), or the difference from the value before."""

    segment: str
    n: int
    type: str
    data: bytes
    known: Known

    @property
    def ref(self) -> str:
        return f"{self.segment}:{self.n}"


def split(ref: str) -> tuple[str, int]:
    segment, _, n = ref.partition(":")
    return segment, int(n)


def made(value: Value, before: tuple[str, Known] | None, seal: Seal | None) -> Part | None:
    """The row for `value` after the value `before`; None if both are equal."""
    type, data = value
    if len(data) > VALUE_MAX_BYTES:
        raise InvalidInput(f"a value has {len(data):,} bytes, and the limit is {VALUE_MAX_BYTES:,}")
    if before is not None and before[1].type == type:
        ref, old = before
        if old.data == data:
            return None
        segment, n = split(ref)
        piece = deltas.between(type, old.data, data).packed()
        spent = old.spent_bytes + len(piece) + ROW_BYTES
        if n < PIECES_MAX and spent <= CHANGES_MAX * max(old.base_bytes, SPARE_BYTES):
            return _part(segment, n + 1, type, piece, Known(type, data, old.base_bytes, spent), seal)
    known = Known(type, data, len(data), 0)
    return _part(os.urandom(8).hex(), 0, type, deltas.whole(type, data).packed(), known, seal)


def _part(segment: str, n: int, type: str, piece: bytes, known: Known, seal: Seal | None) -> Part:
    return Part(segment, n, type, shut(seal, ("value", segment, n, type), piece), known)


def built(segment: str, rows: Iterable[Row], wanted: set[int], seal: Seal | None) -> dict[str, Known]:
    """The wanted values of one segment, from its rows in order. Raises Corrupt if a row is missing."""
    building, found, base, spent, next_n = deltas.Building(), dict[str, Known](), 0, 0, 0
    for row in rows:
        n, type = row["n"], row["type"]
        data = opened(seal, ("value", segment, n, type), row["data"])
        try:
            if n != next_n:
                raise ValueError("a row is missing")
            building.add(deltas.unpacked(data))
        except (ValueError, IndexError) as error:
            raise _damaged(segment, n) from error
        if n == 0:
            base = len(building.body) + len(building.head)
        else:
            spent += len(data) + ROW_BYTES
        if n in wanted:
            found[f"{segment}:{n}"] = Known(type, building.value(), base, spent)
        next_n = n + 1
    if missing := [n for n in wanted if f"{segment}:{n}" not in found]:
        raise _damaged(segment, missing[0])
    return found


def _damaged(segment: str, n: int) -> Corrupt:
    return Corrupt(f"value {segment}:{n} of a thread cannot be made from its rows", "standfast doctor")


class Cache:
    """Values that were read or written lately, so that a put need not read them. Bounded by bytes.

    The value of a reference never changes, so the cache is never stale. A put checks in its transaction that the value
    is still in the store.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._mutex = threading.Lock()
        self._values: OrderedDict[str, Known] = OrderedDict()
        self._heads: OrderedDict[tuple[str, str, str], dict[str, str]] = OrderedDict()
        self._bytes = 0
        self._limit = limit_bytes

    def value(self, ref: str) -> Known | None:
        with self._mutex:
            found = self._values.get(ref)
            if found is not None:
                self._values.move_to_end(ref)
            return found

    def keep(self, values: dict[str, Known], instead_of: Iterable[str] = ()) -> None:
        with self._mutex:
            for ref in instead_of:
                self._drop(ref)
            for ref, known in values.items():
                self._drop(ref)
                self._values[ref] = known
                self._bytes += len(known.data)
            while self._bytes > self._limit and self._values:
                self._drop(next(iter(self._values)))

    def _drop(self, ref: str) -> None:
        gone = self._values.pop(ref, None)
        if gone is not None:
            self._bytes -= len(gone.data)

    def parts(self, place: tuple[str, str, str]) -> dict[str, str] | None:
        with self._mutex:
            return self._heads.get(place)

    def keep_parts(self, place: tuple[str, str, str], parts: dict[str, str] | None) -> None:
        with self._mutex:
            self._heads.pop(place, None)
            if parts is not None:
                self._heads[place] = parts
                if len(self._heads) > 1000:
                    self._heads.popitem(last=False)
