"""Buckets of S3 and compatible services, through `obstore` (extra `s3`), for copies and the bytes of artifacts.

Credentials come only from the environment. Errors are OSError with one line, which contains no credential.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

from standfast import modules
from standfast.errors import InvalidInput, StorageError

BLOCK_BYTES = 1 << 20
RETRIES_MAX = 4
"""Retries of one request. They take about a second while a service refuses connections."""


class Entry(NamedTuple):
    """One file of a place."""

    name: str
    size_bytes: int
    written_us: int


class Bucket:
    """A prefix of a bucket. A file appears as a whole: S3 has no half-written objects."""

    def __init__(self, store: Any, shown: str, prefix: str) -> None:
        self._store = store
        self.shown = shown
        self._prefix = prefix

    @classmethod
    def named(cls, url: str) -> Bucket:
        """s3://BUCKET/PREFIX. Raises InvalidInput for a URL with a password, StorageError without `obstore`."""
        name, _, prefix = url.removeprefix("s3://").partition("/")
        if not name or "@" in name:
            raise InvalidInput(
                "a bucket is named s3://BUCKET/NAME, without a key in it", "set AWS_ACCESS_KEY_ID in the environment"
            )
        modules.load("obstore.store")
        try:
            from obstore.store import S3Store
        except ImportError:
            raise StorageError("S3 needs the package obstore", modules.install("s3"), code="missing_extra") from None
        with _os_errors():
            plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
            store = S3Store(name, client_options={"allow_http": plain}, retry_config={"max_retries": RETRIES_MAX})
        return cls(store, f"s3://{name}/{prefix}".rstrip("/"), prefix.strip("/"))

    def of(self, store_id: str) -> Bucket:
        return Bucket(self._store, f"{self.shown}/{store_id}", f"{self._prefix}/{store_id}".lstrip("/"))

    def stores(self) -> list[str]:
        with _os_errors():
            found = self._store.list_with_delimiter(self._prefix or None)["common_prefixes"]
        return sorted(name for path in found if (name := path.rstrip("/").rpartition("/")[2]).startswith("sto_"))

    def put(self, name: str, path: str) -> None:
        with open(path, "rb") as file:
            self.put_stream(name, file)
        os.unlink(path)

    def put_stream(self, name: str, stream: IO[bytes]) -> None:
        """Store the rest of a seekable file. When this returns, the object is complete."""
        with _os_errors():
            self._store.put(self._path(name), stream)

    def put_bytes(self, name: str, data: bytes) -> None:
        with _os_errors():
            self._store.put(self._path(name), data)

    def read(self, name: str) -> Iterator[bytes]:
        with _os_errors():
            for block in self._store.get(self._path(name)).stream(min_chunk_size=BLOCK_BYTES):
                yield bytes(block)

    def entries(self, under: str = "") -> Iterator[Entry]:
        with _os_errors():
            if under:
                found = [one for page in self._store.list(self._path(under)) for one in page]
            else:
                found = list(self._store.list_with_delimiter(self._prefix)["objects"])
        for one in found:
            name = one["path"].removeprefix(f"{self._prefix}/")
            yield Entry(name, one["size"], int(one["last_modified"].timestamp() * 1_000_000))

    def remove(self, name: str) -> None:
        with _os_errors(), suppress(FileNotFoundError):
            self._store.delete(self._path(name))

    @contextmanager
    def working(self) -> Iterator[str]:
        work = tempfile.mkdtemp(prefix="standfast-copy-")
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @contextmanager
    def locked(self, *, alone: bool) -> Iterator[None]:
        """Do nothing: S3 has no locks. `forget` during a copy may remove an artifact of it; verifying finds that."""
        yield

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}".lstrip("/")


@contextmanager
def _os_errors() -> Iterator[None]:
    """Turn errors of the service into OSError with one line, which contains no credential."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, ValueError) as error:
        raise OSError(str(error).strip().partition("\n")[0][:300]) from None
