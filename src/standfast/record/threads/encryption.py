"""The bytes of a row: plain, or encrypted by the caller's cipher and bound to the row.

The difference is computed first and then encrypted, row by row: two encrypted values have no bytes in common. An
encrypted row contains a digest of its place (thread value, checkpoint, channel), so a moved or replaced row raises
Corrupt. With a cipher, a plain row is refused. Without a cipher, an encrypted row is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from standfast.errors import Corrupt, InvalidInput

_BOUND = 16
_PLAIN, _SEALED = b"p", b"s"


class Seal:
    """A cipher. `decrypt` raises for bytes that `encrypt` did not return."""

    def __init__(self, name: str, encrypt: Callable[[bytes], bytes], decrypt: Callable[[bytes], bytes]) -> None:
        self.name = name
        self.encrypt = encrypt
        self.decrypt = decrypt


def shut(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    if seal is None:
        return _PLAIN + data
    return _SEALED + seal.encrypt(_bound(place) + data)


def opened(seal: Seal | None, place: tuple[object, ...], data: bytes) -> bytes:
    """The decrypted bytes of this row. Raises Corrupt if they were encrypted for another row or with another key,
    InvalidInput if the cipher is missing."""
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
        f"{_shown(place)} was not encrypted with this key: it was replaced or moved",
        "compare with a backup; standfast doctor",
        code="forged",
    )
