"""Chains: conversations in which each entry names its parent entry, for pydantic-ai.

An entry is a message of the session that it was first saved in, with the id of its framework. A head is a state value
of the session: it names the last entry and has a revision. A save names the revision that was read, and writes nothing
if the head has another one. A branch is a head that names an existing entry, so nothing is copied.

Snapshots of a run are stored in the same way: each message once, and an event with the positions of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from standfast import serial
from standfast.core import keys
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, query, transactional
from standfast.errors import NotFound, VersionConflict
from standfast.record import conversations
from standfast.record.conversations import Line, item_of
from standfast.record.state import values

SQL = load(__name__)

HEAD = "chain.head"
PAGE = 256
ENTRIES_MAX = 1_000_000
"""The most entries of one history: a longer chain is circular."""
Ranges = list[list[int]]


class Entry(NamedTuple):
    """One stored entry."""

    id: str
    parent_id: str | None
    value: serial.Json


class Link(NamedTuple):
    """One entry to add."""

    id: str
    parent_id: str | None
    line: Line


class Chains(Resource):
    """Heads and entries: read, write over one revision, delete."""

    __slots__ = ()

    @query
    def head(self, tx: Tx, key: str) -> serial.Json:
        """The head of a conversation; None if there is none."""
        home = conversations.find(tx, key)
        found = None if home is None else values.look(tx, conversations.place(home), HEAD)
        return None if found is None else found.value

    @query
    def heads(self, tx: Tx, after: tuple[int, str] | None = None) -> tuple[list[serial.Json], tuple[int, str] | None]:
        """A page of heads, the newest first, and the cursor of the next page; None at the end."""
        before_us, before_id = after or (conversations.ALL, "")
        asked: Row = {"scope": self.scope, "key": HEAD, "before_us": before_us, "before_id": before_id}
        rows = tx.all(SQL.heads, **asked, limit=PAGE)
        found = [serial.read(row["value"]) for row in rows if values.live(tx, row)]
        return found, (rows[-1]["updated_us"], rows[-1]["id"]) if len(rows) == PAGE else None

    @transactional
    def write(
        self,
        tx: Tx,
        key: str,
        head: dict[str, Any],
        links: Sequence[Link],
        *,
        head_id: str | None,
        revision: str | None,
        agent: str | None = None,
    ) -> None:
        """Write the head and its new entries together, over the head with this `revision` (None: no head yet).

        Raises VersionConflict if the head has another revision, or if `head_id` names an unknown entry.
        """
        home = conversations.find(tx, key) or conversations.made(tx, key, agent)
        tx.maybe(conversations.SQL.lock_node, node_id=home.node_id)
        found = values.look(tx, conversations.place(home), HEAD)
        if (None if found is None else found.value.get("revision")) != revision:
            raise _moved_on(key)
        added = {link.id for link in links}
        if head_id is not None and head_id not in added and self._row(tx, head_id) is None:
            raise _moved_on(key)
        if any(self._row(tx, link.id) is not None for link in links):
            raise _moved_on(key)
        values.put(tx, conversations.place(home), HEAD, head)
        conversations.append(tx, home, [link.line._replace(native=self._native(link.id)) for link in links])

    @transactional
    def delete(self, tx: Tx, key: str, *, revision: str) -> None:
        """Delete the head if it still has this revision. The entries stay, because branches may use them."""
        home = conversations.find(tx, key)
        if home is None:
            raise _moved_on(key)
        tx.maybe(conversations.SQL.lock_node, node_id=home.node_id)
        found = values.look(tx, conversations.place(home), HEAD)
        if found is None or found.value.get("revision") != revision:
            raise _moved_on(key)
        values.remove(tx, conversations.place(home), HEAD)

    @query
    def entry(self, tx: Tx, id: str) -> Entry:
        """One entry. Raises NotFound."""
        row = self._row(tx, id)
        if row is None:
            raise _unknown(id)
        return self._entry(row)

    @query
    def history(self, tx: Tx, head_id: str | None, *, limit: int | None = None) -> list[Entry]:
        """The entries up to this one, in order; with `limit`, the last ones. Raises NotFound for an unknown entry."""
        found: list[Entry] = []
        wanted = head_id
        while wanted is not None and len(found) < min(ENTRIES_MAX, ENTRIES_MAX if limit is None else limit):
            row = self._row(tx, wanted)
            if row is None:
                raise _unknown(wanted)
            # The ancestors are usually the messages directly before it: read a page instead of one row at a time.
            for one in self._onwards(tx, row):
                if one["native"] == self._native(wanted):
                    found.append(self._entry(one))
                    wanted = found[-1].parent_id
                    if wanted is None or len(found) == limit:
                        break
        return found[::-1]

    def _onwards(self, tx: Tx, row: Row) -> Iterator[Row]:
        yield row
        page = tx.all(SQL.behind, node_id=row["node_id"], before=row["position"], limit=PAGE)
        while page:
            yield from page
            page = tx.all(SQL.behind, node_id=row["node_id"], before=page[-1]["position"], limit=PAGE)

    # -- snapshots -------------------------------------------------------------------------------------------

    @transactional
    def keep(self, tx: Tx, key: str, lines: Sequence[Line]) -> Ranges:
        """The positions of these messages in a session, in their order. New messages are added first."""
        home = conversations.find(tx, key) or conversations.made(tx, key, None)
        tx.maybe(conversations.SQL.lock_node, node_id=home.node_id)
        known: dict[str, int] = {}
        new: list[Line] = []
        natives = [self._native(f"{key}:{line.hash}") for line in lines]
        for native, line in zip(natives, lines, strict=True):
            if native not in known:
                row = tx.maybe(SQL.by_native, native=native)
                known[native] = row["position"] if row is not None else -1
                if row is None:
                    new.append(line._replace(native=native))
        if new:
            positions = conversations.append(tx, home, new)
            known |= {line.native or "": position for line, position in zip(new, positions, strict=True)}
        return _ranges([known[native] for native in natives])

    @query
    def kept(self, tx: Tx, key: str, ranges: Ranges) -> list[serial.Json]:
        home = conversations.find(tx, key)
        assert home is not None, f"{key} was never kept"
        rows = (tx.all(SQL.at, node_id=home.node_id, first=first, last=last) for first, last in ranges)
        return [item_of(row["content"]) for page in rows for row in page]

    def _native(self, id: str) -> str:
        return f"chain:{self.scope}:{keys.checked(id, 'an entry')}"

    def _row(self, tx: Tx, id: str) -> Row | None:
        return tx.maybe(SQL.by_native, native=self._native(id))

    def _entry(self, row: Row) -> Entry:
        value = item_of(row["content"])
        return Entry(row["native"].removeprefix(self._native("-")[:-1]), value["parent"], value["value"])


def _ranges(positions: Sequence[int]) -> Ranges:
    """Positions in their order, as ranges [first, last]."""
    made: Ranges = []
    for position in positions:
        if made and made[-1][1] == position - 1:
            made[-1][1] = position
        else:
            made.append([position, position])
    return made


def _moved_on(key: str) -> VersionConflict:
    return VersionConflict(
        f"conversation {key!r} was saved or deleted since it was read, or exists already", "read it again, then save"
    )


def _unknown(id: str) -> NotFound:
    return NotFound(f"there is no entry {serial.clean(id, 80)!r} in this scope")
