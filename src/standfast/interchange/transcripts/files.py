"""Split a file into pieces and records, while a live program may append to the file.

A line may hold several records, so it is decoded value by value. The last line may be unfinished. If it has no line end
and cannot be decoded, the next import reads it. Other lines that cannot be decoded are counted and stored raw. Text is
redacted before it is decoded, so no other code sees secrets.

Only one piece is in memory at a time. A line longer than LINE_MAX_BYTES is skipped and counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import IO, Any, NamedTuple

from standfast.errors import InvalidInput
from standfast.interchange.transcripts.model import Batch
from standfast.serial.redaction import redacted, suspicious

LINE_MAX_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
PIECE_LINES = 2000
DOCUMENT_MAX_BYTES = 256 * 1024 * 1024
HEAD_BYTES = 4096
FILE_MAX_S = 600.0
"""The time limit of one source in one run. The run stops between two pieces, and the next run continues there."""
FILES_MAX = 200_000
SIZE_UNKNOWN = 2**62

_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_SPACE = re.compile(r"\s*")
# A hostile transcript may hide a secret from the search by writing letters as escapes. No agent does this.
_HIDING, _LETTERS = b"\\u00", (b"2", b"3", b"4", b"5", b"6", b"7")
_DISGUISED = re.compile(r"\\u00[2-7]|(?<!\\)\\/")


Line = tuple[int, bytes]
"""The offset of a line, and its redacted text."""


class Record(NamedTuple):
    """One record: its offset and its value."""

    offset: int
    value: Any


class Piece:
    """Consecutive records of a source, from offset `start` to `upto`.

    The iteration decodes each record when it reaches it, and keeps none. With the values of a whole piece in memory,
    the garbage collector would take twice the time of decoding. So the counts are complete only after the iteration.
    """

    __slots__ = ("_values", "broken", "doubled", "lines", "oversized", "records", "start", "upto")

    def __init__(
        self, start: int, upto: int, lines: list[Line], *, oversized: int = 0, values: list[Any] | None = None
    ) -> None:
        self.start = start
        self.upto = upto
        self.lines = lines
        self.oversized = oversized
        self._values = values
        self.records = self.broken = self.doubled = 0

    @property
    def counted(self) -> int:
        """The number of lines; 0 if the source is no file of lines."""
        return len(self.lines) if self._values is None else 0

    def __iter__(self) -> Iterator[Record]:
        return map(self._known, self.lines, self._values) if self._values is not None else self._decoded()

    def _known(self, line: Line, value: Any) -> Record:
        self.records += 1
        return Record(line[0], value)

    def _decoded(self) -> Iterator[Record]:
        for offset, line in self.lines:
            text = line.decode("utf-8", "replace")
            try:
                value, end = _decode(text)
            except (ValueError, RecursionError):
                self.broken += 1
                continue
            self.records += 1
            if end == len(text):
                yield Record(offset, value)
                continue
            values, whole = _several(text, value, end=end)
            self.records += len(values) - 1
            self.doubled += len(values) > 1
            self.broken += not whole
            yield from (Record(offset + n, value) for n, value in enumerate(values))


class Place(NamedTuple):
    """The present state of a source."""

    identity: str
    head: str
    size_bytes: int
    mtime_us: int


class Importer(ABC):
    """One agent's transcripts: where they are, and their records."""

    agent: str
    version: int = 1
    """Increase it when the reader supports more record types. The next import then reads all sources again, and adds
    only new rows."""
    copies = False
    """True if a forked session repeats records of its parent without ids. Then the import compares their messages."""
    in_place = False
    """True if the agent changes records in place. Then the import compares each known record with the stored one."""

    @abstractmethod
    def roots(self, environ: Mapping[str, str]) -> list[str]:
        """The directories of this agent's transcripts on this machine."""

    @abstractmethod
    def find(self, root: str) -> Iterator[str]:
        """The sources under a directory, or `root` itself if it is a source."""

    @abstractmethod
    def reader(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> Reader:
        """A reader of the source that continues with the state in `carry`."""

    def in_order(self, paths: list[str]) -> list[str]:
        """The order in which sources of several roots are read."""
        return paths

    def look(self, path: str, head_bytes: int | None = None) -> Place:
        """The present state of the source. Raises OSError."""
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput(f"{path} is not a regular file")
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES if head_bytes is None else head_bytes)
        return Place(
            f"{found.st_dev}:{found.st_ino}",
            f"{len(head)}:{hashlib.sha256(head).hexdigest()}",
            found.st_size,
            found.st_mtime_ns // 1000,
        )

    def pieces(self, path: str, start: int, carry: Mapping[str, Any], *, redact: bool) -> Iterator[Piece]:
        """The pieces of the source from an offset on. Raises OSError."""
        with open(path, "rb") as file:
            file.seek(start)
            yield from pieces(file, start, redact=redact)

    def again(self, carry: dict[str, Any]) -> dict[str, Any]:
        """The part of `carry` that stays when the source is read again from its start."""
        return {}

    def aligned(self, path: str, upto: int) -> bool:
        """Whether a line still ends at `upto`. If not, the file was rewritten after its head."""
        if not path.endswith(".jsonl") or not os.path.exists(path):
            return True
        with open(path, "rb") as file:
            file.seek(upto - 1)
            around = file.read(2)
        return around[:1] == b"\n" or around[1:] in (b"", b"\n", b"\r")

    def finished(self, place: Place, upto: int) -> bool:
        """Whether the source has no more records after `upto`."""
        return upto >= place.size_bytes


