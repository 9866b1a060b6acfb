"""`sf.threads`: the verbs on threads of graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, Store, query, refused_inside, verb
from standfast.errors import Conflict, InvalidInput, NotFound
from standfast.footings import journal
from standfast.footings.checks import FAR_FUTURE_US, page_size
from standfast.footings.keys import checked
from standfast.ids import new_id
from standfast.record.threads.nouns import Ancestry, Checkpoint, Stored, Thread, Value, Write
from standfast.record.threads.sealing import Seal, opened, shut
from standfast.record.threads.values import Cache, Known, Part, built, made, split

SQL = load(__name__)

PAGE = 20
CHAIN_MAX = 100_000
CLOSED = "closed"
"""The type of the row that ends a segment for good."""
_STEPS = 3
"""A put from memory, one from what is stored, and one that builds on nothing."""

Matches: TypeAlias = Callable[[bytes], bool]
ThreadList: TypeAlias = "list[Thread]"
PartList: TypeAlias = "list[Part]"
RowList: TypeAlias = "list[Row]"


class _Put(NamedTuple):
    """A checkpoint as it will be written, and what has to be true for it."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    header: bytes
    metadata: bytes
    parts: str
    rows: list[Part]
    kept_from: str | None
    """The parts of the parent as they were read: what is kept from them must still be there."""
    expect_head: bool


