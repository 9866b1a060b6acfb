"""`sf.items`: what a graph remembers beyond its threads, by a path of names and a key.

A JSON object each, with an optional time to live that begins again when it is read. What is over is
never shown; `sweep` gives back the room. Changes made together are committed together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, verb
from standfast.errors import InvalidInput
from standfast.footings import journal

SQL = load(__name__)

PAGE = 500
SWEEP_MAX = 1000
SHOWN = 20
PARTS_MAX = 64
KEY_MAX = 2000

Path: TypeAlias = "tuple[str, ...]"


class Item(NamedTuple):
    path: Path
    key: str
    value: serial.Json
    created_us: int
    updated_us: int
    ttl_us: int | None


class Change(NamedTuple):
    """A value to be set, or None to take it away."""

    path: Path
    key: str
    value: serial.Json
    ttl_us: int | None = None


ItemList: TypeAlias = "list[Item]"
PathList: TypeAlias = "list[Path]"


class Items(Room):
    """Values by path and key: get, change, search, paths, sweep."""

    __slots__ = ()

    def get(self, path: Path, key: str, *, refresh: bool = True) -> Item | None:
        """One item, or None. One with a time to live begins it again, unless `refresh` is false."""
        found = self._get(path, key)
        if found is not None and found.ttl_us is not None and refresh:
            self.refresh([(path, key)])
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

    @verb
    def change(self, tx: Tx, changes: Sequence[Change]) -> None:
        """Set and take away, all of them or none; of several about one name the last counts."""
        last = {(change.path, change.key): change for change in changes}
        crash.point("item.before_change")
        for change in last.values():
            place = self._place(change.path, change.key)
            if change.value is None:
                tx.run(SQL.delete, **place)
                continue
            now_us = tx.now_us()
            ends: Row = {
                "ttl_us": change.ttl_us,
                "expires_us": None if change.ttl_us is None else now_us + change.ttl_us,
            }
            tx.run(SQL.put, value=serial.dumps(change.value, what=change.key), now_us=now_us, **ends, **place)
        if last:
            shown = [["/".join(path), key] for path, key in list(last)[:SHOWN]]
            gone = sum(change.value is None for change in last.values())
            words = f"{len(last) - gone} set, {gone} taken away"
            journal.append(tx, "item.changed", "item", summary=words, data={"count": len(last), "names": shown})

    def search(
        self,
        prefix: Path = (),
        *,
        matches: Callable[[serial.Json], bool] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> ItemList:
        """Items at or below a path, the last changed first.

        `matches` is asked with each value, outside any transaction.
        """
        found: ItemList = []
        for path in self.paths():
            if path[: len(prefix)] == tuple(prefix):
                found += [item for item in self._of(path) if matches is None or matches(item.value)]
        found.sort(key=lambda item: (-item.updated_us, item.path, item.key))
        page = found[offset : offset + limit]
        if refresh and any(item.ttl_us is not None for item in page):
            self.refresh([(item.path, item.key) for item in page if item.ttl_us is not None])
        return page

    def _of(self, path: Path) -> ItemList:
        found: ItemList = []
        after = ""
        while rows := self._page(path, after):
            found += rows
            after = rows[-1].key
            if len(rows) < PAGE:
                break
        return found

    @query
    def _page(self, tx: Tx, path: Path, after: str) -> ItemList:
        asked: Row = {"scope": self.scope, "path": _text(path), "after": after, "now_us": tx.now_us()}
        return [_item(row) for row in tx.all(SQL.page, limit=PAGE, **asked)]

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


def _item(row: Row) -> Item:
    path = tuple(json.loads(row["path"]))
    return Item(path, row["key"], serial.read(row["value"]), row["created_us"], row["updated_us"], row["ttl_us"])