class DocumentImporter(Importer):
    """Conversations in JSON documents that their agent rewrites in place. A `.jsonl` file is read as lines."""

    in_place = True

    @abstractmethod
    def records(self, document: Any, path: str) -> Iterable[dict[str, Any]]:
        """The records of a document, in order; `document` is None if the file holds no JSON."""

    def look(self, path: str, head_bytes: int | None = None) -> Place:
        """The hash of all bytes identifies a document, so any change makes the import read it again."""
        place = super().look(path, head_bytes)
        if path.endswith(".jsonl"):
            return place
        with open(path, "rb") as file:
            return place._replace(head=f"0:{hashlib.file_digest(file, 'sha256').hexdigest()}")

    def pieces(self, path: str, start: int, carry: Mapping[str, Any], *, redact: bool) -> Iterator[Piece]:
        if path.endswith(".jsonl"):
            yield from super().pieces(path, start, carry, redact=redact)
            return
        values = enumerate(self.records(document(path, redact=redact), path))
        yield from in_pieces((one for one in values if one[0] >= start), total=os.path.getsize(path))


class Reader(ABC):
    """The state of reading one source. `carry` and `counts` are JSON and are stored with each batch."""

    def __init__(self, path: str, carry: dict[str, Any], counts: dict[str, Any]) -> None:
        self.path = path
        self.carry = carry
        self.counts = counts
        self.types: dict[str, int] = counts.setdefault("types", {})
        self.unknown: dict[str, int] = counts.setdefault("unknown", {})

    @abstractmethod
    def read(self, record: Record, batch: Batch) -> None:
        """Add one record to the batch. Must not raise for any JSON value."""

    @property
    @abstractmethod
    def native_id(self) -> str | None:
        """The id of the source's conversation, if it is known."""

    def count(self, type: str, *, known: bool) -> None:
        types = self.types
        if type not in types and len(types) >= 500:
            type = "(other)"
        types[type] = types.get(type, 0) + 1
        if not known:
            self.unknown[type] = self.unknown.get(type, 0) + 1


def pieces(file: IO[bytes], start: int, *, redact: bool = True) -> Iterator[Piece]:
    """The lines of a file from `start` on, in bounded pieces."""
    place, rest = start, b""
    while data := file.read(PIECE_BYTES):
        lines = data.split(b"\n")
        if len(lines) > 1:
            suspects = [place + len(rest) + at for at in _suspects(data)] if redact else []
            if rest:
                lines[0] = rest + lines[0]
                suspects += [place] if redact and _suspects(lines[0]) else []
            rest = lines.pop()
            cuts = _cut(place, lines, suspects)
            place = cuts[-1].upto
            del lines, data  # free the memory before the pieces are processed
            while cuts:
                yield cuts.pop(0)
        elif len(rest := rest + data) >= LINE_MAX_BYTES:
            skipped = _rest_of_line(file)
            if skipped is None:  # the line has no end yet
                return
            yield Piece(place, place + len(rest) + skipped, [], oversized=1)
            place, rest = place + len(rest) + skipped, b""
    if rest and _whole(rest):
        (last,) = _cut(place, [rest], [place] if redact and _suspects(rest) else [])
        last.upto -= 1  # the line has no line end yet
        yield last


def _rest_of_line(file: IO[bytes]) -> int | None:
    skipped = 0
    while raw := file.readline(PIECE_BYTES):
        skipped += len(raw)
        if raw[-1] == 10:
            return skipped
    return None


