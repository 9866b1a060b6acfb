"""The values of one session, as a dictionary on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

from standfast import crash, serial
from standfast.clock import Duration, duration_us
from standfast.config.scope import Keyspace
from standfast.core.checks import PAGE_MAX
from standfast.db.contract import Tx
from standfast.errors import NotFound
from standfast.ledger.openings import Opening
from standfast.record.state.models import Entry, Place, entry
from standfast.record.state.values import SQL, Wish, at_cut, live, put, remove


class SessionState(MutableMapping[str, serial.Json]):
    """The values of one session, as a dictionary on disk. Only the owner of the session may change them here.

    `s.state["branch"] = "fix-42"` is on disk when the assignment returns.
    """

    awaited = True

    def __init__(self, opening: Opening) -> None:
        self._opening = opening

    def __getitem__(self, key: str) -> serial.Json:
        found = self._opening.store.read(lambda tx: self._look(tx, key))
        if found is None:
            raise KeyError(key)
        return found.value

    def get(self, key: str, default: Any = None) -> Any:
        found = self._opening.store.read(lambda tx: self._look(tx, key))
        return default if found is None else found.value

    def setdefault(self, key: str, default: serial.Json = None) -> serial.Json:
        """The value of a key. If there is none, `default` is stored first. Values that you read are read-only."""
        if (found := self.entry(key)) is None:
            found = self.set(key, default)
        return found.value

    def entry(self, key: str) -> Entry | None:
        """The value with its version, or None."""
        return self._opening.store.read(lambda tx: self._look(tx, key))

    def set(self, key: str, value: serial.Json, *, for_: Duration | None = None) -> Entry:
        """Store a value. Raises LeaseLost if the session was taken over."""
        wish = Wish(for_us=duration_us(for_, "for_"))
        return self._write(lambda tx, place: put(tx, place, key, value, wish))

    def swap(self, key: str, value: serial.Json, *, version: int, for_: Duration | None = None) -> Entry:
        """Store a value only over this version; 0 means that the key must have no value."""
        wish = Wish(for_us=duration_us(for_, "for_"))
        return self._write(lambda tx, place: put(tx, place, key, value, wish, version=version))

    def delete(self, key: str) -> Entry:
        """Delete a value. Raises NotFound."""
        return self._write(lambda tx, place: self._remove(tx, place, key))

    def __setitem__(self, key: str, value: serial.Json) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        try:
            self.delete(key)
        except NotFound:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        opening = self._opening
        spaces = [opening.session_id, *(session_id for session_id, _ in opening.lineage)]
        seen: set[str] = set()
        for space in spaces:
            for key in self._keys_ever(space):
                if key not in seen and self.entry(key) is not None:
                    yield key
                seen.add(key)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _keys_ever(self, namespace: str) -> Iterator[str]:
        store, after = self._opening.store, ""
        place = Place(Keyspace(self._opening.scope), namespace)
        while rows := store.read(partial(_keys_after, place=place, after=after)):
            yield from rows
            after = rows[-1]

    def _look(self, tx: Tx, key: str) -> Entry | None:
        opening = self._opening
        row = tx.maybe(SQL.get, **Place(Keyspace(opening.scope), opening.session_id).named(key))
        if row is not None:
            return entry(row) if live(tx, row) else None
        for session_id, cut_seq in opening.lineage:
            found = at_cut(tx, Place(Keyspace(opening.scope), session_id), key, cut_seq)
            if found is not None:
                return found.entry
        return None

    def _remove(self, tx: Tx, place: Place, key: str) -> Entry:
        # In a fork the value may be the parent's. Deleting it needs a row in the fork.
        own = tx.maybe(SQL.get, **place.named(key))
        if own is None and self._look(tx, key) is not None:
            put(tx, place, key, None)
        return remove(tx, place, key)

    def _write(self, body: Callable[[Tx, Place], Entry]) -> Entry:
        opening = self._opening
        opening.usable()
        place = Place(Keyspace(opening.scope), opening.session_id, opening.session_id, opening.label)

        def guarded(tx: Tx) -> Entry:
            opening.check(tx)
            return body(tx, place)

        written = opening.store.write(guarded)
        crash.point("state.after_set")
        return written

    def __repr__(self) -> str:
        return f"<state of {self._opening.session_key}>"


def _keys_after(tx: Tx, *, place: Place, after: str) -> list[str]:
    return [row["key"] for row in tx.all(SQL.keys_ever, after=after, limit=PAGE_MAX, **place.columns)]
