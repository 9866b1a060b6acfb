"""`sf.items`: JSON objects by path and key, the long-term memory of LangGraph.

An item may have a time to live. A read starts it again if at least a hundredth of it has passed. Expired items are
never returned, and `sweep` deletes them. The changes of one call are one transaction.

An item may have vectors, which the caller computes. `nearest` compares a vector with all vectors at or below a path: by
sqlite-vec or pgvector, else in Python, up to VECTORS_MAX.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.core import journal, removed
from standfast.core.checks import page_size
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, transactional
from standfast.errors import InvalidInput
from standfast.models import Model
from standfast.record import vectors

SQL = load(__name__)

PAGE = 500
SWEEP_MAX = 1000
SHOWN = 20
PARTS_MAX = 64
KEY_MAX = 2000
FIELDS_MAX = 1000
"""The most vectors of one item."""
VECTORS_MAX = 5_000
"""The most vectors that Python compares for one query: about half a second with 1,536 dimensions."""

Path: TypeAlias = "tuple[str, ...]"


class Item(Model):
    path: Path
    key: str
    value: serial.Json
    created_us: int
    updated_us: int
    ttl_us: int | None
    left_us: int | None
    """The rest of its time to live when it was read."""


class Found(Model):
    """An item and the nearness of its nearest vector."""

    item: Item
    nearness: float


class Change(NamedTuple):
    """A change of one item: its new value and the vectors of its fields, or None to delete it."""

    path: Path
    key: str
    value: serial.Json
    ttl_us: int | None = None
    vectors: Mapping[str, Sequence[float]] | None = None


class _Set(NamedTuple):
    """A change in the form that is written."""

    place: Row
    value: str | None
    ttl_us: int | None
    vectors: dict[str, bytes]


ItemList: TypeAlias = "list[Item]"
PathList: TypeAlias = "list[Path]"
FoundList: TypeAlias = "list[Found]"
Matches: TypeAlias = Callable[[serial.Json], bool]


class Items(Resource):
    """Values by path and key: get, change, search, nearest, paths, sweep."""

    __slots__ = ()

    def get(self, path: Path, key: str, *, refresh: bool = True) -> Item | None:
        """One item, or None. Its time to live starts again, unless `refresh` is false."""
        found = self._get(path, key)
        if found is not None and refresh:
            self._refresh([found])
        return found

    @query
    def _get(self, tx: Tx, path: Path, key: str) -> Item | None:
        row = tx.maybe(SQL.get, now_us=tx.now_us(), **self._place(path, key))
        return None if row is None else _item(row)

    @transactional
    def refresh(self, tx: Tx, names: Sequence[tuple[Path, str]]) -> None:
        """Start the time to live of these items again. Not journalled, like the renewal of a lease."""
        for path, key in names:
            tx.run(SQL.refresh, now_us=tx.now_us(), **self._place(path, key))

    def change(self, changes: Sequence[Change]) -> None:
        """Set and delete items: all of them or none. Of several changes of one item, the last counts.

        A new value replaces the vectors too: an item has what is set with it, and no older vector.
        """
        last = {(change.path, change.key): change for change in changes}
        if last:
            self._change([_row(change, self._place(change.path, change.key)) for change in last.values()])

    @transactional
    def _change(self, tx: Tx, rows: Sequence[_Set]) -> None:
        crash.point("item.before_change")
        old = [_image(tx, row) for row in rows]
        for row in rows:
            if row.value is None:
                tx.run(SQL.delete, **row.place)
                continue
            now_us, ttl_us = tx.now_us(), row.ttl_us
            ends: Row = {"ttl_us": ttl_us, "expires_us": None if ttl_us is None else now_us + ttl_us}
            tx.run(SQL.put, value=row.value, now_us=now_us, **ends, **row.place, **tx.caller.labelled())
            tx.run(SQL.drop_vectors, **row.place)
            for field, data in row.vectors.items():
                tx.run(SQL.put_vector, field=field, vector=data, **row.place)
        shown = [["/".join(json.loads(row.place["path"])), row.place["key"]] for row in rows[:SHOWN]]
        gone = sum(row.value is None for row in rows)
        words = f"{len(rows) - gone} set, {gone} taken away"
        journal.append(tx, "item.changed", "item", summary=words, data={"count": len(rows), "names": shown})
        for row, was in zip(rows, old, strict=True):
            _keep(tx, row, *was)

    def search(
        self,
        prefix: Path = (),
        *,
        matches: Matches | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> ItemList:
        """Items at or below a path, the last changed first.

        `matches` is called with each value, outside any transaction.
        """
        found = (item for item in self._below(prefix) if matches is None or matches(item.value))
        page = nsmallest(offset + limit, found, key=lambda item: (-item.updated_us, item.path, item.key))[offset:]
        if refresh:
            self._refresh(page)
        return page

    def nearest(
        self,
        prefix: Path,
        vector: Sequence[float],
        *,
        by: str = "cosine",
        matches: Matches | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> FoundList:
        """Items at or below a path that have vectors, the nearest first. The nearest vector of an item counts.

        Every vector there is compared: by sqlite-vec or pgvector, else in Python. Python also compares by any other
        measure than the cosine, and raises InvalidInput for more than VECTORS_MAX vectors. `matches` is called with
        each value, outside any transaction.
        """
        ranked = self._ranked(prefix, vector) if by == "cosine" else None
        if ranked is None:
            ranked = self._ranked_in_python(prefix, vectors.nearness(vector, by))
        page = _best(ranked, matches, offset + limit)[offset:]
        if refresh:
            self._refresh([one.item for one in page])
        return page

    def _ranked_in_python(self, prefix: Path, nearness: Callable[[bytes], float]) -> Iterator[Row]:
        rows = [row | {"nearness": nearness(row.pop("vector"))} for row in self._vectors(prefix)]
        return iter(sorted(rows, key=lambda row: -row["nearness"]))

    def _ranked(self, prefix: Path, vector: Sequence[float]) -> Iterator[Row] | None:
        """Every vector at or below a path, the nearest first, as the engine compares them; None if it cannot."""
        if not self._read(lambda tx: tx.compares_vectors()):
            return None
        if self.tx is None:
            while rows := self._read(lambda tx: tx.all(SQL.unfilled_vectors, limit=PAGE)):
                self._write(partial(_fill, rows=rows))
        data = vectors.packed(vector, "the vector of a query")
        after_path, upto_path = _ends(prefix)
        place: Row = {"scope": self.scope, "after_path": after_path, "upto_path": upto_path}
        other = self._read(lambda tx: tx.maybe(SQL.other_size, size=len(data), **place))
        if other is not None:
            raise vectors.other_dimensions(int(other["size"]), len(vectors.direction(data)))

        def pages() -> Iterator[Row]:
            offset = 0
            while rows := self._read(partial(_nearest_page, data=data, offset=offset, place=place)):
                # A cosine of 32-bit numbers may pass 1 by a hair.
                yield from (row | {"nearness": max(-1.0, min(1.0, row["nearness"]))} for row in rows)
                offset += len(rows)

        return pages()

    def _refresh(self, items: Sequence[Item]) -> None:
        if names := [(item.path, item.key) for item in items if _due(item)]:
            self.refresh(names)

    def _below(self, prefix: Path) -> Iterator[Item]:
        """Every item at or below a path, a page at a time."""
        after_path, upto_path = _ends(prefix)
        after_key = ""
        while True:
            rows = self._page(after_path, after_key, upto_path)
            yield from map(_item, rows)
            if len(rows) < PAGE:
                return
            after_path, after_key = rows[-1]["path"], rows[-1]["key"]

    @query
    def _page(self, tx: Tx, after_path: str, after_key: str, upto_path: str) -> Sequence[Row]:
        after: Row = {"after_path": after_path, "after_key": after_key, "upto_path": upto_path}
        return tx.all(SQL.page, scope=self.scope, now_us=tx.now_us(), limit=PAGE, **after)

    def _vectors(self, prefix: Path) -> Iterator[Row]:
        """Every vector at or below a path, each with its item, a page at a time."""
        after_path, upto_path = _ends(prefix)
        after_key = after_field = ""
        seen = 0
        while True:
            rows = self._vector_page(after_path, after_key, after_field, upto_path)
            seen += len(rows)
            if seen > VECTORS_MAX:
                raise _too_many(prefix)
            if rows:
                after_path, after_key, after_field = (rows[-1][name] for name in ("path", "key", "field"))
            whole = len(rows) == PAGE
            yield from rows
            if not whole:
                return

    @query
    def _vector_page(self, tx: Tx, after_path: str, after_key: str, after_field: str, upto_path: str) -> Sequence[Row]:
        after: Row = {"after_path": after_path, "after_key": after_key, "after_field": after_field}
        return tx.all(SQL.vectors, scope=self.scope, upto_path=upto_path, now_us=tx.now_us(), limit=PAGE, **after)

    @query
    def paths(self, tx: Tx) -> PathList:
        """Every path with an item, sorted."""
        rows = tx.all(SQL.paths, scope=self.scope, now_us=tx.now_us())
        return sorted(tuple(json.loads(row["path"])) for row in rows)

    @transactional
    def sweep(self, tx: Tx, *, limit: int = SWEEP_MAX) -> int:
        """Remove expired items and return their number; 0 when nothing is left."""
        gone = tx.all(SQL.sweep, scope=self.scope, now_us=tx.now_us(), limit=page_size(limit, SWEEP_MAX))
        if gone:
            words = f"{len(gone)} item{'s' * (len(gone) > 1)} whose time is over"
            journal.append(tx, "item.expired", "item", summary=words, data={"count": len(gone)})
        return len(gone)

    def _place(self, path: Path, key: object) -> Row:
        if not isinstance(key, str) or not key or "\0" in key or len(key) > KEY_MAX:
            raise InvalidInput(f"{serial.clean(str(key), 60)!r} cannot be a key: 1 to 2,000 characters, no NUL")
        return {"scope": self.scope, "path": _text(path), "key": key}


def _nearest_page(tx: Tx, *, data: bytes, offset: int, place: Row) -> Sequence[Row]:
    tx.compares_vectors()
    plain = vectors.direction(data)
    vector = data[vectors.HEADER_BYTES :] if tx.dialect == "sqlite" else str(list(plain))
    return tx.all(SQL.nearest, vector=vector, now_us=tx.now_us(), limit=PAGE, offset=offset, **place)


def _fill(tx: Tx, *, rows: Sequence[Row]) -> None:
    """Give pgvector the vectors that only `vector` has."""
    tx.many(SQL.fill_vector, [{"seq": row["seq"], "embedding": vectors.as_array(row["vector"])} for row in rows])


def _best(ranked: Iterator[Row], matches: Matches | None, wanted: int) -> FoundList:
    """The first items of a ranking whose value matches, each once."""
    found: dict[str, Found] = {}
    refused: set[str] = set()
    for row in ranked:
        if len(found) == wanted:
            break
        name = f"{row['path']} {row['key']}"
        if name in found or name in refused:
            continue
        if matches is not None and not matches(serial.read(row["value"])):
            refused.add(name)
            continue
        found[name] = Found(_item(row), row["nearness"])
    return [*found.values()]


def _text(path: Path) -> str:
    if not path or len(path) > PARTS_MAX or not all(isinstance(part, str) for part in path):
        raise InvalidInput(f"a namespace is 1 to {PARTS_MAX} names, not {serial.clean(repr(path), 60)}")
    return json.dumps(list(path), separators=(",", ":"))


def _ends(prefix: Path) -> tuple[str, str]:
    """Two texts that enclose a path and all paths below it: after the first, up to the second."""
    if not prefix:
        return "[", "[]"
    text = _text(tuple(prefix))
    return text[:-1] + ",", text


def _row(change: Change, place: Row) -> _Set:
    if change.value is None:
        return _Set(place, None, None, {})
    told = change.vectors or {}
    if len(told) > FIELDS_MAX:
        raise InvalidInput(f"item {change.key} has {len(told):,} vectors, and the limit is {FIELDS_MAX:,}")
    for field in told:
        if "\0" in field or len(field) > KEY_MAX:
            raise InvalidInput(f"{serial.clean(field, 60)!r} cannot be a field: up to 2,000 characters, no NUL")
    packed = {field: vectors.packed(vector, f"{field} of {change.key}") for field, vector in told.items()}
    return _Set(place, serial.dumps(change.value, what=change.key), change.ttl_us, packed)


def _image(tx: Tx, row: _Set) -> tuple[Row | None, list[Row]]:
    """The item as it is, and its vectors."""
    item = tx.maybe(SQL.image, **row.place)
    has_vectors = item is not None and item.pop("vectors")
    return item, tx.all(SQL.vector_images, **row.place) if has_vectors else []


def _keep(tx: Tx, row: _Set, item: Row | None, said: list[Row]) -> None:
    """Keep the old rows for `undo`, unless the item expires by itself. A vector's row refers to its item's row."""
    if row.ttl_us is not None or (item is not None and item["expires_us"] is not None):
        return
    new: Row | None = None
    if row.value is not None:
        made: Row = {**row.place, **tx.caller.labelled(), "created_us": tx.now_us(), "ttl_us": None, "expires_us": None}
        new = (item or made) | {"value": row.value, "updated_us": tx.now_us()}
    means = tx.all(SQL.vector_images, **row.place) if new is not None and (said or row.vectors) else []
    if item is None and new is not None:
        removed.keep(tx, "item", None, new)
    removed.keep_rows(tx, "item_vector", said, means)
    if item is not None:
        removed.keep(tx, "item", item, new)


def _too_many(prefix: Path) -> InvalidInput:
    return InvalidInput(
        f"there are more than {VECTORS_MAX:,} vectors at or below {serial.clean(repr(tuple(prefix)), 60)}",
        "search below a longer namespace, or use a vector database for this many",
    )


def _item(row: Row) -> Item:
    path = tuple(json.loads(row["path"]))
    times = (row[name] for name in ("created_us", "updated_us", "ttl_us", "left_us"))
    return Item(path, row["key"], serial.read(row["value"]), *times)


def _due(item: Item) -> bool:
    """Whether to restart the time to live. To save writes, a read within its first hundredth does not restart it."""
    return item.ttl_us is not None and item.left_us is not None and item.left_us < item.ttl_us - item.ttl_us // 100