class Threads(Room):
    """Checkpoints of graphs: put, writes, get, list, delete, copy, prune."""

    __slots__ = ("_cache",)

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        super().__init__(store, tx)
        self._cache = Cache()

    # -- writing -------------------------------------------------------------------------------------

    def put(
        self,
        thread: str,
        id: str,
        *,
        header: bytes,
        metadata: bytes = b"{}",
        namespace: str = "",
        parent_id: str | None = None,
        values: Mapping[str, bool],
        value_of: Callable[[str], Value],
        run_id: str | None = None,
        expect_head: bool = False,
        seal: Seal | None = None,
    ) -> Stored:
        """Store one checkpoint; the same id again replaces it.

        `values` names its channels and says of each whether it may differ from the parent's; `value_of`
        is asked, outside any transaction, for those that are needed. With `expect_head`, raises Conflict
        if somebody else has added to the thread since the parent. Raises Conflict for a thread that was
        deleted, unless this is a beginning: no parent, in the outermost namespace.
        """
        refused_inside(self.tx, "threads.put")
        checked(thread, "thread")
        _names(namespace, id, parent_id or "", *values)
        for step in range(_STEPS):
            before = self._parent(thread, namespace, parent_id, fresh=step > 0) if parent_id and step < 2 else None
            parts, rows = self._parts(thread, before, values, value_of, seal)
            text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
            ask = _Put(
                thread,
                namespace,
                id,
                parent_id,
                run_id,
                shut(seal, ("checkpoint", namespace, id, parent_id or "", text), header),
                shut(seal, ("metadata", namespace, id), metadata),
                text,
                rows,
                None if before is None else json.dumps(before, separators=(",", ":"), sort_keys=True),
                expect_head,
            )
            crash.point("thread.before_put")
            try:
                self._put(ask)
            except _MovedOn:
                continue
            crash.point("thread.after_put")
            gone = () if before is None else (before.get(channel, "") for channel in parts)
            self._cache.keep({row.ref: row.known for row in rows}, [ref for ref in gone if ref not in parts.values()])
            self._cache.keep_parts((thread, namespace, id), parts)
            return Stored(id, parts, sum(len(row.data) for row in rows) + len(header) + len(metadata))
        raise AssertionError("a put that builds on nothing found something missing")

    @verb
    def _put(self, tx: Tx, ask: _Put) -> None:
        found = _held(tx, self.scope, ask.thread)
        beginning = ask.parent_id is None and ask.namespace == ""
        if found["deleted_us"] is not None and not beginning:
            raise _deleted(ask.thread)
        seq = found["seq"]
        place: Row = {"thread_seq": seq, "namespace": ask.namespace}
        if ask.expect_head:
            head = tx.maybe(SQL.latest, **place)
            if head is not None and head["checkpoint_id"] not in (ask.parent_id, ask.id):
                raise _overtaken(ask, head["checkpoint_id"])
        if ask.kept_from is not None:
            kept = tx.maybe(SQL.parts, checkpoint_id=ask.parent_id, **place)
            if kept is None or kept["parts"] != ask.kept_from:
                raise _MovedOn
        if found["deleted_us"] is not None:
            tx.run(SQL.revive, seq=seq, now_us=tx.now_us())
        for row in ask.rows:
            _add(tx, seq, row)
        tx.run(
            SQL.put,
            checkpoint_id=ask.id,
            parent_id=ask.parent_id,
            run_id=ask.run_id,
            header=ask.header,
            parts=ask.parts,
            metadata=ask.metadata,
            now_us=tx.now_us(),
            **place,
        )
        where = f" in {ask.namespace}" if ask.namespace else ""
        journal.append(tx, "thread.saved", found["id"], summary=f"checkpoint {ask.id}{where}")

    def put_writes(
        self,
        thread: str,
        checkpoint_id: str,
        writes: Sequence[Write],
        *,
        namespace: str = "",
        replace: bool = False,
        seal: Seal | None = None,
    ) -> None:
        """Store what a task wrote; it may come before its checkpoint. What is there stays, unless `replace`.

        Raises Conflict for a thread that was deleted.
        """
        checked(thread, "thread")
        _names(namespace, checkpoint_id, *(text for w in writes for text in (w.task_id, w.task_path, w.channel)))
        rows = [_write_row(namespace, checkpoint_id, write, seal) for write in writes]
        if rows:
            self._put_writes(thread, rows, replace)

    @verb
    def _put_writes(self, tx: Tx, thread: str, rows: Sequence[Row], replace: bool) -> None:
        found = tx.maybe(SQL.share, scope=self.scope, key=thread) or _held(tx, self.scope, thread)
        if found["deleted_us"] is not None:
            raise _deleted(thread)
        crash.point("thread.before_writes")
        for row in rows:
            tx.run(SQL.replace_write if replace else SQL.put_write, thread_seq=found["seq"], **row)
        channels = ", ".join(dict.fromkeys(row["channel"] for row in rows))
        journal.append(tx, "thread.wrote", found["id"], summary=f"task {rows[0]['task_id']}: {channels}")

    # -- reading -------------------------------------------------------------------------------------

    def get(
        self, thread: str, id: str | None = None, *, namespace: str = "", seal: Seal | None = None
    ) -> Checkpoint | None:
        """One checkpoint, or the newest of its namespace; None if there is none."""
        asked = self._get(thread, id, namespace)
        if asked is None:
            return None
        row, pieces, writes = asked
        known = self._known([row], pieces, seal)
        self._cache.keep(known)  # most likely the next put goes on from here
        return self._checkpoint(thread, row, known, writes, seal)

    @query
    def _get(self, tx: Tx, thread: str, id: str | None, namespace: str) -> tuple[Row, _Pieces, list[Row]] | None:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        if found is None or found["deleted_us"] is not None:
            return None
        place: Row = {"thread_seq": found["seq"], "namespace": namespace}
        row = tx.maybe(SQL.get_latest, **place) if id is None else tx.maybe(SQL.get, checkpoint_id=id, **place)
        if row is None:
            return None
        writes = tx.all(SQL.writes, checkpoint_id=row["checkpoint_id"], **place)
        return row, self._pieces(tx, found["seq"], [row]), writes

    def list(
        self,
        thread: str | None = None,
        *,
        namespace: str | None = None,
        before: str | None = None,
        matches: Matches | None = None,
        limit: int | None = None,
        seal: Seal | None = None,
    ) -> Iterator[Checkpoint]:
        """Checkpoints, the newest first; of one thread or of all. Nothing is held while the caller looks at one.

        `matches` is asked with each one's metadata, outside any transaction.
        """
        upto, upto_seq, left = "", 0, limit
        while left is None or left > 0:
            rows = self._page(thread, namespace, before or "", upto, upto_seq, PAGE)
            if not rows:
                return
            upto, upto_seq = rows[-1]["checkpoint_id"], rows[-1]["seq"]
            chosen = [row for row in rows if namespace in (None, row["namespace"])]
            chosen = [row for row in chosen if matches is None or matches(_metadata(row, seal))]
            chosen = chosen if left is None else chosen[:left]
            # What was taken away since the page was read is passed over: its values may be gone too.
            chosen, pieces, writes = self._told(chosen)
            known = self._known(chosen, pieces, seal)
            for row, written in zip(chosen, writes, strict=True):
                yield self._checkpoint(row.get("key") or thread or "", row, known, written, seal)
            left = None if left is None else left - len(chosen)
            if len(rows) < PAGE:
                return

    @query
    def _page(
        self, tx: Tx, thread: str | None, namespace: str | None, before: str, upto: str, upto_seq: int, limit: int
    ) -> Sequence[Row]:
        asked: Row = {"before": before, "upto": upto, "upto_seq": upto_seq, "limit": limit}
        if thread is None:
            return tx.all(SQL.list, scope=self.scope, **asked)
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        if found is None or found["deleted_us"] is not None:
            return []
        if namespace is None:
            return tx.all(SQL.list_thread, thread_seq=found["seq"], **asked)
        return tx.all(SQL.list_namespace, thread_seq=found["seq"], namespace=namespace, **asked)

    @query
    def _told(self, tx: Tx, rows: Sequence[Row]) -> tuple[RowList, _Pieces, Sequence[Sequence[Row]]]:
        """Those of a page's rows that are still there, their values and their writes: one snapshot."""
        places = {
            row["seq"]: {name: row[name] for name in ("thread_seq", "namespace", "checkpoint_id")} for row in rows
        }
        now = {row["seq"]: tx.maybe(SQL.parts, **places[row["seq"]]) for row in rows}
        there = [row for row in rows if (found := now[row["seq"]]) is not None and found["parts"] == row["parts"]]
        pieces: _Pieces = {}
        for seq in dict.fromkeys(row["thread_seq"] for row in there):
            for segment, more in self._pieces(tx, seq, [row for row in there if row["thread_seq"] == seq]).items():
                # Copied threads share segments, and these say the same.
                if segment not in pieces or len(more) > len(pieces[segment]):
                    pieces[segment] = more
        return there, pieces, [tx.all(SQL.writes, **places[row["seq"]]) for row in there]

    def ancestry(
        self, thread: str, id: str, channels: Sequence[str], *, namespace: str = "", seal: Seal | None = None
    ) -> dict[str, Ancestry]:
        """For each channel what was written along the parents of a checkpoint, back to where its value is kept."""
        told = self._ancestry(thread, id, tuple(channels), namespace)
        found: dict[str, Ancestry] = {}
        for channel in channels:
            writes, row, pieces = told.get(channel, ([], None, {}))
            seed = None
            if row is not None:
                known = self._known([row], pieces, seal)[json.loads(row["parts"])[channel]]
                seed = (known.type, known.data)
            found[channel] = Ancestry(
                [_write(namespace, write["checkpoint_id"], write, seal) for write in writes], seed
            )
        return found

    @query
    def _ancestry(
        self, tx: Tx, thread: str, id: str, channels: tuple[str, ...], namespace: str
    ) -> dict[str, tuple[Sequence[Row], Row | None, _Pieces]]:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        if found is None or found["deleted_us"] is not None:
            return {}
        place: Row = {"thread_seq": found["seq"], "namespace": namespace}
        chain = tx.all(SQL.chain, checkpoint_id=id, limit=CHAIN_MAX, **place)[1:]
        told: dict[str, tuple[Sequence[Row], Row | None, _Pieces]] = {}
        for channel in channels:
            path, seed = _upto_seed(chain, channel)
            at = {row["checkpoint_id"]: n for n, row in enumerate(reversed(path))}
            writes: Sequence[Row] = []
            if at:
                ends: Row = {"oldest": min(at), "newest": max(at)}
                rows = tx.all(SQL.channel_writes, channel=channel, **ends, **place)
                writes = sorted(
                    (row for row in rows if row["checkpoint_id"] in at),
                    key=lambda row: (at[row["checkpoint_id"]], row["task_path"], row["task_id"], row["idx"]),
                )
            only = None if seed is None else seed | {"parts": json.dumps({channel: json.loads(seed["parts"])[channel]})}
            told[channel] = writes, only, {} if only is None else self._pieces(tx, found["seq"], [only])
        return told

    def newest(self, thread: str, *, seal: Seal | None = None) -> Iterator[Checkpoint]:
        """The newest checkpoint of each namespace of a thread."""
        newest: dict[str, str] = {}
        for row in self._headers(thread):
            newest[row["namespace"]] = max(newest.get(row["namespace"], ""), row["checkpoint_id"])
        for namespace, id in newest.items():
            found = self.get(thread, id, namespace=namespace, seal=seal)
            if found is not None:
                yield found

    def path(self, thread: str, id: str, channels: Sequence[str], *, namespace: str = "") -> Sequence[str]:
        """The ancestors without which these channels of a checkpoint could not be made again."""
        if not channels:
            return []
        chain = self._chain(thread, id, namespace)
        longest = max((_upto_seed(chain, channel)[0] for channel in channels), key=len)
        return [row["checkpoint_id"] for row in longest]

    def ids(self, thread: str) -> set[tuple[str, str]]:
        """Which checkpoints a thread has: namespace and id."""
        return {(row["namespace"], row["checkpoint_id"]) for row in self._headers(thread)}

    @query
    def is_deleted(self, tx: Tx, thread: str) -> bool:
        """Whether it was here and was deleted."""
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        return found is not None and found["deleted_us"] is not None

    @query
    def _headers(self, tx: Tx, thread: str) -> Sequence[Row]:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        return [] if found is None else tx.all(SQL.headers, thread_seq=found["seq"])

    @query
    def _chain(self, tx: Tx, thread: str, id: str, namespace: str) -> Sequence[Row]:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        if found is None:
            return []
        place: Row = {"thread_seq": found["seq"], "namespace": namespace, "checkpoint_id": id}
        return tx.all(SQL.chain, limit=CHAIN_MAX, **place)[1:]

    @query
    def threads(self, tx: Tx, *, before_us: int | None = None, limit: int = 50) -> ThreadList:
        """The threads of this scope, the last changed first."""
        upto = FAR_FUTURE_US if before_us is None else before_us
        rows = tx.all(SQL.page, scope=self.scope, before_us=upto, limit=page_size(limit))
        return [Thread(**row) for row in rows]

    # -- taking away ---------------------------------------------------------------------------------

    @verb
    def delete(self, tx: Tx, thread: str) -> None:
        """Everything of a thread, at once; a tombstone stays, so that what comes late stays deleted too."""
        checked(thread, "thread")
        found = _held(tx, self.scope, thread, deleted=True)
        crash.point("thread.before_delete")
        _empty(tx, found["seq"])
        tx.run(SQL.bury, seq=found["seq"], now_us=tx.now_us())
        journal.append(tx, "thread.deleted", found["id"], summary=f"thread {thread}")

    @verb
    def delete_runs(self, tx: Tx, run_ids: Sequence[str]) -> int:
        """The checkpoints that these runs made, and what was written at them; how many."""
        rows = [row for run_id in dict.fromkeys(run_ids) for row in tx.all(SQL.of_run, run_id=run_id, scope=self.scope)]
        crash.point("thread.before_prune")
        for key in sorted({row["key"] for row in rows}):
            found = _held(tx, self.scope, key)
            _take(tx, found, [row for row in rows if row["key"] == key])
        return len(rows)

    @verb
    def prune(self, tx: Tx, thread: str, *, keep: Mapping[str, Sequence[str]] | None = None) -> int:
        """All checkpoints of a thread but those in `keep`, by namespace; without it, but the newest of each.

        The values that no checkpoint speaks of any more go with them. How many checkpoints went.
        """
        found = tx.maybe(SQL.hold, scope=self.scope, key=checked(thread, "thread"))
        if found is None or found["deleted_us"] is not None:
            return 0
        crash.point("thread.before_prune")
        rows = tx.all(SQL.headers, thread_seq=found["seq"])
        newest: dict[str, str] = {}
        for row in rows:
            newest[row["namespace"]] = max(newest.get(row["namespace"], ""), row["checkpoint_id"])
        kept = set(newest.items())
        kept |= {(namespace, id) for namespace, ids in (keep or {}).items() for id in ids}
        gone = [row for row in rows if (row["namespace"], row["checkpoint_id"]) not in kept]
        _take(tx, found, gone)
        return len(gone)

    @verb
    def copy(self, tx: Tx, source: str, target: str) -> int:
        """Everything of one thread into another; what the target has stays. How many checkpoints there are."""
        checked(target, "thread")
        found = tx.maybe(SQL.find, scope=self.scope, key=checked(source, "thread"))
        if found is None or found["deleted_us"] is not None:
            raise NotFound(f"there is no thread {source!r} in this scope", "standfast sql 'SELECT key FROM thread'")
        if source == target:
            raise InvalidInput("a thread cannot be copied onto itself")
        # Both are held, in one order for everybody, so that no checkpoint comes between its values and itself.
        held = {key: _held(tx, self.scope, key) for key in sorted((source, target))}
        found, into = held[source], held[target]
        if into["deleted_us"] is not None:
            tx.run(SQL.revive, seq=into["seq"], now_us=tx.now_us())
        crash.point("thread.before_copy")
        ends: Row = {"source": found["seq"], "target": into["seq"]}
        tx.run(SQL.copy_values, **ends)
        tx.run(SQL.close_copies, nothing=b"", **ends)
        tx.run(SQL.copy_checkpoints, **ends)
        tx.run(SQL.copy_writes, **ends)
        count = len(tx.all(SQL.headers, thread_seq=into["seq"]))
        words = f"{source} copied to {target}"
        journal.append(tx, "thread.copied", into["id"], summary=words, data={"from": found["id"], "checkpoints": count})
        return count

    # -- small parts ---------------------------------------------------------------------------------

    def _parent(self, thread: str, namespace: str, id: str, *, fresh: bool) -> dict[str, str] | None:
        parts = None if fresh else self._cache.parts((thread, namespace, id))
        if parts is None:
            asked = self._parts_of(thread, namespace, id)
            parts = None if asked is None else json.loads(asked)
        return parts

    @query
    def _parts_of(self, tx: Tx, thread: str, namespace: str, id: str) -> str | None:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        if found is None or found["deleted_us"] is not None:
            return None
        row = tx.maybe(SQL.parts, thread_seq=found["seq"], namespace=namespace, checkpoint_id=id)
        return None if row is None else str(row["parts"])

    def _parts(
        self,
        thread: str,
        before: dict[str, str] | None,
        values: Mapping[str, bool],
        value_of: Callable[[str], Value],
        seal: Seal | None,
    ) -> tuple[dict[str, str], PartList]:
        """Which value each channel has, and the rows that have to be written for it."""
        parts: dict[str, str] = {}
        rows: list[Part] = []
        for channel, changed in values.items():
            ref = (before or {}).get(channel)
            if ref is not None and not changed:
                parts[channel] = ref
                continue
            old = None if ref is None else self._value(thread, ref, seal)
            row = made(value_of(channel), None if ref is None or old is None else (ref, old), seal)
            if row is None:
                assert ref is not None
                parts[channel] = ref
            else:
                parts[channel] = row.ref
                rows.append(row)
        return parts, rows

    def _value(self, thread: str, ref: str, seal: Seal | None) -> Known | None:
        known = self._cache.value(ref)
        if known is None:
            segment, n = split(ref)
            rows = self._rows_of(thread, ref)
            if rows and rows[-1]["n"] == n and rows[-1]["type"] != CLOSED:  # else it was taken away since it was named
                known = built(segment, rows, {n}, seal)[ref]
        return known

    @query
    def _rows_of(self, tx: Tx, thread: str, ref: str) -> Sequence[Row]:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        segment, n = split(ref)
        return [] if found is None else tx.all(SQL.pieces, thread_seq=found["seq"], segment=segment, n=n)

    def _pieces(self, tx: Tx, thread_seq: int, rows: Sequence[Row]) -> _Pieces:
        """The rows of every value these checkpoints speak of, but for those at hand."""
        wanted: dict[str, int] = {}
        for row in rows:
            for ref in json.loads(row["parts"]).values():
                if self._cache.value(ref) is None:
                    segment, n = split(ref)
                    wanted[segment] = max(n, wanted.get(segment, 0))
        return {s: tx.all(SQL.pieces, thread_seq=thread_seq, segment=s, n=n) for s, n in wanted.items()}

    def _known(self, rows: Sequence[Row], pieces: _Pieces, seal: Seal | None) -> dict[str, Known]:
        refs = {ref for row in rows for ref in json.loads(row["parts"]).values()}
        known: dict[str, Known] = {}
        wanted: dict[str, set[int]] = {}
        for ref in refs:
            segment, n = split(ref)
            value = self._cache.value(ref)
            if value is not None:
                known[ref] = value
            elif pieces.get(segment) and pieces[segment][-1]["n"] >= n:
                wanted.setdefault(segment, set()).add(n)
        for segment, numbers in wanted.items():
            known |= built(segment, pieces[segment], numbers, seal)
        return known

    def _checkpoint(
        self, thread: str, row: Row, known: dict[str, Known], writes: Sequence[Row], seal: Seal | None
    ) -> Checkpoint:
        parts: dict[str, str] = json.loads(row["parts"])
        namespace, id = row["namespace"], row["checkpoint_id"]
        place = ("checkpoint", namespace, id, row["parent_id"] or "", row["parts"])
        values: dict[str, Value] = {}
        for channel, ref in parts.items():
            # It was at hand when the rows were read and has been let go since: the segment's rows say it.
            value = known.get(ref) or self._value(thread, ref, seal)
            assert value is not None, f"{ref} is gone"
            values[channel] = (value.type, value.data)
        return Checkpoint(
            thread,
            namespace,
            id,
            row["parent_id"],
            opened(seal, place, row["header"]),
            _metadata(row, seal),
            values,
            sorted((_write(namespace, id, write, seal) for write in writes), key=lambda write: write.order),
        )


