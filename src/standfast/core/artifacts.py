"""Artifacts: large bytes that are stored beside the record, under their digest.

An artifact is a log, a diff or the whole answer of an LLM. Its row has the name, the kind, the size, the digest and the
retention. The bytes are files beside the database on SQLite (`artifact_files`), rows on PostgreSQL (`artifact_chunks`),
or objects in S3 (`artifact_objects`). Equal bytes are stored once, also if several artifacts have them.

The bytes are durable before the row that names them, and every read compares the digest. So a row with missing or other
bytes is a fault, which is reported. Bytes without a row are garbage, which `collect` removes once they are a day old.

A name is a label and never a path. Only the caller chooses where bytes are written to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TypeAlias, overload

from standfast import crash, serial
from standfast.clock import DAY_US
from standfast.core import artifact_files as files
from standfast.core import journal, lookup, repositories
from standfast.core.artifact_sources import Source, blocks_of, checked_kind, checked_name, own_name
from standfast.core.checks import PAGE_MAX, one_of, page_size
from standfast.core.progress import Progress, quiet
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import Conflict, Corrupt, InvalidInput, NotFound
from standfast.ids import Id, new_id, short
from standfast.models import Model

SQL = load(__name__)

GARBAGE_AFTER_US = DAY_US
"""The least age of garbage that is removed: a live process may be about to write its row."""
FAULTS_MAX = 1000
RETENTIONS = ("scratch", "session", "keep")
"""How long an artifact is kept, the shortest first."""

BUCKET = "s3://"
"""The beginning of the address of bytes in S3."""

_TOGETHER = 200


class Artifact(Model):
    """The description of some bytes."""

    id: str
    scope: str
    session_id: str | None
    name: str
    kind: str
    digest: str
    uri: str
    size_bytes: int
    retention: str
    agent: str
    created_us: int
    receipt: Receipt | None = None

    @staticmethod
    def columns() -> tuple[str, ...]:
        return "id", "name", "kind", "size_bytes bytes", "retention keep", "created_us when", "digest"


class Fault(Model):
    """An artifact whose bytes are missing or damaged."""

    artifact: Artifact
    state: str
    """"missing" or "damaged"."""


class Collected(Model):
    """The counts of a collection, and the faults that it found."""

    removed: int
    """Expired artifacts."""
    garbage: int
    """Files or digests that no artifact named."""
    garbage_bytes: int
    faults: list[Fault]


Faults: TypeAlias = "list[Fault]"  # inside the resource class, `list` is a method


# -- functions for other features ------------------------------------------------------------


def put(
    store: Store,
    data: Source,
    *,
    name: str,
    kind: str,
    session_id: str | None = None,
    retention: str = "keep",
    max_bytes: int | None = None,
    bucket: str | None = None,
    id: str | None = None,
    scope: str | None = None,
) -> Artifact:
    """Store bytes durably. The same bytes under the same name and kind are one artifact.

    Without `bucket` the bytes go beside the store, so that steps and effects can record results while S3 does not
    answer. `id` and `scope` are given for an artifact of another store.

    It is refused inside a transaction, because it stores the bytes first. Raises InvalidInput for a bad name and for
    more than `max_bytes`. An exception of a stream passes unchanged.
    """
    refused_inside(store.held, "artifacts.put")
    one_of(retention, RETENTIONS, "retention")
    if retention == "session" and session_id is None:
        raise InvalidInput("retention 'session' needs a session", "name the session, or keep it: retention='keep'")
    row: Row = {
        "id": id or new_id("art"),
        "session_id": session_id,
        "name": checked_name(name),
        "kind": checked_kind(kind),
        "retention": retention,
        **({} if scope is None else {"scope": scope}),
    }
    blocks = blocks_of(store, data, store.artifact_max_bytes if max_bytes is None else max_bytes)
    if bucket is not None:
        return _put_object(store, row, blocks, bucket)
    if store.engine.name == "sqlite":
        return _put_file(store, row, blocks)
    return _put_chunks(store, row, blocks)


def read(store: Store, artifact_id: str) -> bytes:
    """The bytes of an artifact, compared with its digest. Raises NotFound, Corrupt."""
    artifact = store.read(lambda tx: _found(tx, store.caller.scope, artifact_id))
    return b"".join(_stored(store, artifact))


def directory(store: Store) -> str | None:
    """The directory of the files; None on PostgreSQL, which has rows instead."""
    engine = store.engine
    return files.directory(getattr(engine, "path")) if engine.name == "sqlite" else None  # noqa: B009  not every engine's


# -- the resource ------------------------------------------------------------------------------------------


class Artifacts(Resource):
    """Large bytes: put, get, list and verify."""

    __slots__ = ()

    def put(
        self,
        data: Source,
        *,
        name: str | None = None,
        kind: str = "file",
        session: object = None,
        retention: str = "keep",
    ) -> Artifact:
        """Store the bytes of a FILE, or of stdin (-), durably; the same bytes are stored once.

        - `name`: name it; a label, not a path.  [default: the name of the file]
        - `kind`: the kind of content: log, diff, text/plain.
        - `session`: the session it belongs to.
        - `retention`: keep it, or remove it with its session (session) or after a day (scratch).

        In Python, `data` is bytes, a path or a binary stream, which is read to its end.
        `sf.artifacts.put(Path("build.log"), kind="log")`. A path's own name is used unless `name`
        says another. Raises InvalidInput for a name that is not a label, and for too many bytes.
        """
        refused_inside(self.tx, "artifacts.put")
        return put(
            self.store,
            data,
            name=name if name is not None else own_name(data),
            kind=kind,
            session_id=self._session(session),
            retention=retention,
            bucket=self.store.artifact_bucket if retention != "scratch" else None,  # no object is removed
        )

    @overload
    def get(self, which: str) -> bytes: ...

    @overload
    def get(self, which: str, to: str | os.PathLike[str] | BinaryIO) -> Artifact: ...

    def get(self, which: str, to: str | os.PathLike[str] | BinaryIO | None = None) -> bytes | Artifact:
        """The bytes of an artifact, by its id, the end of its id, or its name.

        With `to`, write them to that path or binary stream. If the bytes do not match the digest, it raises Corrupt and
        writes nothing.
        """
        refused_inside(self.tx, "artifacts.get")
        artifact = self.show(which)
        if to is None:
            return b"".join(_stored(self.store, artifact))
        if isinstance(to, (str, os.PathLike)):
            _write_path(self.store, artifact, os.fspath(to))
        else:
            _write_stream(self.store, artifact, to)
        return artifact

    def read(self, which: str) -> bytes:
        """The bytes, compared with their digest."""
        return self.get(which)

    @query
    def show(self, tx: Tx, which: str) -> Artifact:
        """Show an artifact without its bytes, by id, the end of its id, or name (the newest)."""
        return _found(tx, self.scope, which)

    @query
    def list(
        self,
        tx: Tx,
        *,
        session: object = None,
        kind: str | None = None,
        name: str | None = None,
        everywhere: bool = False,
        limit: int = 50,
        after: Id | None = None,
    ) -> list[Artifact]:
        """List artifacts, the newest first.

        - `session`: only of this session.
        - `kind`: only list tasks of this kind.
        - `name`: only list artifacts with this name.
        - `after`: start after this id, the last one of the page before.
        """
        session_id = lookup.session_id(tx, self.scope, session)
        rows = tx.all(
            SQL.page,
            scope=self.scope,
            everywhere=int(everywhere),
            session_id=session_id or "",
            kind=kind or "",
            name=name or "",
            after=after or "",
            limit=page_size(limit),
            **repositories.filtered(tx, everywhere=everywhere or session is not None),
        )
        return [Artifact.from_row(row) for row in rows]

    def verify(self, which: str | None = None, *, progress: Progress = quiet) -> Faults:
        """Read the bytes of one artifact, or of all, and list those that are missing or damaged.

        All means those of every scope.
        """
        refused_inside(self.tx, "artifacts.verify")
        listed: Iterable[Artifact] = [self.show(which)] if which is not None else _walk(self.store, progress)
        return _first(fault for artifact in listed if (fault := _fault(self.store, artifact, whole=True)))

    @transactional
    def remove(self, tx: Tx, which: str) -> Artifact:
        """Remove an artifact. A later collection removes its bytes if no other artifact has them.

        Raises Conflict while a step or an effect keeps its result in it.
        """
        found = _found(tx, self.scope, which)
        used = tx.maybe(SQL.used, id=found.id)
        if used is not None:
            raise Conflict(f"artifact {short(found.id)} ({found.name}) holds the result of {used['id']}", code="in_use")
        return _removed(tx, found.id)

    def collect(self) -> Collected:
        """Remove expired artifacts, and bytes that no artifact names, once they are a day old.

        `scratch` expires after a day, `session` once its session is gone. A result that a step or an effect keeps does
        not expire. Missing or damaged bytes are reported and not repaired. No object in S3 is removed. Raises Busy if
        artifacts are being put without a pause.
        """
        refused_inside(self.tx, "artifacts.collect")
        removed = _remove_outlived(self.store)
        count, size = _collect_files(self.store) if directory(self.store) else _collect_chunks(self.store)
        faults = _first(f for a in _walk(self.store) if (f := _fault(self.store, a, whole=False)))
        return Collected(removed, count, size, faults)

    def _session(self, session: object) -> str | None:
        if session is None:
            return None
        return self.store.read(lambda tx: lookup.session_id(tx, self.scope, session))


# -- storage ---------------------------------------------------------------------------------------------


def _put_file(store: Store, row: Row, blocks: Iterator[bytes]) -> Artifact:
    root = directory(store)
    assert root is not None
    with files.received(root, blocks, store.caller.clock.now_us()) as incoming, files.putting(root):
        incoming.settle()
        crash.point("artifact.before_row")
        place = files.path_of(os.path.basename(root), incoming.digest)
        row |= {"digest": incoming.digest, "size_bytes": incoming.size_bytes, "uri": f"file:{place}"}
        artifact = store.write(lambda tx: _recorded(tx, row))
    crash.point("artifact.after_row")
    return artifact


def _put_chunks(store: Store, row: Row, blocks: Iterator[bytes]) -> Artifact:
    from standfast.core import artifact_chunks as chunks

    incoming = chunks.receive(store, row["id"], blocks)
    crash.point("artifact.before_row")
    row |= {"digest": incoming.digest, "size_bytes": incoming.size_bytes, "uri": f"chunk:{incoming.digest}"}

    def body(tx: Tx) -> Artifact:
        chunks.adopt(tx, incoming)
        return _recorded(tx, row)

    artifact = store.write(body)
    crash.point("artifact.after_row")
    return artifact


def _put_object(store: Store, row: Row, blocks: Iterator[bytes], bucket: str) -> Artifact:
    from standfast.core import artifact_objects as objects

    row |= objects.put(bucket, blocks)._asdict()
    crash.point("artifact.before_row")
    artifact = store.write(lambda tx: _recorded(tx, row))
    crash.point("artifact.after_row")
    return artifact


def _recorded(tx: Tx, row: Row) -> Artifact:
    """Write the row of an artifact whose bytes are durable. If the same artifact exists, return it."""
    values = {"scope": tx.caller.scope, **row, "actor": tx.caller.actor, "now_us": tx.now_us()}
    made = tx.maybe(SQL.add, **values, **tx.caller.labelled())
    if made is None:
        same = tx.one(SQL.same, scope=values["scope"], digest=row["digest"], name=row["name"], kind=row["kind"])
        if not _is_elsewhere(same["uri"], row["uri"]):
            return _wanted_longer(tx, Artifact.from_row(same), row)
        made = tx.one(SQL.move, id=same["id"], uri=row["uri"])
    receipt = journal.append(
        tx,
        "artifact.stored",
        made["id"],
        summary=f"{row['name']} ({row['kind']}, {row['size_bytes']} bytes)",
        session_id=row["session_id"],
        data={"digest": row["digest"]},
    )
    return _wanted_longer(tx, Artifact.from_row(made).replace(receipt=receipt), row)


def _is_elsewhere(old: str, new: str) -> bool:
    """Whether the bytes moved to another bucket or out of one. A store finds its own files and chunks without `uri`."""
    return old != new and (old.startswith(BUCKET) or new.startswith(BUCKET))


def _wanted_longer(tx: Tx, found: Artifact, row: Row) -> Artifact:
    """Keep the artifact for the longer of both retentions. If two sessions want it, keep it without limit."""
    wish = max(found.retention, row["retention"], key=RETENTIONS.index)
    if wish == "session" and found.retention == row["retention"] and found.session_id != row["session_id"]:
        wish = "keep"
    if wish == "session" and found.retention == "scratch" and found.session_id != row["session_id"]:
        wish = "keep"  # the row names another session or none, so it would not expire with this one
    if wish == found.retention:
        return found
    changed = Artifact.from_row(tx.one(SQL.retain, id=found.id, retention=wish))
    return changed.replace(
        receipt=journal.append(tx, "artifact.retained", found.id, summary=wish, session_id=row["session_id"])
    )


# -- retrieval ---------------------------------------------------------------------------------------------


def _stored(store: Store, artifact: Artifact) -> Iterator[bytes]:
    """The bytes in blocks. Raises Corrupt after the last one if they do not match the digest."""
    root = directory(store)
    try:
        if artifact.uri.startswith(BUCKET):
            from standfast.core import artifact_objects as objects

            yield from objects.read(artifact.uri, artifact.digest, artifact.size_bytes)
        elif root is not None:
            yield from files.read(os.path.realpath(root), artifact.digest, artifact.size_bytes)
        else:
            from standfast.core import artifact_chunks as chunks

            yield from chunks.read(store, artifact.digest, artifact.size_bytes)
    except Corrupt as error:
        raise Corrupt(
            f"artifact {artifact.id} ({artifact.name}): {error.message}", error.hint, code=error.code
        ) from None


def _write_path(store: Store, artifact: Artifact, path: str) -> None:
    """Write all bytes to `path`, or nothing if they do not match the digest."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb", buffering=0) as device:  # a pipe or a terminal cannot be replaced
            return _write_stream(store, artifact, device)
    part = os.path.join(os.path.dirname(path), f".{short(artifact.id)}-{os.urandom(4).hex()}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            file.writelines(_stored(store, artifact))
            file.close()
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
    return None


def _write_stream(store: Store, artifact: Artifact, stream: BinaryIO) -> None:
    """Read the whole artifact before the first byte is written, because a stream cannot be rewound."""
    for _ in _stored(store, artifact):
        pass
    for block in _stored(store, artifact):
        view = memoryview(block)
        while view:
            # A raw stream may write fewer bytes than it was given.
            view = view[stream.write(view) or len(view) :]


def _found(tx: Tx, scope: str, which: str) -> Artifact:
    row = lookup.row_of(tx, which, "art", by_key=lambda name: tx.maybe(SQL.by_name, scope=scope, name=name))
    if row is None:
        raise NotFound(f"there is no artifact {serial.clean(which, 60)!r} here", "see them: standfast artifact list")
    return Artifact.from_row(row)


# -- checks and removal --------------------------------------------------------------------------------------


def _walk(store: Store, progress: Progress = quiet) -> Iterator[Artifact]:
    """Every artifact in every scope, a page at a time."""
    after, done = "", 0
    total = store.read(lambda tx: tx.one(SQL.total)["n"])
    while rows := store.read(lambda tx, after=after: tx.all(SQL.walk, after=after, limit=PAGE_MAX)):  # type: ignore[misc]
        for row in rows:
            yield Artifact.from_row(row)
            done += 1
            progress("reading artifacts", done, total)
        after = rows[-1]["id"]


def _fault(store: Store, artifact: Artifact, *, whole: bool) -> Fault | None:
    """The fault of an artifact, if any. Without `whole` only the size is compared, and S3 is not asked."""
    root = directory(store)
    if not whole:
        if artifact.uri.startswith(BUCKET):
            return None
        size = files.size_of(root, artifact.digest) if root else _chunks_size(store, artifact.digest)
        if size == artifact.size_bytes:
            return None
        return Fault(artifact, "missing" if size is None else "damaged")
    try:
        for _ in _stored(store, artifact):
            pass
    except Corrupt as error:
        return Fault(artifact, "missing" if error.code == "artifact_missing" else "damaged")
    return None


def _chunks_size(store: Store, digest: str) -> int | None:
    from standfast.core import artifact_chunks as chunks

    return store.read(lambda tx: chunks.size_of(tx, digest))


def _first(faults: Iterator[Fault]) -> list[Fault]:
    from itertools import islice

    return list(islice(faults, FAULTS_MAX))


def _remove_outlived(store: Store) -> int:
    def body(tx: Tx) -> int:
        rows = tx.all(SQL.outlived, before_us=tx.now_us() - GARBAGE_AFTER_US, limit=_TOGETHER)
        for row in rows:
            _removed(tx, row["id"])
        return len(rows)

    total = 0
    while some := store.write(body):
        total += some
    return total


def _removed(tx: Tx, id: str) -> Artifact:
    removed = Artifact.from_row(tx.one(SQL.remove, id=id))
    summary = f"{removed.name} ({removed.kind}, {removed.size_bytes} bytes)"
    receipt = journal.append(tx, "artifact.removed", id, summary=summary, session_id=removed.session_id)
    return removed.replace(receipt=receipt)


def _collect_files(store: Store) -> tuple[int, int]:
    root = directory(store)
    assert root is not None
    if not os.path.isdir(root):
        return 0, 0
    before_us = store.caller.clock.now_us() - GARBAGE_AFTER_US
    count = size = 0
    candidates = files.scan(root, before_us)
    while some := [found for found, _ in zip(candidates, range(_TOGETHER), strict=False)]:
        with files.collecting(root):
            for found in _unreferenced(store, some):
                crash.point("artifact.before_remove")
                if files.remove(found, before_us):
                    count, size = count + 1, size + found.size_bytes
    return count, size


def _unreferenced(store: Store, some: list[files.Found]) -> list[files.Found]:
    """The files that no row names. A write transaction, so that it sees what another process has just committed."""

    def body(tx: Tx) -> list[files.Found]:
        return [found for found in some if found.digest is None or not _spoken_of(tx, found.digest)]

    return store.write(body)


def _collect_chunks(store: Store) -> tuple[int, int]:
    from standfast.core import artifact_chunks as chunks

    return chunks.collect(store, GARBAGE_AFTER_US, _spoken_of)


def _spoken_of(tx: Tx, digest: str) -> bool:
    return tx.maybe(SQL.referenced, digest=digest) is not None
