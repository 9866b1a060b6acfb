"""How bytes are laid down: made smaller where that pays, or sealed by a caller's cipher and bound to their place.

Sealing comes after the splice, a row at a time: a cipher makes every byte of a value different each
time, and nothing could be kept once. What is sealed begins with a digest of where it belongs, so that
a row moved elsewhere, or replaced by one nobody sealed, is found out. A store is read as it is
written: with a cipher nothing plain is accepted, without one nothing sealed.

What is sealed is not made smaller: its length would tell of its content.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import blake2b

from standfast.errors import Corrupt, InvalidInput

_BOUND = 16
_PLAIN, _SMALLER, _SEALED = b"p", b"z", b"s"
_WORTH_BYTES = 256
"""Below this nothing is gained by making it smaller."""
_LARGE_BYTES = 16 * 1024
BYTES_MAX = 1 << 30
"""What one row may hold once it is made whole again."""


class Seal:
    """A cipher: `encrypt` and `decrypt` take and give bytes; `decrypt` raises for what was not encrypted by it."""

    def __init__(self, name: str, encrypt: Callable[[bytes], bytes], decrypt: Callable[[bytes], bytes]) -> None:
        self.name = name
        self.encrypt = encrypt
        self.decrypt = decrypt


def shut(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    if seal is None:
        return _packed(data)
    return _SEALED + seal.encrypt(_bound(place) + data)


def opened(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    """What was shut for this place. Raises Corrupt for what was not, InvalidInput if a cipher is missing."""
    kind, data = data[:1], data[1:]
    if seal is None:
        if kind == _SMALLER:
            return _unpacked(place, data)
        if kind != _PLAIN:
            raise InvalidInput(
                f"{_shown(place)} is encrypted", "give the saver the EncryptedSerializer it was written with"
            )
        return data
    if kind != _SEALED:
        raise _forged(place)
    try:
        plain = seal.decrypt(data)
    except Exception as error:
        raise _forged(place) from error
    if plain[:_BOUND] != _bound(place):
        raise _forged(place)
    return plain[_BOUND:]


def _packed(data: bytes) -> bytes:
    """With the mark of how it is laid down; as it is, unless it becomes an eighth shorter at least."""
    size = len(data)
    if size >= _WORTH_BYTES:
        # A window as large as the default costs a small value several times what packing it does.
        window, memory = (-15, 8) if size > _LARGE_BYTES else (-12, 4)
        packing = zlib.compressobj(6, zlib.DEFLATED, window, memory)
        packed = packing.compress(data) + packing.flush()
        if len(packed) <= size - size // 8:
            return _SMALLER + packed
    return _PLAIN + data


def _unpacked(place: tuple[object, ...], data: bytes) -> bytes:
    unpacking = zlib.decompressobj(-15)
    try:
        whole = unpacking.decompress(data, BYTES_MAX)
    except zlib.error as error:
        raise _damaged(place) from error
    if not unpacking.eof or unpacking.unused_data:
        raise _damaged(place)
    return whole


def _damaged(place: tuple[object, ...]) -> Corrupt:
    return Corrupt(f"{_shown(place)} cannot be made whole from what is stored", "standfast doctor")


def _bound(place: tuple[object, ...]) -> bytes:
    return blake2b("\0".join(map(str, place)).encode("utf-8", "surrogatepass"), digest_size=_BOUND).digest()


def _shown(place: tuple[object, ...]) -> str:
    return " ".join(str(part) for part in place if part != "")[:120]


def _forged(place: tuple[object, ...]) -> Corrupt:
    return Corrupt(
        f"{_shown(place)} was not encrypted with this key: it was replaced, or belongs elsewhere",
        "compare with a backup; standfast doctor",
        code="forged",
    )
