"""`sf.imports`: copy transcripts of coding agents, and other sessions, into the store.

An import reads a source in pieces of 4 MB. Each piece is one transaction, which also stores the new position in the
source. After a kill, the next run continues at that position. A run without new records writes nothing. One run reads
one source for at most ten minutes; the next run continues there. Sources are only read. When a source disappears, its
imported rows stay, and the source gets a note.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from standfast import crash, hints, serial
from standfast.clock import Time
from standfast.config.scope import OUTSIDE, Label, normalised, repository
from standfast.core import journal
from standfast.core.checks import PAGE_MAX, page_size, past_us
from standfast.core.progress import Progress, quiet
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query, refused_inside
from standfast.errors import InvalidInput, NotFound
from standfast.ids import new_id
from standfast.interchange.transcripts import files, insert
from standfast.interchange.transcripts import importer as importer_of
from standfast.interchange.transcripts.files import HEAD_BYTES, SIZE_UNKNOWN, Importer, Line, Piece, Place, Reader
from standfast.interchange.transcripts.model import Batch, Thread
from standfast.models import Model

if TYPE_CHECKING:
    from standfast.interchange.bundle_import import BundleImport
    from standfast.interchange.text_import import TextImport

SQL = load(__name__)

LOST_RACES_MAX = 1000


class Source(Model):
    """A file or database that was read."""

    id: str
    agent: str
    host: str
    path: str
    state: str
    note: str | None
    native_id: str | None
    session_id: str | None
    size_bytes: int
    upto: int
    generation: int
    reader: int
    counts: serial.Json
    first_us: int | None
    last_us: int | None
    created_us: int
    updated_us: int
    seq: int


class Imported(Model):
    """The result of one source in one run: new, more, same, gone, empty or unreadable."""

    path: str
    outcome: str
    note: str | None
    native_id: str | None
    session_id: str | None
    messages: int
    counts: dict[str, Any]


class Report(Model):
    """The result of one import."""

    agent: str
    dry_run: bool
    sources: list[Imported]
    sessions: int
    messages: int
    tool_calls: int
    bytes: int
    totals: dict[str, int]
    unknown: dict[str, int]
    """Unknown record types, kept raw, with their counts."""


class Imports(Resource):
    """Import transcripts of coding agents, bundles and text exports."""

    __slots__ = ()

    def run(
        self,
        agent: str,
        path: str | os.PathLike[str] | None = None,
        *,
        since: Time | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Report:
        """Import the sessions that this agent or tool recorded: all of them, or those at PATH.

        - `path`: a file, a database or a directory.
        - `since`: only import files that changed since this time: 30d, "mon 09:00".
        - `dry_run`: read and count; write nothing.

        Raises InvalidInput for an agent without a reader, and NotFound if nothing is at `path`. The report notes a
        broken file; it is no error.
        """
        since_us = past_us(since, self.store.caller.clock.now_us(), "since")
        refused_inside(self.tx, "imports.run")
        chosen = importer_of(agent)
        roots = [os.fspath(path)] if path is not None else chosen.roots(os.environ)
        if path is not None and not os.path.exists(roots[0]):
            raise NotFound(f"there is nothing at {roots[0]}", f"{hints.command('import', agent)} PATH")
        run = _Run(self.store, chosen, dry_run=dry_run, progress=progress)
        try:
            return run.all(roots, since_us)
        finally:
            run.packer.shutdown()

    def bundle(
        self, path: str | os.PathLike[str], *, take: bool = False, source_lost: bool = False, progress: Progress = quiet
    ) -> BundleImport:
        """Import the sessions of a bundle as history, or continue them here.

        - `take`: continue the sessions here; the source must have handed them over.
        - `source_lost`: with --take: the source is lost, and no session continues there.

        The same bundle again changes nothing. Raises InvalidInput for a damaged bundle and Conflict for a session that
        the source did not hand over (`source_lost` overrides that); then nothing was written.
        """
        from standfast.interchange import bundle_import

        return bundle_import.run(self.store, os.fspath(path), take=take, source_lost=source_lost, progress=progress)

    def text(
        self,
        directory: str | os.PathLike[str],
        *,
        commit: bool = False,
        theirs: bool = False,
        progress: Progress = quiet,
    ) -> TextImport:
        """Compare a text export with the store. With `commit`, import its changes since the last export.

        `theirs` imports the file's version also if the store changed since. A missing line deletes nothing. Raises
        InvalidInput with the line that cannot be read; then nothing was changed.
        """
        from standfast.interchange import text_import

        refused_inside(self.tx, "imports.text")
        return text_import.run(self.store, os.fspath(directory), commit=commit, theirs=theirs, progress=progress)

    @query
    def list(self, tx: Tx, *, agent: str = "", after: int = 0, limit: int = 50) -> list[Source]:
        """List the files that were read: their state, their size, and how many messages they had.

        - `agent`: only list files of this agent.
        """
        rows = tx.all(SQL.page, agent=agent, after=after, limit=page_size(limit))
        return [_source(row) for row in rows]

    @query
    def raw(self, tx: Tx, message_id: str) -> str:
        """The original record of an imported message, redacted."""
        row = tx.maybe(SQL.origin, id=message_id)
        if row is None or row["import_seq"] is None:
            raise NotFound(f"no imported message {message_id!r}", "standfast session show KEY")
        kept = tx.maybe(SQL.raw_at, seq=row["import_seq"], offset=row["import_offset"])
        if kept is None:
            raise NotFound(f"the raw record of {message_id} is not stored")
        return _record_at(kept, row["import_offset"])


class _Run:
    """One run over all sources of one agent."""

    def __init__(self, store: Store, importer: Importer, *, dry_run: bool, progress: Progress | None) -> None:
        self.store = store
        self.importer = importer
        self.dry_run = dry_run
        self.progress = progress
        self.host = host()
        self.done = self.total = 0
        self.sessions = self.calls = 0
        self.labels: dict[tuple[str | None, str | None], Label] = {}
        self.packer = ThreadPoolExecutor(1, "standfast-import")

    def all(self, roots: list[str], since_us: int | None) -> Report:
        paths = self.importer.in_order([path for root in roots for path in self.importer.find(root)])
        sizes = {path: _size(path) for path in paths}
        self.total = sum(sizes.values())
        sources = []
        for path in paths:
            if since_us is None or _mtime_us(path) >= since_us:
                sources.append(self._one(path))
            self.done += sizes[path]
            self._report_progress(path, 0)
        if not self.dry_run and since_us is None:
            sources += self._gone(roots, set(map(os.path.abspath, paths)))
        return self._report(sources)

    def _report(self, sources: list[Imported]) -> Report:
        unknown: dict[str, int] = {}
        totals: dict[str, int] = {}
        for source in sources:
            totals[source.outcome] = totals.get(source.outcome, 0) + 1
            for name in ("records", "bad", "oversized") if source.outcome in ("new", "more") else ():
                totals[name] = totals.get(name, 0) + source.counts.get(name, 0)
            for name, count in source.counts.get("unknown", {}).items():
                unknown[name] = unknown.get(name, 0) + count
        messages = sum(source.messages for source in sources)
        agent, dry = self.importer.agent, self.dry_run
        return Report(agent, dry, sources, self.sessions, messages, self.calls, self.total, totals, unknown)

    # -- one source ------------------------------------------------------------------------------------------

    def _one(self, path: str) -> Imported:
        path = os.path.abspath(path)
        try:
            return self._dry(path) if self.dry_run else self._wet(path)
        except (OSError, InvalidInput) as error:
            why = error.message if isinstance(error, InvalidInput) else error.strerror or str(error)
            return Imported(path, "unreadable", why, None, None, 0, {})

    def _dry(self, path: str) -> Imported:
        counts: dict[str, Any] = {}
        carry: dict[str, Any] = {}
        reader = self.importer.reader(path, carry, counts)
        messages, note = 0, None
        limit = _Limit()
        for piece in self.importer.pieces(path, 0, carry, redact=self.store.redact):
            messages += len(self._batch(reader, piece).said)
            self._report_progress(path, piece.upto)
            if limit.over:
                note = limit.note(piece.upto)
                break
        return Imported(path, "new" if messages else "empty", note, reader.native_id, None, messages, counts)

    def _wet(self, path: str) -> Imported:
        messages, before = 0, None
        for _ in range(LOST_RACES_MAX):
            row = self._row(path)
            before = before or row
            place = self._place(path, row)
            row = self._ready(path, row, place)
            if row is None:
                continue  # another importer began it, or began it again
            outcome = self._go_on(path, row, place)
            messages += outcome.messages
            if not outcome.overtaken:
                known = before is not None
                word = ("more" if known else "new") if messages or outcome.moved else ("same" if known else "empty")
                ids = (outcome.native_id, outcome.session_id)
                return Imported(path, word, outcome.note, *ids, messages, outcome.counts)
        return Imported(path, "same", "another importer is running", None, None, messages, {})

    def _row(self, path: str) -> Row | None:
        asked = {"agent": self.importer.agent, "host": self.host, "path": _text(path)}
        return self.store.read(lambda tx: tx.maybe(SQL.source, **asked))

    def _place(self, path: str, row: Row | None) -> Place:
        """The present state of a source. For a known source, hash as many bytes of its head as the last import did."""
        if row is None:
            return self.importer.look(path)
        place = self.importer.look(path, _head_bytes(row["head"]))
        return place if place.head == row["head"] else self.importer.look(path)

    def _ready(self, path: str, row: Row | None, place: Place) -> Row | None:
        """The row of a source at which reading continues. If the file was replaced, reset the row and return None."""
        if row is None:
            self.store.write(lambda tx: _add(tx, self.importer, self.host, path, place))
            return self._row(path)
        changed = place.head != row["head"] or place.size_bytes < row["upto"]
        if not changed and 0 < row["upto"] < place.size_bytes:
            changed = not self.importer.aligned(path, row["upto"])
        if not changed and row["reader"] == self.importer.version:
            return row
        if self.importer.in_place and place.head == row["head"] and row["reader"] == self.importer.version:
            return row
        note = "the file was replaced, so it was read again from its start" if changed else None
        note = None if self.importer.in_place else note
        carry = self.importer.again(json.loads(row["carry"]))
        self.store.write(lambda tx: _restart(tx, row, self.importer, place, note, carry))
        return None

    def _learn_head(self, path: str, row: Row, upto: int) -> None:
        """Store the hash of a longer head, if the file was shorter than HEAD_BYTES at its first import."""
        known, wanted = _head_bytes(row["head"]), min(HEAD_BYTES, upto)
        if known >= wanted or not row["head"][:1].isdigit():
            return
        head = self.importer.look(path, wanted).head
        if self.importer.look(path, known).head == row["head"]:
            self.store.write(lambda tx: tx.run(SQL.learn_head, seq=row["seq"], generation=row["generation"], head=head))

    def _go_on(self, path: str, row: Row, place: Place) -> _Outcome:
        carry, counts = json.loads(row["carry"]), json.loads(row["counts"])
        start = row["upto"]
        written, moved, note = 0, False, None
        limit = _Limit()
        session_id, native_id = row["session_id"], row["native_id"]
        settled = (row["identity"], row["mtime_us"], row["size_bytes"]) == (place.identity, place.mtime_us, start)
        # Compare the size too: an append within one tick of the kernel's clock does not change mtime.
        settled = settled and place.size_bytes in (start, SIZE_UNKNOWN)
        if settled or self.importer.finished(place, start):
            return _Outcome(0, False, False, native_id, session_id, counts)
        for piece in self.importer.pieces(path, start, carry, redact=self.store.redact):
            reader = self.importer.reader(path, carry, counts)
            packed = self.packer.submit(_packed, piece.lines)  # run in another thread, because zlib releases the GIL
            batch = self._batch(reader, piece)
            wrote = self._write(insert.Advance(row, self.importer, piece, place, reader, packed.result()), batch)
            if wrote is None:
                return _Outcome(written, moved, True, native_id, session_id, counts)
            carry, counts, start = wrote.carry, wrote.counts, piece.upto
            session_id = session_id or wrote.session_id
            native_id = reader.native_id or native_id
            self.sessions += wrote.sessions
            self.calls += wrote.calls
            written, moved = written + wrote.messages, True
            self._report_progress(path, piece.upto)
            del piece, batch, packed  # freed before the next piece is read
            if limit.over and start < place.size_bytes:
                note = limit.note(start)
                break
        if moved and place.size_bytes != SIZE_UNKNOWN:
            self._learn_head(path, row, start)
        if place.size_bytes == SIZE_UNKNOWN and note is None:
            settle: Row = {"seq": row["seq"], "generation": row["generation"], "upto": start}
            settle |= {"identity": place.identity, "mtime_us": place.mtime_us}
            self.store.write(lambda tx: tx.run(SQL.settle, **settle))
        return _Outcome(written, moved, False, native_id, session_id, counts, note)

    def _batch(self, reader: Reader, piece: Piece) -> Batch:
        batch = Batch(self.importer.agent)
        read = reader.read
        for record in piece:
            read(record, batch)
        counts = reader.counts
        for name, value in (
            ("lines", piece.counted),
            ("records", piece.records),
            ("bad", piece.broken),
            ("oversized", piece.oversized),
            ("multi_object_lines", piece.doubled),
        ):
            counts[name] = counts.get(name, 0) + value
        return batch

    def _write(self, advance: insert.Advance, batch: Batch) -> insert.Written | None:
        labels = {thread: self._label(batch, thread) for thread in batch.facts}
        crash.point("import.before_batch")
        written = self.store.write(lambda tx: insert.write(tx, batch, advance, labels))
        crash.point("import.after_batch")
        return written

    def _label(self, batch: Batch, thread: Thread) -> Label:
        """The repository of a conversation; the caller's, if that repository is not on this machine."""
        facts = batch.facts[thread] or batch.facts.get(Thread(thread.session), {})
        asked = (facts.get("cwd"), facts.get("origin"))
        if asked not in self.labels:
            self.labels[asked] = _label_of(*asked, default=self.store.caller.label)
        return self.labels[asked]

    def _report_progress(self, path: str, upto: int) -> None:
        if self.progress is not None:
            self.progress(path, min(self.done + upto, self.total), self.total)

    # -- deleted at the source ---------------------------------------------------------------------------------

    def _gone(self, roots: list[str], found: set[str]) -> list[Imported]:
        """Mark known sources under the roots that have disappeared. Their imported rows stay."""
        gone = []
        for row in self._known():
            path = row["path"]
            under = any(path == root or path.startswith(root + os.sep) for root in map(os.path.abspath, roots))
            if row["state"] == "gone" or not under or path in found or os.path.exists(path):
                continue
            note = f"the file was deleted; the import of its first {row['upto']:,} bytes stays"
            if self.store.write(lambda tx, row=row, note=note: _mark_gone(tx, row, note)):  # type: ignore[misc]
                counts = json.loads(row["counts"])
                gone.append(Imported(path, "gone", note, row["native_id"], row["session_id"], 0, counts))
        return gone

    def _known(self) -> Iterator[Row]:
        after = 0
        while True:
            asked: Row = {"agent": self.importer.agent, "after": after, "limit": PAGE_MAX}
            rows = self.store.read(lambda tx, asked=asked: tx.all(SQL.page, **asked))  # type: ignore[misc]
            yield from (row for row in rows if row["host"] == self.host)
            if len(rows) < PAGE_MAX:
                return
            after = rows[-1]["seq"]


