"""Checkpoints: a long conversation folded into a few words, and the place to continue from.

For an LLM, a checkpoint replaces all messages of a node up to a position. It has a summary and the data that a caller
needs to continue: a cursor, prompt cache keys, and the versions that it was made with. The messages stay, and a
checkpoint can be made again. Deleting all checkpoints loses only time, and a test deletes all of them.

A checkpoint has at most 1 MiB, and a node keeps its newest 20. A fork also uses the checkpoints of its parent up to the
cut.

`fold` calls a function of the caller with the older messages, outside any transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from standfast import crash, serial
from standfast.core import journal, lookup, user_code
from standfast.core.checks import PAGE_MAX, page_size
from standfast.core.receipts import Receipt
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.db.store import Resource, Store, query, refused_inside, transactional
from standfast.errors import InvalidInput, NotFound
from standfast.ids import is_id, new_id
from standfast.ledger.openings import Opening
from standfast.models import Model
from standfast.serial.redaction import redacted

SQL = load(__name__)

SIZE_MAX_BYTES = 1024 * 1024
KEPT_PER_NODE = 20
FOLD_MAX = 5000
"""One fold reads at most this many messages. The next call of `fold` continues."""

_EVERYTHING = 2**62
_LINEAGE_MAX = 256
_PAGE = 500


class Checkpoint(Model):
    """The replacement of a node's messages up to `to_position`."""

    id: str
    session_id: str
    node_id: str
    from_position: int
    to_position: int
    cursor: serial.Json
    summary: str | None
    data: serial.Json
    cache_keys: tuple[str, ...]
    versions: dict[str, str]
    size_bytes: int
    created_us: int
    receipt: Receipt | None = None


class Said(Model):
    """One message for a fold. An earlier fold is the first one, with the role `summary`."""

    position: int
    role: str
    content: serial.Json
    occurred_us: int


class Context(Model):
    """The input for an LLM to continue: the newest fold, and the messages after it."""

    checkpoint: Checkpoint | None
    messages: list[Said]
    omitted: int
    """The number of messages after the fold that were left out, because there are more than `last`."""

    @property
    def summary(self) -> str | None:
        return self.checkpoint.summary if self.checkpoint is not None else None

    @property
    def cursor(self) -> serial.Json:
        return self.checkpoint.cursor if self.checkpoint is not None else None


CheckpointList: TypeAlias = "list[Checkpoint]"  # inside the resource class, `list` is a method


# -- methods of a session -----------------------------------------------------------------------------------


def fold(
    opening: Opening,
    fn: Callable[[list[Said]], serial.Json],
    *,
    keep_last: int = 10,
    cursor: serial.Json = None,
    versions: Mapping[str, str] | None = None,
    cache_keys: Iterable[str] = (),
) -> Checkpoint | None:
    """Let `fn` fold all but the last messages into one text or JSON value; None if there is nothing to fold.

    `fn` gets the result of the newest fold (role `summary`) and the messages after it, in order. It is called outside
    any transaction. It must depend on nothing else, and may be called again.
    """
    opening.usable()
    refused_inside(opening.store.held, "checkpoints.fold")
    if keep_last < 0:
        raise InvalidInput(f"keep_last is {keep_last}: it counts messages to keep", "keep_last=10")
    older = _older(opening.store, opening.node_id, keep_last, dict(versions or {}))
    if not older or older[-1].role == "summary":
        return None
    folded = user_code.call(fn, older)
    words = {"summary": folded} if isinstance(folded, str) else {"data": folded}
    pins: dict[str, Any] = {"cursor": cursor, "versions": versions, "cache_keys": cache_keys}
    return Checkpoints(opening.store).add(opening.node_id, older[-1].position, **pins, **words)


# -- the resource ------------------------------------------------------------------------------------------------


