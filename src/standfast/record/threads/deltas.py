"""What changed from one value to the next, as one piece: arithmetic over bytes, nothing else.

A value is a head and a body. The head is the few bytes in front that count elements, which change
with every append; the body is compared with the one before, and what differs between the longest
common beginning and the longest common end is the piece. For a list that grows that is the new
element; the cost of finding it is a comparison of memory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_PLACE = struct.Struct(">BII")


class Piece(NamedTuple):
    """The head of the new value, how much of the old body stays at either end, and what comes between."""

    head: bytes
    prefix: int
    suffix: int
    middle: bytes

    def packed(self) -> bytes:
        return _PLACE.pack(len(self.head), self.prefix, self.suffix) + self.head + self.middle


def unpacked(data: bytes) -> Piece:
    size, prefix, suffix = _PLACE.unpack_from(data)
    begin = _PLACE.size + size
    if begin > len(data):
        raise ValueError("a piece ends before its head does")
    return Piece(data[_PLACE.size : begin], prefix, suffix, data[begin:])


def whole(type: str, value: bytes) -> Piece:
    """The first piece of a segment: everything."""
    head = head_size(type, value)
    return Piece(value[:head], 0, 0, value[head:])


def between(type: str, old: bytes, new: bytes) -> Piece:
    """What makes `new` of `old`."""
    cut, head = head_size(type, old), head_size(type, new)
    # Copies, because bytes are compared many times faster than views of them.
    before, after = old[cut:], new[head:]
    prefix = _common(before, after)
    left = min(len(before), len(after)) - prefix
    suffix = _common_end(before, after, left)
    return Piece(new[:head], prefix, suffix, after[prefix : len(after) - suffix])


def head_size(type: str, value: bytes) -> int:
    """How many bytes in front count elements: of a MessagePack array or map, its header."""
    if type != "msgpack" or not value:
        return 0
    first = value[0]
    if 0x80 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}.get(first, 0)


class Building:
    """A value made from its pieces in order; an append costs what it appends."""

    def __init__(self) -> None:
        self.head = b""
        self.body = bytearray()

    def add(self, piece: Piece) -> None:
        size = len(self.body)
        if piece.prefix + piece.suffix > size:
            raise ValueError("a piece keeps more than there was")
        self.head = piece.head
        self.body[piece.prefix : size - piece.suffix] = piece.middle

    def value(self) -> bytes:
        return self.head + bytes(self.body)


def _common(a: bytes, b: bytes) -> int:
    """The length of the longest common beginning: by halves, each a comparison of memory."""
    limit = min(len(a), len(b))
    if b.startswith(a) or a.startswith(b):
        return limit
    low, high = 0, limit  # equal up to `low`, different by `high`
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _common_end(a: bytes, b: bytes, limit: int) -> int:
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle
    return low
