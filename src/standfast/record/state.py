"""State: values by name, each with a version.

A value lives in a namespace of a scope; a session's own are in the namespace of its id. Every
change gives it the next version, and versions are never given twice, also not after a delete:
`swap` therefore decides safely between two writers. A value may end by time. The journal
keeps every version, so that a fork sees its parent's values as they were at the cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any, NamedTuple

from standfast import crash, serial
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Room, query, verb
from standfast.errors import InvalidInput, NotFound, StandfastError, VersionConflict
from standfast.footings import journal, keys
from standfast.footings.journal import Receipt
from standfast.ledger.opening import Opening

SQL = load(__name__)

PAGE_MAX = 1000
NAMESPACE_MAX = 200
VALUE_MAX_BYTES = 1024 * 1024


class Entry(NamedTuple):
    """One value as it stands."""

    scope: str
    namespace: str
    key: str
    value: serial.Json
    version: int
    actor: str
    updated_us: int
    expires_us: int | None
    receipt: Receipt | None = None


class State(Room):
    """Values by name: get, set, swap, delete, list."""

    __slots__ = ()

    @query
    def get(self, tx: Tx, key: str, *, namespace: str = "") -> Entry | StandfastError:
        """The value with its version. Raises NotFound if there is none, or its time is over."""
        row = _live(tx, tx.maybe(SQL.get, scope=self.scope, **_named(namespace, key)))
        return _entry(row) if row is not None else _unknown(namespace, key)

    @verb
    def set(
        self, tx: Tx, key: str, value: serial.Json, *, namespace: str = "", for_us: int | None = None
    ) -> Entry | StandfastError:
        """Store it, whatever was there. `for_us` ends it by time."""
        return put(tx, Place(self.scope, namespace), key, value, for_us=for_us)

    @verb
    def swap(
        self,
        tx: Tx,
        key: str,
        value: serial.Json,
        *,
        version: int,
        namespace: str = "",
        for_us: int | None = None,
    ) -> Entry | StandfastError:
        """Store it only if the version is still this one; 0 means that there must be none yet.

        Raises VersionConflict with the version that is there.
        """
        return put(tx, Place(self.scope, namespace), key, value, for_us=for_us, version=version)

    @verb
    def delete(self, tx: Tx, key: str, *, version: int | None = None, namespace: str = "") -> Entry | StandfastError:
        """Take it away. Raises NotFound, or VersionConflict if a version is given and it is another."""
        return remove(tx, Place(self.scope, namespace), key, version=version)

    @query
    def list(self, tx: Tx, *, namespace: str = "", after: str = "", limit: int = 50) -> list[Entry]:
        """By key, those whose time is not over; `after` is the last key you have."""
        asked = {"scope": self.scope, "namespace": namespace, "after": after, "now_us": tx.now_us()}
        return [_entry(row) for row in tx.all(SQL.page, limit=max(1, min(limit, PAGE_MAX)), **asked)]


class Place(NamedTuple):
    """Where a key means something; a session's own namespace is its id."""

    scope: str
    namespace: str
    session_id: str | None = None


def put(
    tx: Tx, place: Place, key: str, value: serial.Json, *, for_us: int | None = None, version: int | None = None
) -> Entry | StandfastError:
    """Write one value; with a `version`, only over that one."""
    if for_us is not None and for_us <= 0:
        return InvalidInput("a value lasts longer than nothing", "for example: --for 30m")
    row: Row = {
        "scope": place.scope,
        "value": serial.dumps(value, what="value", limit_bytes=VALUE_MAX_BYTES),
        "actor": tx.caller.actor,
        "now_us": tx.now_us(),
        "expires_us": None if for_us is None else tx.now_us() + for_us,
        **_named(place.namespace, key),
    }
    crash.point("state.before_set")
    if version is None:
        made = tx.maybe(SQL.set, **row)
    elif version == 0:
        made = tx.maybe(SQL.create, **row)
    else:
        made = tx.maybe(SQL.swap, version=version, **row)
    if made is None:
        return _moved_on(tx, place, key, version)
    return _told(tx, made, "state.set", place.session_id)


def remove(tx: Tx, place: Place, key: str, *, version: int | None = None) -> Entry | StandfastError:
    gone = tx.maybe(
        SQL.delete,
        scope=place.scope,
        version=version or 0,
        actor=tx.caller.actor,
        now_us=tx.now_us(),
        **_named(place.namespace, key),
    )
    return _moved_on(tx, place, key, version) if gone is None else _told(tx, gone, "state.deleted", place.session_id)


