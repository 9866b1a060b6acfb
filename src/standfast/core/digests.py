"""Digests of the journal, which show the rows that were changed, removed or added later.

    row       line = seq, hash of the row, account that wrote it
    stretch   1,000 lines; digest n = SHA-256(digest n-1, lines)

`extend` makes the digests of complete stretches, before each copy and before each check. `check` reads
the whole journal and names the rows that differ. The digests are rows of the same store, so a program that can write
the store can also write new digests. A *witness* is the last digest at some moment, kept elsewhere: the manifest of
every copy has one.

On PostgreSQL a transaction may commit a lower number after a higher one. So a stretch waits until its rows are
SETTLED_US old and no older transaction is running. No transaction of standfast lasts that long.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from standfast import crash
from standfast.clock import MINUTE_US
from standfast.core import journal
from standfast.core.progress import Progress, quiet
from standfast.core.receipts import row_hash
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Store
from standfast.errors import InvalidInput
from standfast.models import Model

SQL = load(__name__)

STRETCH = 1000
SETTLED_US = 10 * MINUTE_US
FINDINGS_MAX = 20
NOTHING = "0" * 64
"""The digest of a journal without rows."""
_MARK = struct.Struct(">q8s")


class Finding(Model):
    """One difference between the journal and its digests."""

    seq: int | None
    """The row of the journal; None if the difference is not in one row."""
    text: str


class Checked(Model):
    """The result of a check of the journal."""

    events: int
    """Rows of the journal."""
    upto_seq: int
    """Rows up to this one have a digest."""
    open: int
    """The number of rows after the last digest. Only a receipt or a witness can prove them."""
    findings: list[Finding]
    witness: str | None = None
    """The witness of the present journal, to compare with later."""


class Witness(NamedTuple):
    """The journal up to a row, as a digest."""

    upto_seq: int
    events: int
    hash: str

    def __str__(self) -> str:
        return f"{self.upto_seq}:{self.events}:{self.hash}"


class _Line(NamedTuple):
    seq: int
    text: bytes

    @property
    def mark(self) -> bytes:
        return sha256(self.text).digest()[:8]


def parse_witness(text: str) -> Witness:
    seq, _, rest = text.partition(":")
    events, _, hash = rest.partition(":")
    if not (seq.isdigit() and events.isdigit() and len(hash) == 64):
        raise InvalidInput(f"{text[:80]!r} is not a digest of a journal", "name the manifest of a copy: --against FILE")
    return Witness(int(seq), int(events), hash)


def extend(store: Store) -> Witness:
    """Make the digests of all complete stretches. Returns the witness of all settled rows.

    A restored copy is read only: there the digests are not stored.
    """
    last = store.read(lambda tx: tx.maybe(SQL.last)) or {"n": 0, "upto_seq": 0, "hash": ""}
    while True:
        rows = store.read(partial(settled, after=last["upto_seq"], limit=STRETCH, older_us=SETTLED_US))
        lines = [_line(row) for row in rows]
        hash = chained(last["hash"], lines) if lines else last["hash"]
        upto_seq = lines[-1].seq if lines else last["upto_seq"]
        if len(lines) < STRETCH:
            return Witness(upto_seq, last["n"] * STRETCH + len(lines), hash or NOTHING)
        last = {"n": last["n"] + 1, "upto_seq": upto_seq, "hash": hash}
        if not store.engine.copy_of:
            crash.point("digest.before_put")
            _put(store, last, lines)


def _put(store: Store, made: Row, lines: Sequence[_Line]) -> None:
    """Store a digest. If another process has stored the same one, nothing changes."""
    marks = b"".join(_MARK.pack(line.seq, line.mark) for line in lines)
    store.write(lambda tx: tx.run(SQL.put, now_us=tx.now_us(), marks=marks, **made))


def settled(tx: Tx, after: int, limit: int, older_us: int) -> list[Row]:
    """The rows after `after`, up to the first before which another transaction may still commit one."""
    horizon: Row = {"before_us": tx.now_us() - older_us, "floor": journal.settled_floor(tx)}
    rows = tx.all(SQL.stretch, seq=after, limit=limit, **horizon)
    return list(takewhile(itemgetter("settled"), rows))


def _line(row: Row) -> _Line:
    return _Line(row["seq"], f"{row['seq']} {row_hash(row)} {row['db_user'] or ''}\n".encode())


def chained(before: str, lines: Sequence[_Line]) -> str:
    return sha256(before.encode() + b"\n" + b"".join(line.text for line in lines)).hexdigest()


# -- checks --------------------------------------------------------------------------------------------


def check(store: Store, against: str | None = None, progress: Progress = quiet) -> Checked:
    """Compare every row with its digest, with this host's memory of the store, and with a witness."""
    witness = parse_witness(against) if against is not None else None
    findings: list[Finding] = []
    done, total = 0, store.read(_counted)[1]
    for digest, lines in _stretches(store):
        progress("checking the journal", done, total)
        findings += _differing(digest, lines)
        done += len(lines)
        if len(findings) >= FINDINGS_MAX:
            break
    findings += _forgotten(store)
    if witness is not None and not findings:
        findings += _against(store, witness)
    now = None if findings else str(extend(store))
    upto, events, left = store.read(_counted)
    return Checked(events, upto, left, findings[:FINDINGS_MAX], now)


