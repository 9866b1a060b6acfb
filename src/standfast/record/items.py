"""`sf.items`: what a graph remembers beyond its threads, by a path of names and a key.

A JSON object each, with an optional time to live that begins again, to a hundredth of it, when it is read. What
is over is never shown; `sweep` gives back the room. Changes made together are committed together.

An item may come with vectors, made by the caller of texts in it; `nearest` compares a vector with all those at or
below a path, one by one. That is meant for the memory of an agent, not for a library: see VECTORS_MAX.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, verb
from standfast.errors import InvalidInput
from standfast.footings import journal
from standfast.record import vectors

SQL = load(__name__)

PAGE = 500
SWEEP_MAX = 1000
SHOWN = 20
PARTS_MAX = 64
KEY_MAX = 2000
FIELDS_MAX = 1000
"""How many vectors one item may have."""
VECTORS_MAX = 5_000
"""How many are compared for one query: with 1,536 dimensions about half a second."""

Path: TypeAlias = "tuple[str, ...]"


class Item(NamedTuple):
    path: Path
    key: str
    value: serial.Json
    created_us: int
    updated_us: int
    ttl_us: int | None
    left_us: int | None
    """What was left of its time when it was read."""


class Found(NamedTuple):
    """An item and how near it is."""

    item: Item
    nearness: float


class Change(NamedTuple):
    """A value to be set, or None to take it away; with what it means, by the field that says so."""

    path: Path
    key: str
    value: serial.Json
    ttl_us: int | None = None
    vectors: Mapping[str, Sequence[float]] | None = None


class _Set(NamedTuple):
    """A change as it will be written."""

    place: Row
    value: str | None
    ttl_us: int | None
    vectors: dict[str, bytes]


ItemList: TypeAlias = "list[Item]"
PathList: TypeAlias = "list[Path]"
FoundList: TypeAlias = "list[Found]"
Matches: TypeAlias = Callable[[serial.Json], bool]


class Items(Room):
    """Values by path and key: get, change, search, nearest, paths, sweep."""

    __slots__ = ()

    def get(self, path: Path, key: str, *, refresh: bool = True) -> Item | None:
        """One item, or None. One with a time to live begins it again, unless `refresh` is false."""
        found = self._get(path, key)
        if found is not None and refresh:
            self._refresh([found])
        return found

    @query
    def _get(self, tx: Tx, path: Path, key: str) -> Item | None:
        row = tx.maybe(SQL.get, now_us=tx.now_us(), **self._place(path, key))
        return None if row is None else _item(row)

    @verb
    def refresh(self, tx: Tx, names: Sequence[tuple[Path, str]]) -> None:
        """Begin their time to live again. Like a renewal, it is not journalled."""
        for path, key in names:
            tx.run(SQL.refresh, now_us=tx.now_us(), **self._place(path, key))

    def change(self, changes: Sequence[Change]) -> None:
        """Set and take away, all of them or none; of several about one name the last counts.

        What an item meant goes with what it said: one set without vectors has none.
        """
        last = {(change.path, change.key): change for change in changes}
        if last:
            self._change([_row(change, self._place(change.path, change.key)) for change in last.values()])

    @verb
    def _change(self, tx: Tx, rows: Sequence[_Set]) -> None:
        crash.point("item.before_change")
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

        `matches` is asked with each value, outside any transaction.
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
        """Items at or below a path that have vectors, the nearest first; of several of one item the nearest counts.

        Every vector there is compared: raises InvalidInput if there are more than VECTORS_MAX. `matches` is asked
        with each value, outside any transaction.
        """
        near, best, refused = vectors.nearness(vector, by), dict[str, tuple[float, Row]](), set[str]()
        for row in self._vectors(prefix):
            name = f"{row['path']} {row['key']}"
            if name not in best and matches is not None and (name in refused or not matches(serial.read(row["value"]))):
                refused.add(name)
                continue
            score = near(row.pop("vector"))
            if name not in best or score > best[name][0]:
                best[name] = (score, row)
        ranked = nlargest(offset + limit, best.items(), key=lambda one: one[1][0])[offset:]
        page = [Found(_item(row), score) for _, (score, row) in ranked]
        if refresh:
            self._refresh([one.item for one in page])
        return page

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
        """Every path that holds something."""
        rows = tx.all(SQL.paths, scope=self.scope, now_us=tx.now_us())
        return sorted(tuple(json.loads(row["path"])) for row in rows)

    @verb
    def sweep(self, tx: Tx, *, limit: int = SWEEP_MAX) -> int:
        """Remove what is over, and say how many; 0 when nothing is left."""
        gone = tx.all(SQL.sweep, scope=self.scope, now_us=tx.now_us(), limit=max(1, min(limit, SWEEP_MAX)))
        if gone:
            words = f"{len(gone)} item{'s' * (len(gone) > 1)} whose time is over"
            journal.append(tx, "item.expired", "item", summary=words, data={"count": len(gone)})
        return len(gone)

    def _place(self, path: Path, key: object) -> Row:
        if not isinstance(key, str) or not key or "\0" in key or len(key) > KEY_MAX:
            raise InvalidInput(f"{serial.clean(str(key), 60)!r} cannot be a key: 1 to 2,000 characters, no NUL")
        return {"scope": self.scope, "path": _text(path), "key": key}


def _text(path: Path) -> str:
    if not path or len(path) > PARTS_MAX or not all(isinstance(part, str) for part in path):
        raise InvalidInput(f"a namespace is 1 to {PARTS_MAX} names, not {serial.clean(repr(path), 60)}")
    return json.dumps(list(path), separators=(",", ":"))


def _ends(prefix: Path) -> tuple[str, str]:
    """Between which texts a path and all below it lie: after the first, up to the second."""
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


def _too_many(prefix: Path) -> InvalidInput:
    return InvalidInput(
        f"there are more than {VECTORS_MAX:,} vectors at or below {serial.clean(repr(tuple(prefix)), 60)}",
        "ask below a longer namespace, or keep what is this large in a vector database",
    )


def _item(row: Row) -> Item:
    path = tuple(json.loads(row["path"]))
    times = (row[name] for name in ("created_us", "updated_us", "ttl_us", "left_us"))
    return Item(path, row["key"], serial.read(row["value"]), *times)


def _due(item: Item) -> bool:
    """Whether beginning its time again is worth a write: not if it began within the last hundredth of it."""
    return item.ttl_us is not None and item.left_us is not None and item.left_us < item.ttl_us - item.ttl_us // 100