def _whole(raw: bytes) -> bool:
    """Whether a last line without line end can be decoded."""
    text = raw.decode("utf-8", "replace").strip()
    return not text or _several(text, end=0)[1]


def _suspects(data: bytes) -> list[int]:
    """The offsets at which a secret may begin, plain or with escaped letters."""
    found = suspicious(data)
    at = data.find(_HIDING)
    while at >= 0:
        if data[at + 4 : at + 5] in _LETTERS:
            found.append(at)
        at = data.find(_HIDING, at + 4)
    return found


def _cut(place: int, lines: list[bytes], suspects: list[int]) -> list[Piece]:
    """Whole lines as pieces, redacted and without blank lines."""
    begins = list(accumulate([len(line) + 1 for line in lines], initial=place))
    oversized = 0
    if begins[-1] - place > LINE_MAX_BYTES:
        oversized = sum(len(line) >= LINE_MAX_BYTES for line in lines)
        lines = [line if len(line) < LINE_MAX_BYTES else b"" for line in lines]
    for n in {bisect(begins, suspect) - 1 for suspect in suspects}:
        if n < len(lines):  # the last line may be unfinished
            lines[n] = _undisguised(redacted(lines[n].decode("utf-8", "replace"))).encode()
    cuts = []
    for n in range(0, len(lines), PIECE_LINES):
        upto = min(n + PIECE_LINES, len(lines))
        numbered = zip(begins[n:upto], lines[n:upto], strict=True)
        kept = [(begin, text) for begin, line in numbered if (text := line.strip())]
        cuts.append(Piece(begins[n], begins[upto], kept, oversized=oversized if n == 0 else 0))
    return cuts


def _several(text: str, *known: Any, end: int) -> tuple[list[Any], bool]:
    """The values of a line, and whether the line holds nothing else."""
    values = [*known]
    while True:
        skipped = _SPACE.match(text, end)
        end = skipped.end() if skipped else end
        if end >= len(text):
            return values, True
        try:
            value, end = _decode(text, end)
        except (ValueError, RecursionError):
            return values, False
        values.append(value)


def _undisguised(text: str) -> str:
    """The JSON with plain letters in place of escapes, redacted again."""
    if not _DISGUISED.search(text):
        return text
    try:
        value, end = _decode(text)
        if end == len(text):
            lone = "\\ud" in text.lower()  # a lone surrogate can only be written as an escape
            text = json.dumps(value, ensure_ascii=lone, separators=(",", ":"))
    except (ValueError, RecursionError):
        pass
    return redacted(text)


def walk(root: str, wanted: re.Pattern[str]) -> Iterator[str]:
    """The regular files under `root` whose relative path matches, ordered by name. No link is followed."""
    if os.path.isfile(root):
        yield root
        return
    count = 0
    for directory, below, names in os.walk(root, followlinks=False):
        below.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            if wanted.search(os.path.relpath(path, root)) and not os.path.islink(path):
                count += 1
                if count > FILES_MAX:
                    raise InvalidInput(f"more than {FILES_MAX:,} transcripts under {root}", "name a smaller directory")
                yield path


def document(path: str, *, redact: bool) -> Any:
    """The redacted value of a JSON document; None if the file holds no JSON."""
    if os.path.getsize(path) > DOCUMENT_MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {DOCUMENT_MAX_BYTES:,} bytes", "it is left alone")
    with open(path, "rb") as file:
        raw = file.read()
    text = raw.decode("utf-8", "replace").strip().removeprefix("\ufeff")
    if redact:
        text = _undisguised(redacted(text) if suspicious(raw) else text)
    try:
        value, end = _decode(text)
    except (ValueError, RecursionError):
        return None
    return value if end == len(text) else None


def in_pieces(values: Iterable[tuple[int, Any]], *, total: int) -> Iterator[Piece]:
    """Pieces of numbered values that are no lines. The number of a value is its offset."""
    lines: list[Line] = []
    held: list[Any] = []
    start: int | None = None
    size = 0
    for n, value in values:
        start = n if start is None else start
        lines.append((n, _encode(value).encode("utf-8", "surrogatepass")))
        held.append(value)
        size += len(lines[-1][1])
        if len(lines) >= PIECE_LINES or size >= PIECE_BYTES:
            yield Piece(start, n + 1, lines, values=held)
            lines, held, start, size = [], [], None, 0
    if lines and start is not None:
        yield Piece(start, total, lines, values=held)
