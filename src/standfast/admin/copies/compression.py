"""Compressed files with their hashes: zstd if the extra is installed, else gzip. Standard tools read both.

The compression levels are the fastest ones, because the daemon takes a copy every hour.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from standfast import modules
from standfast.admin.copies.manifest import File
from standfast.errors import Corrupt, StorageError

BLOCK_BYTES = 1 << 20
GZIP_LEVEL = 1
ZSTD_LEVEL = 1
_GZIP_WBITS = 31


def _zstd() -> Any:
    """The package `zstandard`, or None if the extra is not installed."""
    try:
        import zstandard
    except ImportError:
        return None
    return zstandard


def suffix() -> str:
    """The suffix of the files that this machine writes."""
    return "zst" if _zstd() else "gz"


def packed(blocks: Iterable[bytes], path: str, name: str) -> File:
    """Compress `blocks` into the new file `path`. The caller calls fsync."""
    compressor = _compressor(name)
    raw, done = sha256(), sha256()
    raw_bytes = size_bytes = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb", buffering=0) as file:

        def write(data: bytes) -> None:
            nonlocal size_bytes
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            done.update(data)
            size_bytes += len(data)

        for block in blocks:
            raw.update(block)
            raw_bytes += len(block)
            write(compressor.compress(block))
        write(compressor.flush())
    return File(name, size_bytes, done.hexdigest(), raw_bytes, raw.hexdigest())


def _compressor(name: str) -> Any:
    if name.endswith(".zst"):
        return _zstd().ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()
    return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS)


def unpacked(blocks: Iterable[bytes], file: File) -> Iterator[bytes]:
    """Decompress a file block by block. Raises Corrupt after the last block if a size or hash differs.

    A damaged file yields at most one block more than the raw size.
    """
    done, raw = sha256(), sha256()
    size_bytes = raw_bytes = 0
    decompressor = _decompressor(file.name)
    try:
        for block in blocks:
            done.update(block)
            size_bytes += len(block)
            for part in _parts(decompressor, block):
                raw.update(part)
                raw_bytes += len(part)
                if raw_bytes > file.raw_bytes:
                    raise Corrupt(f"{file.name} has more than {file.raw_bytes} bytes when decompressed")
                yield part
    except (zlib.error, getattr(_zstd(), "ZstdError", zlib.error)) as error:
        raise Corrupt(f"{file.name} cannot be decompressed: {error}") from None
    if (size_bytes, done.hexdigest()) != (file.size_bytes, file.sha256):
        raise Corrupt(f"{file.name} has {size_bytes} bytes and another hash than its manifest says")
    if (raw_bytes, raw.hexdigest()) != (file.raw_bytes, file.raw_sha256):
        raise Corrupt(f"{file.name} decompresses to other bytes than its manifest says")


def _parts(decompressor: Any, block: bytes) -> Iterator[bytes]:
    """Decompress in pieces of 64 KiB, so that a file which expands without end is detected early."""
    for at in range(0, len(block), 64 * 1024):
        yield decompressor.decompress(block[at : at + 64 * 1024])


def _decompressor(name: str) -> Any:
    if not name.endswith(".zst"):
        return zlib.decompressobj(_GZIP_WBITS)
    if (zstd := _zstd()) is None:
        raise StorageError(
            f"{name} is compressed with zstd, and the package zstandard is not installed",
            modules.install("zstd"),
            code="missing_extra",
        )
    return zstd.ZstdDecompressor().decompressobj()
