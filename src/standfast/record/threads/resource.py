"""`sf.threads`: the methods on threads of LangGraph."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from standfast import crash
from standfast.clock import Time
from standfast.core import journal, removed
from standfast.core.checks import FAR_FUTURE_US, page_size, past_us
from standfast.core.keys import checked
from standfast.db.contract import Row, Tx
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import InvalidInput, NotFound
from standfast.record.threads.encryption import Seal, opened, shut
from standfast.record.threads.models import Ancestry, Checkpoint, Stored, Thread, Value, Write
from standfast.record.threads.rows import (
    SQL,
    MovedOn,
    Put,
    add_part,
    check_names,
    deleted_thread,
    empty,
    hold_thread,
    metadata_of,
    overtaken,
    take_away,
    upto_seed,
    write_of,
    write_row,
)
from standfast.record.threads.values import Cache, Known, Part, built, made, split

PAGE = 20
CHAIN_MAX = 100_000
CLOSED = "closed"
"""The type of the row that ends a segment permanently."""
_STEPS = 3
"""The tries of a put: from the cache, from the stored rows, and with all values whole."""

Matches: TypeAlias = Callable[[bytes], bool]
ThreadList: TypeAlias = "list[Thread]"
PartList: TypeAlias = "list[Part]"
RowList: TypeAlias = "list[Row]"


class Threads(Resource):
    """Checkpoints of graphs: put, get, list, delete, copy and prune them."""

    __slots__ = ("_cache",)

    def __init__(self, store: Store, tx: Tx | None = None) -> None:
        super().__init__(store, tx)
        self._cache = Cache()

    # -- writes --------------------------------------------------------------------------------------

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
        """Store one checkpoint. The same id again replaces it.

        `values` has each channel, and whether its value may differ from the parent's. `value_of` is called, outside
        any transaction, for the values that are needed. With `expect_head`, raises Conflict if another caller has added
        a checkpoint since the parent. Raises Conflict for a deleted thread, unless this checkpoint begins it again: it
        has no parent and is in the outermost namespace.
        """
        refused_inside(self.tx, "threads.put")
        checked(thread, "thread")
        check_names(namespace, id, parent_id or "", *values)
        for step in range(_STEPS):
            before = self._parent(thread, namespace, parent_id, fresh=step > 0) if parent_id and step < 2 else None
            parts, rows = self._parts(thread, before, values, value_of, seal)
            text = json.dumps(parts, separators=(",", ":"), sort_keys=True)
            ask = Put(
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
            except MovedOn:
                continue
            crash.point("thread.after_put")
            gone = () if before is None else (before.get(channel, "") for channel in parts)
            self._cache.keep({row.ref: row.known for row in rows}, [ref for ref in gone if ref not in parts.values()])
            self._cache.keep_parts((thread, namespace, id), parts)
            return Stored(id, parts, sum(len(row.data) for row in rows) + len(header) + len(metadata))
        raise AssertionError("a put that builds on nothing found something missing")

    @transactional
    def _put(self, tx: Tx, ask: Put) -> None:
        found = hold_thread(tx, self.scope, ask.thread)
        beginning = ask.parent_id is None and ask.namespace == ""
        if found["deleted_us"] is not None and not beginning:
            raise deleted_thread(ask.thread)
        seq = found["seq"]
        place: Row = {"thread_seq": seq, "namespace": ask.namespace}
        if ask.expect_head:
            head = tx.maybe(SQL.latest, **place)
            if head is not None and head["checkpoint_id"] not in (ask.parent_id, ask.id):
                raise overtaken(ask, head["checkpoint_id"])
        if ask.kept_from is not None:
            kept = tx.maybe(SQL.parts, checkpoint_id=ask.parent_id, **place)
            if kept is None or kept["parts"] != ask.kept_from:
                raise MovedOn
        if found["deleted_us"] is not None:
            tx.run(SQL.revive, seq=seq, now_us=tx.now_us())
        for row in ask.rows:
            add_part(tx, seq, row)
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
        """Store the writes of a task, also before their checkpoint. A stored write stays, unless `replace`.

        Raises Conflict for a deleted thread.
        """
        checked(thread, "thread")
        check_names(namespace, checkpoint_id, *(text for w in writes for text in (w.task_id, w.task_path, w.channel)))
        rows = [write_row(namespace, checkpoint_id, write, seal) for write in writes]
        if rows:
            self._put_writes(thread, rows, replace)

    @transactional
    def _put_writes(self, tx: Tx, thread: str, rows: Sequence[Row], replace: bool) -> None:
        found = tx.maybe(SQL.share, scope=self.scope, key=thread) or hold_thread(tx, self.scope, thread)
        if found["deleted_us"] is not None:
            raise deleted_thread(thread)
        crash.point("thread.before_writes")
        for row in rows:
            tx.run(SQL.replace_write if replace else SQL.put_write, thread_seq=found["seq"], **row)
        channels = ", ".join(dict.fromkeys(row["channel"] for row in rows))
        journal.append(tx, "thread.wrote", found["id"], summary=f"task {rows[0]['task_id']}: {channels}")

    # -- reads ---------------------------------------------------------------------------------------

    def get(
        self, thread: str, id: str | None = None, *, namespace: str = "", seal: Seal | None = None
    ) -> Checkpoint | None:
        """One checkpoint, or the newest of its namespace; None if there is none."""
        asked = self._get(thread, id, namespace)
        if asked is None:
            return None
        row, pieces, writes = asked
        known = self._known([row], pieces, seal)
        self._cache.keep(known)  # the next put probably continues from this checkpoint
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
        """Checkpoints of one thread or of all, the newest first. No transaction is open while the caller uses one.

        `matches` is called with the metadata of each, outside any transaction.
        """
        upto, upto_seq, left = "", 0, limit
        while left is None or left > 0:
            rows = self._page(thread, namespace, before or "", upto, upto_seq, PAGE)
            if not rows:
                return
            upto, upto_seq = rows[-1]["checkpoint_id"], rows[-1]["seq"]
            chosen = [row for row in rows if namespace in (None, row["namespace"])]
            chosen = [row for row in chosen if matches is None or matches(metadata_of(row, seal))]
            chosen = chosen if left is None else chosen[:left]
            # Skip checkpoints that were deleted since the page was read: their values may be deleted too.
            chosen, pieces, writes = self._present(chosen)
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
    def _present(self, tx: Tx, rows: Sequence[Row]) -> tuple[RowList, _Pieces, Sequence[Sequence[Row]]]:
        """The rows of a page that still exist, with their values and writes, in one snapshot."""
        places = {
            row["seq"]: {name: row[name] for name in ("thread_seq", "namespace", "checkpoint_id")} for row in rows
        }
        now = {row["seq"]: tx.maybe(SQL.parts, **places[row["seq"]]) for row in rows}
        there = [row for row in rows if (found := now[row["seq"]]) is not None and found["parts"] == row["parts"]]
        pieces: _Pieces = {}
        for seq in dict.fromkeys(row["thread_seq"] for row in there):
            for segment, more in self._pieces(tx, seq, [row for row in there if row["thread_seq"] == seq]).items():
                # Copied threads share segments, and the shared rows are equal.
                if segment not in pieces or len(more) > len(pieces[segment]):
                    pieces[segment] = more
        return there, pieces, [tx.all(SQL.writes, **places[row["seq"]]) for row in there]

    def ancestry(
        self, thread: str, id: str, channels: Sequence[str], *, namespace: str = "", seal: Seal | None = None
    ) -> dict[str, Ancestry]:
        """For each channel, the writes at the ancestors of a checkpoint, back to the one that stores its value."""
        told = self._ancestry(thread, id, tuple(channels), namespace)
        found: dict[str, Ancestry] = {}
        for channel in channels:
            writes, row, pieces = told.get(channel, ([], None, {}))
            seed = None
            if row is not None:
                known = self._known([row], pieces, seal)[json.loads(row["parts"])[channel]]
                seed = (known.type, known.data)
            found[channel] = Ancestry(
                [write_of(namespace, write["checkpoint_id"], write, seal) for write in writes], seed
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
            path, seed = upto_seed(chain, channel)
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
        """The ancestors that are needed to rebuild these channels of a checkpoint."""
        if not channels:
            return []
        chain = self._chain(thread, id, namespace)
        longest = max((upto_seed(chain, channel)[0] for channel in channels), key=len)
        return [row["checkpoint_id"] for row in longest]

    def ids(self, thread: str) -> set[tuple[str, str]]:
        """The namespace and id of each checkpoint of a thread."""
        return {(row["namespace"], row["checkpoint_id"]) for row in self._headers(thread)}

    @query
    def is_deleted(self, tx: Tx, thread: str) -> bool:
        """Whether a thread of this key was deleted."""
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
    def threads(self, tx: Tx, *, before: Time | None = None, limit: int = 50) -> ThreadList:
        """List the threads of this scope, the last changed first."""
        before_us = past_us(before, tx.now_us(), "before")
        upto = FAR_FUTURE_US if before_us is None else before_us
        rows = tx.all(SQL.page, scope=self.scope, before_us=upto, limit=page_size(limit))
        return [Thread(**row) for row in rows]

    # -- deletion and copies -------------------------------------------------------------------------

    @transactional
    def delete(self, tx: Tx, thread: str) -> None:
        """Delete all rows of a thread in one transaction. A tombstone stays, so that late writes are refused."""
        checked(thread, "thread")
        found = hold_thread(tx, self.scope, thread, deleted=True)
        crash.point("thread.before_delete")
        gone = empty(tx, found["seq"])
        tx.run(SQL.bury, seq=found["seq"], now_us=tx.now_us())
        journal.append(tx, "thread.deleted", found["id"], summary=f"thread {thread}")
        for table, rows in gone.items():
            removed.keep_rows(tx, table, rows, [])
        removed.keep(tx, "thread", found, {**found, "deleted_us": tx.now_us()})

    @transactional
    def delete_runs(self, tx: Tx, run_ids: Sequence[str]) -> int:
        """Delete the checkpoints of these runs and their writes; return the count."""
        rows = [row for run_id in dict.fromkeys(run_ids) for row in tx.all(SQL.of_run, run_id=run_id, scope=self.scope)]
        crash.point("thread.before_prune")
        for key in sorted({row["key"] for row in rows}):
            found = hold_thread(tx, self.scope, key)
            take_away(tx, found, [row for row in rows if row["key"] == key])
        return len(rows)

    @transactional
    def prune(self, tx: Tx, thread: str, *, keep: Mapping[str, Sequence[str]] | None = None) -> int:
        """Delete the checkpoints of a thread, except the newest of each namespace and those in `keep`.

        Values that no checkpoint refers to are deleted too. Returns the number of deleted checkpoints.
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
        take_away(tx, found, gone)
        return len(gone)

    @transactional
    def copy(self, tx: Tx, source: str, target: str) -> int:
        """Copy all rows of one thread into another, which keeps its own. Returns the target's number of checkpoints."""
        checked(target, "thread")
        found = tx.maybe(SQL.find, scope=self.scope, key=checked(source, "thread"))
        if found is None or found["deleted_us"] is not None:
            raise NotFound(f"there is no thread {source!r} in this scope", "standfast sql 'SELECT key FROM thread'")
        if source == target:
            raise InvalidInput("a thread cannot be copied onto itself")
        # Lock both rows, always in the same order, so that no other transaction adds a checkpoint meanwhile.
        held = {key: hold_thread(tx, self.scope, key) for key in sorted((source, target))}
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

    # -- private functions ---------------------------------------------------------------------------

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
        """The reference of each channel's value, and the rows to write."""
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
            if rows and rows[-1]["n"] == n and rows[-1]["type"] != CLOSED:  # otherwise the row was deleted meanwhile
                known = built(segment, rows, {n}, seal)[ref]
        return known

    @query
    def _rows_of(self, tx: Tx, thread: str, ref: str) -> Sequence[Row]:
        found = tx.maybe(SQL.find, scope=self.scope, key=thread)
        segment, n = split(ref)
        return [] if found is None else tx.all(SQL.pieces, thread_seq=found["seq"], segment=segment, n=n)

    def _pieces(self, tx: Tx, thread_seq: int, rows: Sequence[Row]) -> _Pieces:
        """The rows of the values that these checkpoints refer to, except values in the cache."""
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
            # If the value was evicted from the cache since the rows were read, read the segment's rows now.
            value = known.get(ref) or self._value(thread, ref, seal)
            assert value is not None, f"{ref} is gone"
            values[channel] = (value.type, value.data)
        return Checkpoint(
            thread,
            namespace,
            id,
            row["parent_id"],
            opened(seal, place, row["header"]),
            metadata_of(row, seal),
            values,
            sorted((write_of(namespace, id, write, seal) for write in writes), key=lambda write: write.order),
        )


_Pieces: TypeAlias = "dict[str, list[Row]]"
