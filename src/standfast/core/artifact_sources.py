"""The arguments of `artifacts.put`: bytes from memory, a file or a stream, a name and a kind."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

from standfast import serial
from standfast.core import artifact_files as files
from standfast.core.checks import NAME_MAX
from standfast.db.store import Store
from standfast.errors import InvalidInput, NotFound, StorageError

KIND_MAX = 100
_KIND = re.compile(r"[a-z0-9][a-z0-9._+/-]*")

Source: TypeAlias = "bytes | bytearray | memoryview | os.PathLike[str] | BinaryIO"


def checked_name(name: str) -> str:
    """A name that is a label: one line of visible characters that no system takes for a path. Raises InvalidInput."""
    fact = None
    if not name or len(name) > NAME_MAX:
        fact = f"has {len(name)} characters, and 1 to {NAME_MAX} are allowed"
    elif "/" in name or "\\" in name:
        fact = "contains a separator"
    elif name in (".", ".."):
        fact = "is a place, not a name"
    elif not name.isprintable() and not all(c.isprintable() or _is_space(c) for c in name):
        fact = "contains a control character or another that cannot be seen"
    elif name != name.strip():
        fact = "begins or ends with a space"
    if fact:
        raise InvalidInput(
            f"the name {serial.clean(name, 60)!r} {fact}", "a name is a label, not a path: for example build.log"
        )
    return name


def _is_space(character: str) -> bool:
    from unicodedata import category

    return category(character) == "Zs"


def checked_kind(kind: str) -> str:
    if len(kind) > KIND_MAX or not _KIND.fullmatch(kind):
        raise InvalidInput(
            f"the kind {serial.clean(kind, 60)!r} is not one", "lower-case letters and digits: log, diff, text/plain"
        )
    return kind


def blocks_of(store: Store, data: Source, max_bytes: int) -> Iterator[bytes]:
    """The bytes of any source in full blocks. Raises InvalidInput for more than `max_bytes`."""
    total = 0
    for block in _from_source(store, data):
        total += len(block)
        if total > max_bytes:
            raise InvalidInput(
                f"more than {max_bytes:,} bytes, the limit of an artifact",
                "split it, or raise artifact_max_bytes in config.toml",
                code="too_large",
            )
        yield block


def _from_source(store: Store, data: Source) -> Iterator[bytes]:
    if isinstance(data, (bytes, bytearray, memoryview)):
        view = memoryview(data).cast("B")
        return (bytes(view[at : at + files.BLOCK_BYTES]) for at in range(0, len(view), files.BLOCK_BYTES))
    if isinstance(data, os.PathLike):
        return _from_path(store, os.fspath(data))
    if callable(getattr(data, "read", None)):
        return _from_stream(data)
    raise InvalidInput(
        f"an artifact is made of bytes, a path or a binary stream, not of {type(data).__name__}",
        "text: text.encode(); a path: pathlib.Path(…)",
    )


def _from_path(store: Store, path: str) -> Iterator[bytes]:
    try:
        seen = os.stat(path)
        if not stat.S_ISREG(seen.st_mode):
            raise InvalidInput(f"{path} is not a regular file", "open it yourself and pass the stream")
        _refuse_database(store, path, seen)
        with open(path, "rb", buffering=0) as file:
            yield from _from_stream(file)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}", "check the path") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}", "check its permissions") from error


def _refuse_database(store: Store, path: str, seen: os.stat_result) -> None:
    """Raise InvalidInput for a file of the store: closing it would drop the locks that SQLite holds in this process."""
    database: str | None = getattr(store.engine, "path", None)
    for own in (database, f"{database}-shm") if database else ():
        try:
            if os.path.samestat(seen, os.stat(own)):
                raise InvalidInput(f"{path} is the store itself", "copy it with: standfast backup")
        except FileNotFoundError:
            continue


def _from_stream(stream: BinaryIO) -> Iterator[bytes]:
    while True:
        parts, wanted = list[bytes](), files.BLOCK_BYTES
        while wanted and (part := _part(stream, wanted)):
            parts.append(part)
            wanted -= len(part)
        if parts:
            yield parts[0] if len(parts) == 1 else b"".join(parts)
        if wanted:
            return


def _part(stream: BinaryIO, wanted: int) -> bytes:
    part: object = stream.read(wanted)
    if not isinstance(part, (bytes, bytearray)) or len(part) > wanted:
        raise InvalidInput("the stream does not read bytes", 'open the file with mode "rb", and blocking')
    return bytes(part)


def own_name(data: Source) -> str:
    """The name of a path or a file, if it is a valid label."""
    own = data if isinstance(data, os.PathLike) else getattr(data, "name", None)
    if not isinstance(own, (str, os.PathLike)) or not os.path.basename(os.fspath(own)):
        raise InvalidInput("these bytes need a name", 'for example: sf.artifacts.put(data, name="build.log")')
    return os.path.basename(os.fspath(own))