class Checkpoints(Resource):
    """Folds of messages. `where` is a session (object, id or key) or the id of a sub-agent's node."""

    __slots__ = ()

    def add(
        self,
        where: object,
        upto: int | None = None,
        *,
        summary: str | None = None,
        data: serial.Json = None,
        cursor: serial.Json = None,
        versions: Mapping[str, str] | None = None,
        cache_keys: Iterable[str] = (),
    ) -> Checkpoint:
        """Fold all messages up to position `upto`; without it, all messages so far. The messages stay.

        Raises InvalidInput for a position without a message, and past 1 MiB.
        """
        row = _checked(summary, data, cursor, versions, cache_keys)
        crash.point("checkpoint.before_write")
        made = self._write(lambda tx: _added(tx, _node_id(tx, self.scope, where), upto, row))
        crash.point("checkpoint.after_write")
        return made

    @query
    def latest(self, tx: Tx, where: object, *, versions: Mapping[str, str] | None = None) -> Checkpoint | None:
        """The newest checkpoint of a node, or None; with `versions`, the newest made with those."""
        node_id = _node_id(tx, self.scope, where)
        return _latest(tx, _segments(tx, node_id), dict(versions or {}))

    @query
    def context(self, tx: Tx, where: object, *, last: int = 200, versions: Mapping[str, str] | None = None) -> Context:
        """The newest fold and the messages after it: the input for an LLM to continue."""
        node_id = _node_id(tx, self.scope, where)
        return _context(tx, node_id, last, dict(versions or {}))

    @query
    def list(
        self, tx: Tx, *, session: object = None, everywhere: bool = False, limit: int = 50, after: str | None = None
    ) -> CheckpointList:
        """List checkpoints, the newest first. `after` is the last id of a page."""
        session_id = lookup.session_id(tx, self.scope, session) or ""
        rows = tx.all(
            SQL.page,
            scope=self.scope,
            everywhere=int(everywhere),
            session_id=session_id,
            after=after or "",
            limit=page_size(limit),
        )
        return [_checkpoint(row) for row in rows]

    @transactional
    def delete_all(self, tx: Tx, session: object = None, *, everywhere: bool = False) -> int:
        """Delete the checkpoints of a session, or of this scope, and return their number. Nothing else is lost."""
        session_id = lookup.session_id(tx, self.scope, session) or ""
        count = len(tx.all(SQL.delete_all, scope=self.scope, everywhere=int(everywhere), session_id=session_id))
        if count:
            subject, about = session_id or "checkpoint:all", session_id or None
            journal.append(tx, "checkpoint.deleted", subject, summary=f"{count} checkpoints", session_id=about)
        return count


# -- writes -----------------------------------------------------------------------------------------------------


def _checked(
    summary: str | None,
    data: serial.Json,
    cursor: serial.Json,
    versions: Mapping[str, str] | None,
    cache_keys: Iterable[str],
) -> Row:
    """The columns that a caller gives, as text. Raises InvalidInput for bad values and past 1 MiB."""
    if summary is not None and not isinstance(summary, str):
        raise InvalidInput(f"summary is text, not {type(summary).__name__}", "a value goes into data=")
    keys = _texts(cache_keys)
    pins = dict(versions or {})
    texts: list[object] = [*pins, *pins.values()]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("versions are texts by name", 'versions={"prompt": "7"}')
    serial.canonical(summary, what="summary")  # NUL and lone surrogates are refused by name
    row: Row = {
        "summary": None if summary is None else redacted(summary),
        "data": None if data is None else serial.dumps(data, what="data"),
        "cursor": None if cursor is None else serial.dumps(cursor, what="cursor"),
        "cache_keys": serial.dumps(keys, what="cache_keys") if keys else None,
        "versions": serial.dumps(pins, what="versions") if pins else None,
    }
    row["size_bytes"] = sum(len(text.encode()) for text in row.values() if text is not None)
    if row["size_bytes"] > SIZE_MAX_BYTES:
        raise InvalidInput(
            f"the checkpoint has {row['size_bytes']:,} bytes, and the limit is {SIZE_MAX_BYTES:,}",
            "keep large data as an artifact and its id here: sf.artifacts.put(…)",
            code="too_large",
        )
    return row


def _texts(cache_keys: object) -> list[str]:
    if isinstance(cache_keys, Iterable) and not isinstance(cache_keys, str):
        keys = list(cache_keys)
        if all(isinstance(key, str) for key in keys):
            return keys
    raise InvalidInput("cache_keys is a list of texts", 'cache_keys=["…"]')


def _added(tx: Tx, node_id: str, upto: int | None, row: Row) -> Checkpoint:
    node = tx.maybe(SQL.node, id=node_id)
    if node is None:
        raise NotFound(f"there is no node {node_id}", "standfast session show KEY")
    last = node["next_position"] - 1
    upto = last if upto is None else upto
    if not isinstance(upto, int) or isinstance(upto, bool) or not 0 <= upto <= last:
        raise InvalidInput(f"nothing was said at position {upto}: the last one is {last}", "upto is a position")
    values = {**row, "session_id": node["session_id"], "node_id": node_id, "from_position": min(1, upto)}
    made = tx.one(SQL.add, id=new_id("chk"), to_position=upto, now_us=tx.now_us(), **values)
    tx.run(SQL.trim, node_id=node_id, keep=KEPT_PER_NODE)
    summary = f"up to position {upto}, {row['size_bytes']} bytes"
    receipt = journal.append(tx, "checkpoint.added", made["id"], summary=summary, session_id=node["session_id"])
    return _checkpoint(made).replace(receipt=receipt)


# -- reads --------------------------------------------------------------------------------------------------------


class _Segment(NamedTuple):
    """The part of a conversation that is in one node: positions below `before`."""

    node_id: str
    before: int