_Pieces: TypeAlias = "dict[str, list[Row]]"


class _MovedOn(Exception):
    """What a put builds on is not there any more: rolled back, and planned again."""


def _held(tx: Tx, scope: str, key: str, *, deleted: bool = False) -> Row:
    """The thread's row, held until the end of the transaction; made if there is none."""
    now_us = tx.now_us()
    found = tx.maybe(SQL.touch, scope=scope, key=key, now_us=now_us)
    if found is None:
        new: Row = {"id": new_id("thr"), "deleted_us": now_us if deleted else None, **tx.caller.labelled()}
        found = tx.maybe(SQL.begin, scope=scope, key=key, now_us=now_us, **new)
    # Somebody else began it between the two.
    return found or tx.one(SQL.touch, scope=scope, key=key, now_us=now_us)


def _add(tx: Tx, thread_seq: int, row: Part) -> None:
    fields: Row = {"thread_seq": thread_seq, "segment": row.segment, "type": row.type, "data": row.data}
    if row.n == 0:
        tx.run(SQL.put_value, **fields)
    elif tx.maybe(SQL.put_piece, after=row.n - 1, **fields) is None:
        raise _MovedOn


def _take(tx: Tx, found: Row, gone: Sequence[Row]) -> None:
    """Take these checkpoints away, with what was written at them and the values nobody else speaks of."""
    if not gone:
        return
    seq = found["seq"]
    for row in gone:
        tx.run(SQL.drop_checkpoint, seq=row["seq"])
        tx.run(SQL.drop_writes, thread_seq=seq, namespace=row["namespace"], checkpoint_id=row["checkpoint_id"])
    needed: dict[str, int] = {}
    for row in tx.all(SQL.headers, thread_seq=seq):
        for ref in json.loads(row["parts"]).values():
            segment, n = split(ref)
            needed[segment] = max(n, needed.get(segment, 0))
    for row in tx.all(SQL.segments, thread_seq=seq):
        upto = needed.get(row["segment"], -1)
        if row["n"] > upto:
            tx.run(SQL.drop_pieces, thread_seq=seq, segment=row["segment"], n=upto)
            if upto >= 0:
                tx.run(SQL.close, thread_seq=seq, segment=row["segment"], n=upto + 1, nothing=b"")
    words = f"{len(gone)} checkpoint{'s' * (len(gone) != 1)} taken away"
    journal.append(tx, "thread.pruned", found["id"], summary=words, data={"checkpoints": len(gone)})


