"""The spool: files that hold records while the store cannot be written.

A hook writes to the first of these directories that it can write. In a sandbox it can usually write only the
directory of the workspace.

    the data directory's `spool/`  >  the workspace's `.standfast/spool/`  >  a private one in $TMPDIR

A hook appends one line to `open.ndjson`, with one write under a shared lock. A process that can write the store renames
the file, stores its records and removes it. If a writer still has its lock, the process does not wait: it leaves the
file to the next process. After a kill, the next process stores the records again, and a stored record adds nothing.

A workspace can come from a stranger. So standfast follows no link, uses only files of its own user that no other user
can write, and ignores a spool that git tracks. A full spool drops later records and counts them.

A seal is a keyed hash; its key is in the data directory. A record without this account's seal is stored as `said`, for
the workspace of its spool and for the actor `unsealed`, in a session of its own and with a marked summary. It changes
no row that standfast recorded itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import crash
from standfast.config.scope import OUTSIDE, Label
from standfast.interchange.hooks.payloads import AGENTS, Heard
from standfast.interchange.hooks.spool_paths import ASIDE, KEY, LOST, OPEN, TORN, places, waiting
from standfast.serial.digests import blake2b

if TYPE_CHECKING:
    from standfast.db.store import Store

__all__ = ["append", "drain", "drain_everywhere", "key", "places", "waiting"]

SPOOL_MAX_BYTES = 16 << 20
LINE_MAX_BYTES = 1 << 20
TRIES_MAX = 20
BATCH_MAX = 50
FILES_MAX = 1000
FILE_MAX_BYTES = 2 * SPOOL_MAX_BYTES
"""standfast never writes a larger file, so a larger one is ignored."""
DRAINED_MAX_BYTES = 8 << 20
DRAINED_MAX_S = 2.0
"""The most bytes and seconds that a command of a person drains. The next command or the daemon drains the rest."""
INDEX_MAX_BYTES = 64 << 20
UNSEALED = "unsealed"


class Record(NamedTuple):
    """One line of a spool."""

    actor: str
    scope: str
    label: Label
    heard: Heard
    sealed: bool


class Drained(NamedTuple):
    """The result of draining spools."""

    kept: int
    """Records that were new to the store."""
    broken: int
    lost: int
    """Records that were dropped because the spool was full."""
    left: bool
    """True if records are left: the limit was reached, or another process has a file."""


# -- writes ------------------------------------------------------------------------------------------


def append(
    places: list[str], data_dir: str, actor: str, scope: str, heard: Heard, *, label: Label = OUTSIDE
) -> str | None:
    """Append one record to the first spool that can be written; its path, or None. Never raises OSError."""
    with suppress(OSError):
        os.mkdir(data_dir, 0o700)  # with a store on PostgreSQL the directory may not exist yet
    line = _line(actor, scope, label, heard, key(data_dir))
    crash.point("spool.before_append")
    for place in places:
        try:
            if _is_tracked(place):
                continue
            with _directory(place, make=True) as directory:
                _append(directory, line)
        except OSError:
            continue
        crash.point("spool.after_append")
        return place
    return None


def _line(actor: str, scope: str, label: Label, heard: Heard, secret: bytes | None) -> bytes:
    record = {"v": 1, "actor": actor, "scope": scope, **label.as_dict(), **heard.as_dict()}
    text = json.dumps(record, ensure_ascii=True, separators=(",", ":"))
    if len(text) > LINE_MAX_BYTES:
        record |= {"input": None, "output": None, "facts": None}
        text = json.dumps(record, ensure_ascii=True, separators=(",", ":"))
    # Start with a line break too: a killed writer may have left half a line.
    return f"\n{_seal(text, secret)} {text}\n".encode()


def _append(directory: int, line: bytes) -> None:
    if _size(directory) + len(line) > SPOOL_MAX_BYTES:
        fd = _open(LOST, os.O_WRONLY | os.O_APPEND | os.O_CREAT, directory)
        try:
            os.write(fd, b"x")
        finally:
            os.close(fd)
        return
    for _ in range(TRIES_MAX):
        fd = _open(OPEN, os.O_WRONLY | os.O_APPEND | os.O_CREAT, directory)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # If it was renamed between open and lock, another process reads and removes it.
            if os.stat(OPEN, dir_fd=directory, follow_symlinks=False).st_ino == os.fstat(fd).st_ino:
                if os.write(fd, line) != len(line):
                    raise OSError("only a part of the line was written")
                os.fdatasync(fd)
                return
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            os.close(fd)
    raise OSError(f"the spool was renamed {TRIES_MAX} times during this write")


def _size(directory: int) -> int:
    total = 0
    for name in os.listdir(directory)[: FILES_MAX + 1]:
        with suppress(FileNotFoundError):
            total += os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    return total


# -- drain -------------------------------------------------------------------------------------------


class _Limit:
    """The limits of one drain: records, bytes and time."""

    def __init__(self, records: int, within_s: float | None) -> None:
        import time

        self._clock = time.monotonic
        self._end = None if within_s is None else self._clock() + within_s
        self._records = records
        self._bytes = None if within_s is None else DRAINED_MAX_BYTES

    def batch(self) -> int:
        """The size of the next batch; 0 when a limit is reached."""
        if (self._end is not None and self._clock() > self._end) or (self._bytes is not None and self._bytes <= 0):
            return 0
        return min(self._records, BATCH_MAX)

    def took(self, lines: list[bytes]) -> None:
        self._records -= len(lines)
        if self._bytes is not None:
            self._bytes -= sum(map(len, lines))


def drain(
    store: Store, places: list[str], data_dir: str, *, limit: int = 100_000, within_s: float | None = None
) -> Drained:
    """Store at most `limit` records from the spools in `places`, the oldest file first, and remove their files.

    `within_s` also limits the time, and then DRAINED_MAX_BYTES the size. Raises StorageError if the store cannot be
    written; then the rest stays in the spools.
    """
    try:
        secret = _key(data_dir)
    except OSError:  # without the key, sealed records would count as unsealed, and be stored a second time later
        return Drained(0, 0, 0, bool(waiting(places)))
    allowed = _Limit(limit, within_s)
    kept = broken = lost = 0
    left = False
    for place in waiting(places):
        if _is_tracked(place):
            continue  # the spool came with a repository
        try:
            with _directory(place, make=False) as directory:
                lost += _take_lost(directory)
                _remove_torn(directory)
                _take_aside(directory)
                for name in sorted(name for name in os.listdir(directory) if name.endswith(ASIDE)):
                    if not allowed.batch():
                        left = True
                        break
                    done = _drain_file(store, directory, name, _Source(place, secret), allowed)
                    if done is None:
                        left = True
                        continue
                    kept, broken, left = kept + done[0], broken + done[1], left or done[2]
        except OSError:
            left = True  # the spool belongs to another user or is not safe to read: `doctor` reports it
    if broken or lost:
        _journal_lost(store, broken, lost)
    return Drained(kept, broken, lost, left)


def drain_everywhere(store: Store, data_dir: str) -> Drained:
    """Drain the spools of all workspaces with a recent session. The daemon calls this."""
    from standfast.config.scope import repository
    from standfast.interchange.hooks.record import Hooks

    found = places(data_dir, None)
    for cwd in Hooks(store).workspaces():
        root = repository(cwd)
        found += places(data_dir, root.root if root is not None else cwd)
    return drain(store, list(dict.fromkeys(found)), data_dir)


def _take_aside(directory: int) -> None:
    import time

    with suppress(FileNotFoundError):
        name = f"{time.time_ns()}-{os.urandom(4).hex()}{ASIDE}"
        os.rename(OPEN, name, src_dir_fd=directory, dst_dir_fd=directory)


def _remove_torn(directory: int) -> None:
    """Remove files whose writer was killed before the rename. The original file still has all records."""
    for name in [name for name in os.listdir(directory) if name.endswith(ASIDE + TORN)]:
        with suppress(OSError):  # the file was removed meanwhile, belongs to another user, or is still being written
            fd = _open(name, os.O_RDWR, directory)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=directory)
            finally:
                os.close(fd)


def _take_lost(directory: int) -> int:
    try:
        size = os.stat(LOST, dir_fd=directory, follow_symlinks=False).st_size
        os.unlink(LOST, dir_fd=directory)
    except FileNotFoundError:
        return 0
    return size


class _Source(NamedTuple):
    """The spool of some records."""

    place: str
    secret: bytes | None

    @property
    def root(self) -> str | None:
        """The workspace; None for the data directory and $TMPDIR."""
        return _workspace(self.place)


def _workspace(place: str) -> str | None:
    marker = os.path.dirname(place)
    return os.path.dirname(marker) if os.path.basename(marker) == ".standfast" else None


def _drain_file(
    store: Store, directory: int, name: str, source: _Source, allowed: _Limit
) -> tuple[int, int, bool] | None:
    """Store the records of one file: (new, broken, some left). None if a writer has it or it is too large."""
    try:
        fd = _open(name, os.O_RDWR, directory)
    except FileNotFoundError:
        return 0, 0, False
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        if os.fstat(fd).st_size > FILE_MAX_BYTES:
            return None
        lines = [line for line in _read(fd).split(b"\n") if line.strip()]
        new = broken = at = 0
        while at < len(lines) and (size := allowed.batch()):
            now = lines[at : at + size]
            records = [record for line in now if (record := _record(line, source.secret)) is not None]
            new += _keep(store, source, records)
            broken += len(now) - len(records)
            at += len(now)
            allowed.took(now)
        if at < len(lines):
            _write_rest(directory, lines[at:])
        crash.point("spool.before_remove")
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        return new, broken, at < len(lines)
    finally:
        os.close(fd)


def _keep(store: Store, source: _Source, records: list[Record]) -> int:
    """Store one batch, in one transaction for each run of records of the same actor."""
    from standfast.interchange.hooks.record import keep_late

    if not all(record.sealed for record in records):
        place = _unsealed_place(store, source)
        records = [record if record.sealed else _unsealed(record, place) for record in records]
    new = 0
    for (actor, scope, label), group in groupby(records, key=lambda one: (one.actor, one.scope, one.label)):
        crash.point("spool.before_keep")
        new += keep_late(store, actor, scope, [(record.heard, record.sealed) for record in group], label=label)
        crash.point("spool.after_keep")
    return new


class _Place(NamedTuple):
    scope: str
    label: Label
    root: str | None


def _unsealed_place(store: Store, source: _Source) -> _Place:
    from standfast.config.scope import repository

    found = repository(source.root) if source.root else None
    return _Place(store.caller.scope, found.label if found is not None else OUTSIDE, source.root)


def _unsealed(record: Record, place: _Place) -> Record:
    """The record, marked as unsealed and bound to this workspace."""
    heard = record.heard
    where = blake2b((place.root or "").encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    told = heard.replace(
        native=f"{UNSEALED}:{where}:{heard.native}"[:200],
        cwd=place.root,
        summary=f"[{UNSEALED}] {heard.summary or ''}".strip(),
    )
    return Record(UNSEALED, place.scope, place.label, told, sealed=False)


def _is_tracked(place: str) -> bool:
    """Whether git tracks files in this spool. Then they came with the repository, and no hook wrote them."""
    from standfast.config import regular_files

    root = _workspace(place)
    if root is None:
        return False
    try:
        directory = os.path.join(root, ".git")
        if os.path.isfile(directory):
            written = regular_files.read(directory, 4096).decode("utf-8", "surrogateescape")
            directory = os.path.join(root, written.partition("gitdir:")[2].strip())
        indexes = [name for name in os.listdir(directory) if name == "index" or name.startswith("sharedindex.")]
    except OSError:
        return False
    for name in indexes:
        with suppress(OSError):
            data = regular_files.read(os.path.join(directory, name), INDEX_MAX_BYTES)
            # Version 4 of the index leaves out the beginning that a path shares with the path before.
            if (b"spool/" if data[4:8] == b"\0\0\0\4" else b".standfast/spool/") in data:
                return True
    return False


def _write_rest(directory: int, lines: list[bytes]) -> None:
    """Write the records over the limit to a file whose name sorts first. After a kill, both files are there."""
    name = f"0-{os.urandom(8).hex()}{ASIDE}"
    fd = _open(name + TORN, os.O_WRONLY | os.O_CREAT | os.O_EXCL, directory)
    with os.fdopen(fd, "wb") as file:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # otherwise `_remove_torn` of another process removes it
        file.write(b"\n".join(lines) + b"\n")
        file.flush()
        os.fsync(file.fileno())
        os.rename(name + TORN, name, src_dir_fd=directory, dst_dir_fd=directory)


def _read(fd: int) -> bytes:
    parts = []
    at = 0
    while at < FILE_MAX_BYTES and (part := os.pread(fd, 1 << 20, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _record(line: bytes, secret: bytes | None) -> Record | None:
    """The record in a line; None if the line is no valid record."""
    seal, _, text = line.partition(b" ")
    try:
        value = json.loads(text)
        actor, scope = value.pop("actor"), value.pop("scope")
        label = Label(value.pop("git_dir", None), value.pop("origin", None))
        if value.pop("v") != 1 or not _fits(value, actor, scope, label):
            return None
        heard = Heard(**value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    sealed = secret is not None and seal.decode("ascii", "replace") == _seal(text.decode(), secret)
    return Record(actor, scope, label, heard, sealed)


_TEXTS = ("cwd", "node", "call_id", "tool", "input", "output", "status", "summary")
_NUMBERS = ("exit_code", "duration_us")
_STATUSES = (None, "pending", "ok", "error", "cancelled", "unknown")


def _fits(value: dict[str, Any], actor: Any, scope: Any, label: Label) -> bool:
    """Whether the store can hold the values of a line. Any process may have written the line."""
    from standfast.interchange.hooks.record import TYPES

    words = (actor, scope, value.get("agent"), value.get("kind"), value.get("name"), value.get("native"))
    numbers = [value.get("at_us"), *(value[name] for name in _NUMBERS if value.get(name) is not None)]
    texts = [value[name] for name in _TEXTS if value.get(name) is not None]
    texts += [part for part in (label.git_dir, label.origin) if part is not None]
    return (
        all(isinstance(word, str) and len(word) <= 1000 and word.isprintable() for word in words)
        and bool(actor and value["native"])
        and value["agent"] in AGENTS
        and value["kind"] in TYPES
        and len(value["native"]) <= 200
        and value.get("status") in _STATUSES
        and (value.get("call_id") is None or (value["status"] is not None and value["tool"] is not None))
        and all(isinstance(one, int) and not isinstance(one, bool) and abs(one) < 2**62 for one in numbers)
        and all(isinstance(text, str) and "\x00" not in text for text in texts)
        and (value.get("facts") is None or isinstance(value["facts"], dict))
    )


def _journal_lost(store: Store, broken: int, lost: int) -> None:
    from standfast.core import journal

    summary = f"{lost} records were dropped because the spool was full, {broken} could not be read"
    data = {"lost": lost, "broken": broken}
    store.write(lambda tx: _ignored(journal.append(tx, "hook.lost", "spool", summary=summary, data=data)))


def _ignored(_: object) -> None:
    """Drop the result of a journal entry: the body of a write returns nothing."""


# -- the seal and the place ----------------------------------------------------------------------------


def key(data_dir: str) -> bytes | None:
    """The key of this account, made on first use. None if this process can neither read nor make it."""
    try:
        return _key(data_dir)
    except OSError:
        return None


def _key(data_dir: str) -> bytes | None:
    """The key of the spool. Raises OSError if the key exists and cannot be read."""
    path = os.path.join(data_dir, KEY)
    try:
        with open(path, "rb") as file:
            found = file.read(64)
        return found if len(found) >= 16 else None
    except FileNotFoundError:
        return _make_key(path)


def _make_key(path: str) -> bytes | None:
    secret = os.urandom(32)
    temporary = f"{path}.{secret[:4].hex()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, secret)
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(temporary, path)  # atomic: of two processes, the first one's key counts
        except FileExistsError:
            with open(path, "rb") as file:
                secret = file.read(64)
        finally:
            os.unlink(temporary)
    except OSError:
        return None
    return secret


def _seal(text: str, secret: bytes | None) -> str:
    return blake2b(text.encode(), key=secret, digest_size=16).hexdigest() if secret else "-"


@contextmanager
def _directory(path: str, *, make: bool) -> Iterator[int]:
    """Open the directory without following a link. Raises PermissionError if another user can write it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    parent_path, name = os.path.split(path)
    if make and os.path.basename(parent_path) == ".standfast":
        _make_marker(parent_path)
    parent = os.open(parent_path, flags if os.path.basename(parent_path) == ".standfast" else flags & ~os.O_NOFOLLOW)
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        directory = os.open(name, flags, dir_fd=parent)
    finally:
        os.close(parent)
    try:
        info = os.fstat(directory)
        if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o022:
            raise PermissionError(f"{path} is not a private directory of this user")
        yield directory
    finally:
        os.close(directory)


def _make_marker(path: str) -> None:
    """Make `.standfast` in a workspace, with a `.gitignore` that hides it from git."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
        fd = os.open(os.path.join(path, ".gitignore"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, b"*\n")
        finally:
            os.close(fd)


def _open(name: str, flags: int, directory: int) -> int:
    fd = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=directory)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o022:
        os.close(fd)
        raise PermissionError(f"{name} is not a private file of this user")
    return fd
