"""Vectors: how they are stored, and how near two of them are, in plain Python.

A vector is stored as its length and its direction, so that each measure of nearness is one sum of products. One
comparison costs about 60 ns per dimension. sqlite-vec and pgvector compare the same bytes faster: record/knowledge.py.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from operator import mul

from standfast.errors import Corrupt, InvalidInput

DIMENSIONS_MAX = 16_000
_LENGTH = struct.Struct("<d")
HEADER_BYTES = _LENGTH.size
FLOAT_BYTES = 4


def packed(vector: Sequence[float], what: str = "a vector") -> bytes:
    """As it is stored. Raises InvalidInput for a value that is no vector of finite numbers."""
    length, direction = _parted(vector, what)
    floats = array("f", direction)
    if sys.byteorder == "big":
        floats.byteswap()
    return _LENGTH.pack(length) + floats.tobytes()


def nearness(to: Sequence[float], by: str = "cosine") -> Callable[[bytes], float]:
    """A function that says of a stored vector how near it is: the larger, the nearer.

    By "cosine" from -1 to 1, by "inner_product" their product, by "l2" their distance, negative.
    """
    wanted_length, wanted = _parted(to, "the vector of a query")

    def near(data: bytes) -> float:
        if len(data) != HEADER_BYTES + FLOAT_BYTES * len(wanted):
            raise other_dimensions(len(data), len(wanted))
        cosine = float(sum(map(mul, wanted, direction(data))))
        if by == "cosine":
            return max(-1.0, min(1.0, cosine))  # of 32 bits, it may pass one by a hair
        length = float(_LENGTH.unpack_from(data)[0])
        if by == "inner_product":
            return cosine * length * wanted_length
        square = length * length + wanted_length * wanted_length - 2 * cosine * length * wanted_length
        return -math.sqrt(max(0.0, square))

    return near


def direction(data: bytes) -> array[float]:
    """The direction of a stored vector."""
    floats = array("f")
    floats.frombytes(data[HEADER_BYTES:])
    if sys.byteorder == "big":
        floats.byteswap()
    return floats


def as_array(data: bytes) -> str:
    """The direction of a stored vector as PostgreSQL reads an array. Nine digits are enough for a number of 32 bits."""
    numbers = direction(data)
    return "{" + ",".join(["%.9g"] * len(numbers)) % tuple(numbers) + "}"


def _parted(vector: Sequence[float], what: str) -> tuple[float, list[float]]:
    """Its length and its direction; one of no length has no direction, and is near to nothing."""
    try:
        numbers = [float(number) for number in vector]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not a list of numbers") from error
    if not 1 <= len(numbers) <= DIMENSIONS_MAX:
        raise InvalidInput(f"{what} has {len(numbers):,} dimensions, and the limit is {DIMENSIONS_MAX:,}")
    length = math.hypot(*numbers)
    if not math.isfinite(length):
        raise InvalidInput(f"{what} holds a number that is not finite")
    return length, [number / length for number in numbers] if length else numbers


def other_dimensions(size: int, wanted: int) -> InvalidInput | Corrupt:
    dimensions, rest = divmod(size - HEADER_BYTES, FLOAT_BYTES)
    if rest or dimensions < 1:
        return Corrupt("a stored vector is cut off", "standfast doctor")
    return InvalidInput(
        f"an item was stored with a vector of {dimensions:,} dimensions, and the query has {wanted:,}",
        "put the items again with the embedding that is asked with",
    )
