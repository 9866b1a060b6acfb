"""The difference between a value and the one before it, as one piece of bytes. Pure functions.

A value is a head and a body. The head is the MessagePack header that counts elements: it changes with every append.
The piece of a new value is its head and the part of its body between the longest common prefix and the longest common
suffix with the old body. For a list that grows, this part is the new element.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_PLACE = struct.Struct(">BII")


class Piece(NamedTuple):
    """The head of the new value, the lengths of the common prefix and suffix, and the bytes between them."""

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
    """The first piece of a segment: the whole value."""
    head = head_size(type, value)
    return Piece(value[:head], 0, 0, value[head:])


def between(type: str, old: bytes, new: bytes) -> Piece:
    """The piece that turns `old` into `new`."""
    cut, head = head_size(type, old), head_size(type, new)
    # Copies, because bytes are compared many times faster than views of them.
    before, after = old[cut:], new[head:]
    prefix = _common(before, after)
    left = min(len(before), len(after)) - prefix
    suffix = _common_end(before, after, left)
    return Piece(new[:head], prefix, suffix, after[prefix : len(after) - suffix])


def head_size(type: str, value: bytes) -> int:
    """The length of the header of a MessagePack array or map; 0 for other values."""
    if type != "msgpack" or not value:
        return 0
    first = value[0]
    if 0x80 <= first <= 0x9F:
        return 1
    return {0xDC: 3, 0xDE: 3, 0xDD: 5, 0xDF: 5}.get(first, 0)


class Building:
    """Rebuilds a value from its pieces, in order."""

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
    """The length of the longest common prefix, by binary search: comparing slices is faster than a loop."""
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
