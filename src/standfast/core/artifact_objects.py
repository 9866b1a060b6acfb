"""The bytes of artifacts as objects in S3: `artifact_bucket = "s3://BUCKET/NAME"` in config.toml.

The row has the digest, the size and the address; the object has the name `NAME/ab/cdef…`, which is its digest. The
object is there before the row, and each read compares the digest. standfast removes no object: other stores may share
the bucket, and the key need not be allowed to delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import NamedTuple

from standfast.core.artifact_files import PREFIX, compared, missing, path_of
from standfast.core.buckets import Bucket
from standfast.errors import Corrupt, StorageError


class Stored(NamedTuple):
    """Bytes that are in the bucket."""

    digest: str
    size_bytes: int
    uri: str


def put(bucket: str, blocks: Iterable[bytes]) -> Stored:
    """Store the bytes under their digest. Raises StorageError if the bucket refuses them.

    An object of that name is replaced: it has the same content, or is damaged.
    """
    from hashlib import sha256

    there, hashed, size_bytes = Bucket.named(bucket), sha256(), 0
    with TemporaryFile() as file:  # the name is the digest, which is known after the last byte
        for block in blocks:  # foreign code: an exception of the caller's stream passes unchanged
            hashed.update(block)
            size_bytes += len(block)
            with _storing(there.shown):
                file.write(block)
        digest = PREFIX + hashed.hexdigest()
        with _storing(there.shown):
            file.seek(0)
            there.put_stream(path_of("", digest), file)
    return Stored(digest, size_bytes, f"{there.shown}/{path_of('', digest)}")


@contextmanager
def _storing(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the artifact was not stored in {shown}: {error.strerror or error}",
            "try again; without artifact_bucket in config.toml it is stored beside the store",
            code="not_stored",
        ) from error


def read(uri: str, digest: str, size_bytes: int) -> Iterator[bytes]:
    """The bytes. After the last one the digest is compared. Raises Corrupt, or StorageError if S3 does not answer."""
    name = path_of("", digest)
    if not uri.endswith(f"/{name}"):
        raise Corrupt(f"{uri[:200]!r} is not the address of {digest}: the row was changed", "standfast verify")
    there = Bucket.named(uri.removesuffix(f"/{name}"))
    try:
        yield from compared(there.read(name), digest, size_bytes)
    except FileNotFoundError:
        raise missing(digest) from None
    except OSError as error:
        raise StorageError(f"{there.shown} cannot be read: {error}", "try again", code="not_read") from error