def overview(tx: Tx) -> str | None:
    """The line of `doctor` with the number of sources that were read, of deleted sources, and unknown record types."""
    rows = tx.all(SQL.page, agent="", after=0, limit=PAGE_MAX)
    if not rows:
        return None
    gone = sum(row["state"] == "gone" for row in rows)
    unknown: dict[str, int] = {}
    for row in rows:
        for name, count in (serial.read(row["counts"]) or {}).get("unknown", {}).items():
            unknown[f"{row['agent']} {name}"] = unknown.get(f"{row['agent']} {name}", 0) + count
    text = f"{len(rows)}{' or more' if len(rows) == PAGE_MAX else ''} sources read"
    text += f", {gone} of them deleted since" if gone else ""
    kinds = sorted(unknown, key=lambda name: -unknown[name])[:5]
    return text + (f"; records of unknown types, stored unchanged: {', '.join(kinds)}" if kinds else "")


class _Outcome(NamedTuple):
    messages: int
    moved: bool
    overtaken: bool
    native_id: str | None
    session_id: str | None
    counts: dict[str, Any]
    note: str | None = None


class _Limit:
    """The time limit of one source in one run."""

    def __init__(self) -> None:
        self._limit_s = files.FILE_MAX_S
        self._end_s = time.monotonic() + self._limit_s

    @property
    def over(self) -> bool:
        return time.monotonic() > self._end_s

    def note(self, upto: int) -> str:
        return f"stopped at {upto:,} after {self._limit_s:g} s, the limit for one file; run the import again"