def _empty(tx: Tx, thread_seq: int) -> None:
    tx.run(SQL.drop_all_checkpoints, thread_seq=thread_seq)
    tx.run(SQL.drop_all_values, thread_seq=thread_seq)
    tx.run(SQL.drop_all_writes, thread_seq=thread_seq)


def _upto_seed(chain: Sequence[Row], channel: str) -> tuple[list[Row], Row | None]:
    """The ancestors up to the one that keeps the channel's value, and that one."""
    path: list[Row] = []
    for row in chain:
        path.append(row)
        if channel in json.loads(row["parts"]):
            return path, row
    return path, None


def _write(namespace: str, checkpoint_id: str, row: Row, seal: Seal | None) -> Write:
    place = ("write", namespace, checkpoint_id, row["task_id"], row["idx"], row["channel"], row["type"])
    value = (row["type"], opened(seal, place, row["data"]))
    return Write(row["task_id"], row["task_path"], row["idx"], row["channel"], value)


def _write_row(namespace: str, checkpoint_id: str, write: Write, seal: Seal | None) -> Row:
    type, data = write.value
    place = ("write", namespace, checkpoint_id, write.task_id, write.idx, write.channel, type)
    return {
        "namespace": namespace,
        "checkpoint_id": checkpoint_id,
        "task_id": write.task_id,
        "task_path": write.task_path,
        "idx": write.idx,
        "channel": write.channel,
        "type": type,
        "data": shut(seal, place, data),
    }


def _metadata(row: Row, seal: Seal | None) -> bytes:
    return opened(seal, ("metadata", row["namespace"], row["checkpoint_id"]), row["metadata"])


def _names(*texts: str) -> None:
    for text in texts:
        if "\0" in text or len(text) > 2000:
            raise InvalidInput(
                f"{serial.clean(text, 60)!r} cannot be a name: it holds NUL, or is over 2,000 characters"
            )


def _deleted(thread: str) -> Conflict:
    return Conflict(
        f"thread {thread!r} was deleted; what comes late stays deleted",
        "begin it anew: run the graph on it from its first input",
        code="thread_deleted",
    )


def _overtaken(ask: _Put, head: str) -> Conflict:
    since = f"since {ask.parent_id}" if ask.parent_id else "meanwhile"
    return Conflict(
        f"somebody else wrote to thread {ask.thread!r} {since}: its newest checkpoint is {head}",
        "run the graph again: it will go on from there",
        code="thread_overtaken",
    )


def fields_match(metadata: bytes, wanted: Mapping[str, Any]) -> bool:
    """Whether a JSON object has each of these fields with this value; names are compared, never interpreted."""
    found = json.loads(metadata)
    return all(name in found and found[name] == value for name, value in wanted.items())