def _counted(tx: Tx) -> tuple[int, int, int]:
    last = tx.maybe(SQL.last)
    upto = last["upto_seq"] if last is not None else 0
    return upto, tx.one(SQL.count_after, seq=0)["n"], tx.one(SQL.count_after, seq=upto)["n"]


def _stretches(store: Store) -> Iterator[tuple[Row, Sequence[_Line]]]:
    """Each digest with its predecessor and the rows that the journal has for it now."""
    last: Row = {"n": 0, "upto_seq": 0, "hash": ""}
    while (found := store.read(partial(_stretch, last))) is not None:
        yield found
        last = found[0]


def _stretch(last: Row, tx: Tx) -> tuple[Row, Sequence[_Line]] | None:
    digest = tx.maybe(SQL.next, n=last["n"])
    if digest is None:
        return None
    rows = tx.all(SQL.between, seq=last["upto_seq"], upto_seq=digest["upto_seq"])
    behind: Row = {"before": last["hash"], "after_seq": last["upto_seq"], "expected": last["n"] + 1}
    return digest | behind, [_line(row) for row in rows]


def _differing(digest: Row, lines: Sequence[_Line]) -> list[Finding]:
    if digest["n"] != digest["expected"]:
        missing = f"digest {digest['expected']} is missing: rows up to {digest['upto_seq']} cannot be compared"
        return [Finding(None, missing)]
    if chained(digest["before"], lines) == digest["hash"]:
        return []
    known = dict(_MARK.iter_unpack(digest["marks"])) if len(digest["marks"]) % _MARK.size == 0 else {}
    now = {line.seq: line.mark for line in lines}
    found = [Finding(seq, f"row {seq} was removed") for seq in sorted(known.keys() - now.keys())]
    found += [Finding(seq, f"row {seq} was added later") for seq in sorted(now.keys() - known.keys())]
    same = sorted(known.keys() & now.keys())
    found += [Finding(seq, f"row {seq} was changed") for seq in same if known[seq] != now[seq]]
    own = f"digest {digest['n']} (rows {digest['after_seq'] + 1} to {digest['upto_seq']}) was changed"
    return found or [Finding(None, own)]


def _forgotten(store: Store) -> list[Finding]:
    """Check the row that this host saw acknowledged last. It may be newer than every digest."""
    known = store.memory.known() if store.memory is not None else None
    if known is None or not known.seq or known.epoch != store.pin[1]:
        return []
    row = store.read(lambda tx: tx.maybe(journal.SQL.by_seq, seq=known.seq))
    if row is None:
        return [Finding(known.seq, f"row {known.seq} was removed: this host saw it acknowledged")]
    if known.hash and row_hash(row) != known.hash:
        return [Finding(known.seq, f"row {known.seq} was changed: this host remembers another hash")]
    return []


def _against(store: Store, witness: Witness) -> list[Finding]:
    """Compare the witness with the digest of the rows up to its row."""
    hash, upto, events = "", 0, 0
    while lines := store.read(partial(_page, upto, witness.upto_seq)):
        hash, upto, events = chained(hash, lines), lines[-1].seq, events + len(lines)
    if (upto, events, hash or NOTHING) == tuple(witness):
        return []
    if events != witness.events:
        text = f"the witness has {witness.events} rows up to {witness.upto_seq}; this journal has {events}"
    else:
        text = f"rows up to {witness.upto_seq} were changed since the witness was made"
    return [Finding(None, text)]


def _page(after: int, upto: int, tx: Tx) -> Sequence[_Line]:
    rows = tx.all(SQL.stretch, seq=after, limit=STRETCH, before_us=0, floor=0)
    return [_line(row) for row in rows if row["seq"] <= upto]