def _packed(lines: Sequence[Line]) -> bytes:
    """The lines as they are stored: offset, tab, text, compressed."""
    return zlib.compress(b"\n".join([b"%d\t%b" % line for line in lines]), 1) if lines else b""


def _add(tx: Tx, importer: Importer, host: str, path: str, place: Place) -> None:
    tx.run(
        SQL.add,
        id=new_id("imp"),
        agent=importer.agent,
        host=host,
        path=_text(path),
        reader=importer.version,
        now_us=tx.now_us(),
        **place._asdict(),
    )


def _restart(tx: Tx, row: Row, importer: Importer, place: Place, note: str | None, carry: dict[str, Any]) -> None:
    began = tx.maybe(
        SQL.restart,
        seq=row["seq"],
        generation=row["generation"],
        upto=row["upto"],
        reader=importer.version,
        carry=json.dumps(carry),
        note=note,
        now_us=tx.now_us(),
        **place._asdict(),
    )
    if began is not None and not importer.in_place:
        label = os.path.basename(row["path"])
        journal.append(tx, "import.restarted", row["id"], session_id=row["session_id"], summary=f"{label}: {note}")


def _mark_gone(tx: Tx, row: Row, note: str) -> bool:
    marked = tx.maybe(SQL.mark, seq=row["seq"], state="gone", note=note, now_us=tx.now_us())
    if marked is not None:
        label = os.path.basename(row["path"])
        journal.append(tx, "import.gone", row["id"], session_id=row["session_id"], summary=f"{label}: {note}")
    return marked is not None


def _record_at(kept: Row, offset: int) -> str:
    """The line at `offset`. A line with several records begins before the offset of its later records."""
    found = b""
    for line in zlib.decompress(kept["raw"]).split(b"\n"):
        place, _, text = line.partition(b"\t")
        if int(place) > offset:
            break
        found = text
    return found.decode("utf-8", "replace")


def _source(row: Row) -> Source:
    return Source(*(serial.read(row[name]) if name == "counts" else row[name] for name in Source.field_names()))


def _label_of(cwd: str | None, origin: str | None, *, default: Label) -> Label:
    if cwd and os.path.isabs(cwd) and os.path.isdir(cwd):
        found = repository(cwd)
        return found.label if found is not None else OUTSIDE
    named = normalised(origin) if origin else None
    return Label(None, named) if named else default


def host() -> str:
    """The name of this machine: a path is unique on one machine only."""
    import socket

    return socket.gethostname() or "localhost"


def _head_bytes(head: str) -> int:
    size, _, _ = head.partition(":")
    return int(size) if size.isdigit() else 0


def _text(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _mtime_us(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns // 1000
    except OSError:
        return 0
