"""The bytes of a row: plain, or encrypted by a caller's cipher and bound to their place.

The splice comes first, then the cipher, one row at a time: a cipher makes every byte of a value different
each time, so a splice would find nothing in common. An encrypted row begins with a digest of its place, so
that a row that was moved or replaced raises Corrupt. With a cipher a plain row is refused, and without one
an encrypted row is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from standfast.errors import Corrupt, InvalidInput

_BOUND = 16
_PLAIN, _SEALED = b"p", b"s"


class Seal:
    """A cipher: `encrypt` and `decrypt` take and give bytes; `decrypt` raises for what was not encrypted by it."""

    def __init__(self, name: str, encrypt: Callable[[bytes], bytes], decrypt: Callable[[bytes], bytes]) -> None:
        self.name = name
        self.encrypt = encrypt
        self.decrypt = decrypt


def shut(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    if seal is None:
        return _PLAIN + data
    return _SEALED + seal.encrypt(_bound(place) + data)


def opened(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    """The decrypted bytes that were encrypted for this row. Raises Corrupt for what was not, InvalidInput if a cipher
    is missing."""
    kind, data = data[:1], data[1:]
    if seal is None:
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
