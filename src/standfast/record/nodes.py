"""The nodes of a session: its root conversation and one node per sub-agent, as a tree.

A node is identified by its path of names from the root, so a sub-agent is the same node in every opening. In a fork, a
node begins at the cut: positions below its `first_position` belong to the parent and are read from there.
"""

from __future__ import annotations

from typing import NamedTuple

from standfast.core import journal, keys
from standfast.core.checks import NAME_MAX
from standfast.db.contract import Row, Tx
from standfast.db.sql import load
from standfast.errors import InvalidInput, NotFound
from standfast.ids import new_id
from standfast.ledger.openings import Lineage
from standfast.models import Model

SQL = load(__name__)

NODES_MAX = 1000

Path = tuple[str, ...]


class Node(Model):
    """One conversation of a session. The root has no name."""

    id: str
    session_id: str
    parent_id: str
    name: str
    title: str | None
    first_position: int
    next_position: int
    created_us: int


class Segment(NamedTuple):
    """The positions of a conversation in one node: from `first` up to, but not including, `before`."""

    node_id: str
    first: int
    before: int


POSITION_MAX = 2**62


def path_of(text: str | None) -> Path:
    """`reviewer/tests` as a path. None or an empty text is the root."""
    return tuple(checked_name(name) for name in text.split("/")) if text else ()


def checked_name(name: str) -> str:
    if "/" in keys.checked(name, "a sub-agent's name", limit=NAME_MAX):
        raise InvalidInput(
            f"a sub-agent's name cannot contain a slash: {name!r}", "nest it: s.subagent('a').subagent('b')"
        )
    return name


def add_root(tx: Tx, session_id: str, *, first_position: int = 1) -> Node:
    return _add(tx, session_id, "", "", None, first_position)


def find(tx: Tx, session_id: str, path: Path) -> Node | None:
    """The node at `path`, from the root down."""
    row = tx.maybe(SQL.node, session_id=session_id, parent_id="", name="")
    for name in path:
        if row is None:
            return None
        row = tx.maybe(SQL.node, session_id=session_id, parent_id=row["id"], name=name)
    return _node(row) if row is not None else None


def root(tx: Tx, session_id: str) -> Node:
    found = find(tx, session_id, ())
    assert found is not None, f"{session_id} has no root"
    return found


def open_at(tx: Tx, session_id: str, path: Path, lineage: Lineage, *, title: str | None = None) -> Node:
    """The node at `path`. Missing nodes of the path are created and journalled."""
    node = root(tx, session_id)
    for depth, name in enumerate(path, 1):
        row = tx.maybe(SQL.node, session_id=session_id, parent_id=node.id, name=name)
        if row is not None:
            node = _node(row)
            continue
        first = _first_position(tx, path[:depth], lineage)
        node = _add(tx, session_id, node.id, name, title if depth == len(path) else None, first)
        journal.append(tx, "node.opened", node.id, session_id=session_id, summary="/".join(path[:depth]))
    return node


def all_of(tx: Tx, session_id: str) -> list[Node]:
    return [_node(row) for row in tx.all(SQL.nodes, session_id=session_id, limit=NODES_MAX)]


def segments(tx: Tx, node: Node, path: Path, lineage: Lineage) -> tuple[Segment, ...]:
    """The positions of the conversation at `path`, newest first: this node, then its ancestors' of the same path."""
    found = [Segment(node.id, node.first_position, POSITION_MAX)]
    before = node.first_position
    for session_id, _ in lineage if before > 1 else ():
        ancestor = find(tx, session_id, path)
        # The cut may be before the first position of an ancestor. Then that ancestor has no messages to add.
        if ancestor is not None and ancestor.first_position < before:
            found.append(Segment(ancestor.id, ancestor.first_position, before))
            before = ancestor.first_position
    return tuple(found)


def unknown(path: Path, session_key: str) -> NotFound:
    return NotFound(f"session {session_key!r} has no sub-agent {'/'.join(path)!r}", "standfast session show KEY")


def _first_position(tx: Tx, path: Path, lineage: Lineage) -> int:
    """The first position of a new node: in a fork, after the messages of its ancestors of this path before the cut."""
    for session_id, cut_seq in lineage:
        ancestor = find(tx, session_id, path)
        if ancestor is None:
            continue
        said = tx.maybe(SQL.said_before, node_id=ancestor.id, cut_seq=cut_seq)
        if said is not None:
            return int(said["position"]) + 1
    return 1


def _add(tx: Tx, session_id: str, parent_id: str, name: str, title: str | None, first_position: int) -> Node:
    made = {"session_id": session_id, "parent_id": parent_id, "name": name}
    row = tx.maybe(
        SQL.add,
        id=new_id("nod"),
        title=title,
        first_position=first_position,
        now_us=tx.now_us(),
        **made,
    )
    # On PostgreSQL another process may have created it meanwhile: return that node.
    return _node(row if row is not None else tx.one(SQL.node, **made))


def _node(row: Row) -> Node:
    return Node(*(row[name] for name in Node.field_names()))