def _segments(tx: Tx, node_id: str) -> list[_Segment]:
    """The parts of a conversation, the newest first: in the node, then in its ancestors' nodes of the same path."""
    node = tx.maybe(SQL.node, id=node_id)
    found = [_Segment(node_id, _EVERYTHING)]
    if node is None or node["first_position"] <= 1:
        return found
    path, first = _path(tx, node), node["first_position"]
    row = tx.maybe(SQL.parent, id=node["session_id"])
    for _ in range(_LINEAGE_MAX):
        if row is None or row["parent_id"] is None or first <= 1:
            break
        ancestor = _at(tx, row["parent_id"], path)
        # If this fork was cut before the ancestor was, the ancestor adds nothing.
        if ancestor is not None and ancestor["first_position"] < first:
            found.append(_Segment(ancestor["id"], first))
            first = ancestor["first_position"]
        row = tx.maybe(SQL.parent, id=row["parent_id"])
    return found


def _path(tx: Tx, node: Row) -> list[str]:
    """The names from below the root down to a node."""
    names: list[str] = []
    while node["parent_id"]:
        names.insert(0, node["name"])
        node = tx.one(SQL.node, id=node["parent_id"])
    return names


def _at(tx: Tx, session_id: str, path: list[str]) -> Row | None:
    row = tx.maybe(SQL.child, session_id=session_id, parent_id="", name="")
    for name in path:
        if row is not None:
            row = tx.maybe(SQL.child, session_id=session_id, parent_id=row["id"], name=name)
    return row


def _latest(tx: Tx, segments: list[_Segment], versions: dict[str, str]) -> Checkpoint | None:
    for node_id, before in segments:
        for row in tx.all(SQL.newest, node_id=node_id, before=before, limit=KEPT_PER_NODE):
            found = _checkpoint(row)
            # Each stored version must equal the version that the caller names.
            if versions.items() <= found.versions.items():
                return found
    return None


def _context(tx: Tx, node_id: str, last: int, versions: dict[str, str]) -> Context:
    segments = _segments(tx, node_id)
    found = _latest(tx, segments, versions)
    after, limit = found.to_position if found is not None else 0, max(0, min(last, PAGE_MAX))
    rows: list[Row] = []
    for segment, before in segments:
        if len(rows) < limit and after < before - 1:
            rows += tx.all(SQL.said_last, node_id=segment, after=after, before=before, limit=limit - len(rows))
    messages = [_said(row) for row in reversed(rows)]
    node = tx.maybe(SQL.node, id=node_id)
    end = node["next_position"] if node is not None else after + 1
    first = messages[0].position if messages else end
    return Context(found, messages, max(0, first - after - 1))


def _older(store: Store, node_id: str, keep_last: int, versions: dict[str, str]) -> list[Said]:
    """The newest fold, if any, and the messages after it except the last few, read page by page."""

    def begin(tx: Tx) -> tuple[list[_Segment], Checkpoint | None, int]:
        node = tx.maybe(SQL.node, id=node_id)
        segments = _segments(tx, node_id)
        return segments, _latest(tx, segments, versions), node["next_position"] - keep_last if node else 0

    segments, found, end = store.read(begin)
    older = [] if found is None else [_folded(found)]
    after = found.to_position if found is not None else 0
    for segment, before in reversed(segments):
        before = min(before, end)
        while len(older) < FOLD_MAX and after < before - 1:
            asked: Row = {"node_id": segment, "after": after, "before": before, "limit": _PAGE}
            rows = store.read(lambda tx, asked=asked: tx.all(SQL.said_after, **asked))  # type: ignore[misc]
            older += [_said(row) for row in rows]
            if len(rows) < _PAGE:
                break
            after = older[-1].position
        after = max(after, older[-1].position if older else 0)
    return older


def _folded(found: Checkpoint) -> Said:
    content = found.summary if found.summary is not None else found.data
    return Said(found.to_position, "summary", content, found.created_us)


# -- private functions -----------------------------------------------------------------------------------------------


def _node_id(tx: Tx, scope: str, where: object) -> str:
    """The id of the node of a session or a sub-agent, given as an object, an id or a key."""
    named = str(getattr(where, "node_id", None) or getattr(where, "id", where))
    if is_id(named) and named.startswith("nod_"):
        return named
    session_id = lookup.session_id(tx, scope, named)
    root = tx.maybe(SQL.child, session_id=session_id, parent_id="", name="")
    if root is None:
        raise lookup.unknown(tx, "session", named)
    return str(root["id"])


def _said(row: Row) -> Said:
    content = serial.read(row["content"]) if row["format"] == "json" else row["content"]
    return Said(row["position"], row["role"], content, row["occurred_us"])


def _checkpoint(row: Row) -> Checkpoint:
    values = {name: row[name] for name in Checkpoint.field_names()[:-1]}
    for name in ("cursor", "data"):
        values[name] = serial.read(row[name])
    values["cache_keys"] = tuple(serial.read(row["cache_keys"]) or ())
    values["versions"] = serial.read(row["versions"]) or {}
    return Checkpoint(**values)