class SessionState(MutableMapping[str, serial.Json]):
    """The values of one session, as a dictionary on disk. Only its owner changes them here.

    `s.state["branch"] = "fix-42"` is durable when the line is done.
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

    def entry(self, key: str) -> Entry | None:
        """The value with its version, or None."""
        return self._opening.store.read(lambda tx: self._look(tx, key))

    def set(self, key: str, value: serial.Json, *, for_us: int | None = None) -> Entry:
        """Store it. Raises LeaseLost if the session was taken over."""
        return self._write(lambda tx, place: put(tx, place, key, value, for_us=for_us))

    def swap(self, key: str, value: serial.Json, *, version: int, for_us: int | None = None) -> Entry:
        """Store it only over this version; 0 means that there must be none yet."""
        return self._write(lambda tx, place: put(tx, place, key, value, for_us=for_us, version=version))

    def delete(self, key: str) -> Entry:
        """Take it away. Raises NotFound."""
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
        while rows := store.read(partial(_keys_after, scope=self._opening.scope, namespace=namespace, after=after)):
            yield from rows
            after = rows[-1]

    def _look(self, tx: Tx, key: str) -> Entry | None:
        opening = self._opening
        row = tx.maybe(SQL.get, scope=opening.scope, **_named(opening.session_id, key))
        if row is not None:
            live = _live(tx, row)
            return None if live is None else _entry(live)
        for session_id, cut_seq in opening.lineage:
            told = tx.maybe(SQL.at_cut, subject=_subject(session_id, key), cut_seq=cut_seq)
            if told is not None:
                return _entry_of(tx, Place(opening.scope, session_id), key, told)
        return None

    def _remove(self, tx: Tx, place: Place, key: str) -> Entry | StandfastError:
        # In a fork the value may be the parent's: hiding it takes a row of our own.
        if self._opening.lineage and self._look(tx, key) is not None:
            hidden = put(tx, place, key, None)
            if isinstance(hidden, StandfastError):
                return hidden
        return remove(tx, place, key)

    def _write(self, body: Callable[[Tx, Place], Entry | StandfastError]) -> Entry:
        opening = self._opening
        opening.usable()
        place = Place(opening.scope, opening.session_id, opening.session_id)
        entry = opening.store.write(lambda tx: opening.guard(tx) or body(tx, place))
        crash.point("state.after_set")
        return entry

    def __repr__(self) -> str:
        return f"<state of {self._opening.session_key}>"


def _keys_after(tx: Tx, *, scope: str, namespace: str, after: str) -> list[str]:
    asked = {"scope": scope, "namespace": namespace, "after": after, "limit": PAGE_MAX}
    return [row["key"] for row in tx.all(SQL.keys_ever, **asked)]


def _named(namespace: str, key: str) -> dict[str, str]:
    if namespace:
        keys.checked(namespace, "a namespace", limit=NAMESPACE_MAX)
    return {"namespace": namespace, "key": keys.checked(key, "a state's key")}


def _subject(namespace: str, key: str) -> str:
    return f"state:{namespace}:{key}"


def _told(tx: Tx, row: Row, type: str, session_id: str | None) -> Entry:
    entry = _entry(row)
    receipt = journal.append(
        tx,
        type,
        _subject(entry.namespace, entry.key),
        session_id=session_id,
        summary=f"{entry.key} version {entry.version}",
        data={"version": entry.version, "value": entry.value, "expires_us": entry.expires_us},
    )
    return entry._replace(receipt=receipt)


def _live(tx: Tx, row: Row | None) -> Row | None:
    if row is None or (row["expires_us"] is not None and row["expires_us"] <= tx.now_us()):
        return None
    return row


def _entry(row: Row) -> Entry:
    return Entry(*(serial.read(row[name]) if name == "value" else row[name] for name in Entry._fields[:-1]))


def _entry_of(tx: Tx, place: Place, key: str, told: Row) -> Entry | None:
    """A value as the journal tells it; None if it was deleted, or its time is over."""
    data = serial.read(told["data"])
    over = data["expires_us"] is not None and data["expires_us"] <= tx.now_us()
    if told["type"] == "state.deleted" or over:
        return None
    return Entry(place.scope, place.namespace, key, data["value"], data["version"], "", 0, data["expires_us"])


def _unknown(namespace: str, key: str) -> NotFound:
    where = f" in {namespace}" if namespace else ""
    return NotFound(f"there is no state {key!r}{where} in this scope", "standfast state list")


def _moved_on(tx: Tx, place: Place, key: str, version: int | None) -> StandfastError:
    row = _live(tx, tx.maybe(SQL.get, scope=place.scope, **_named(place.namespace, key)))
    if row is None:
        return _unknown(place.namespace, key)
    return VersionConflict(
        f"state {key!r} is at version {row['version']} (by {row['actor']}), not {version}",
        f"read it again, then swap over version {row['version']}",
    )
